"""Pooling as PyTorch's nn.functional has it: maxima, averages and powers in windows."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

from ....autograd.autocast import autocasts
from ....autograd.recording.record import recorded
from ....backends.windows import Ints, numbers, strides_of
from ....dtypes import int64
from ....functions.calls.arguments import refuse_whole
from ....functions.indexing.bounds import is_looked_at
from ....ops.dims import one_int
from ....tensor import Tensor

__all__ = [
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d",
    "max_pool1d_with_indices", "max_pool2d", "max_pool3d", "max_unpool1d", "max_unpool2d",
    "max_unpool3d",
]  # fmt: skip

Shape = tuple[int, ...]


def _check(name: str, n: int, input: Tensor, kernel_size: Ints, stride: Ints | None) -> None:
    """RuntimeError, in PyTorch's words, where dims or settings do not fit n axes."""
    if n > 1 and input.dim() not in (n + 1, n + 2):
        raise RuntimeError(
            f"{name}: non-empty {n + 1}D or {n + 2}D (batch mode) tensor expected for input, but "
            f"got: {list(input.shape)}"
        )
    if input.dim() not in (n + 1, n + 2) or 0 in tuple(input.shape[-n - 1 :]):
        raise RuntimeError(
            f"{name}: Expected {n + 1}D or {n + 2}D (batch mode) tensor with optional 0 dim batch "
            f"size for input, but got: {list(input.shape)}"
        )
    for what, value in (("kernel_size", kernel_size), ("stride", stride)):
        if value is None or (what == "stride" and isinstance(value, Sequence) and not value):
            continue
        values = numbers(value, n)
        if len(values) != n:
            raise RuntimeError(
                f"{name}: {what} must either be a single int, or a tuple of {n} ints; got {value}"
            )
        if min(values) < 1:
            verb = "not be zero" if min(values) == 0 else "be greater than zero"
            raise RuntimeError(f"{name}: {what} should {verb}, got {value}")


# Maxima -------------------------------------------------------------------------------------------


def max_pool(
    n: int, input: Tensor, kernel_size: Ints, stride: Ints | None, padding: Ints,
    dilation: Ints, ceil_mode: bool, return_indices: bool,
) -> Any:  # fmt: skip
    _check(f"max_pool{n}d", n, input, kernel_size, stride)
    for what, value in (("padding", padding), ("dilation", dilation)):
        if len(numbers(value, n)) != n:
            raise RuntimeError(
                f"max_pool{n}d: {what} must either be a single int, or a tuple of {n} ints; got "
                f"{value}"
            )
    # numbers of Python's, which the gradient and the indices read again
    kernel_size, padding = numbers(kernel_size, n), numbers(padding, n)
    stride, dilation = strides_of(stride, kernel_size), numbers(dilation, n)
    pool = getattr(recorded, f"max_pool{n}d_with_indices")
    result, offsets = pool(input, kernel_size, stride, padding, dilation, ceil_mode)
    if not return_indices:
        return result
    how = (tuple(input.shape[-n:]), kernel_size, stride, padding, dilation)
    return result, recorded.max_pool_indices(offsets, *how)


def max_pool1d(
    input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
    dilation: Ints = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The maximum over windows of (N, C, L) or (C, L), with where it was if asked.

    >>> import cugrad as torch
    >>> torch.max_pool1d(torch.tensor([[1.0, 3.0, 2.0, 0.0]]), 2)
    tensor([[3., 2.]])
    """
    how = (kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    return max_pool(1, input, *how)


def max_pool2d(
    input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
    dilation: Ints = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The maximum over windows of (N, C, H, W) or (C, H, W), with where it was if asked.

    >>> import cugrad as torch
    >>> torch.max_pool2d(torch.arange(16.0).reshape(1, 4, 4), 2)
    tensor([[[ 5.,  7.],
             [13., 15.]]])
    """
    how = (kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    return max_pool(2, input, *how)


def max_pool3d(
    input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
    dilation: Ints = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The maximum over windows of (N, C, D, H, W) or (C, D, H, W), with where it was if asked.

    >>> import cugrad as torch
    >>> torch.max_pool3d(torch.zeros(1, 2, 4, 4, 4), 2).shape
    torch.Size([1, 2, 2, 2, 2])
    """
    how = (kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    return max_pool(3, input, *how)


def max_pool1d_with_indices(
    input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
    dilation: Ints = 1, ceil_mode: bool = False,
) -> Any:  # fmt: skip
    """max_pool1d and where each maximum was."""
    return max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, True)


def _max_unpool_nd(
    n: int, input: Tensor, indices: Tensor, kernel_size: Ints, stride: Ints | None,
    padding: Ints, output_size: Sequence[int] | None,
) -> Tensor:  # fmt: skip
    name = f"max_unpool{n}d"
    if indices.dtype is not int64:
        raise RuntimeError(
            f"elements in indices should be type int64 but got: {indices.dtype} ({name})"
        )
    if input.dim() not in (n + 1, n + 2):
        raise RuntimeError(
            f"Input to {name} should be a {n + 1}d or {n + 2}d Tensor, but got a tensor with "
            f"{input.dim()} dimensions"
        )
    if input.shape != indices.shape:
        raise RuntimeError(
            f"Expected shape of indices to be same as that of the input tensor "
            f"({list(input.shape)}) but got indices tensor with shape: {list(indices.shape)}"
        )
    kernel = numbers(kernel_size, n)
    strides = strides_of(stride, kernel)
    default = [
        (size - 1) * s - 2 * p + k
        for size, s, p, k in zip(input.shape[-n:], strides, numbers(padding, n), kernel)
    ]
    size = default if output_size is None else list(output_size)
    if len(size) == n + 2:
        size = size[2:]
    if len(size) != n:
        raise ValueError(
            f"output_size should be a sequence containing {n} or {n + 2} elements, but it has a "
            f"length of '{len(size)}'"
        )
    for d, (got, usual, s) in enumerate(zip(size, default, strides)):
        if output_size is not None and not usual - s < got < usual + s:
            raise ValueError(
                f"invalid output_size {size} (dim {d} must be between {usual - s} and {usual + s})"
            )
    array, plane = indices._array, prod(size)
    if is_looked_at(array) and array.size and (array.min() < 0 or array.max() >= plane):
        raise RuntimeError(
            f"{name}: Found an invalid max index: {int(array.max())} "
            f"(output volumes are of size {'x'.join(map(str, size))})"
        )
    return recorded.max_pool_backward(input, indices, tuple(size), False)


_max_unpool = autocasts(_max_unpool_nd, "max_unpool2d")


def max_unpool1d(
    input: Tensor, indices: Tensor, kernel_size: Ints, stride: Ints | None = None,
    padding: Ints = 0, output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Put maxima back to where max_pool1d found them, with zeros elsewhere.

    >>> import cugrad as torch
    >>> x = torch.tensor([[1.0, 3.0, 2.0, 0.0]])
    >>> torch.nn.functional.max_unpool1d(*torch.max_pool1d_with_indices(x, 2), 2)
    tensor([[0., 3., 2., 0.]])
    """
    return _max_unpool(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: Tensor, indices: Tensor, kernel_size: Ints, stride: Ints | None = None,
    padding: Ints = 0, output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Put maxima back to where max_pool2d found them, with zeros elsewhere."""
    return _max_unpool(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: Tensor, indices: Tensor, kernel_size: Ints, stride: Ints | None = None,
    padding: Ints = 0, output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Put maxima back to where max_pool3d found them, with zeros elsewhere."""
    return _max_unpool(3, input, indices, kernel_size, stride, padding, output_size)


# Averages and powers ------------------------------------------------------------------------------


def _avg_pool(n: int, input: Tensor, kernel_size: Ints, stride: Ints | None, *how: Any) -> Tensor:
    _check(f"avg_pool{n}d", n, input, kernel_size, stride)
    refuse_whole(f"avg_pool{n}d", input, int64)
    if how[3] is not None and one_int(how[3], "divisor_override") == 0:
        raise RuntimeError(f"avg_pool{n}d: divisor must be not zero")
    return getattr(recorded, f"avg_pool{n}d")(input, kernel_size, stride, *how)


def avg_pool1d(
    input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
    ceil_mode: bool = False, count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """The average over windows of (N, C, L) or (C, L).

    >>> import cugrad as torch
    >>> torch.avg_pool1d(torch.tensor([[1.0, 3.0, 2.0, 0.0]]), 2)
    tensor([[2., 1.]])
    """
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(
    input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
    ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The average over windows of (N, C, H, W) or (C, H, W); or sum / divisor_override."""
    how = (padding, ceil_mode, count_include_pad, divisor_override)
    return _avg_pool(2, input, kernel_size, stride, *how)


def avg_pool3d(
    input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
    ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The average over windows of (N, C, D, H, W) or (C, D, H, W); or sum / divisor_override."""
    how = (padding, ceil_mode, count_include_pad, divisor_override)
    return _avg_pool(3, input, kernel_size, stride, *how)


def _lp_pool(
    n: int, input: Tensor, norm_type: float, kernel_size: Ints, stride: Ints | None,
    ceil_mode: bool,
) -> Tensor:  # fmt: skip
    if norm_type in (inf, -inf):  # the greatest, or the least, of the absolute values
        sign = 1 if norm_type > 0 else -1
        return sign * max_pool(n, sign * input.abs(), kernel_size, stride, 0, 1, ceil_mode, False)
    powers = input.pow(norm_type)
    mean = _avg_pool(n, powers, kernel_size, stride, 0, ceil_mode, True, None)
    total = (mean.sign() * mean.abs().relu()) * prod(numbers(kernel_size, n))
    return total.pow(1.0 / norm_type)


def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: Ints, stride: Ints | None = None,
    ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    """(Σ x^p)^(1/p) over windows of (N, C, L) or (C, L), with p = norm_type; max |x| for inf.

    >>> import cugrad as torch
    >>> torch.nn.functional.lp_pool1d(torch.tensor([[3.0, 4.0]]), 2, 2)
    tensor([[5.]])
    """
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Ints, stride: Ints | None = None,
    ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    """(Σ x^p)^(1/p) over windows of (N, C, H, W) or (C, H, W), with p = norm_type."""
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: Ints, stride: Ints | None = None,
    ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    """(Σ x^p)^(1/p) over windows of (N, C, D, H, W) or (C, D, H, W), with p = norm_type."""
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)
