"""What is taken of a sparse tensor, and what is done to each of its elements."""

from __future__ import annotations

from typing import Any

from ..autograd.recording.record import recorded
from ..dtypes import dtype as DType
from ..functions.creation.factories import tensor, zeros
from ..ops.dims import canonical_dim
from ..ops.table import ELEMENTWISE, TABLE
from ..tensor import Tensor
from .coo import SparseTensor

__all__ = ["each_element", "part", "selected", "sum", "summed"]


def selected(input: SparseTensor, dim: int, index: int) -> Tensor:
    """The part at a place of one dim: a sparse tensor, or a dense one if no sparse dim is left."""
    dim = canonical_dim(dim, input.dim())
    extent, sparse = input.shape[dim], input.sparse_dim()
    if not -extent <= index < extent:
        raise IndexError(f"index {index} is out of bounds for dimension {dim} with size {extent}")
    index %= extent
    size = [n for d, n in enumerate(input.shape) if d != dim]
    if dim >= sparse:
        values = input._values().select(1 + dim - sparse, index)
        return SparseTensor(input._indices(), values, size, input.is_coalesced())
    here = (input._indices()[dim] == index).nonzero().reshape(-1)
    values = input._values().index_select(0, here)
    if sparse == 1:
        return values.sum(0)
    left = [d for d in range(sparse) if d != dim]
    return SparseTensor(input._indices()[left][:, here], values, size, input.is_coalesced())


def part(input: SparseTensor, index: Any) -> Tensor:
    """`input[index]`, of integers and `:`; NotImplementedError for other indices."""
    entries = index if isinstance(index, tuple) else (index,)
    dotted = [at for at, entry in enumerate(entries) if entry is Ellipsis]
    for at in dotted[:1]:
        whole = (slice(None),) * (input.dim() - len(entries) + 1)
        entries = (*entries[:at], *whole, *entries[at + 1 :])
    result: Any = input
    for dim in range(len(entries) - 1, -1, -1):  # from behind, so that dims keep their numbers
        entry = entries[dim]
        if type(entry) is int:
            result = result.select(dim, entry)
        elif not (isinstance(entry, slice) and entry == slice(None)):
            raise NotImplementedError(
                f"index: got {entry!r} for dim {dim} of a sparse tensor, want integers and ':'; "
                "call to_dense(), or index_select of values()"
            )
    return result


def each_element(name: str, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """An elementwise op of one sparse tensor, and numbers, that makes zero of zero.

    None for any other op.
    """
    op = TABLE.get(name)
    tensors = [x for x in args if isinstance(x, Tensor)]
    if op is None or op.kind is not ELEMENTWISE or len(tensors) != 1:
        return None
    a = tensors[0].coalesce()

    def of(x: Tensor) -> Any:
        return getattr(recorded, name)(*[x if arg is tensors[0] else arg for arg in args], **params)

    if of(zeros(1, dtype=a.dtype)).any():
        return None
    return a._with(of(a._values()))


def sum(input: SparseTensor, dim: Any = None, dtype: DType | None = None) -> Tensor:
    """The sum of all elements; over some dims a sparse tensor, or a dense one if none is left.

    >>> import cugrad as torch
    >>> a = torch.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3))
    >>> torch.sparse.sum(a), torch.sparse.sum(a, 0).to_dense()
    (tensor(7.), tensor([4., 0., 3.]))
    """
    return summed(input if dtype is None else input.to(dtype), dim, False)


def summed(input: SparseTensor, dim: Any, keepdim: bool) -> Tensor:
    """The sum over all dims or some, which stay, of one element each, with `keepdim`."""
    values, sparse = input._values(), input.sparse_dim()
    if dim is None and not keepdim:
        return values.sum()
    dims = range(input.dim()) if dim is None else (dim,) if isinstance(dim, int) else dim
    gone = {d % input.dim() for d in dims}
    dense = [1 + d - sparse for d in gone if d >= sparse]
    values = values.sum(dense, keepdim) if dense else values
    size = [1 if d in gone else extent for d, extent in enumerate(input.shape)
            if keepdim or d not in gone]  # fmt: skip
    left = [d for d in range(sparse) if d not in gone]
    if not left:
        return values.sum(0).reshape(size)
    places = input._indices()
    if keepdim:
        places = places * tensor([[d in left] for d in range(sparse)], device=places.device)
    coalesced = input.is_coalesced() and len(left) == sparse
    total = SparseTensor(places if keepdim else places[left], values, size, coalesced)
    return total.coalesce() if input.is_coalesced() else total
