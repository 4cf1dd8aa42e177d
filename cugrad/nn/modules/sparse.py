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

    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None
    max_norm: float | None
    norm_type: float
    scale_grad_by_freq: bool
    sparse: bool

    def _set_up(
        self, size: tuple[int, int], padding_idx: int | None, weight: Tensor | None, freeze: bool,
        device: Any, dtype: DType | None,
    ) -> None:  # fmt: skip
        """Makes the table, or takes the one that is given."""
        self.num_embeddings, self.embedding_dim = size
        if padding_idx is not None:
            if not -size[0] <= padding_idx < size[0]:
                raise AssertionError("Padding_idx must be within num_embeddings")
            padding_idx %= size[0]
        self.padding_idx = padding_idx
        if weight is None:
            self.weight = Parameter(empty(size, device=device, dtype=dtype), not freeze)
            self.reset_parameters()
        elif list(weight.shape) != list(size):
            raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
        else:
            self.weight = Parameter(weight, requires_grad=not freeze)

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)

    def extra_repr(self) -> str:
        """Sizes, the padding row, and settings that are not the usual ones."""
        usual = {"padding_idx": None, "max_norm": None, "norm_type": 2.0,
                 "scale_grad_by_freq": False, "sparse": False}  # fmt: skip
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        parts += [f"{k}={getattr(self, k)}" for k, v in usual.items() if getattr(self, k) != v]
        return ", ".join(parts)


def _size_of(embeddings: Tensor) -> tuple[int, int]:
    """The rows and columns of embeddings; AssertionError where they are no matrix."""
    if embeddings.dim() != 2:
        raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
    rows, columns = embeddings.shape
    return rows, columns


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

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        size = (num_embeddings, embedding_dim)
        self._set_up(size, padding_idx, _weight, _freeze, device, dtype)

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None,
        max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:  # fmt: skip
        """An Embedding of these rows, which are shared and, where `freeze`, get no gradient."""
        return cls(
            *_size_of(embeddings), padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse,
            embeddings, freeze,
        )  # fmt: skip

    def forward(self, input: Tensor) -> Tensor:
        """Look up indices of any shape; the result has embedding_dim as its last dim."""
        return embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type,
            self.scale_grad_by_freq, self.sparse,
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
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        self.mode, self.include_last_offset = mode, include_last_offset
        size = (num_embeddings, embedding_dim)
        self._set_up(size, padding_idx, _weight, False, device, dtype)

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: str = "mean",
        sparse: bool = False, include_last_offset: bool = False, padding_idx: int | None = None,
    ) -> EmbeddingBag:  # fmt: skip
        """An EmbeddingBag of these rows, which are shared and, where `freeze`, get no gradient."""
        bags = cls(
            *_size_of(embeddings), max_norm, norm_type, scale_grad_by_freq, mode, sparse,
            embeddings, include_last_offset, padding_idx,
        )  # fmt: skip
        bags.weight.requires_grad_(not freeze)
        return bags

    def forward(
        self,
        input: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        """One vector per bag; see `functional.embedding_bag`."""
        return embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq,
            self.mode, self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Sizes, settings that are not the usual ones, mode and the padding row."""
        usual = {"max_norm": None, "norm_type": 2.0, "scale_grad_by_freq": False}
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        parts += [f"{k}={getattr(self, k)}" for k, v in usual.items() if getattr(self, k) != v]
        parts.append(f"mode={self.mode!r}")
        if self.padding_idx is not None:
            parts.append(f"padding_idx={self.padding_idx}")
        return ", ".join(parts)
