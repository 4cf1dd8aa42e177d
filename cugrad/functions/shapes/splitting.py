"""Tensors cut into pieces along a dim, as PyTorch spells it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from ...autograd.recording.record import recorded
from ...ops import dims as D
from ...tensor import Tensor
from ..calls.arguments import array_of

__all__ = [
    "chunk", "dsplit", "hsplit", "split", "split_with_sizes", "tensor_split", "unbind",
    "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes", "vsplit",
]  # fmt: skip


def _cut(input: Tensor, dim: int, start: int, stop: int) -> Tensor:
    return recorded.slice_view(input, (*(slice(None),) * dim, slice(start, stop, 1)))


def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of all places along `dim`, without that dim.

    >>> import cugrad as torch
    >>> torch.arange(3).unbind()
    (tensor(0), tensor(1), tensor(2))
    """
    shape = array_of(input, "unbind").shape
    if not shape:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions (in unbind)")
    return recorded.unbind(input, D.canonical_dim(dim, len(shape)))


def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of pieces along `dim`: of one size, the last one smaller, or of the sizes listed.

    >>> import cugrad as torch
    >>> [p.tolist() for p in torch.arange(5).split(2)]
    [[0, 1], [2, 3], [4]]
    """
    if type(split_size_or_sections) is not int and isinstance(split_size_or_sections, Sequence):
        return split_with_sizes(tensor, split_size_or_sections, dim)
    sizes, dim = _even_sizes(tensor, split_size_or_sections, dim)
    return recorded.split_with_sizes(tensor, sizes, dim, True)


def _even_sizes(tensor: Tensor, size: Any, dim: int) -> tuple[tuple[int, ...], int]:
    """The sizes of pieces of `size`, the last one smaller; and the canonical dim."""
    shape = array_of(tensor, "split", "tensor").shape
    if not shape:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    dim = D.canonical_dim(dim, len(shape))
    n = shape[dim]
    size = D.one_int(size, "split_size")
    if size < 0:
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={size}")
    if size == 0 and n:
        raise RuntimeError(
            f"split_size can only be 0 if dimension size is 0, but got dimension size of {n}"
        )
    full, rest = divmod(n, size) if size else (0, 0)
    return (size,) * full + ((rest,) if rest or not n else ()), dim


def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Views of pieces of the sizes listed along `dim`; RuntimeError unless they fill it."""
    sizes, dim = _listed_sizes(input, split_sizes, dim)
    return recorded.split_with_sizes(input, sizes, dim)


def _listed_sizes(
    input: Tensor, split_sizes: Sequence[int], dim: int
) -> tuple[tuple[int, ...], int]:
    shape = array_of(input, "split_with_sizes").shape
    if not shape:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    dim = D.canonical_dim(dim, len(shape))
    n = shape[dim]
    sizes = D.int_tuple(split_sizes, "split_sizes")
    if any(s < 0 for s in sizes):
        raise RuntimeError(
            "split_with_sizes expects split_sizes have only non-negative entries, but got "
            f"split_sizes={list(sizes)}"
        )
    if sum(sizes) != n:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {n} (input tensor's size "
            f"at dimension {dim}), but got split_sizes={list(sizes)}"
        )
    return sizes, dim


def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of at most `chunks` pieces of one size along `dim`, the last one smaller."""
    size = _chunk_size(input, chunks, dim)
    return split(input, size, dim) if size else split(input, [0] * chunks, dim)


def _chunk_size(input: Tensor, chunks: int, dim: int) -> int:
    shape = array_of(input, "chunk").shape
    if not shape:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if D.one_int(chunks, "chunks") < 1:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    return -(-shape[D.canonical_dim(dim, len(shape))] // chunks)


def unsafe_split(tensor: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    """As `split`, in pieces that may be changed in place: each has a node of its own."""
    return unsafe_split_with_sizes(tensor, *_even_sizes(tensor, split_size, dim))


def unsafe_split_with_sizes(
    input: Tensor, split_sizes: Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """As `split_with_sizes`, in pieces that may be changed in place."""
    sizes, dim = _listed_sizes(input, split_sizes, dim)
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return tuple([_cut(input, dim, b - n, b) for n, b in zip(sizes, ends)])


def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """As `chunk`, in pieces that may be changed in place."""
    size = _chunk_size(input, chunks, dim)
    if not size:
        return unsafe_split_with_sizes(input, [0] * chunks, dim)
    return unsafe_split(input, size, dim)


def tensor_split(
    input: Tensor, indices_or_sections: Any = None, dim: int = 0, *, indices: Any = None,
    sections: Any = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Views of pieces along `dim`: a number of nearly equal ones, or cut at the indices listed.

    A tensor of numbers, on the host, may say either: 0-d for how many, one dim for where.

    >>> import cugrad as torch
    >>> [p.tolist() for p in torch.arange(5).tensor_split((1, 3))]
    [[0], [1, 2], [3, 4]]
    """
    for other in (indices, sections):
        indices_or_sections = other if indices_or_sections is None else indices_or_sections
    shape = array_of(input, "tensor_split").shape
    if not shape:
        raise RuntimeError(
            "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims"
        )
    dim = D.canonical_dim(dim, len(shape))
    n = shape[dim]
    cuts = indices_or_sections
    if isinstance(cuts, Tensor):
        if cuts.is_cuda or cuts.dtype.name != "int64":
            raise RuntimeError(
                "tensor_split expected tensor_indices_or_sections to be on cpu and of dtype int64, "
                f"but it's {cuts.dtype} on {cuts.device}"
            )
        if cuts.dim() > 1:
            raise RuntimeError(
                "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or "
                f"one-dimensional tensor, but got a tensor with {cuts.dim()} dims"
            )
        cuts = cuts.tolist()
    if isinstance(cuts, Sequence):
        marks = [slice(None, i).indices(n)[1] for i in D.int_tuple(cuts, "indices")]
        starts, stops = [0, *marks], [*marks, n]
    else:
        number = D.one_int(cuts, "sections")
        if number < 1:
            raise RuntimeError(f"number of sections must be larger than 0, got {number}")
        size, extra = divmod(n, number)
        ends = [size * i + (i if i < extra else extra) for i in range(number + 1)]
        starts, stops = ends[:-1], ends[1:]
    return tuple([_cut(input, dim, a, b if b > a else a) for a, b in zip(starts, stops)])


def _along(
    name: str, least: int, dim: int, input: Tensor, indices_or_sections: Any
) -> tuple[Tensor, ...]:
    shape = array_of(input, name).shape
    if len(shape) < least:
        raise RuntimeError(
            f"torch.{name} requires a tensor with at least {least} dimension"
            f"{'s' * (least > 1)}, but got a tensor with {len(shape)} dimensions!"
        )
    dim = 0 if len(shape) == 1 else dim
    if isinstance(indices_or_sections, int) and (
        indices_or_sections < 1 or shape[dim] % indices_or_sections
    ):
        raise RuntimeError(
            f"torch.{name} attempted to split along dimension {dim}, but the size of the dimension "
            f"{shape[dim]} is not divisible by the split_size {indices_or_sections}!"
        )
    return tensor_split(input, indices_or_sections, dim)


def hsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` along dim 1, or dim 0 of a vector, into equal pieces or at indices."""
    return _along("hsplit", 1, 1, input, indices_or_sections)


def vsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` along dim 0, into equal pieces or at indices."""
    return _along("vsplit", 2, 0, input, indices_or_sections)


def dsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` along dim 2, into equal pieces or at indices."""
    return _along("dsplit", 3, 2, input, indices_or_sections)


def _at_places(function: Callable[..., tuple[Tensor, ...]]) -> Callable[..., tuple[Tensor, ...]]:
    """The method, which takes the indices one by one as well."""

    @wraps(function)
    def method(self: Tensor, *places: Any, **named: Any) -> tuple[Tensor, ...]:
        return function(self, *(places if len(places) < 2 else (places,)), **named)

    return method


METHODS = {name: globals()[name] for name in __all__}
METHODS.update({f.__name__: _at_places(f) for f in (hsplit, vsplit, dsplit)})
