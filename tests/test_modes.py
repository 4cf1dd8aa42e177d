"""no_grad, enable_grad and set_grad_enabled: contexts, decorators, generators, threads."""

from __future__ import annotations

import threading
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
