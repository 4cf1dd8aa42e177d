"""Where the windows of a convolution or a pooling lie along one axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import index
from typing import Any

__all__ = ["Ints", "numbers", "output_size", "spans", "strides_of"]

Ints = int | Sequence[int]


def numbers(value: Any, n: int) -> tuple[int, ...]:
    """One number per spatial axis: an int, or a sequence of one, stands for all axes.

    NumPy's number is one, and a tensor without dims.

    >>> numbers(3, 2), numbers((3,), 2), numbers((3, 1), 2)
    ((3, 3), (3, 3), (3, 1))
    """
    if isinstance(value, int) or getattr(value, "ndim", 1) == 0:
        return (index(value),) * n
    values = tuple([index(v) if hasattr(v, "__index__") else v for v in value])
    return values * n if len(values) == 1 else values


def strides_of(stride: Ints | None, kernel: tuple[int, ...]) -> tuple[int, ...]:
    """The steps from window to window: those of the kernel unless some are given."""
    if stride is None or (isinstance(stride, Sequence) and not stride):
        return kernel
    return numbers(stride, len(kernel))


def output_size(
    size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool = False
) -> int:
    """How many windows fit on an axis; `ceil_mode` adds one that begins inside and ends outside.

    >>> output_size(8, 3, 2, 1, 1), output_size(8, 3, 2, 0, 1, ceil_mode=True)
    (4, 4)
    """
    if min(kernel, stride, dilation) < 1 or padding < 0:
        raise RuntimeError(
            f"got kernel size {kernel}, stride {stride}, dilation {dilation}, padding {padding}; "
            "want at least 1 of each, and a padding of at least 0"
        )
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    if not ceil_mode:
        return room // stride + 1
    count = -(-room // stride) + 1
    return count - 1 if (count - 1) * stride >= size + padding else count


def spans(
    size: int, outputs: int, kernel: int, stride: int, padding: int, dilation: int
) -> Iterator[tuple[int, slice, slice]]:
    """For each position i of the kernel: i, which outputs read inside the axis, and what they read.

    Outputs `to` read the elements `at` of the axis, one each; all others read padding.

    >>> [(i, to, at) for i, to, at in spans(4, 4, 2, 1, 1, 1)]
    [(0, slice(1, 4, None), slice(0, 3, 1)), (1, slice(0, 4, None), slice(0, 4, 1))]
    """
    for i in range(kernel):
        first = i * dilation - padding  # what output 0 reads
        low = max(0, -(first // stride))
        high = max(low, min(outputs, (size - 1 - first) // stride + 1))
        start = low * stride + first
        yield i, slice(low, high), slice(start, start + (high - low) * stride, stride)
