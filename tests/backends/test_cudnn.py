"""Convolutions by cuDNN: what its package is told, and that results are those of the rows."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")
ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")

from tests.support import fake_cuda  # noqa: E402

pytestmark = [pytest.mark.host_only, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

if fake_cuda.REAL is None:

    def test_over_the_fake_cuda() -> None:
        fake_cuda.passed(__file__, fused=True)

    def test_the_package_has_what_is_called() -> None:
        """Its own graphs infer the shapes of results, for which it needs no GPU."""
        from tests.support import fake_cudnn

        try:
            cudnn: Any = importlib.import_module("cudnn")
        except (ImportError, OSError) as error:
            pytest.skip(f"nvidia-cudnn-frontend is not installed: {error}")
        for name, arguments in fake_cudnn.SIGNATURES.items():
            function = cudnn
            for part in name.split("."):
                function = getattr(function, part)
            parameters = list(inspect.signature(function).parameters)
            assert set(arguments) <= set(parameters), name
        for enum in ("DataType", "HeurMode", "BuildPlanPolicy", "NumericalNote"):
            ours = getattr(fake_cudnn, enum)
            theirs = getattr(cudnn, ours.__name__)
            assert set(ours.__members__) <= set(theirs.__members__), enum
        kind = cudnn.data_type.HALF
        graph = cudnn.pygraph(io_data_type=kind, compute_data_type=cudnn.data_type.FLOAT)
        assert graph.deselect_numeric_notes and graph.check_support and graph.build_plans
        x = graph.tensor(name="image", dim=[2, 4, 7, 6], stride=[168, 1, 24, 4], data_type=kind,
                         uid=1)  # fmt: skip
        w = graph.tensor(name="weight", dim=[6, 2, 3, 3], stride=[18, 1, 6, 2], data_type=kind,
                         uid=2)  # fmt: skip
        y = graph.conv_fprop(image=x, weight=w, pre_padding=[1, 1], post_padding=[1, 1],
                             stride=[2, 1], dilation=[1, 1])  # fmt: skip
        y.set_output(True).set_data_type(kind).set_dim([2, 6, 4, 6]).set_stride([144, 1, 36, 6])
        assert y.set_uid(3).get_uid() == 3 and y.get_dim() == [2, 6, 4, 6]
        assert {n: set(cudnn._pygraph._STRUCTURED_OPS[n]["inputs"]) for n in
                fake_cudnn.CONVOLUTIONS} == {n: set(v) for n, v in
                                             fake_cudnn.CONVOLUTIONS.items()}  # fmt: skip

else:
    import cugrad
    from cugrad.autograd.engine import backward_pass
    from cugrad.backends import get
    from cugrad.backends.cupy.cudnn import convolutions, frontend
    from cugrad.backends.wanted import ByCudnn, wanted
    from cugrad.ops.table import TABLE
    from tests.support.fake_cudnn import NumericalNote, fake

    F = cugrad.nn.functional
    TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "float16": 5e-3, "bfloat16": 4e-2}

    @pytest.fixture
    def cudnn(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
        module = fake()
        monkeypatch.setattr(convolutions, "frontend", lambda: module)
        monkeypatch.setattr(frontend, "frontend", lambda: module)
        monkeypatch.setattr(wanted.cudnn, "asked", True)
        forget()
        yield module
        forget()

    def forget() -> None:
        """All that refers to the module."""
        frontend._handles.by_device.clear()
        convolutions.plans.clear()
        for name in ("convolution", "convolution_input", "convolution_weight"):
            get("cuda").row_function(TABLE[name]).kept.launches.clear()

    def leaf(shape: tuple[int, ...], dtype: str, last: bool = False, seed: int = 0) -> Any:
        values = np.random.default_rng(seed).standard_normal(shape)
        x = cugrad.tensor(values, device="cuda", dtype=getattr(cugrad, dtype))
        if last:
            x = x.to(memory_format=cugrad.channels_last)
        return x.requires_grad_()

    def step(x: Any, w: Any, b: Any, **how: Any) -> list[Any]:
        """The convolution, and the gradients of its operands."""
        function = getattr(F, f"conv{x.dim() - 2}d")
        y = function(x, w, b, **how)
        g = cugrad.tensor(np.random.default_rng(9).standard_normal(tuple(y.shape)), device="cuda")
        grads = cugrad.autograd.grad(y, [x, w] + ([] if b is None else [b]), g.to(y.dtype))
        return [y.detach(), *grads]

    def compare(got: list[Any], want: list[Any], dtype: str) -> None:
        tolerance = TOLERANCES[dtype]
        for a, b in zip(got, want, strict=True):
            host, other = (np.asarray(t.double().cpu().numpy()) for t in (a, b))
            largest = max(1.0, float(np.abs(other).max()))
            np.testing.assert_allclose(host, other, tolerance * 4, tolerance * 4 * largest)

    CASES: list[tuple[tuple[int, ...], tuple[int, ...], bool, dict[str, Any]]] = [
        ((2, 4, 7, 6), (6, 4, 3, 3), True, {"padding": 1, "stride": (2, 1)}),
        ((2, 4, 7, 6), (6, 2, 3, 2), False, {"groups": 2, "dilation": 2}),
        ((2, 4, 6, 6), (8, 1, 3, 3), True, {"groups": 4}),
        ((3, 4, 9), (5, 4, 3), True, {"padding": 1, "stride": 2}),
        ((1, 2, 4, 5, 4), (3, 2, 2, 3, 2), False, {"padding": (1, 0, 1)}),
    ]

    @pytest.mark.parametrize("number", range(len(CASES)))
    def test_convolutions_and_their_gradients(cudnn: Any, number: int) -> None:
        x_shape, w_shape, has_bias, how = CASES[number]
        formats = product((False, True), (False, True)) if len(x_shape) == 4 else [(False, False)]
        dtypes = TOLERANCES if number == 0 else ["float32"]
        places = [*product(dtypes, formats)]

        def operands(seed: int, dtype: str, x_last: bool, w_last: bool) -> list[Any]:
            x, w = leaf(x_shape, dtype, x_last, seed), leaf(w_shape, dtype, w_last, seed + 1)
            return [x, w, leaf((w_shape[0],), dtype, seed=2) if has_bias else None]

        wanted.cudnn.asked = False
        with fake_cuda.compiled_together():  # what it is compared with
            for dtype, lying in places:
                step(*operands(0, dtype, *lying), **how)
        wanted.cudnn.asked = True
        forget()
        for seed, (dtype, (x_last, w_last)) in product((0, 3), places):  # again: as kept
            x, w, b = operands(seed, dtype, x_last, w_last)
            cudnn.calls.clear()
            got = step(x, w, b, **how)
            assert sorted(cudnn.calls) == ["conv_dgrad", "conv_fprop", "conv_wgrad"]
            wanted.cudnn.asked = False
            want = step(x, w, b, **how)
            wanted.cudnn.asked = True
            compare(got, want, dtype)
            if (x_last or w_last) and w_shape[1] > 1:
                assert got[0].is_contiguous(memory_format=cugrad.channels_last)

    def test_weights_of_one_place_lie_both_ways(
        cudnn: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """None is copied for channels that lie last, and its gradient is kept as it comes."""
        copies: list[Any] = []
        for module, name in ((convolutions, "_laid"), (backward_pass, "_laid_out")):
            function = getattr(module, name)

            def watched(x: Any, like: Any, function: Any = function) -> Any:
                laid = function(x, like)
                copies.extend([x.shape] if laid is not x else [])
                return laid

            monkeypatch.setattr(module, name, watched)
        x, w = leaf((2, 4, 7, 6), "float32", last=True), leaf((6, 4, 1, 1), "float32", seed=1)
        F.conv2d(x, w).square().sum().backward()
        assert w.shape not in copies and w.grad.stride() == w.stride() == (4, 1, 1, 1)
        wanted.cudnn.asked = False
        before = w.grad.clone()
        w.grad = None
        F.conv2d(x, w).square().sum().backward()
        compare([before], [w.grad], "float32")

    def test_a_graph_is_made_once_for_a_form(cudnn: Any) -> None:
        x, w = leaf((2, 3, 5, 5), "float32"), leaf((4, 3, 2, 2), "float32")
        for _ in range(3):
            step(x, w, None)
        assert len(cudnn.graphs) == 3 and len(cudnn.calls) == 9
        F.conv2d(x, w, padding=1)
        assert len(cudnn.graphs) == 4

    @pytest.mark.parametrize("timed", [False, True])
    def test_a_captured_step_has_its_graphs(
        cudnn: Any, timed: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing is timed while a stream captures, which could not wait."""
        monkeypatch.setattr(wanted.cudnn, "benchmark", timed)
        w, b = leaf((4, 3, 2, 2), "float32", seed=1), leaf((4,), "float32", seed=2)

        def whole(x: Any) -> list[Any]:
            y = F.conv2d(x, w, b, padding=1)
            return [y.detach(), *cugrad.autograd.grad(y.sin().sum(), [x, w, b])]

        run = cugrad.cuda.capture_step(whole, warmup=1)
        for seed in range(4):
            x = leaf((2, 3, 5, 5), "float32", seed=seed)
            before = len(cudnn.calls)
            found = [x.clone() for x in run(x)]
            replays = len(cudnn.calls) == before
            compare(found, whole(x), "float32")
        assert replays, "the last step was a replay"

    def test_what_cudnn_does_not_support_is_computed_by_kernels(cudnn: Any) -> None:
        cudnn.supported = False
        x, w = leaf((2, 3, 5, 5), "float32"), leaf((4, 3, 2, 2), "float32")
        got = [step(x, w, None) for _ in range(2)]
        wanted.cudnn.asked = False
        compare(got[1], step(x, w, None), "float32")
        assert not cudnn.calls and len(cudnn.graphs) == 3  # asked once each

    def test_the_switches(cudnn: Any) -> None:
        x, w = leaf((2, 3, 5, 5), "float32"), leaf((4, 3, 2, 2), "float32")
        switches = cugrad.backends.cudnn
        assert switches.is_available() and switches.version() == 92800
        assert switches.is_acceptable(x) and not switches.is_acceptable(x.cpu())
        notes = NumericalNote
        for flags, refused in (
            ({"deterministic": False, "allow_tf32": True}, [notes.DOWN_CONVERT_INPUTS]),
            ({"deterministic": True, "allow_tf32": False},
             [notes.NONDETERMINISTIC, notes.DOWN_CONVERT_INPUTS, notes.TENSOR_CORE]),
        ):  # fmt: skip
            with switches.flags(enabled=True, **flags):
                F.conv2d(x, w)
            assert cudnn.graphs[-1].refused == refused
        F.conv2d(x.half(), w.half())
        assert cudnn.graphs[-1].refused == []
        count = len(cudnn.calls)
        with switches.flags(enabled=False):
            F.conv2d(x, w)
        assert len(cudnn.calls) == count

    def test_benchmark_mode_times_algorithms_once(cudnn: Any) -> None:
        x, w = leaf((2, 3, 5, 5), "float32"), leaf((4, 3, 2, 2), "float32")
        with cugrad.backends.cudnn.flags(enabled=True, benchmark=True, benchmark_limit=2):
            F.conv2d(x, w)
            assert set(cudnn.indices) == {0}  # 1 was not built, 2 is beyond the limit
            count = len(cudnn.indices)
            F.conv2d(x, w)
        assert len(cudnn.indices) == count + 1 and len(cudnn.graphs) == 1

    @pytest.fixture
    def missing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setitem(__import__("sys").modules, "cudnn", None)
        convolutions.plans.clear()
        frontend._imported.cache_clear()
        yield
        frontend._imported.cache_clear()

    @pytest.mark.usefixtures("missing")
    def test_without_the_package_the_error_says_how_to_install_it(
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(wanted.cudnn, "asked", True)
        x = cugrad.ones(1, 1, 3, 3, device="cuda")
        with pytest.raises(ImportError, match=r"pip install 'cugrad\[cudnn\]' nvidia-cudnn-cu1"):
            F.conv2d(x, x)
        assert get("cuda") is not None

    @pytest.mark.usefixtures("missing")
    def test_by_default_what_is_missing_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
        x = cugrad.ones(1, 1, 3, 3, device="cuda", requires_grad=True)
        for asked in (None, False):
            monkeypatch.setattr(wanted.cudnn, "asked", asked)
            x.grad = None
            F.conv2d(x, x).sum().backward()
            assert (x.grad == 2).all() and not cugrad.backends.cudnn.is_available()
            assert cugrad.backends.cudnn.version() is None

    def test_by_default_what_is_installed_is_used(
        cudnn: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(wanted.cudnn, "asked", None)
        assert cugrad.backends.cudnn.is_available()
        step(leaf((2, 3, 5, 5), "float32"), leaf((4, 3, 2, 2), "float32"), None)
        assert len(cudnn.calls) == 3
        monkeypatch.setattr(wanted.cudnn, "asked", False)
        assert not cugrad.backends.cudnn.is_available()
        step(leaf((2, 3, 5, 5), "float32"), leaf((4, 3, 2, 2), "float32"), None)
        assert len(cudnn.calls) == 3

    @pytest.mark.parametrize(
        ("said", "asked"), [(None, None), ("", None), ("0", False), ("1", True)]
    )
    def test_what_the_environment_says(
        said: str | None, asked: bool | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("CUGRAD_CUDNN", raising=False)
        if said is not None:
            monkeypatch.setenv("CUGRAD_CUDNN", said)
        settings = ByCudnn()
        assert settings.asked is asked and settings.used is (asked is not False)
