"""The simulated device itself: the order in which work runs, and virtual time."""

from __future__ import annotations

import itertools
import os
import random
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np

from ..reclaimers import Reclaimers
from . import cost
from .memory import Pool, check_free, numbers, pinned_of, ranges_of
from .races import Clocks, Shadow
from .streams import Marker, SimulatedEvent, SimulatedStream
from .timeline import Record, Timeline

__all__ = ["POLICIES", "Machine"]

POLICIES = ("earliest", "latest", "random", "timed")
name_of = cache(attrgetter("name"))  # of a dtype; NumPy makes it anew each time
LAST = 4096  # records that are kept while nothing records
POLLS = 64  # how often query() may deny an event that could have happened


class _Current(threading.local):
    stream: SimulatedStream | None = None
    traffic: cost.Traffic | None = None  # what kernels are charged as few


class Machine:
    """One simulated device; `lock` guards all of it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.model = cost.H200
        self.capacity = self.model.capacity
        self.limit = sys.maxsize  # that programs set
        self.policy = os.environ.get("CUGRAD_SIMULATE_POLICY", "random")
        self.random = random.Random(int(os.environ.get("CUGRAD_SIMULATE_SEED", "0")))
        self.last: Callable[[], SimulatedStream | None] = lambda: (
            None
        )  # of kernels, to be given one
        self.freed_pinned: deque[Shadow] = deque()
        self.pinned_numbers = itertools.count(1)
        self.reclaimers, self.settlers = Reclaimers(), Reclaimers()
        self._here = _Current()
        self.reset()

    def reset(self) -> None:
        """A machine that has just been switched on: nothing queued, time zero, no memory of races.

        Arrays, streams and pinned buffers of before may be used on: they count as finished.
        """
        with self.lock:
            if hasattr(self, "busy"):
                for stream in list(self.busy):
                    self.run(stream)
                self.synchronize()
            else:
                self.clocks = Clocks()
                self.stream_numbers = itertools.count(0)
                self.busy: dict[SimulatedStream, None] = {}  # streams with something queued
                self.all: weakref.WeakSet[SimulatedStream] = weakref.WeakSet()
                self.pool = Pool(self)
                self.default = self.new_stream(name="default")
            self.freed_pinned.clear()
            self.reset_time()

    def reset_time(self, keep: int = LAST) -> None:
        """Begins the records anew, of which the last `keep` stay, and virtual time at zero."""
        with self.lock:
            for stream in self.all:
                stream.time = 0.0
            self.host_time, self.records = 0.0, deque[Record](maxlen=keep)
            self.epoch = getattr(self, "epoch", 0) + 1
            self.resources = {kind: cost.Resource() for kind in ("kernel", "d2h", "h2d", "link")}

    # streams

    def new_stream(self, priority: int = 0, name: str | None = None) -> SimulatedStream:
        with self.lock:
            stream = SimulatedStream(self, priority, name)
            stream.time = getattr(self, "host_time", 0.0)
            self.all.add(stream)
            return stream

    def current(self) -> SimulatedStream:
        """This thread's current stream."""
        return self._here.stream or self.default

    def chosen(self) -> SimulatedStream | None:
        """The stream that this thread has chosen; None: the default one."""
        return self._here.stream

    def use(self, stream: SimulatedStream | None) -> None:
        """Makes a stream current in this thread."""
        self._here.stream = stream

    # order: what runs when

    def enqueue(self, stream: SimulatedStream, item: Any) -> None:
        stream.queue.append(item)
        self.busy[stream] = None

    def progress(self) -> None:
        """Lets the schedule's policy run some of what is queued."""
        if self.policy == "earliest":
            for stream in list(self.busy):
                self.run(stream)
        elif self.policy == "random" and self.busy:
            while self.busy and self.random.random() < 0.4:
                stream = self.random.choice(list(self.busy))
                self.run(stream, self.random.randint(1, 3))

    def run(self, stream: SimulatedStream, count: int = -1) -> None:
        """Runs the first entries of a queue (all of them by default), and what they wait for."""
        queue = stream.queue
        while queue and count:
            count -= 1
            item = queue[0]
            if type(item) is not Marker:
                queue.popleft()
                item()
            elif item.stream is stream:
                queue.popleft()
                item.done = True
            else:
                self.reach(item)
                queue.popleft()
        if not queue:
            self.busy.pop(stream, None)

    def reach(self, marker: Marker) -> None:
        """Runs a marker's stream up to it."""
        while not marker.done:
            self.run(marker.stream, 1)

    def mark(self, stream: SimulatedStream) -> Marker:
        """An event's recording at the present end of a stream."""
        with self.lock:
            self.raise_late()
            self.host_time += self.model.launch / 4
            marker = Marker(stream, self.clocks.snapshot(stream.timeline))
            marker.stamp = max(stream.time, self.host_time)  # an idle stream is there at once
            self.enqueue(stream, marker)
            return marker

    def wait(self, stream: SimulatedStream, event: SimulatedEvent) -> None:
        """A stream waits for an event; not at all for one never recorded, as on CUDA."""
        with self.lock:
            self.raise_late()
            marker = event.marker
            if marker is None:
                return
            self.host_time += self.model.launch / 4
            self.clocks.wait(stream.timeline, marker.clock)
            if marker.time > stream.time:
                start = max(stream.time, self.host_time)
                if marker.time > start:
                    self.records.append(
                        Record(f"wait for {marker.stream.name}", stream.name, "wait",
                               self.host_time, start, marker.time, 0, 0.0))  # fmt: skip
                stream.time = marker.time
            if marker.stream is not stream and not marker.done:
                self.enqueue(stream, marker)

    def query(self, marker: Marker) -> bool:
        with self.lock:
            self.raise_late()
            self.host_time += self.model.launch / 4
            if self.policy == "timed":
                if self.host_time < marker.time:
                    return False
            elif not marker.done:
                self.progress()
                marker.polls += 1
                if not marker.done and marker.polls < POLLS:
                    return False
            self.reach(marker)
            self.clocks.host_waits(marker.clock)
            return True

    def query_stream(self, stream: SimulatedStream) -> bool:
        with self.lock:
            last = stream.queue[-1] if stream.queue else None
            if isinstance(last, Marker) and last.stream is stream:
                return self.query(last)  # the same one each time, so that polling ends
            if last is not None or self.policy == "timed":
                return self.query(self.mark(stream))
            self.clocks.host_waits(self.clocks.snapshot(stream.timeline))
            return True

    def host_waits_for(self, marker: Marker) -> None:
        with self.lock:
            self.raise_late()
            self.reach(marker)
            self.clocks.host_waits(marker.clock)
            self._host_reaches(marker.time, f"synchronize with {marker.stream.name}")

    def synchronize_stream(self, stream: SimulatedStream) -> None:
        with self.lock:
            self.raise_late()
            self.run(stream)
            self.clocks.host_waits(self.clocks.snapshot(stream.timeline))
            self._host_reaches(stream.time, f"synchronize with {stream.name}")

    def synchronize(self) -> None:
        """The host waits for everything."""
        with self.lock:
            self.raise_late()
            for stream in list(self.busy):
                self.run(stream)
            self.clocks.all_is_finished()
            self._host_reaches(max(s.time for s in self.all), "synchronize")

    def raise_late(self) -> None:
        """Raises what a destructor found and could not raise: pinned memory freed in flight."""
        while self.freed_pinned:
            error = check_free(self, self.freed_pinned.popleft())
            if error is not None:
                raise error

    # virtual time

    def _host_reaches(self, time: float, name: str) -> None:
        if time > self.host_time:
            self.records.append(
                Record(name, "host", "host", self.host_time, self.host_time, time, 0, 0.0)
            )
            self.host_time = time

    def host_waited(self, seconds: float) -> None:
        """The host is busy for a while with something that is not a launch."""
        self.host_time += seconds

    def host_computed(self, nbytes: int) -> None:
        """The host has computed, and read or written so many bytes of its memory."""
        with self.lock:
            began = self.host_time
            self.host_time += nbytes * self.model.scale / self.model.host
            self.records.append(Record("compute on the host", "host", "computed", began, began,
                                       self.host_time, nbytes, 0.0))  # fmt: skip

    def charge(
        self, stream: SimulatedStream, name: str, kind: str, seconds: float, nbytes: int,
        flops: float,
    ) -> None:  # fmt: skip
        """Books an operation at the end of a stream."""
        self.host_time += self.model.launch
        kinds = "kernel" if kind == "d2d" else kind
        if kinds == "h2d" and not self.model.duplex:
            kinds = "d2h"
        ready = max(stream.time, self.host_time)
        if kinds == "kernel" and stream.priority < 0:
            start, displaced = self.resources[kinds].cut_in(ready, seconds, self.host_time)
            last = self.last()
            if displaced and last is not None and last.time < displaced:
                self.records.append(Record(f"displaced by {name}", last.name, kind, self.host_time,
                                           displaced - seconds, displaced, 0, 0.0))  # fmt: skip
                last.time = displaced
        else:
            start = self.resources[kinds].take(ready, seconds, self.host_time)
            self.last = weakref.ref(stream) if kinds == "kernel" else self.last
        stream.time = start + seconds
        self.records.append(
            Record(name, stream.name, kind, self.host_time, start, stream.time, nbytes, flops)
        )

    def keep_last(self, keep: int = LAST) -> None:
        """Forgets all records but the last ones."""
        with self.lock:
            self.records = deque(self.records, keep)

    def timeline(self) -> Timeline:
        """What happened since the last reset_time(), as far as records are kept."""
        with self.lock:
            return Timeline(self.records, 0.0, self.host_time)

    # work

    def touch(self, stream: SimulatedStream, name: str, reads: Any, writes: Any) -> None:
        """Checks a kernel's accesses: `reads` and `writes` are device arrays."""
        clocks = self.clocks
        access = clocks.begin(stream.timeline, name)
        for arrays, wrote in ((reads, False), (writes, True)):
            for array in arrays:
                shadow = array._allocation.shadow
                if array._base is None:  # all of it, and what it was rounded up to
                    clocks.check(shadow, 0, shadow.size, access, wrote)
                    continue
                for low, high in ranges_of(array._allocation.address, array._host):
                    clocks.check(shadow, low, high, access, wrote)

    def launch(self, stream: SimulatedStream, name: str, reads: Any, writes: Any) -> None:
        """A kernel begins: what its stream holds has run, and its accesses are in order."""
        self.raise_late()
        if self.busy:
            self.progress()
            if stream.queue:
                self.run(stream)
        self.touch(stream, name, reads, writes)

    def finish(self, stream: SimulatedStream, name: str, reads: Any, outputs: Any) -> None:
        """A kernel has run: its cost."""
        traffic = self._here.traffic
        if traffic is not None:
            traffic.add(name, reads, outputs)
            return
        read, written = cost.traffic_of(name, reads, outputs)
        nbytes, flops = sum(read) + sum(written), cost.flops_of(name, reads, outputs)
        dtype = name_of(outputs[0].dtype) if outputs else "float32"
        seconds = self.model.kernel(nbytes, flops, dtype)
        self.charge(stream, name, "kernel", seconds, nbytes, flops)

    def in_kernels(self, name: str, run: Callable[[], Any], most: int = 1) -> Any:
        """What `run()` answers; its kernels cost as `most` do, each of which reads what was there
        before, and which together write what is left.
        """
        here = self._here
        if here.traffic is not None:  # a part of what costs so
            return run()
        try:
            here.traffic = traffic = cost.Traffic(next(numbers))
            result = run()
        finally:
            here.traffic = None
        count = min(most, traffic.kernels)
        if count:
            read, written = traffic.bytes_of(result)
            nbytes, flops = read + written // count, traffic.flops / count
            seconds = self.model.kernel(nbytes, flops, traffic.dtype)
            with self.lock:
                for _ in range(count):
                    self.charge(self.current(), name, "kernel", seconds, nbytes, flops)
        return result

    def copy(self, dst: Any, src: Any, stream: SimulatedStream) -> None:
        """Queues a copy of bytes; with ordinary host memory the host waits, as CUDA may."""
        with self.lock:
            self.raise_late()
            ends = [_end_of(array) for array in (dst, src)]
            (to, to_owner, to_device), (of, of_owner, of_device) = ends
            kind = "d2d" if to_device and of_device else "h2d" if to_device else "d2h"
            name = f"copy_async {kind} {src.nbytes} bytes"
            access = self.clocks.begin(stream.timeline, name)
            for array, owner, writes in ((of, of_owner, False), (to, to_owner, True)):
                for low, high in ranges_of(owner.address, array) if owner is not None else ():
                    self.clocks.check(owner.shadow, low, high, access, writes)
            # what keeps count of pending work is no tenant: the memory can be freed meanwhile
            holders = [getattr(o, "chunk", None) for o in (to_owner, of_owner) if o is not None]
            pending = [h for h in holders if h is not None]
            for holder in pending:
                holder.pending += 1

            to, of = _flat(to), _flat(of)

            def run() -> None:
                np.copyto(to, of)
                for holder in pending:
                    holder.pending -= 1

            self.enqueue(stream, run)
            pageable = to_owner is None or of_owner is None
            seconds = self.model.copy(src.nbytes, kind, pageable)
            self.charge(stream, name, kind, seconds, src.nbytes, 0.0)
            if pageable:
                self.synchronize_stream(stream)
            elif self.busy:
                self.progress()


def _end_of(array: Any) -> tuple[Any, Any, bool]:
    """One end of a copy: its NumPy array, who owns the memory (None: pageable), on the device?"""
    if hasattr(array, "_allocation"):
        return array._host, array._allocation, True
    return array.view(np.ndarray), pinned_of(array), False


def _flat(array: Any) -> Any:
    """The bytes of a dense array, in the order of memory."""
    if not array.flags.c_contiguous:
        array = array.transpose(sorted(range(array.ndim), key=lambda i: -array.strides[i]))
    return array.reshape(-1).view(np.uint8)
