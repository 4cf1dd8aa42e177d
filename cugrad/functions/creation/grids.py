"""Grids, products and numbers of indices."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ...autograd.recording.record import recorded
from ...backends import get
from ...backends.several import at_home, beside
from ...backends.tables import table_of
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
    kind = as_dtype(dtype).numpy if dtype is not None else np.dtype("int64")
    with backend.use_device(place.index):
        told = row, col, offset, lower, kind
        there = _listed_triangle(*told) if place.type == "cpu" else _computed(backend, *told)
        return _finish(there, requires_grad)


def _listed_triangle(
    row: int, col: int, offset: int, lower: bool, kind: np.dtype[Any]
) -> np.ndarray[Any, Any]:
    """The places of each row, one row after another."""
    bounds = np.clip(np.arange(row) + (offset + lower), 0, col)
    first, last = (bounds * 0, bounds) if lower else (bounds, bounds * 0 + col)
    counts = last - first
    places = np.empty((2, int(counts.sum())), kind)
    places[0] = np.repeat(np.arange(row), counts)
    places[1] = np.arange(places.shape[1]) - np.repeat(np.cumsum(counts) - last, counts)
    return places


def _computed(
    backend: Any, row: int, col: int, offset: int, lower: bool, kind: np.dtype[Any]
) -> Any:
    """Each place from its number: the host knows how many there are, and waits for no device.

    An upper triangle is a lower one that is turned by half, and read from its end.
    """
    offset = offset if lower else col - row - offset
    above = min(max(0, -offset), row)  # rows that have none
    first = min(max(0, above + offset + 1), col)  # how many the next one has; then one more in each
    growing = min(row - above, col - first + 1) if first else 0
    whole = row - above - growing if first else 0  # rows that have all
    inside = growing * first + growing * (growing - 1) // 2
    total = inside + whole * col
    if not total:
        return backend.xp.zeros((2, 0), kind)
    turned = () if lower else (total - 1, row - 1, col - 1)
    numbers = above, first, growing, inside, col
    return table_of(backend, (2, total), kind, _triangle_place, *numbers, *turned)


def _triangle_place(
    xp: Any, line: Any, place: Any, above: int, first: int, growing: int, inside: int, col: int,
    *turned: int,
) -> Any:  # fmt: skip
    """The row, or for the second line the column, of a place: behind k rows that grow there are
    k first + k (k - 1) / 2 places.
    """
    if turned:
        place = turned[0] - place
    behind = lambda k: k * first + k * (k - 1) * 0.5
    b = first - 0.5
    k = xp.floor(xp.sqrt(b * b + 2 * place) - b)
    k = xp.where(behind(k) > place, k - 1, k)  # what the root has rounded away
    k = xp.where(behind(k + 1) <= place, k + 1, k)
    more = xp.floor((place - inside) / col)
    grows = place < inside
    i = xp.where(grows, k, growing + more) + above
    j = xp.where(grows, place - behind(k), place - inside - more * col)
    if turned:
        i, j = turned[1] - i, turned[2] - j
    return xp.where(line == 0, i, j)


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
        raise TypeError(
            f"expected 'indices' to be integer dtype, but got {indices.dtype} (unravel_index)"
        )
    if isinstance(shape, Tensor):
        raise TypeError(
            f"expected 'shape' to be int or sequence of ints, but got {type(shape)} "
            "(unravel_index: use shape.tolist())"
        )
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
