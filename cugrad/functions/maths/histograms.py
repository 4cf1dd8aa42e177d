"""Counts of values, and histograms, as PyTorch spells them."""

from __future__ import annotations

from typing import Any

from ...autograd.recording.operands import number
from ...autograd.recording.record import recorded
from ...backends.batched.arrays import levels_of
from ...backends.several import there
from ...dtypes import is_floating
from ...ops import dims as D
from ...ops.reductions.statistics import range_of
from ...tensor import Tensor
from ..calls.arguments import array_of, fresh, refused
from ..calls.return_types import return_type
from ..creation.ranges import linspace

__all__ = ["bincount", "histc", "histogram", "histogramdd"]
TAKES_OUT = frozenset(__all__) - {"bincount", "histogramdd"}


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often 0, 1, 2, ... occur among non-negative integers, or the sum of their weights.

    The result has `minlength` elements, or more where larger numbers occur. Waits for the device.

    >>> import cugrad as torch
    >>> torch.bincount(torch.tensor([0, 2, 2]))
    tensor([1, 0, 2])
    """
    array = array_of(input, "bincount")
    if minlength < 0:
        raise RuntimeError(f"minlength should be >= 0, got {minlength}")
    if array.dtype.kind not in "iu":
        raise NotImplementedError(f"bincount: not implemented for {input.dtype}; use x.long()")
    if array.ndim != 1:
        raise RuntimeError(
            "bincount only supports 1-d non-negative integral inputs: got shape "
            f"{tuple(array.shape)}"
        )
    if array.dtype.kind == "i" and array.size and there(lambda x: x.min() < 0, array):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is not None:
        if array_of(weights, "bincount", "weights", 2).shape != array.shape:
            raise RuntimeError(
                "weights should be 1-d and have the same length as input: got "
                f"{tuple(weights.shape)} and {tuple(array.shape)}"
            )
    counts = recorded.bincount(input, None if weights is None else weights.detach(), minlength)
    return refused(counts, (weights,), "bincount")


def _check_histogram(function: str, input: Tensor) -> Any:
    array = array_of(input, function)
    if not is_floating(array.dtype):
        raise NotImplementedError(f'"{function}" not implemented for {input.dtype}; use x.float()')
    return array


def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements lie in each of `bins` equal parts of [min, max], in the dtype of the input.

    Where both are equal, the range is that of the elements. Waits for the device.

    >>> import cugrad as torch
    >>> torch.histc(torch.tensor([1.0, 2.0, 1.0]), bins=4, min=0, max=3)
    tensor([0., 2., 1., 0.])
    """
    array, bins = _check_histogram("histc", input), D.one_int(bins, "bins")
    min, max = number(min, "histc", "min"), number(max, "histc", "max")
    if bins <= 0:
        raise RuntimeError(f"torch.histc(): bins must be > 0, but got {bins}")
    low, high = min, max
    if not levels_of(array):  # else each example has its own
        low, high = range_of("histc", array, min, max)
    return recorded.histc(input.detach(), bins, low, high)


_HISTOGRAM = return_type("histogram", "hist bin_edges")
_HISTOGRAMDD = return_type("histogramdd", "hist bin_edges")


@fresh
def histogram(
    input: Tensor,
    bins: Any = 100,
    *,
    range: Any = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    """The pair (hist, bin_edges): how many elements, or what weights, lie between the edges.

    `bins` is a number of equal parts of `range`, or the increasing edges. Waits for the device.

    >>> import cugrad as torch
    >>> torch.histogram(torch.tensor([1.0, 2.0, 1.0]), bins=4, range=(0.0, 3.0)).hist
    tensor([0., 2., 1., 0.])
    """
    size = _check_histogram("histogram", input).size
    points = recorded.reshape(input.detach(), (size, 1))
    weights = weight
    if weights is not None:
        _check_weight("histogram", weights, input, input.shape)
        weights = recorded.reshape(weights.detach(), (size,))
    if isinstance(bins, Tensor):
        if range is not None:
            raise TypeError("histogram(): got bin edges as well as range, want one of them")
        if bins._array.ndim != 1:
            raise RuntimeError(
                f"torch.histogram(): bins tensor should have one dimension, but got "
                f"{bins._array.ndim} dimensions"
            )
    elif bins <= 0:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins}")
    hist, edges = _in_boxes("histogram", points, [bins], range, weights, density)
    read = (input, weight, bins)
    return _HISTOGRAM(*[refused(part, read, "histogram") for part in (hist, edges[0])])


@fresh
def histogramdd(
    input: Tensor,
    bins: Any,
    range: Any = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    """The pair (hist, bin_edges) of points, which lie along the last dim, counted in boxes.

    `bins` is a number of parts for all coordinates, one for each, or the edges for each; `range` a
    flat list of the least and the greatest value of each. Waits for the device.

    >>> import cugrad as torch
    >>> torch.histogramdd(torch.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 0.0]]), bins=[2, 2]).hist
    tensor([[0., 1.],
            [2., 0.]])
    """
    array = _check_histogram("histogramdd", input)
    if array.ndim < 2:
        raise RuntimeError(
            f"torch.histogramdd(): input tensor should have at least 2 dimensions, got {array.ndim}"
        )
    width = array.shape[-1]
    parts = [bins] * width if isinstance(bins, int) else list(bins)
    if len(parts) != width:
        raise RuntimeError(
            f"histogramdd: The size of bins must be equal to the innermost dimension of the input: "
            f"got {len(parts)} and {width}"
        )
    weights = weight
    if weights is not None:
        _check_weight("histogramdd", weights, input, array.shape[:-1])
        weights = recorded.reshape(weights.detach(), (array.size // width,))
    points = recorded.reshape(input.detach(), (array.size // width, width))
    hist, edges = _in_boxes("histogramdd", points, parts, range, weights, density)
    read = (input, weight, *parts)
    refuse = lambda part: refused(part, read, "histogramdd")
    return _HISTOGRAMDD(refuse(hist), tuple(map(refuse, edges)))


def _check_weight(function: str, weight: Tensor, input: Tensor, shape: Any) -> None:
    array = array_of(weight, function, "weight")
    if array.shape != tuple(shape):
        raise RuntimeError(
            f"torch.{function}(): if weight tensor is provided it should have the same shape as "
            f"the points: got {tuple(array.shape)}, want {tuple(shape)}"
        )
    if weight.dtype is not input.dtype:
        raise RuntimeError(
            f"torch.{function}(): if weight tensor is provided, input tensor and weight tensor "
            f"should have the same dtype, but got {input.dtype} and {weight.dtype}"
        )


def _in_boxes(
    function: str, points: Tensor, bins: list[Any], span: Any, weight: Any, density: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    if span is not None and len(span) != 2 * len(bins):
        raise RuntimeError(
            f"torch.{function}(): range should have {2 * len(bins)} elements, but got {len(span)}"
        )
    edges = []
    for d, part in enumerate(bins):
        if isinstance(part, Tensor):
            if part.dtype is not points.dtype:
                raise RuntimeError(
                    f"torch.{function}(): input tensor and bins tensors should have the same "
                    f"dtype, but got input with {points.dtype} and bins with {part.dtype}"
                )
            edges.append(part.detach())
            continue
        low, high = (0.0, 0.0) if span is None else span[2 * d : 2 * d + 2]
        if span is None and not points._array.size:
            low, high = 0.0, 1.0
        low, high = range_of(function, points._array[:, d], low, high)
        edges.append(linspace(low, high, part + 1, dtype=points.dtype, device=points.device))
    arrays = tuple(e._array for e in edges)
    return recorded.histogramdd(points, weight, arrays, density), tuple(edges)


METHODS = {"bincount": bincount, "histc": histc, "histogram": histogram}
