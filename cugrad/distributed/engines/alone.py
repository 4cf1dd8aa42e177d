"""A group of one process: what it would get from others, it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...backends import backend_of
from ...runtime.kept import NOTHING
from ..reduce_op import ReduceOp

__all__ = ["Alone"]


class Done:
    """A call that has ended as it began."""

    source = 0

    def test(self) -> bool:
        return True

    def attend(self) -> None:
        pass

    def wait(self, check: Callable[[], None]) -> None:
        pass


DONE = Done()


class Alone:
    """The engine of a group of one. What it sends to itself waits for a receive with its tag."""

    on_host = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.sent: dict[int, list[Any]] = {}

    def all_reduce(self, array: Any, op: ReduceOp) -> Done:
        return DONE

    def reduce(self, array: Any, op: ReduceOp, root: int) -> Done:
        return DONE

    def broadcast(self, array: Any, root: int) -> Done:
        return DONE

    def all_gather(self, out: Any, array: Any, counts: Any) -> Done:
        backend_of(out).xp.copyto(out, array)
        return DONE

    def gather(self, out: Any, array: Any, counts: Any, root: int) -> Done:
        return self.all_gather(out, array, counts)

    def scatter(self, out: Any, array: Any, counts: Any, root: int) -> Done:
        return self.all_gather(out, array, counts)

    def reduce_scatter(self, out: Any, array: Any, counts: Any, op: ReduceOp) -> Done:
        return self.all_gather(out, array, counts)

    def all_to_all(self, out: Any, out_counts: Any, array: Any, counts: Any) -> Done:
        return self.all_gather(out, array, counts)

    def send(self, array: Any, peer: int, tag: int) -> Done:
        self.sent.setdefault(tag, []).append(array.copy())
        return DONE

    def receive(self, array: Any, peer: int | None, tag: int) -> Done:
        if not self.sent.get(tag):
            raise RuntimeError(
                f"recv: this process is the only one, and has sent nothing to itself (tag {tag})"
            )
        return self.all_gather(array, self.sent[tag].pop(0), ())

    def barrier(self) -> Done:
        return DONE

    def batch(self) -> Any:
        return NOTHING

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass
