"""The kernels of grid_sample, run from source on the CPU, compute what tensor functions do."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")
pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")

import cugrad
from cugrad.backends.wanted import wanted
from tests.backends import cuda_toolchain as toolchain
from tests.support import fake_cuda

pytestmark = [
    pytest.mark.host_only,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

SOURCES = "CUGRAD_TEST_SOURCES"
MODES, PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
SHAPES = [((2, 3, 5, 6), (4, 7)), ((1, 9, 4, 3), (300, 1)), ((2, 1, 1, 1), (3, 2)),
          ((2, 2, 3, 4, 5), (2, 3, 4)), ((1, 10, 2, 1, 3), (5, 1, 6))]  # fmt: skip
TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "float16": 3e-3, "bfloat16": 2e-2}

if fake_cuda.REAL is None:

    def test_over_the_fake_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        toolchain.host_compiler()
        monkeypatch.setenv(SOURCES, str(tmp_path / "sources.json"))
        fake_cuda.passed(__file__, fused=True)
        toolchain.nvrtc()
        sources = json.loads((tmp_path / "sources.json").read_text())
        some = toolchain.some_of(sources)
        for source, needs in zip(some, toolchain.compile_together(some, "90"), strict=True):
            assert needs.registers <= 128 and needs.frame <= 40, (needs, source)

else:
    from cugrad.backends.cupy.written import launch
    from cugrad.backends.cupy.written.sliding.pooling import grid_sample as kernel
    from cugrad.nn.functional import grid as definition

    ADDED_UP = (*SHAPES[0], definition.GridSettings("bilinear", "zeros", False), "float32", "dense")

    @pytest.fixture(scope="module", autouse=True)
    def compiled() -> Iterator[None]:
        fake_cuda.CHECKS = True
        with fake_cuda.compiled_together():
            for case in cases():
                gradients_of(*case)
            for mode, made, again in product(MODES, ("grid", "image"), (True, False)):
                gradient_of_both(mode, made, "cuda", again)
            second_derivatives("cuda")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(wanted, "deterministic", True)
                gradients_of(*ADDED_UP)
        yield
        fake_cuda.CHECKS = False

    def cases() -> list[Any]:
        found: list[Any] = []
        for k, (mode, padding, aligned) in enumerate(product(MODES, PADDINGS, (False, True))):
            how = definition.GridSettings(mode, padding, aligned)
            for shape, outputs in (SHAPES[k % 3], SHAPES[3 + k % 2]):
                if mode != "bicubic" or len(shape) == 4:
                    found.append((shape, outputs, how, "float32", "dense"))
        how = definition.GridSettings("bilinear", "reflection", False)
        for dtype, layout in product(TOLERANCES, ("dense", "turned", "last")):
            found.append((*SHAPES[0], how, dtype, layout))
        return found

    def operands(
        shape: tuple[int, ...], outputs: tuple[int, ...], dtype: str, layout: str
    ) -> list[Any]:
        """Images, a grid of which a part lies outside, or on a border, and a gradient."""
        rng, n = np.random.default_rng(0), len(shape) - 2
        grid = rng.uniform(-1.6, 1.6, (shape[0], *outputs, n))
        grid[:, :1] = rng.choice([-1.0, 0.0, 1.0, -3.5, 7.0], grid[:, :1].shape)
        made = []
        for x in (rng.standard_normal(shape), grid, rng.standard_normal((*shape[:2], *outputs))):
            if layout == "turned":
                x = np.ascontiguousarray(x.T).T
            elif layout == "last":
                x = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
            made.append(x.astype(dtype, order="K"))
        return made

    def gradients_of(
        shape: Any, outputs: Any, how: Any, dtype: str, layout: str, by_ops: bool = False
    ) -> list[Any]:
        """The samples and both gradients."""
        kind = getattr(cugrad, dtype)
        x, grid, g = (
            cugrad.tensor(y.astype(np.float64 if by_ops or dtype == "float64" else np.float32),
                          dtype=cugrad.float64 if by_ops else kind,
                          device="cpu" if by_ops else "cuda")
            for y in operands(shape, outputs, dtype, layout)
        )  # fmt: skip
        x.requires_grad_(), grid.requires_grad_()
        mode, padding, aligned = how
        y = cugrad.nn.functional.grid_sample(x, grid, mode, padding, aligned)
        assert by_ops or type(y.grad_fn).__name__ == "GridSampleBackward"
        slopes = cugrad.autograd.grad(y, (x, grid), g)
        return [y.detach(), *slopes]

    def test_the_sources_are_written_down() -> None:
        sources = [kernel.kernel.raw._code for kernel in launch._kernels.values()]
        assert sources
        if SOURCES in os.environ:
            Path(os.environ[SOURCES]).write_text(json.dumps(sources))

    def test_kernels_compute_what_tensor_functions_do() -> None:
        for case in cases():
            *_, dtype, _ = case
            for k, (x, y) in enumerate(zip(gradients_of(*case), gradients_of(*case, by_ops=True))):
                assert x.dtype is getattr(cugrad, dtype)
                expected, tolerance = y.numpy(), TOLERANCES[dtype]
                largest = max(1.0, float(np.abs(expected).max()))
                np.testing.assert_allclose(
                    x.double().cpu().numpy(), expected, 0, 8 * tolerance * largest,
                    err_msg=f"{case}: {('samples', 'of images', 'of the grid')[k]}",
                )  # fmt: skip

    @pytest.mark.parametrize("made", ["grid", "image"])
    @pytest.mark.parametrize("mode", MODES)
    def test_of_two_operands_one_may_be_made_of_the_other(mode: str, made: str) -> None:
        """As in a spatial transformer; under create_graph, too, each has its own gradient alone."""
        expected = gradient_of_both(mode, made, "cpu", False)
        for again in (True, False):
            cugrad.testing.assert_close(gradient_of_both(mode, made, "cuda", again), expected)

    def gradient_of_both(mode: str, made: str, device: str, again: bool) -> Any:
        cugrad.manual_seed(0)
        x = cugrad.randn(2, 3, 4, 5, dtype=cugrad.float64, device="cpu").to(device)
        if made == "image":
            x = x[:, :2].permute(0, 2, 3, 1).clone()
        x.requires_grad_()
        image = x if made == "grid" else x.permute(0, 3, 1, 2).sin()
        grid = x[:, :2].permute(0, 2, 3, 1).tanh() if made == "grid" else x
        y = cugrad.nn.functional.grid_sample(image, grid, mode, align_corners=False)
        (g,) = cugrad.autograd.grad(y.square().sum(), x, create_graph=again)
        return g.detach().cpu()

    def test_gradients_of_many_at_once() -> None:
        found: list[Any] = []
        for device in ("cuda", "cpu"):
            x, grid, g = (cugrad.tensor(y, device=device) for y in
                          operands((1, 2, 4, 5), (3, 2), "float64", "dense"))  # fmt: skip
            x.requires_grad_(), grid.requires_grad_()
            y = cugrad.nn.functional.grid_sample(x, grid, align_corners=False)
            slopes = cugrad.autograd.grad(
                y, (x, grid), cugrad.stack([g, 2 * g.sin()]), is_grads_batched=True
            )
            found.append([slope.cpu() for slope in slopes])
        for a, b in zip(*found, strict=True):
            assert cugrad.allclose(a, b)

    def test_it_is_differentiated_twice_and_forward_by_tensor_functions() -> None:
        for y, expected in zip(second_derivatives("cuda"), second_derivatives("cpu"), strict=True):
            assert cugrad.allclose(y, expected)

    def second_derivatives(device: str) -> list[Any]:
        """And what `jvp` finds."""
        how = {"mode": "bicubic", "padding_mode": "border", "align_corners": False}
        x, grid, _ = (cugrad.tensor(y, device=device) for y in
                      operands((1, 2, 4, 5), (3, 2), "float64", "dense"))  # fmt: skip
        sample = lambda x, grid: cugrad.nn.functional.grid_sample(x, grid, **how)
        a, b = (y.detach().requires_grad_() for y in (x, grid))
        first = cugrad.autograd.grad(sample(a, b).square().sum(), (a, b), create_graph=True)
        total = sum(y.square().sum() for y in first)
        found = [y.cpu() for y in cugrad.autograd.grad(total, (a, b))]
        return [*found, *(y.cpu() for y in cugrad.func.jvp(sample, (x, grid), (x, grid)))]

    def test_what_must_be_the_same_in_each_run_is_added_up_by_tensor_functions(
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        expected = gradients_of(*ADDED_UP)
        monkeypatch.setattr(wanted, "deterministic", True)
        for x, y in zip(gradients_of(*ADDED_UP), expected, strict=True):
            assert cugrad.allclose(x, y, 1e-4, 1e-5)

    def test_nothing_is_declined() -> None:
        """No places, or halves for floats: these are for tensor functions."""
        how = definition.GridSettings("bilinear", "zeros", False)
        x = cugrad.ones(1, 1, 2, 2, device="cuda")
        for grid in (cugrad.ones(1, 0, 2, 2, device="cuda"), x.expand(1, 2, 2, 2).half()):
            assert kernel(x._array, grid._array, how) is None
        assert cugrad.nn.functional.grid_sample(
            x, cugrad.ones(1, 0, 2, 2, device="cuda")
        ).shape == (1, 1, 0, 2)
