"""Collectives on a stream of their own: right, and free of races, whatever the schedule.

The other ranks are mirrors: they have the same tensors as the one that runs.
"""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import cugrad as torch
import cugrad.distributed as dist
from cugrad import backends, nn
from cugrad.backends import simulated
from cugrad.distributed.device_mesh import DeviceMesh
from cugrad.distributed.engines.streams import StreamEngine, StreamPending
from cugrad.distributed.fsdp import CPUOffloadPolicy, fully_shard
from cugrad.distributed.groups import ProcessGroup, world
from cugrad.errors import RaceError
from cugrad.nn.parallel import DistributedDataParallel as DDP
from cugrad.nn.parallel.sharding import group as sharding_group

SIZE, RANK = 4, 0
STEPS = 2  # of training: in the second one DDP's buckets have their order
SCHEDULES = [("earliest", 0), ("latest", 0), *[("random", seed) for seed in range(14)]]


@contextmanager
def mirrored(kind: type[StreamEngine] = StreamEngine) -> Iterator[ProcessGroup]:
    """A group on the simulated device, of which this process is rank 0."""
    backend: Any = backends.get("simulated")
    engine = kind(backend, backend.communicator(SIZE, b"", RANK), SIZE, RANK)
    engines: Any = {"simulated": engine}
    group = ProcessGroup("mirrored", list(range(SIZE)), engines, 60.0, None, "nccl")
    world.groups[group.group_name] = group
    try:
        yield group
    finally:
        del world.groups[group.group_name]
        simulated.reset()


def on_device(n: int = 64) -> Any:
    return torch.arange(float(n), device="simulated")


def sums(group: ProcessGroup) -> None:
    x = on_device()
    work = dist.all_reduce(x, group=group, async_op=True)
    y = on_device() * 2  # meanwhile
    assert work is not None
    work.wait()
    assert torch.equal(x, y * 2)
    dist.all_reduce(x, dist.ReduceOp.AVG, group)
    out = torch.empty(16, device="simulated")
    dist.reduce_scatter_tensor(out, x, group=group)
    assert torch.equal(out, on_device()[:16] * 16)


def copies(group: ProcessGroup) -> None:
    x, whole = on_device(8), torch.zeros(SIZE, 8, device="simulated")
    dist.all_gather_into_tensor(whole, x, group)
    assert torch.equal(whole, x.expand(SIZE, 8))
    parts = [torch.zeros(8, device="simulated") for _ in range(SIZE)]
    dist.all_gather(parts, x * 3, group)  # both go through memory that is given back at once
    x += 1
    assert all(torch.equal(p, on_device(8) * 3) for p in parts)
    dist.gather(x, parts, dst=0, group=group)
    assert all(torch.equal(p, on_device(8) + 1) for p in parts)
    dist.scatter(x, [p * 2 for p in parts], src=0, group=group)
    assert torch.equal(x, (on_device(8) + 1) * 2)
    dist.broadcast(x, 0, group)
    a, b = on_device(8), torch.zeros(8, device="simulated")
    for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, b, 1, group),
                                        dist.P2POp(dist.isend, a, 1, group)]):  # fmt: skip
        work.wait()
    assert torch.equal(a, b)
    dist.barrier(group)


def net() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(),
                         nn.Linear(16, 2)).to("simulated")  # fmt: skip


def inputs(step: int) -> Any:
    return (on_device(32).reshape(4, 8) + step) / 32


def trained(model: Any) -> Any:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(inputs(step)).square().mean().backward()
        optimizer.step()
    return model


def training(group: ProcessGroup) -> None:
    model = DDP(net(), process_group=group, bucket_cap_mb=0.0005)
    assert len(model.reducer.buckets) > 1
    for ours, alone in zip(trained(model).parameters(), trained(net()).parameters(), strict=True):
        torch.testing.assert_close(ours, alone)


def sharding(group: ProcessGroup, **how: Any) -> None:
    """What mirrors have is this rank's part: a whole is that, as often as there are ranks."""
    model, mesh = net(), DeviceMesh.from_group(group, "simulated")
    for part in (model[0], model[2], model):
        fully_shard(part, mesh=mesh, **how)
    model[0].set_modules_to_forward_prefetch([model[2]])
    trained(model)
    alone = net()
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for step in range(STEPS + 1):
        with torch.no_grad():
            for p in alone.parameters():
                part = p[: -(-len(p) // SIZE)].clone()
                p.copy_(torch.cat([part] * SIZE)[: len(p)])
        if step < STEPS:
            optimizer.zero_grad()
            alone(inputs(step)).square().mean().backward()
            optimizer.step()
    for ours, whole in zip(model.parameters(), alone.parameters(), strict=True):
        local = whole.detach()[: len(ours.to_local())]
        torch.testing.assert_close(ours.to_local().cpu(), local.cpu())


def sharding_on_the_host(group: ProcessGroup) -> None:
    """Parts, gradients and steps are in page-locked memory."""
    sharding(group, offload_policy=CPUOffloadPolicy(), reshard_after_forward=True)


PROGRAMS: list[Callable[[ProcessGroup], None]] = [
    sums, copies, training, sharding, sharding_on_the_host,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_streams_wait_for_each_other_under_every_schedule(program: Any) -> None:
    for policy, seed in SCHEDULES:
        with simulated.configured(policy=policy, seed=seed), mirrored() as group:
            program(group)


class BeginsEarly(StreamEngine):
    """Calls do not wait for what made their tensors."""

    def launch(self, run: Any, *arrays: Any) -> StreamPending:
        run(self.stream)
        pending = StreamPending(self, self.stream.record_event(), list(arrays))
        self.pending.append(pending)
        return pending


class EndsEarly(StreamEngine):
    """What follows does not wait for a call."""

    def launch(self, run: Any, *arrays: Any) -> StreamPending:
        pending = super().launch(run, *arrays)
        pending.done = self.backend.event()  # never recorded: nothing waits for it
        return pending


class GivesBackEarly(StreamEngine):
    """Memory that a call uses is given to others before it has ended."""

    def launch(self, run: Any, *arrays: Any) -> StreamPending:
        pending = super().launch(run, *arrays)
        pending.arrays = None
        return pending


def dropped(group: ProcessGroup) -> None:
    """Two tensors that no one keeps, and new ones in their place."""
    for _ in range(2):
        dist.all_reduce(on_device(), group=group, async_op=True)
        on_device()


@pytest.mark.parametrize(
    "kind, program",
    [(BeginsEarly, sums), (BeginsEarly, copies), (BeginsEarly, training), (EndsEarly, sums),
     (EndsEarly, copies), (EndsEarly, training), (GivesBackEarly, dropped),
     (BeginsEarly, sharding), (EndsEarly, sharding),
     (BeginsEarly, sharding_on_the_host), (EndsEarly, sharding_on_the_host)],
)  # fmt: skip
def test_a_step_left_out_is_found_under_every_schedule(kind: Any, program: Any) -> None:
    for policy, seed in SCHEDULES:
        with simulated.configured(policy=policy, seed=seed):
            with pytest.raises(RaceError), mirrored(kind) as group:
                program(group)
            if program is dropped:
                with mirrored() as group:
                    program(group)


@pytest.mark.parametrize("flights", ["gathering", "reducing"])
def test_a_group_that_does_not_wait_is_found_under_every_schedule(
    flights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole, or a gradient, is taken for there before the call that brings it has ended."""

    def hasty(flight: Any) -> None:
        is_gather = "._gather." in flight.land.__qualname__
        if is_gather is not (flights == "gathering"):
            flight.work.wait()
        flight.land()

    monkeypatch.setattr(sharding_group.Flight, "wait", hasty)
    for policy, seed in SCHEDULES:
        with (
            simulated.configured(policy=policy, seed=seed),
            pytest.raises(RaceError),
            mirrored() as group,
        ):
            sharding(group)


@pytest.mark.parametrize("differentiated", [True, False])
def test_a_sharded_model_that_is_dropped_is_freed(differentiated: bool) -> None:
    with simulated.configured(), mirrored() as group:
        model, mesh = net(), DeviceMesh.from_group(group, "simulated")
        for part in (model[0], model[2], model):
            fully_shard(part, mesh=mesh)
        loss = model(inputs(0)).square().mean()
        if differentiated:
            loss.backward()
        alive = weakref.ref(model[0]), weakref.ref(model)
        del model, loss, part
        gc.collect()
        assert [ref() for ref in alive] == [None, None]


def test_what_was_recorded_needs_no_model() -> None:
    """It keeps the parts, and a weight does that has a gradient."""
    got = []
    for drops in (False, True):
        with simulated.configured(), mirrored() as group:
            torch.manual_seed(0)
            model, mesh = net(), DeviceMesh.from_group(group, "simulated")
            for part in (model[0], model[2], model):
                fully_shard(part, mesh=mesh, reshard_after_forward=True)
            parts, seen = list(model.parameters()), list[Any]()
            model[0].register_forward_pre_hook(lambda m, args, seen=seen: seen.append(m.weight))
            loss = model(inputs(0)).square().mean()
            copied = pickle.loads(pickle.dumps(seen[0]))
            assert torch.equal(copied, seen[0]) and type(copied) is nn.Parameter
            if drops:
                del model, part
                gc.collect()
            loss.backward()
            got.append([p.grad.to_local().cpu() for p in parts])
            assert torch.equal(copied, seen[0])
    assert all(torch.equal(a, b) for a, b in zip(*got, strict=True))


def test_a_frozen_weight_of_a_model_that_is_gone_says_so() -> None:
    with simulated.configured(), mirrored() as group:
        model, seen = net().requires_grad_(False), list[Any]()
        fully_shard(model, mesh=DeviceMesh.from_group(group, "simulated"))
        model[0].register_forward_pre_hook(lambda m, args: seen.append(m.weight))
        model(inputs(0))
        model.reshard()
        del model
        gc.collect()
        with pytest.raises(RuntimeError, match="of a module that is gone"):
            seen[0] + 1


def test_reductions_overlap_with_backward() -> None:
    """On the modelled GPUs: what backward computes hides all reductions but the last ones."""
    torch.manual_seed(0)
    with simulated.configured("H100", policy="timed", scale=2000.0), mirrored() as group:
        model = DDP(nn.Sequential(*[nn.Linear(96, 96) for _ in range(12)]).to("simulated"),
                    process_group=group, bucket_cap_mb=0.05)  # fmt: skip
        x = torch.ones(64, 96, device="simulated")
        model(x).sum().backward()  # buckets get their order
        loss = model(x).sum()
        with simulated.record() as timeline:
            loss.backward()
            torch.zeros(1, device="simulated").item()
    links, kernels = timeline.spans("link"), timeline.spans("kernel")
    assert len([r for r in timeline.records if r.kind == "link"]) > 6
    total = timeline.busy("link")
    hidden = total + timeline.busy("kernel") - timeline.busy("link", "kernel")
    assert links and kernels and hidden > 0.5 * total
