"""Pooling: a kernel each way, a thread for each output forward and for each input backward, or for
some neighbours. Images that are read where a grid says: a kernel each way, too.
"""

from __future__ import annotations

from math import prod
from typing import Any

import cupy
import numpy as np

from ....wanted import wanted
from ....windows import Ints
from ...kernels.windows import KERNELS
from ..launch import (
    BLOCK,
    FLOATS,
    LIMIT,
    accumulator,
    blocks,
    dense,
    int32,
    int64,
    kernel,
    name_of,
    pack_of,
)
from ..placed.sums import begin
from ..plans import kept
from ..registry import NodeCall, backward, forward
from .windows import Windows, is_last, laid_last, launch, launch_last, new_last, windows_over

__all__ = ["grid_sample", "grid_sample_backward"]

Array = Any  # cupy.ndarray
MAX_POOLS = ("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices")
ndarray = cupy.ndarray
EACH = 8  # channels that a thread reads
FAR = 1 << 22  # of a dim, from where on a product in float32 may be more than half an element off
MODES = ("bilinear", "nearest", "bicubic")
PADDINGS = ("zeros", "border", "reflection")


def _pooled(
    x: Array, n: int, kernel_size: Ints, stride: Ints | None, padding: Ints, dilation: Ints,
    ceil_mode: bool,
) -> Windows | None:  # fmt: skip
    if name_of(x.dtype) not in FLOATS or not x.size or x.ndim < n:
        return None
    windows = windows_over(tuple(x.shape[-n:]), kernel_size, stride, padding, dilation, ceil_mode)
    if windows is None:
        return None
    reach = [d * (k - 1) + 1 for k, d in zip(windows.kernel, windows.dilation)]
    return None if any(p > r // 2 for p, r in zip(windows.padding, reach)) else windows


def _max_pool(n: int) -> None:
    @forward(MAX_POOLS[n - 1], keeps=True)
    def max_pool(
        self: Array, kernel_size: Ints, stride: Ints | None, padding: Ints, dilation: Ints,
        ceil_mode: bool,
    ) -> tuple[Array, Array] | None:  # fmt: skip
        windows = _pooled(self, n, kernel_size, stride, padding, dilation, ceil_mode)
        if windows is None:
            return None
        shape = (*self.shape[:-n], *windows.outputs)
        index = np.dtype(_smallest_index(windows.taps))
        if self.ndim == n + 2 and is_last(self):
            result, offsets = new_last(shape, self.dtype), new_last(shape, index)
            arrays = [self, result, offsets]
            launch_last("max_pool_last", windows, result, arrays, index=index.name)
            return result, offsets
        result, offsets = ndarray(shape, self.dtype), ndarray(shape, index)
        arrays = [dense(self), result, offsets]
        launch("max_pool", windows, result.size, arrays, index=index.name)
        return result, offsets

    @backward(MAX_POOLS[n - 1], keeps=True)
    def max_pool_backward(call: NodeCall) -> tuple[Array | None, ...] | None:
        shape, offsets, params = call.shape("self"), call["offsets"], call.params
        windows = windows_over(
            shape[-n:], params["kernel_size"], params["stride"], params["padding"],
            params["dilation"], params["ceil_mode"],
        )  # fmt: skip
        if windows is None or name_of(call.g.dtype) not in FLOATS or not prod(shape):
            return None
        index = name_of(offsets.dtype)
        if len(shape) == n + 2 and is_last(offsets):
            result = new_last(shape, call.g.dtype)
            arrays = [laid_last(call.g), offsets, result]
            launch_last("max_pool_backward_last", windows, result, arrays, index=index)
        else:
            result = ndarray(shape, call.g.dtype)
            pack = pack_of(shape[-1], result)
            arrays = [dense(call.g), dense(offsets), result]
            launch("max_pool_backward", windows, result.size // pack, arrays, index=index,
                   pack=pack)  # fmt: skip
        return call.answer(self=result)

    @forward(f"avg_pool{n}d", keeps=True)
    def avg_pool(
        self: Array, kernel_size: Ints, stride: Ints | None, padding: Ints, ceil_mode: bool,
        count_include_pad: bool, divisor_override: int | None,
    ) -> Array | None:  # fmt: skip
        windows = _pooled(self, n, kernel_size, stride, padding, 1, ceil_mode)
        if windows is None:
            return None
        shape = (*self.shape[:-n], *windows.outputs)
        divisor = _divisor(count_include_pad, divisor_override)
        if self.ndim == n + 2 and is_last(self):
            result = new_last(shape, self.dtype)
            launch_last("avg_pool_last", windows, result, [self, result], *divisor)
            return result
        result = ndarray(shape, self.dtype)
        launch("avg_pool", windows, result.size, [dense(self), result], *divisor)
        return result


def _covering(
    x_shape: tuple[int, ...], sizes: tuple[int, ...], kernel_size: tuple[int, ...] | None = None
) -> Windows | None:
    """As many windows as sizes say; None where numbers are too large, or there is nothing."""
    n = len(sizes)
    extents, ones = tuple(x_shape[len(x_shape) - n :]), (1,) * n
    if not prod(x_shape) or not prod(sizes) or max(prod(extents), prod(sizes)) >= LIMIT:
        return None
    if kernel_size is not None and max(extents) >= FAR:
        return None
    return Windows(extents, tuple(sizes), tuple(kernel_size or ones), ones, (0,) * n, ones)


def _adaptive_max_pool(self: Array, sizes: tuple[int, ...]) -> tuple[Array, Array] | None:
    """In one kernel."""
    windows = _covering(self.shape, sizes)
    if windows is None or name_of(self.dtype) not in FLOATS:
        return None
    shape = (*self.shape[: self.ndim - len(sizes)], *sizes)
    kind = _smallest_index(prod(windows.size))
    result, indices = ndarray(shape, self.dtype), ndarray(shape, np.dtype(kind))
    launch("adaptive_max_pool", windows, result.size, [dense(self), result, indices], index=kind)
    return result, indices


def _fractional_max_pool(
    self: Array, samples: Array, kernel_size: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[Array, Array] | None:
    """In one kernel."""
    windows, n = _covering(self.shape, sizes, kernel_size), len(sizes)
    if windows is None or name_of(self.dtype) not in FLOATS or samples.dtype.char not in "fd":
        return None
    lead = self.shape[: self.ndim - n]
    if samples.shape != (*lead, n):
        return None
    kind = _smallest_index(prod(windows.size))
    result, indices = ndarray((*lead, *sizes), self.dtype), ndarray((*lead, *sizes), np.dtype(kind))
    arrays = [dense(self), dense(samples), result, indices]
    launch("fractional_max_pool", windows, result.size, arrays, int32(n), index=kind,
           DRAWN=samples.itemsize)  # fmt: skip
    return result, indices


def _backward_of(how: str, **constants: int) -> Any:
    def backward_of_maxima(call: NodeCall) -> tuple[Array | None, ...] | None:
        """In one kernel, that adds up in one order."""
        shape, indices = call.shape("self"), call["indices"]
        windows = _covering(shape, call.params["sizes"], call.params.get("kernel_size"))
        if windows is None or name_of(call.g.dtype) not in FLOATS:
            return None
        result = ndarray(shape, call.g.dtype)
        arrays = [dense(call.g), dense(indices), result]
        name, kind = f"{how}_max_pool_backward", name_of(indices.dtype)
        launch(name, windows, result.size, arrays, index=kind, **constants)
        return call.answer(self=result)

    return backward_of_maxima


for _n in (1, 2, 3):
    forward(f"adaptive_{MAX_POOLS[_n - 1]}", keeps=True)(_adaptive_max_pool)
    backward(f"adaptive_{MAX_POOLS[_n - 1]}", keeps=True)(_backward_of("adaptive"))
    if _n > 1:
        forward(f"fractional_{MAX_POOLS[_n - 1]}", keeps=True)(_fractional_max_pool)
        backward(f"fractional_{MAX_POOLS[_n - 1]}", keeps=True)(_backward_of("fractional", DRAWN=4))


def _smallest_index(count: int) -> str:
    return "uint8" if count <= 1 << 8 else "uint16" if count <= 1 << 16 else "int32"


def _divisor(count_include_pad: bool, divisor_override: int | None) -> tuple[Any, Any]:
    return int32(not count_include_pad), int32(divisor_override or 0)


for _n in (1, 2, 3):
    _max_pool(_n)


@forward("avg_pool_backward", keeps=True)
def avg_pool_backward(
    grad_output: Array, input_size: tuple[int, ...], kernel_size: Ints, stride: Ints | None,
    padding: Ints, ceil_mode: bool, count_include_pad: bool, divisor_override: int | None,
) -> Array | None:  # fmt: skip
    """In one kernel; where the channels lie last, those of the result do."""
    n, size = len(input_size), tuple(input_size)
    windows = windows_over(size, kernel_size, stride, padding, 1, ceil_mode)
    if windows is None or name_of(grad_output.dtype) not in FLOATS or not grad_output.size:
        return None
    if tuple(grad_output.shape[-n:]) != windows.outputs:
        return None
    shape = (*grad_output.shape[:-n], *size)
    divisor = _divisor(count_include_pad, divisor_override)
    if grad_output.ndim == n + 2 and is_last(grad_output):
        result = new_last(shape, grad_output.dtype)
        launch_last("avg_pool_backward_last", windows, result, [grad_output, result], *divisor)
        return result
    result = ndarray(shape, grad_output.dtype)
    launch("avg_pool_backward", windows, result.size, [dense(grad_output), result], *divisor)
    return result


# Read where a grid says ---------------------------------------------------------------------------


def _numbers(x: Array, grid: Array, how: Any) -> tuple[list[Any], dict[str, int]] | None:
    """The last arguments of the kernels, and their constants."""
    n, places = x.ndim - 2, prod(grid.shape[1:-1])
    sizes = (*(1,) * (3 - n), *x.shape[2:])
    if name_of(x.dtype) not in FLOATS or not (x.size and grid.size) or grid.dtype != x.dtype:
        return None
    if max(x.shape) >= LIMIT or prod(sizes) >= LIMIT or blocks(x.shape[1], EACH) > 65535:
        return None
    constants = {"MODE": MODES.index(how.mode), "PADDING": PADDINGS.index(how.padding_mode),
                 "ALIGNED": int(how.aligned), "DIMS": n, "EACH": EACH}  # fmt: skip
    last = int64(x.shape[0] * places), int64(places), int32(x.shape[1]), *map(int32, sizes)
    return [*last], constants


def _sample(x: Array, grid: Array, how: Any) -> Array | None:
    """In one kernel; None where it takes no such operands."""
    numbers = _numbers(x, grid, how)
    if numbers is None:
        return None
    last, constants = numbers
    result = ndarray((*x.shape[:2], *grid.shape[1:-1]), x.dtype)
    run = kernel(KERNELS["sample_grid"], "sample_grid", name_of(x.dtype), None, 1, **constants)
    run((blocks(int(last[0])), blocks(x.shape[1], EACH)), (BLOCK,),
        (dense(x), dense(grid), result, *last))  # fmt: skip
    return result


def _gradients(
    g: Array, x: Array, grid: Array, of_x: bool, of_grid: bool, how: Any
) -> tuple[Array | None, Array | None] | None:
    """Of images and grid, where they are asked for: of halves the sums are rounded by one more."""
    numbers = _numbers(x, grid, how)
    if numbers is None or g.dtype != x.dtype or wanted.deterministic and of_x:
        return None
    last, constants = numbers
    sums = begin(ndarray(x.shape, accumulator(x.dtype))) if of_x else None
    slopes = ndarray(grid.shape, grid.dtype) if of_grid else None
    name = "sample_grid_backward"
    run = kernel(KERNELS[name], name, name_of(x.dtype), None, 1, **constants)
    run((blocks(int(last[0])),), (BLOCK,),
        (dense(g), dense(x), dense(grid), sums, slopes, *last))  # fmt: skip
    if sums is None or sums.dtype == x.dtype:
        return sums, slopes
    result = ndarray(x.shape, x.dtype)
    kernel(KERNELS["round_sums"], "round_sums", name_of(x.dtype))(
        (blocks(x.size),), (BLOCK,), (sums, result, int64(x.size)))  # fmt: skip
    return result, slopes


grid_sample = kept(_sample, ("x", "grid"), ("how",))
grid_sample_backward = kept(_gradients, ("g", "x", "grid"), ("of_x", "of_grid", "how"))
