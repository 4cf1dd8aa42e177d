"""Grids, products and numbers of indices."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ...autograd.recording.record import recorded
from ...backends import get
from ...backends.several import at_home, beside
from ...device import default_device
from ...device import device as Device
from ...dtypes import as_dtype
from ...ops import dims as D
from ...tensor import Tensor, make
from ..calls.arguments import array_of
from ..indexing.bounds import check_integers
from ..shapes.copies import stack
from ..shapes.views import reshape
from .factories import _finish

__all__ = [
    "cartesian_prod", "combinations", "meshgrid", "tril_indices", "triu_indices",
    "unravel_index",
]  # fmt: skip


def _listed(tensors: tuple[Any, ...]) -> list[Any]:
    if len(tensors) == 1 and not isinstance(tensors[0], Tensor):
        return list(tensors[0])
    return list(tensors)


def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Views of vectors, each along a dim of its own of one grid; "xy" exchanges the first two.

    >>> import cugrad as torch
    >>> torch.meshgrid(torch.tensor([1, 2]), torch.tensor([3, 4, 5]), indexing="ij")[0]
    tensor([[1, 1, 1],
            [2, 2, 2]])
    """
    vectors = _listed(tensors)
    if not vectors:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    for x in vectors:
        array = array_of(x, "meshgrid", "tensors")
        if array.ndim > 1:
            raise RuntimeError(
                "torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: "
                f"{array.ndim}D"
            )
        if x.dtype is not vectors[0].dtype:
            raise RuntimeError(
                "torch.meshgrid expects all tensors to have the same dtype, got "
                f"{vectors[0].dtype} and {x.dtype}"
            )
        if x.device != vectors[0].device:
            raise RuntimeError("torch.meshgrid expects all tensors to have the same device")
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError(
            'torch.meshgrid: indexing must be one of "xy" or "ij", but received: ' + str(indexing)
        )
    is_swapped = indexing == "xy" and len(vectors) > 1
    if is_swapped:
        vectors[0], vectors[1] = vectors[1], vectors[0]
    shape = tuple([x._array.size for x in vectors])
    grids = []
    for d, x in enumerate(vectors):
        ends = (1,) * d + (-1,) + (1,) * (len(shape) - d - 1)
        grids.append(recorded.expand(reshape(x, ends), shape))
    if is_swapped:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


def cartesian_prod(*tensors: Any) -> Tensor:
    """All ways to take one element of each vector, a line each; of one vector, the vector."""
    vectors = _listed(tensors)
    for x in vectors:
        ndim = array_of(x, "cartesian_prod", "tensors").ndim
        if ndim != 1:
            raise RuntimeError(
                f"cartesian_prod: Expect a 1D vector, but got shape {list(x._array.shape)}"
            )
    if len(vectors) == 1:
        return vectors[0]
    grids = meshgrid(*vectors, indexing="ij")
    return stack([reshape(x, (-1,)) if x._array.size else x.flatten() for x in grids], 1)


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All ways to take `r` elements of a vector in order, a line each.

    >>> import cugrad as torch
    >>> torch.combinations(torch.tensor([1, 2, 3]))
    tensor([[1, 2],
            [1, 3],
            [2, 3]])
    """
    array = array_of(input, "combinations")
    if array.ndim != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(array.shape)} (combinations)")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r} (combinations)")
    if r == 0:
        return make(beside(array, np.empty((0,), array.dtype)))
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    picks = list(choose(range(array.size), r))
    index = np.asarray(picks, np.int64).reshape(len(picks), r)
    return recorded.index(input, (beside(array, index),))


def _triangle(
    function: str, row: int, col: int, offset: int, dtype: Any, device: Any, requires_grad: bool,
    lower: bool,
) -> Tensor:  # fmt: skip
    row, col, offset = D.one_int(row, "row"), D.one_int(col, "col"), D.one_int(offset, "offset")
    for name, n in (("row", row), ("col", col)):
        if n < 0:
            raise RuntimeError(f"{name} must be non-negative, got {n} ({function})")
    place = default_device() if device is None else Device(device)
    backend = get(place.type)
    kind = as_dtype(dtype).numpy if dtype is not None else "int64"
    with backend.use_device(place.index):
        return _finish(_in_triangle(backend.xp, row, col, offset, lower, kind), requires_grad)


def _in_triangle(xp: Any, row: int, col: int, offset: int, lower: bool, kind: Any) -> Any:
    """The places by their number, which the host knows: nothing waits for a device."""

    def ends_of(module: Any) -> tuple[Any, Any]:
        """Where the places of each row begin, and end."""
        end = module.clip(module.arange(row) + (offset + lower), 0, col)
        return (end * 0, end) if lower else (end, end * 0 + col)

    first, last = ends_of(np)
    total = int((last - first).sum())
    if not total:
        return xp.zeros((2, 0), kind)
    first, last = ends_of(xp)
    behind = xp.cumsum(last - first)  # how many there are up to the end of a row
    places = xp.arange(total)
    rows = xp.searchsorted(behind, places, "right")
    columns = places - xp.take(behind - last, rows, 0)
    return xp.stack([rows, columns]).astype(kind)


def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """The indices of a lower triangle: rows in the first line, columns in the second.

    >>> import cugrad as torch
    >>> torch.tril_indices(2, 2)
    tensor([[0, 1, 1],
            [0, 0, 1]])
    """
    return _triangle("tril_indices", row, col, offset, dtype, device, requires_grad, True)


def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """The indices of an upper triangle: rows in the first line, columns in the second."""
    return _triangle("triu_indices", row, col, offset, dtype, device, requires_grad, False)


def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Positions in a flat tensor as coordinates in one of `shape`, a tensor for each dim.

    >>> import cugrad as torch
    >>> torch.unravel_index(torch.tensor([4, 1]), (2, 3))
    (tensor([1, 0]), tensor([1, 1]))
    """
    array = array_of(indices, "unravel_index", "indices")
    if array.dtype.kind not in "iu":
        raise ValueError(
            f"expected 'indices' to be integer dtype, but got {indices.dtype} (unravel_index)"
        )
    if isinstance(shape, Tensor):
        shape = shape.tolist()
    extents = D.int_tuple(shape)
    if any(n < 0 for n in extents):
        raise ValueError(f"'shape' cannot have negative values, but got {extents}")
    size, steps = 1, []
    for n in reversed(extents):
        steps.append(size)
        size *= n
    check_integers("unravel_index", array, size, 0, ValueError)
    with at_home(array):
        array = array.astype("int64")
        coordinates = [make(array // step % n) for step, n in zip(reversed(steps), extents)]
    return tuple(coordinates)


METHODS: dict[str, Any] = {}
