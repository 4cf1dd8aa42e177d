"""Futures that a program sets do what PyTorch's do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import cugrad as torch

reference = pytest.importorskip("torch")
pytestmark = pytest.mark.host_only


def later(futures: Any) -> Any:
    """A value that another thread sets; what follows has run when it is there."""
    future, seen = futures.Future(), []
    last = future.then(lambda f: seen.append(f.value()) or 2).then(lambda f: seen.append(f.wait()))
    seen.append((future.done(), last.done()))
    thread = threading.Thread(target=future.set_result, args=(1,))
    thread.start()
    thread.join()
    return seen, future.done(), last.done(), future.wait(), last.wait()


def callbacks(futures: Any) -> Any:
    future, seen = futures.Future(), []
    future.add_done_callback(lambda f: seen.append(("before", f.value())))
    future.set_result("x")
    future.add_done_callback(lambda f: seen.append(("after", f.value())))
    return seen


def twice(futures: Any) -> Any:
    future = futures.Future()
    future.set_result(1)
    future.set_result(2)


def wrong(futures: Any) -> Any:
    """Which a callback meets, and may make good."""
    future = futures.Future()
    good = future.then(lambda f: 5)
    bad = future.then(lambda f: f.wait())
    future.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        future.wait()
    with pytest.raises((ValueError, RuntimeError), match="no"):
        bad.wait()
    return good.wait()


def no_error(futures: Any) -> Any:
    futures.Future().set_exception(3)


def together(futures: Any) -> Any:
    members = [futures.Future() for _ in range(3)]
    both, done = futures.collect_all(members), []
    for i, future in enumerate(members):
        done.append(both.done())
        future.set_result(i)
    return done, both.done(), [f.wait() for f in both.wait()], futures.wait_all(members)


def one_of_them(futures: Any) -> Any:
    members = [futures.Future(), futures.Future()]
    members[0].set_result(1)
    members[1].set_exception(ValueError("no"))
    futures.wait_all(members)


PROGRAMS = [later, callbacks, twice, wrong, no_error, together, one_of_them]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_a_program_with_futures_ends_as_with_pytorch(program: Callable[[Any], Any]) -> None:
    outcomes = []
    for futures in (torch.futures, reference.futures):
        try:
            outcomes.append(program(futures))
        except Exception as error:
            outcomes.append(type(error))
    assert outcomes[0] == outcomes[1]
