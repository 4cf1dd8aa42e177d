"""PyTorch's import path torch.nn.attention: what it has is not here, and an error says why.

Attention is `nn.functional.scaled_dot_product_attention` and `nn.MultiheadAttention`.
"""

from __future__ import annotations

from ..absent import explain

explain(__name__)
