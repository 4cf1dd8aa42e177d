"""How windows slide over planes, as the kernels of `kernels/windows.py` are told."""

from __future__ import annotations

import struct
from math import prod
from typing import Any, NamedTuple

import cupy

from ....windows import Ints, numbers, output_size, strides_of
from ...fused.launch import New
from ...kernels.windows import KERNELS
from ..launch import BLOCK, LIMIT, blocks, dense, int32, int64, kernel, name_of, pack_of

__all__ = [
    "Windows", "images_at_once", "is_last", "laid_last", "launch", "launch_last", "new_last",
    "strides_last", "windows_over",
]  # fmt: skip

Array = Any  # cupy.ndarray
Sizes = tuple[int, ...]
WORKSPACE = 256 << 20  # bytes of columns: images beyond it have theirs later
PACK = struct.Struct("18i").pack
ndarray = cupy.ndarray


class Windows(NamedTuple):
    """Of each dim of a plane, its size, how many windows lie on it, and how they do."""

    size: Sizes
    outputs: Sizes
    kernel: Sizes
    stride: Sizes
    padding: Sizes
    dilation: Sizes

    @property
    def packed(self) -> bytes:
        """The struct that kernels get: of three dims, those that are missing before the others."""
        missing = 3 - len(self.size)
        ones = (1, 1, 1, 1, 0, 1)
        members = [(one,) * missing + values for one, values in zip(ones, self)]
        return PACK(*[n for values in members for n in values])

    @property
    def taps(self) -> int:
        return prod(self.kernel)


def windows_over(
    size: Sizes, kernel_size: Ints, stride: Ints | None, padding: Ints, dilation: Ints = 1,
    ceil_mode: bool = False,
) -> Windows | None:  # fmt: skip
    """The windows; None where the row will say what is wrong, or where numbers are too large."""
    n = len(size)
    kernel_sizes, paddings, dilations = (numbers(x, n) for x in (kernel_size, padding, dilation))
    strides = strides_of(stride, kernel_sizes)
    each = kernel_sizes, strides, paddings, dilations
    if n > 3 or any(len(x) != n for x in each) or min(size) < 1 or min(paddings) < 0:
        return None
    if min(*kernel_sizes, *strides, *dilations) < 1:
        return None
    outputs = tuple([output_size(*axis, ceil_mode) for axis in zip(size, *each)])
    if min(outputs) < 1 or max(prod(size), prod(outputs)) >= LIMIT:
        return None
    reach = max(s + p + d * k for s, k, p, d in zip(size, kernel_sizes, paddings, dilations))
    return None if reach >= LIMIT else Windows(size, outputs, *each)


def images_at_once(images: int, each: int, itemsize: int) -> int:
    """How many images have columns, of `each` elements, at a time."""
    return max(1, min(images, WORKSPACE // (each * itemsize)))


def launch(
    name: str, windows: Windows, count: int, arrays: list[Array], *rest: Any, index: str = "",
    pack: int = 1, **constants: int,
) -> None:  # fmt: skip
    """Starts a kernel with a thread for each of `count` elements, or packs; `index` is the dtype
    of W.
    """
    run = kernel(KERNELS[name], name, name_of(arrays[0].dtype), index or None, pack, **constants)
    run((blocks(count),), (BLOCK,), (*arrays, windows.packed, int64(count), *rest))


def launch_last(
    name: str, windows: Windows, result: Array, arrays: list[Array], *rest: Any, index: str = "",
    packing: bool = True,
) -> None:  # fmt: skip
    """Starts a kernel of channels that lie last, with a thread for each pack of them in `result`,
    which is one of the arrays.
    """
    channels = result.shape[1]
    pack = pack_of(channels, *arrays) if packing else 1
    packs = int32(channels // pack)
    launch(
        name, windows, result.size // pack, arrays, packs, *rest, index=index, pack=pack
    )  # fmt: skip


# Channels that lie last ---------------------------------------------------------------------------


def strides_last(shape: Sizes, itemsize: int) -> Sizes:
    """The strides of an array of that shape whose channels lie last."""
    strides, step = [0] * len(shape), itemsize
    for axis in (1, *range(len(shape) - 1, 1, -1), 0):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def is_last(x: Array) -> bool:
    """Whether the channels of an array lie last, and it does not lie in the order of its dims."""
    return not x._c_contiguous and bool(x.strides == strides_last(x.shape, x.itemsize))


def new_last(shape: Sizes, dtype: Any) -> Array:
    """A new array whose channels lie last."""
    return New(shape, dtype, strides_last(shape, dtype.itemsize)).make()


def laid_last(x: Array) -> Array:
    """`x`, or a copy whose channels lie last. Images of one element lie both ways."""
    if x.strides == strides_last(x.shape, x.itemsize):
        return x
    if x._c_contiguous and max(x.shape[2:]) == 1:
        return x
    axes = (0, *range(2, x.ndim), 1)
    return dense(x.transpose(axes)).transpose(0, x.ndim - 1, *range(1, x.ndim - 1))
