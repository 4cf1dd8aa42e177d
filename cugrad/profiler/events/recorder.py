"""The observer behind a profile: notes what begins and ends, and computes nothing yet."""

from __future__ import annotations

import tracemalloc
from threading import get_ident
from time import perf_counter_ns
from typing import Any, NamedTuple

from ...autograd.mode import state
from ...runtime.frames import users_frames
from ...tensor import Tensor, make
from .event import RecordScope

__all__ = ["STRIDE", "Detail", "Options", "Recorder", "Shape"]

OP, NODE, MODULE = RecordScope.FUNCTION, RecordScope.BACKWARD_FUNCTION, RecordScope.MODULE
SCOPES = {str(scope): scope for scope in RecordScope}
CONTAINERS = {RecordScope.USER_SCOPE, RecordScope.MODULE,
              RecordScope.RECOMPUTE}  # their device time is that of what runs in them  # fmt: skip
LONGEST = 64  # list of numbers that is noted
STRIDE = 5  # entries of the log for a beginning, or an end


class Options(NamedTuple):
    """What a profile looks at beyond the host's times."""

    shapes: bool = False
    flops: bool = False
    memory: bool = False
    stack: bool = False
    modules: bool = False
    aten: bool = False  # names are PyTorch's
    backend: Any = None  # of the device whose times are taken


class Detail:
    """What is noted of one event beyond its name and its times."""

    __slots__ = ("scope", "args", "result", "inputs", "stack", "modules", "memory", "pair",
                 "stream", "device", "nbytes", "mask", "owner")  # fmt: skip

    def __init__(self, scope: RecordScope) -> None:
        self.scope = scope
        self.args: tuple[Any, ...] = ()  # of an op, as `described`
        self.result: Any = None
        self.inputs: list[str] = []  # the names of the parameters behind the operands
        self.stack: list[tuple[Any, int]] | None = None
        self.modules: tuple[Any, ...] = ()
        self.memory: Any = None  # bytes on the host and the device when it began, when it ended
        self.pair: Any = None  # events of the device
        self.stream: Any = None
        self.device = 0
        self.nbytes = 0
        self.mask = 0  # of a node: the bit set of the inputs for which it gives gradients
        self.owner: Any = None  # of a range: the module


class Shape(NamedTuple):
    """A tensor, as far as a profile knows it."""

    shape: list[int]
    strides: list[int]
    dtype: str


class Recorder:
    """Writes a flat list: five entries whenever something begins or ends, in any thread.

    They are the thread, the name (None for an end), the sequence number, the detail or the scope,
    and the time. A flat list of plain values makes no work for the garbage collector.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.log: list[Any] = []
        self._note = self.log.extend
        self._open: dict[int, list[Detail]] = {}  # by thread; without details, only ranges
        self._modules: dict[int, list[Any]] = {}  # that run, by thread
        self.device_on = options.backend is not None
        self.zeros: dict[int, tuple[Any, int]] = {}  # by device
        self.cpu_on = True
        if not any(options):
            self.op_begin = self._plain_op_begin  # type: ignore[method-assign]
            self.op_end = self._plain_op_end  # type: ignore[method-assign]
            self.node_begin = self._plain_node_begin  # type: ignore[method-assign]
            self.node_end = self._plain_node_end  # type: ignore[method-assign]

    # ------------------------------------------------------------------ the host's times alone

    def _plain_op_begin(self, name: str, seq: int, args: tuple[Any, ...]) -> None:
        self._note((get_ident(), name, seq, OP, perf_counter_ns()))

    def _plain_op_end(self, name: str, seq: int, result: Any) -> None:
        now = perf_counter_ns()
        self._note((get_ident(), None, seq if _records(result) else -1, None, now))

    def _plain_node_begin(self, node: Any) -> None:
        self._note((get_ident(), node.name(), node.seq, NODE, perf_counter_ns()))

    def _plain_node_end(self, node: Any) -> None:
        now = perf_counter_ns()
        self._note((get_ident(), None, node.seq, None, now))

    # ------------------------------------------------------------------ all that is asked for

    def op_begin(self, name: str, seq: int, args: tuple[Any, ...]) -> None:
        """An op begins: notes its arguments, its line and its modules."""
        options, detail = self.options, Detail(OP)
        if options.aten and state.call is not None:  # else a Function of the user's
            name = f"aten::{name}{'_' * state.call[3]}"
        if options.shapes or options.flops:
            detail.args = tuple([described(arg) for arg in args])
            if state.call is not None:
                detail.inputs = list(state.call[2])
        if options.stack:
            detail.stack = lines_of_caller()
        types = () if options.backend is None else options.backend.array_types
        self._begin(name, seq, detail, None, on_device(args, types))

    def op_end(self, name: str, seq: int, result: Any) -> None:
        """It has ended."""
        now = perf_counter_ns()
        detail = self._end(now, seq if _records(result) else -1)
        if self.options.flops and detail is not None:
            first = result[0] if type(result) is tuple and result else result
            detail.result = described(first)

    def node_begin(self, node: Any) -> None:
        """A node begins. Its stack is that of the op that made it."""
        detail = Detail(NODE)
        detail.mask = getattr(getattr(node, "plan", None), "mask", 0)
        if self.options.shapes:
            detail.args = tuple([described(each) for each in state.given])
        if self.options.stack:
            detail.stack = []
        self._begin(node.name(), node.seq, detail, None, True)

    def node_end(self, node: Any) -> None:
        """It has ended."""
        self._end(perf_counter_ns(), node.seq)

    def range_begin(self, name: str, scope: str, nbytes: int, stream: Any, owner: Any) -> None:
        """Another range begins. Modules are noted only if they are asked for."""
        detail = Detail(SCOPES[scope])
        if scope == "module":
            if not self.options.modules:
                return
            self._modules.setdefault(get_ident(), []).append(owner)
            detail.owner = owner
        elif owner is not None and self.options.shapes:
            detail.args = (owner,)
        detail.nbytes = nbytes
        if self.options.stack:
            detail.stack = lines_of_caller()
        self._begin(name, -1, detail, stream, detail.scope not in CONTAINERS)

    def range_end(self, name: str) -> None:
        """The end of the range of this thread that has begun last."""
        now = perf_counter_ns()
        if name.startswith("nn.Module: "):
            if not self.options.modules:
                return
            self._modules[get_ident()].pop()
        self._end(now, -1)

    def _begin(self, name: str, seq: int, detail: Detail, stream: Any, timed: bool) -> None:
        options, thread = self.options, get_ident()
        self._open.setdefault(thread, []).append(detail)
        if options.modules:
            detail.modules = tuple(self._modules.get(thread, ()))
        if timed and self.device_on:
            backend = options.backend
            detail.stream = backend.current_stream() if stream is None else stream
            detail.device = backend.current_device() or 0
            if detail.device not in self.zeros:
                self.note_zero()
            detail.pair = backend.event(timing=True), backend.event(timing=True)
        if options.memory:
            detail.memory = self._memory()
        self._note((thread, name, seq, detail, perf_counter_ns()))
        if detail.pair is not None:
            detail.pair[0].record(detail.stream)

    def note_zero(self) -> None:
        """Notes a moment of the current device, and of the host: their clocks are different."""
        backend = self.options.backend
        zero = backend.event(timing=True)
        zero.record()
        self.zeros[backend.current_device() or 0] = zero, perf_counter_ns()

    def _end(self, now: int, seq: int) -> Detail | None:
        thread = get_ident()
        detail = self._open[thread].pop()
        if detail.pair is not None:
            detail.pair[1].record(detail.stream)
        if detail.memory is not None:
            detail.memory = *detail.memory, *self._memory()
        self._note((thread, None, seq, None, now))
        return detail

    def _memory(self) -> tuple[int, int]:
        backend = self.options.backend
        here = tracemalloc.get_traced_memory()[0]
        return here, 0 if backend is None else backend.memory_allocated()


def _records(result: Any) -> bool:
    """Whether an op has made a node. The result of an in-place op may have had one before."""
    if not state.grad_enabled:
        return False
    first = result[0] if type(result) is tuple and result else result
    return getattr(first, "_requires_grad", False)


def described(value: Any) -> Any:
    """An argument without its data: a Shape, a list of them, a plain value, or a text."""
    if isinstance(value, Tensor):
        name = str(value.dtype).removeprefix("torch.")
        return Shape(list(value.shape), [] if value.is_sparse else list(value.stride()), name)
    if hasattr(value, "dtype") and hasattr(value, "strides"):  # a gradient is an array
        return described(make(value))
    if isinstance(value, (list, tuple)):
        if len(value) > LONGEST and not any(isinstance(each, Tensor) for each in value):
            return f"{type(value).__name__} of {len(value)}"
        return [described(each) for each in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return type(value).__name__


def on_device(args: Any, types: tuple[type, ...]) -> bool:
    """Whether a tensor among the arguments is on the device with these arrays."""
    for arg in args:
        if isinstance(arg, Tensor):
            if isinstance((arg._values() if arg.is_sparse else arg)._array, types):
                return True
        elif isinstance(arg, (list, tuple)) and on_device(arg, types):
            return True
    return False


def lines_of_caller() -> list[tuple[Any, int]]:
    """The code objects and lines of the program that have called, the innermost first."""
    return [(frame.f_code, frame.f_lineno) for frame in users_frames()]
