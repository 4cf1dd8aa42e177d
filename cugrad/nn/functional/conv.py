"""Convolutions over one to three dims and their transposes, in nn.functional's spelling."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

from ...autograd.autocast import autocasts
from ...autograd.recording.record import recorded
from ...backends.windows import Ints, numbers
from ...functions.calls.arguments import as_own, of_one_dtype
from ...tensor import Tensor

__all__ = [
    "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d",
]  # fmt: skip


def conv_padding(
    padding: Ints | str, kernel_size: Sequence[int], stride: Ints, dilation: Ints
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A padding of numbers, "same" or "valid" as (padding on each side, what is padded behind too).

    "same" pads by dilation * (kernel - 1) in all. An odd total has its odd one behind.

    >>> conv_padding("same", (3, 4), 1, 1)
    ((1, 1), (0, 1))
    """
    n = len(kernel_size)
    if not isinstance(padding, str):
        return numbers(padding, n), (0,) * n
    if padding == "valid":
        return (0,) * n, (0,) * n
    if padding != "same":
        raise ValueError(f"Invalid padding string {padding!r}, should be one of 'same', 'valid'")
    if set(numbers(stride, n)) != {1}:
        raise ValueError("padding='same' is not supported for strided convolutions")
    total = [d * (k - 1) for d, k in zip(numbers(dilation, n), kernel_size)]
    return tuple([t // 2 for t in total]), tuple([t % 2 for t in total])


def _settings(name: str, n: int, **settings: Ints) -> list[tuple[int, ...]]:
    """Each setting as n numbers; RuntimeError, in PyTorch's words, where it is not."""
    tuples = []
    for what, value in settings.items():
        values = numbers(value, n)
        if len(values) != n:
            raise RuntimeError(
                f"expected {what} to be a single integer value or a list of {n} values to match "
                f"the convolution dimensions, but got {what}={list(values)} ({name})"
            )
        tuples.append(values)
        if what == "stride" and min(values) < 1:
            raise RuntimeError(f"non-positive stride is not supported: {name} got {values}")
        if what == "dilation" and min(values) < 1:
            raise RuntimeError(f"dilation should be greater than zero, {name} got {values}")
        if what in ("padding", "output_padding") and min(values) < 0:
            raise RuntimeError(f"negative {what} is not supported: {name} got {values}")
    return tuples


def _batched(name: str, n: int, input: Tensor, weight: Tensor, groups: int) -> Tensor:
    """`input` with a batch dim; RuntimeError where the dims of input or weight do not fit."""
    size = list(input.shape)
    if input.dim() not in (n + 1, n + 2):
        raise RuntimeError(
            f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {name}, but got input "
            f"of size: {size}"
        )
    if weight.dim() != n + 2:
        raise RuntimeError(
            f"weight should have {n + 2} dimensions: {name} got weight of size "
            f"{list(weight.shape)} with input of size {size}"
        )
    if groups < 1:
        raise RuntimeError(f"non-positive groups is not supported: {name} got groups={groups}")
    if weight.shape[0] < groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, but "
            f"got weight of size {list(weight.shape)} instead"
        )
    if weight.shape[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, "
            f"but got weight of size {list(weight.shape)} instead"
        )
    return input.unsqueeze(0) if input.dim() == n + 1 else input


def _check_channels(
    input: Tensor, weight: Tensor, bias: Tensor | None, channels: int, outputs: int, groups: int
) -> None:
    if input.shape[1] != channels:
        raise RuntimeError(
            f"Given groups={groups}, weight of size {list(weight.shape)}, expected input"
            f"{list(input.shape)} to have {channels} channels, but got "
            f"{input.shape[1]} channels instead"
        )
    if bias is not None and tuple(bias.shape) != (outputs,):
        raise RuntimeError(
            f"Given weight of size {list(weight.shape)}, expected bias to be 1-dimensional with "
            f"{outputs} elements, but got bias of size {list(bias.shape)} instead"
        )


def _check_extents(input: Tensor) -> None:
    if 0 in input.shape[2:] and 0 not in input.shape[:2]:
        raise RuntimeError(
            "Only zero batch or zero channel inputs are supported, but got input shape: "
            f"{list(input.shape)}"
        )


def _conv(
    n: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Ints,
    padding: Ints | str, dilation: Ints, groups: int,
) -> Tensor:  # fmt: skip
    name = f"conv{n}d"
    groups = index(groups)
    x = _batched(name, n, input, weight, groups)
    strides, dilations = _settings(name, n, stride=stride, dilation=dilation)
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise RuntimeError(f"Invalid padding string: {padding!r}, want 'same' or 'valid'")
        if padding == "same" and set(strides) != {1}:
            raise RuntimeError("padding='same' is not supported for strided convolutions")
        around, behind = conv_padding(padding, weight.shape[2:], strides, dilations)
    else:
        (around,), behind = _settings(name, n, padding=padding), (0,) * n
    _check_channels(x, weight, bias, weight.shape[1] * groups, weight.shape[0], groups)
    padded = x
    if any(behind):
        padded = recorded.constant_pad_nd(x, ((0, 0), (0, 0), *[(0, more) for more in behind]), 0)
    result = recorded.convolution(padded, weight, bias, strides, around, dilations, groups)
    _check_extents(x)  # last, as PyTorch does
    return result if x is input else result.squeeze(0)


def _conv_transpose(
    n: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Ints, padding: Ints,
    output_padding: Ints, groups: int, dilation: Ints,
) -> Tensor:  # fmt: skip
    name = f"conv_transpose{n}d"
    groups = index(groups)
    x = _batched(name, n, input, weight, groups)
    batched = x is input
    strides, around, extra, dilations = _settings(
        name, n, stride=stride, padding=padding, output_padding=output_padding, dilation=dilation
    )
    _check_channels(x, weight, bias, weight.shape[0], weight.shape[1] * groups, groups)
    of_one_dtype(name, x, weight=weight, bias=bias)
    _check_extents(x)
    if any(e >= max(s, d) for e, s, d in zip(extra, strides, dilations)):
        raise RuntimeError(
            f"output padding must be smaller than either stride or dilation, but got "
            f"output_padding {extra}, stride {strides}, dilation {dilations}"
        )
    size = tuple([
        (i - 1) * s - 2 * p + d * (k - 1) + e + 1
        for i, s, p, d, k, e in zip(
            x.shape[2:], strides, around, dilations, weight.shape[2:], extra)
    ])  # fmt: skip
    if any(extent < (1 if len(x) else 0) for extent in size):  # of no images even nothing is made
        raise RuntimeError(
            f"Given input size per channel: {tuple(x.shape[2:])}. Calculated output size per "
            f"channel: {size}. Output size is too small"
        )
    kind, narrow = x.dtype, bias is not None and x.dtype.itemsize == 2
    if narrow:  # the bias is added before the sum is rounded
        x, weight = x.float(), weight.float()
    result = recorded.convolution_input(x, weight, size, strides, around, dilations, groups)
    if bias is not None:
        result = (result + bias.reshape(-1, *(1,) * n)).to(kind)
    return result if batched else result.squeeze(0)


def conv1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1,
    padding: Ints | str = 0, dilation: Ints = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Cross-correlate signals (N, C, L) or (C, L) with kernels (O, C // groups, k).

    >>> import cugrad as torch
    >>> torch.conv1d(torch.ones(1, 1, 4), torch.ones(1, 1, 2))
    tensor([[[2., 2., 2.]]])
    """
    return _conv(1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1,
    padding: Ints | str = 0, dilation: Ints = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Cross-correlate images (N, C, H, W) or (C, H, W) with kernels (O, C // groups, kh, kw).

    >>> import cugrad as torch
    >>> torch.conv2d(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 3, 3)).shape
    torch.Size([1, 1, 2, 2])
    """
    return _conv(2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1,
    padding: Ints | str = 0, dilation: Ints = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Cross-correlate volumes (N, C, D, H, W) or (C, D, H, W) with (O, C // groups, kd, kh, kw).

    >>> import cugrad as torch
    >>> torch.conv3d(torch.ones(1, 2, 4, 4, 4), torch.ones(3, 2, 3, 3, 3)).shape
    torch.Size([1, 3, 2, 2, 2])
    """
    return _conv(3, input, weight, bias, stride, padding, dilation, groups)


@autocasts
def conv_transpose1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1,
    padding: Ints = 0, output_padding: Ints = 0, groups: int = 1, dilation: Ints = 1,
) -> Tensor:  # fmt: skip
    """The adjoint of conv1d: (N, C, L) or (C, L) with weight (C, O // groups, k).

    >>> import cugrad as torch
    >>> torch.conv_transpose1d(torch.ones(1, 1, 3), torch.ones(1, 1, 2), stride=2).shape
    torch.Size([1, 1, 6])
    """
    return _conv_transpose(
        1, input, weight, bias, stride, padding, output_padding, groups, dilation)  # fmt: skip


@autocasts
def conv_transpose2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1,
    padding: Ints = 0, output_padding: Ints = 0, groups: int = 1, dilation: Ints = 1,
) -> Tensor:  # fmt: skip
    """The adjoint of conv2d: (N, C, H, W) or (C, H, W) with weight (C, O // groups, kh, kw).

    >>> import cugrad as torch
    >>> torch.conv_transpose2d(torch.ones(1, 1, 3, 3), torch.ones(1, 2, 2, 2), stride=2).shape
    torch.Size([1, 2, 6, 6])
    """
    return _conv_transpose(
        2, input, weight, bias, stride, padding, output_padding, groups, dilation)  # fmt: skip


@autocasts
def conv_transpose3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1,
    padding: Ints = 0, output_padding: Ints = 0, groups: int = 1, dilation: Ints = 1,
) -> Tensor:  # fmt: skip
    """The adjoint of conv3d: (N, C, D, H, W) with weight (C, O // groups, kd, kh, kw).

    >>> import cugrad as torch
    >>> torch.conv_transpose3d(torch.ones(1, 1, 3, 3, 3), torch.ones(1, 2, 2, 2, 2)).shape
    torch.Size([1, 2, 4, 4, 4])
    """
    return _conv_transpose(
        3, input, weight, bias, stride, padding, output_padding, groups, dilation)  # fmt: skip


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """conv1d of a signal (time, batch, channels) with a weight (k, channels, out channels).

    >>> import cugrad as torch
    >>> torch.conv_tbc(torch.ones(4, 1, 2), torch.ones(3, 2, 5), torch.zeros(5)).shape
    torch.Size([2, 1, 5])
    """
    for what, tensor, dims in (("Input", input, 3), ("Weight", weight, 3), ("Bias", bias, 1)):
        if tensor.dim() != dims:
            raise RuntimeError(
                f"{what} must have {dims} dims: conv_tbc got one of size {list(tensor.shape)}"
            )
    signal, kernels = input.permute(1, 2, 0), weight.permute(2, 1, 0)
    result = conv1d(signal, kernels, bias, padding=pad).permute(2, 0, 1)
    return as_own(result, (input, weight, bias))
