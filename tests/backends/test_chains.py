"""Chains of NumPy's calls: their loops have the same bits, and serve where they pay."""

from __future__ import annotations

import sys
import threading
import types
import warnings
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from cugrad.backends.numpy import blocks
from cugrad.backends.numpy.compiled import chains, loops, tracing
from cugrad.backends.numpy.compiled.chains import Chain, chain
from cugrad.backends.numpy.written import norms, registry

pytestmark = pytest.mark.host_only

Array = np.ndarray[Any, Any]
SHAPE = (4, 6, 3, 5)
NORM = {"weight": (6,), "bias": (6,)}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "sigmoid": ("sigmoid", {}, {}),
    "rsqrt": ("rsqrt", {}, {}),
    "silu": ("silu", {}, {}),
    "mish": ("mish", {}, {}),
    "gelu": ("gelu", {}, {"approximate": "none"}),
    "gelu by tanh": ("gelu", {}, {"approximate": "tanh"}),
    "softmax": ("softmax", {}, {"dim": -1}),
    "layer_norm": (
        "native_layer_norm", {"weight": (15,), "bias": (15,)},
        {"normalized_shape": (3, 5), "eps": 1e-5}),
    "layer_norm of no weight": (
        "native_layer_norm", {"weight": None, "bias": None},
        {"normalized_shape": (5,), "eps": 1e-5}),
    "group_norm": ("native_group_norm", NORM, {"num_groups": 3, "eps": 1e-5}),
    "group_norm of one": ("native_group_norm", NORM, {"num_groups": 1, "eps": 1e-5}),
    "group_norm without bias": (
        "native_group_norm", {"weight": (6,), "bias": None}, {"num_groups": 2, "eps": 1e-5}),
}  # fmt: skip


@pytest.fixture
def numba() -> Any:
    return pytest.importorskip("numba", reason="Numba is not installed")


def all_chains() -> set[Chain]:
    modules = [import_module(f"{registry.__package__}.{name}") for name in registry.MODULES]
    return {x for module in modules for x in vars(module).values() if isinstance(x, Chain)}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small arrays take several blocks, and are many elements."""
    monkeypatch.setattr(registry, "BLOCK", 120)
    monkeypatch.setattr(blocks, "LONG", 4)
    monkeypatch.setattr(chains, "MUCH", 1)
    monkeypatch.setattr(loops, "_warned", [])
    loops._functions.cache_clear()
    forget()
    yield
    forget()
    loops._functions.cache_clear()


def forget() -> None:
    for each in all_chains():
        each.forms.clear()
        each.of_shapes.clear()


def odd_numbers(shape: tuple[int, ...], seed: int, odd: bool) -> Array:
    """Normal numbers, and if they shall be odd infinite ones, subnormal ones, zeros and nan."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape)
    flat, info = values.reshape(-1), np.finfo(np.float32)
    if odd and flat.size > 20:
        flat *= 10.0 ** rng.integers(-6, 6, flat.size)
        few = [0.0, info.tiny / 8, info.eps, info.max, np.inf, -np.inf, -0.0, np.nan]
        flat[rng.permutation(flat.size)[: len(few)]] = few
    return values.astype(np.float32)


def results_of(name: str, shapes: Any, params: Any, odd: bool) -> list[Array]:
    """What is written for a row makes of numbers: its results, and its gradients."""
    x, g = odd_numbers(SHAPE, 0, odd), odd_numbers(SHAPE, 1, odd)
    others = {k: None if s is None else odd_numbers(s, 2, False) for k, s in shapes.items()}
    with np.errstate(all="ignore"):
        values = registry.FORWARDS[name](x, *others.values(), *params.values())
        results = list(values) if type(values) is tuple else [values]
        saved = {"self": x, "input": x, "result": results[0], **others}
        if len(results) > 1:
            saved |= {"mean": results[1], "rstd": results[2]}
        backward = registry.BACKWARDS.get(name)
        slopes = backward(g, saved, params, ("input", *others)) if backward else ()
    return [*results, *[slope for slope in slopes if slope is not None]]


def assert_same_bits(got: list[Array], want: list[Array]) -> None:
    for a, b in zip(got, want, strict=True):
        nan = np.isnan(a)  # which have no bits that count
        np.testing.assert_array_equal(nan, np.isnan(b))
        np.testing.assert_array_equal(np.signbit(a)[~nan], np.signbit(b)[~nan])
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("case", CASES)
def test_loops_have_the_bits_of_numpy(
    case: str, numba: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, shapes, params = CASES[case]
    runs = (64, 1)[: 1 + case.startswith("group")]

    def results(run: int, odd: bool) -> list[Array]:
        monkeypatch.setattr(norms, "RUN", run)
        return results_of(name, shapes, params, odd)

    ways = [(run, odd) for run in runs for odd in (False, True)]
    with monkeypatch.context() as patch:  # before one of them is compiled
        patch.setattr(chains, "MUCH", 1 << 60)
        want = [results(*way) for way in ways]
    assert not any(f.is_compiled for each in all_chains() for f in each.forms.values())
    for way, values in zip(ways, want, strict=True):
        for _ in range(2):  # which compiles them, and runs them
            got = results(*way)
        assert_same_bits(got, values)
    forms = [form for each in all_chains() for form in each.forms.values()]
    assert forms and all(form.is_compiled for form in forms)


def test_calls_that_numpy_is_quicker_at_have_the_same_bits() -> None:
    of_image, of_channel, whole = (4, 3, 1, 1), (3, 2, 1), (4, 3, 2, 8)
    for each, shapes in (
        (norms._scale_runs, (whole, of_image, of_channel, of_channel)),
        (norms._slope_of_runs, (whole, whole, of_image, of_channel, *[of_image] * 3, whole, whole)),
    ):
        arrays = [odd_numbers(shape, k, False) for k, shape in enumerate(shapes)]
        optional = [k for k, shape in enumerate(shapes) if shape == of_channel]
        assert each.calls is not each.function
        for left in (None, *optional):
            values = []
            for function in (each.function, each.calls):
                copies = [None if k == left else x.copy() for k, x in enumerate(arrays)]
                function(*copies)
                values.append(copies[0 if each is norms._scale_runs else -2])
            assert_same_bits(values[:1], values[1:])


def test_a_chain_becomes_loops_when_much_went_through_it(
    numba: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    @chain()
    def doubled(x: Array, out: Array) -> None:
        np.multiply(x, 2, out)

    monkeypatch.setattr(chains, "MUCH", 25)
    x, out = np.arange(10, dtype=np.float32), np.zeros(10, np.float32)
    compiled = []
    for _ in range(4):
        doubled(x, out)
        compiled.append(doubled.form((x, out)).is_compiled)
        assert out.tolist() == (2 * x).tolist()
    assert compiled == [False, False, True, True]
    wide = np.ones((2, 3), np.float32)
    doubled(wide, np.empty_like(wide))
    assert not doubled.form((wide, wide)).is_compiled  # of two dims


@chain(rooms=1)
def meeting(x: Array, weight: Array | None, scale: float, out: Array, room: Array) -> None:
    np.exp2(x, room)
    np.multiply(x, scale, out)
    if weight is not None:
        out += weight
    np.tanh(out, out)
    out *= room


def test_numbers_none_and_what_is_broadcast(numba: Any) -> None:
    x = odd_numbers((7, 9), 0, False)
    for weight in (None, odd_numbers((9,), 1, False), odd_numbers((7, 1), 1, False)):
        for scale in (0.5, 3):
            want, got, room = (np.empty_like(x) for _ in range(3))
            meeting.function(x, weight, scale, want, room)
            for _ in range(2):
                meeting(x, weight, scale, got, room)
            assert meeting.form((x, weight, scale, got, room)).is_compiled
            assert_same_bits([got], [want])


def test_what_waits_for_no_call_is_one_loop() -> None:
    x = np.ones(5, np.float32)
    slope = registry.BACKWARDS["gelu"].__globals__["_gelu_slope_into"]
    steps = tracing.steps_of(slope.function, [(True,)] * 6, [x] * 6, slope.rooms)
    kinds = [type(step).__name__ for step in steps]
    assert kinds == ["Loop", "CallApart", "CallApart", "Loop"]
    assert isinstance(steps[0], tracing.Loop) and len(steps[0].writes) == 2


def _sums(x: Array, out: Array) -> None:
    np.multiply(x, np.add.reduce(x), out)


def _asks(x: Array, out: Array) -> None:
    np.multiply(x, 2 if x.shape[0] > 1 else 3, out)


def _chooses(x: Array, out: Array) -> None:
    np.copyto(out, x)


def _waits(x: Array, out: Array) -> None:
    np.exp2(x, out)
    y = np.exp2(out) * 1
    np.tanh(y * x, out)
    np.multiply(y, out, out)


@pytest.mark.parametrize("function", [_sums, _asks, _chooses, _waits])
def test_what_is_no_chain_of_elements_stays_calls(function: Any, numba: Any) -> None:
    each = chain()(function)
    x, out, want = np.linspace(0, 1, 8, dtype=np.float32), *np.empty((2, 8), np.float32)
    function(x, want)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            each(x, out)
    assert not each.form((x, out)).is_compiled and out.tolist() == want.tolist()


def broken_compiler(function: Any) -> Any:
    raise NotImplementedError("no such processor")


@pytest.mark.parametrize("how", ["absent", "disabled", "broken"])
def test_numpy_serves_where_there_is_no_compiler(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package: Any = types.ModuleType("numba")
    package.config = types.SimpleNamespace(DISABLE_JIT=how == "disabled")
    package.njit = lambda **_: broken_compiler
    monkeypatch.setitem(sys.modules, "numba", None if how == "absent" else package)
    x = odd_numbers(SHAPE, 0, False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        values = [registry.FORWARDS[name](x) for name in ("silu", "gelu") for _ in range(2)]
    assert_same_bits(values[::2], values[1::2])
    assert [str(each.message).count("Numba could not") for each in caught] == [1] * (
        how == "broken"
    )
    assert not any(f.is_compiled for each in all_chains() for f in each.forms.values())


def test_an_interrupt_of_the_compiler_leaves_all_as_it_was(
    numba: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(text: str) -> Any:
        raise KeyboardInterrupt

    x = odd_numbers(SHAPE, 0, False)
    with monkeypatch.context() as patch:
        patch.setattr(chains, "_code", interrupted)
        with pytest.raises(KeyboardInterrupt):
            registry.FORWARDS["silu"](x)
    registry.FORWARDS["silu"](x)
    assert any(form.is_compiled for each in all_chains() for form in each.forms.values())


def test_threads_run_a_chain_while_it_is_compiled(numba: Any) -> None:
    x = odd_numbers(SHAPE, 0, False)
    values: list[Array] = []
    threads = [threading.Thread(target=lambda: values.append(registry.FORWARDS["silu"](x)))
               for _ in range(6)]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({value.tobytes() for value in values}) == 1 and len(values) == 6
