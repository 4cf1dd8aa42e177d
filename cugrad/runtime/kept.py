"""Puts in order what an exception, which may come anywhere, has found in the middle of a change."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from itertools import starmap
from typing import Any, TypeVar, cast

__all__ = [
    "LASTING", "LOCALS", "NOTHING", "OPEN", "Guarded", "Switch", "if_free", "kept", "of_thread",
    "whole",
]  # fmt: skip


class _Nothing:
    """A context in which nothing is done; a method of C's that takes whatever it is given, and
    whose answer is false, spares a `with` two frames of Python's.
    """

    __slots__ = ()
    __enter__ = __exit__ = "".format


NOTHING: AbstractContextManager[Any] = _Nothing()  # type: ignore[assignment]
L = TypeVar("L", bound=threading.local)
F = TypeVar("F", bound=Callable[..., Any])
LOCALS: list[threading.local] = []  # what a thread has switched on: modes, hooks, observers, levels
LASTING: list[threading.local] = []  # what a program sets for good, wherever it does so
OPEN: list[threading.local] = []  # what a tool has open in a thread of the system


def of_thread(local: L, among: list[threading.local] = LOCALS) -> L:
    """Enters a thread-local into a registry. Tests watch all three.

    `kept` puts back what is in LOCALS. Threads of the library take over LOCALS and LASTING.
    """
    among.append(local)
    return local


# An exception may come between any two instructions: of a signal's handler, for one. So nothing is
# changed before the `try`, what is put back are values, which may be done twice, and it is done
# again, outside, should an exception come while it is done.


def kept(run: Callable[[], Any], *only: threading.local) -> Any:
    """What `run()` returns; the thread's state, or only these parts, is then what it was before.

    >>> import cugrad
    >>> kept(lambda: cugrad.set_grad_enabled(False))
    torch.autograd.grad_mode.set_grad_enabled(mode=False)
    >>> cugrad.is_grad_enabled()
    True
    """
    fields = [*map(vars, only or LOCALS)]
    before = [(each, each.copy()) for each in filter(None, fields)]
    try:
        try:
            return run()
        finally:
            put_back(fields, before)
    except BaseException:
        put_back(fields, before)
        raise


Fields = dict[str, Any]


def put_back(fields: list[Fields], before: list[tuple[Fields, Fields]]) -> None:
    """Gives thread-locals, known by their dicts, the values of before; the others had none."""
    for each, values in before:
        each.update(values)
        if len(each) != len(values):
            for name in each.keys() - values.keys():
                each.pop(name, None)
    if len([*filter(None, fields)]) != len(before):
        had = [id(each) for each, _ in before]
        for each in fields:
            if each and id(each) not in had:  # what was as in a new thread is so again
                each.clear()


class Switch:
    """A context manager whose ends are done again, should an interrupt come meanwhile.

    `as_is()` says what is to be put back, and changes nothing; `change(before)` makes the change,
    and answers what `as` names; `put_back(before)` undoes it, if it was made, and may be called
    twice. A subclass needs no `__enter__`: an exception in that, behind this one, undoes nothing.
    """

    _before: tuple[Any, ...] = ()  # one for each time that it is entered

    def as_is(self) -> Any:
        raise NotImplementedError

    def change(self, before: Any) -> Any:
        raise NotImplementedError

    def put_back(self, before: Any) -> None:
        raise NotImplementedError

    def __enter__(self) -> Any:
        before = self.as_is()
        try:
            entered = self.change(before)
            self._before = (*self._before, before)
            return entered
        except BaseException:
            self.put_back(before)
            raise

    def __exit__(self, *exc: object) -> None:
        before = self._before[-1]
        try:
            self.put_back(before)
        except BaseException:
            self.put_back(before)
            raise
        finally:
            self._before = self._before[:-1]


def if_free(lock: Any, seconds: float, work: Callable[[], bool]) -> bool:
    """What `work()` returns under a lock; False if another thread has it for so many seconds.

    One call takes the lock and notes it, and one gives it back and notes that: between them no
    exception can come that would leave it taken.
    """
    taken: list[Any] = []
    try:
        try:
            taken.extend(map(lock.acquire, (seconds > 0,), (seconds or -1,)))
            return taken[0] and work()
        finally:
            _give_back(lock, taken)
    except BaseException:
        _give_back(lock, taken)
        raise


def _give_back(lock: Any, taken: list[Any]) -> None:
    if taken == [True]:
        taken.extend(starmap(lock.release, [()]))


class Guarded:
    """Something that a lock guards, and that is put in order if work at it did not end.

    Work is a method with `@whole`. `_mend()` makes all that is counted, or noted twice, anew from
    what is there, and may be called at any time when no work is done.
    """

    _lock: Any
    _torn = False  # whether work has begun that has not ended well
    _busy = False  # whether it is being done: what it calls is a part of it

    def _unchanged(self) -> None:
        """Says in work, before an error, that it has changed nothing: there is nothing to mend."""
        self._torn = False

    def _mend(self) -> None:
        raise NotImplementedError


def whole(work: F) -> F:
    """A method of a `Guarded`, under its lock: after an exception in it all is put in order.

    Should another one come meanwhile, that is done before the next work begins.
    """

    @wraps(work)
    def held(self: Any, *args: Any) -> Any:
        with self._lock:
            if self._busy:
                return work(self, *args)
            try:
                try:
                    if self._torn:
                        self._mend()
                    self._busy = self._torn = True
                    result = work(self, *args)
                    self._torn = False
                    return result
                finally:
                    self._busy = False
            except BaseException:
                self._busy = False
                if self._torn:
                    self._mend()
                    self._torn = False
                raise

    return cast("F", held)
