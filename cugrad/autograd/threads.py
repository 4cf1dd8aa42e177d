"""Runs a call in a thread of its own, with what the thread that asks has switched on."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from .. import device, dtypes
from ..backends import batched, started
from ..cuda import index_checks
from ..ops import random
from ..tensor import fresh
from .autocast import settings
from .mode import state

__all__ = ["is_deep", "run_in_thread"]


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
    shared = (state, settings, fresh, device._state, dtypes._default, batched.running,
              index_checks._state, random.again)  # fmt: skip
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
