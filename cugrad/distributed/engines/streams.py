"""Collectives on a stream of their own, between devices whose backend has communicators."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...backends.protocol import Array, Backend, Communicator, Event, Stream
from ...backends.several import at_home
from ..reduce_op import ReduceOp

__all__ = ["StreamEngine", "StreamPending"]

NAMES = {ReduceOp.SUM: "sum", ReduceOp.AVG: "avg", ReduceOp.PRODUCT: "prod", ReduceOp.MIN: "min",
         ReduceOp.MAX: "max", ReduceOp.BAND: "band", ReduceOp.BOR: "bor",
         ReduceOp.BXOR: "bxor"}  # fmt: skip
PAUSE = 0.1  # seconds between two looks at what is on its way


class StreamPending:
    """A call on the engine's stream, and the event behind it."""

    source = -1

    def __init__(
        self, engine: StreamEngine, done: Event, arrays: list[Array], holds_host: bool = False
    ) -> None:
        self.engine, self.done, self.holds_host = engine, done, holds_host
        # The memory is in use until the event: it must not be given to others before.
        self.arrays: list[Array] | None = arrays
        self.check: Callable[[], None] | None = None

    def test(self) -> bool:
        """Whether the call has ended on the device."""
        self.engine.raise_error()
        return self.done.query()

    def attend(self) -> None:
        pass  # a device goes on by itself

    def wait(self, check: Callable[[], None]) -> None:
        """Has the current stream wait; the host does not. A thread calls `check` meanwhile."""
        self.engine.raise_error()
        self.engine.backend.current_stream().wait_event(self.done)
        self.arrays = None  # what this stream frees, and takes anew, comes after the event now
        self.check = check
        while self.holds_host and not self.test():
            check()
            time.sleep(PAUSE / 100)


class StreamEngine:
    """One rank of a communicator, whose calls run on one stream in the order in which they come.

    That stream waits for what the current one has queued when a call is made, and what waits for
    the call has the current stream wait for it. The host waits for neither.
    """

    on_host = False
    name = "nccl"

    def __init__(self, backend: Backend, communicator: Communicator, size: int, rank: int) -> None:
        self.backend, self.communicator = backend, communicator
        self.size, self.rank = size, rank
        self.stream: Stream = backend.stream()
        self.pending: deque[StreamPending] = deque()
        self.error: str | None = None
        self.together: tuple[list[Any], list[Any]] | None = None  # of a batch that is open
        self.batched: StreamPending | None = None
        if not backend.stands_in:  # a simulated device does not fail by itself
            threading.Thread(target=self._watch, name="cugrad-nccl", daemon=True).start()

    def launch(self, run: Callable[[Stream], None], *arrays: Array) -> StreamPending:
        """Queues a call behind all that the current stream has queued."""
        self.raise_error()
        while self.pending and self.pending[0].done.query():
            self.pending.popleft()
        with at_home(*arrays):
            self.stream.wait_event(self.backend.current_stream().record_event())
            run(self.stream)
            pending = StreamPending(self, self.stream.record_event(), list(arrays))
        self.pending.append(pending)
        return pending

    # ------------------------------------------------------------------ calls

    def all_reduce(self, array: Array, op: ReduceOp) -> StreamPending:
        call = self.communicator.all_reduce
        return self.launch(lambda stream: call(array, NAMES[op], stream), array)

    def reduce(self, array: Array, op: ReduceOp, root: int) -> StreamPending:
        if self.rank != root:
            array = array.copy()  # NCCL may use it on the way
        call = self.communicator.reduce
        return self.launch(lambda stream: call(array, NAMES[op], root, stream), array)

    def broadcast(self, array: Array, root: int) -> StreamPending:
        call = self.communicator.broadcast
        return self.launch(lambda stream: call(array, root, stream), array)

    def all_gather(self, out: Array, array: Array, counts: Any) -> StreamPending:
        if len(set(counts)) > 1:
            parts = _parts(out, counts)
            return self._exchange([(array, r) for r in range(self.size)], list(parts))
        call = self.communicator.all_gather
        return self.launch(lambda stream: call(out, array, stream), out, array)

    def gather(self, out: Array | None, array: Array, counts: Any, root: int) -> StreamPending:
        return self._exchange([(array, root)], [] if out is None else list(_parts(out, counts)))

    def scatter(self, out: Array, array: Array | None, counts: Any, root: int) -> StreamPending:
        return self._exchange([] if array is None else list(_parts(array, counts)), [(out, root)])

    def reduce_scatter(self, out: Array, array: Array, counts: Any, op: ReduceOp) -> StreamPending:
        communicator, name = self.communicator, NAMES[op]
        if len(set(counts)) == 1:
            return self.launch(
                lambda stream: communicator.reduce_scatter(out, array, name, stream), out, array
            )
        terms = array.copy()
        parts = list(_parts(terms, counts))

        def run(stream: Stream) -> None:
            for part, rank in parts:
                communicator.reduce(part, name, rank, stream)
            self.backend.copy_async(out, parts[self.rank][0], stream)

        return self.launch(run, out, terms)

    def all_to_all(self, out: Array, out_counts: Any, array: Array, counts: Any) -> StreamPending:
        return self._exchange(list(_parts(array, counts)), list(_parts(out, out_counts)))

    def send(self, array: Array, peer: int, tag: int) -> StreamPending:
        return self._exchange([(array, peer)], [])

    def receive(self, array: Array, peer: int | None, tag: int) -> StreamPending:
        if peer is None:
            raise ValueError("irecv: NCCL receives from a rank that is named: give src=")
        return self._exchange([], [(array, peer)])

    def barrier(self) -> StreamPending:
        """Of the host, too, as `barrier` of PyTorch's is."""
        pending = self.all_reduce(self.backend.xp.zeros(1, "float32"), ReduceOp.SUM)
        pending.holds_host = True
        return pending

    def _exchange(
        self, sends: list[tuple[Array, int]], receives: list[tuple[Array, int]]
    ) -> StreamPending:
        if self.together is not None:
            self.together[0].extend(sends)
            self.together[1].extend(receives)
            assert self.batched is not None
            return self.batched
        call, arrays = self.communicator.exchange, [a for a, _ in (*sends, *receives)]
        return self.launch(lambda stream: call(sends, receives, stream), *arrays)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """A block whose sends and receives are one call, so that their order is of no matter."""
        self.together = [], []
        self.batched = batched = StreamPending(self, self.backend.event(), [])
        try:
            yield
        finally:
            sends, receives = self.together
            self.together = None
        whole = self._exchange(sends, receives)
        batched.done, batched.arrays = whole.done, whole.arrays

    # ------------------------------------------------------------------ faults

    def raise_error(self) -> None:
        """Raises what went wrong on the device, or in another rank."""
        if self.error is not None:
            raise RuntimeError(self.error)

    def _watch(self) -> None:
        """Looks whether calls end in time, and whether NCCL has an error."""
        while self.error is None:
            time.sleep(PAUSE)
            error = self.communicator.error()
            for pending in [] if error else list(self.pending):
                if pending.check is None or pending.done.query():
                    continue
                try:
                    pending.check()
                except Exception as failure:
                    error = str(failure)
                break  # the others wait behind it
            if error is not None:
                self.error = error
                self.communicator.abort()

    def close(self) -> None:
        self.error = self.error or "the group is destroyed"
        self.communicator.close()

    def abort(self) -> None:
        pass  # done by whoever watches, once


def _parts(array: Array, counts: Any) -> Iterator[tuple[Array, int]]:
    """The part of each rank of an array, and the rank; none that is empty."""
    begin = 0
    for rank, count in enumerate(counts):
        yield array[begin : begin + count], rank
        begin += count
