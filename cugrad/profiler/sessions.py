"""PyTorch's `torch.profiler.profile`: a profile of chosen steps of a training loop."""

from __future__ import annotations

import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import Any

from . import autograd_profile
from .activities import ProfilerActivity, parse_activities
from .events.event_list import EventList
from .labels import record_function

__all__ = ["ProfilerAction", "profile", "schedule", "tensorboard_trace_handler"]

DEVICES = {ProfilerActivity.CUDA: "cuda", ProfilerActivity.PrivateUse1: "simulated"}


class ProfilerAction(Enum):
    """What a profile does in a step. RECORD_AND_SAVE is the last step of a cycle."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


NONE, WARMUP, RECORD, SAVE = ProfilerAction
Schedule = Callable[[int], ProfilerAction]


MADE_BY = {
    "schedule": "of the number of a step; schedule(wait=1, warmup=1, active=3) makes one",
    "on_trace_ready": "of the profile; tensorboard_trace_handler(directory) makes one",
}


def schedule(
    *,
    wait: int,
    warmup: int,
    active: int,
    repeat: int = 0,
    skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Schedule:
    """The function that says for each step what a profile does in it.

    It skips the first steps, and then, `repeat` times (for ever if 0), it waits, warms up, and
    records `active` steps. With `skip_first_wait` other than 0 the first cycle does not wait.

    AssertionError for negative numbers, and where `active` is not positive.

    >>> plan = schedule(wait=1, warmup=1, active=2, repeat=1)
    >>> [plan(step).name for step in range(5)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    if wait < 0 or warmup < 0 or active <= 0 or repeat < 0 or skip_first < 0:
        raise AssertionError(
            f"Invalid profiler schedule arguments. Got wait={wait} (need >= 0), warmup={warmup} "
            f"(need >= 0), active={active} (need > 0), repeat={repeat} (need >= 0), "
            f"skip_first={skip_first} (need >= 0)."
        )
    if warmup == 0:
        warnings.warn("Profiler won't be using warmup, this can skew profiler results",
                      stacklevel=2)  # fmt: skip
    cycle = wait + warmup + active

    def plan(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        if step < skip_first:
            return NONE
        step -= skip_first
        if skip_first_wait != 0:
            step += wait
        if repeat > 0 and step / cycle >= repeat:
            return NONE
        step %= cycle
        if step < wait:
            return NONE
        if step < wait + warmup:
            return WARMUP
        return SAVE if step == cycle - 1 else RECORD

    return plan


def _always(step: int) -> ProfilerAction:
    return RECORD


def tensorboard_trace_handler(
    dir_name: str | Path,
    worker_name: str | None = None,
    use_gzip: bool = False,
    use_python_export: bool = True,
) -> Callable[[profile], None]:
    """An `on_trace_ready` that writes each trace to a directory, under a name of its own.

    TensorBoard's profiler plugin reads the directory, and so do Perfetto and chrome://tracing each
    file of it. `worker_name` is this process among several; by default the host and the number of
    the process. RuntimeError where the directory cannot be made.
    """

    def handler(prof: profile) -> None:
        try:
            Path(dir_name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RuntimeError(f"Can't create directory: {dir_name}") from error
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}"
        prof.export_chrome_trace(Path(dir_name) / name, use_python_export)

    return handler


class profile:
    """Context manager that profiles a program, or chosen steps of its training loop.

    Args:
        activities: what to look at: ProfilerActivity.CPU, .CUDA, .PrivateUse1 (the simulated
            device), or a dict from one of them to names of what is wanted of it. By default the
            CPU, and CUDA where there is a GPU.
        schedule: says for each step what to do in it; `cugrad.profiler.schedule` makes one. By
            default everything is recorded.
        on_trace_ready: called with the profile at the end of each cycle, and at the end.
        record_shapes, profile_memory, with_stack, with_flops, with_modules, acc_events,
            custom_trace_id_callback, post_processing_timeout_s, experimental_config, names: those
            of `cugrad.autograd.profiler.profile`.
        execution_trace_observer: an object whose `start()` and `stop()` are called with the
            recording's, and `cleanup()` at the end.
        use_cuda: the old way to add CUDA to the activities, or to take it away.

    >>> import cugrad as torch
    >>> from cugrad.profiler import ProfilerActivity, profile, schedule
    >>> def ready(p):
    ...     print(p.step_num, [e.key for e in p.key_averages()])
    >>> x = torch.ones(3)
    >>> plan = schedule(wait=1, warmup=1, active=1)
    >>> with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=ready) as p:
    ...     for _ in range(4):
    ...         y = x.exp()
    ...         p.step()
    3 ['ProfilerStep*', 'exp']
    """

    def __init__(
        self,
        *,
        activities: Iterable[Any] | None = None,
        schedule: Schedule | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
        names: str | None = None,
    ) -> None:
        autograd_profile.wants_aten(names)
        for name, function in (("schedule", schedule), ("on_trace_ready", on_trace_ready)):
            if function is not None and not callable(function):
                raise TypeError(
                    f"profile: {name}: got {function!r}, want a function, {MADE_BY[name]}"
                )
        self.activities, self.activity_filters = parse_activities(activities)
        if use_cuda is not None:
            warnings.warn("`use_cuda` is deprecated, use `activities` argument instead",
                          FutureWarning, stacklevel=2)  # fmt: skip
            changed = self.activities.add if use_cuda else self.activities.discard
            changed(ProfilerActivity.CUDA)
        if not self.activities:
            raise AssertionError("No valid profiler activities found")
        self.use_device = next((DEVICES[a] for a in DEVICES if a in self.activities), None)
        self.record_shapes, self.profile_memory = record_shapes, profile_memory
        self.with_stack, self.with_flops = with_stack, with_flops
        self.with_modules, self.acc_events = with_modules, acc_events
        self.experimental_config = experimental_config
        self.execution_trace_observer = execution_trace_observer
        self.custom_trace_id_callback = custom_trace_id_callback
        self.post_processing_timeout_s = post_processing_timeout_s
        self.names = names
        self.schedule = schedule or _always
        self.record_steps = schedule is not None
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self.current_action = self.schedule(0)
        self.profiler: autograd_profile.profile | None = None
        self._metadata: dict[str, Any] = {}
        self._step: record_function | None = None

    def __enter__(self) -> profile:
        self.start()
        return self

    def __repr__(self) -> str:
        looked_at = ", ".join(each.name for each in sorted(self.activities, key=lambda a: a.value))
        prof = self.profiler
        if prof is None:
            what = "not started"
        elif prof.entered:
            what = f"in step {self.step_num}, {self.current_action.name}"
        else:
            what = f"{prof.count} events; key_averages(), events(), export_chrome_trace(path)"
        return f"<profile of {looked_at}: {what}>"

    def __exit__(self, *exc: object) -> None:
        self.stop()
        if self.execution_trace_observer is not None:
            self.execution_trace_observer.cleanup()

    # ------------------------------------------------------------------ steps

    def start(self) -> None:
        """Begins with the action that the schedule gives for the first step."""
        self._change(NONE, self.current_action)
        self._name_step()

    def stop(self) -> None:
        """Ends the profile, and hands over what was recorded."""
        self._end_step()
        action = self.current_action
        if action == WARMUP:
            self.start_trace()
        if action != NONE:
            self.stop_trace()
        if action in (RECORD, SAVE):
            self._ready()

    def step(self) -> None:
        """The next step of the loop begins."""
        self._end_step()
        before, self.step_num = self.current_action, self.step_num + 1
        self.current_action = self.schedule(self.step_num)
        self._change(before, self.current_action)
        self._name_step()

    def _change(self, before: ProfilerAction, now: ProfilerAction) -> None:
        """Starts and stops recordings as the change of action asks for."""
        recording = before in (RECORD, SAVE)
        ends = before == SAVE or (before == RECORD and now in (NONE, WARMUP))
        if (before, now) == (WARMUP, NONE) or (before == RECORD and now in (NONE, WARMUP)):
            warnings.warn(f"Incorrect schedule: {before.name} followed by {now.name}", stacklevel=4)
        if (before, now) == (WARMUP, NONE):
            self.start_trace()
            self.stop_trace()
        if ends:
            self.stop_trace()
        if before == SAVE:
            self._ready()
        begins = before == NONE or ends
        if begins and now != NONE:
            self.prepare_trace()
        if now in (RECORD, SAVE) and (begins or not recording):
            self.start_trace()

    def _name_step(self) -> None:
        if self.record_steps:
            self._step = record_function(f"ProfilerStep#{self.step_num}")
            self._step.__enter__()

    def _end_step(self) -> None:
        if self._step is not None:
            self._step.__exit__()
            self._step = None

    def _ready(self) -> None:
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    # ------------------------------------------------------------------ one recording

    def prepare_trace(self) -> None:
        """Does before the recording what takes time."""
        if self.profiler is None or not self.acc_events:
            self.profiler = autograd_profile.profile(
                use_cpu=ProfilerActivity.CPU in self.activities, use_device=self.use_device,
                record_shapes=self.record_shapes, with_flops=self.with_flops,
                profile_memory=self.profile_memory, with_stack=self.with_stack,
                with_modules=self.with_modules, use_kineto=True,
                experimental_config=self.experimental_config, acc_events=self.acc_events,
                custom_trace_id_callback=self.custom_trace_id_callback,
                post_processing_timeout_s=self.post_processing_timeout_s,
                activity_filters=self.activity_filters, names=self.names,
            )  # fmt: skip
        self.profiler.prepare()

    def start_trace(self) -> None:
        """Begins to record."""
        if self.execution_trace_observer is not None:
            self.execution_trace_observer.start()
        self._profiler("starting trace").start()

    def stop_trace(self) -> None:
        """Ends the recording."""
        if self.execution_trace_observer is not None:
            self.execution_trace_observer.stop()
        self._profiler("stopping trace").stop()

    def toggle_collection_dynamic(
        self, enable: bool, activities: Iterable[ProfilerActivity]
    ) -> None:
        """Stops, or goes on, recording activities within a recording."""
        if self.profiler is not None:
            self.profiler.toggle_collection_dynamic(enable, activities)

    def set_custom_trace_id_callback(self, callback: Callable[[], str]) -> None:
        """Numbers traces by `callback` from the next cycle on."""
        self.custom_trace_id_callback = callback

    def get_trace_id(self) -> str | None:
        """The number of the last recording; None before the first."""
        return None if self.profiler is None else self.profiler.trace_id

    # ------------------------------------------------------------------ what was found

    def events(self) -> EventList:
        """The events of the last cycle; with `acc_events` of all."""
        return self._profiler("accessing events").function_events

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """Averages by name; see `EventList.key_averages`."""
        return self._profiler("getting key averages").key_averages(
            group_by_input_shape, group_by_stack_n, group_by_overload_name
        )

    def export_chrome_trace(self, path: str | Path, use_python_export: bool = True) -> None:
        """Writes a Chrome trace of the last cycle; gzip where the path ends in .gz."""
        profiler = self._profiler("exporting chrome trace")
        profiler.export_chrome_trace(path, self._metadata, use_python_export)

    def export_stacks(self, path: str | Path, metric: str = "self_cpu_time_total") -> None:
        """Writes the stacks, weighed; wants `with_stack=True`."""
        self._profiler("exporting stacks").export_stacks(path, metric)

    def add_metadata(self, key: str, value: str) -> None:
        """A text that the file of a trace shall carry."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """A value that the file of a trace shall carry, as JSON; ValueError where it is none."""
        self._metadata[key] = json.loads(value)

    preset_metadata_json = add_metadata_json  # the same function: here the file is written later

    def _profiler(self, what: str) -> autograd_profile.profile:
        if self.profiler is None:
            raise AssertionError(f"Profiler must be initialized before {what}")
        return self.profiler
