"""What ranks run of modules in parts: each trains on the whole batch, too, beside it."""

from __future__ import annotations

import copy
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

import cugrad as torch
import cugrad.distributed as dist
from cugrad import nn
from cugrad.distributed import tensor
from cugrad.distributed.device_mesh import DeviceMesh, init_device_mesh
from cugrad.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from cugrad.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from cugrad.utils.checkpoint import checkpoint
from tests.distributed.programs import same, start
from tests.distributed.programs_ddp import batch, loss_of, net, own, whole

__all__ = ["start"]

STEPS = 8


def sharded(model: Any = None, parts: Any = None, **how: Any) -> Any:
    """A net of which each layer with parameters is sharded, and then all of it."""
    model = net() if model is None else model
    for part in [model[0], model[2]] if parts is None else parts:
        fully_shard(part, **how)
    return fully_shard(model, **how)


def train(
    model: Any, part: Callable[[Any], Any], step: Any = None, clip: float = 0.0, steps: int = STEPS
) -> list[Any]:
    """Parameters after some steps of Adam."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for i in range(steps):
        optimizer.zero_grad()
        x, y = (part(t) for t in batch(i))
        if step is None:
            loss_of(model, x, y).backward()
        else:
            step(model, x, y)
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    return values(model)


def values(model: Any) -> list[Any]:
    return [p.full_tensor() if isinstance(p, DTensor) else p.detach() for p in model.parameters()]


def agree(ours: list[Any], joined: list[Any], tolerance: float = 1e-9) -> None:
    for a, b in zip(ours, joined, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def group_of(model: Any) -> Any:
    return model._sharding.group


def in_parts() -> None:
    """Each stage of sharding, with clipping over all ranks; parts and states are of one rank."""
    rank, n = dist.get_rank(), dist.get_world_size()
    joined = train(net(), whole, clip=0.1)
    for reshards in (None, True, False):
        model = sharded(reshard_after_forward=reshards)
        assert isinstance(model, FSDPModule) and isinstance(model[0], nn.Linear)
        agree(train(model, own, clip=0.1), joined)
        assert group_of(model[0]).gathered == STEPS * (1 if reshards is False else 2)
        assert group_of(model).gathered == STEPS * (2 if reshards else 1)
    elements = sum(p.to_local().numel() for p in model.parameters())
    assert elements < sum(p.numel() for p in model.parameters())
    weight = model[2].weight
    assert weight.placements == (Shard(0),) and weight.shape == (16, 16)
    assert weight.to_local().shape == weight.grad.to_local().shape == (16 // n, 16)
    same(weight.to_local(), weight.full_tensor()[rank * 16 // n : (rank + 1) * 16 // n])
    with torch.no_grad():
        torch.testing.assert_close(weight.grad.norm(), weight.grad.full_tensor().norm())
    with pytest.raises(NotImplementedError, match="norm.*torch.no_grad"):
        weight.norm()


def accumulated() -> None:
    """Gradients of several backwards: each summed up over ranks, or all at the last."""

    def halves(model: Any, x: Any, y: Any) -> None:
        for i, rows in enumerate((slice(0, 1), slice(1, None))):
            if isinstance(model, FSDPModule):
                model.set_requires_gradient_sync(waits is None or i == 1)
                model.set_reshard_after_backward(waits is not False or i == 1)
            x_part, y_part = x[rows], y[rows]
            (loss_of(model, x_part, y_part) * (len(x_part) / len(x))).backward()

    joined = train(net(), whole, steps=5)
    for waits in (None, True, False):
        model = sharded()
        agree(train(model, own, halves, steps=5), joined)
        assert group_of(model[0]).reduced == 5 * (1 if waits is not None else 2)

    def overlapping(model: Any, x: Any, y: Any) -> None:
        for i, rows in enumerate((slice(0, 1), slice(1, None))):
            model.set_is_last_backward(i == 1 and is_last_said)
            (loss_of(model, x[rows], y[rows]) * (len(x[rows]) / len(x))).backward()
            assert (model[0].weight.grad is None) == (i == 0 or not is_last_said)
        model.set_is_last_backward(True)  # has them there, at the latest

    for said in (True, False):
        is_last_said = said
        agree(train(sharded(), own, overlapping, steps=5), joined)


class Twice(nn.Module):
    """A layer that is used twice, one in a checkpoint, and one that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last, self.idle = net(), nn.Linear(2, 2), nn.Linear(2, 2)
        self.double()

    def forward(self, x: Any) -> Any:
        y = checkpoint(self.inner, x, use_reentrant=False)
        return self.last(self.last(y))


def used_otherwise() -> None:
    """Checkpoints, modules that are called twice or not, other methods, and prefetching."""
    torch.manual_seed(0)
    reference = Twice()
    torch.manual_seed(0)
    module = Twice()
    model = sharded(module, [module.inner, module.last, module.idle])
    model.last.set_modules_to_backward_prefetch([model.inner])
    model.set_modules_to_forward_prefetch([model.inner, model.last])
    joined = train(reference, whole, steps=6)
    agree(train(model, own, steps=6), joined)
    assert model.idle.weight.grad is None
    with torch.no_grad():
        x = torch.ones(1, 6).double()
        torch.testing.assert_close(model(x), reference(x))
    model.unshard()
    handle = model.last.unshard(async_op=True)
    handle.wait()
    same(model.last.weight.detach(), model.last._sharding.group.parameters[0].sharded.full_tensor())
    model.last.reshard()
    model.reshard()
    alone = fully_shard(Twice().last)
    alone.scores = lambda x: x @ alone.weight.T
    register_fsdp_forward_method(alone, "scores")
    alone.scores(torch.ones(1, 2).double()).sum().backward()
    assert isinstance(alone.weight, DTensor) and alone.weight.grad is not None


def in_other_dtypes() -> None:
    """Half precision is gathered and computed with; parts, gradients and states keep theirs."""
    model = net()
    for part in (model[0], model[2]):
        fully_shard(part, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.float64)
    fully_shard(model, mp_policy=policy)
    seen: list[Any] = []
    model[1].register_forward_hook(lambda m, args, out: seen.append(out.dtype))
    agree(train(model, own, steps=6), train(net(), whole, steps=6), 0.05)
    assert set(seen) == {torch.bfloat16}
    assert model[0].weight.dtype == model[0].weight.grad.dtype == torch.float64
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    model = sharded(net().float())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for i in range(4):
        x, y = (own(t).float() for t in batch(i))
        factor = 1e38 if i == 2 and dist.get_rank() == 0 else 1  # one rank alone overflows
        optimizer.zero_grad()
        scaler.scale(((model(x) - y) ** 2).mean() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == 2.0 ** (14 if i < 2 else 13)
    assert all(bool(v.isfinite().all()) for v in values(model))


def on_the_host() -> None:
    """Parts in host memory, where the optimizer steps; the device computes."""
    joined = train(net(), whole, steps=5)
    model = sharded(net().to("simulated"), offload_policy=CPUOffloadPolicy())

    def step(model: Any, x: Any, y: Any) -> None:
        loss_of(model, x.to("simulated"), y.to("simulated")).backward()

    agree(train(model, own, step, steps=5), joined)
    assert model[0].weight.device.type == model[0].weight.grad.device.type == "cpu"


def state_dicts() -> None:
    """Entries are in parts; those of a whole are taken over in parts."""
    model, other = sharded(), net(1)
    state = model.state_dict()
    assert all(isinstance(value, DTensor) for value in state.values())
    assert list(state) == list(other.state_dict())
    model.load_state_dict(other.state_dict())
    agree(values(model), values(other))
    model.load_state_dict(state)
    with pytest.raises(RuntimeError, match="a DTensor has a part of its elements"):
        torch.save(state, os.devnull)
    x = distribute_tensor(torch.arange(7.0) + dist.get_rank(), model[0].weight.device_mesh,
                          [Shard(0)])  # fmt: skip
    same(x.full_tensor(), torch.arange(7.0))
    same(x.redistribute(placements=[Replicate()]).to_local(), torch.arange(7.0))
    same((x * 2 + x).full_tensor(), torch.arange(7.0) * 3)
    for dim in (0, 1, -1, -2):
        matrix = torch.arange(12.0).reshape(4, 3)
        parts = distribute_tensor(matrix, x.device_mesh, [Shard(dim)])
        assert parts.placements == (Shard(dim % 2),)
        same(parts.full_tensor(), matrix)
        same(parts.redistribute(placements=[Shard(-1)]).full_tensor(), matrix)
        assert parts.stride() == (3, 1) and parts.stride(0) == 3
        for whole_of in (parts.T, parts.mT, parts.H, parts.mH):
            same(whole_of, matrix.T)
        same(parts.real, matrix)


def in_columns_and_together() -> None:
    """Parts along other dimensions, and modules that are gathered together."""
    n, joined = dist.get_world_size(), train(net(), whole, clip=0.1, steps=6)

    def columns(p: Any) -> Any:
        return Shard(-1) if p.ndim > 1 else None

    for how in ({}, {"mp_policy": MixedPrecisionPolicy(reduce_dtype=torch.float64)},
                {"offload_policy": CPUOffloadPolicy()}):  # fmt: skip
        model = sharded(shard_placement_fn=columns, **how)
        agree(train(model, own, clip=0.1, steps=6), joined)
        weight = model[2].weight
        assert weight.placements == (Shard(1),) and weight.to_local().shape == (16, 16 // n)
        same(weight.grad.to_local(), weight.grad.full_tensor()[:, dist.get_rank() * 16 // n :][
            :, : 16 // n])  # fmt: skip
    with pytest.raises(NotImplementedError, match="does not support uneven sharding on dim 1"):
        fully_shard(nn.Linear(2 * n + 1, 2), shard_placement_fn=columns)
    with pytest.raises(AssertionError, match="shard_placement_fn returned 0"):
        fully_shard(net(), shard_placement_fn=lambda p: 0)
    for reshards in (True, False):
        model = net()
        pair = [model[0], model[2]]
        assert fully_shard(pair, reshard_after_forward=reshards) is pair
        fully_shard(model)
        agree(train(model, own, clip=0.1, steps=6), joined)
        assert group_of(model[0]) is group_of(model[2]) is not group_of(model)
        assert group_of(model[0]).gathered == 6 * (2 if reshards else 1)
    torch.manual_seed(0)
    model = Twice()
    fully_shard([model.inner, model.last, model.idle])  # one of which never computes
    fully_shard(model)
    torch.manual_seed(0)
    agree(train(model, own, steps=3), train(Twice(), whole, steps=3))
    with pytest.raises(ValueError, match="containers that do not implement forward"):
        fully_shard(nn.ModuleList([nn.Linear(1, 1)]))


def with_any_optimizer() -> None:
    """States are in parts, as parameters are; steps that need the whole of a matrix have it."""

    def matrices() -> Any:
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(6, 5, bias=False), nn.Tanh(),
                             nn.Linear(5, 2, bias=False)).double()  # fmt: skip

    def outcome(model: Any, kind: Any, part: Any) -> tuple[Any, Any]:
        optimizer = kind(model.parameters(), lr=0.05)

        def closure() -> Any:
            optimizer.zero_grad()
            loss = loss_of(model, *(part(t) for t in batch(0)))
            loss.backward()
            return loss.detach() if part is whole else dist_mean(loss.detach())

        for _ in range(3):
            optimizer.step(closure)
        return optimizer, values(model)

    def dist_mean(loss: Any) -> Any:
        dist.all_reduce(loss, dist.ReduceOp.AVG)
        return loss

    optim = torch.optim
    for kind in (optim.Adam, optim.Adagrad, optim.Rprop, optim.Muon, optim.Adafactor, optim.LBFGS):
        optimizer, ours = outcome(sharded(matrices()), kind, own)
        agree(ours, outcome(matrices(), kind, whole)[1])
        if kind not in (optim.Adafactor, optim.LBFGS):
            for p in optimizer.param_groups[0]["params"]:
                kept = {k: v for k, v in optimizer.state[p].items() if k != "step"}
                assert kept and all(v.placements == (Shard(0),) for v in kept.values()), kind
                assert all(v.shape == p.shape for v in kept.values())
            saved = optimizer.state_dict()
            optimizer.load_state_dict(saved)
            assert all(isinstance(v, DTensor) for k, v in optimizer.state[p].items() if k != "step")


def changed_in_place() -> None:
    """What is changed otherwise than element by element is the same on all ranks."""
    mesh = init_device_mesh("cpu", (2,))
    start = torch.arange(12.0).reshape(6, 2)
    whole, parts = start.clone(), distribute_tensor(start, mesh, [Shard(0)])
    for x in (whole, parts):
        x[1] = 5.0
        x[4, 0] += 7
        x[x > 9] = -1
        x.index_fill_(0, torch.tensor([5]), 8.0)
        x *= 2
    same(parts.full_tensor(), whole)
    assert parts.nbytes == whole.nbytes and parts.to_local().nbytes < whole.nbytes
    torch.manual_seed(dist.get_rank())
    nn.init.normal_(parts)
    torch.manual_seed(0)
    same(parts.full_tensor(), nn.init.normal_(whole))
    rank, how = dist.get_rank(), {"device_mesh": mesh, "placements": [Shard(1)]}
    for x, value in ((tensor.zeros(3, 5, **how), 0.0), (tensor.ones((3, 5), **how), 1.0),
                     (tensor.full((3, 5), 7.0, **how), 7.0)):  # fmt: skip
        assert x.shape == (3, 5) and x.to_local().shape == (3, 3 - rank)
        same(x.full_tensor(), torch.full((3, 5), value))
    assert tensor.empty(3, 5, dtype=torch.int32, **how).dtype is torch.int32
    assert tensor.zeros(2).placements == (Replicate(),)
    for draw, of_torch in ((tensor.rand, torch.rand), (tensor.randn, torch.randn)):
        torch.manual_seed(rank)
        x = draw(3, 5, requires_grad=True, **how)
        torch.manual_seed(0)
        same(x.full_tensor(), of_torch(3, 5))
        assert x.requires_grad
    with pytest.raises(NotImplementedError, match="unsqueeze_: this would change the shape"):
        parts.unsqueeze_(0)


def in_rows() -> None:
    """A mesh of two dimensions: parts along the second, the same in each row."""
    joined = train(net(), whole, clip=0.1)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = sharded(mesh=mesh)
    agree(train(model, own, clip=0.1), joined)
    weight = model[0].weight
    assert weight.placements == (Replicate(), Shard(0)) and weight.to_local().shape == (8, 6)
    rows = mesh["shard"]
    assert rows.ndim == 1 and rows.size() == 2 and dist.get_rank() in rows.mesh.tolist()
    assert mesh.get_coordinate() == [dist.get_rank() // 2, dist.get_rank() % 2]
    assert mesh.get_local_rank("replicate") == dist.get_rank() // 2


def mistakes() -> None:
    class Number(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = nn.Parameter(torch.ones(()))

    with pytest.raises(ValueError, match="doesn't support scalar parameters. Change factor"):
        fully_shard(Number())
    with pytest.raises(NotImplementedError, match="reshard_after_forward=2"):
        fully_shard(net(), reshard_after_forward=2)
    with pytest.raises(AssertionError, match="FSDP does not support deepcopy"):
        copy.deepcopy(sharded())
    with pytest.raises(AssertionError, match="sharded already"):
        fully_shard(sharded())
    with pytest.raises(ValueError, match="set_modules_to_forward_prefetch: got Linear"):
        sharded().set_modules_to_forward_prefetch([nn.Linear(1, 1)])
    with pytest.raises(RuntimeError, match="want a shape of 2 ranks"):
        init_device_mesh("cpu", (3,))
    with pytest.raises(ValueError, match="each rank once"):
        DeviceMesh("cpu", [0, 0])


def after_an_error() -> None:
    """A backward that fails leaves nothing behind."""
    model, reference = sharded(), net()
    x, y = batch(0)

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            raise ZeroDivisionError

    handle = model[1].register_forward_hook(lambda module, args, out: Fails.apply(out))
    with pytest.raises(ZeroDivisionError):
        loss_of(model, own(x), own(y)).backward()
    handle.remove()
    model.zero_grad()
    loss_of(model, own(x), own(y)).backward()
    loss_of(reference, x, y).backward()
    agree([p.grad.full_tensor() for p in model.parameters()],
          [p.grad for p in reference.parameters()])  # fmt: skip


def killed() -> None:
    """The last case: a rank is killed in the midst of a step, and the others are told."""
    model = sharded()

    def step(model: Any, x: Any, y: Any) -> None:
        loss = loss_of(model, x, y)
        if dist.get_rank() == 1 and group_of(model).reduced == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()

    with pytest.raises(dist.DistBackendError, match="rank 1 has died"):
        train(model, own, step)
