"""Runs a call in a thread of its own, with what the thread that asks has switched on."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from ..backends import started
from ..runtime.contexts import Context
from ..runtime.kept import LASTING, LOCALS, Switch, of_thread

__all__ = [
    "is_deep", "is_multithreading_enabled", "modes_here", "run_in_thread",
    "run_to_its_end",
    "set_multithreading_enabled",
]  # fmt: skip


class Wishes(threading.local):
    """This thread's setting of `set_multithreading_enabled`."""

    multithreading = True


wishes = of_thread(Wishes())


def is_multithreading_enabled() -> bool:
    """The last setting of `set_multithreading_enabled`; True before the first."""
    return wishes.multithreading


class set_multithreading_enabled(Switch, Context):
    """Says whether backward may use threads of its own. Here it never does, as PyTorch under False.

    It takes effect at once. As a context manager it restores the old value at the end. It is a
    decorator, too.

    >>> import cugrad as torch
    >>> with torch.autograd.set_multithreading_enabled(False):
    ...     torch.autograd.is_multithreading_enabled()
    False
    >>> torch.autograd.is_multithreading_enabled()
    True
    """

    def __init__(self, mode: bool) -> None:
        self.mode, self._previous = mode, wishes.multithreading
        wishes.multithreading = mode

    def as_is(self) -> bool:
        return self._previous

    def change(self, before: bool) -> None:
        """Nothing: that was done at once."""

    def put_back(self, before: bool) -> None:
        wishes.multithreading = before

    def __call__(self, function: Any) -> Any:
        wishes.multithreading = self._previous  # used as a decorator: set when the function runs
        return super().__call__(function)

    def clone(self) -> set_multithreading_enabled:
        return set_multithreading_enabled(self.mode)


def is_deep() -> bool:
    """Whether this thread's stack is half full, so that a call should go on in another thread."""
    try:
        sys._getframe(sys.getrecursionlimit() // 2)
    except ValueError:
        return False
    return True


def modes_here() -> Callable[[], None]:
    """A function that gives its thread what this one has switched on: all thread-local states."""
    states = [(local, dict(vars(local))) for local in (*LOCALS, *LASTING)]

    def take_over() -> None:
        for local, values in states:
            vars(local).update(values)

    return take_over


def run_in_thread(call: Callable[[], Any]) -> Any:
    """What `call()` returns, or raises, in a new thread that sees the modes of this one.

    These are the library's thread-local states, the current devices and streams, and context
    variables. Waits for the thread.
    """
    return _run(call, False)


def run_to_its_end(call: Callable[[], Any]) -> Any:
    """As `run_in_thread`; an interrupt of this thread waits until the call has ended, too.

    Then it is raised. One that comes before the call has begun leaves it undone.
    """
    return _run(call, True)


def _run(call: Callable[[], Any], to_its_end: bool) -> Any:
    take_over = modes_here()
    places = [(b, b.current_device(), b.current_stream())
              for b in started() if b.device_type != "cpu"]  # fmt: skip
    context = contextvars.copy_context()
    answer: list[Any] = []
    errors: list[BaseException] = []
    begins, ended = threading.Lock(), threading.Event()

    def work() -> None:
        if not begins.acquire(False):
            return
        try:
            take_over()
            with ExitStack() as stack:
                for backend, index, stream in places:
                    stack.enter_context(backend.use_device(index))
                    stack.enter_context(backend.use_stream(stream))
                answer.append(context.run(call))
        except BaseException as error:
            errors.append(error)
        finally:
            ended.set()

    try:
        threading.Thread(target=work, name="cugrad-backward", daemon=True).start()
        ended.wait()
    except BaseException:
        if not to_its_end or begins.acquire(False):
            raise
        _wait(ended)
        raise
    if errors:
        raise errors.pop()
    return answer[0]


def _wait(ended: threading.Event) -> None:
    """Waits, whatever interrupts that."""
    while not ended.is_set():
        try:
            ended.wait()
        except BaseException:  # the first one is raised in the end
            continue
