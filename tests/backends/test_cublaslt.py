"""Affine maps by cuBLASLt: what it is told, and that results are those of cuBLAS and a kernel."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")
ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")

from tests.support import fake_cuda  # noqa: E402

pytestmark = [pytest.mark.host_only, pytest.mark.filterwarnings("ignore::RuntimeWarning")]


def libraries() -> Iterator[str]:
    """Where libcublasLt may be."""
    yield from ("libcublasLt.so.12", "libcublasLt.so.13")
    try:
        from nvidia import cublas
    except ImportError:
        return
    for folder in cublas.__path__:
        yield f"{folder}/lib/libcublasLt.so.12"


if fake_cuda.REAL is None:

    def test_over_the_fake_cuda() -> None:
        fake_cuda.passed(__file__, fused=True)

    def test_the_library_takes_what_it_is_told() -> None:
        """Descriptions need no GPU."""
        from cugrad.backends.cupy.cublaslt.library import CublasLt

        for name in libraries():
            try:
                library = CublasLt(ctypes.CDLL(name))
                break
            except OSError:
                continue
        else:
            pytest.skip("libcublasLt is not installed")
        for compute, scale, epilogue in ((68, 0, 4), (77, 0, 512), (70, 1, 1)):
            description = library.description(compute, scale, (True, False), epilogue)
            library.set_bias(description, 4096)
        layouts = [library.layout(kind, 8, 4, 8, 3, 32) for kind in (0, 1, 2, 14)]
        with pytest.raises(RuntimeError, match="the status 1"):  # a handle needs a GPU
            library.heuristic(0, description, tuple(layouts[:3]), 16, 1 << 20)  # type: ignore[arg-type]

else:
    import cugrad
    from cugrad.backends import get
    from cugrad.backends.cupy.cublaslt import products
    from cugrad.backends.cupy.cublaslt.library import CublasLt
    from cugrad.backends.cupy.written import products as affine
    from cugrad.backends.wanted import wanted
    from cugrad.ops.table import TABLE
    from tests.support.fake_cublaslt import FakeLt

    BIAS, BIAS_GRADIENT = 4, 512
    TOLERANCES = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}

    @pytest.fixture
    def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLt]:
        fake = FakeLt()
        library = CublasLt(fake)
        monkeypatch.setattr(products, "library", lambda: library)
        monkeypatch.setattr(wanted, "cublaslt", True)
        affine._plans.clear()
        affine._sums.clear()
        yield fake
        affine._plans.clear()
        affine._sums.clear()
        assert not fake.errors

    def arrays(*shapes: tuple[int, ...], dtype: str = "float32") -> list[Any]:
        rng = np.random.default_rng(0)
        kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
        return [fake_cuda.clothed(rng.standard_normal(s).astype(kind)) for s in shapes]

    def close(got: Any, want: Any, dtype: str = "float32") -> None:
        tolerance = TOLERANCES[dtype]
        wide = [np.asarray(getattr(x, "_host", x)).astype(np.float64) for x in (got, want)]
        np.testing.assert_allclose(*wide, tolerance, 4 * tolerance)

    @pytest.mark.parametrize("dtype", TOLERANCES)
    @pytest.mark.parametrize("lies", ["dense", "turned", "shifted"])
    def test_an_affine_map_is_one_call(fake: FakeLt, dtype: str, lies: str) -> None:
        x, w, b = arrays((2, 3, 8), (5, 8), (5,), dtype=dtype)
        if lies == "turned":
            w = arrays((8, 5), dtype=dtype)[0].T
        elif lies == "shifted":
            x = arrays((2, 3, 9), dtype=dtype)[0][..., 1:]
            b = arrays((6,), dtype=dtype)[0][1:]
        got = affine.linear(x, w, b)
        full = [a._host.astype(np.float64) for a in (x, w, b)]
        close(got, full[0] @ full[1].T + full[2], dtype)
        assert [call.epilogue for call in fake.calls] == [BIAS]

    def test_the_gradient_of_a_bias_is_summed_up_in_that_of_the_weight(fake: FakeLt) -> None:
        values = [a._host for a in arrays((4, 6, 8), (5, 8), (5,))]
        expected = None
        for prefers in (False, True):
            wanted.cublaslt = prefers
            leaves = [cugrad.tensor(v, device="cuda", requires_grad=True) for v in values]
            (cugrad.nn.functional.linear(*leaves).sin()).sum().backward()
            grads = [leaf.grad.cpu().numpy() for leaf in leaves]
            for got, want in zip(grads, expected or grads, strict=True):
                close(got, want)
            expected = grads
        assert [call.epilogue for call in fake.calls] == [BIAS, BIAS_GRADIENT]

    def test_an_algorithm_is_searched_once_for_operands_that_lie_alike(fake: FakeLt) -> None:
        """And begin at like addresses; also where the bias is another one."""
        x, w = arrays((3, 8), (5, 8))
        for k in range(3):
            b = fake_cuda.clothed(np.full(5, k, np.float32))
            close(affine.linear(x, w, b), x._host @ w._host.T + k)
        assert fake.searches == len({told for _, told in fake.algorithms.values()})
        assert len(fake.calls) == 3
        assert affine.linear(x, w, None) is not None and len(fake.calls) == 3  # cuBLAS's

    def test_a_graph_has_its_calls(fake: FakeLt) -> None:
        """A captured step does nothing but what is written down: forward, and both gradients."""
        net = cugrad.nn.Linear(8, 5, device="cuda")

        def step(x: Any) -> Any:
            y = net(x)
            return [y.detach(), *cugrad.autograd.grad(y.sin().sum(), [x, net.weight, net.bias])]

        run = cugrad.cuda.capture_step(step, warmup=1)
        for seed in range(4):
            cugrad.manual_seed(seed)
            values = cugrad.randn(6, 8, device="cuda", requires_grad=True)
            before = len(fake.calls)
            found = [x.clone() for x in run(values)]
            replays = len(fake.calls) == before
            for got, want in zip(found, step(values), strict=True):
                close(got._array, want._array)
        assert replays, "the last step was a replay"

    def test_what_it_does_not_support_is_left_to_cublas(fake: FakeLt) -> None:
        fake.supported = False
        x, w, b = arrays((3, 8), (5, 8), (5,))
        for _ in range(2):
            close(affine.linear(x, w, b), x._host @ w._host.T + b._host)
        assert not fake.calls
        double = [fake_cuda.clothed(a._host.astype(np.float64)) for a in (x, w, b)]
        close(affine.linear(*double), x._host @ w._host.T + b._host)

    def test_without_the_library_there_is_cublas(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(products, "library", lambda: None)
        monkeypatch.setattr(wanted, "cublaslt", True)
        x, w, b = arrays((3, 8), (5, 8), (5,))
        expected = TABLE["linear"].forward(get("cpu").xp, x._host, w._host, b._host)
        close(affine.linear(x, w, b), expected)

    def test_tf32_is_asked_for_at_each_call(
        fake: FakeLt, monkeypatch: pytest.MonkeyPatch
    ) -> None:  # fmt: skip
        x, w, b = arrays((3, 8), (5, 8), (5,))
        for tf32, compute in ((False, 68), (True, 77), (False, 68)):
            monkeypatch.setattr(wanted, "tf32", tf32)
            affine.linear(x, w, b)
            assert fake.calls[-1].compute == compute
        half = [fake_cuda.clothed(a._host.astype(np.float16)) for a in (x, w, b)]
        monkeypatch.setattr(wanted, "tf32", True)
        affine.linear(*half)
        assert fake.calls[-1].compute == 68  # half precision has no TF32
