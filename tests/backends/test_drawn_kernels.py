"""What is made of drawn numbers is one kernel, which writes where they go; and no other numbers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
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
FLOATS = ("float32", "float64", "float16", "bfloat16")
WHOLE = ("int64", "int32", "int16", "int8", "uint8", "bool")
NEAR = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-6, "float64": 1e-14}
FILLS: dict[str, list[tuple[Any, ...]]] = {
    "uniform_": [(), (-2.0, 3.0), (1, 1)], "normal_": [(), (1, 0.5), (0.0, 2.0), (3.0, 0.0)],
    "log_normal_": [(0.5, 0.25)], "exponential_": [(), (2.0,)], "geometric_": [(0.3,)],
    "cauchy_": [(1.0, 2.0)], "bernoulli_": [(), (0.3,), (0.0,), (1.0,)],
    "random_": [(), (2,), (0, 90)],
}  # fmt: skip
EXACT = ("bernoulli_", "random_")  # whatever rounds otherwise in between
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 255, 1025)

if fake_cuda.REAL is None:

    def test_over_the_fake_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        toolchain.host_compiler()
        monkeypatch.setenv(SOURCES, str(tmp_path / "sources.json"))
        fake_cuda.passed(__file__, fused=True)
        toolchain.nvrtc()
        some = toolchain.some_of(json.loads((tmp_path / "sources.json").read_text()))
        for source, needs in zip(some, toolchain.compile_together(some, "90"), strict=True):
            assert needs.registers <= 64 and needs.frame <= 40, (needs, source)

else:
    from cugrad.backends.cupy.fused import elements

    @pytest.fixture(scope="module", autouse=True)
    def compiled() -> Iterator[None]:
        fake_cuda.CHECKS = True
        with fake_cuda.compiled_together():
            for name, args, dtype in fills():
                fill(cugrad.empty(3, dtype=getattr(cugrad, dtype)), name, args)
            for draw, dtype in product(DRAWS.values(), FLOATS):
                draw(chances(dtype))
        yield
        fake_cuda.CHECKS = False

    def fills() -> list[tuple[str, tuple[Any, ...], str]]:
        found = [(name, args, dtype) for name, many in FILLS.items() for args in many
                 for dtype in FLOATS]  # fmt: skip
        for dtype in WHOLE:
            found += [(name, args, dtype) for name in EXACT for args in FILLS[name]
                      if dtype != "bool" or max((0, *args)) <= 2]  # fmt: skip
        return found

    def fill(x: Any, name: str, args: Any) -> Any:
        return getattr(x, name)(*args)

    def chances(dtype: str, shape: tuple[int, ...] = (7, 3)) -> Any:
        values = np.random.default_rng(0).random(shape)
        return cugrad.tensor(values, dtype=cugrad.float64).to(getattr(cugrad, dtype))

    DRAWS: dict[str, Callable[[Any], Any]] = {
        "bernoulli": cugrad.bernoulli,
        "bernoulli, turned": lambda p: cugrad.bernoulli(p.t()),
        "bernoulli_ of chances": lambda p: cugrad.zeros_like(p).bernoulli_(p),
        "bernoulli_ of itself": lambda p: p.clone().bernoulli_(p),
        "bernoulli_ of what lies across it": lambda p: overlapping(p.clone()),
        "bernoulli_ of a row": lambda p: cugrad.zeros_like(p).bernoulli_(p[0]),
        "bernoulli_ of integers": lambda p: cugrad.zeros_like(p).bernoulli_((p > 0.5).long()),
        "normal of means": lambda p: cugrad.normal(p, 2.0),
        "normal of deviations": lambda p: cugrad.normal(1.0, p),
        "normal of both": lambda p: cugrad.normal(p, p.t().contiguous().t()),
        "normal of rows": lambda p: cugrad.normal(p, p[0]),
        "rand": lambda p: cugrad.rand(9, dtype=p.dtype),
        "randn": lambda p: cugrad.randn(9, dtype=p.dtype),
        "normal": lambda p: cugrad.normal(3.0, 0.5, (9,), dtype=p.dtype),
        "randint": lambda p: cugrad.randint(-9, 9, (9,), dtype=p.dtype),
        "rand_like": lambda p: cugrad.rand_like(p.t()),
        "rrelu": lambda p: cugrad.nn.functional.rrelu(p - 0.5, training=True),
    }  # fmt: skip

    def overlapping(x: Any) -> Any:
        x[1:].bernoulli_(x[:-1])
        return x

    def both_ways(
        run: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
    ) -> list[tuple[np.ndarray[Any, Any], Any, Any]]:
        """What is drawn in one kernel, and by CuPy's functions; and where the stream is then."""
        found = []
        for fused in (True, False):
            monkeypatch.setattr(wanted, "fused", fused)
            cugrad.manual_seed(7)
            x = run()
            kind = x.double().cpu().numpy() if x.is_floating_point() else x.cpu().numpy()
            found.append((kind, x.dtype, cugrad.cuda.get_rng_state().tolist()))
        return found

    @pytest.mark.parametrize(
        ("name", "args", "dtype"), fills(), ids=lambda x: str(x).replace(" ", "")
    )
    def test_fills_are_those_of_functions(
        name: str, args: Any, dtype: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        near = 0 if name in EXACT or name == "uniform_" and not args else NEAR[dtype]
        for size in SIZES if dtype in ("float32", "int8", "float64") else (5, 9):
            run = lambda size=size: fill(
                cugrad.empty(size, dtype=getattr(cugrad, dtype)), name, args
            )
            (x, kind, state), (plain, _, same) = both_ways(run, monkeypatch)
            assert kind is getattr(cugrad, dtype) and state == same
            np.testing.assert_allclose(x, plain, near, near)

    @pytest.mark.parametrize("dtype", FLOATS)
    @pytest.mark.parametrize("name", DRAWS)
    def test_draws_are_those_of_functions(
        name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = lambda: DRAWS[name](chances(dtype))
        (x, kind, state), (plain, same_kind, same) = both_ways(run, monkeypatch)
        assert kind is same_kind and state == same
        near = 0 if name.startswith(("bernoulli", "rand")) and "randn" not in name else NEAR[dtype]
        np.testing.assert_allclose(x, plain, near, near)

    VIEWS: dict[str, Callable[[Any], Any]] = {
        "part": lambda x: x[1:5], "a row": lambda x: x[3], "one": lambda x: x[2, 3],
        "columns": lambda x: x[:, 2:4], "turned": lambda x: x.t(), "steps": lambda x: x[::2, ::3],
        "none": lambda x: x[:0], "with a dim more": lambda x: x[1:3].unsqueeze(1),
    }  # fmt: skip

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
    @pytest.mark.parametrize("name", VIEWS)
    def test_a_part_is_filled_and_nothing_beside_it(name: str, dtype: str) -> None:
        view, args = VIEWS[name], (2, 5)
        law = "random_" if dtype == "int64" else "uniform_"
        x = cugrad.zeros(7, 6, dtype=getattr(cugrad, dtype))
        cugrad.manual_seed(3)
        wanted_ones = fill(cugrad.empty(view(x).shape, dtype=x.dtype), law, args)
        cugrad.manual_seed(3)
        part = view(x)
        address, version = part.data_ptr(), x._version
        assert fill(part, law, args) is part and part.data_ptr() == address
        assert x._version == version + 1
        cugrad.testing.assert_close(part.contiguous(), wanted_ones, rtol=0, atol=0)
        assert int((x != 0).sum()) == part.numel()

    def test_what_is_recorded_is_told() -> None:
        leaf = cugrad.ones(4, 3, requires_grad=True)
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            leaf.normal_()
        with cugrad.no_grad():
            assert leaf.normal_(5.0, 0.1).mean() > 4 and leaf._version == 1
        y = leaf * 2
        y[1].uniform_(7, 8)
        y.sum().backward()
        assert leaf.grad.tolist() == [[2] * 3, [0] * 3, [2] * 3, [2] * 3]
        y = leaf.exp()
        with cugrad.no_grad():
            y.zero_().random_(9)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()

    def test_what_is_saved_is_copied_before() -> None:
        with cugrad.autograd.graph.allow_mutation_on_saved_tensors():
            x = cugrad.full((5,), 3.0, requires_grad=True)
            y = x.clone()
            z = (y * y).sum()
            y.detach().exponential_()
            z.backward()
        assert x.grad.tolist() == [6.0] * 5

    def test_inference_tensors_stay_as_they_are_outside() -> None:
        with cugrad.inference_mode():
            x = cugrad.zeros(5).bernoulli_(1.0)
        assert x.tolist() == [1.0] * 5
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
            x.normal_()

    def test_a_profile_sees_the_same_numbers() -> None:
        found = []
        for profiled in (False, True):
            cugrad.manual_seed(1)
            x = cugrad.empty(9)
            if profiled:
                with cugrad.profiler.profile() as profile:
                    x.normal_(1, 2)
                assert [event.key for event in profile.key_averages()] == ["copy"]
            else:
                x.normal_(1, 2)
            found.append(x.tolist())
        assert found[0] == found[1]

    def test_numbers_are_told_and_compile_nothing() -> None:
        x = cugrad.empty(5)
        x.uniform_(1.0, 2.0)
        before = len(elements._kernels)
        for high in (3.0, 4, 5.5):
            assert 0 <= float(x.uniform_(0, high).max()) < high
        assert len(elements._kernels) == before

    def test_the_sources_are_written_down() -> None:
        assert elements._kernels
        if SOURCES in os.environ:
            Path(os.environ[SOURCES]).write_text(json.dumps(list(elements._kernels)))
