"""Wraps every op and every backward node in an NVTX range that carries its sequence number."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

from ...autograd import mode
from ...autograd.recording.node import SEQ_LIMIT
from ...cuda.emitter import Emitter, OpenRange, emitter, numbered_emitter
from ...runtime.contexts import described
from ...runtime.kept import OPEN, Switch, of_thread
from ...tensor import Tensor


class _NvtxRanges(threading.local):
    entered = False


_here = of_thread(_NvtxRanges(), OPEN)


class emit_nvtx(Switch):
    """Context manager that makes every op and every backward node emit an NVTX range.

    A forward range reads `mul, seq=12`: a node that the op makes carries number 12. The range of
    that node in backward reads `MulBackward0, stashed seq=12`, so a profile tells which op made
    which node. Under `create_graph=True` the ops inside backward emit ranges of their own, with the
    numbers that their nodes carry in the double backward.

    Args:
        enabled: False makes the context manager a no-op.
        record_shapes: appends the sizes of the op's arguments: `mul, seq=12, sizes=[[2, 3], []]`.
            An argument that is no tensor is `[]`, a list of tensors is one entry for each of them.
            Backward ranges have none.
        payload: the number is the range's payload, a whole number, and the text is one of few:
            `mul, seq` and `MulBackward0, stashed seq`. The loaders of traces read both.

    Ranges are emitted for the ops of the thread that entered, which must also be the one that
    leaves: NVTX keeps a stack for each thread. A thread that runs a backward of its own enters its
    own emit_nvtx.

    They go through CuPy's NVTX if CuPy is installed, else through the `nvtx` package, else nowhere,
    with one UserWarning; the environment variable CUGRAD_NVTX (`cupy`, `nvtx`, `none`) forces one.
    Texts are passed on and not kept, through either. The tool must be attached when the process
    first calls NVTX; where none is, ops run as they do outside of the block (with CuPy and without
    the `nvtx` package cannot tell). Unlike PyTorch's, entering and leaving do not synchronise the
    device: tools attribute a kernel to the range that launched it.

    Raises RuntimeError when entered while active in this thread, as PyTorch's does; with `payload`,
    ImportError where the `nvtx` package is missing.

    >>> import cugrad
    >>> x = cugrad.ones(2, 3, requires_grad=True)
    >>> with cugrad.profiler.emit_nvtx(record_shapes=True):
    ...     (x * x).sum().backward()
    """

    def __init__(
        self, enabled: bool = True, record_shapes: bool = False, *, payload: bool = False
    ) -> None:
        self.enabled = enabled
        self.record_shapes = record_shapes
        self.payload = payload
        self._ranges: Ranges | None = None
        self._entered = False

    def as_is(self) -> bool:
        if self.enabled and (self._entered or _here.entered):
            raise RuntimeError("NVTX annotation context manager is not reentrant")
        return self.enabled

    def change(self, before: bool) -> emit_nvtx:
        if not self.enabled:
            return self
        library = numbered_emitter() if self.payload else emitter()
        self._entered = _here.entered = True
        if library is not None and library.attached():
            self._ranges = Ranges(library, self.record_shapes, self.payload)
            mode.push_observer(self._ranges)
        return self

    __repr__ = described

    def put_back(self, before: bool) -> None:
        if not self._entered:
            return
        if self._ranges is not None:
            mode.pop_observer(self._ranges)
            self._ranges.close()
        self._ranges = None
        self._entered = _here.entered = False


class Ranges:
    """An observer that pushes a range at each begin and pops it at the end of the same op or node.

    It knows which ranges are its own: if it is entered in the middle of an op, it pops no range
    that it did not push; if it is closed there, it pops all that are open.
    """

    def __init__(
        self, library: Emitter, record_shapes: bool = False, payload: bool = False
    ) -> None:
        self._push, self._pop = library.push, library.pop
        self._numbered = library.push_numbered if payload else None
        self._record_shapes = record_shapes
        self._ranges = OpenRange()

    def op_begin(self, name: str, seq: int, args: tuple[Any, ...]) -> None:
        sizes = ""
        if self._record_shapes:
            sizes = f", sizes={[size for arg in args for size in sizes_of(arg)]}"
        self._open(f"{name}, seq", seq, sizes)

    def op_end(self, name: str, seq: int, result: Any) -> None:
        self._close()

    def node_begin(self, node: Any) -> None:
        if node.seq < SEQ_LIMIT:
            self._open(f"{node.name()}, stashed seq", node.seq)
        else:
            self._ranges.push(self._push, node.name())

    def node_end(self, node: Any) -> None:
        self._close()

    def range_begin(self, name: str, scope: str, nbytes: int, stream: Any, owner: Any) -> None:
        self._ranges.push(self._push, range_text(name, scope))

    def range_end(self, name: str) -> None:
        self._close()

    def close(self) -> None:
        """Pops what is still open."""
        while self._ranges:
            self._close()

    def _open(self, text: str, number: int, rest: str = "") -> None:
        if self._numbered is None:
            self._ranges.push(self._push, f"{text}={number}{rest}")
        else:
            self._ranges.push(self._numbered, text + rest, number)

    def _close(self) -> None:
        if self._ranges:
            self._ranges.pop_by(self._pop)


def range_text(name: str, scope: str) -> str:
    """The text of a range that is no op. That of a copy or a stall says so, for readers of traces.

    >>> range_text("Linear", "module"), range_text("wait for the disk", "stall")
    ('Linear', 'stall: wait for the disk')
    """
    if scope in ("copy", "prefetch", "stall", "recompute") and scope not in name:
        return f"{scope}: {name}"
    return name


def sizes_of(arg: Any) -> Iterator[list[int]]:
    """The sizes that PyTorch lists for an argument: one entry, or one for each tensor of a list.

    >>> import cugrad
    >>> list(sizes_of(cugrad.ones(2, 3))), list(sizes_of(1.5)), list(sizes_of([2, 3]))
    ([[2, 3]], [[]], [[]])
    >>> list(sizes_of([cugrad.ones(2), cugrad.ones(4, 1)]))
    [[2], [4, 1]]
    """
    if isinstance(arg, Tensor):
        yield list(arg.shape)
    elif isinstance(arg, Sequence) and any(isinstance(each, Tensor) for each in arg):
        yield from (list(each.shape) for each in arg if isinstance(each, Tensor))
    else:
        yield []
