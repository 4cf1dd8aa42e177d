"""What ranks run of sharded states and parameters: each trains on the whole batch, too."""

from __future__ import annotations

from typing import Any

import pytest

import cugrad as torch
import cugrad.distributed as dist
from cugrad import nn
from cugrad.distributed.optim import ZeroRedundancyOptimizer
from cugrad.nn.parallel import DistributedDataParallel as DDP
from tests.distributed.programs import same, start
from tests.distributed.programs_ddp import batch, loss_of, net, own
from tests.distributed.programs_fully_shard import (
    accumulated,
    after_an_error,
    in_other_dtypes,
    in_parts,
    in_rows,
    killed,
    mistakes,
    on_the_host,
    state_dicts,
    used_otherwise,
)

__all__ = [
    "accumulated", "after_an_error", "in_other_dtypes", "in_parts", "in_rows", "killed", "mistakes",
    "on_the_host", "start", "state_dicts", "used_otherwise",
]  # fmt: skip

STEPS = 20


def same_on_all(x: Any) -> None:
    everyone = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, x)
    for other in everyone:
        same(other, x)


def groups(model: Any) -> list[dict[str, Any]]:
    """Matrices and vectors, with settings of their own."""
    params = list(model.parameters())
    return [{"params": [p for p in params if p.ndim > 1], "weight_decay": 0.1},
            {"params": [p for p in params if p.ndim == 1]}]  # fmt: skip


def steps(model: Any, optimizer: Any, first: int = 0, last: int = STEPS) -> Any:
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)
    for i in range(first, last):
        optimizer.zero_grad()
        loss_of(model, *map(own, batch(i))).backward()
        optimizer.step()
        scheduler.step()


def redundancy() -> None:
    """States of parameters on one rank each: to the bit what the optimizer alone gives."""
    reference = DDP(net())
    adam = torch.optim.AdamW(groups(reference), lr=1e-2)
    steps(reference, adam)
    for views in (False, True):
        model = DDP(net())
        optimizer = ZeroRedundancyOptimizer(
            groups(model), torch.optim.AdamW, parameters_as_bucket_view=views, lr=1e-2
        )
        steps(model, optimizer)
        for p, q in zip(model.parameters(), reference.parameters(), strict=True):
            same(p.detach(), q.detach())
        held = sum(s["exp_avg"].numel() for s in optimizer.optim.state.values())
        total = torch.tensor(held)
        dist.all_reduce(total)
        assert total == sum(p.numel() for p in model.parameters()) and held < total
        with pytest.raises(RuntimeError, match="has not been consolidated on this rank"):
            optimizer.state_dict()
        optimizer.consolidate_state_dict(to=1)
        saved = [optimizer.state_dict() if dist.get_rank() == 1 else None]
        dist.broadcast_object_list(saved, src=1)
        whole: Any = adam.state_dict()
        assert saved[0]["param_groups"] == whole["param_groups"]
        for i, state in whole["state"].items():
            for name, value in state.items():
                same(saved[0]["state"][i][name], value)
        other = DDP(net())
        other.load_state_dict(model.state_dict())
        resumed = ZeroRedundancyOptimizer(groups(other), torch.optim.AdamW, lr=1.0)
        resumed.load_state_dict(saved[0])
        for m, o in ((model, optimizer), (other, resumed)):
            o.zero_grad()
            loss_of(m, *map(own, batch(99))).backward()
            o.step()
        for p, q in zip(other.parameters(), model.parameters(), strict=True):
            same(p.detach(), q.detach())


def redundancy_mistakes() -> None:
    with pytest.raises(NotImplementedError, match="overlap_with_ddp"):
        ZeroRedundancyOptimizer(net().parameters(), torch.optim.SGD, overlap_with_ddp=True, lr=1.0)
    with pytest.raises(RuntimeError, match="rank 0 has 2.*and rank 1 has 4"):
        n = 1 + dist.get_rank() % 2
        layers = nn.Sequential(*[nn.Linear(2, 2) for _ in range(n)])
        ZeroRedundancyOptimizer(layers.parameters(), torch.optim.SGD, lr=1.0)
    one = nn.Linear(1, 1, bias=False)  # some ranks have nothing to step
    optimizer = ZeroRedundancyOptimizer(one.parameters(), torch.optim.SGD, lr=1.0)
    one(torch.ones(1)).backward()
    optimizer.step()
    later = torch.zeros(3, requires_grad=True)
    optimizer.add_param_group({"params": [later], "lr": 0.5})
    later.sum().backward()
    optimizer.step()
    same(later.detach(), torch.full((3,), -0.5))
    same_on_all(one.weight.detach())
