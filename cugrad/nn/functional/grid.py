"""Spatial transformers: affine grids, and sampling of images where a grid says."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

from ...autograd.autocast import autocasts
from ...autograd.engine.differentiate import grad
from ...autograd.function import Function
from ...autograd.mode import enable_grad, state
from ...autograd.recording.record import recorded
from ...autograd.recording.saved import arrays
from ...backends import backend_of
from ...backends.batched.arrays import levels_of
from ...dtypes import float32
from ...functions.calls.arguments import fresh
from ...functions.creation.factories import ones
from ...functions.creation.ranges import linspace
from ...tensor import Tensor, make
from .dot_product_attention import is_recorded, is_transformed

__all__ = ["GridSettings", "affine_grid", "grid_sample"]


class GridSettings(NamedTuple):
    """What is no tensor."""

    mode: str
    padding_mode: str
    aligned: bool


@fresh
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Where (N, *out, n) an affine map theta (N, n, n + 1) looks, for an output of `size`.

    >>> import cugrad as torch
    >>> theta = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    >>> torch.nn.functional.affine_grid(theta, (1, 1, 1, 2), align_corners=True)
    tensor([[[[-1.,  0.],
              [ 1.,  0.]]]])
    """
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    n = len(size) - 2
    if n not in (2, 3):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, "
            f"respectively. Got size {tuple(size)}."
        )
    if theta.dim() != 3 or tuple(theta.shape[1:]) != (n, n + 1):
        raise ValueError(
            f"Expected a batch of {n}D affine matrices of shape Nx{n}x{n + 1} for size "
            f"{tuple(size)}. Got {theta.shape}."
        )
    if theta.shape[0] != size[0]:
        raise RuntimeError(
            f"affine_grid: got {theta.shape[0]} maps of shape {list(theta.shape)} for size "
            f"{tuple(size)}, want one for each of {size[0]} images"
        )
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {tuple(size)}")
    outputs = tuple(size[2:])
    how: dict[str, Any] = {"dtype": theta.dtype, "device": theta.device}
    columns = []
    for i in reversed(range(n)):
        steps, shape = outputs[i], [1] * n
        shape[i] = steps
        line = linspace(-1.0, 1.0, steps, **how) if steps > 1 else 0 * ones(1, **how)
        if not align_corners:
            line = line * ((steps - 1) / steps)
        columns.append(line.reshape(shape).expand(outputs).reshape(-1, 1))
    columns.append(ones(prod(outputs), 1, **how))
    base = recorded.cat(columns, 1)
    grid = recorded.matmul(base, recorded.mT(theta))
    return grid.reshape(theta.shape[0], *outputs, n)


def _pixels(x: Tensor, size: int, padding_mode: str, aligned: bool) -> Tensor:
    """Coordinates in [-1, 1] as pixels; outside of the image as `padding_mode` says."""
    x = (x + 1) * ((size - 1) / 2) if aligned else ((x + 1) * size - 1) * 0.5
    return _brought_inside(x, size, padding_mode, aligned)


def _brought_inside(x: Tensor, size: int, padding_mode: str, aligned: bool) -> Tensor:
    if padding_mode == "zeros":
        return x
    if padding_mode == "reflection":
        low, span = (0.0, float(size - 1)) if aligned else (-0.5, float(size))
        if span == 0:
            return x * 0
        away = (x - low).abs()
        flips = (away.detach() / span).floor()
        extra = away - flips * span
        x = recorded.where(flips % 2 == 0, extra + low, span - extra + low)
    # hardtanh, not clamp: no gradient at the border itself, as in PyTorch
    return recorded.hardtanh(x, 0.0, float(size - 1))


def _sampled(flat: Tensor, at: Sequence[Tensor], sizes: Sequence[int], inside: bool) -> Tensor:
    """The pixels at whole coordinates (N, P), one per axis; zero outside of the image."""
    index: Any = 0
    here: Any = None
    for x, size in zip(at, sizes):
        index = index * size + x.clamp(-1, size).long().clamp(0, size - 1)
        if not inside:
            fits = (x >= 0) & (x <= size - 1)
            here = fits if here is None else here & fits
    places = index.unsqueeze(1).expand(flat.shape[0], flat.shape[1], index.shape[1])
    values = flat.gather(2, places)
    return values if inside else values * here.unsqueeze(1).to(values.dtype)


def _cubic_weights(t: Tensor) -> list[Tensor]:
    """The weights of the four neighbours at distance 1 + t, t, 1 - t, 2 - t."""
    a = -0.75

    def near(x: Tensor) -> Tensor:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Tensor) -> Tensor:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


@autocasts
@fresh
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Read (N, C, *size), two or three spatial dims, at the places of `grid` (N, *out, 2 or 3).

    A place is (x, y) or (x, y, z) in [-1, 1], of pixel centres if `align_corners`, else of edges.
    `mode` is bilinear, nearest or bicubic; `padding_mode` zeros, border or reflection.

    >>> import cugrad as torch
    >>> image = torch.tensor([[[[1.0, 3.0]]]])
    >>> torch.nn.functional.grid_sample(image, torch.zeros(1, 1, 1, 2), align_corners=False)
    tensor([[[[2.]]]])
    """
    _check_grid(input, grid, mode, padding_mode)
    how = GridSettings(mode, padding_mode, bool(align_corners))
    if backend_of(input._array).grid_sample is not None and not is_transformed():
        if is_recorded(input, grid):
            return GridSample.apply(input, grid, how)
        result = _by_kernel(input, grid, how)
        if result is not None:
            return result
    return _by_ops(input, grid, how)


def _by_kernel(input: Tensor, grid: Tensor, how: GridSettings) -> Tensor | None:
    kernel: Any = backend_of(input._array).grid_sample
    result = kernel(input._array, grid._array, how)
    return None if result is None else make(result)


class GridSample(Function):
    """The samples of a kernel as one node."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, grid: Tensor, how: GridSettings) -> Tensor:
        """The samples; keeps what it is given."""
        ctx.save_for_backward(input, grid)
        ctx.how, result = how, _by_kernel(input, grid, how)
        ctx.by_kernel = result is not None
        return _by_ops(input, grid, how) if result is None else result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """By a kernel, or by tensor functions, so that it can be differentiated in turn."""
        needed, g = ctx.needs_input_grad, grads[0]
        if ctx.by_kernel and not (state.grad_enabled or levels_of(g._array)):
            backward = backend_of(g._array).grid_sample_backward
            slopes = backward(g._array, *arrays(ctx), *needed[:2], ctx.how)
            if slopes is not None:
                return (*[None if x is None else make(x) for x in slopes], None)
        tensors, again = ctx.saved_tensors, state.grad_enabled
        with enable_grad():
            # views: one of the two may be made of the other, or be the same
            input, grid = (x.view_as(x) if again else x.detach().requires_grad_(w)
                           for x, w in zip(tensors, needed))  # fmt: skip
            result = _by_ops(input, grid, ctx.how)
        leaves = [x for x, w in zip((input, grid), needed) if w]
        gradients = iter(grad(result, leaves, g, create_graph=again, materialize_grads=True))
        return (*[next(gradients) if w else None for w in needed[:2]], None)


def _by_ops(input: Tensor, grid: Tensor, how: GridSettings) -> Tensor:
    """`grid_sample` of checked operands by tensor functions: they say what kernels compute."""
    mode, padding_mode, aligned = how
    n = input.dim() - 2
    batch, channels, sizes = input.shape[0], input.shape[1], tuple(input.shape[2:])
    outputs = tuple(grid.shape[1:-1])
    narrow = input.dtype.itemsize == 2
    flat = input.reshape(batch, channels, prod(sizes))
    places = grid.reshape(batch, prod(outputs), n)
    if narrow:
        flat, places = flat.to(float32), places.to(float32)
    # the grid says x first, the image has it last
    raw = [places[:, :, n - 1 - i] for i in range(n)]
    cubic = mode == "bicubic"
    policy = "zeros" if cubic else padding_mode
    at = [_pixels(x, size, policy, aligned) for x, size in zip(raw, sizes)]
    inside = padding_mode != "zeros"
    if mode == "nearest":
        result = _sampled(flat, [x.detach().round() for x in at], sizes, inside)
        # the grid takes part, with a gradient of zero
        result = result + sum(x * 0 for x in at).unsqueeze(1) if grid.requires_grad else result
    else:
        lows = [x.detach().floor() for x in at]
        apart = [x - low for x, low in zip(at, lows)]
        weights = [_cubic_weights(t) if cubic else [1 - t, t] for t in apart]
        steps = range(-1, 3) if cubic else range(2)
        total: Any = None
        for corner in product(range(len(steps)), repeat=n):
            where = [low + steps[j] for low, j in zip(lows, corner)]
            if cubic:
                where = [
                    _brought_inside(x, size, padding_mode, aligned) for x, size in zip(where, sizes)
                ]
            values = _sampled(flat, where, sizes, inside)
            weight = weights[0][corner[0]]
            for of_axis, j in zip(weights[1:], corner[1:]):
                weight = weight * of_axis[j]
            term = values * weight.unsqueeze(1)
            total = term if total is None else total + term
        result = total
    return result.reshape(batch, channels, *outputs).to(input.dtype)


def _check_grid(input: Tensor, grid: Tensor, mode: str, padding_mode: str) -> None:
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(
            "nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', "
            f"but got: '{mode}'"
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or "
            f"'reflection', but got: '{padding_mode}'"
        )
    if input.dtype != grid.dtype:
        raise RuntimeError(
            "grid_sampler(): expected input and grid to have same dtype, but input has "
            f"{input.dtype} and grid has {grid.dtype}"
        )
    n = input.dim() - 2
    if n not in (2, 3) or grid.dim() != input.dim():
        raise RuntimeError(
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but "
            f"got input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if input.shape[0] != grid.shape[0]:
        raise RuntimeError(
            "grid_sampler(): expected grid and input to have same batch size, but got input with "
            f"sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if grid.shape[-1] != n:
        raise RuntimeError(
            f"grid_sampler(): expected grid to have size {n} in last dimension, but got grid with "
            f"sizes {list(grid.shape)}"
        )
    if 0 in tuple(input.shape[2:]):
        raise RuntimeError(
            "grid_sampler(): expected input to have non-empty spatial dimensions, but input has "
            f"sizes {list(input.shape)}"
        )
    if mode == "bicubic" and n == 3:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
