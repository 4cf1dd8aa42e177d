"""Rows that put elements in order, or pick one by its place in the order.

`dim` is an int counted from the front, and the tensor has at least one dim. nan counts as the
largest number, as in PyTorch.
"""

from __future__ import annotations

from math import nan
from typing import Any

from ...backends.batched.arrays import any_batched
from ...dtypes import is_floating, is_half
from ..dims import keeps_order
from ..precision import wide
from ..table import COSTLY, NONE, row
from .extrema import picked, picked_jvp, picked_vjp
from .reduce import spread

Shape = tuple[int, ...]
STABLE_BELOW = 1 << 11  # shorter sorts are always stable: it costs little
SELECT_BELOW = 4  # selecting k of n first pays where k < n / 4


def _across(dim: int, index: Any) -> tuple[Any, ...]:
    return (*(slice(None),) * dim, index)


def sort_keys(array: Any) -> Any:
    """What has a fast sort and the same order: bfloat16 as float32."""
    return array.astype("float32") if array.dtype.name == "bfloat16" else array


def _argsort(xp: Any, self: Any, dim: int, descending: bool = False, stable: bool = True) -> Any:
    keys, n = sort_keys(self), self.shape[dim]
    if not stable and n >= STABLE_BELOW:
        order = xp.argsort(keys, dim)
        return (xp.flip(order, dim) if descending else order).astype("int64", copy=False)
    if not descending:
        return xp.argsort(keys, dim, kind="stable").astype("int64", copy=False)
    backwards = xp.argsort(xp.flip(keys, dim), dim, kind="stable")
    return (n - 1 - xp.flip(backwards, dim)).astype("int64", copy=False)


def _sort(
    xp: Any, self: Any, dim: int = -1, descending: bool = False, stable: bool = True
) -> tuple[Any, Any]:
    indices = _argsort(xp, self, dim, descending, stable)
    return _laid_out(xp, self, xp.take_along_axis(self, indices, dim), indices)


def _laid_out(xp: Any, self: Any, *results: Any) -> tuple[Any, ...]:
    """Results in memory of the order that `self` has, as PyTorch's are."""
    if self.flags.c_contiguous or not keeps_order(self):
        return results
    copies = [xp.empty_like(self, dtype=x.dtype) for x in results]
    for copy, x in zip(copies, results):
        copy[...] = x
    return tuple(copies)


def _topk(
    xp: Any, self: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Any, Any]:
    n = self.shape[dim]
    if not 0 < SELECT_BELOW * k < n or xp.sorts_at_once:
        indices = _argsort(xp, self, dim, largest)[_across(dim, slice(0, k))].copy()
        return xp.take_along_axis(self, indices, dim), indices
    kth, part = (n - k, slice(n - k, n)) if largest else (k - 1, slice(0, k))
    top = xp.argpartition(wide(xp, self), kth, dim)[_across(dim, part)]
    indices = xp.sort(top.astype("int64", copy=False), dim)  # equals in order of appearance
    values = xp.take_along_axis(self, indices, dim)
    if not sorted:
        return values, indices
    order = _argsort(xp, values, dim, largest)
    return xp.take_along_axis(values, order, dim), xp.take_along_axis(indices, order, dim)


for _name, _forward in (("sort", _sort), ("topk", _topk)):
    row(
        _name, "self", _forward, NONE, outputs="values indices", nondifferentiable="indices",
        self=lambda m, g, indices, self_shape, dim: m.gather_backward(g, indices, self_shape, dim),
        jvp=lambda m, self_t, indices, dim: (m.gather(self_t, indices, dim), None), cost=COSTLY,
        kernels=(1, 0),
    )  # fmt: skip

row(
    "argsort", "self",
    lambda xp, self, dim, descending=False, stable=True: _laid_out(
        xp, self, _argsort(xp, self, dim, descending, stable))[0],
    cost=COSTLY,
)  # fmt: skip


# One element by its place -------------------------------------------------------------------------


def _at_place(xp: Any, self: Any, place: int, dim: int) -> Any:
    """The index of the element that would stand at `place` along dim, which is kept."""
    order = xp.argpartition(wide(xp, self), place, dim)
    return order[_across(dim, slice(place, place + 1))].astype("int64")  # no view of the whole


def _kthvalue(xp: Any, self: Any, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    return picked(xp, self, _at_place(xp, self, k - 1, dim), dim, keepdim)


def _median(xp: Any, self: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    indices = _at_place(xp, self, (self.shape[dim] - 1) // 2, dim)
    if is_floating(self.dtype):
        top = xp.argmax(wide(xp, self), dim, keepdims=True)  # the first nan, where there is one
        wrong = xp.isnan(xp.take_along_axis(self, top, dim))
        indices = xp.where(wrong, top, indices)
    return picked(xp, self, indices, dim, keepdim)


def _middle_of_numbers(xp: Any, self: Any, dim: int) -> Any:
    """The place of the lower median among the elements that are not nan."""
    numbers = xp.sum(~xp.isnan(self), dim, "int64", True)
    return xp.maximum((numbers - 1) // 2, 0)


def _nanmedian(xp: Any, self: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    if not is_floating(self.dtype):
        return _median(xp, self, dim, keepdim)
    order = _argsort(xp, self, dim, stable=False)
    indices = xp.take_along_axis(order, _middle_of_numbers(xp, self, dim), dim)
    return picked(xp, self, indices, dim, keepdim)


def _mode(xp: Any, self: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    """The most frequent value, the least of several."""
    order = _argsort(xp, self, dim, stable=False)
    values, n = xp.take_along_axis(self, order, dim), self.shape[dim]
    same = values[_across(dim, slice(1, n))] == values[_across(dim, slice(0, n - 1))]
    here = xp.arange(n).reshape((n,) + (1,) * (self.ndim - dim - 1))
    first = xp.zeros(self.shape, "int64")  # the place where the run of equals begins
    first[_across(dim, slice(1, n))] = xp.where(same, 0, here[1:])
    longest = xp.argmax(here - xp.accumulate("maximum", first, dim), dim, keepdims=True)
    return picked(xp, self, xp.take_along_axis(order, longest, dim), dim, keepdim)


for _name, _pick, _kernels in (
    ("kthvalue", _kthvalue, 1), ("median", _median, 1), ("nanmedian", _nanmedian, 0),
    ("mode", _mode, 0),
):  # fmt: skip
    row(
        _name, "self", _pick, outputs="values indices", nondifferentiable="indices",
        node=f"{_name.title()}Backward1" if "median" in _name else None,
        self=picked_vjp, jvp=picked_jvp, doc="along one dim, of size 1 at least", cost=COSTLY,
        kernels=(_kernels, 0),
    )  # fmt: skip


def _median_all(xp: Any, self: Any) -> Any:
    if not self.size:
        return xp.full((), nan).astype(self.dtype)
    flat, place = wide(xp, self).reshape(-1), (self.size - 1) // 2
    middle = xp.partition(flat, place)[place]
    if is_floating(self.dtype):
        top = xp.max(flat)
        middle = xp.where(xp.isnan(top), top, middle)
    return middle.astype(self.dtype)


def _nanmedian_all(xp: Any, self: Any) -> Any:
    if not is_floating(self.dtype) or not self.size:
        return _median_all(xp, self)
    flat = xp.sort(sort_keys(self).reshape(-1), 0)
    return xp.take_along_axis(flat, _middle_of_numbers(xp, flat, 0), 0)[0].astype(self.dtype)


def _shared_vjp(m: Any, g: Any, self: Any, result: Any, self_shape: Shape) -> Any:
    return spread(m, g, self_shape, None, False) * m.tie_share(self, result, None)


def _shared_jvp(m: Any, self: Any, self_t: Any, result: Any) -> Any:
    return m.sum(self_t * m.tie_share(self, result, None), None, False)


row("median_all", "self", _median_all, node="MedianBackward0", self=_shared_vjp, jvp=_shared_jvp,
    doc="the lower of two in the middle; ties share the gradient")  # fmt: skip
row("nanmedian_all", "self", _nanmedian_all, node="NanmedianBackward0",
    self=_shared_vjp, jvp=_shared_jvp, doc="the median of what is not nan")  # fmt: skip


# Equals -------------------------------------------------------------------------------------------


def _starts(xp: Any, rows: Any) -> Any:
    """Which of the elements, or rows of a matrix, differ from the one in front of them."""
    begins, changed = xp.ones((rows.shape[0],), bool), rows[1:] != rows[:-1]
    begins[1:] = changed if changed.ndim == 1 else xp.any(changed, 1)
    return begins


def _groups(xp: Any, begins: Any) -> tuple[Any, Any]:
    """For each place the number of its group, and for each group how many it has."""
    starts = xp.flatnonzero(begins)
    ends = xp.concatenate([starts[1:], xp.full((1,), begins.shape[0], starts.dtype)])
    return xp.cumsum(begins, 0, "int64") - 1, (ends - starts).astype("int64")


def _as_rows(xp: Any, self: Any, dim: int | None) -> Any:
    """What is compared: the elements, or the slices along dim as the rows of a matrix."""
    if dim is None:
        return self.reshape(-1)
    moved = xp.moveaxis(self, dim, 0)
    return moved.reshape(moved.shape[0], -1) if self.size else moved.reshape(self.shape[dim], 0)


def _chosen(xp: Any, self: Any, places: Any, dim: int | None) -> Any:
    return self.reshape(-1)[places] if dim is None else xp.take(self, places, dim)


def _unique(
    xp: Any, self: Any, dim: int | None = None, values_only: bool = False
) -> tuple[Any, Any, Any]:
    if values_only and dim is None:
        flat, nothing = xp.sort(sort_keys(self).reshape(-1), 0), xp.empty((0,), "int64")
        return flat[_starts(xp, flat)].astype(self.dtype, copy=False), nothing, nothing
    rows = sort_keys(_as_rows(xp, self, dim))
    if rows.ndim == 1:
        order = xp.argsort(rows, 0, kind="stable")
    elif rows.shape[1]:
        order = xp.lexsort(rows.T[::-1].copy())
    else:
        order = xp.arange(rows.shape[0])
    begins = _starts(xp, rows[order])
    groups, counts = _groups(xp, begins)
    inverse = xp.empty(order.shape, "int64")
    inverse[order] = groups
    inverse = inverse.reshape(self.shape) if dim is None else inverse
    return _chosen(xp, self, order[begins], dim), inverse, counts


def _unique_consecutive(xp: Any, self: Any, dim: int | None = None) -> tuple[Any, Any, Any]:
    begins = _starts(xp, _as_rows(xp, self, dim))
    groups, counts = _groups(xp, begins)
    inverse = groups.reshape(self.shape) if dim is None else groups
    return _chosen(xp, self, xp.flatnonzero(begins), dim), inverse, counts


row("unique", "self", _unique, outputs="output inverse counts",
    doc="each element (or slice along dim) once, in order; nan equals nothing. With values_only "
    "(and no dim) the other outputs are empty", cost=COSTLY)  # fmt: skip
row("unique_consecutive", "self", _unique_consecutive, outputs="output inverse counts",
    doc="the first of each run of equal elements, or slices along dim", cost=COSTLY)  # fmt: skip


def _nonzero_static(xp: Any, self: Any, size: int, fill_value: int = -1) -> Any:
    """Each nonzero element writes its number where it is due; all others to one place beyond."""
    flat = self.reshape(-1) != 0
    due = xp.cumsum(flat, 0, "int64") - 1
    numbers = xp.full((size + 1,), -1, "int64")
    numbers[xp.where(flat & (due < size), due, size)] = xp.arange(self.size)
    numbers = numbers[:size]
    lines, step = xp.empty((size, self.ndim), "int64"), 1
    for d in reversed(range(self.ndim)):
        lines[:, d] = xp.where(numbers < 0, fill_value, numbers // step % max(self.shape[d], 1))
        step *= max(self.shape[d], 1)
    return lines


row("nonzero_static", "self", _nonzero_static,
    doc="nonzero with `size` lines, whatever is found: nothing waits for a count")  # fmt: skip


row(
    "isin", "elements test_elements",
    lambda xp, elements, test_elements, assume_unique=False, invert=False: xp.isin(
        sort_keys(elements), sort_keys(test_elements), assume_unique=assume_unique, invert=invert
    ),
    promote="common", doc="which elements are found among the test elements",
)  # fmt: skip


# A place in an order ------------------------------------------------------------------------------


def _searchsorted(
    xp: Any, sorted_sequence: Any, self: Any, right: bool = False, sorter: Any = None
) -> Any:
    """Bisection of all values at once: as many passes as the length has bits."""
    n = sorted_sequence.shape[-1]
    one = sorted_sequence.ndim == 1 and sorter is None and not any_batched((sorted_sequence,))
    if one and not is_half(self.dtype) and n:
        side = "right" if right else "left"
        return xp.searchsorted(sorted_sequence, self, side).astype("int64", copy=False)
    sequence = sorted_sequence
    if sorter is not None:
        sequence = xp.take_along_axis(sequence, sorter, -1)
    values = self
    if sequence.ndim == 1:
        sequence, values = sequence, self.reshape(-1)
    low = xp.zeros(values.shape, "int64")
    high = xp.full(values.shape, n, "int64")
    for _ in range(n.bit_length()):
        middle = (low + high) // 2
        entries = xp.take_along_axis(sequence, xp.minimum(middle, n - 1), -1)
        beyond = ~(entries > values) if right else ~(entries >= values)
        beyond &= low < high
        low, high = xp.where(beyond, middle + 1, low), xp.where(beyond, high, middle)
    return low.reshape(self.shape)


row("searchsorted", "sorted_sequence self", _searchsorted, promote="common",
    doc="where along the last dim of the sequence each value would be put in")  # fmt: skip
