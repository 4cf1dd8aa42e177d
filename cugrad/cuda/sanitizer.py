"""Vector clocks over CUDA: a wait that is missing among this library's copies is an error.

Seen: `copy_async`, events, stream waits, what the host waits for, functions of `backend.xp`
(matmul, sum, where, ...), reads by `to_host`, the end of pinned buffers, and memory that the pool
gives to another tenant. Not seen: operators and methods of CuPy arrays (`a * b`, `a[i] = x`), CuPy
code and raw kernels of your own, and NumPy's use of pinned buffers; tell of those with `reads()`,
`writes()` and `touched_by_host()`. The simulated device sees them all.

>>> from cugrad.cuda import sanitizer
>>> sanitizer.is_enabled()
False
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..backends.owners import root_of
from ..backends.simulated.races import Access, Clock, Clocks, Shadow
from ..runtime.contexts import Context
from ..runtime.kept import Switch
from .devices import cuda_backend

__all__ = ["check", "disable", "enable", "is_enabled", "reads", "touched_by_host", "writes"]

PAGE = 21  # memory is remembered in pieces of 2 MiB


class Sanitizer:
    """The clocks of one backend's streams, and what last happened to each byte."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.clocks = Clocks()
        self._timelines: dict[Any, int] = {}
        self._events: weakref.WeakKeyDictionary[Any, Clock] = weakref.WeakKeyDictionary()
        self._pages: dict[int, Shadow] = {}
        self._freed: deque[tuple[int, int]] = deque()
        self._restore: list[tuple[Any, str, Any]] = []

    # what happened

    def timeline(self, stream: Any) -> int:
        """The timeline of a stream, by its address: two views of one stream are one."""
        key = stream.ptr, stream.device_index
        timeline = self._timelines.get(key)
        if timeline is None:
            name = "the default stream" if stream.ptr == 0 else f"stream {stream.ptr:#x}"
            timeline = self._timelines[key] = self.clocks.timeline(name)
        return timeline

    def touch(self, access: Access, array: Any, wrote: bool) -> None:
        """Checks the bytes from an array's first to its last."""
        low, high = hull(array)
        for page in range(low >> PAGE, (high - 1 >> PAGE) + 1 if high > low else low >> PAGE):
            shadow = self._pages.get(page)
            start = page << PAGE
            if shadow is None:
                shadow = self._pages[page] = Shadow(f"the page at {start:#x}", 1 << PAGE)
            begin, end = max(low - start, 0), min(high - start, 1 << PAGE)
            self.clocks.check(shadow, begin, end, access, wrote)

    def operation(self, name: str, stream: Any, read: Any, written: Any) -> None:
        """An operation that `stream` has been given."""
        with self.clocks.lock:
            self.raise_late()
            access = self.clocks.begin(self.timeline(stream), name)
            for array in read:
                self.touch(access, array, False)
            for array in written:
                self.touch(access, array, True)

    def host(self, name: str, array: Any, wrote: bool) -> None:
        """The host uses an array, now."""
        with self.clocks.lock:
            self.raise_late()
            self.touch(self.clocks.host_access(name), array, wrote)

    def raise_late(self) -> None:
        """Raises what the end of a pinned buffer found, which no destructor can raise."""
        while self._freed:
            low, high = self._freed.popleft()
            for page in range(low >> PAGE, (high - 1 >> PAGE) + 1):
                shadow, start = self._pages.get(page), page << PAGE
                if shadow is not None:
                    access = self.clocks.host_access("free of pinned memory")
                    begin, end = max(low - start, 0), min(high - start, 1 << PAGE)
                    self.clocks.check(shadow, begin, end, access, True)

    def recorded(self, event: Any, stream: Any) -> None:
        with self.clocks.lock:
            self.raise_late()
            self._events[event.native] = self.clocks.snapshot(self.timeline(stream))

    def waited(self, stream: Any, event: Any) -> None:
        with self.clocks.lock:
            clock = self._events.get(event.native)
            if clock is not None:
                self.clocks.wait(self.timeline(stream), clock)

    def host_saw(self, clock: Clock | None) -> None:
        with self.clocks.lock:
            self.clocks.host_waits(clock or {})
            self.raise_late()

    def everything_is_done(self) -> None:
        with self.clocks.lock:
            self.raise_late()
            self.clocks.all_is_finished()
            self._pages.clear()

    # instruments

    def install(self) -> None:
        """Puts a listener before or behind each call of the protocol."""
        b, clocks, patch = self.backend, self.clocks, self._patch

        def copied(call: Any, dst: Any, src: Any, stream: Any) -> None:
            self.operation(f"copy_async of {src.nbytes} bytes", stream, (src,), (dst,))
            call(dst, src, stream)

        def event_recorded(call: Any, event: Any, stream: Any = None) -> None:
            call(event, stream)
            self.recorded(event, stream or b.current_stream())

        def stream_waits(call: Any, stream: Any, event: Any) -> None:
            call(stream, event)
            self.waited(stream, event)

        def event_synchronized(call: Any, event: Any) -> None:
            call(event)
            self.host_saw(self._events.get(event.native))

        def event_queried(call: Any, event: Any) -> bool:
            done = call(event)
            if done:
                self.host_saw(self._events.get(event.native))
            return bool(done)

        def stream_synchronized(call: Any, stream: Any) -> None:
            call(stream)
            self.host_saw(clocks.snapshot(self.timeline(stream)))

        def stream_queried(call: Any, stream: Any) -> bool:
            done = call(stream)
            if done:
                self.host_saw(clocks.snapshot(self.timeline(stream)))
            return bool(done)

        def brought(call: Any, array: Any) -> Any:
            if isinstance(array, b.array_types):
                stream = b.current_stream()
                self.operation("copy to the host", stream, (array,), ())
                self.host_saw(clocks.snapshot(self.timeline(stream)))
            return call(array)

        def pinned(call: Any, shape: Any, dtype: Any) -> Any:
            array = call(shape, dtype)
            if array.nbytes:
                end = weakref.finalize(array, self._freed.append, hull(array))
                end.atexit = False
            return array

        def finished(call: Any) -> None:
            call()
            self.everything_is_done()

        patch(b, "copy_async", copied)
        patch(b, "to_host", brought)
        patch(b, "empty_pinned", pinned)
        patch(b, "synchronize", finished)
        streams, events = type(b.current_stream()), type(b.event())
        patch(streams, "wait_event", stream_waits)
        patch(streams, "synchronize", stream_synchronized)
        patch(streams, "query", stream_queried)
        patch(events, "record", event_recorded)
        patch(events, "synchronize", event_synchronized)
        patch(events, "query", event_queried)
        self._restore.append((b, "xp", b.__dict__.get("xp")))
        b.xp = CheckedNames(self, b.xp, "")

    def _patch(self, where: Any, name: str, listener: Callable[..., Any]) -> None:
        call, own = getattr(where, name), where.__dict__.get(name)

        def heard(*args: Any, **kwargs: Any) -> Any:
            return listener(call, *args, **kwargs)

        self._restore.append((where, name, own))
        setattr(where, name, heard)

    def remove(self) -> None:
        """Takes the listeners away again; it may be called twice."""
        for where, name, own in reversed(self._restore):
            if own is not None:
                setattr(where, name, own)
            elif name in where.__dict__:
                delattr(where, name)
        self._restore.clear()


class CheckedNames:
    """A namespace of array functions that tells what each reads and writes."""

    def __init__(self, sanitizer: Sanitizer, names: Any, prefix: str) -> None:
        self._sanitizer, self._names, self._prefix = sanitizer, names, prefix

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._names, name)
        if isinstance(attribute, type):
            return attribute
        if not callable(attribute):
            inner = type(attribute).__name__ in INNER
            return CheckedNames(self._sanitizer, attribute, f"{name}.") if inner else attribute
        s, full = self._sanitizer, self._prefix + name

        def function(*args: Any, **kwargs: Any) -> Any:
            read = list(device_arrays(s.backend, (*args, *kwargs.values())))
            result = attribute(*args, **kwargs)
            if name in ALLOCATE:
                return result
            written = list(device_arrays(s.backend, (result, kwargs.get("out"))))
            if name in CHANGE_FIRST:
                written.append(args[0])
            has_target = name in CHANGE_FIRST or kwargs.get("out") is not None
            fresh = written if has_target else [a for a in written if root_of(a) is a]
            if fresh:  # a view alone is no kernel
                s.operation(full, s.backend.current_stream(), read, fresh)
            return result

        function.__name__ = name
        self.__dict__[name] = function
        return function


INNER = frozenset(["module", "Module", "SimpleNamespace", "CheckedLinalg", "CupyxSpecial"])
ALLOCATE = frozenset(["empty", "empty_like", "may_share_memory"])
CHANGE_FIRST = frozenset(["copyto", "index_add", "index_reduce", "put", "place", "putmask"])


def device_arrays(backend: Any, values: Any) -> Iterator[Any]:
    """The device arrays among values, also within tuples and lists."""
    for value in values:
        if isinstance(value, backend.array_types):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from device_arrays(backend, value)


def hull(array: Any) -> tuple[int, int]:
    """The address of an array's first byte, and the one behind its last."""
    if isinstance(array, np.ndarray):
        low = array.__array_interface__["data"][0]
    else:
        low = int(array.data.ptr)
    if array.size == 0:
        return low, low
    high = low + array.itemsize
    for n, step in zip(array.shape, array.strides):
        if step < 0:
            low += (n - 1) * step
        else:
            high += (n - 1) * step
    return low, high


class _Active:
    one: Sanitizer | None = None


def is_enabled() -> bool:
    """Whether accesses are being checked."""
    return _Active.one is not None


def enable() -> None:
    """Checks accesses from now on: RaceError at the operation that no event orders.

    The device is waited for first. What is enabled stays so until disable().
    """
    if _Active.one is None:
        backend = cuda_backend()
        backend.synchronize()
        try:
            _Active.one = Sanitizer(backend)
            _Active.one.install()
        except BaseException:
            _let_go()
            raise


def disable() -> None:
    """Checks no more; a finding that was left for the next operation is raised."""
    active = _Active.one
    _let_go()
    if active is not None:
        active.raise_late()


def _let_go() -> None:
    """Checks no more, and raises nothing; it may be called twice."""
    if _Active.one is not None:
        _Active.one.remove()
        _Active.one = None


class check(Switch, Context):
    """Checks accesses within the block; nothing changes where they are checked already."""

    def as_is(self) -> Sanitizer | None:
        return _Active.one

    def change(self, before: Sanitizer | None) -> None:
        enable()

    def put_back(self, before: Sanitizer | None) -> None:
        if before is None:
            _let_go()

    def __exit__(self, *exc: object) -> None:
        before, active = self._before[-1], _Active.one
        try:
            self.put_back(before)
        except BaseException:
            self.put_back(before)
            raise
        finally:
            self._before = self._before[:-1]
        if before is None and active is not None and exc[0] is None:
            active.raise_late()  # else the error that is on its way says enough


def reads(*arrays: Any, name: str = "a kernel") -> None:
    """Says that work just given to the current stream reads these arrays."""
    if _Active.one is not None:
        active = _Active.one
        active.operation(name, active.backend.current_stream(), arrays, ())


def writes(*arrays: Any, name: str = "a kernel") -> None:
    """Says that work just given to the current stream writes these arrays."""
    if _Active.one is not None:
        active = _Active.one
        active.operation(name, active.backend.current_stream(), (), arrays)


def touched_by_host(*arrays: Any, wrote: bool = False) -> None:
    """Says that the host now reads these pinned arrays, or writes them."""
    if _Active.one is not None:
        for array in arrays:
            _Active.one.host("host write" if wrote else "host read", array, wrote)
