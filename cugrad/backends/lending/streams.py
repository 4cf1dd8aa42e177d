"""Device memory that another stream uses: it is not used again before that stream is done with it.

A pool gives memory again in the order of the stream that it was made on. What another stream
reads or writes is not in that order. `Tensor.record_stream` has such memory kept here when its
last array is gone, until the work that the other stream had queued by then has run.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from ..owners import root_of
from ..protocol import Backend, Event, Stream

__all__ = ["LentMemory", "lent_memory"]


class _Loan:
    """An array that owns memory, what holds that memory beside it, and the streams that use it."""

    __slots__ = ("key", "owner", "device", "holder", "streams")

    def __init__(self, backend: Backend, root: Any, gone: deque[_Loan]) -> None:
        self.key, self.streams = id(root), dict[int, Stream]()  # those by their address
        self.device, self.holder = backend.device_index(root), backend.holder_of(root)
        # the garbage collector may call this anywhere: it appends, and no more
        self.owner: Any = weakref.ref(root, lambda _, loan=self: gone.append(loan))  # type: ignore[misc]


class LentMemory:
    """What other streams use of a backend's memory. No lock is held while a device is asked."""

    def __init__(self, backend: Backend) -> None:
        self._backend, self._lock = backend, threading.Lock()
        self._loans: dict[int, _Loan] = {}  # by the id of the owner, while that is there
        self._gone: deque[_Loan] = deque()
        self._ending: dict[Event, Any] = {}  # what holds the memory, by where its stream is done
        backend.on_count(self._settle)
        backend.on_out_of_memory(self._wait)

    def record(self, array: Any, stream: Stream) -> None:
        """The memory of an array outlives what a stream has queued by when the array goes."""
        self._settle()
        root = root_of(array)
        with self._lock:
            loan = self._loans.get(id(root))
            if loan is None or loan.owner() is not root:
                loan = self._loans[id(root)] = _Loan(self._backend, root, self._gone)
            loan.streams[stream.ptr] = stream

    def end(self, array: Any, stream: Stream) -> None:
        """A stream uses an array's memory no more, as far as the array's own stream is by now."""
        root = root_of(array)
        with self._lock:
            loan = self._loans.get(id(root))
            if loan is not None and loan.owner() is root:
                loan.streams.pop(stream.ptr, None)
                if not loan.streams:
                    del self._loans[loan.key]
                    loan.owner = None  # whose callback has the loan, and that the memory

    def _begin_to_end(self) -> bool:
        """Marks how far the streams are that used what is gone by now; whether there is anything
        to wait for.
        """
        if not (self._gone or self._ending) or self._backend.current_stream().is_capturing():
            return False
        for loan in list(self._gone):  # each is there until all is marked: an interrupt loses none
            with self._backend.use_device(loan.device):
                for stream in loan.streams.values():
                    self._ending[stream.record_event()] = loan.holder
            with self._lock:
                if self._loans.get(loan.key) is loan:
                    del self._loans[loan.key]
                if loan in self._gone:  # else another thread was here, too
                    self._gone.remove(loan)
        return True

    def _settle(self) -> bool:
        """Gives back what no stream uses any more; whether there was something."""
        return self._begin_to_end() and self._end(lambda event: event.query())

    def _wait(self) -> bool:
        """The device is full: gives back all that is gone, once the streams are done with it."""

        def waited(event: Event) -> bool:
            event.synchronize()
            return True

        return self._begin_to_end() and self._end(waited)

    def _end(self, is_over: Callable[[Event], bool]) -> bool:
        over = [event for event in list(self._ending) if is_over(event)]
        for event in over:
            self._ending.pop(event, None)
        return bool(over)


_of: dict[str, LentMemory] = {}  # by the type of the device
_lock = threading.Lock()


def lent_memory(backend: Backend) -> LentMemory:
    """The memory of a backend's devices that streams use beside that which it was made on."""
    memory = _of.get(backend.device_type)
    if memory is None:
        with _lock:
            memory = _of.get(backend.device_type) or LentMemory(backend)
            _of[backend.device_type] = memory
    return memory
