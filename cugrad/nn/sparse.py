"""Embedding: a table of vectors, looked up by index."""

from __future__ import annotations

from typing import Any

from ..autograd.mode import no_grad
from ..creation import empty
from ..dtypes import dtype as DType
from ..tensor import Tensor
from . import functional, init
from .module import Module
from .parameter import Parameter


class Embedding(Module):
    """The rows of `weight`, of shape (num_embeddings, embedding_dim), at the indices given.

    They start normal with variance 1. Row `padding_idx` starts at zero and gets no gradient.

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> nn.Embedding(10, 3)(torch.tensor([[1, 2], [9, 0]])).shape
    torch.Size([2, 2, 3])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise AssertionError("Padding_idx must be within num_embeddings")
            padding_idx %= num_embeddings
        self.padding_idx = padding_idx
        self.weight = Parameter(empty((num_embeddings, embedding_dim), device=device, dtype=dtype))
        self.reset_parameters()

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None
    ) -> Embedding:
        """An Embedding of these rows, which are shared and, where `freeze`, get no gradient."""
        if embeddings.dim() != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, columns = embeddings.shape
        made = cls(rows, columns, padding_idx, device=embeddings.device, dtype=embeddings.dtype)
        made.weight = Parameter(embeddings, requires_grad=not freeze)
        return made

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(self, input: Tensor) -> Tensor:
        """Look up indices of any shape; the result has embedding_dim as its last dim."""
        return functional.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        """Sizes and the padding row."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"
