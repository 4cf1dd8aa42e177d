"""The kernels of ctc_loss, run from source on the CPU, compute what tensor functions do."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")
pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")

import cugrad
from tests.backends import cuda_toolchain as toolchain
from tests.support import fake_cuda

pytestmark = [
    pytest.mark.host_only,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

SOURCES = "CUGRAD_TEST_SOURCES"
TOLERANCES = {"float64": 1e-11, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}
# steps and classes, lengths of inputs and of labels, the blank
CASES: list[tuple[int, int, list[int], list[int], int]] = [
    (7, 5, [7, 5, 7, 3], [3, 2, 0, 1], 0), (4, 3, [4, 0, 0], [4, 0, 2], 2),
    (90, 4, [90, 81], [40, 17], 1), (1, 2, [1], [1], 0), (3, 6, [3, 2], [2, 3], 5),
]  # fmt: skip

if fake_cuda.REAL is None:

    def test_over_the_fake_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        toolchain.host_compiler()
        monkeypatch.setenv(SOURCES, str(tmp_path / "sources.json"))
        fake_cuda.passed(__file__, fused=True)
        toolchain.nvrtc()
        sources = json.loads((tmp_path / "sources.json").read_text())
        for source, needs in zip(sources, toolchain.compile_together(sources, "90"), strict=True):
            assert needs.registers <= 128 and needs.frame <= 40, (needs, source)

else:
    from cugrad.backends.cupy.written import launch

    @pytest.fixture(scope="module", autouse=True)
    def compiled() -> Iterator[None]:
        fake_cuda.CHECKS = True
        with fake_cuda.compiled_together():
            for dtype in TOLERANCES:
                outcome(CASES[0], dtype, "cuda", "padded")
            outcome(CASES[0], "float32", "cuda", "int32")
        yield
        fake_cuda.CHECKS = False

    def operands(case: Any, dtype: str, device: str, how: str) -> tuple[Any, ...]:
        steps, classes, inputs, sizes, blank = case
        rng = np.random.default_rng(0)
        scores = rng.standard_normal((steps, len(inputs), classes))
        scores[0, 0, -1] = -np.inf  # what has no probability, and is no part of a path
        x = cugrad.tensor(scores, device="cpu").log_softmax(-1)
        x = cugrad.tensor(x.numpy(), dtype=getattr(cugrad, dtype), device=device)
        labels = rng.integers(0, classes, (len(inputs), max(sizes) + 1))
        if blank != 1:  # some twice in a row, and a blank among them
            labels[:, 1::3] = labels[:, : labels[:, 1::3].shape[1] * 3 : 3]
        if how != "padded":
            labels = np.concatenate([row[:n] for row, n in zip(labels, sizes)])
        kind = np.int32 if how == "int32" else np.int64
        if how == "turned":
            x = x.permute(2, 0, 1).contiguous().permute(1, 2, 0)
        return x.detach().requires_grad_(), cugrad.tensor(labels.astype(kind), device=device)

    def outcome(case: Any, dtype: str, device: str, how: str, **settings: Any) -> list[Any]:
        _, _, inputs, sizes, blank = case
        x, labels = operands(case, dtype, device, how)
        loss = cugrad.nn.functional.ctc_loss(
            x, labels, inputs, sizes, blank, **{"reduction": "none", **settings}
        )
        if device == "cuda":
            names = "CtcLossBackward", "WhereBackward0", "MeanBackward0"
            assert type(loss.grad_fn).__name__ in names
        (slope,) = cugrad.autograd.grad(loss, x, cugrad.arange(1.0, len(inputs) + 1, device=device)
                                        .to(x.dtype) if loss.dim() else None)  # fmt: skip
        return [loss.detach().double().cpu(), slope.double().cpu()]

    def test_the_sources_are_written_down() -> None:
        sources = [kernel.kernel.raw._code for key, kernel in launch._kernels.items()
                   if key[0].startswith("ctc")]  # fmt: skip
        assert sources
        if SOURCES in os.environ:
            Path(os.environ[SOURCES]).write_text(json.dumps(sources))

    @pytest.mark.parametrize("dtype", TOLERANCES)
    @pytest.mark.parametrize("how", ["padded", "together", "int32", "turned"])
    def test_kernels_compute_what_tensor_functions_do(dtype: str, how: str) -> None:
        if how == "int32" and dtype != "float32":
            return
        cases = CASES if dtype == "float32" or how == "padded" else CASES[:1]
        for case in cases:
            x, _ = operands(case, dtype, "cpu", how)
            rounded = x.detach().double()
            got = outcome(case, dtype, "cuda", how)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(cugrad, dtype, cugrad.float64)
                expected = outcome_of(rounded, case, how)
            for a, b in zip(got, expected, strict=True):
                scale = max(1.0, float(b[b.isfinite()].abs().max())) if b.isfinite().any() else 1.0
                assert cugrad.allclose(a, b, 0, TOLERANCES[dtype] * scale, equal_nan=True), case

    def outcome_of(x: Any, case: Any, how: str) -> list[Any]:
        """By tensor functions, in float64."""
        _, _, inputs, sizes, blank = case
        x.requires_grad_()
        _, labels = operands(case, "float64", "cpu", how)
        loss = cugrad.nn.functional.ctc_loss(x, labels, inputs, sizes, blank, reduction="none")
        (slope,) = cugrad.autograd.grad(loss, x, cugrad.arange(1.0, len(inputs) + 1).double())
        return [loss.detach(), slope]

    def test_means_and_losses_without_an_alignment(monkeypatch: pytest.MonkeyPatch) -> None:
        for settings in ({"reduction": "mean", "zero_infinity": True}, {"zero_infinity": True}):
            found = [outcome(CASES[4], "float64", device, "padded", **settings)
                     for device in ("cuda", "cpu")]  # fmt: skip
            for a, b in zip(*found, strict=True):
                assert cugrad.allclose(a, b)

    def test_gradients_of_many_at_once() -> None:
        found = []
        for device in ("cuda", "cpu"):
            x, labels = operands(CASES[0], "float64", device, "together")
            x = x.detach().clamp(min=-20).requires_grad_()
            sizes = CASES[0][2:4]
            loss = cugrad.nn.functional.ctc_loss(x, labels, *sizes, reduction="none")
            each = cugrad.eye(len(sizes[0]), dtype=x.dtype, device=device)
            found.append(cugrad.autograd.grad(loss, x, each, is_grads_batched=True)[0].cpu())
        assert cugrad.allclose(*found)

    def test_hooks_run_once_under_create_graph() -> None:
        found = []
        for again in (False, True):
            x, labels = operands(CASES[0], "float64", "cuda", "together")
            x = x.detach().clamp(min=-20).requires_grad_()
            computed = x * 1
            for hooked in (x, computed):
                hooked.register_hook(lambda g: g * 3)
            loss = cugrad.nn.functional.ctc_loss(
                computed, labels, CASES[0][2], CASES[0][3], reduction="sum"
            )
            found.append(cugrad.autograd.grad(loss, x, create_graph=again)[0].detach())
        assert cugrad.allclose(*found)

    def test_it_is_differentiated_twice_and_forward_by_tensor_functions() -> None:
        found: list[list[Any]] = []
        for device in ("cuda", "cpu"):
            x, labels = operands(CASES[0], "float64", device, "together")
            x = x.detach().clamp(min=-20).requires_grad_()
            lose = lambda x, labels=labels: cugrad.nn.functional.ctc_loss(
                x, labels, CASES[0][2], CASES[0][3], reduction="sum"
            )
            (first,) = cugrad.autograd.grad(lose(x), x, create_graph=True)
            second = cugrad.autograd.grad(first.square().sum(), x)
            ahead = cugrad.func.jvp(lose, (x.detach(),), (x.detach(),))
            found.append([first.detach().cpu(), *[y.cpu() for y in (*second, *ahead)]])
        for a, b in zip(*found, strict=True):
            assert cugrad.allclose(a, b)
