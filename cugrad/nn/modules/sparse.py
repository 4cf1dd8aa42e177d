"""Embedding: a table of vectors, looked up by index."""

from __future__ import annotations

from typing import Any

from ...autograd.mode import no_grad
from ...dtypes import dtype as DType
from ...functions.creation.factories import empty
from ...tensor import Tensor
from .. import init
from ..functional.embedding import embedding, embedding_bag
from ..parameter import Parameter
from .module import Module

__all__ = ["Embedding", "EmbeddingBag"]


class _Table(Module):
    """The rows of embeddings, their initial values and settings."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        *,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise AssertionError("Padding_idx must be within num_embeddings")
            padding_idx %= num_embeddings
        self.padding_idx = padding_idx
        self.weight = Parameter(empty((num_embeddings, embedding_dim), device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)

    def extra_repr(self) -> str:
        """Sizes, the padding row, and settings that are not the usual ones."""
        usual = {"padding_idx": None, "max_norm": None, "norm_type": 2.0,
                 "scale_grad_by_freq": False}  # fmt: skip
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        parts += [f"{k}={getattr(self, k)}" for k, v in usual.items() if getattr(self, k) != v]
        return ", ".join(parts)


class Embedding(_Table):
    """The rows of `weight`, of shape (num_embeddings, embedding_dim), at the indices given.

    They start normal with variance 1. Row `padding_idx` starts at zero and gets no gradient. Rows
    that are looked up are first shortened to `max_norm`, by `norm_type`; `scale_grad_by_freq`
    divides the gradient of a row by how often it was.

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> nn.Embedding(10, 3)(torch.tensor([[1, 2], [9, 0]])).shape
    torch.Size([2, 2, 3])
    """

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None
    ) -> Embedding:
        """An Embedding of these rows, which are shared and, where `freeze`, get no gradient."""
        if embeddings.dim() != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, columns = embeddings.shape
        table = cls(rows, columns, padding_idx, device=embeddings.device, dtype=embeddings.dtype)
        table.weight = Parameter(embeddings, requires_grad=not freeze)
        return table

    def forward(self, input: Tensor) -> Tensor:
        """Look up indices of any shape; the result has embedding_dim as its last dim."""
        return embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type,
            self.scale_grad_by_freq,
        )  # fmt: skip


class EmbeddingBag(_Table):
    """The sum, mean or maximum of the rows in each bag of indices.

    >>> import cugrad as torch
    >>> bags = torch.nn.EmbeddingBag(10, 3, mode="sum")
    >>> bags(torch.tensor([1, 2, 4, 5]), torch.tensor([0, 1])).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(
            num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq,
            device=device, dtype=dtype,
        )  # fmt: skip
        self.mode, self.include_last_offset = mode, include_last_offset

    def forward(
        self,
        input: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        """One vector per bag; see `functional.embedding_bag`."""
        return embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq,
            self.mode, False, per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Sizes, mode and the padding row."""
        return f"{super().extra_repr()}, mode={self.mode!r}"
