"""What is taken of a sparse tensor, and what is done to each of its elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..autograd.recording.record import recorded
from ..dtypes import dtype as DType
from ..dtypes import promote_types
from ..functions import FUNCTIONS
from ..functions.creation.factories import tensor, zeros
from ..functions.creation.ranges import arange
from ..functions.queries import can_cast
from ..functions.shapes.copies import cat
from ..ops.dims import canonical_dim, canonical_dims
from ..ops.table import ELEMENTWISE, TABLE
from ..tensor import Tensor
from .coo import SparseTensor
from .products import bmm, linear

__all__ = [
    "OPS", "changed", "each_element", "joined", "listed", "part", "permuted", "selected", "sum",
    "summed", "widened",
]  # fmt: skip


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
    """`input[index]`, of integers and slices; NotImplementedError for other indices."""
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
        elif not isinstance(entry, slice):
            raise NotImplementedError(
                f"index: got {entry!r} for dim {dim} of a sparse tensor, want integers and slices; "
                "call to_dense(), or index_select of values()"
            )
        elif entry != slice(None):
            result = _sliced(result, dim, entry)
    return result


def _sliced(input: Any, dim: int, entry: slice) -> SparseTensor:
    """The elements that a slice has of one dim; ValueError for one that goes backwards."""
    if entry.step is not None and entry.step <= 0:
        raise ValueError("step must be greater than zero")
    every = range(*entry.indices(input.shape[dim]))
    sparse, places, values = input.sparse_dim(), input._indices(), input._values()
    size = [len(every) if d == dim else n for d, n in enumerate(input.shape)]
    if dim >= sparse:
        values = values[(slice(None),) * (1 + dim - sparse) + (entry,)]
        return SparseTensor(places, values, size, input.is_coalesced())
    behind = places[dim] - every.start
    here = (behind >= 0) & (places[dim] < every.stop) & (behind % every.step == 0)
    at = here.nonzero().reshape(-1)
    rows = [FUNCTIONS["floor_divide"](behind, every.step) if d == dim else row
            for d, row in enumerate(places.unbind())]  # fmt: skip
    places = FUNCTIONS["stack"](rows).index_select(1, at)
    return SparseTensor(places, values.index_select(0, at), size, input.is_coalesced())


def changed(input: SparseTensor, name: str, dense: Tensor) -> bool:
    """Whether a dense tensor has become its sum with a sparse one, or the difference, in place."""
    if name not in ("add", "sub"):
        return False
    if dense.shape != input.shape:
        raise RuntimeError(
            f"{name}_: got a dense tensor of size {list(dense.shape)} and a sparse one of "
            f"{list(input.shape)}, want one size"
        )
    if not can_cast(input.dtype, dense.dtype):
        raise RuntimeError(
            f"result type {input.dtype} can't be cast to the desired output type {dense.dtype}"
        )
    (input if name == "add" else -input).add_into(dense)
    return True


def permuted(input: SparseTensor, dims: Any) -> SparseTensor:
    """The dims in another order; NotImplementedError where sparse and dense ones would mix."""
    order, sparse = canonical_dims(dims, input.dim()), input.sparse_dim()
    if sorted(order) != [*range(input.dim())]:
        raise RuntimeError(
            f"permute(sparse_coo): got dims {list(order)} of a tensor of {input.dim()} dims, "
            "want each once"
        )
    front, behind = order[:sparse], [1 + d - sparse for d in order[sparse:]]
    if any(d >= sparse for d in front):
        raise NotImplementedError("permute: sparse dims of a tensor stand in front of dense ones")
    size = [input.shape[d] for d in order]
    coalesced = input.is_coalesced() and front == (*range(sparse),)
    values = input._values().permute(0, *behind) if len(behind) > 1 else input._values()
    return SparseTensor(input._indices()[list(front)], values, size, coalesced)


def widened(input: SparseTensor, dim: int) -> SparseTensor:
    """A dim of one element more, sparse up to behind the sparse ones."""
    dim, sparse = canonical_dim(dim, input.dim() + 1), input.sparse_dim()
    size = [*input.shape[:dim], 1, *input.shape[dim:]]
    places, values = input._indices(), input._values()
    if dim > sparse:
        return SparseTensor(places, values.unsqueeze(1 + dim - sparse), size, input.is_coalesced())
    row = zeros((1, places.shape[1]), dtype=places.dtype, device=places.device)
    return SparseTensor(cat([places[:dim], row, places[dim:]]), values, size, input.is_coalesced())


def joined(tensors: Sequence[Any], dim: int) -> SparseTensor:
    """Sparse tensors one behind the other along a sparse dim."""
    first = tensors[0]
    dim, sparse = canonical_dim(dim, first.dim()), first.sparse_dim()
    if dim >= sparse or not all(isinstance(x, SparseTensor) for x in tensors):
        raise NotImplementedError(
            "cat: want sparse tensors alone, and one of their sparse dims; call to_dense()"
        )
    rest = [n for d, n in enumerate(first.shape) if d != dim]
    kind, begin, places, values = first.dtype, 0, [], []
    for x in tensors:
        if x.sparse_dim() != sparse or [n for d, n in enumerate(x.shape) if d != dim] != rest:
            raise RuntimeError(
                f"cat: got sizes {list(first.shape)} and {list(x.shape)} with {sparse} and "
                f"{x.sparse_dim()} sparse dims, want them equal but for the size of dim {dim}"
            )
        rows = [row + begin if d == dim else row for d, row in enumerate(x._indices().unbind())]
        places.append(FUNCTIONS["stack"](rows))
        values.append(x._values())
        begin, kind = begin + x.shape[dim], promote_types(kind, x.dtype)
    size = [*rest[:dim], begin, *rest[dim:]]
    return SparseTensor(cat(places, 1), cat([v.to(kind) for v in values]), size)


def _stacked(tensors: Sequence[Any], dim: int = 0) -> SparseTensor:
    """Sparse tensors along a new sparse dim."""
    if not all(isinstance(x, SparseTensor) for x in tensors):
        raise NotImplementedError("stack: want sparse tensors alone; call to_dense()")
    return joined([x.unsqueeze(dim) for x in tensors], dim)


def _any(input: SparseTensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether an element is not zero."""
    if dim is not None:
        raise NotImplementedError("any: of a sparse tensor want no dim; call to_dense()")
    return input._values().any()


def _norm(input: SparseTensor, ord: Any = 2, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The norm of all elements, of an order that zeros add nothing to."""
    dims = range(input.dim()) if dim is None else (dim,) if isinstance(dim, int) else dim
    if ord < 0 or len(dims) != input.dim():
        raise NotImplementedError(
            f"norm: got ord {ord}, dim {dim}, of a sparse tensor want ord >= 0, and all dims; call "
            "to_dense()"
        )
    norm = recorded.linalg_vector_norm(input.coalesce()._values().reshape(-1), ord, None, False)
    return norm.reshape([1] * input.dim()) if keepdim else norm


def listed(input: SparseTensor, dim: int, index: Tensor) -> SparseTensor:
    """The parts at the places of a dim that `index` lists, in its order."""
    dim, sparse = canonical_dim(dim, input.dim()), input.sparse_dim()
    size = [index.numel() if d == dim else n for d, n in enumerate(input.shape)]
    if index.numel() and not bool(((index >= 0) & (index < input.shape[dim])).all()):
        raise IndexError(f"index_select(): index out of range in dim {dim} of {input.shape}")
    index, places, values = index.reshape(-1).long(), input._indices(), input._values()
    if dim >= sparse:
        values = values.index_select(1 + dim - sparse, index)
        return SparseTensor(places, values, size, input.is_coalesced())
    order = places[dim].argsort(stable=True)
    keys = places[dim].index_select(0, order)
    first = FUNCTIONS["searchsorted"](keys, index)
    counts = FUNCTIONS["searchsorted"](keys, index, right=True) - first
    at = arange(index.numel(), device=index.device).repeat_interleave(counts)  # where it is listed
    before = (counts.cumsum(0) - counts).index_select(0, at)
    each = first.index_select(0, at) + arange(at.numel(), device=index.device) - before
    each = order.index_select(0, each)
    rows = [at if d == dim else row.index_select(0, each) for d, row in enumerate(places.unbind())]
    return SparseTensor(FUNCTIONS["stack"](rows), values.index_select(0, each), size)


def each_element(name: str, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """An elementwise op of one sparse tensor, and numbers, that makes zero of zero.

    None for any other op.
    """
    op = TABLE.get(name)
    tensors = [x for x in args if isinstance(x, Tensor)]
    if op is None or len(tensors) != 1 or op.kind is not ELEMENTWISE and op.ufunc is None:
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
    gone = {*range(input.dim())} if dim is None else {*canonical_dims(dim, input.dim())}
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


# The ops, by the names of rows, that need no more than the parts.
OPS: dict[str, Any] = {
    "any": _any, "bmm": bmm, "cat": joined, "clone": lambda a, order="K": a.clone(),
    "index_select": lambda a, index, dim: listed(a, dim, index), "linalg_vector_norm": _norm,
    "linear": linear, "slice_view": part, "stack": _stacked, "unsqueeze": widened,
}  # fmt: skip
