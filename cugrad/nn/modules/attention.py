"""MultiheadAttention: attention with several heads, each on its own projections."""

from __future__ import annotations

from typing import Any

from ...dtypes import dtype as DType
from ...functions.creation.factories import empty
from ...tensor import Tensor
from .. import init
from ..functional.attention import multi_head_attention_forward
from ..parameter import Parameter
from .linear import NonDynamicallyQuantizableLinear
from .module import Module

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attention of `num_heads` heads, each of embed_dim / num_heads.

    Source: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762.

    Args:
        embed_dim: the width of queries and outputs; a multiple of num_heads.
        num_heads: how many heads.
        dropout: the probability with which a weight is dropped in training.
        bias: whether the projections have one.
        add_bias_kv: a learned key and value that every query sees.
        add_zero_attn: a key and value of zeros that every query sees.
        kdim, vdim: the widths of keys and values, embed_dim by default.
        batch_first: inputs and outputs are (N, L, E) instead of (L, N, E).

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> x = torch.ones(5, 2, 8)
    >>> output, weights = nn.MultiheadAttention(8, 2)(x, x, x)
    >>> output.shape, weights.shape
    (torch.Size([5, 2, 8]), torch.Size([2, 5, 5]))
    """

    __module__ = "cugrad.nn.modules.activation"  # PyTorch's path, by which pickle finds it

    _of_older_files = {"_qkv_same_embed_dim": True}

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and "
                f"num_heads={num_heads} instead"
            )
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.batch_first, self.add_zero_attn = batch_first, add_zero_attn
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads")
        self._same_width = self.kdim == embed_dim == self.vdim
        factory = {"device": device, "dtype": dtype}

        def parameter(*shape: int, present: bool = True) -> Parameter | None:
            return Parameter(empty(shape, **factory)) if present else None

        packed = self._same_width
        for name, weight in {
            "q_proj_weight": parameter(embed_dim, embed_dim, present=not packed),
            "k_proj_weight": parameter(embed_dim, self.kdim, present=not packed),
            "v_proj_weight": parameter(embed_dim, self.vdim, present=not packed),
            "in_proj_weight": parameter(3 * embed_dim, embed_dim, present=packed),
            "in_proj_bias": parameter(3 * embed_dim, present=bias),
        }.items():
            self.register_parameter(name, weight)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias, **factory)
        self.register_parameter("bias_k", parameter(1, 1, embed_dim, present=add_bias_kv))
        self.register_parameter("bias_v", parameter(1, 1, embed_dim, present=add_bias_kv))
        self._reset_parameters()

    def merge_masks(
        self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, query: Tensor
    ) -> tuple[Tensor | None, int | None]:
        """One mask of two, and its kind: 1 for that of padding, (batch, sequence), alone.

        Else 2, for sums of both, (batch, heads, sequence, sequence); None and None without any.
        """
        if attn_mask is None:
            return key_padding_mask, None if key_padding_mask is None else 1
        batch, length, _ = query.shape
        if attn_mask.dim() == 3:
            merged = attn_mask.view(batch, -1, length, length)
        else:
            merged = attn_mask.view(1, 1, length, length).expand(batch, self.num_heads, -1, -1)
        if key_padding_mask is not None:
            padding = key_padding_mask.view(batch, 1, 1, length)
            merged = merged + padding.expand(-1, self.num_heads, -1, -1)
        return merged, 2

    def _reset_parameters(self) -> None:
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            if getattr(self, name) is not None:
                init.xavier_uniform_(getattr(self, name))
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The output, and the weights (N, L, S) where they are wanted, else None.

        `key_padding_mask` (N, S) and `attn_mask` (L, S) or (N * heads, L, S) are True where a key
        is not seen, or are added to the scores.
        """
        turned = self.batch_first and query.dim() == 3
        if turned:  # once each: of one tensor queries, keys and values are one product
            views = {id(x): x.transpose(0, 1) for x in (query, key, value)}
            query, key, value = (views[id(x)] for x in (query, key, value))
        output, weights = multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight,
            self.in_proj_bias, self.bias_k, self.bias_v, self.add_zero_attn, self.dropout,
            self.out_proj.weight, self.out_proj.bias, training=self.training,
            key_padding_mask=key_padding_mask, need_weights=need_weights, attn_mask=attn_mask,
            use_separate_proj_weight=not self._same_width, q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight, v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights, is_causal=is_causal,
        )  # fmt: skip
        return (output.transpose(0, 1) if turned else output), weights
