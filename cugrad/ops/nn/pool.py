"""Pooling rows: maxima with where they were, averages, and the adjoints of both."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

from ...backends.windows import Ints, numbers, output_size, spans, strides_of
from ...dtypes import is_half
from ..index import assign
from ..table import AS_INPUT, CAST, LINEAR, row

Array = Any
Axis = tuple[int, int, int, int, int]  # size, kernel, stride, padding, dilation


def smallest_index(count: int) -> str:
    """The smallest integer dtype that holds 0 to count - 1.

    >>> smallest_index(9), smallest_index(257), smallest_index(1 << 16)
    ('uint8', 'uint16', 'uint16')
    """
    if count <= 1 << 16:
        return "uint8" if count <= 1 << 8 else "uint16"
    return "int32" if count <= 1 << 31 else "int64"


def _axes(
    name: str, size: tuple[int, ...], kernel_size: Ints, stride: Ints | None, padding: Ints,
    dilation: Ints, ceil_mode: bool,
) -> tuple[list[Axis], tuple[int, ...]]:  # fmt: skip
    """The pooled axes, and how many windows lie on each."""
    n = len(size)
    kernel, paddings = numbers(kernel_size, n), numbers(padding, n)
    strides = strides_of(stride, kernel)
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, numbers(dilation, n))]
    if min(paddings) < 0:
        raise RuntimeError(f"pad must be non-negative, but got pad: {min(paddings)} ({name})")
    if any(p > r // 2 for r, p in zip(reach, paddings)):
        raise RuntimeError(
            f"pad should be at most half of effective kernel size, but got pad={paddings}, "
            f"kernel_size={kernel} and dilation={dilation} ({name}); pad should be at most half "
            "of kernel size"
        )
    axes = list(zip(size, kernel, strides, paddings, numbers(dilation, n)))
    outputs = tuple([output_size(*axis, ceil_mode) for axis in axes])
    if any(extent <= 0 for extent in outputs):
        raise RuntimeError(
            f"{name}: Given input size {size}, kernel_size {kernel}, stride {strides}, padding "
            f"{paddings}: calculated output size {outputs}. Output size is too small"
        )
    return axes, outputs


# Maxima -------------------------------------------------------------------------------------------


def _max_pool(
    n: int, xp: Any, self: Array, kernel_size: Ints, stride: Ints | None = None,
    padding: Ints = 0, dilation: Ints = 1, ceil_mode: bool = False,
) -> tuple[Array, Array]:  # fmt: skip
    axes, outputs = _axes(
        f"max_pool{n}d", self.shape[-n:], kernel_size, stride, padding, dilation, ceil_mode
    )
    shape = self.shape[:-n] + outputs
    x = self.astype(xp.float32) if is_half(self.dtype) else self
    best = xp.full(shape, _lowest(xp, x.dtype), x.dtype)
    kernel = [k for _, k, _, _, _ in axes]
    position = xp.empty(shape, smallest_index(prod(kernel)))
    # at first each window's first element that is no padding, the answer where all are -inf
    firsts = [
        (xp.maximum(p - xp.arange(o) * s, 0) + d - 1) // d * prod(kernel[i + 1 :])
        for i, ((_, _, s, p, d), o) in enumerate(zip(axes, outputs))
    ]
    position[...] = _grid(xp, firsts)
    walks = product(*[list(spans(s, o, *rest)) for (s, *rest), o in zip(axes, outputs)])
    for number, walk in enumerate(walks):
        to = (..., *[span[1] for span in walk])
        value = xp.ascontiguousarray(x[(..., *[span[2] for span in walk])])  # read three times
        current = best[to]
        better = value > current
        if x.dtype.kind not in "biu":
            better |= value != value  # NaN wins
        xp.copyto(position[to], position.dtype.type(number), where=better)
        xp.maximum(current, value, out=current)
    return best.astype(self.dtype, copy=False), position


def _lowest(xp: Any, dtype: Any) -> Any:
    if dtype.kind == "b":
        return False
    return xp.iinfo(dtype).min if dtype.kind in "iu" else -float("inf")


def _grid(xp: Any, values: list[Array]) -> Array:
    """The sums of one value per axis, over the grid of all axes."""
    n = len(values)
    total = xp.reshape(values[0], (-1,) + (1,) * (n - 1))
    for axis, along in enumerate(values[1:], 1):
        total = total + xp.reshape(along, (-1,) + (1,) * (n - 1 - axis))
    return total


def _max_pool_indices(
    xp: Any, offsets: Array, input_size: tuple[int, ...], kernel_size: Ints,
    stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
) -> Array:  # fmt: skip
    """Where in its plane a window's element lies, from its number in the window; int64."""
    n = len(input_size)
    kernel, steps = numbers(kernel_size, n), [prod(input_size[i + 1 :]) for i in range(n)]
    strides = strides_of(stride, kernel)
    walks = list(zip(offsets.shape[-n:], strides, numbers(padding, n), steps))
    inside = _grid(
        xp, [xp.arange(k) * (d * t) for k, d, t in zip(kernel, numbers(dilation, n), steps)]
    )
    corners = _grid(xp, [(xp.arange(o) * s - p) * t for o, s, p, t in walks])
    return xp.take(xp.reshape(inside, -1), offsets) + corners


row(
    "max_pool_indices", "offsets", _max_pool_indices, dense=AS_INPUT, kernels=(1, 0),
    doc="the indices into planes of input_size of the elements with numbers offsets in windows",
)  # fmt: skip


def _everywhere(xp: Any, indices: Array, n: int, plane: int) -> Array:
    """Indices into each plane as indices into the whole array."""
    lead = indices.shape[:-n]
    starts = xp.reshape(xp.arange(prod(lead)) * plane, lead + (1,) * n)
    return xp.reshape(indices + starts, -1)


def _max_pool_backward(
    xp: Any, self: Array, indices: Array, input_size: tuple[int, ...], overlap: bool = True
) -> Array:
    n, shape = len(input_size), (*self.shape[: -len(input_size)], *input_size)
    flat = _everywhere(xp, indices, n, prod(input_size))
    if not overlap:
        result = xp.zeros(prod(shape), self.dtype)
        assign(xp, result, (flat,), xp.reshape(self, -1))
        return xp.reshape(result, shape)
    wide = xp.zeros(prod(shape), xp.float32 if is_half(self.dtype) else self.dtype)
    xp.index_add(wide, flat, xp.reshape(self, -1).astype(wide.dtype, copy=False))
    return xp.reshape(wide, shape).astype(self.dtype, copy=False)


def _max_pool_gather(xp: Any, self: Array, indices: Array, n: int) -> Array:
    flat = _everywhere(xp, indices, n, prod(self.shape[-n:]))
    return xp.reshape(xp.take(xp.reshape(self, -1), flat), indices.shape)


def _overlaps(n: int, kernel_size: Ints, stride: Ints | None, dilation: Ints) -> bool:
    """Whether two windows may share an element, so that gradients add up."""
    kernel = numbers(kernel_size, n)
    strides = strides_of(stride, kernel)
    return any(s < d * (k - 1) + 1 for k, s, d in zip(kernel, strides, numbers(dilation, n)))


def _max_pool_rows(n: int) -> None:
    def forward(
        xp: Any, self: Array, kernel_size: Ints, stride: Ints | None = None,
        padding: Ints = 0, dilation: Ints = 1, ceil_mode: bool = False,
    ) -> tuple[Array, Array]:  # fmt: skip
        return _max_pool(n, xp, self, kernel_size, stride, padding, dilation, ceil_mode)

    def backward(
        m: Any, g: Any, offsets: Any, self_shape: Any, kernel_size: Ints, stride: Any,
        padding: Ints, dilation: Ints,
    ) -> Any:  # fmt: skip
        size = self_shape[-n:]
        indices = m.max_pool_indices(offsets, size, kernel_size, stride, padding, dilation)
        overlap = _overlaps(n, kernel_size, stride, dilation)
        return m.max_pool_backward(g, indices, size, overlap)

    row(
        f"max_pool{n}d_with_indices", "self", forward, promote=CAST, dense=AS_INPUT,
        outputs="result offsets", nondifferentiable="offsets",
        node=f"MaxPool{n}DWithIndicesBackward0", self=backward,
        jvp=lambda m, self_t, offsets, kernel_size, stride, padding, dilation: (
            m.max_pool_gather(self_t, m.max_pool_indices(
                offsets, self_t.shape[-n:], kernel_size, stride, padding, dilation), n), None),
        kernels=(1, 1),
        doc="the maximum of each window, and its number in the window, as small as that may be",
        refuses="c",
    )  # fmt: skip


for _n in (1, 2, 3):
    _max_pool_rows(_n)

row(
    "max_pool_backward", "self indices", _max_pool_backward, LINEAR, promote=CAST,
    self=lambda m, g, indices, input_size: m.max_pool_gather(g, indices, len(input_size)),
    kernels=(2, 0),
    doc="adds each element to its place in planes of input_size; without overlap: max_unpool",
    refuses="c",
)  # fmt: skip

row(
    "max_pool_gather", "self indices", _max_pool_gather, LINEAR, promote=CAST,
    self=lambda m, g, indices, self_shape, n: m.max_pool_backward(g, indices, self_shape[-n:]),
    kernels=(1, 0),
    doc="the elements of each plane, of n axes, at indices",
    refuses="c",
)  # fmt: skip


# Averages -----------------------------------------------------------------------------------------


def _scaled(
    xp: Any, x: Array, axes: list[Axis], count_include_pad: bool, divisor_override: int | None
) -> Array:
    """`x`, one value per window, divided by the number of elements that its window has."""
    if divisor_override is not None:
        return x / divisor_override
    n = len(axes)
    for i, (size, kernel, stride, padding, _) in enumerate(axes):
        start = xp.arange(x.shape[i - n]) * stride - padding
        stop = xp.minimum(start + kernel, size + padding)  # an overhang of ceil_mode is not counted
        if not count_include_pad:
            start, stop = xp.maximum(start, 0), xp.minimum(stop, size)
        x = x / xp.reshape(stop - start, (-1,) + (1,) * (n - 1 - i)).astype(x.dtype)
    return x


def _avg_pool(
    n: int, xp: Any, self: Array, kernel_size: Ints, stride: Ints | None, padding: Ints,
    ceil_mode: bool, count_include_pad: bool, divisor_override: int | None,
) -> Array:  # fmt: skip
    axes, outputs = _axes(
        f"avg_pool{n}d", self.shape[-n:], kernel_size, stride, padding, 1, ceil_mode
    )
    x = self.astype(xp.float32) if is_half(self.dtype) else self
    for i, ((size, *rest), count) in enumerate(zip(axes, outputs)):
        at = x.ndim - n + i
        skip = (slice(None),) * at
        total = xp.zeros((*x.shape[:at], count, *x.shape[at + 1 :]), x.dtype)
        for _, to, read in spans(size, count, *rest):
            total[(*skip, to)] += x[(*skip, read)]
        x = total
    x = _scaled(xp, x, axes, count_include_pad, divisor_override)
    return x.astype(self.dtype, copy=False)


def _avg_pool_backward(
    xp: Any, grad_output: Array, input_size: tuple[int, ...], kernel_size: Ints,
    stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Array:  # fmt: skip
    n = len(input_size)
    axes, _ = _axes(f"avg_pool{n}d", tuple(input_size), kernel_size, stride, padding, 1, ceil_mode)
    x = grad_output.astype(xp.float32) if is_half(grad_output.dtype) else grad_output
    x = _scaled(xp, x, axes, count_include_pad, divisor_override)
    for i, (size, *rest) in enumerate(axes):
        at = x.ndim - n + i
        skip = (slice(None),) * at
        spread = xp.zeros((*x.shape[:at], size, *x.shape[at + 1 :]), x.dtype)
        for _, read, to in spans(size, x.shape[at], *rest):
            spread[(*skip, to)] += x[(*skip, read)]
        x = spread
    return x.astype(grad_output.dtype, copy=False)


def _avg_pool_rows(n: int) -> None:
    def forward(
        xp: Any, self: Array, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
        ceil_mode: bool = False, count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Array:  # fmt: skip
        how = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        return _avg_pool(n, xp, self, *how)

    def adjoint(
        m: Any, g: Any, self_shape: Any, kernel_size: Ints, stride: Any, padding: Ints,
        ceil_mode: bool, count_include_pad: bool, divisor_override: int | None,
    ) -> Any:  # fmt: skip
        how = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        return m.avg_pool_backward(g, self_shape[-n:], *how)

    row(
        f"avg_pool{n}d", "self", forward, LINEAR, promote=CAST, self=adjoint, dense=AS_INPUT,
        node=f"AvgPool{n}DBackward0", doc="the average of each window", refuses="c",
        kernels=(1, 0),
    )  # fmt: skip


for _n in (1, 2, 3):
    _avg_pool_rows(_n)


def _avg_pool_again(
    m: Any, g: Any, input_size: Any, kernel_size: Ints, stride: Any, padding: Ints,
    ceil_mode: bool, count_include_pad: bool, divisor_override: int | None,
) -> Any:  # fmt: skip
    how = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return getattr(m, f"avg_pool{len(input_size)}d")(g, *how)


row(
    "avg_pool_backward", "grad_output", _avg_pool_backward, LINEAR, promote=CAST,
    grad_output=_avg_pool_again,
    kernels=(1, 0),
    doc="the adjoint of avg_pool on planes of input_size",
    refuses="c",
)  # fmt: skip
