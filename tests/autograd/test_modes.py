"""The grad modes and inference mode: contexts, decorators, generators, coroutines, threads."""

from __future__ import annotations

import asyncio
import inspect
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest


def recorded(lib: Any) -> bool:
    return (lib.ones(1, requires_grad=True) * 2).requires_grad


def test_contexts_nest(lib: Any) -> None:
    assert recorded(lib)
    with lib.no_grad():
        assert not recorded(lib) and not lib.is_grad_enabled()
        with lib.enable_grad():
            assert recorded(lib) and lib.is_grad_enabled()
            with lib.set_grad_enabled(False):
                assert not recorded(lib)
            assert recorded(lib)
        assert not recorded(lib)
    assert recorded(lib)


def test_an_exception_restores_the_mode(lib: Any) -> None:
    for mode in (lib.no_grad, lambda: lib.set_grad_enabled(False)):
        with pytest.raises(ZeroDivisionError), mode():
            1 / 0  # noqa: B018
        assert lib.is_grad_enabled()


def test_one_object_may_be_entered_many_times(lib: Any) -> None:
    mode = lib.no_grad()
    for _ in range(2):
        with mode:
            assert not recorded(lib)
        assert recorded(lib)


@pytest.mark.parametrize("form", ["call", "bare"])
def test_decorators(lib: Any, form: str) -> None:
    decorate = lib.no_grad() if form == "call" else lib.no_grad

    @decorate
    def plain(a: int, *, b: int) -> Any:
        """Its words."""
        return a, b, recorded(lib)

    assert plain(1, b=2) == (1, 2, False) and recorded(lib)
    assert plain.__name__ == "plain" and plain.__doc__ == "Its words."

    @lib.enable_grad()
    def inner() -> bool:
        return recorded(lib)

    with lib.no_grad():
        assert inner() and not recorded(lib)

    def fails() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        decorate(fails)()
    assert recorded(lib)


def test_a_decorated_method(lib: Any) -> None:
    class Thing:
        @lib.no_grad()
        def method(self) -> bool:
            return recorded(lib)

    assert not Thing().method()


def test_a_decorated_function_may_recurse(lib: Any) -> None:
    @lib.no_grad()
    def down(n: int) -> list[bool]:
        return [recorded(lib)] + (down(n - 1) if n else [])

    assert not any(down(5)) and recorded(lib)


def test_set_grad_enabled_as_a_function(lib: Any) -> None:
    lib.set_grad_enabled(False)
    try:
        assert not recorded(lib)
    finally:
        lib.set_grad_enabled(True)
    assert recorded(lib)


def test_set_grad_enabled_as_a_decorator(lib: Any) -> None:
    @lib.set_grad_enabled(False)
    def off() -> bool:
        return recorded(lib)

    assert recorded(lib) and not off() and recorded(lib)


def test_generators_hold_the_mode_while_they_run(lib: Any) -> None:
    """Not while their consumer does; values sent in and exceptions thrown in arrive."""
    log: list[Any] = []

    @lib.no_grad()
    def numbers() -> Any:
        try:
            for k in range(3):
                log.append(recorded(lib))
                try:
                    log.append((yield k))
                except KeyError:
                    log.append("caught")
        finally:
            log.append(("end", recorded(lib)))
        return "done"

    steps = numbers()
    assert next(steps) == 0 and recorded(lib)
    assert steps.send("hello") == 1 and recorded(lib)
    assert steps.throw(KeyError()) == 2 and recorded(lib)
    with pytest.raises(StopIteration) as stop:
        next(steps)
    assert stop.value.value == "done"
    assert log == [False, "hello", False, "caught", False, None, ("end", False)]
    del log[:]
    steps = numbers()
    next(steps)
    steps.close()
    assert log == [False, ("end", False)] and recorded(lib)


def test_a_mode_set_inside_a_generator_stays_there(lib: Any) -> None:
    @lib.no_grad()
    def inner() -> Any:
        with lib.enable_grad():
            yield recorded(lib)
        yield recorded(lib)

    assert list(inner()) == [True, False] and recorded(lib)


def test_modes_are_per_thread(lib: Any) -> None:
    found: list[bool] = []
    with lib.no_grad():
        thread = threading.Thread(target=lambda: found.append(recorded(lib)))
        thread.start()
        thread.join()
    assert found == [True]


def test_backward_runs_without_recording_and_puts_the_mode_back(lib: Any) -> None:
    modes: list[bool] = []
    x = lib.ones(1, requires_grad=True)
    x.register_hook(lambda g: modes.append(lib.is_grad_enabled()))
    y = (x * x).sum()
    with lib.no_grad():
        y.backward(retain_graph=True)
        assert not lib.is_grad_enabled()
    y.backward(retain_graph=True)
    assert lib.is_grad_enabled()
    with lib.no_grad():
        (g,) = lib.autograd.grad(y, x, create_graph=True)
        assert not lib.is_grad_enabled()
    assert g.requires_grad
    assert modes == [False, False, True]


def test_threads_on_separate_graphs(lib: Any) -> None:
    results: dict[int, Any] = {}

    def work(k: int) -> None:
        for _ in range(20):
            x = lib.ones(3, requires_grad=True)
            y = x
            for _ in range(30):
                y = y * 1.0 + x * k
            y.sum().backward()
            results[k] = x.grad.tolist()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {k: [1 + 30 * k] * 3 for k in range(4)}


def test_threads_on_a_shared_leaf(lib: Any) -> None:
    """Concurrent passes into one .grad lose nothing."""
    x = lib.ones(1000, requires_grad=True)

    def work() -> None:
        for _ in range(50):
            (x * 2).sum().backward()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert x.grad.tolist() == [400] * 1000


def test_backward_in_another_thread(lib: Any) -> None:
    x = lib.ones(2, requires_grad=True)
    y = (x * x).sum()
    thread = threading.Thread(target=y.backward)
    thread.start()
    thread.join()
    assert x.grad.tolist() == [2, 2]


# Everything that decorates ------------------------------------------------------------------------

DECORATORS: dict[str, Callable[[Any], Any]] = {
    "no_grad()": lambda lib: lib.no_grad(),
    "no_grad": lambda lib: lib.no_grad,
    "set_grad_enabled": lambda lib: lib.set_grad_enabled(False),
    "inference_mode()": lambda lib: lib.inference_mode(),
    "inference_mode": lambda lib: lib.inference_mode,
}


@pytest.mark.parametrize("name", DECORATORS)
def test_a_decorated_generator_function_is_one(lib: Any, name: str) -> None:
    """Methods, arguments and metadata are those of the function."""

    class Thing:
        @DECORATORS[name](lib)
        def steps(self, n: int, *, by: int = 1) -> Any:
            """Its words."""
            for k in range(n):
                got = yield k * by, recorded(lib)
                assert got is None and not recorded(lib)
            return n

    assert inspect.isgeneratorfunction(Thing.steps) and Thing.steps.__doc__ == "Its words."
    assert list(Thing().steps(3, by=2)) == [(0, False), (2, False), (4, False)]
    assert recorded(lib)


def test_what_a_generator_swallows_and_raises(lib: Any) -> None:
    @lib.no_grad()
    def inner() -> Any:
        try:
            yield 1
        except KeyError:
            yield "swallowed"
        raise ZeroDivisionError

    steps = inner()
    assert next(steps) == 1 and steps.throw(KeyError("k")) == "swallowed"
    with pytest.raises(ZeroDivisionError):
        next(steps)
    with pytest.raises(StopIteration):
        next(steps)
    with pytest.raises(ValueError):
        inner().throw(ValueError())
    assert recorded(lib)


def test_a_generator_that_will_not_close(lib: Any) -> None:
    @lib.no_grad()
    def stubborn() -> Any:
        while True:
            try:
                yield 1
            except GeneratorExit:
                assert not recorded(lib)
                yield 2

    steps = stubborn()
    next(steps)
    with pytest.raises(RuntimeError, match="generator ignored GeneratorExit"):
        steps.close()
    assert recorded(lib)


@pytest.mark.parametrize("name", ["no_grad()", "set_grad_enabled", "inference_mode()"])
def test_a_decorated_class(lib: Any, name: str) -> None:
    """Deprecated: what comes out makes instances, in the mode; their methods run outside of it."""

    class Thing:
        def __init__(self) -> None:
            self.made = recorded(lib)

        def method(self) -> bool:
            return recorded(lib)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        decorated = DECORATORS[name](lib)(Thing)
    (warning,) = caught
    assert warning.category is FutureWarning and (
        warning.filename == __file__ or lib.__name__ == "torch"
    )
    assert str(warning.message) == (
        "Decorating classes is deprecated and will be disabled in future versions. You should only "
        "decorate functions or methods. To preserve the current behavior of class decoration, you "
        "can directly decorate the `__init__` method and nothing else."
    )
    thing = decorated()
    assert type(thing) is Thing and not thing.made and thing.method()


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_one_instance_within_itself(mode: str) -> None:
    """PyTorch's remembers one mode only, and stays in it."""
    import cugrad as lib

    context = getattr(lib, mode)()

    @context
    def inner() -> bool:
        with context:
            return recorded(lib)

    with context:
        assert not inner() and not recorded(lib)
    assert recorded(lib) and lib.is_grad_enabled() and not lib.is_inference_mode_enabled()


def test_set_grad_enabled_wants_a_bool(lib: Any) -> None:
    with pytest.raises(TypeError, match="argument 'enabled' .position 1. must be bool, not int"):
        lib.set_grad_enabled(1)
    assert repr(lib.set_grad_enabled(True)).endswith("grad_mode.set_grad_enabled(mode=True)")
    assert lib.autograd.grad_mode.no_grad is lib.no_grad


# Coroutines: PyTorch runs those outside of the mode -----------------------------------------------


def test_coroutines_hold_the_mode_while_they_run() -> None:
    """Not while they wait: other tasks of the event loop do not see it."""
    import cugrad as lib

    seen: list[tuple[str, bool]] = []

    @lib.no_grad()
    async def quiet(n: int) -> int:
        """Its words."""
        for _ in range(n):
            seen.append(("quiet", recorded(lib)))
            await asyncio.sleep(0)
        return n

    async def loud() -> None:
        for _ in range(3):
            seen.append(("loud", recorded(lib)))
            await asyncio.sleep(0)

    async def both() -> int:
        found, _ = await asyncio.gather(quiet(3), loud())
        return found

    assert asyncio.iscoroutinefunction(quiet) and quiet.__doc__ == "Its words."
    assert asyncio.run(both()) == 3
    assert seen == [("quiet", False), ("loud", True)] * 3 and recorded(lib)


def test_a_cancelled_coroutine_cleans_up_in_the_mode() -> None:
    import cugrad as lib

    seen: list[bool] = []

    @lib.inference_mode()
    async def waiting() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append(recorded(lib))
            raise
        finally:
            seen.append(lib.is_inference_mode_enabled())

    async def main() -> None:
        task = asyncio.ensure_future(waiting())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert recorded(lib)

    asyncio.run(main())
    assert seen == [False, True]


def test_async_generators() -> None:
    """asend, athrow, aclose and the end of an async for, each in the mode."""
    import cugrad as lib

    log: list[Any] = []

    @lib.no_grad()
    async def numbers() -> Any:
        try:
            for k in range(3):
                await asyncio.sleep(0)
                try:
                    log.append((yield k, recorded(lib)))
                except KeyError:
                    log.append("caught")
        finally:
            log.append(("end", recorded(lib)))

    async def main() -> None:
        assert [x async for x in numbers()] == [(0, False), (1, False), (2, False)]
        assert recorded(lib)
        steps = numbers()
        assert await steps.__anext__() == (0, False) and recorded(lib)
        assert await steps.asend("hello") == (1, False)
        assert await steps.athrow(KeyError()) == (2, False)
        await steps.aclose()
        assert recorded(lib)

    assert inspect.isasyncgenfunction(numbers)
    asyncio.run(main())
    assert log == [None, None, None, ("end", False), "hello", "caught", ("end", False)]


# Inference mode -----------------------------------------------------------------------------------


def test_inference_mode_and_the_grad_mode(lib: Any) -> None:
    def modes() -> tuple[bool, bool, bool]:
        return lib.is_inference_mode_enabled(), lib.is_grad_enabled(), recorded(lib)

    with lib.inference_mode():
        assert modes() == (True, False, False)
        with lib.enable_grad():
            assert modes() == (True, True, False)
        with lib.inference_mode(False):
            assert modes() == (False, True, True)
            with lib.no_grad():
                assert modes() == (False, False, False)
        assert modes() == (True, False, False)
    with lib.no_grad():
        with lib.inference_mode():
            assert modes() == (True, False, False)
        assert modes() == (False, False, False)
    with lib.inference_mode(mode=False):
        assert modes() == (False, True, True)
    assert modes() == (False, True, True)


def test_an_error_ends_inference_mode(lib: Any) -> None:
    with pytest.raises(ZeroDivisionError), lib.inference_mode():
        1 / 0  # noqa: B018
    assert not lib.is_inference_mode_enabled() and recorded(lib)


def test_inference_mode_is_per_thread(lib: Any) -> None:
    found: list[Any] = []
    with lib.inference_mode():
        thread = threading.Thread(
            target=lambda: found.extend([recorded(lib), lib.ones(1).is_inference()])
        )
        thread.start()
        thread.join()
    assert found == [True, False]


def test_everything_made_in_inference_mode_is_marked(lib: Any) -> None:
    """Factories, random numbers, other libraries' memory, and ops on any dtype."""
    import numpy as np

    with lib.inference_mode():
        made = [
            lib.zeros(2), lib.tensor([1, 2]), lib.rand(2), lib.randint(0, 2, (2,)), lib.arange(3),
            lib.from_numpy(np.ones(2)), lib.as_tensor([1.0]), lib.full((2,), 1.0), lib.eye(2),
            lib.tensor([1, 2]) * 2, lib.tensor([1.0]) + 1, lib.ones(2, dtype=lib.float64).exp(),
            lib.ones(2).bool(), lib.nonzero(lib.ones(2)), lib.ones(2).sort()[1], lib.randperm(3),
            lib.nn.functional.relu(lib.ones(2)), lib.nn.Linear(2, 2).weight,
            lib.ones(2, 2).unbind(0)[0], lib.cat([lib.ones(2)]), lib.ones(2, 2) @ lib.ones(2, 2),
        ]  # fmt: skip
    assert [i for i, x in enumerate(made) if not x.is_inference()] == []
    assert not any(x.clone().is_inference() for x in made)


def test_a_module_trained_after_inference(lib: Any) -> None:
    """Validation in inference mode between steps leaves no trace."""
    layer = lib.nn.Linear(3, 2)
    x = lib.ones(4, 3)
    for _ in range(2):
        with lib.inference_mode():
            assert layer(x).is_inference()
        layer(x).sum().backward()
    assert layer.bias.grad.tolist() == [8, 8]


def test_backward_in_inference_mode(lib: Any) -> None:
    """Of a graph recorded before: it runs; the gradient can only be used in inference mode."""
    x = lib.ones(2, requires_grad=True)
    y = (x * x).sum()
    with lib.inference_mode():
        y.backward()
        assert x.grad.is_inference() and x.grad.tolist() == [2, 2]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_forward_mode_is_off_in_inference_mode(lib: Any) -> None:
    fwd = lib.autograd.forward_ad
    with fwd.dual_level():
        dual = fwd.make_dual(lib.ones(2), lib.ones(2))
        with lib.inference_mode():
            assert (dual * 2).is_inference()
        assert fwd.unpack_dual(dual * 2).tangent.tolist() == [2, 2]
