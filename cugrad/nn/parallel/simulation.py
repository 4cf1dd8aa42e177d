"""`simulate`: a training step of one rank of many, in virtual time, before one has their GPUs."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ... import backends
from ... import distributed as dist
from ...backends import simulated
from ...distributed.device_mesh import DeviceMesh
from ...distributed.engines.streams import StreamEngine
from ...distributed.groups import ProcessGroup, world
from ...tensor import Tensor
from ..modules.container import ModuleList, Sequential
from ..modules.module import Module
from .distributed import DistributedDataParallel, _moved
from .sharding.fully_shard import fully_shard

__all__ = ["Scaling", "Simulation", "simulate"]

FIGURES = ("ranks", "step_time", "compute_time", "communication_time", "exposed_time", "memory")


@dataclass(frozen=True)
class Simulation:
    """One step of one rank: seconds of virtual time, and bytes.

    `compute_time` is that in which kernels ran, `communication_time` that in which collectives did,
    `exposed_time` the part of it in which no kernel ran. `memory` is the peak of what parameters,
    gradients, states, activations and buckets take together. `timeline` has every call.
    """

    ranks: int
    step_time: float
    compute_time: float
    communication_time: float
    exposed_time: float
    memory: int
    timeline: simulated.Timeline = field(repr=False, compare=False)
    again: Callable[[int], Simulation] = field(repr=False, compare=False)

    def as_dict(self) -> dict[str, float]:
        """The figures by name."""
        return {name: getattr(self, name) for name in FIGURES}

    def text(self) -> str:
        """The figures in a line."""
        return (
            f"{self.ranks} ranks: step {self.step_time * 1e3:.3f} ms, compute "
            f"{self.compute_time * 1e3:.3f}, communication {self.communication_time * 1e3:.3f}, "
            f"of it exposed {self.exposed_time * 1e3:.3f} ms; {self.memory / 2**20:.1f} MiB a rank"
        )

    __str__ = text

    def scaling(self, ranks: Iterable[int]) -> Scaling:
        """The same step on other numbers of ranks, each with a batch of the same size."""
        return Scaling([self if n == self.ranks else self.again(n) for n in ranks])


@dataclass(frozen=True)
class Scaling:
    """Steps on several numbers of ranks, whose batches grow with the ranks."""

    points: Sequence[Simulation]

    @property
    def efficiency(self) -> list[float]:
        """What of a rank's time its kernels take: 1.0 where a step waits for nothing."""
        return [p.compute_time / p.step_time for p in self.points]

    def as_dict(self) -> dict[str, list[float]]:
        """Each figure's values, one a number of ranks."""
        columns = {name: [getattr(p, name) for p in self.points] for name in FIGURES}
        return {**columns, "efficiency": self.efficiency}

    def text(self) -> str:
        """A line for each number of ranks, with the efficiency drawn."""
        return "\n".join(
            f"{p.ranks:>6} ranks  {p.step_time * 1e3:10.3f} ms, {p.exposed_time * 1e3:9.3f} exposed"
            f", {p.memory / 2**20:9.1f} MiB  {share:4.0%} {'#' * round(40 * share)}"
            for p, share in zip(self.points, self.efficiency)
        )

    __str__ = text


def simulate(
    model: Module,
    inputs: Any,
    target: Any = None,
    *,
    ranks: int = 8,
    preset: str | simulated.Model = "H100",
    loss: Callable[..., Tensor] | None = None,
    optimizer: Callable[[Any], Any] | None = None,
    sharding: str | None = None,
    bucket_cap_mb: float | None = None,
) -> Simulation:
    """Plays one training step of one rank of `ranks`, on the simulated device.

    What runs is `DistributedDataParallel`, or `fully_shard`, with its buckets, streams and events;
    the other ranks are mirrors of this one. Kernels and collectives take the time that the
    preset's model and links say, so that the same call has the same result on every computer. The
    arithmetic is done on this computer's CPU, once for a warm-up and once for the result, and
    needs the memory that it says.

    Args:
        model: any module. A copy of it trains, whose values are of no use.
        inputs: what a rank calls it with: a tensor with its batch, or a tuple of arguments.
        target: the second argument of `loss`, if it takes one.
        ranks: 1 to one machine's 8, or a multiple of 8.
        preset: "A100" (NVLink 3, HDR InfiniBand), "H100", "H200", "GH200" (NVLink 4, NDR), or a
            Model: `backends.simulated.preset("H100", links=Links(inside, between))`.
        loss: `loss(output)`, or `loss(output, target)`; by default the output's mean.
        optimizer: of the parameters, as `lambda p: torch.optim.AdamW(p)`; by default none steps.
        sharding: None for DistributedDataParallel, or "fully_shard": each module of the outermost
            ModuleLists and Sequentials, then the whole.
        bucket_cap_mb: of DistributedDataParallel, in MiB.

    Collectives: `backends.simulated.links` has the formulas and their sources. ValueError for
    other numbers of ranks and other shardings, RuntimeError within a process group, and
    OutOfMemoryError where a step does not fit the modelled GPU.

    >>> import cugrad as torch
    >>> import cugrad.distributed as dist
    >>> net = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(3)])
    >>> step = dist.simulate(net, torch.ones(16, 64), ranks=8)
    >>> step.exposed_time <= step.communication_time <= step.step_time
    True
    >>> step.scaling([8, 64]).as_dict()["ranks"]
    [8, 64]
    """
    if sharding not in (None, "fully_shard"):
        raise ValueError(f"simulate: got sharding={sharding!r}, want None or 'fully_shard'")
    gpu = simulated.preset(preset) if isinstance(preset, str) else preset
    if ranks < 1:
        raise ValueError(f"simulate: got ranks={ranks}, want at least 1")
    gpu.links.machines(ranks)
    if dist.is_initialized():
        raise RuntimeError("simulate: this process is a rank itself: call it in one that is not")

    def play(ranks: int) -> Simulation:
        with simulated.configured(gpu, policy="timed", seed=0), _mirrored(ranks) as group:
            machine = simulated.MACHINE
            before = _tidied(machine)
            replica = copy.deepcopy(model).to("simulated")
            arguments = inputs if isinstance(inputs, tuple) else (inputs,)
            arguments, targets = _moved((arguments, target), "simulated")
            parallel = _parallel(replica, group, sharding, bucket_cap_mb)
            stepper = None if optimizer is None else optimizer(parallel.parameters())
            for _ in range(2):  # the first one's buckets have no order yet
                if isinstance(parallel, DistributedDataParallel):
                    parallel.reducer.rebuild()
                machine.pool.peak = _tidied(machine)
                with simulated.record() as timeline:
                    parallel.zero_grad()
                    output = parallel(*arguments)
                    scores = (output,) if target is None else (output, targets)
                    (output.mean() if loss is None else loss(*scores)).backward()
                    del output, scores
                    if stepper is not None:
                        stepper.step()
                    machine.synchronize()
            busy = timeline.busy("kernel", "d2d")
            exposed = timeline.busy("kernel", "d2d", "link") - busy
            return Simulation(
                ranks, timeline.step_time, busy, timeline.busy("link"), exposed,
                machine.pool.peak - before, timeline, play,
            )  # fmt: skip

    return play(ranks)


def _tidied(machine: Any) -> int:
    """The bytes of the device in use, when what no one uses is free: peaks begin there."""
    gc.collect()
    with machine.lock:
        machine.pool.release()
        used: int = machine.pool.used
    return used


@contextmanager
def _mirrored(ranks: int) -> Iterator[ProcessGroup]:
    """A group on the simulated device, of which this process is the first rank."""
    backend: Any = backends.get("simulated")
    engine: Any = StreamEngine(backend, backend.communicator(ranks, b"", 0), ranks, 0)
    group = ProcessGroup("simulated", list(range(ranks)), {"simulated": engine}, 60.0, None, "nccl")
    world.groups[group.group_name] = group
    try:
        yield group
    finally:
        del world.groups[group.group_name]


def _parallel(
    model: Module, group: ProcessGroup, sharding: str | None, bucket_cap_mb: float | None
) -> Module:
    """The module as it trains on many ranks."""
    if sharding is None:
        return DistributedDataParallel(
            model, process_group=group, bucket_cap_mb=bucket_cap_mb, init_sync=False
        )
    mesh = DeviceMesh.from_group(group, "simulated")
    for part in _units(model):
        fully_shard(part, mesh=mesh)
    whole: Module = fully_shard(model, mesh=mesh)
    return whole


def _units(model: Module) -> Iterator[Module]:
    """The modules with parameters of the outermost lists of modules."""
    waiting = [model]
    while waiting:
        module = waiting.pop(0)
        children = [m for m in module.children() if any(True for _ in m.parameters())]
        if isinstance(module, (ModuleList, Sequential)):
            yield from children
        else:
            waiting.extend(children)
