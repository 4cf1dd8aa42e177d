"""The events of a profile, and their averages, under PyTorch's names."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

from . import table as tables

__all__ = [
    "DeviceType", "FunctionEvent", "FunctionEventAvg", "Interval", "Kernel", "RecordScope",
]  # fmt: skip


class DeviceType(IntEnum):
    """Where an event ran; the numbers are PyTorch's. PrivateUse1 is the simulated device."""

    CPU = 0
    CUDA = 1
    PrivateUse1 = 20


class RecordScope(IntEnum):
    """What an event is: the numbers below 100 are PyTorch's; copies and stalls are not there.

    >>> RecordScope.BACKWARD_FUNCTION == 1, str(RecordScope.COPY)
    (True, 'copy')
    """

    FUNCTION = 0  # an op
    BACKWARD_FUNCTION = 1  # a node of the graph
    USER_SCOPE = 7  # record_function, and the steps of a schedule
    MODULE = 100  # the forward of an nn.Module
    OPTIMIZER = 101  # the step of an optimizer
    COPY = 102  # an array on its way to the host, to disk, or back
    STALL = 103  # the host, or compute, waits for a copy
    PREFETCH = 104  # what is fetched ahead of its use
    RECOMPUTE = 105  # a checkpointed function that runs again
    MEMORY = 106  # memory that is taken or given back outside of all other events

    def __str__(self) -> str:
        return self.name.removesuffix("_FUNCTION").removesuffix("_SCOPE").lower()


class Interval:
    """A span of time in microseconds since the profile began."""

    __slots__ = ("start", "end")

    def __init__(self, start: float, end: float) -> None:
        self.start, self.end = start, end

    def elapsed_us(self) -> float:
        """The length of the span."""
        return self.end - self.start

    def __repr__(self) -> str:
        return f"Interval(start={self.start}, end={self.end})"


class Kernel(NamedTuple):
    """Device work that an event launched; its duration is in microseconds.

    `spans` are when it ran, in microseconds since the profile began, by the device's clock: several
    where other work of the same stream ran in between; none where that is not known.
    """

    name: str
    device: int
    duration: float
    stream: int = 0
    spans: tuple[tuple[float, float], ...] = ()


class EventTimes:
    """Averages, and the times as text. The rest is in `*_time_total` and `count`."""

    count: int
    cpu_time_total: float
    device_time_total: float
    self_cpu_time_total: float
    self_device_time_total: float
    self_device_memory_usage: int

    @property
    def cpu_time(self) -> float:
        """Microseconds of the host for a call."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def device_time(self) -> float:
        """Microseconds of the device for a call."""
        return self.device_time_total / self.count if self.count else 0.0

    @property
    def cpu_time_str(self) -> str:
        """`cpu_time` with its unit, and so are those below."""
        return tables.time_text(self.cpu_time)

    @property
    def device_time_str(self) -> str:
        return tables.time_text(self.device_time)

    @property
    def cpu_time_total_str(self) -> str:
        return tables.time_text(self.cpu_time_total)

    @property
    def device_time_total_str(self) -> str:
        return tables.time_text(self.device_time_total)

    @property
    def self_cpu_time_total_str(self) -> str:
        return tables.time_text(self.self_cpu_time_total)

    @property
    def self_device_time_total_str(self) -> str:
        return tables.time_text(self.self_device_time_total)

    @property
    def cuda_time(self) -> float:
        """`device_time` under its old name, and so are those below."""
        return self.device_time

    @property
    def cuda_time_total(self) -> float:
        return self.device_time_total

    @property
    def self_cuda_time_total(self) -> float:
        return self.self_device_time_total

    @property
    def self_cuda_memory_usage(self) -> int:
        return self.self_device_memory_usage


@dataclass(eq=False, repr=False)
class FunctionEvent(EventTimes):
    """One call of an op, of a node in backward, or of anything else that took time.

    Times are in microseconds since the profile began, sizes in bytes.

    Attributes:
        id: a number of its own; `node_id` is that of a process among several, else -1.
        name, key: of the op ("mul"), the node ("MulBackward0"), the range of the user.
        trace_name: what a Chrome trace shows; None leaves the event out of it.
        thread: the thread it ran in. `fwd_thread` of a node: the one of the op that made it.
        time_range: `start`, `end`, `elapsed_us()`; also as `start_us`, `end_us`.
        sequence_nr: of an op, the number of the node that it makes; of a node, its own; so a node
            belongs to the op of that number and of `fwd_thread`. -1 where there is none.
        scope: a RecordScope: FUNCTION, BACKWARD_FUNCTION, USER_SCOPE, MODULE, OPTIMIZER, COPY,
            STALL, PREFETCH, RECOMPUTE. It equals PyTorch's number; its text is "backward".
        device_type, device_index: where it ran: CPU, or a device for kernels that are events of
            their own. `device_resource_id` is the stream, or the thread.
        use_device: the kind of device that the profile measured, or None: it counts no device time.
        kernels: Kernel(name, device, duration, stream, spans) for what the event itself launched;
            what its children launched is theirs.
        input_shapes: the sizes of each argument, `[]` for one that is no tensor, and for a list of
            tensors, whose sizes are in `structured_input_shapes`; with `record_shapes`. Then also
            `structured_input_strides`, `input_dtypes`, `concrete_inputs`, `kwinputs`.
        stack: lines of the program, the innermost first, with `with_stack`; of a node, those of the
            op that made it.
        module_hierarchy: the modules it ran in, "Net.Linear", with `with_modules`.
        flops: floating-point operations, with `with_flops`, where known.
        cpu_memory_usage, device_memory_usage: bytes taken less bytes given back while it ran.
        nbytes: what a copy moved.
        cpu_parent, cpu_children: what it ran in, and what ran directly in it, in the same thread.
        is_async: begins and ends in different threads; has no children, and no self time.
        is_remote, is_legacy, is_user_annotation, is_python_function, overload_name, activity_type,
        metadata_json, flow_id, flow_type, flow_start, external_id, linked_correlation_id,
        extra_meta, python_id, python_parent_id, python_module_id: as the source of the event, a
            file perhaps, gives them.

    >>> event = FunctionEvent(1, "mul", thread=1, start_us=10, end_us=25, sequence_nr=7)
    >>> event.cpu_time_total, event.key, event.sequence_nr
    (15, 'mul', 7)
    """

    id: int
    name: str
    thread: int
    start_us: InitVar[float]
    end_us: InitVar[float]
    overload_name: str | None = None
    fwd_thread: int | None = None
    input_shapes: Any = None
    stack: list[str] | None = None
    scope: int = RecordScope.FUNCTION
    use_device: str | None = None
    cpu_memory_usage: int = 0
    device_memory_usage: int = 0
    is_async: bool = False
    is_remote: bool = False
    sequence_nr: int = -1
    node_id: int = -1
    device_type: int = DeviceType.CPU
    device_index: int = 0
    device_resource_id: int | None = None
    is_legacy: bool = False
    flops: int | None = None
    trace_name: str | None = None
    concrete_inputs: Any = None
    kwinputs: dict[str, Any] | None = None
    is_user_annotation: bool | None = False
    is_python_function: bool = False
    activity_type: str | None = None
    metadata_json: str | None = None
    flow_id: int | None = None
    flow_type: int | None = None
    flow_start: bool | None = None
    external_id: int = 0
    linked_correlation_id: int = 0
    extra_meta: dict[str, str] | None = None
    structured_input_shapes: list[Any] | None = None
    structured_input_strides: list[Any] | None = None
    input_dtypes: list[str] | None = None
    python_id: int = -1
    python_parent_id: int = -1
    python_module_id: int = -1
    nbytes: int = 0
    module_hierarchy: str = ""
    time_range: Interval = field(init=False)
    kernels: list[Kernel] = field(init=False, default_factory=list)
    cpu_children: list[FunctionEvent] = field(init=False, default_factory=list)
    cpu_parent: FunctionEvent | None = field(init=False, default=None)
    count: int = field(init=False, default=1)

    def __post_init__(self, start_us: float, end_us: float) -> None:
        self.time_range = Interval(start_us, end_us)
        if self.device_resource_id is None:
            self.device_resource_id = self.thread

    def append_kernel(
        self, name: str, device: int, duration: float, stream: int = 0,
        spans: tuple[tuple[float, float], ...] = (),
    ) -> None:  # fmt: skip
        """Adds device work that this event launched."""
        self._on_cpu("append_kernel")
        self.kernels.append(Kernel(name, device, duration, stream, spans))

    def append_cpu_child(self, child: FunctionEvent) -> None:
        """Adds what ran directly inside."""
        self._on_cpu("append_cpu_child")
        child._on_cpu("append_cpu_child")
        self.cpu_children.append(child)

    def set_cpu_parent(self, parent: FunctionEvent) -> None:
        """Sets the event that this ran directly in."""
        self._on_cpu("set_cpu_parent")
        parent._on_cpu("set_cpu_parent")
        self.cpu_parent = parent

    def _on_cpu(self, what: str) -> None:
        if self.device_type != DeviceType.CPU:
            raise AssertionError(f"{what}: got {self.name!r}, of a device; want an event of CPU")

    @property
    def key(self) -> str:
        """What events are averaged by: the name."""
        return self.name

    @property
    def cpu_time_total(self) -> float:  # type: ignore[override]
        """Microseconds of the host, with all that ran inside."""
        return self.time_range.elapsed_us() if self.device_type == DeviceType.CPU else 0

    @property
    def self_cpu_time_total(self) -> float:  # type: ignore[override]
        """Microseconds of the host, without what ran inside."""
        if self.is_async or self.device_type != DeviceType.CPU:
            return 0
        return self.cpu_time_total - sum(each.cpu_time_total for each in self.cpu_children)

    @property
    def device_time_total(self) -> float:  # type: ignore[override]
        """Microseconds of the device, with what ran inside."""
        if self.is_async or not self.use_device:
            return 0
        if self.device_type != DeviceType.CPU:
            return self.time_range.elapsed_us()
        total, waiting = 0.0, [self]
        while waiting:  # not recursive: nesting is as deep as the user's
            event = waiting.pop()
            total += sum(kernel.duration for kernel in event.kernels)
            if not event.is_legacy:  # there the kernels of a parent include those of its children
                waiting += event.cpu_children
        return total

    @property
    def self_device_time_total(self) -> float:  # type: ignore[override]
        """Microseconds of the device, without what ran inside."""
        if self.is_async or not self.use_device:
            return 0
        if self.device_type != DeviceType.CPU:
            return self.device_time_total
        own = sum(kernel.duration for kernel in self.kernels)
        if self.is_legacy:
            own -= sum(each.device_time_total for each in self.cpu_children)
        return own

    @property
    def self_cpu_memory_usage(self) -> int:
        """Bytes of the host taken less given back, without what ran inside."""
        if self.is_async or self.device_type != DeviceType.CPU:
            return 0
        return self.cpu_memory_usage - sum(each.cpu_memory_usage for each in self.cpu_children)

    @property
    def self_device_memory_usage(self) -> int:  # type: ignore[override]
        """Bytes of the device taken less given back, without what ran inside."""
        if self.is_async or self.device_type != DeviceType.CPU:
            return 0
        inside = sum(each.device_memory_usage for each in self.cpu_children)
        return self.device_memory_usage - inside

    def __repr__(self) -> str:
        device = self.use_device
        children = str([child.id for child in self.cpu_children])
        return (
            f"<FunctionEvent id={self.id} name={self.name} overload_name={self.overload_name} "
            f"device_type={DeviceType(self.device_type)!r} node_id={self.node_id} "
            f"cpu_time={self.cpu_time_str} start_us={self.time_range.start} "
            f"end_us={self.time_range.end} cpu_children={children} "
            f"{device}_time={self.device_time_str} name={self.name} thread={self.thread} "
            f"input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage} "
            f"{device}_memory_usage={self.device_memory_usage} is_async={self.is_async} "
            f"is_remote={self.is_remote} seq_nr={self.sequence_nr} is_legacy={self.is_legacy}>"
        )


class FunctionEventAvg(EventTimes):
    """The sum of several events of one key; `cpu_time` and `device_time` are the averages.

    Attributes are those of FunctionEvent; what cannot be added up is the first event's.
    """

    def __init__(self) -> None:
        self.key: str | None = None
        self.count = 0
        self.node_id = 0
        self.is_async = self.is_remote = self.is_legacy = False
        self.is_user_annotation: bool | None = False
        self.use_device: str | None = None
        self.cpu_time_total = 0
        self.device_time_total = 0
        self.self_cpu_time_total = 0
        self.self_device_time_total = 0
        self.input_shapes: Any = None
        self.overload_name: str | None = None
        self.stack: list[str] | None = None
        self.scope: int | None = None
        self.cpu_memory_usage = 0
        self.device_memory_usage = 0
        self.self_cpu_memory_usage = 0
        self.self_device_memory_usage = 0
        self.cpu_children: list[FunctionEvent] | None = None
        self.cpu_parent: FunctionEvent | None = None
        self.device_type: int = DeviceType.CPU
        self.flops: int | None = 0
        self.nbytes = 0

    def add(self, other: Event) -> FunctionEventAvg:
        """Adds an event, or an average, of the same key; the first one gives the key."""
        if not isinstance(other, (FunctionEvent, FunctionEventAvg)):
            raise AssertionError(f"add: got {type(other).__name__}, want a FunctionEvent[Avg]")
        if self.key is None:
            for name in FIRST:
                setattr(self, name, getattr(other, name))
        if other.key != self.key:
            raise AssertionError(f"add: got key {other.key!r}, want {self.key!r}")
        for name in ADDED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.flops is not None:
            self.flops = (self.flops or 0) + other.flops
        return self

    def __iadd__(self, other: Event) -> FunctionEventAvg:
        return self.add(other)

    def __repr__(self) -> str:
        device = self.use_device or "cuda"
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} "
            f"cpu_time={self.cpu_time_str}  self_{device}_time={self.self_device_time_total_str} "
            f"{device}_time={self.device_time_str} input_shapes={self.input_shapes} "
            f"cpu_memory_usage={self.cpu_memory_usage} "
            f"{device}_memory_usage={self.device_memory_usage}>"
        )


Event: TypeAlias = FunctionEvent | FunctionEventAvg
FIRST = ("key", "node_id", "is_async", "is_remote", "cpu_parent", "cpu_children", "overload_name",
         "input_shapes", "stack", "scope", "device_type", "is_legacy", "use_device",
         "is_user_annotation")  # fmt: skip
ADDED = ("cpu_time_total", "device_time_total", "self_cpu_time_total", "self_device_time_total",
         "cpu_memory_usage", "device_memory_usage", "self_cpu_memory_usage",
         "self_device_memory_usage", "count", "nbytes")  # fmt: skip
