"""Sparse tensors of places and values, and of dense tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import dtypes
from ..dtypes import dtype as DType
from ..functions.calls.arguments import array_of
from ..functions.calls.out import SPARSE, strided
from ..functions.creation.factories import as_tensor, tensor, zeros
from ..functions.creation.ranges import arange
from ..functions.indexing.bounds import is_looked_at
from ..functions.shapes.copies import cat
from ..tensor import Size, Tensor
from .coo import SparseTensor, check_layout, nothing, places_of

__all__ = ["METHODS", "sparse_coo_tensor", "spdiags"]


def sparse_coo_tensor(
    indices: Any = None, values: Any = None, size: Any = None, *, dtype: DType | None = None,
    device: Any = None, requires_grad: bool = False, check_invariants: bool | None = None,
    is_coalesced: bool | None = None, pin_memory: bool = False,
) -> SparseTensor:  # fmt: skip
    """A sparse tensor of the values at these places.

    Args:
        indices: (sparse_dim, nnz) of integers: a column says where a value lies.
        values: (nnz, *dense dims), tensor or data.
        size: of the whole; the least that holds all places where it is not said.
        check_invariants: places are always looked at on a CPU.
        is_coalesced: that no place is there twice, and they are in order.
        pin_memory: places and values lie in page-locked memory, from where copies are quick.

    Gradients go to `values`, if that is a tensor which requires them. RuntimeError for places that
    are not there, and for shapes that do not fit.

    >>> import cugrad as torch
    >>> a = torch.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3))
    >>> a.to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    >>> a @ torch.ones(3, 1)
    tensor([[3.],
            [4.]])
    """
    if values is None or (size is None and isinstance(values, (Size, tuple))):
        if size is None:
            size = indices if values is None else values
        if size is None:
            raise TypeError("sparse_coo_tensor(): missing indices and values, or a size")
        indices = tensor([[]] * len(size), dtype=dtypes.int64, device=device)
        values = zeros(0, dtype=dtype, device=device)
    elements = as_tensor(values, dtype=dtype, device=device)
    places = as_tensor(indices, device=elements.device).to(dtypes.int64)
    if places.dim() != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(places.shape)}")
    if elements.dim() < 1 or elements.shape[0] != places.shape[1]:
        raise RuntimeError(
            f"indices and values must have same nnz, but got nnz from indices: {places.shape[1]}, "
            f"nnz from values: {elements.shape[0] if elements.dim() else 'none'}"
        )
    lowest, highest = _extremes(places)
    if size is None:
        size = (*(high + 1 for high in highest), *elements.shape[1:])
    _check_size(places, elements, tuple(size), lowest, highest)
    if pin_memory:
        places, elements = places.pin_memory(), elements.pin_memory()
    if requires_grad and not elements.requires_grad:
        elements = elements.detach().requires_grad_()
    return SparseTensor(places, elements, size, bool(is_coalesced))


def _extremes(places: Tensor) -> tuple[list[int], list[int]]:
    """The least and the greatest place of each dim, -1 without any; a device is waited for."""
    if not places.shape[1]:
        return [0] * places.shape[0], [-1] * places.shape[0]
    return places.amin(1).tolist(), places.amax(1).tolist()


def _check_size(places: Tensor, elements: Tensor, size: Any, lowest: Any, highest: Any) -> None:
    dims = places.shape[0]
    if len(size) != dims + elements.dim() - 1:
        raise RuntimeError(
            f"number of dimensions must be sparse_dim ({dims}) + dense_dim ({elements.dim() - 1}), "
            f"but got {len(size)}"
        )
    if tuple(elements.shape[1:]) != tuple(size[dims:]):
        raise RuntimeError(
            f"values has incorrect size, expected {[places.shape[1], *size[dims:]]}, got "
            f"{list(elements.shape)}"
        )
    if is_looked_at(places._array):
        for d, (low, high) in enumerate(zip(lowest, highest, strict=True)):
            if low < 0:
                raise RuntimeError(f"found negative index {low} for dim {d}")
            if high >= size[d]:
                raise RuntimeError(
                    f"size is inconsistent with indices: for dim {d}, size is {size[d]} but found "
                    f"index {high}"
                )


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Any, layout: Any = None) -> SparseTensor:
    """A sparse matrix of diagonals.

    Args:
        diagonals: (k, n), or (n,): what a line has at j is in column j.
        offsets: (k,) of int64, each once, or one number: which diagonal, 0 the main one, 1 that
            above, -1 that below.
        shape: of the matrix, two integers.

    >>> import cugrad as torch
    >>> lines = torch.tensor([[1, 2], [3, 4]])
    >>> torch.sparse.spdiags(lines, torch.tensor([0, -1]), (2, 2)).to_dense()
    tensor([[1, 0],
            [3, 2]])
    """
    check_layout(layout)
    array_of(diagonals, "spdiags", "diagonals")
    array_of(offsets, "spdiags", "offsets", 2)
    if not isinstance(shape, (tuple, list)):
        raise TypeError(
            "spdiags(): argument 'shape' (position 3) must be tuple of ints, not "
            f"{type(shape).__name__}"
        )
    lines = diagonals.unsqueeze(0) if diagonals.dim() == 1 else diagonals
    which = offsets.reshape(-1)
    if len(shape) != 2:
        raise RuntimeError(f"Output shape must be 2d, got {list(shape)}")
    if lines.dim() != 2 or which.shape[0] != lines.shape[0]:
        raise RuntimeError(
            f"Number of diagonals ({lines.shape[0]}) does not match the number of offsets "
            f"({which.shape[0]})"
        )
    if which.dtype is not dtypes.int64:
        raise RuntimeError(
            f"Offset Tensor must have dtype Long but got {dtypes.type_name(which.dtype)}"
        )
    if which.unique().shape[0] != which.shape[0]:
        raise RuntimeError("Offset tensor contains duplicate values")
    columns = arange(lines.shape[1], device=lines.device).expand(lines.shape)
    rows = columns - which.unsqueeze(1)
    here = (rows >= 0) & (rows < shape[0]) & (columns < shape[1])
    places = [rows[here].unsqueeze(0), columns[here].unsqueeze(0)]
    return SparseTensor(cat(places), lines[here], tuple(shape))


def to_sparse(
    self: Tensor, sparse_dim: int | None = None, *, layout: Any = None, blocksize: Any = None,
    dense_dim: int | None = None,
) -> SparseTensor:  # fmt: skip
    """The elements that are not zero, as a sparse tensor; `sparse_dim` dims of it are sparse.

    Or all but `dense_dim`. The device is waited for. NotImplementedError for another layout than
    COO; RuntimeError for a blocksize, which other layouts have.

    >>> import cugrad as torch
    >>> torch.tensor([[0., 2.], [0., 0.]]).to_sparse().indices()
    tensor([[0],
            [1]])
    """
    check_layout(layout, blocksize)
    if sparse_dim is not None and dense_dim is not None:
        raise TypeError("to_sparse: got both sparse_dim and dense_dim, want one of them")
    dims = self.dim() - (dense_dim or 0) if sparse_dim is None else sparse_dim
    if not 0 < dims <= max(self.dim(), 1) or not self.dim():
        raise RuntimeError(f"to_sparse: got sparse_dim {dims} for a tensor of {self.dim()} dims")
    wide = self.shape[:dims].numel()
    flat = self.reshape(wide, *self.shape[dims:])
    used = flat.detach() != 0
    used = used.reshape(wide, self.shape[dims:].numel()).any(1) if used.dim() > 1 else used
    keys = used.nonzero().reshape(-1)
    places = places_of(keys, self.shape[:dims])
    return SparseTensor(places, flat.index_select(0, keys), self.shape, True)


def _zeros(*size: Any, layout: Any = None, **options: Any) -> SparseTensor:
    """Nothing but zeros, none of which is kept."""
    shape = Size(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
    return nothing(shape, len(shape), **options)


def _zeros_like(input: Tensor, *, layout: Any = None, **options: Any) -> Tensor:
    """Zeros in the shape of a tensor, sparse unless another layout is asked for."""
    options = {"dtype": input.dtype, "device": input.device, **options}
    if layout is strided:
        return zeros(input.shape, **options)
    dims = input.sparse_dim() if isinstance(input, SparseTensor) else input.dim()
    return nothing(input.shape, dims, **options)


SPARSE.update(zeros=_zeros, empty=_zeros, zeros_like=_zeros_like, empty_like=_zeros_like)


def _dense(self: Tensor, dtype: DType | None = None, *, masked_grad: bool = True) -> Tensor:
    """Itself, which is dense."""
    return self if dtype is None else self.to(dtype)


def sparse_mask(self: Tensor, mask: SparseTensor) -> SparseTensor:
    """The elements of a dense tensor at the places of a sparse one."""
    if not mask.is_sparse:
        raise NotImplementedError("sparse_mask: got a dense mask, want a sparse one")
    if self.shape != mask.shape:
        raise RuntimeError(
            f"sparse_mask(): operands have incompatible sizes; self has size {list(self.shape)} "
            f"but mask has size {list(mask.shape)}"
        )
    flat = self.reshape(-1, *mask._elements.shape[1:])
    return mask._with(flat.index_select(0, mask._keys()))


_dense.__name__ = "to_dense"
METHODS: dict[str, Callable[..., Any]] = {
    "to_dense": _dense, "to_sparse": to_sparse, "to_sparse_coo": to_sparse,
    "sparse_mask": sparse_mask,
}  # fmt: skip
