"""What ranks run of sharded states and parameters: each trains on the whole batch, too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import cugrad as torch
import cugrad.distributed as dist
import cugrad.distributed.checkpoint as dcp
from cugrad import nn
from cugrad.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from cugrad.distributed.device_mesh import DeviceMesh, init_device_mesh
from cugrad.distributed.fsdp import fully_shard
from cugrad.distributed.optim import ZeroRedundancyOptimizer
from cugrad.distributed.tensor import Shard, distribute_tensor
from cugrad.nn.parallel import DistributedDataParallel as DDP
from tests.distributed.programs import same, start
from tests.distributed.programs_ddp import batch, loss_of, net, own
from tests.distributed.programs_fully_shard import (
    accumulated,
    after_an_error,
    agree,
    changed_in_place,
    in_columns_and_together,
    in_other_dtypes,
    in_parts,
    in_rows,
    killed,
    mistakes,
    on_the_host,
    sharded,
    state_dicts,
    used_otherwise,
    values,
    with_any_optimizer,
)

__all__ = [
    "accumulated", "after_an_error", "changed_in_place", "in_columns_and_together",
    "in_other_dtypes", "in_parts", "in_rows", "killed", "mistakes", "on_the_host", "start",
    "state_dicts", "used_otherwise", "with_any_optimizer",
]  # fmt: skip

STEPS = 8


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


def checkpoints() -> None:
    """Written by two ranks, read in parts, whole, and by one alone; a failed save leaves all."""
    folder = Path(os.environ["CUGRAD_RANKS_FOLDER"]) / "checkpoint"
    rank, model, reference = dist.get_rank(), sharded(), net()
    adam = torch.optim.AdamW(model.parameters(), lr=1e-2)
    steps(model, adam, 0, 5)
    state, states = get_state_dict(model, adam)
    app = {"model": state, "optimizer": states, "progress": {"step": 5, "mine": [rank]}}
    dcp.save(app, checkpoint_id=folder)
    dcp.save(app, checkpoint_id=folder)
    files = {path.name for path in folder.iterdir()}
    assert len(files) == 3, files  # one of each rank, of the last save alone

    mesh = init_device_mesh("cpu", (2, 1))
    for other in (sharded(net(1)), fully_shard(net(1), mesh=mesh), DDP(net(1))):
        resumed = torch.optim.AdamW(other.parameters(), lr=1.0)
        theirs, own_states = get_state_dict(other, resumed)
        read = {"model": theirs, "optimizer": own_states, "progress": {"step": 0}}
        dcp.load(read, checkpoint_id=folder)
        set_state_dict(other, resumed, model_state_dict=theirs, optim_state_dict=own_states)
        assert read["progress"] == {"step": 5} and resumed.param_groups[0]["lr"] != 1.0
        for m, o in ((model, adam), (other, resumed)):
            m.load_state_dict(m.state_dict())
            o.zero_grad()
            loss_of(m, *map(own, batch(50))).backward()
            o.step()
        agree(values(other), values(model))
        set_state_dict(model, adam, model_state_dict=state, optim_state_dict=states)
        dcp.load(app, checkpoint_id=folder)
        set_state_dict(model, adam, model_state_dict=state, optim_state_dict=states)

    whole = {"model": reference.state_dict()}
    dcp.load(whole, checkpoint_id=folder, no_dist=True)
    agree([whole["model"][n] for n, _ in reference.named_parameters()], values(model))
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    full = get_model_state_dict(model, options=options)
    assert sorted(full) == ([] if rank else sorted(state))

    before = (folder / ".metadata").read_bytes()
    with pytest.raises(dcp.CheckpointException, match="rank 1: .*pickle") as failure:
        dcp.save({**app, **({"bad": lambda: 0} if rank else {})}, checkpoint_id=folder)
    assert list(failure.value.failures) == [1]
    assert (folder / ".metadata").read_bytes() == before and len(list(folder.iterdir())) >= 3
    with pytest.raises(dcp.CheckpointException, match=r"rank 0: ValueError: save: 'x' is "
                       r"torch.float32 \[1\] on rank 0, and .*\[2\] on"):  # fmt: skip
        dcp.save({"x": torch.ones(1 + rank)}, checkpoint_id=folder)
    with pytest.raises(dcp.CheckpointException, match="Missing key .*other"):
        dcp.load({"other": 1}, checkpoint_id=folder)
    with pytest.raises(dcp.CheckpointException, match="Size mismatch between saved"):
        dcp.load({"model": {"0.weight": torch.ones(1)}}, checkpoint_id=folder)
    with pytest.raises(dcp.CheckpointException, match="has no checkpoint"):
        dcp.load({}, checkpoint_id=folder / "nowhere")


def states_of_rank_0() -> None:
    """A whole that rank 0 alone has goes to all ranks, in parts, also in one flat dict."""
    rank, model = dist.get_rank(), sharded()
    adam = torch.optim.AdamW(groups(model), lr=1e-2)
    steps(model, adam, 0, 4)
    for flat in (False, True):
        options = StateDictOptions(full_state_dict=True, cpu_offload=True,
                                   broadcast_from_rank0=True,
                                   flatten_optimizer_state_dict=flat)  # fmt: skip
        weights, states = get_state_dict(model, adam, options=options)
        assert (weights == {} == states) is (rank > 0)
        if flat and not rank:
            assert states["param_groups.0.weight.weight_decay"] == 0.1
            assert states["state.0.weight.exp_avg"].shape == (16, 6)
        for other in (sharded(net(1)), DDP(net(1))):
            resumed = torch.optim.AdamW(groups(other), lr=1.0)
            set_state_dict(other, resumed, model_state_dict=weights, optim_state_dict=states,
                           options=options)  # fmt: skip
            assert [g["weight_decay"] for g in resumed.param_groups] == [0.1, 0.01]
            agree(values(other), values(model))
            for m, o in ((model, adam), (other, resumed)):
                o.zero_grad()
                loss_of(m, *map(own, batch(60))).backward()
                o.step()
            agree(values(other), values(model))
            weights, states = get_state_dict(model, adam, options=options)
    with pytest.raises(ValueError, match="full_state_dict must be True when"):
        StateDictOptions(broadcast_from_rank0=True)


def checkpoints_meanwhile() -> None:
    """What is saved is what was there at the call, whatever ranks train and tell meanwhile."""
    folder = Path(os.environ["CUGRAD_RANKS_FOLDER"]) / "meanwhile"
    rank, model = dist.get_rank(), sharded()
    adam = torch.optim.AdamW(model.parameters(), lr=1e-2)
    futures, wanted = [], []
    for i in range(3):
        steps(model, adam, 2 * i, 2 * i + 2)
        wanted.append([v.clone() for v in values(model)])
        state, states = get_state_dict(model, adam)
        futures.append(dcp.async_save({"model": state, "optimizer": states, "i": [i]},
                                      checkpoint_id=folder / str(i)))  # fmt: skip
    futures.append(dcp.async_save({"x": torch.ones(1 + rank)}, checkpoint_id=folder / "bad"))
    steps(model, adam, 6, 9)
    for i, future in enumerate(futures[:3]):
        assert isinstance(future.result(), dcp.Metadata)
        other = sharded(net(1))
        read = {"model": get_model_state_dict(other), "i": [9]}
        dcp.load(read, checkpoint_id=folder / str(i))
        assert read["i"] == [i]
        agree(values(other), wanted[i])
    with pytest.raises(dcp.CheckpointException, match="'x' is"):
        futures[3].result()


def checkpoints_of_other_numbers() -> None:
    """Written by two ranks and read by four, and the other way."""
    folder, rank = Path(os.environ["CUGRAD_RANKS_FOLDER"]), dist.get_rank()
    whole = {"matrix": torch.arange(35.0).reshape(7, 5), "vector": torch.arange(3.0)}
    pair, everyone = DeviceMesh("cpu", [0, 1]), DeviceMesh("cpu", [0, 1, 2, 3])

    def parts(mesh: DeviceMesh, dim: int, factor: float = 1.0) -> dict[str, Any]:
        return {name: distribute_tensor(x * factor, mesh, [Shard(min(dim, x.ndim - 1))])
                for name, x in whole.items()}  # fmt: skip

    group = pair.get_group() if rank < 2 else None
    if rank < 2:
        dcp.save({"x": parts(pair, 0)}, checkpoint_id=folder / "of two", process_group=group)
    dcp.save({"x": parts(everyone, 0)}, checkpoint_id=folder / "of four")
    dist.barrier()
    for dim in (0, 1):
        read = {"x": parts(everyone, dim, 0.0)}
        dcp.load(read, checkpoint_id=folder / "of two")
        for name, x in whole.items():
            same(read["x"][name].full_tensor(), x)
        if rank < 2:
            read = {"x": parts(pair, dim, 0.0)}
            dcp.load(read, checkpoint_id=folder / "of four", process_group=group)
            for name, x in whole.items():
                same(read["x"][name].full_tensor(), x)
