"""Samples of the rows that scan, sort, pick by order, find equals, and count."""

import math

import numpy as np

from tests.ops import samples
from tests.ops.sampling import away, boolean, distinct, exactly, integers, positive, sample

NAN, INF = math.nan, math.inf


def _torchs(name, **more):
    return lambda torch, *inputs, **params: getattr(torch, name)(*inputs, **{**more, **params})


# scans -------------------------------------------------------------------------------------------


def _running_extreme(name, compare):
    def reference(np, x, dim):
        values = getattr(np, name).accumulate(x, dim)
        places = np.indices(x.shape)[dim]
        return values, np.maximum.accumulate(np.where(values == x, places, 0), dim)

    return reference


for _name, _function in (("cummax", "maximum"), ("cummin", "minimum")):
    sample(_name, distinct((3, 4)), dim=1, reference=_running_extreme(_function, None),
           torch=_torchs(_name))  # fmt: skip
    sample(_name, distinct((2, 5, 2)), dim=1)
    sample(_name, distinct((2, 1)), dim=1)
    sample(_name, (0, 2), dim=0)
sample("logcumsumexp", (3, 4), dim=1, torch=_torchs("logcumsumexp"),
       reference=lambda np, x, dim: np.log(np.cumsum(np.exp(x), dim)))  # fmt: skip
sample("logcumsumexp", (5, 2), dim=0)
sample("logcumsumexp", (2, 1, 3), dim=1)
sample("cumprod", (3, 1), dim=1)

# by order ----------------------------------------------------------------------------------------

sample("topk", distinct((2, 40)), k=3, dim=1)
sample("topk", distinct((40, 2)), k=5, dim=0, largest=False)
sample("topk", distinct((2, 3)), k=0, dim=1)


def _kth(np, x, k, dim=-1, keepdim=False):
    order = np.argsort(x, dim, kind="stable")
    at = np.take(order, [k - 1], dim)
    values = np.take_along_axis(x, at, dim)
    return (values, at) if keepdim else (values.squeeze(dim), at.squeeze(dim))


sample("kthvalue", distinct((3, 4)), k=2, dim=1, reference=_kth, torch=_torchs("kthvalue"))
sample("kthvalue", distinct((4, 2)), k=4, dim=0, keepdim=True)
for _name in ("median", "nanmedian"):
    sample(_name, distinct((3, 4)), dim=1, torch=_torchs(_name),
           reference=lambda np, x, dim, keepdim=False: _kth(
               np, x, (x.shape[dim] + 1) // 2, dim, keepdim))  # fmt: skip
    sample(_name, distinct((5, 2)), dim=0, keepdim=True)
    sample(_name, distinct((2, 1)), dim=1)
    sample(_name + "_all", distinct((3, 4)), torch=_torchs(_name),
           reference=lambda np, x: np.sort(x, None)[(x.size - 1) // 2])  # fmt: skip
    sample(_name + "_all", distinct(()))


def _mode(np, x, dim=-1, keepdim=False):
    """Distinct values: the least one."""
    at = np.argmin(x, dim, keepdims=True)
    values = np.take_along_axis(x, at, dim)
    return (values, at) if keepdim else (values.squeeze(dim), at.squeeze(dim))


sample("mode", distinct((3, 4)), dim=1, reference=_mode, torch=_torchs("mode"))
sample("mode", distinct((3, 2)), dim=0, keepdim=True)

# equals ------------------------------------------------------------------------------------------


def _unique(np, x, dim=None, values_only=False):
    if values_only:
        return np.unique(x), np.zeros(0, "int64"), np.zeros(0, "int64")
    out, inverse, counts = np.unique(x, return_inverse=True, return_counts=True, axis=dim)
    return out, inverse.reshape(x.shape if dim is None else -1), counts


sample("unique", exactly([3, 1, 3, 2, 1]), reference=_unique,
       torch=_torchs("unique", return_inverse=True, return_counts=True))  # fmt: skip
sample("unique", integers((3, 4), 4))
sample("unique", exactly([[1, 2], [0, 5], [1, 2]]), dim=0)
sample("unique", exactly([[1, 0, 1], [2, 5, 2]]), dim=1)
sample("unique", (0,))
sample("unique", integers((3, 4), 4), values_only=True, torch=lambda torch, x, values_only: (
    torch.unique(x), torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
))  # fmt: skip


def _runs(np, x, dim=None):
    flat = x.reshape(-1, 1) if dim is None else np.moveaxis(x, dim, 0).reshape(x.shape[dim], -1)
    new = np.array([i == 0 or (flat[i] != flat[i - 1]).any() for i in range(len(flat))], bool)
    starts = np.flatnonzero(new)
    groups = np.cumsum(new) - 1
    out = x.reshape(-1)[starts] if dim is None else np.take(x, starts, dim)
    counts = np.diff(np.append(starts, len(flat)))
    return out, groups.reshape(x.shape) if dim is None else groups, counts


sample("unique_consecutive", exactly([1, 1, 2, 2, 2, 1]), reference=_runs,
       torch=_torchs("unique_consecutive", return_inverse=True, return_counts=True))  # fmt: skip
sample("unique_consecutive", boolean((3, 4)))
sample("unique_consecutive", exactly([[1, 2], [1, 2], [0, 2]]), dim=0)

sample("isin", integers((3, 4), 9), integers((3,), 9))
sample("isin", exactly([1.0, 2.0, 5.0]), exactly([5.0, 0.5]), invert=True, assume_unique=True)


def _static(np, x, size, fill_value=-1):
    lines = np.argwhere(x)[:size]
    return np.concatenate([lines, np.full((size - len(lines), x.ndim), fill_value)])


for _size in (0, 2, 20):
    sample("nonzero_static", integers((3, 4), 2), size=_size, reference=_static,
           torch=_torchs("nonzero_static"))  # fmt: skip
sample("nonzero_static", boolean((0, 2)), size=2, fill_value=7)


def _search(np, sequence, values, right=False, sorter=None):
    side = "right" if right else "left"
    rows = sequence if sorter is None else np.take_along_axis(sequence, sorter, -1)
    if rows.ndim == 1:
        return np.searchsorted(rows, values, side)
    flat = [np.searchsorted(s, v, side) for s, v in zip(
        rows.reshape(-1, rows.shape[-1]), values.reshape(-1, values.shape[-1]))]  # fmt: skip
    return np.array(flat).reshape(values.shape)


sample("searchsorted", exactly([1.0, 3.0, 3.0, 5.0]), exactly([[0.0, 3.0], [4.0, 9.0]]),
       reference=_search,
       torch=lambda torch, sequence, x, right=False, sorter=None: torch.searchsorted(
           sequence, x, right=right, sorter=None if sorter is None else torch.as_tensor(sorter))
       )  # fmt: skip
sample("searchsorted", exactly([1, 3, 3, 5]), exactly([3, 5, 6]), right=True)
sample("searchsorted", exactly([[1.0, 2.0, 2.0], [0.0, 5.0, 6.0]]),
       exactly([[2.0, 3.0], [5.5, -1.0]]), right=True)  # fmt: skip
sample("searchsorted", exactly([[2, 1, 9]]), exactly([[1, 2, 3, 10]]), sorter=exactly([[1, 0, 2]]))

# counts ------------------------------------------------------------------------------------------

sample("bincount", exactly([0, 2, 2, 5]), None,
       reference=lambda np, x, weights, minlength=0: np.bincount(x, weights, minlength)
       )  # fmt: skip
sample("bincount", exactly([0, 2, 2]), positive((3,)), minlength=5)
sample("histc", away((3, 5), 0.0, 0.5, -0.5, 1.0, -1.0, gap=0.02), bins=4, low=-1.0, high=1.0,
       integer=False, reference=lambda np, x, bins, low, high: np.histogram(
           x, bins, (low, high))[0].astype(x.dtype),
       torch=lambda torch, x, bins, low, high: torch.histc(x, bins, low, high))  # fmt: skip
sample("histc", exactly([0.0, 1.0, 2.0, 3.0]), bins=3, low=0.0, high=3.0, integer=False)


def _boxes(np, points, weight, edges, density=False):
    return np.histogramdd(points, list(edges), weights=weight, density=density)[0]


_EDGES = (exactly([-1.0, 0.03, 1.0]), exactly([-2.0, -0.52, 0.51, 2.0]))
sample("histogramdd", exactly(np.linspace(-1.9, 1.9, 12).reshape(6, 2)), None, edges=_EDGES,
       reference=_boxes, integer=False,
       torch=lambda torch, x, weight, edges, density=False: torch.histogramdd(
           x, [torch.as_tensor(e, dtype=x.dtype) for e in edges], weight=weight, density=density
       )[0])  # fmt: skip
sample("histogramdd", exactly(np.linspace(-0.9, 0.9, 6).reshape(3, 2)), positive((3,)),
       edges=_EDGES, density=True, integer=False)  # fmt: skip

samples.REAL_ONLY |= {
    "bincount", "histc", "isin", "histogramdd", "searchsorted", "unique",
    "unique_consecutive",
}  # fmt: skip
samples.NO_HALF |= {"bincount": "weights of other types than float32 add up in float64"}
