"""Steps as compiled loops over elements: with the bits of NumPy's calls, and where they serve."""

from __future__ import annotations

import sys
import threading
import types
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.backends.numpy.compiled import loops as compiler
from cugrad.memory.budgeting.model_states.rehearsing import host_rate
from cugrad.optim.rules import blocks, loops, rule, steps

from .settings import MATRICES, REAL, SETTINGS

pytestmark = pytest.mark.host_only

COUNT = 3000
LOOPED = [(name, settings) for name, settings in SETTINGS if name not in (*MATRICES, *REAL)]
FIRST = list({name: (name, settings) for name, settings in reversed(LOOPED)}.values())


@pytest.fixture
def numba() -> Any:
    return pytest.importorskip("numba", reason="Numba is not installed")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arrays are large enough, and take several blocks."""
    for module in (blocks, steps):
        monkeypatch.setattr(module, "BLOCK", 1 << 12)
    monkeypatch.setattr(loops, "LEAST", 1)
    monkeypatch.setattr(compiler, "_warned", [])


@pytest.fixture
def another_numba() -> Iterator[None]:
    """Within, and afterwards, Numba is looked for again."""
    compiler._functions.cache_clear()
    yield
    compiler._functions.cache_clear()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The loops that steps asked for: None where there was none."""
    of, found = loops.loop_of, list[Any]()

    def noted(*args: Any) -> Any:
        found.append(of(*args))
        return found[-1]

    monkeypatch.setattr(steps, "loop_of", noted)
    return found


def without_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "loop_of", lambda *_: None)


def odd_numbers(dtype: str, seed: int) -> Any:
    """Numbers of all sizes, zeros of both signs, subnormal ones, infinite ones, and nan."""
    random = np.random.default_rng(seed)
    values = random.standard_normal(COUNT) * 10.0 ** random.integers(-30, 30, COUNT)
    info = np.finfo(dtype)
    odd = [0.0, info.tiny / 8, info.tiny, info.eps, info.max, np.inf]
    values[:600] = np.tile([*odd, *[-x for x in odd]], 50)
    values[600:700] = np.nan
    return random.permutation(values.astype(dtype))


def after_steps(name: str, settings: dict[str, Any], dtype: str) -> list[Any]:
    """A parameter and its states after some steps, with another learning rate each."""
    param = cugrad.from_numpy(odd_numbers(dtype, 0)).requires_grad_()
    optimizer = getattr(cugrad.optim, name)([param], **settings)
    for k in range(1, 5):
        param.grad = cugrad.from_numpy(odd_numbers(dtype, k))
        optimizer.step()
        optimizer.param_groups[0]["lr"] *= 0.9
    states = optimizer.state.get(param) or {}
    tensors = [x for x in states.values() if isinstance(x, cugrad.Tensor)]
    return [x.detach().numpy() for x in (param, *tensors)]


def adam(**options: Any) -> tuple[cugrad.Tensor, Any]:
    param = cugrad.ones(COUNT, **options).requires_grad_()
    param.grad = cugrad.full_like(param, 0.5)
    return param, cugrad.optim.Adam([param])


@pytest.mark.parametrize(
    ("name", "settings", "dtype"),
    [*((*each, "float32") for each in LOOPED), *((*each, "float64") for each in FIRST[::3])],
)
def test_a_loop_has_the_bits_of_numpy(
    name: str, settings: dict[str, Any], dtype: str, numba: Any, asked: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    loops_results = after_steps(name, settings, dtype)
    assert len(asked) == 4 and None not in asked
    without_loops(monkeypatch)
    for ours, numpys in zip(loops_results, after_steps(name, settings, dtype), strict=True):
        nan = np.isnan(ours)  # which have no bits that count
        np.testing.assert_array_equal(nan, np.isnan(numpys))
        np.testing.assert_array_equal(np.signbit(ours)[~nan], np.signbit(numpys)[~nan])
        np.testing.assert_array_equal(ours, numpys)


def test_a_loop_is_compiled_once_for_all_numbers(numba: Any, asked: list[Any]) -> None:
    after_steps("AdamW", {}, "float32")
    after_steps("AdamW", {"lr": 0.3, "betas": (0.5, 0.6), "eps": 0.1}, "float32")
    assert asked[0] is not None and len({id(loop) for loop in asked}) == 1


def test_threads_run_parts_of_a_loop(
    numba: Any, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    used, part = set(), blocks._part

    def noted(*args: Any) -> None:
        used.add(threading.current_thread().name)
        part(*args)

    monkeypatch.setattr(blocks, "_part", noted)
    monkeypatch.setattr(blocks, "BLOCK", 1 << 9)
    results = []
    for count in (1, 3):
        monkeypatch.setattr(blocks, "get_num_threads", lambda count=count: count)
        results.append([x.tobytes() for x in after_steps("Adam", {}, "float32")])
    assert results[0] == results[1] and len(used) > 1 and None not in asked


def test_other_arrays_are_numpy_s(numba: Any, asked: list[Any]) -> None:
    """Half precision, complex numbers, gaps in memory, and memory that two tensors share."""
    for dtype in (cugrad.float16, cugrad.complex64):
        adam(dtype=dtype)[1].step()
    param = cugrad.ones(2 * COUNT)[::2].detach().requires_grad_()
    param.grad = cugrad.ones(COUNT)
    cugrad.optim.SGD([param]).step()
    param = cugrad.ones(COUNT).requires_grad_()
    param.grad = param.detach()
    cugrad.optim.SGD([param], lr=0.5).step()
    assert asked == [None] * 5 and param.tolist() == [0.5] * COUNT


def test_small_arrays_wait_for_a_large_one(
    numba: Any, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    body = rule()(lambda m, param, grad, *, lr: {"param": param - lr * grad})
    params = [cugrad.ones(COUNT), cugrad.ones(2 * COUNT), cugrad.ones(COUNT)]
    monkeypatch.setattr(loops, "LEAST", 2 * COUNT)
    steps.advance(body, params, [x.clone() for x in params], {}, {"lr": 0.5})
    assert [loop is not None for loop in asked] == [False, True, True]
    assert [set(x.tolist()) for x in params] == [{0.5}] * 3


def test_a_rule_that_calls_what_loops_have_not_is_numpy_s(numba: Any, asked: list[Any]) -> None:
    body = rule()(lambda m, param, grad, *, lr: {"param": param - lr * grad**2.0})
    param = cugrad.ones(COUNT)
    steps.advance(body, [param], [param.clone()], {}, {"lr": 0.5})
    assert asked == [None] and set(param.tolist()) == {0.5}


def broken_compiler(function: Any) -> Any:
    raise NotImplementedError("no such processor")


def broken_step(function: Any) -> Any:
    return broken_compiler if function.__name__ == "loop" else function


@pytest.mark.parametrize("broken", ["import", "compiler", "step"])
def test_numpy_serves_where_numba_fails_and_says_so_once(
    broken: str, another_numba: None, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    package: Any = types.ModuleType("numba")
    if broken != "import":
        package.config = types.SimpleNamespace(DISABLE_JIT=False)
        package.njit = lambda **_: broken_compiler if broken == "compiler" else broken_step
    monkeypatch.setitem(sys.modules, "numba", package)
    for name in ("Adam", "SGD"):
        monkeypatch.setattr(getattr(cugrad.optim, name)._rule, "_forms", {})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        after_steps("Adam", {}, "float32")
        after_steps("SGD", {"lr": 0.1}, "float32")
    assert set(asked) == {None} and len(caught) == 1
    assert "Numba could not" in str(caught[0].message)


@pytest.mark.parametrize("absent", [True, False])
def test_numpy_serves_in_silence_without_numba(
    absent: bool, another_numba: None, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is not installed, and where NUMBA_DISABLE_JIT says that nothing is compiled."""
    package: Any = types.ModuleType("numba")
    package.config = types.SimpleNamespace(DISABLE_JIT=True)
    monkeypatch.setitem(sys.modules, "numba", None if absent else package)
    monkeypatch.setattr(cugrad.optim.Adam._rule, "_forms", {})
    after_steps("Adam", {}, "float32")
    assert set(asked) == {None}


def test_an_interrupt_of_the_compiler_leaves_all_as_it_was(
    numba: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parameter, its states, and that the next step has a loop."""
    monkeypatch.setattr(cugrad.optim.Adam._rule, "_forms", {})
    param, optimizer = adam()
    through = set[int]()

    def interrupted(text: str) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loops, "compiled", interrupted)
        with pytest.raises(KeyboardInterrupt):
            optimizer._update_noting([param], optimizer.param_groups[0], through)
    assert not through and set(param.tolist()) == {1.0}
    assert set(optimizer.state[param]["exp_avg"].tolist()) == {0.0}
    optimizer._update_noting([param], optimizer.param_groups[0], through)
    assert through == {id(param)} and set(param.tolist()) != {1.0}


@pytest.mark.parametrize("name", ["Adam", "SGD"])
def test_a_budget_measures_the_loop_when_it_is_there(
    name: str, numba: Any, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last step, which is timed, runs what the one before has run, too, and compiles nothing.

    SGD has another form in its first step, in which there is no momentum yet.
    """
    optimizer = getattr(cugrad.optim, name)([cugrad.ones(2).requires_grad_()], lr=0.1)
    optimizer.param_groups[0]["momentum"] = 0.9
    compiled, done = loops._compiled, list[int]()

    def noted(*args: Any) -> Any:
        done.append(len(asked))
        return compiled(*args)

    monkeypatch.setattr(loops, "_compiled", noted)
    monkeypatch.setattr(optimizer._rule, "_forms", {})
    assert host_rate(optimizer) > 0
    assert None not in asked and len(asked) == 3 and max(done) < 2


@pytest.mark.parametrize("kinds", [("weights", "gradients"), ()])
def test_states_on_the_host_are_stepped_by_loops(
    kinds: tuple[str, ...], numba: Any, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where weights live on the device, too, whose states alone the host has."""

    def trained() -> list[bytes]:
        cugrad.manual_seed(0)
        net = cugrad.nn.Sequential(*[cugrad.nn.Linear(64, 64, bias=False) for _ in range(2)])
        net.to("simulated")
        optimizer = cugrad.optim.AdamW(net.parameters(), lr=0.1)
        places: Any = {**dict.fromkeys(kinds, "host"), "states": "host"}
        with cugrad.memory.offload_states(net, optimizer, min_bytes=0, **places):
            for k in range(3):
                net(cugrad.full((4, 64), k - 0.5, device="simulated")).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()
        return [param.detach().cpu().numpy().tobytes() for param in net.parameters()]

    with_loops = trained()
    assert asked and None not in asked
    without_loops(monkeypatch)
    assert trained() == with_loops


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (40, 30)])
@pytest.mark.parametrize("dtype", ["complex128", "float64"])
def test_once_compiled_a_loop_takes_arrays_of_any_dims(
    numba: Any, dtype: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those in which complex numbers are pairs, too."""
    results = []
    for has_loops in (True, False):
        with monkeypatch.context() as patch:
            if not has_loops:
                without_loops(patch)
            results.append(stepped_after_a_large_one(dtype, shape))
    assert results[0] == results[1]


def stepped_after_a_large_one(dtype: str, shape: tuple[int, ...]) -> Any:
    values = []
    for size in ((COUNT,), shape):
        kind = "float64" if size == (COUNT,) else dtype
        cugrad.manual_seed(0)
        param = cugrad.randn(size, dtype=getattr(cugrad, kind)).requires_grad_()
        optimizer = cugrad.optim.Adam([param], lr=0.1)
        for _ in range(2):
            param.grad = param.detach() * 2
            optimizer.step()
        values.append(param.tolist())
    return values
