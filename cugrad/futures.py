"""torch.futures: values that are there later.

`Future` is what hooks of DistributedDataParallel return, and what collectives give; a program
makes one, and sets its result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")
S = TypeVar("S")


class Future(Generic[T]):
    """A value that is there later: when a program sets it, or when a collective has ended.

    What `then` was given runs in the thread that sets the value; of a collective's future in the
    one that asks for the value, when it first does. `devices` is PyTorch's.

    >>> import cugrad as torch
    >>> future = torch.futures.Future()
    >>> following = future.then(lambda f: f.value() + 1)
    >>> future.set_result(1)
    >>> following.wait()
    2
    """

    def __init__(self, *, devices: Any = None) -> None:
        self._set = threading.Event()
        self._setting, self._asking = threading.Lock(), threading.RLock()
        self._compute: Callable[[], T] = self._awaited
        self._ready: Callable[[], bool] = self._set.is_set
        self._value: Any = None
        self._error: BaseException | None = None
        self._is_over = self._is_asked = False
        self._is_eager = True  # whether callbacks run before the value is asked for
        self._callbacks: list[Callable[[Future[T]], object]] = []

    @classmethod
    def of(cls, compute: Callable[[], T], ready: Callable[[], bool] = lambda: True) -> Future[T]:
        """The future of what a function returns, which is called when the value is asked for."""
        future = cls()
        future._compute, future._ready, future._is_eager = compute, ready, False
        return future

    def _awaited(self) -> T:
        self._set.wait()
        if self._error is not None:
            raise self._error
        return self._value

    def wait(self) -> T:
        """The value; waits for it, and raises what went wrong on the way."""
        with self._asking:
            if not self._is_over:
                self._is_asked = True
                try:
                    self._value = self._compute()
                finally:
                    self._is_asked = False
                self._is_over = True
        self._call_back()
        return self._value

    value = wait

    def done(self) -> bool:
        """Whether `wait` need not wait."""
        return self._is_over or self._ready()

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """The future of what `callback(self)` returns, once this value is there."""

        def compute() -> S:
            try:
                self.wait()
            except Exception:  # which `callback` meets where it asks for the value
                if self._error is None:
                    raise
            return callback(self)

        following = Future.of(compute, self.done)
        following._is_eager = self._is_eager
        if self._is_eager:
            self.add_done_callback(lambda _: following._settle())
        return following

    def _settle(self) -> None:
        """Has the value computed; who asks for it meets what goes wrong."""
        if not self._is_asked:
            with suppress(Exception):
                self.wait()

    def add_done_callback(self, callback: Callable[[Future[T]], object]) -> None:
        """Has `callback(self)` run once the value is there; at once if it is."""
        self._callbacks.append(callback)
        if self._is_over or self._set.is_set():
            self._call_back()

    def _call_back(self) -> None:
        while self._callbacks:
            self._callbacks.pop(0)(self)

    def set_result(self, result: T) -> None:
        """Sets the value, in any thread; RuntimeError if there is one."""
        self._end(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Has `wait` raise an exception; RuntimeError if there is a value."""
        if not isinstance(result, BaseException):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._end(None, result)

    def _end(self, value: Any, error: BaseException | None) -> None:
        with self._setting:
            if self._set.is_set():
                raise RuntimeError("Future can only be set once: it has a value")
            self._value, self._error = value, error
            self._set.set()
        self._call_back()


def collect_all(futures: list[Future[Any]]) -> Future[list[Future[Any]]]:
    """The future of a list of futures, once all of them have ended."""

    def compute() -> list[Future[Any]]:
        error = None
        for future in futures:
            try:
                future.wait()
            except Exception as e:
                error = error or e
        if error is not None:
            raise error
        return futures

    return Future.of(compute, lambda: all(future.done() for future in futures))


def wait_all(futures: list[Future[Any]]) -> list[Any]:
    """The values of futures, once all are there; raises what went wrong first."""
    return [future.value() for future in collect_all(futures).wait()]
