"""Checks convolution, pooling and image layers: values, gradients and texts equal to PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import nn
from cugrad.nn import functional as F

SIZES = {1: (9,), 2: (9, 8), 3: (6, 5, 7)}


def draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def both(build: Any, shape: tuple[int, ...], device: str) -> None:
    """Compares repr, state dict, value and every gradient of a layer with PyTorch's, in float64."""
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    theirs, ours = build(torch.nn).double(), build(nn).double().to(device)
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    with cugrad.no_grad():
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert mine.shape == tuple(other.shape)
            mine.copy_(cugrad.tensor(other.detach().numpy(), device=device))
    x = cugrad.tensor(draw(*shape), device=device, requires_grad=True)
    y = torch.tensor(draw(*shape), requires_grad=True)
    result, wanted = ours(x), theirs(y)
    seed = draw(*wanted.shape, seed=1)
    (result * cugrad.tensor(seed, device=device)).sum().backward()
    (wanted * torch.tensor(seed)).sum().backward()
    pairs = [(result, wanted), (x.grad, y.grad)]
    pairs += [(a.grad, b.grad) for a, b in zip(ours.parameters(), theirs.parameters())]
    for mine, other in pairs:
        other = other.detach().numpy()
        np.testing.assert_allclose(mine.detach().cpu().numpy(), other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("settings", [
    {}, {"stride": 2, "padding": 1, "bias": False}, {"padding": "same", "dilation": 2},
    {"groups": 2, "padding": 2, "padding_mode": "reflect"}, {"padding": 1, "groups": 4},
    {"padding": "same", "padding_mode": "circular"}, {"padding": 1, "padding_mode": "replicate"},
])  # fmt: skip
def test_convolution_layers(n: int, settings: dict[str, Any], device: str) -> None:
    both(lambda lib: getattr(lib, f"Conv{n}d")(4, 8, 3, **settings), (2, 4, *SIZES[n]), device)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("settings", [
    {}, {"stride": 2, "padding": 1, "output_padding": 1}, {"groups": 2, "dilation": 2},
])  # fmt: skip
def test_transposed_layers(n: int, settings: dict[str, Any], device: str) -> None:
    both(lambda lib: getattr(lib, f"ConvTranspose{n}d")(4, 6, 3, **settings),
         (2, 4, *SIZES[n]), device)  # fmt: skip


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("images", [2, 0])
@pytest.mark.parametrize("groups, kernel, padding", [(4, 1, 1), (4, 1, 0), (4, 3, 1), (2, 3, 0)])
def test_transposed_layers_with_outputs_to_spare(
    groups: int, kernel: int, padding: int, images: int, n: int, device: str
) -> None:
    """An output padding as large as the stride, which a dilation allows: nothing reads the last."""
    how = {"groups": groups, "padding": padding, "dilation": 3, "output_padding": 2}
    both(lambda lib: getattr(lib, f"ConvTranspose{n}d")(4, 4, kernel, **how),
         (images, 4, *SIZES[n]), device)  # fmt: skip


@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_images(n: int, device: str) -> None:
    both(lambda lib: getattr(lib, f"Conv{n}d")(4, 4, 3, groups=4), (0, 4, *SIZES[n]), device)


LAYERS = [
    ("MaxPool", (1, 2, 3), (3, 2, 1), {}), ("MaxPool", (1, 2, 3), (2,), {"ceil_mode": True}),
    ("AvgPool", (1, 2, 3), (3, 2, 1), {}), ("AvgPool", (1, 2, 3), (2,), {"ceil_mode": True}),
    ("AdaptiveAvgPool", (1, 2, 3), (4,), {}), ("AdaptiveMaxPool", (1, 2, 3), (4,), {}),
    ("AdaptiveAvgPool", (1, 2, 3), (1,), {}), ("LPPool", (1, 2, 3), (2, 2), {}),
    ("LPPool", (1, 2, 3), (float("inf"), 2), {}), ("LPPool", (1, 2, 3), (-float("inf"), 2), {}),
    ("ConstantPad", (1, 2, 3), (2, 1.5), {}), ("ZeroPad", (1, 2, 3), (1,), {}),
    ("ReflectionPad", (1, 2, 3), (2,), {}), ("ReplicationPad", (1, 2, 3), (2,), {}),
    ("CircularPad", (1, 2, 3), (2,), {}),
]  # fmt: skip


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("name, dims, arguments, settings", LAYERS)
def test_layers(name: str, dims: Any, arguments: Any, settings: Any, n: int, device: str) -> None:
    both(lambda lib: getattr(lib, f"{name}{n}d")(*arguments, **settings),
         (2, 3, *SIZES[n]), device)  # fmt: skip


@pytest.mark.parametrize("name, shape, settings", [
    ("Upsample", (2, 3, 5, 4), {"scale_factor": 2}),
    ("Upsample", (2, 3, 5, 4), {"size": (7, 9), "mode": "bicubic"}),
    ("Upsample", (2, 3, 5), {"scale_factor": 1.7, "mode": "linear", "align_corners": True}),
    ("Upsample", (2, 3, 5, 4, 3), {"size": 6, "mode": "trilinear"}),
    ("UpsamplingNearest2d", (2, 3, 5, 4), {"size": (7, 3)}),
    ("UpsamplingBilinear2d", (2, 3, 5, 4), {"scale_factor": 3}),
    ("PixelShuffle", (2, 8, 3, 4), {"upscale_factor": 2}),
    ("PixelUnshuffle", (2, 3, 6, 4), {"downscale_factor": 2}),
    ("ChannelShuffle", (2, 6, 4, 5), {"groups": 3}),
    ("LocalResponseNorm", (2, 6, 4, 5), {"size": 3, "alpha": 0.1}),
    ("Unfold", (2, 3, 6, 5), {"kernel_size": (2, 3), "padding": 1, "stride": 2}),
    ("Fold", (2, 12, 20), {"output_size": (6, 5), "kernel_size": 2}),
])  # fmt: skip
def test_other_layers(name: str, shape: Any, settings: Any, device: str) -> None:
    both(lambda lib: getattr(lib, name)(**settings), shape, device)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [True, False])
def test_grid_sample(mode: str, padding_mode: str, aligned: bool, device: str) -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    results = []
    for lib, where in ((cugrad, device), (torch, "cpu")):
        image = lib.tensor(draw(2, 3, 5, 6), device=where, requires_grad=True)
        grid = lib.tensor(1.5 * draw(2, 4, 3, 2, seed=1), device=where, requires_grad=True)
        out = lib.nn.functional.grid_sample(image, grid, mode, padding_mode, aligned)
        out.pow(2).sum().backward()
        results.append([t.detach().cpu().numpy() for t in (out, image.grad, grid.grad)])
    for mine, wanted in zip(*results):
        np.testing.assert_allclose(mine, wanted, rtol=1e-9, atol=1e-10)


def test_unpooling_puts_maxima_back() -> None:
    x = cugrad.tensor(draw(2, 3, 6, 8))
    maxima, indices = F.max_pool2d(x, 2, return_indices=True)
    back = F.max_unpool2d(maxima, indices, 2)
    assert cugrad.equal(F.max_pool2d(back.abs(), 2), maxima.abs())
    assert int((back != 0).sum()) == maxima.numel()


@pytest.mark.parametrize("n", [2, 3])
def test_fractional_windows_are_pytorchs(n: int) -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    x, samples = draw(2, 3, *SIZES[n]), np.random.default_rng(3).random((2, 3, n))
    results = []
    for lib in (cugrad, torch):
        pool = getattr(lib.nn.functional, f"fractional_max_pool{n}d")
        results.append(pool(lib.tensor(x), 2, output_size=(4, 3, 5)[:n], return_indices=True,
                            _random_samples=lib.tensor(samples)))  # fmt: skip
    for mine, wanted in zip(*results):
        np.testing.assert_array_equal(mine.numpy(), wanted.numpy())


def test_half_precision_accumulates_in_single() -> None:
    x = cugrad.full((1, 1, 4096), 1.0, dtype=cugrad.float16)
    assert float(F.conv1d(x, cugrad.ones(1, 1, 4096, dtype=cugrad.float16))) == 4096.0
    assert float(F.adaptive_avg_pool1d(x * 100, 1)) == 100.0


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("padding", ["border", "reflection"])
def test_a_grid_that_ends_at_the_border_has_no_slope_there(
    lib: Any, mode: str, padding: str
) -> None:
    """That of the identity does, with aligned corners; PyTorch's answer is zero on all sides."""
    image = lib.arange(12.0, dtype=lib.float64).reshape(1, 1, 3, 4) ** 2
    theta = lib.eye(2, 3, dtype=lib.float64)[None]
    grid = lib.nn.functional.affine_grid(theta, (1, 1, 3, 4), align_corners=True)
    grid.requires_grad_()
    read = lib.nn.functional.grid_sample(image, grid, mode, padding, align_corners=True)
    assert lib.allclose(read, image)
    (grad,) = lib.autograd.grad(read.sum(), grid)
    x, y = grad[0, ..., 0], grad[0, ..., 1]
    assert not x[:, 0].any() and not y[0].any() and not y[-1].any()
    if padding == "border":
        assert not x[:, -1].any()
    inside = abs(float(x[1, 1]))
    assert inside == pytest.approx(16.5 if mode == "bilinear" else 0.0)


def test_a_size_that_stays_is_a_copy(lib: Any) -> None:
    x = lib.ones(1, 1, 3, 3)
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area"):
        y = lib.nn.functional.interpolate(x, size=(3, 3), mode=mode)
        y.zero_()
        assert x.sum().item() == 9, mode


@pytest.mark.parametrize("images", [1, 3])
def test_affine_grid_wants_a_map_for_each_image(lib: Any, images: int) -> None:
    theta = lib.ones(2, 2, 3)
    assert lib.nn.functional.affine_grid(theta, (2, 1, 4, 5), align_corners=False).shape[0] == 2
    with pytest.raises(RuntimeError, match="[Ss]ize"):
        lib.nn.functional.affine_grid(theta, (images, 1, 4, 5), align_corners=False)
