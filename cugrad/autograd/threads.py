"""Runs a call in a thread of its own, with what the thread that asks has switched on."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from .. import device, dtypes
from ..backends import started
from ..contexts import Context
from ..cuda import index_checks
from ..kept import Switch, of_thread
from ..ops import random
from ..tensor import fresh
from .autocast import settings
from .mode import state
from .transforms import running

__all__ = [
    "is_deep", "is_multithreading_enabled", "run_in_thread", "set_multithreading_enabled",
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


def run_in_thread(call: Callable[[], Any], *own: threading.local) -> Any:
    """What `call()` returns, or raises, in a new thread that sees the modes of this one.

    These are the library's thread-local states, `own` among them, the current devices and streams,
    and context variables. Waits for the thread.
    """
    shared = (state, settings, fresh, device._state, dtypes._default, running,
              index_checks._state, random.replayed)  # fmt: skip
    states = [(local, dict(vars(local))) for local in (*shared, *own)]
    places = [(b, b.current_device(), b.current_stream())
              for b in started() if b.device_type != "cpu"]  # fmt: skip
    context = contextvars.copy_context()
    answer: list[Any] = []
    errors: list[BaseException] = []

    def work() -> None:
        for local, values in states:
            vars(local).update(values)
        try:
            with ExitStack() as stack:
                for backend, index, stream in places:
                    stack.enter_context(backend.use_device(index))
                    stack.enter_context(backend.use_stream(stream))
                answer.append(context.run(call))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, name="cugrad-backward", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors.pop()
    return answer[0]
