"""`simulate`: the schedule of many ranks takes what its kernels and its collectives take."""

from __future__ import annotations

from typing import Any

import pytest

import cugrad as torch
import cugrad.distributed as dist
from cugrad import models, nn
from cugrad.backends import simulated
from cugrad.backends.simulated.links import HDR_NVLINK3, NDR_NVLINK4, Links, ring, tree

pytestmark = pytest.mark.host_only

LARGE = simulated.preset("H100", scale=20_000.0, capacity=1 << 60)  # a byte stands for so many


def steps_around(pieces: int, ranks: int) -> int:
    """How many rounds a ring takes until every rank has the sum of every piece, played."""
    has = [[{rank} for _ in range(pieces)] for rank in range(ranks)]
    rounds = 0
    while any(len(terms) < ranks for rank in has for terms in rank):
        sent = [(rank, (rank - rounds) % pieces) for rank in range(ranks)]
        moved = [((rank + 1) % ranks, piece, set(has[rank][piece])) for rank, piece in sent]
        for rank, piece, terms in moved:
            has[rank][piece] |= terms
        rounds += 1
    return rounds


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_the_rings_formula_is_that_of_its_rounds(ranks: int) -> None:
    rounds = steps_around(ranks, ranks)
    assert rounds == 2 * (ranks - 1)
    assert ring(6e6, ranks, 1e9, 1e-6) == pytest.approx(rounds * (6e6 / ranks / 1e9 + 1e-6))


@pytest.mark.parametrize("links", [HDR_NVLINK3, NDR_NVLINK4, Links(1e9, 1e9, 1e-6, 1e-6, 4)])
@pytest.mark.parametrize("nbytes", [4, 1 << 12, 1 << 20, 25 << 20, 1 << 30])
def test_an_all_reduce_goes_level_by_level_and_the_faster_way(links: Links, nbytes: int) -> None:
    near = links.per_machine
    wire = links.inside, links.inside_latency
    one = links.all_reduce(nbytes, near)
    assert one == min(ring(nbytes, near, *wire), tree(nbytes, near, *wire))
    between = links.between, links.between_latency
    for machines in (2, 8, 64, 512):
        far = min(f(nbytes / near, machines, *between) for f in (ring, tree))
        whole = links.all_reduce(nbytes, machines * near)
        assert whole == pytest.approx(ring(nbytes, near, *wire) + far)
        halves = 2 * links.all_gather(nbytes, machines * near)
        assert whole <= halves * (1 + 1e-12)
    assert links.all_reduce(nbytes, 1) == links.all_gather(nbytes, 1) == 0.0
    assert ring(1 << 30, 8, *between) < tree(1 << 30, 8, *between)
    assert tree(4, 512, *between) < ring(4, 512, *between)


def layers() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(48, 48) for _ in range(8)])


def test_collectives_take_what_the_formulas_say_and_bring_each_gradient_once() -> None:
    net = layers()
    step = dist.simulate(net, torch.ones(64, 48), ranks=64, bucket_cap_mb=0.02)
    calls = [r for r in step.timeline.records if r.kind == "link"]
    assert {r.name for r in calls} == {"all_reduce"} and len(calls) > 2
    assert sum(r.nbytes for r in calls) == sum(p.numel() * 4 for p in net.parameters())
    for r in calls:
        assert r.end - r.start == pytest.approx(NDR_NVLINK4.all_reduce(r.nbytes, 64))
    assert step.communication_time == pytest.approx(sum(r.end - r.start for r in calls))


def test_the_same_call_has_the_same_result_and_leaves_all_as_it_was() -> None:
    net, x = layers(), torch.ones(8, 48)
    before = [p.detach().clone() for p in net.parameters()]
    model, groups = simulated.MACHINE.model, dict(dist.groups.world.groups)
    steps = [dist.simulate(net, x, optimizer=lambda p: torch.optim.SGD(p, lr=0.1))
             for _ in range(2)]  # fmt: skip
    assert steps[0] == steps[1] and steps[0].as_dict() == steps[1].as_dict()
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), before, strict=True))
    assert all(p.grad is None and p.device.type != "simulated" for p in net.parameters())
    assert simulated.MACHINE.model is model and dist.groups.world.groups == groups


def gpt() -> Any:
    tokens = torch.randint(0, 64, (4, 32))
    return models.GPT(64, 32, width=48, heads=4, layers=4), tokens


def convolutions() -> Any:
    blocks = [models.BasicBlock(16, 16) for _ in range(3)]
    return nn.Sequential(nn.Conv2d(3, 16, 3), *blocks), torch.randn(4, 3, 24, 24)


@pytest.mark.parametrize("build", [gpt, convolutions])
def test_all_but_the_end_of_communication_is_hidden(build: Any) -> None:
    """In small, with bytes that stand for many; the networks themselves are in benchmarks."""
    torch.manual_seed(0)
    net, x = build()
    curve = dist.simulate(net, x, preset=LARGE, bucket_cap_mb=0.05).scaling([8, 64])
    for step in curve.points:
        assert step.step_time < 1.10 * max(step.compute_time, step.communication_time), str(step)
        assert step.exposed_time <= step.communication_time
    first, second = curve.points
    assert second.compute_time == pytest.approx(first.compute_time)
    assert second.communication_time > first.communication_time
    assert curve.as_dict()["ranks"] == [8, 64] and len(curve.text().splitlines()) == 2


def test_sharding_gathers_twice_and_takes_less_memory() -> None:
    net, x = layers(), torch.ones(4, 48)

    def adam(parameters: Any) -> Any:
        return torch.optim.AdamW(parameters)

    whole = dist.simulate(net, x, optimizer=adam)
    parts = dist.simulate(net, x, optimizer=adam, sharding="fully_shard")
    assert parts.memory < 0.6 * whole.memory
    names = [r.name for r in parts.timeline.records if r.kind == "link"]
    assert names.count("reduce_scatter") == len(net)
    assert len(net) < names.count("all_gather") <= 2 * len(net)


def test_what_cannot_be_is_refused() -> None:
    net, x = nn.Linear(4, 4), torch.ones(2, 4)
    refusals: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (ValueError, "multiple of 8", {"ranks": 12}),
        (ValueError, "at least 1", {"ranks": 0}),
        (ValueError, "fully_shard", {"sharding": "zero"}),
        (ValueError, "B200", {"preset": "B200"}),
        (simulated.OutOfMemoryError, "bytes", {"preset": simulated.preset("A100", capacity=512)}),
    ]
    for kind, text, how in refusals:
        with pytest.raises(kind, match=text):
            dist.simulate(net, x, **how)
    dist.init_process_group("mpi", rank=0, world_size=1)
    try:
        with pytest.raises(RuntimeError, match="is a rank itself"):
            dist.simulate(net, x)
    finally:
        dist.destroy_process_group()
