"""Resampling of images as PyTorch's nn.functional has it, and windows as columns."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...autograd.autocast import autocasts
from ...autograd.recording.record import recorded
from ...backends.tables import table_beside
from ...backends.windows import Ints, numbers
from ...dtypes import float32, uint8
from ...functions.calls.arguments import fresh, of_reals, refuse_whole
from ...functions.shapes.padding import pad
from ...runtime.frames import warn_user
from ...tensor import Tensor, make
from .pooling.adaptive import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d, along
from .pooling.windows import avg_pool2d, avg_pool3d

__all__ = [
    "fold", "interpolate", "local_response_norm", "unfold", "upsample", "upsample_bilinear",
    "upsample_nearest",
]  # fmt: skip

_LINEAR = {"linear": 3, "bilinear": 4, "trilinear": 5, "bicubic": 4}
_AREA = {3: adaptive_avg_pool1d, 4: adaptive_avg_pool2d, 5: adaptive_avg_pool3d}


# Interpolation ------------------------------------------------------------------------------------


def _source_scale(size: int, out: int, align_corners: bool, factor: float | None) -> float:
    if align_corners:
        return (size - 1) / (out - 1) if out > 1 else 0.0
    return 1 / factor if factor is not None and factor > 0 else size / out


def _cubic(xp: Any, x: Any, a: float) -> Any:
    """Keys' kernel. Source: https://en.wikipedia.org/wiki/Bicubic_interpolation."""
    x = xp.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return xp.where(x <= 1, near, xp.where(x < 2, far, 0.0))


def _hat(xp: Any, x: Any) -> Any:
    return xp.maximum(1 - xp.abs(x), 0.0)


# What an output has of an input, each known by its place; outputs lie at `scale * out + first`.


def _linear_weight(xp: Any, out: Any, place: Any, scale: float, first: float, last: int) -> Any:
    at = xp.minimum(xp.maximum(out * scale + first, 0.0), float(last))
    return _hat(xp, at - place)


def _cubic_weight(xp: Any, out: Any, place: Any, scale: float, first: float, last: int) -> Any:
    """The elements at both ends stand for those beyond."""
    x = out * scale + first - place
    before = _cubic(xp, x + 1, -0.75) + _cubic(xp, x + 2, -0.75)
    behind = _cubic(xp, x - 1, -0.75) + _cubic(xp, x - 2, -0.75)
    weight = _cubic(xp, x, -0.75) + xp.where(place == 0, before, 0.0)
    return weight + xp.where(place == last, behind, 0.0)


def _wide_linear(xp: Any, out: Any, place: Any, scale: float, stretch: float) -> Any:
    return _hat(xp, (place - (out + 0.5) * scale + 0.5) / stretch)


def _wide_cubic(xp: Any, out: Any, place: Any, scale: float, stretch: float) -> Any:
    return _cubic(xp, (place - (out + 0.5) * scale + 0.5) / stretch, -0.5)


def _weights(
    like: Tensor, size: int, out: int, cubic: bool, align_corners: bool, factor: float | None,
    antialias: bool,
) -> Tensor:  # fmt: skip
    """The matrix (out, size) that resamples one axis of a tensor, in its dtype."""
    scale = _source_scale(size, out, align_corners, factor)
    array, shape, dtype = like._array, (out, size), like._array.dtype
    if not antialias:
        function = _cubic_weight if cubic else _linear_weight
        first = 0.0 if align_corners else 0.5 * scale - 0.5
        return make(table_beside(array, shape, dtype, function, scale, first, size - 1))
    wide = _wide_cubic if cubic else _wide_linear
    weights = make(table_beside(array, shape, "float64", wide, scale, max(scale, 1.0)))
    return recorded.div(weights, weights.sum(1, keepdim=True)).to(like.dtype)


def _output_size(
    input: Tensor, size: Ints | None, scale_factor: float | Sequence[float] | None
) -> tuple[tuple[int, ...], tuple[float, ...] | None]:
    """The sizes of the result, and the factors where these were given."""
    dim = input.dim() - 2
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is None and scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    if size is not None:
        requested: Any = size
        sizes = tuple(requested) if isinstance(size, (list, tuple)) else (requested,) * dim
        if len(sizes) != dim:
            raise ValueError(
                "Input and output must have the same number of spatial dimensions, but got input "
                f"with spatial dimensions of {list(input.shape[2:])} and output size of {size}. "
                "Please provide input tensor in (N, C, d1, d2, ...,dK) format and output size in "
                "(o1, o2, ...,oK) format."
            )
        try:
            return tuple([operator.index(extent) for extent in sizes]), None
        except TypeError:
            raise TypeError(
                "expected size to be one of int or Tuple[int] or Tuple[int, int] or Tuple[int, "
                f"int, int], but got size with types {[type(extent) for extent in sizes]}"
            ) from None
    factors: Any = scale_factor
    factors = tuple(factors) if isinstance(factors, (list, tuple)) else (factors,) * dim
    if len(factors) != dim:
        raise ValueError(
            "Input and scale_factor must have the same number of spatial dimensions, but got input "
            f"with spatial dimensions of {list(input.shape[2:])} and scale_factor of shape "
            f"{scale_factor}. Please provide input tensor in (N, C, d1, d2, ...,dK) format and "
            "scale_factor in (s1, s2, ...,sK) format."
        )
    sizes = tuple([math.floor(float(s) * f) for s, f in zip(input.shape[2:], factors)])
    return sizes, tuple(map(float, factors))


@autocasts
@fresh
@of_reals
def interpolate(
    input: Tensor,
    size: Ints | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resample (N, C, *spatial), of one to three spatial dims, to `size` or by `scale_factor`.

    `mode` is nearest, nearest-exact, linear, bilinear, bicubic, trilinear or area.

    >>> import cugrad as torch
    >>> x = torch.tensor([[[0.0, 4.0]]])
    >>> torch.nn.functional.interpolate(x, 4, mode="linear", align_corners=False)
    tensor([[[0., 1., 3., 4.]]])
    """
    if mode in ("nearest", "area", "nearest-exact"):
        if align_corners is not None:
            raise ValueError(
                "align_corners option can only be set with the interpolating modes: linear | "
                "bilinear | bicubic | trilinear"
            )
    dims = input.dim()
    sizes, factors = _output_size(input, size, scale_factor)
    if recompute_scale_factor:
        if size is not None:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
        factors = None
    if antialias and not (mode in ("bilinear", "bicubic") and dims == 4):
        raise ValueError(
            "Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D "
            "tensor as input"
        )
    is_known = mode in _LINEAR or mode in ("nearest", "nearest-exact", "area")
    if dims not in (3, 4, 5) or not is_known or _LINEAR.get(mode, dims) != dims:
        if mode in _LINEAR and dims in (3, 4, 5):
            raise NotImplementedError(
                f"Got {dims}D input, but {mode} mode needs {_LINEAR[mode]}D input"
            )
        raise NotImplementedError(
            "Input Error: Only 3D, 4D and 5D input Tensors supported (got "
            f"{dims}D) for the modes: nearest | linear | bilinear | bicubic | trilinear | area | "
            f"nearest-exact (got {mode})"
        )
    extents = tuple(input.shape[2:])
    if mode == "area":
        return _AREA[dims](input, sizes)
    if min(*extents, *sizes) < 1 or input.shape[1] < 1:
        raise RuntimeError(
            f"Input and output sizes should be greater than 0, but got input {extents} and output "
            f"{sizes} (interpolate)"
        )
    scales: Any = factors or (None,) * len(extents)
    if mode in ("nearest", "nearest-exact"):
        return _pick(input, sizes, scales, mode == "nearest-exact")
    refuse_whole(f"interpolate({mode})", input, *((uint8,) if dims == 4 else ()))
    aligned, cubic = bool(align_corners), mode == "bicubic"
    narrow = input.dtype.itemsize == 2 or input.dtype is uint8
    x = input.to(float32) if narrow else input
    for i, (extent, out, scale) in enumerate(zip(extents, sizes, scales)):
        if extent != out or antialias or scale is not None:
            x = along(x, 2 + i, _weights(x, extent, out, cubic, aligned, scale, antialias))
    if input.dtype is uint8:
        x = (x + 0.5).floor().clamp(0, 255)
    return x.to(input.dtype) if narrow else (recorded.clone(x, "C") if x is input else x)


def _pick(input: Tensor, sizes: tuple[int, ...], scales: Any, exact: bool) -> Tensor:
    """Each output as one element of the input."""
    steps = [
        float(np.float32(_source_scale(size, out, False, scale)))
        for size, out, scale in zip(input.shape[2:], sizes, scales)
    ]
    result: Tensor = recorded.upsample_nearest(input, sizes, tuple(steps), 0.5 if exact else 0.0)
    return result


def upsample(
    input: Tensor,
    size: Ints | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """The older name of `interpolate`."""
    warn_user(
        "`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.",
        shown=(),
    )
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(
    input: Tensor, size: Ints | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """The older name of `interpolate` with mode "nearest"."""
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(
    input: Tensor, size: Ints | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """The older name of `interpolate` with mode "bilinear" and aligned corners."""
    return interpolate(input, size, scale_factor, "bilinear", align_corners=True)


# Columns ------------------------------------------------------------------------------------------


def _pairs(name: str, **settings: Ints) -> list[tuple[int, ...]]:
    pairs: list[tuple[int, ...]] = []
    for what, value in settings.items():
        values = numbers(value, 2)
        if len(values) != 2:
            raise RuntimeError(f"It is expected {what} equals to 2, but got size {len(values)}")
        least = 0 if what in ("padding",) else 1
        if min(values) < least:
            want = "non-negative" if least == 0 else "greater than zero"
            raise RuntimeError(f"{name}: {what} should be {want}, but got {values}")
        pairs.append(values)
    return pairs


def unfold(
    input: Tensor, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1
) -> Tensor:
    """The windows of images (N, C, H, W) or (C, H, W) as columns (N, C * kh * kw, windows).

    >>> import cugrad as torch
    >>> torch.nn.functional.unfold(torch.zeros(1, 3, 4, 4), 2).shape
    torch.Size([1, 12, 9])
    """
    kernel, dilations, paddings, strides = _pairs(
        "unfold", kernel_size=kernel_size, dilation=dilation, padding=padding, stride=stride
    )
    if input.dim() not in (3, 4) or 0 in tuple(input.shape[-3:]):
        raise RuntimeError(
            "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero "
            f"dimensions for input, but got: {list(input.shape)}"
        )
    x = input if input.dim() == 4 else input.unsqueeze(0)
    result = recorded.im2col(x, kernel, dilations, paddings, strides)
    return result if x is input else result.squeeze(0)


def fold(
    input: Tensor, output_size: Ints, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0,
    stride: Ints = 1,
) -> Tensor:  # fmt: skip
    """Add columns (N, C * kh * kw, windows) to the images (N, C, *output_size) they came from.

    >>> import cugrad as torch
    >>> torch.nn.functional.fold(torch.ones(1, 4, 1), (2, 2), 2).shape
    torch.Size([1, 1, 2, 2])
    """
    size, kernel, dilations, paddings, strides = _pairs(
        "fold", output_size=output_size, kernel_size=kernel_size, dilation=dilation,
        padding=padding, stride=stride,
    )  # fmt: skip
    if input.dim() not in (2, 3) or 0 in tuple(input.shape[-2:]):
        raise RuntimeError(
            "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and "
            f"non-zero dimensions for input, but got: {list(input.shape)}"
        )
    x = input if input.dim() == 3 else input.unsqueeze(0)
    cells = kernel[0] * kernel[1]
    if x.shape[1] % cells:
        raise RuntimeError(
            "Expected size of input's dimension 1 to be divisible by the product of kernel_size, "
            f"but got input.size(1)={x.shape[1]} and kernel_size={kernel}."
        )
    blocks = [
        (s + 2 * p - d * (k - 1) - 1) // step + 1
        for s, k, d, p, step in zip(size, kernel, dilations, paddings, strides)
    ]
    if min(blocks) < 1 or x.shape[2] != blocks[0] * blocks[1]:
        raise RuntimeError(
            f"Given output_size={size}, kernel_size={kernel}, dilation={dilations}, padding="
            f"{paddings}, stride={strides}, expected size of input's dimension 2 to match the "
            f"calculated number of sliding blocks {blocks[0]} * {blocks[1]} = "
            f"{blocks[0] * blocks[1]}, but got input.size(2)={x.shape[2]}."
        )
    result = recorded.col2im(x, size, kernel, dilations, paddings, strides)
    return result if x is input else result.squeeze(0)


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """input / (k + alpha * mean of squares over `size` neighbouring channels)^beta.

    Source: https://papers.nips.cc/paper/4824.

    >>> import cugrad as torch
    >>> torch.nn.functional.local_response_norm(torch.zeros(1, 4, 3), 2).shape
    torch.Size([1, 4, 3])
    """
    dims, shape = input.dim(), tuple(input.shape)
    if dims < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {dims} dimensions)")
    if input.numel() == 0:
        return input
    squares, around = input * input, (size // 2, (size - 1) // 2)
    if dims == 3:
        padded = pad(squares.unsqueeze(1), (0, 0, *around))
        mean = avg_pool2d(padded, (size, 1), stride=1).squeeze(1)
    else:
        planes = squares.reshape(shape[0], 1, shape[1], shape[2], -1)
        mean = avg_pool3d(pad(planes, (0, 0, 0, 0, *around)), (size, 1, 1), stride=1)
        mean = mean.squeeze(1).reshape(shape)
    return input / (mean * alpha + k).pow(beta)
