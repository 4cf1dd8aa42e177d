"""Attention by cuDNN: what its package is told, and that results are those of our kernels."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import product
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")
pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")

from tests.support import fake_cuda

pytestmark = [pytest.mark.host_only, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

if fake_cuda.REAL is None:

    def test_over_the_fake_cuda() -> None:
        fake_cuda.passed(__file__, fused=True)

    def test_the_package_has_what_is_called() -> None:
        from tests.support import fake_cudnn

        try:
            cudnn: Any = importlib.import_module("cudnn")
        except (ImportError, OSError) as error:
            pytest.skip(f"nvidia-cudnn-frontend is not installed: {error}")
        for name, (operands, count) in fake_cudnn.ATTENTIONS.items():
            said = getattr(cudnn._pybind_module.backend_graph, name).__doc__.partition("->")[0]
            for argument in (*operands, *fake_cudnn.SAID[name]):
                assert f"{argument}: " in said, (name, argument)
            assert len(cudnn._pygraph._CAPTURED_OPS[name]["outputs"]) == count

else:
    import cugrad
    from cugrad.backends import get
    from cugrad.backends.cupy.cudnn import attention, frontend
    from cugrad.backends.wanted import wanted
    from cugrad.nn.attention import SDPBackend, sdpa_kernel
    from tests.support.fake_cudnn import fake

    attend = cugrad.nn.functional.scaled_dot_product_attention
    CUDNN, FLASH, MATH = (
        SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH,
    )  # fmt: skip
    TOLERANCES = {"float16": 2e-3, "bfloat16": 2e-2}

    @pytest.fixture
    def cudnn(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
        module = fake()
        monkeypatch.setattr(attention, "frontend", lambda: module)
        monkeypatch.setattr(wanted.cudnn, "asked", True)
        forget()
        yield module
        forget()

    def forget() -> None:
        """All that refers to the module."""
        frontend._handles.by_device.clear()
        attention.plans.clear()
        for function in (get("cuda").attention, get("cuda").attention_backward):
            function.kept.launches.clear()  # type: ignore[union-attr]

    def leaf(shape: tuple[int, ...], dtype: str, seed: int, lying: str = "heads") -> Any:
        """Of (batch, heads, rows, width); heads side by side, as a layer's are, or "rows" are."""
        values = np.random.default_rng(seed).standard_normal(shape)
        x = cugrad.tensor(values, device="cuda", dtype=getattr(cugrad, dtype))
        if lying == "heads":
            x = x.transpose(1, 2).contiguous().transpose(1, 2)
        elif lying == "odd":  # neither addresses nor steps are multiples of 16 bytes
            x = cugrad.cat([x[..., :1], x, x[..., :3]], -1)[..., 1:-3]
        return x.detach().requires_grad_()

    def step(operands: list[Any], **how: Any) -> list[Any]:
        """Attention, and the gradients of its operands."""
        y = attend(*operands, **how)
        g = np.random.default_rng(9).standard_normal(tuple(y.shape))
        g = cugrad.tensor(g, device="cuda", dtype=y.dtype)
        return [y.detach(), *cugrad.autograd.grad(y, operands, g)]

    def compare(got: list[Any], want: list[Any], dtype: str) -> None:
        for a, b in zip(got, want, strict=True):
            host, other = (t.detach().double().cpu().numpy() for t in (a, b))
            largest = float(np.abs(other).max(initial=1.0))
            np.testing.assert_allclose(host, other, 0, TOLERANCES[dtype] * largest)

    BOTH = ["sdpa", "sdpa_backward"]
    # shapes of queries, and of keys and values, and settings
    CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
        ((2, 4, 9, 16), (2, 4, 9, 16), {}),
        ((2, 4, 9, 16), (2, 4, 12, 16), {"is_causal": True, "scale": 0.3}),
        ((1, 6, 5, 8), (1, 2, 7, 8), {"enable_gqa": True, "is_causal": True}),
        ((3, 5, 24), (3, 5, 24), {"is_causal": True}),
        ((2, 1, 2, 4, 8), (2, 1, 2, 6, 8), {}),
    ]

    @pytest.mark.parametrize("number", range(len(CASES)))
    def test_attention_and_its_gradients(cudnn: Any, number: int) -> None:
        shape, other, how = CASES[number]
        lyings = ("heads", "rows", "odd") if number == 0 else ("rows",)
        dtypes = TOLERANCES if number == 1 else ["bfloat16"]

        def leaves(seed: int, dtype: str, lying: str) -> list[Any]:
            return [leaf(s, dtype, seed + k, lying) for k, s in enumerate((shape, other, other))]

        with fake_cuda.compiled_together():  # what it is compared with
            for dtype, lying in product(dtypes, lyings):
                step(leaves(0, dtype, lying), **how)
        forget()
        for seed, dtype, lying in product((0, 3), dtypes, lyings):  # again: as kept
            operands = leaves(seed, dtype, lying)
            cudnn.calls.clear()
            with sdpa_kernel(CUDNN):
                got = step(operands, **how)
            assert cudnn.calls == BOTH
            compare(got, step(operands, **how), dtype)
            assert cudnn.calls == BOTH, "it was not asked for"

    def test_values_may_have_another_width(cudnn: Any) -> None:
        operands = [leaf((2, 2, 5, n), "float16", n) for n in (16, 16, 24)]
        with sdpa_kernel(CUDNN):
            got = step(operands)
        assert cudnn.calls == BOTH
        compare(got, step(operands), "float16")

    def test_gradients_are_computed_as_attention_was(cudnn: Any) -> None:
        """Whatever is chosen meanwhile; what cuDNN's forward keeps, our kernels could use."""
        operands = [leaf((2, 3, 10, 16), "bfloat16", seed) for seed in range(3)]
        want = step(operands, is_causal=True)
        g = cugrad.tensor(np.random.default_rng(9).standard_normal((2, 3, 10, 16)), device="cuda")
        for ways, calls in ((CUDNN, BOTH), (FLASH, []), (CUDNN, BOTH[:1])):
            cudnn.calls.clear()
            with sdpa_kernel([ways, FLASH], set_priority=True):
                y = attend(*operands, is_causal=True)
            if len(calls) == 1:
                wanted.cudnn.enabled = False
            try:
                with sdpa_kernel(MATH):
                    got = cugrad.autograd.grad(y, operands, g.to(y.dtype))
            finally:
                wanted.cudnn.enabled = True
            compare([y, *got], want, "bfloat16")
            assert cudnn.calls == calls

    @pytest.mark.parametrize(
        ("ways", "first", "is_asked"),
        [([CUDNN], False, True), ([FLASH, CUDNN], False, False), ([CUDNN, FLASH], False, False),
         ([CUDNN, FLASH], True, True), ([FLASH, CUDNN], True, False), ([MATH, CUDNN], False, False),
         ([CUDNN, MATH], True, True), ([MATH, FLASH, CUDNN], True, False), (None, False, False)],
    )  # fmt: skip
    def test_who_is_asked(cudnn: Any, ways: Any, first: bool, is_asked: bool) -> None:
        operands = [leaf((1, 2, 4, 16), "float16", seed) for seed in range(3)]
        with nullcontext() if ways is None else sdpa_kernel(ways, set_priority=first):
            got = step(operands)
        assert cudnn.calls == (BOTH if is_asked else [])
        compare(got, step(operands), "float16")

    def test_the_order_of_ways_is_put_back() -> None:
        before = [*wanted.attention.items()]
        with sdpa_kernel([CUDNN, FLASH], set_priority=True):
            assert [*wanted.attention][:2] == ["cudnn", "flash"]
        assert [*wanted.attention.items()] == before

    @pytest.mark.parametrize("what", ["mask", "dropout", "float32", "narrow", "empty"])
    def test_what_is_not_cudnns_is_computed_without(cudnn: Any, what: str) -> None:
        width, dtype = 4 if what == "narrow" else 16, "float16"
        rows = 0 if what == "empty" else 5
        operands = [leaf((1, 2, rows, width), dtype, seed) for seed in range(3)]
        how: dict[str, Any] = {}
        if what == "float32":
            operands = [x.detach().float().requires_grad_() for x in operands]
        elif what == "mask":
            how = {"attn_mask": cugrad.ones(5, 5, device="cuda").tril().bool()}
        elif what == "dropout":
            how = {"dropout_p": 0.5}
        cugrad.manual_seed(0)
        with sdpa_kernel(CUDNN):
            got = step(operands, **how)
        cugrad.manual_seed(0)
        compare(got, step(operands, **how), dtype)
        assert cudnn.calls == []

    def test_what_cudnn_does_not_support_is_computed_without(cudnn: Any) -> None:
        cudnn.supported = False
        operands = [leaf((1, 2, 4, 16), "float16", seed) for seed in range(3)]
        with sdpa_kernel([CUDNN, FLASH], set_priority=True):
            got = [step(operands) for _ in range(2)]
        compare(got[1], step(operands), "float16")
        assert not cudnn.calls and len(cudnn.graphs) == 2  # asked once each

    def test_a_graph_is_made_once_for_a_form(cudnn: Any) -> None:
        operands = [leaf((1, 2, 4, 16), "float16", seed) for seed in range(3)]
        with sdpa_kernel(CUDNN):
            for _ in range(3):
                step(operands)
            assert len(cudnn.graphs) == 2 and len(cudnn.calls) == 6
            step(operands, is_causal=True)
            assert len(cudnn.graphs) == 4
            cugrad.use_deterministic_algorithms(True)
            try:
                step(operands)
            finally:
                cugrad.use_deterministic_algorithms(False)
        assert cudnn.graphs[-1].node.how["use_deterministic_algorithm"] is True

    def test_a_captured_step_has_its_graphs(cudnn: Any) -> None:
        def whole(x: Any) -> list[Any]:
            y = attend(x, x * 2, x.sin(), is_causal=True)
            return [y.detach(), *cugrad.autograd.grad(y.float().sin().sum(), [x])]

        with sdpa_kernel(CUDNN):
            run = cugrad.cuda.capture_step(whole, warmup=1)
            for seed in range(4):
                x = leaf((2, 2, 6, 16), "float16", seed)
                before = len(cudnn.calls)
                found = [t.clone() for t in run(x)]
                replays = len(cudnn.calls) == before
                compare(found, whole(x), "float16")
        assert replays, "the last step was a replay"
