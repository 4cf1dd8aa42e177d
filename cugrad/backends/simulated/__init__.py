"""A device of NumPy's making that behaves as CUDA does, and finds the races that CUDA hides.

Copies between pinned and device memory are queued, and run as early or as late as events allow;
vector clocks check every access, and raise `RaceError`; virtual time says what a GPU would need.

`machine.py` is the device, and the order of work: begin there. `streams.py` has its streams and
events. `array.py` and `namespace.py` are its arrays and functions, `memory.py` its pool, `races.py`
the vector clocks, `cost.py` what work costs, `rows.py` how many kernels a row is, `links.py` what
collectives do, `timeline.py` what happened, and `backend.py` the protocol over them.
Users import the names below; `cuda.sanitizer` imports `races.py`.

>>> import cugrad as torch
>>> from cugrad.backends import simulated
>>> x = torch.ones(2, device="simulated")
>>> (x + 1).cpu()
tensor([2., 2.])
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from ...runtime.contexts import Context
from ...runtime.kept import Switch
from .backend import MACHINE, SimulatedBackend
from .cost import A100, GH200, H100, H200, PRESETS, Model, preset
from .links import Links
from .machine import POLICIES
from .memory import OutOfMemoryError
from .timeline import Record, Timeline

__all__ = ["A100", "GH200", "H100", "H200", "Links", "MACHINE", "Model", "OutOfMemoryError",
           "PRESETS", "POLICIES", "Record", "SimulatedBackend", "Timeline", "configure",
           "configured", "one_kernel", "preset", "record", "reset", "seed", "set_policy",
           "timeline"]  # fmt: skip


def seed(n: int) -> None:
    """Picks the schedule: the same program with the same seed runs in the same order."""
    with MACHINE.lock:
        MACHINE.random = random.Random(n)


def set_policy(name: str) -> str:
    """When queued work runs; the policy of before.

    "earliest": as soon as events allow. "latest": when something waits for it. "random": some of
    it, now and then, by seed(). "timed": as "latest", but `query()` answers by virtual time, so
    that code which polls acts as it would on the modelled GPU.
    """
    if name not in POLICIES:
        raise ValueError(f"simulated.set_policy: got {name!r}, want one of {', '.join(POLICIES)}")
    with MACHINE.lock:
        before, MACHINE.policy = MACHINE.policy, name
    return before


def configure(
    model: Model | str | None = None, capacity: int | None = None, **changes: Any
) -> None:  # fmt: skip
    """Chooses the modelled GPU (a Model, or a preset's name) and the bytes of memory that it has.

    Further keywords change fields of the model: `configure("H200", duplex=False, scale=1000)`.
    """
    from dataclasses import replace

    with MACHINE.lock:
        base = preset(model) if isinstance(model, str) else model or MACHINE.model
        MACHINE.model = replace(base, **changes)
        if model is not None or capacity is not None:
            MACHINE.capacity = MACHINE.model.capacity if capacity is None else capacity


class configured(Switch, Context):
    """configure(), set_policy() and seed() for a block; what was before comes back."""

    def __init__(
        self, model: Model | str | None = None, capacity: int | None = None,
        policy: str | None = None, seed: int | None = None, **changes: Any
    ) -> None:  # fmt: skip
        self.model, self.capacity, self.policy, self.seed = model, capacity, policy, seed
        self.changes = changes

    def as_is(self) -> dict[str, Any]:
        return {name: getattr(MACHINE, name) for name in ("model", "capacity", "policy", "random")}

    def change(self, before: dict[str, Any]) -> None:
        configure(self.model, self.capacity, **self.changes)
        if self.policy is not None:
            set_policy(self.policy)
        if self.seed is not None:
            MACHINE.random = random.Random(self.seed)

    def put_back(self, before: dict[str, Any]) -> None:
        vars(MACHINE).update(before)

    def clone(self) -> configured:
        """Another context with the same settings."""
        settings = self.model, self.capacity, self.policy, self.seed
        return type(self)(*settings, **self.changes)


def one_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of device arrays that costs what one kernel does, however many it launches.

    It is charged for reading what it reads once, for writing what it returns, and for the products
    of matrices in it: what a GPU does in one pass, where NumPy needs several.

    >>> from cugrad import backends
    >>> from cugrad.backends import simulated
    >>> x = backends.get("simulated").xp.ones(3, "float32")
    >>> with simulated.record() as timeline:
    ...     y = simulated.one_kernel(lambda x: x * x + x)(x)
    >>> [(r.name, r.nbytes, r.flops) for r in timeline.records]
    [('<lambda>', 24, 0.0)]
    """

    @wraps(function)
    def fused(*args: Any) -> Any:
        return MACHINE.in_kernels(function.__name__, lambda: function(*args))

    return fused


def timeline() -> Timeline:
    """The last 4,096 operations since the last reset() or record(), in virtual time; within
    `record()` all of them.
    """
    return MACHINE.timeline()


@contextmanager
def record() -> Iterator[Timeline]:
    """The timeline of a block, which is complete when the block has ended; begins at time zero."""
    MACHINE.synchronize()
    MACHINE.reset_time(400_000)
    timeline = Timeline([], 0.0, 0.0)
    try:
        yield timeline
    finally:
        ended = MACHINE.timeline()
        timeline.records, timeline.ended = ended.records, ended.ended
        MACHINE.keep_last()


def reset() -> None:
    """Finishes all work and sets virtual time to zero, whatever a failed program left behind."""
    MACHINE.reset()


class _Warned:
    once = False


def as_cuda() -> SimulatedBackend:
    """The simulated device under the name of CUDA; warns once that it is none."""
    if not _Warned.once:
        _Warned.once = True
        warnings.warn(
            "CUGRAD_SIMULATE_CUDA is set: device 'cuda' is simulated on the CPU, and its times are "
            "a model's",
            stacklevel=2,
        )
    return SimulatedBackend("cuda")
