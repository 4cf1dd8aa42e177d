"""Ranks of a group of which one runs: the others are its mirrors, and have the same data.

So collectives have their streams, events, costs and races without other processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .links import Links
from .machine import Machine, SimulatedStream

__all__ = ["MirroredRank"]

Array = Any

TOTALS: dict[str, Callable[[Any, int], Any]] = {
    "sum": lambda x, n: x * n, "avg": lambda x, n: x, "prod": lambda x, n: x**n,
    "min": lambda x, n: x, "max": lambda x, n: x,
}  # fmt: skip


class MirroredRank:
    """One rank of `size`. What it receives is what it sends itself.

    A call takes as long as the links of the machine's model say.
    """

    def __init__(self, machine: Machine, size: int, rank: int) -> None:
        self.machine, self.size, self.rank = machine, size, rank
        self.sent: list[Any] = []  # by no one else: what a receive gets

    def _total(self, x: Any, op: str) -> Any:
        return TOTALS[op](x, self.size).astype(x.dtype)

    def all_reduce(self, array: Array, op: str, stream: SimulatedStream) -> None:
        x = array._host

        def run() -> None:
            x[...] = self._total(x, op)

        self._queue("all_reduce", [array], [array], run, Links.all_reduce, array.nbytes, stream)

    def reduce(self, array: Array, op: str, root: int, stream: SimulatedStream) -> None:
        if self.rank == root:
            self.all_reduce(array, op, stream)
        else:
            self._queue("reduce", [array], [], lambda: None, Links.all_reduce, array.nbytes, stream)

    def broadcast(self, array: Array, root: int, stream: SimulatedStream) -> None:
        reads, writes = ([array], []) if self.rank == root else ([], [array])
        self._queue("broadcast", reads, writes, lambda: None, Links.broadcast, array.nbytes, stream)

    def all_gather(self, out: Array, array: Array, stream: SimulatedStream) -> None:
        to, of = out._host, array._host

        def run() -> None:
            to.reshape(self.size, -1)[...] = of

        self._queue("all_gather", [array], [out], run, Links.all_gather, out.nbytes, stream)

    def reduce_scatter(self, out: Array, array: Array, op: str, stream: SimulatedStream) -> None:
        to, of = out._host, array._host.reshape(self.size, -1)[self.rank]

        def run() -> None:
            to[...] = self._total(of, op)

        self._queue("reduce_scatter", [array], [out], run, Links.all_gather, array.nbytes, stream)

    def exchange(
        self, sends: Sequence[tuple[Array, int]], receives: Sequence[tuple[Array, int]],
        stream: SimulatedStream,
    ) -> None:  # fmt: skip
        """A mirror sends to this rank what this rank sends to itself, or else to anyone."""
        mine = [array for array, peer in sends if peer == self.rank] or [a for a, _ in sends]
        sources, targets = [a._host for a in mine], [a._host for a, _ in receives]

        def run() -> None:
            for i, to in enumerate(targets):
                if sources and sources[i % len(sources)].size == to.size:
                    np.copyto(to, sources[i % len(sources)])

        arrays = [a for a, _ in sends], [a for a, _ in receives]
        nbytes = sum(a.nbytes for a in arrays[0])
        self._queue("exchange", *arrays, run, Links.send, nbytes, stream)

    def error(self) -> str | None:
        return None

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _queue(
        self, name: str, reads: list[Array], writes: list[Array], run: Callable[[], None],
        cost: Callable[[Links, float, int], float], nbytes: int, stream: SimulatedStream,
    ) -> None:  # fmt: skip
        """Queues a call that runs when the schedule says; its accesses are checked now."""
        machine = self.machine
        with machine.lock:
            machine.raise_late()
            machine.touch(stream, name, reads, writes)
            machine.enqueue(stream, run)
            seconds = cost(machine.model.links, nbytes * machine.model.scale, self.size)
            machine.charge(stream, name, "link", seconds, nbytes, 0.0)
            if machine.busy:
                machine.progress()
