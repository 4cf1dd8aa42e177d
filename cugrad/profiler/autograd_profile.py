"""The profiler of PyTorch's autograd: a context manager that times ops and nodes."""

from __future__ import annotations

import os
import tracemalloc
import uuid
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter_ns, time_ns
from typing import Any

from .. import backends
from ..autograd import mode
from .activities import ProfilerActivity
from .events.build import device_events, events_of
from .events.chrome import write_trace
from .events.event import DeviceType, FunctionEvent, FunctionEventAvg
from .events.event_list import EventList
from .events.recorder import STRIDE, Options, Recorder
from .nvidia.cupti import trace_kernels

__all__ = ["profile"]

DEVICES = ("cuda", "simulated")
PRIVATE = ProfilerActivity.PrivateUse1
COPIES, KERNELS = {"gpu_memcpy", "copy"}, {"concurrent_kernel", "kernel"}


class profile:
    """Context manager that times every op, every node of backward, and what else is a range.

    It sees the thread that entered it, and the threads in which a backward of it goes on. Most
    people want `cugrad.profiler.profile`, which is made of this. Profiles may be nested.

    Args:
        enabled: False makes the context manager a no-op.
        use_cuda: the old way to say `use_device="cuda"`.
        use_device: "cuda", or "simulated": takes the device's time of every op, node, copy and
            stall, by a pair of events on its stream. A pair holds what the stream did between
            them: where the device waits for the host, that too. Other values get a warning.
        record_shapes: the sizes, strides and dtypes of the arguments of ops, and their values.
        with_flops: floating-point operations of matrix products, convolutions, sums and products,
            forward and backward; implies `record_shapes`.
        profile_memory: bytes that events took and gave back: of the device's pool, and what
            tracemalloc counts on the host, Python's own objects among it.
        with_stack: the program's lines that led to each op; a node has those of its op.
        with_modules: the calls of modules as events, and the modules in which each event ran.
        use_kineto: on CUDA the kernels themselves, with their names, as events of their own, where
            CUPTI can be used (the package cupti-python); else pairs of events.
            It is what `use_cpu=False` needs.
        use_cpu: False leaves out all events but those of the device.
        experimental_config: None. Others are Kineto's, which is not used: TypeError.
        acc_events: entered again, it keeps the events that it has.
        custom_trace_id_callback: makes the number of a trace; a random one by default.
        post_processing_timeout_s: seconds after which events are made no more of what was noted.
        activity_filters: for an activity, the names of what is wanted of it: "GPU_MEMCPY" for
            copies, "CONCURRENT_KERNEL" for kernels; an empty set for nothing of it.
        names: "aten" gives events the names that readers of PyTorch's profiles look for:
            "aten::mul", "aten::mul_" in place, and an event "autograd::engine::evaluate_function:
            MulBackward0" around each node. "cugrad" gives ops their own names. By default the
            environment variable CUGRAD_PROFILE_NAMES says which, and cugrad's where it is not set.

    On the CPU it costs about 2 microseconds for an op; the options cost more. It is not a tree of
    C++ calls that is shown, as in PyTorch, but cugrad's ops, under their own names (see `names`).
    Entering it while active is a RuntimeError.

    >>> import cugrad as torch
    >>> x = torch.randn((1, 1), requires_grad=True)
    >>> with torch.autograd.profiler.profile() as prof:
    ...     for _ in range(100):  # any normal python code, really!
    ...         y = x ** 2
    ...         y.backward()
    >>> for average in prof.key_averages():
    ...     print(average.key, average.count)
    pow 100
    PowBackward0 100
    torch::autograd::AccumulateGrad 100
    """

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        use_cpu: bool = True,
        experimental_config: Any = None,
        acc_events: bool = False,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
        activity_filters: dict[ProfilerActivity, set[str]] | None = None,
        names: str | None = None,
    ) -> None:
        if experimental_config is not None:
            raise TypeError(
                "profile: experimental_config holds options of Kineto, which is not used here; got "
                f"{type(experimental_config).__name__}, want None"
            )
        if not (use_cpu or use_kineto):
            raise AssertionError("Device-only events supported only with Kineto (use_kineto=True)")
        if post_processing_timeout_s is not None and post_processing_timeout_s < 0:
            raise ValueError("post_processing_timeout_s must be non-negative")
        if use_cuda:
            warnings.warn(
                "The attribute `use_cuda` will be deprecated soon, please use ``use_device = "
                "'cuda'`` instead.", FutureWarning, stacklevel=2,
            )  # fmt: skip
            use_device = "cuda"
        self.enabled, self.use_cuda = enabled, use_cuda
        self.use_device = usable(use_device) if enabled else None
        if not use_cpu and self.use_device is None and enabled:
            raise AssertionError("No activities specified for the profiler")
        self.record_shapes, self.with_flops = record_shapes or with_flops, with_flops
        self.profile_memory, self.with_stack = profile_memory, with_stack
        self.with_modules, self.use_kineto, self.use_cpu = with_modules, use_kineto, use_cpu
        self.acc_events, self.custom_trace_id_callback = acc_events, custom_trace_id_callback
        self.post_processing_timeout_s = post_processing_timeout_s
        self.activity_filters = activity_filters or {}
        self.aten = wants_aten(names)
        self.trace_id = ""
        self.metadata: dict[str, Any] = {}  # of the trace that is written
        self.entered = False
        self._recorder: Recorder | None = None
        self._began = self._ended = self._clock = 0
        self._events: EventList | None = None
        self._earlier: EventList | None = None
        self._traces = False
        self._kernels: trace_kernels | None = None

    def __enter__(self) -> profile:
        if not self.enabled:
            return self
        if self.entered:
            raise RuntimeError("Profiler context manager is not reentrant")
        self.prepare()
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.enabled and self.entered:
            self.stop()

    # ------------------------------------------------------------------ in steps

    def prepare(self) -> None:
        """Starts the device and tracemalloc, which takes time that must not be in the profile."""
        make = self.custom_trace_id_callback
        self.trace_id = f"{uuid.uuid4().int:032X}" if make is None else make()
        backend = None if self.use_device is None else backends.get(self.use_device)
        if backend is not None:
            backend.event(timing=True).record()  # the first event takes long
        if self.profile_memory and not tracemalloc.is_tracing():
            tracemalloc.start()
            self._traces = True
        self._recorder = Recorder(
            Options(self.record_shapes, self.with_flops, self.profile_memory, self.with_stack,
                    self.with_modules, self.aten, backend)
        )  # fmt: skip
        self.entered = True

    def start(self) -> None:
        """Starts to record."""
        assert self._recorder is not None
        if self._events is not None and self.acc_events:
            self._earlier = self._events
        self._events = None
        self._kernels = self._trace_kernels()
        self._recorder.device_on = self._recorder.device_on and self._kernels is None
        if self._recorder.device_on:
            self._recorder.options.backend.synchronize()  # so that the device is idle now
        self._began, self._clock = perf_counter_ns(), time_ns()
        if self._recorder.device_on:
            self._recorder.note_zero()
        mode.push_observer(self._recorder)

    def stop(self) -> None:
        """Stops to record, and waits for the device."""
        recorder = self._recorder
        assert recorder is not None
        try:
            mode.pop_observer(recorder)
        except BaseException:  # an interrupt: the caller does not retry
            mode.pop_observer(recorder)
            raise
        if recorder.options.backend is not None:
            recorder.options.backend.synchronize()
        self._ended = perf_counter_ns()
        if self._kernels is not None:
            self._kernels.__exit__()
        if self._traces:
            tracemalloc.stop()
            self._traces = False
        self.entered = False
        if self.acc_events:
            self._ready()

    def toggle_collection_dynamic(
        self, enabled: bool, activities: Iterable[ProfilerActivity]
    ) -> None:
        """Stops, or goes on, noting activities while the profile runs: of the CPU, of the device.

        Without the CPU's nothing is noted.
        """
        recorder = self._recorder
        if recorder is None or not self.entered:
            return
        for activity in activities:
            if activity == ProfilerActivity.CPU:
                noted = recorder in mode.state.observers
                if noted != enabled:
                    (mode.push_observer if enabled else mode.pop_observer)(recorder)
            elif recorder.options.backend is not None:
                recorder.device_on = enabled

    # ------------------------------------------------------------------ what was found

    def _ready(self) -> EventList:
        """The events, which are made on the first request."""
        if self._events is not None:
            return self._events
        recorder = self._recorder
        if recorder is None or self.entered:
            raise AssertionError("Expected profiling results: the profile has not ended")
        events = events_of(
            recorder, self._began, self._ended, self.use_device, self.post_processing_timeout_s,
            self._kernels,
        )  # fmt: skip
        if self.use_device is not None:
            events = self._of_device(events, self.use_device, self._kernels is not None)
        self._recorder = self._kernels = None
        self._events = EventList(
            events, use_device=self.use_device, profile_memory=self.profile_memory,
            with_flops=self.with_flops,
        ).build_tree()  # fmt: skip
        if self._earlier is not None:
            self._events.extend(self._earlier)
            self._earlier = None
        return self._events

    def _of_device(
        self, events: list[FunctionEvent], device: str, own: bool
    ) -> list[FunctionEvent]:
        """The events that pass the filters. Kernels become events, unless they are (`own`)."""
        kept = []
        for event in events:
            if event.device_type == DeviceType.CPU:
                names = [kernel.name for kernel in event.kernels]
                event.kernels = [k for k in event.kernels if self._wanted(event, k.name)]
                kept += [event] if self.use_cpu or (names and not own) else []
            elif self._wanted(event, event.name):
                kept.append(event)
        return kept if self.use_cpu or own else device_events(kept, device)

    def _trace_kernels(self) -> trace_kernels | None:
        """A running recording by CUPTI, if it is asked for and can be used."""
        if self.use_device != "cuda" or not self.use_kineto:
            return None
        tracing = trace_kernels()
        try:
            return tracing.__enter__()
        except (ImportError, RuntimeError) as error:
            if not isinstance(error, ImportError):
                warnings.warn(f"profile: {error}; pairs of events give the times", stacklevel=5)
            return None

    def _wanted(self, event: FunctionEvent, kernel: str) -> bool:
        """Whether the filters let the device's work of an event pass."""
        activity = ProfilerActivity.CUDA if self.use_device == "cuda" else PRIVATE
        names = self.activity_filters.get(activity)
        if names is None:
            return True
        kinds = {name.lower() for name in names}
        copies = str(event.scope) in ("copy", "prefetch") or kernel.startswith("Memcpy")
        return bool(kinds & (COPIES if copies else KERNELS))

    @property
    def count(self) -> int:
        """How many events there are, or will be once they are made."""
        if self._events is not None:
            return len(self._events)
        return 0 if self._recorder is None else len(self._recorder.log) // STRIDE // 2

    @property
    def function_events(self) -> EventList:
        """All events, as FunctionEvents."""
        return self._ready()

    def __repr__(self) -> str:
        if self.entered or (self._recorder is None and self._events is None):
            return "<unfinished torch.autograd.profile>"
        return repr(self._ready())

    def __str__(self) -> str:
        if self.entered or (self._recorder is None and self._events is None):
            return "<unfinished torch.autograd.profile>"
        return str(self._ready())

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int | None = 75,
        max_name_column_width: int | None = 55,
        max_shapes_column_width: int | None = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
    ) -> str:
        """A line for each event; see `EventList.table`."""
        return self._ready().table(
            sort_by, row_limit, max_src_column_width, max_name_column_width,
            max_shapes_column_width, header, top_level_events_only,
        )  # fmt: skip

    def export_chrome_trace(
        self, path: str | Path, metadata: dict[str, Any] | None = None,
        use_python_export: bool = True,
    ) -> None:  # fmt: skip
        """Writes a Chrome trace; see `EventList.export_chrome_trace`.

        `metadata` are further entries of the file. There is one exporter, Python's:
        `use_python_export=False`, which asks for Kineto's, is a ValueError.
        """
        if not use_python_export:
            raise ValueError("export_chrome_trace: Kineto, which exports without Python, is absent")
        about = {
            "trace_id": self.trace_id, "baseTimeNanoseconds": self._clock,
            "record_shapes": int(self.record_shapes), "with_flops": int(self.with_flops),
            "profile_memory": int(self.profile_memory), "with_stack": int(self.with_stack),
            "with_modules": int(self.with_modules), **self.metadata, **(metadata or {}),
        }  # fmt: skip
        write_trace(self._ready(), path, about)

    def export_stacks(self, path: str | Path, metric: str = "self_cpu_time_total") -> None:
        """Writes the stacks, weighed; see `EventList.export_stacks`. Wants `with_stack=True`."""
        events = self._ready()
        if not self.with_stack:
            raise AssertionError("export_stacks() requires with_stack=True")
        events.export_stacks(path, metric)

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """Averages by name; see `EventList.key_averages`."""
        return self._ready().key_averages(
            group_by_input_shape, group_by_stack_n, group_by_overload_name
        )

    def total_average(self) -> FunctionEventAvg:
        """All events added up."""
        return self._ready().total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of the host in all events: the self times, added up."""
        return self._ready().self_cpu_time_total


def wants_aten(names: str | None) -> bool:
    """Whether events get PyTorch's names; ValueError for other names than "aten" and "cugrad"."""
    scheme = os.environ.get("CUGRAD_PROFILE_NAMES") or "cugrad" if names is None else names
    if scheme not in ("aten", "cugrad"):
        raise ValueError(
            f"profile: names, or CUGRAD_PROFILE_NAMES: got {scheme!r}, want 'aten' or 'cugrad'"
        )
    return scheme == "aten"


def usable(device: str | None) -> str | None:
    """The device whose times can be taken; None, with a warning, where they cannot."""
    if device is None:
        return None
    if device not in DEVICES:
        warnings.warn(f"The {device} is not a valid device option.", stacklevel=3)
        return None
    if not backends.is_usable(device):
        warnings.warn(f"{device.upper()} is not available, disabling {device.upper()} profiling",
                      stacklevel=3)  # fmt: skip
        return None
    return device
