"""A language model of decoder blocks, in the layout of GPT-2: tokens to scores of the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import nn
from ..nn import functional

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["GPT", "Attention", "Block"]


class Attention(nn.Module):
    """Causal attention of several heads: (N, L, width) to (N, L, width)."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"Attention: got width {width} and {heads} heads, want heads | width")
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        count, length, width = x.shape
        parts = self.qkv(x).reshape(count, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        p = self.dropout if self.training else 0.0
        y = functional.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(count, length, width))


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)); the mlp is four times as wide, with GELU."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.gelu = nn.GELU("tanh")
        self.down = nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.attention(self.norm1(x)))
        return x + self.drop(self.down(self.gelu(self.up(self.norm2(x)))))


class GPT(nn.Module):
    """Language Models are Unsupervised Multitask Learners (Radford et al., 2019): GPT-2.

    Args:
        vocabulary: how many different tokens there are.
        context: the longest sequence.
        width, heads, layers: of the blocks; GPT-2's smallest by default.
        dropout: the probability with which what a block adds, and attention, drops an element.
        tied: whether the scores are products with the embeddings of the tokens.

    Input (N, L) of integers below `vocabulary`, L at most `context`; output (N, L, vocabulary).
    Raises ValueError for a longer input.

    >>> import cugrad as torch
    >>> from cugrad.models import GPT
    >>> net = GPT(65, 16, width=32, heads=4, layers=2)
    >>> net(torch.zeros(2, 16, dtype=torch.int64)).shape
    torch.Size([2, 16, 65])
    """

    def __init__(
        self,
        vocabulary: int = 50257,
        context: int = 1024,
        *,
        width: int = 768,
        heads: int = 12,
        layers: int = 12,
        dropout: float = 0.0,
        tied: bool = True,
    ) -> None:
        super().__init__()
        self.context = context
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList([Block(width, heads, dropout) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for name, weight in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(weight)
            elif weight.dim() > 1:  # what is added to the residuals is scaled by their number
                ends = name.endswith(("proj.weight", "down.weight"))
                nn.init.normal_(weight, 0.0, 0.02 / (2 * layers) ** 0.5 if ends else 0.02)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[-1]
        if length > self.context:
            raise ValueError(f"GPT: got {length} tokens, want at most context = {self.context}")
        x = self.tokens(tokens) + self.positions.weight[:length]
        x = self.drop(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
