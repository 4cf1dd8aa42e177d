"""Makes events of what a recorder has written down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import Any

from ...autograd.recording.node import SEQ_LIMIT
from ..correlation.joining import EVALUATE
from ..nvidia.cupti import trace_kernels
from .event import DeviceType, FunctionEvent, RecordScope
from .flops import backward_flops, flops_of
from .recorder import STRIDE, Detail, Options, Recorder, Shape

__all__ = ["events_of"]

TINY = 512  # bytes of the host between two events: Python's own objects
Zeros = dict[int, tuple[Any, int]]
KINDS = {"cuda": DeviceType.CUDA}


class Open:
    """An event that has begun, and the device times of its children, by stream."""

    __slots__ = ("event", "detail", "inside", "counted", "outer")

    def __init__(
        self, event: FunctionEvent, detail: Detail | None, outer: FunctionEvent | None
    ) -> None:
        self.event, self.detail, self.outer = event, detail, outer
        self.inside: dict[Any, list[tuple[float, float]]] = {}
        self.counted = False  # whether its children count flops: then it has none itself


class Builder:
    """Events of one profile, as they are made."""

    def __init__(self, use_device: str | None, began: int, aten: bool = False) -> None:
        self.streams: dict[Any, int] = {}  # numbers by device and stream
        self.events: list[FunctionEvent] = []
        self.use_device, self.began, self.aten = use_device, began, aten
        self.threads: dict[int, int] = {}
        self.makers: dict[int, FunctionEvent] = {}  # ops by the number of the node that they made
        self.stacks: dict[int, list[Open]] = {}
        self.memory: dict[int, tuple[int, int, float]] = {}  # when a thread's last event ended
        self.numbers: dict[Any, int] = {}  # of modules, among those of their class
        self.counts: dict[str, int] = {}
        self.hierarchies: dict[tuple[Any, ...], str] = {(): ""}

    def begin(self, ident: int, name: str, seq: int, what: Any, time: int, end: int) -> None:
        """Begins an event. Until its end is known, it ends with the profile."""
        thread = self.threads.setdefault(ident, len(self.threads) + 1)
        detail = what if type(what) is Detail else None
        scope = what if detail is None else detail.scope
        start = (time - self.began) / 1e3
        if detail is not None and detail.memory is not None:
            self._between(thread, detail)
        node, outer = scope == RecordScope.BACKWARD_FUNCTION, None
        times = start, max(start, (end - self.began) / 1e3)
        if node and self.aten:  # PyTorch's engine has an event of its own around each node
            outer = self._event(EVALUATE + name, thread, *times, RecordScope.FUNCTION)
        event = self._event(name, thread, *times, scope)
        event.is_user_annotation = scope == RecordScope.USER_SCOPE
        if event.is_user_annotation and name.startswith("ProfilerStep#"):
            event.name = "ProfilerStep*"
        if node:
            maker = self.makers.get(seq)
            for each in (event, outer or event):
                each.sequence_nr = seq if seq < SEQ_LIMIT else -1
                each.fwd_thread = 0 if maker is None else maker.thread
            if detail is not None and maker is not None:
                event.flops = backward_flops(bare(maker.name), maker.flops, detail.mask)
        if detail is not None:
            self._describe(event, detail)
        self.stacks.setdefault(ident, []).append(Open(event, detail, outer))

    def _event(
        self, name: str, thread: int, start: float, end: float, scope: RecordScope
    ) -> FunctionEvent:
        """An event of the host, among the others."""
        event = FunctionEvent(
            len(self.events) + 1, name, thread, start, end, fwd_thread=0, scope=scope,
            use_device=self.use_device, trace_name=name, input_shapes=[], stack=[],
        )  # fmt: skip
        self.events.append(event)
        return event

    def end(self, ident: int, seq: int, time: int, options: Options, zeros: Zeros) -> None:
        """The end of the last event of a thread that has begun."""
        stack = self.stacks[ident]
        last = stack.pop()
        event, detail = last.event, last.detail
        for each in (event, last.outer or event):
            each.time_range.end = (time - self.began) / 1e3
        if event.scope == RecordScope.FUNCTION and seq >= 0:
            event.sequence_nr = seq
            self.makers[seq] = event
        if detail is None:
            return
        if options.flops and event.scope == RecordScope.FUNCTION:
            result = detail.result.shape if isinstance(detail.result, Shape) else None
            shapes = [x.shape if isinstance(x, Shape) else [] for x in detail.args]
            event.flops = flops_of(bare(event.name), shapes, result)
        if detail.memory is not None and len(detail.memory) == 4:
            for each in (event, last.outer or event):
                each.cpu_memory_usage = detail.memory[2] - detail.memory[0]
                each.device_memory_usage = detail.memory[3] - detail.memory[1]
            if not stack:
                self.memory[event.thread] = *detail.memory[2:], event.time_range.end
        if detail.pair is not None:
            self._time(last, *zeros[detail.device])
        if last.counted:
            event.flops = None
        if stack:
            stack[-1].counted |= last.counted or bool(event.flops)
            around = stack[-1].inside
            for stream, spans in last.inside.items():
                around.setdefault(stream, []).extend(spans)

    def _time(self, last: Open, zero: Any, time: int) -> None:
        """Sets when an event itself ran on the device, without the times of its children. `zero` is
        an event of the device that happened at `time` of the host.
        """
        detail = last.detail
        assert detail is not None
        begin, end = detail.pair
        detail.pair, device = None, detail.device
        pointer = getattr(detail.stream, "ptr", None)
        key = device, id(detail.stream) if pointer is None else pointer
        stream = self.streams.setdefault(key, len(self.streams))
        start = (time - self.began) / 1e3 + zero.elapsed_time(begin) * 1e3
        whole = round(start, 3), round(start + begin.elapsed_time(end) * 1e3, 3)  # as in a trace
        spans = tuple(without(whole, last.inside.get(key, [])))
        last.inside[key] = [whole]
        own = round(sum(stop - start for start, stop in spans), 3)
        if own > 0:
            last.event.append_kernel(last.event.name, device, own, stream, spans)

    def _describe(self, event: FunctionEvent, detail: Detail) -> None:
        """Shapes, lines, modules."""
        event.nbytes = detail.nbytes
        args = detail.args[: len(detail.args) - len(detail.inputs)]
        event.input_shapes = [x.shape if isinstance(x, Shape) else [] for x in args]
        if args:
            event.structured_input_shapes = [_nested(x, "shape") for x in args]
            event.structured_input_strides = [_nested(x, "strides") for x in args]
            event.input_dtypes = [_kind(x) for x in args]
            event.concrete_inputs = [None if _is_tensors(x) else x for x in args]
            event.kwinputs = dict(zip(detail.inputs, detail.args[len(args) :]))
        if detail.stack:
            event.stack = [f"{c.co_filename}({line}): {c.co_name}" for c, line in detail.stack]
        if detail.modules not in self.hierarchies:
            self.hierarchies[detail.modules] = hierarchy(detail.modules)
        event.module_hierarchy = self.hierarchies[detail.modules]
        if event.scope == RecordScope.MODULE:
            event.is_python_function = True
            kind = type(detail.owner).__name__
            if id(detail.owner) not in self.numbers:
                self.numbers[id(detail.owner)] = self.counts.get(kind, 0)
                self.counts[kind] = self.counts.get(kind, 0) + 1
            number = self.numbers[id(detail.owner)]
            event.name = event.trace_name = f"nn.Module: {kind}_{number}"

    def _between(self, thread: int, detail: Detail) -> None:
        """Memory that was taken or given back since the last event of a thread ended."""
        before = self.memory.pop(thread, None)
        if before is None:
            return
        here, there, now = detail.memory[0] - before[0], detail.memory[1] - before[1], before[2]
        if there or abs(here) >= TINY:
            self.events.append(
                FunctionEvent(
                    len(self.events) + 1, "[memory]", thread, now, now, input_shapes=[], stack=[],
                    scope=RecordScope.MEMORY, use_device=self.use_device, cpu_memory_usage=here,
                    device_memory_usage=there,
                )
            )  # fmt: skip


def events_of(
    recorder: Recorder, began: int, ended: int, use_device: str | None, timeout: float | None,
    kernels: trace_kernels | None = None,
) -> list[FunctionEvent]:  # fmt: skip
    """The events of a profile by their beginning; those of the first `timeout` seconds of work.

    `kernels` is what CUPTI has recorded meanwhile, if it has.
    """
    log, options = recorder.log, recorder.options
    builder = Builder(use_device, began, options.aten)
    deadline = None if timeout is None else perf_counter() + timeout
    for i in range(0, len(log), STRIDE):
        ident, name, seq, what, time = log[i : i + STRIDE]
        if name is None:
            builder.end(ident, seq, min(time, ended), options, recorder.zeros)
        else:
            builder.begin(ident, name, seq, what, time, ended)
        if deadline is not None and perf_counter() > deadline:
            break
    if kernels is not None:
        builder.events += launched(builder, kernels)
    return builder.events


def launched(builder: Builder, trace: trace_kernels) -> list[FunctionEvent]:
    """What CUPTI has recorded, as events of the device; ops and nodes get their kernels.

    The nth op or node of a thread is the same in the profile as in the trace.
    """
    ours: dict[int, list[FunctionEvent]] = {}
    for event in builder.events:
        ran = event.scope in (RecordScope.FUNCTION, RecordScope.BACKWARD_FUNCTION)
        if ran and not event.name.startswith(EVALUATE):
            ours.setdefault(event.thread, []).append(event)
    nth: dict[int, int] = {}
    pairs: list[tuple[FunctionEvent | None, Any]] = [(None, each) for each in trace.outside]
    offset: float | None = None  # between the clocks, in microseconds
    for span in trace.spans_begun():
        thread = builder.threads.get(span.thread, 0)
        n = nth[thread] = nth.get(thread, -1) + 1
        events = ours.get(thread, [])
        asked = events[n] if n < len(events) else None
        if offset is None and asked is not None:
            offset = span.start / 1e3 - asked.time_range.start
        pairs += [(asked, activity) for activity in span.activities]
    kernels: list[FunctionEvent] = []
    for asked, activity in sorted(pairs, key=lambda pair: pair[1].start):
        start, end = (time / 1e3 - (offset or 0.0) for time in (activity.start, activity.end))
        if asked is not None:
            asked.append_kernel(activity.name, activity.device, end - start)
            asked.nbytes += activity.nbytes if activity.kind == "copy" else 0
        number = 0 if asked is None else asked.id
        kernels.append(
            FunctionEvent(
                len(builder.events) + len(kernels) + 1, activity.name, 0, max(start, 0.0),
                max(end, 0.0), use_device=builder.use_device, device_type=DeviceType.CUDA,
                device_index=activity.device, device_resource_id=activity.stream,
                trace_name=activity.name, activity_type=activity.kind, nbytes=activity.nbytes,
                linked_correlation_id=number, external_id=number, input_shapes=[], stack=[],
            )
        )  # fmt: skip
    return kernels


def without(
    whole: tuple[float, float], parts: Iterable[tuple[float, float]]
) -> Iterator[tuple[float, float]]:
    """A span of time without some parts of it. Pieces shorter than 1 ns are left out.

    >>> list(without((0.0, 10.0), [(4.0, 6.0), (1.0, 2.0), (9.0, 12.0)]))
    [(0.0, 1.0), (2.0, 4.0), (6.0, 9.0)]
    """
    start, stop = whole
    for begin, end in sorted(parts):
        if begin - start > 1e-3:
            yield start, min(begin, stop)
        start = max(start, end)
    if stop - start > 1e-3:
        yield start, stop


def device_events(events: list[FunctionEvent], use_device: str) -> list[FunctionEvent]:
    """The kernels of events as events of the device, at the times when they ran. Kernels with
    unknown times are put one after the other, in the order of their launch.
    """
    kernels: list[FunctionEvent] = []
    kind, free = KINDS.get(use_device, DeviceType.PrivateUse1), dict[int, float]()
    for event in events:
        for kernel in event.kernels:
            spans = kernel.spans
            if not spans:
                start = max(event.time_range.start, free.get(kernel.device, 0.0))
                free[kernel.device] = start + kernel.duration
                spans = ((start, start + kernel.duration),)
            for start, end in spans:
                kernels.append(
                    FunctionEvent(
                        len(kernels) + 1, kernel.name, 0, start, end, use_device=use_device,
                        device_type=kind, device_index=kernel.device, trace_name=kernel.name,
                        device_resource_id=kernel.stream, linked_correlation_id=event.id,
                        external_id=event.id, input_shapes=[], stack=[],
                    )
                )  # fmt: skip
    return kernels


def hierarchy(modules: tuple[Any, ...]) -> str:
    """The modules that run, the outermost by its class, the others by their name in the one above.

    >>> import cugrad as torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 2))
    >>> hierarchy((net, net[0]))
    'Sequential.0'
    """
    names = []
    for above, module in zip((None, *modules), modules):
        named = () if above is None else above.named_modules()
        path = next((name for name, each in named if each is module), None)
        names.append(path or type(module).__name__)
    return ".".join(names)


def bare(name: str) -> str:
    """The name of an op, without PyTorch's namespace: `mul` of `aten::mul`."""
    return name.removeprefix("aten::")


def _nested(value: Any, what: str) -> Any:
    """Shapes or strides of an argument: of a list of tensors, a list of them."""
    if isinstance(value, Shape):
        return getattr(value, what)
    return [getattr(x, what) for x in value] if _is_tensors(value) else []


def _is_tensors(value: Any) -> bool:
    """Whether a value is a tensor, or a list with tensors."""
    if isinstance(value, Shape):
        return True
    return isinstance(value, list) and bool(value) and all(isinstance(x, Shape) for x in value)


def _kind(value: Any) -> str:
    """The dtype of a tensor; what else PyTorch calls an argument."""
    if isinstance(value, Shape):
        return value.dtype
    if isinstance(value, list):
        return "TensorList" if _is_tensors(value) else "ScalarList"
    return "Scalar" if isinstance(value, (bool, int, float)) else ""
