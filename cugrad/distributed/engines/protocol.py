"""The seam between collectives and who moves the data: a dozen calls over dense, flat arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..reduce_op import ReduceOp

__all__ = ["Engine", "Pending"]

Array = Any  # flat, dense, in the engine's memory
Counts = Sequence[int]  # elements of each rank


class Pending(Protocol):
    """A call that has begun. Its arrays may be used once `wait` has returned."""

    source: int  # of what was received: the rank in the group

    def test(self) -> bool: ...  # whether it has ended; lets it go on
    def attend(self) -> None: ...  # lets it go on by itself while the caller does other things
    def wait(self, check: Callable[[], None]) -> None: ...  # `check` raises if that is in vain


class Engine(Protocol):
    """One rank of one group. Calls begin in the order in which they are made."""

    name: str
    on_host: bool  # whether arrays are NumPy's, whatever the device of the tensors

    def all_reduce(self, array: Array, op: ReduceOp) -> Pending: ...
    def reduce(self, array: Array, op: ReduceOp, root: int) -> Pending: ...
    def broadcast(self, array: Array, root: int) -> Pending: ...
    def all_gather(self, out: Array, array: Array, counts: Counts) -> Pending: ...
    def gather(self, out: Array | None, array: Array, counts: Counts, root: int) -> Pending: ...
    def scatter(self, out: Array, array: Array | None, counts: Counts, root: int) -> Pending: ...
    def reduce_scatter(
        self, out: Array, array: Array, counts: Counts, op: ReduceOp
    ) -> Pending: ...  # fmt: skip
    def all_to_all(
        self, out: Array, out_counts: Counts, array: Array, counts: Counts
    ) -> Pending: ...  # fmt: skip
    def send(self, array: Array, peer: int, tag: int) -> Pending: ...
    def receive(self, array: Array, peer: int | None, tag: int) -> Pending: ...
    def barrier(self) -> Pending: ...
    def batch(self) -> Any: ...  # a context: its sends and receives are one call
    def close(self) -> None: ...  # with the group, when nothing is pending
    def abort(self) -> None: ...  # whatever is pending ends, in an error
