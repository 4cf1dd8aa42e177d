"""Wraps every op and every backward node in an ITT task, which Intel's VTune shows."""

from __future__ import annotations

import functools
import importlib
import threading
from functools import partial
from typing import Any

from ..autograd import mode
from ..cuda.emitter import Emitter
from ..runtime.absent import explain
from ..runtime.contexts import described
from ..runtime.kept import OPEN, Switch, of_thread
from .nvidia.nvtx import Ranges, sizes_of

__all__ = ["emit_itt"]

DOMAIN = "cugrad"


class _IttRanges(threading.local):
    entered = False


_here = of_thread(_IttRanges(), OPEN)


class emit_itt(Switch):
    """Context manager that makes every op and every backward node emit an ITT task.

    For `vtune -collect hotspots -- python train.py`. Tasks are in the domain "cugrad", and carry
    the name of the op, or of the node, alone, as PyTorch's do: ITT keeps every name for ever, so a
    sequence number in it would grow without end.

    Args:
        enabled: False makes the context manager a no-op.
        record_shapes: appends the sizes of the op's arguments: `mul, sizes=[[2, 3], []]`. An
            argument that is no tensor is `[]`, a list of tensors is one entry for each of them.

    Tasks are emitted for the ops of the thread that entered, which must also be the one that
    leaves. They go through the package ittapi; ImportError where it is missing. Raises RuntimeError
    when entered while active in this thread.

    >>> import cugrad
    >>> x = cugrad.ones(2, 3, requires_grad=True)
    >>> with cugrad.profiler.emit_itt(enabled=False):
    ...     (x * x).sum().backward()
    """

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled = enabled
        self.record_shapes = record_shapes
        self._tasks: Tasks | None = None

    def as_is(self) -> bool:
        if self.enabled and (self._tasks is not None or _here.entered):
            raise RuntimeError("ITT annotation context manager is not reentrant")
        return self.enabled

    def change(self, before: bool) -> emit_itt:
        if not self.enabled:
            return self
        self._tasks = Tasks(_library(), self.record_shapes)
        _here.entered = True
        mode.push_observer(self._tasks)
        return self

    __repr__ = described

    def put_back(self, before: bool) -> None:
        if self._tasks is not None:
            mode.pop_observer(self._tasks)
            self._tasks.close()
            _here.entered = False
            self._tasks = None


class Tasks(Ranges):
    """The ranges of emit_nvtx, with names that repeat."""

    def op_begin(self, name: str, seq: int, args: tuple[Any, ...]) -> None:
        if self._record_shapes:
            name += f", sizes={[size for arg in args for size in sizes_of(arg)]}"
        self._ranges.push(self._push, name)

    def node_begin(self, node: Any) -> None:
        self._ranges.push(self._push, node.name())


@functools.cache
def _library() -> Emitter:
    try:
        ittapi = importlib.import_module("ittapi")
    except ImportError as error:
        raise ImportError(
            f"emit_itt: {error}; tasks go through the package ittapi: pip install ittapi"
        ) from error
    domain = ittapi.domain(DOMAIN)
    handle = functools.cache(ittapi.string_handle)  # one for each name, for the life of the process
    begin, end = ittapi.task_begin, ittapi.task_end
    return Emitter(
        "itt", lambda name: partial(begin, domain, handle(name)), partial(end, domain),
        lambda name: None,
    )  # fmt: skip


explain(__name__)
