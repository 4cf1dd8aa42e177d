"""Rows that count how often values occur: bincount and histograms."""

from __future__ import annotations

from math import isfinite, prod
from typing import Any

from ...backends.several import at_home
from ..precision import wide
from ..table import COSTLY, row


def _bincount(xp: Any, self: Any, weights: Any = None, minlength: int = 0) -> Any:
    if weights is None:
        return xp.bincount(self, minlength=minlength).astype("int64", copy=False)
    out = xp.bincount(self, weights.astype("float64"), minlength)
    return out.astype("float32") if weights.dtype.name == "float32" else out


row("bincount", "self weights?", _bincount, doc="how often 0, 1, 2, ... occur, or their weights")


def range_of(function: str, array: Any, low: float, high: float) -> tuple[float, float]:
    """The range of a histogram: that of the elements where both ends are equal."""
    if low == high and array.size:
        with at_home(array):
            low, high = float(array.min()), float(array.max())
    if low == high:
        margin = 1.0 if function == "histc" else 0.5
        low, high = low - margin, high + margin
    if not (isfinite(low) and isfinite(high)):
        raise RuntimeError(f"torch.{function}: range of [{low}, {high}] is not finite")
    if low > high:
        raise RuntimeError(f"torch.{function}: max must be larger than min: got [{low}, {high}]")
    return low, high


def _histc(xp: Any, self: Any, bins: int, low: float, high: float) -> Any:
    x = wide(xp, self).reshape(-1)
    low, high = range_of("histc", x, low, high)
    inside = (x >= low) & (x <= high)
    place = ((xp.where(inside, x, low) - low) * (bins / (high - low))).astype("int64")
    place = xp.where(inside, xp.minimum(place, bins - 1), bins)  # the others lie behind all
    return xp.counts(place, None, bins + 1)[:bins].astype(self.dtype)


row(
    "histc",
    "self",
    _histc,
    kernels=(3, 0),
    doc="how many elements lie in each of `bins` equal parts",
)


def _histogramdd(
    xp: Any, self: Any, weight: Any, edges: tuple[Any, ...], density: bool = False
) -> Any:
    """Counts of points, the rows of a matrix, in boxes; the last box has its upper edge too."""
    sizes = [e.shape[0] - 1 for e in edges]
    place: Any = 0
    inside = xp.ones(self.shape[:1], bool)
    for d, (edge, size) in enumerate(zip(edges, sizes, strict=True)):
        x = self[:, d]
        inside &= (x >= edge[0]) & (x <= edge[-1])
        part = xp.searchsorted(edge, x, "right") - 1
        place = place * size + xp.clip(part, 0, size - 1)
    weights = None if weight is None else weight.astype("float64")
    whole = prod(sizes)
    counts = xp.counts(xp.where(inside, place, whole), weights, whole + 1)[:whole]
    if not density:
        return counts.astype(self.dtype).reshape(sizes)
    counts = (counts / xp.sum(counts, None, "float64")).reshape(sizes)
    for d, edge in enumerate(edges):
        width = (edge[1:] - edge[:-1]).astype("float64")
        counts = counts / width.reshape((1,) * d + (-1,) + (1,) * (len(sizes) - d - 1))
    return counts.astype(self.dtype)


row("histogramdd", "self weight?", _histogramdd,
    doc="points by box: `edges` holds the edges of the boxes along each coordinate",
    cost=COSTLY)  # fmt: skip
