"""Functions of elements on lists of tensors are few launches, of the values of each one alone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")
pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")

import cugrad
from cugrad.backends.wanted import wanted
from cugrad.functions import foreach
from tests.backends import cuda_toolchain as toolchain
from tests.functions.test_foreach import calls
from tests.support import fake_cuda

pytestmark = pytest.mark.host_only

SOURCES = "CUGRAD_TEST_SOURCES"  # the file for the sources that the process below makes
BY_TENSOR = ("_foreach_norm", "_foreach_max")  # which are no functions of elements
NAMES = [name for name in foreach.NAMES if name not in BY_TENSOR]
SHAPES = [(2, 3), (4100,), (), (0,), (17,)]
HALF = ["_foreach_add_", "_foreach_lerp", "_foreach_addcdiv_", "_foreach_sigmoid", "_foreach_pow_"]
CASES = [(name, "float32") for name in NAMES] + [(name, "bfloat16") for name in HALF]


def lists(count: int, dtype: str) -> list[list[Any]]:
    rng = np.random.default_rng(count)
    kind = getattr(cugrad, dtype)
    return [[cugrad.tensor(rng.uniform(0.2, 0.9, s)).to("cuda", kind) for s in SHAPES]
            for _ in range(count)]  # fmt: skip


def called(name: str, rest: list[Any], dtype: str) -> list[Any]:
    """The results of a call; of one in place the tensors that it has changed."""
    first, *others = lists(3, dtype)
    more = []
    for x in rest:
        if isinstance(x, tuple):
            more.append((*x, *range(4, 6)))
        else:
            more.append(others[x[0] - 1] if isinstance(x, list) else x)
    return list(getattr(cugrad, name)(first, *more))


def host(x: Any) -> Any:
    array = x.detach()._array._host
    return array.astype(np.float32) if array.dtype.itemsize == 2 else array


if fake_cuda.REAL is None:

    def test_over_the_fake_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        toolchain.host_compiler()
        monkeypatch.setenv(SOURCES, str(tmp_path / "sources.json"))
        fake_cuda.passed(__file__, fused=True)
        toolchain.nvrtc()
        from cugrad.backends.cupy.fused.launch import OPTIONS

        sources = json.loads((tmp_path / "sources.json").read_text())
        found = toolchain.compile_together(sources, "90", OPTIONS)
        for source, needs in zip(sources, found, strict=True):
            assert needs.registers <= 64 and needs.frame == 0, (needs, source)

else:
    from cugrad.backends.cupy.fused import list_source
    from cugrad.backends.cupy.fused import lists as kernels_of_lists

    def odd() -> dict[str, Callable[[], Any]]:
        """Calls that are no plain list: what they answer is compared with that of loops."""
        x = lambda: lists(2, "float32")
        wide = lambda: lists(1, "float64")[0]
        memory = lambda: cugrad.arange(20.0, device="cuda")

        def crossed() -> Any:
            a, b = x()
            return cugrad._foreach_add_([*a, *b], [*b, *a])  # the second half reads the first's

        def shifted() -> Any:
            m = memory()
            return cugrad._foreach_add_([m[:4]], [m[1:5]])

        def shared() -> Any:
            m = memory()
            return cugrad._foreach_mul_([m[:3], m[2:5]], 2.0)

        def doubled() -> Any:
            a = x()[0]
            return cugrad._foreach_add_(a, a)

        def apart() -> Any:
            return cugrad._foreach_add([memory()[::2], memory()], 1.0)

        def turned() -> Any:
            return cugrad._foreach_exp([memory().reshape(4, 5).t(), memory()])

        def by_one() -> Any:
            return cugrad._foreach_mul_(x()[0], cugrad.tensor(1.25, device="cuda"))

        def clipped() -> Any:
            params = [p.requires_grad_() for p in x()[0]]
            for p in params:
                p.grad = cugrad.full_like(p, 3.0) - p.detach()
            cugrad.nn.utils.clip_grad_value_(params, 2.5)
            return [p.grad for p in params]

        def zeroed() -> Any:
            params = [p.requires_grad_() for p in (*x()[0], *lists(1, "complex64")[0])]
            for p in params:
                p.grad = p.detach().clone()
            cugrad.optim.SGD(params).zero_grad(set_to_none=False)
            return [p.grad.real for p in params]

        def scaled() -> Any:
            params = [p.requires_grad_() for p in x()[0]]
            for p in params:
                p.grad = cugrad.full_like(p, 3.0)
            norm = cugrad.tensor(7.0, device="cuda")
            cugrad.nn.utils.clip_grads_with_norm_(params, 2.0, norm)
            return [p.grad for p in params]

        return {
            "crossed": crossed, "shifted": shifted, "shared": shared, "doubled": doubled,
            "apart": apart, "turned": turned, "by_one": by_one, "clipped": clipped,
            "zeroed": zeroed, "scaled": scaled,
            "widened": lambda: cugrad._foreach_add(x()[0], wide()),
            "narrowed": lambda: cugrad._foreach_add_(x()[0], wide(), alpha=2),
            "copied": lambda: cugrad._foreach_copy_(lists(1, "bfloat16")[0], wide()),
            "compared": lambda: cugrad._foreach_clamp_max_(lists(1, "bfloat16")[0], 0.3001),
        }  # fmt: skip

    @pytest.fixture(scope="module", autouse=True)
    def compiled() -> Iterator[None]:
        fake_cuda.CHECKS = True
        with fake_cuda.compiled_together():
            for name, dtype in CASES:
                for rest in calls(name):
                    called(name, rest, dtype)
            for call in odd().values():
                call()
            for dtype in ("float32", "float64", "float16", "bfloat16", "complex64"):
                for p in NORMS if dtype != "float16" else ():
                    cugrad._foreach_norm(tensors_for(p, dtype), p)
                if dtype != "complex64":
                    cugrad._foreach_max(numbers(dtype))
        yield
        fake_cuda.CHECKS = False

    @contextmanager
    def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
        """The names of the kernels that are launched inside."""
        names: list[str] = []
        before = fake_cuda.RawKernel.__call__

        def noted(self: Any, *args: Any, **kwargs: Any) -> None:
            names.append(self._name)
            before(self, *args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(fake_cuda.RawKernel, "__call__", noted)
            yield names

    def both(monkeypatch: pytest.MonkeyPatch, call: Callable[[], Any]) -> Iterator[tuple[Any, Any]]:
        """What a call answers by launches for many tensors, and by functions of CuPy's for each."""
        ours = call()
        monkeypatch.setattr(wanted, "fused", False)
        plain = call()
        monkeypatch.setattr(wanted, "fused", True)
        yield from zip(ours, plain, strict=True)

    @pytest.mark.parametrize(("name", "dtype"), CASES)
    def test_a_list_has_the_values_of_its_tensors(
        name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        near = 1e-2 if dtype == "bfloat16" else 2e-6
        for rest in calls(name):
            for ours, plain in both(monkeypatch, lambda rest=rest: called(name, rest, dtype)):
                assert ours.dtype is plain.dtype and ours.shape == plain.shape
                np.testing.assert_allclose(host(ours), host(plain), near, 1e-7)

    NORMS = (2, 1, float("inf"), 3)

    def tensors_for(p: float, dtype: str) -> list[Any]:
        tensors = [*lists(1, dtype)[0], -lists(1, dtype)[0][1]]
        # without elements there is no largest
        return [t for t in tensors if t.numel() or p != float("inf")]

    def numbers(dtype: str) -> list[Any]:
        """Below 0, too, infinities, and nan."""
        filled = [t for t in lists(1, dtype)[0] if t.numel()]
        odd = [[-3.0, -1.0], [-float("inf")], [float("inf"), 2.0], [1.0, float("nan"), 2.0]]
        odd += [[float("nan"), 5.0], [-0.5] * 70000]
        made = [cugrad.tensor(x, dtype=getattr(cugrad, dtype), device="cuda") for x in odd]
        return [*filled, *[-t - 1 for t in filled], *made]

    @pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "complex64"])
    def test_norms_are_those_of_the_tensors(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
        for p in NORMS:
            some = tensors_for(p, dtype)
            norms = both(monkeypatch, lambda p=p, some=some: cugrad._foreach_norm(some, p))
            for ours, plain in norms:
                assert ours.dtype is plain.dtype and ours.shape == ()
                near = 1e-2 if dtype == "bfloat16" else 2e-6
                np.testing.assert_allclose(host(ours), host(plain), near)

    @pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
    def test_the_largest_are_those_of_the_tensors(
        dtype: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        some = numbers(dtype)
        for ours, plain in both(monkeypatch, lambda: cugrad._foreach_max(some)):
            assert ours.dtype is plain.dtype and ours.shape == ()
            np.testing.assert_array_equal(host(ours), host(plain))
        x = cugrad.ones(3, device="cuda", requires_grad=True)
        cugrad._foreach_max([x, x * 2])[1].backward()
        assert x.grad is not None and x.grad.sum().item() == 2

    @pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
    def test_of_a_list_there_are_two_launches(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
        filled = [t for t in lists(1, dtype)[0] if t.numel()]
        for function, name in (("norm", "norms_of_lists"), ("max", "largest_of_lists")):
            with launches(monkeypatch) as names:
                getattr(cugrad, f"_foreach_{function}")(filled)
            assert names == [name, "fold_parts"]

    def test_a_norm_of_many_parts_is_folded_again_and_again(
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        for module in (kernels_of_lists, list_source):
            monkeypatch.setattr(module, "CHUNK", 64)
        monkeypatch.setattr(kernels_of_lists, "_kernels", {})
        x = cugrad.arange(5000.0, device="cuda")
        with launches(monkeypatch) as names:
            norms = cugrad._foreach_norm([x, x[:3], x[:700]], 1)
        assert names == ["norms_of_lists", "fold_parts", "fold_parts"]
        assert [n.item() for n in norms] == [12497500, 3, 244650]

    @pytest.mark.parametrize("name", NAMES)
    def test_a_list_is_one_launch_of_each_kind_of_number(
        name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for rest in calls(name):
            numbers = 3 if "pow" in name and isinstance(rest[0], tuple) else 1
            with launches(monkeypatch) as names:
                called(name, rest, "float32")
            made = names  # of the lists, by casts
            assert len([x for x in made if x.endswith("_lists")]) <= 2 * numbers
            assert {x for x in made if not x.endswith("_lists")} <= {"to_dtype_forward"}

    @pytest.mark.parametrize("name", odd())
    def test_what_is_odd_is_computed_as_by_loops(
        name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for ours, plain in both(monkeypatch, odd()[name]):
            assert ours.dtype is plain.dtype and ours.stride() == plain.stride()
            np.testing.assert_allclose(host(ours), host(plain), 1e-6)

    def test_hundreds_of_tensors_take_few_launches(monkeypatch: pytest.MonkeyPatch) -> None:
        params = [cugrad.zeros(3, device="cuda", requires_grad=True) for _ in range(148)]
        for p in params:
            p.grad = cugrad.ones_like(p)
        optimizer, norm = cugrad.optim.SGD(params), cugrad.tensor(2.0, device="cuda")
        calls: list[tuple[Callable[[], Any], int]] = [
            (lambda: cugrad.nn.utils.clip_grad_value_(params, 2.5), 1),
            (lambda: optimizer.zero_grad(set_to_none=False), 1),
            (lambda: cugrad.nn.ParameterList(params).zero_grad(set_to_none=False), 1),
            (lambda: cugrad.nn.utils.clip_grads_with_norm_(params, 1.0, norm), 2),
        ]
        for call, most in calls:
            with launches(monkeypatch) as names:
                call()
            assert len(names) <= most, names

    def test_what_is_recorded_or_counted_is_as_by_loops() -> None:
        w = [cugrad.ones(2, device="cuda", requires_grad=True) for _ in range(2)]
        sum(y.sum() for y in cugrad._foreach_mul(w, 3.0)).backward()
        assert w[0].grad.tolist() == [3.0, 3.0]
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            cugrad._foreach_add_(w, 1.0)
        with cugrad.no_grad():
            cugrad._foreach_add_(w, 1.0)
        assert [x._version for x in w] == [1, 1] and w[1].tolist() == [2.0, 2.0]
        y = w[0].exp()
        cugrad._foreach_zero_([y.detach()])
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()

    def test_the_sources_are_written_down() -> None:
        """For NVRTC, in the process that runs this one."""
        codes = [kernel.raw._code for kernel, *_ in kernels_of_lists._kernels.values()]
        assert len(codes) > 60
        if SOURCES in os.environ:
            Path(os.environ[SOURCES]).write_text(json.dumps(codes[::4]))
