"""What ranks run of DistributedDataParallel: each trains on the whole batch, too, beside it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cugrad as torch
import cugrad.distributed as dist
from cugrad import nn
from cugrad.distributed.algorithms.ddp_comm_hooks import default_hooks
from cugrad.distributed.algorithms.join import Join
from cugrad.distributed.nn import functional
from cugrad.distributed.optim import ZeroRedundancyOptimizer
from cugrad.nn.parallel import DistributedDataParallel as DDP
from tests.distributed.programs import same, start

__all__ = ["start"]

STEPS = 8
ROWS = 3  # of each rank


def batch(step: int) -> tuple[Any, Any]:
    """The joined batch of a step, in the order of the ranks."""
    rng = np.random.default_rng(step)
    n = ROWS * dist.get_world_size()
    return torch.tensor(rng.normal(size=(n, 6))), torch.tensor(rng.normal(size=(n, 2)))


def own(x: Any) -> Any:
    rank = dist.get_rank()
    return x[rank * ROWS : (rank + 1) * ROWS]


def net(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(),
                         nn.Linear(16, 2)).double()  # fmt: skip


def loss_of(model: Any, x: Any, y: Any) -> Any:
    return ((model(x) - y) ** 2).mean()


def train(
    model: Any, part: Callable[[Any], Any], step: Any = None, optimizer: Any = torch.optim.Adam
) -> list[Any]:
    """Parameters after some steps."""
    optimizer = optimizer(model.parameters(), lr=1e-2)
    for i in range(STEPS):
        optimizer.zero_grad()
        x, y = batch(i)
        if step is None:
            loss_of(model, part(x), part(y)).backward()
        else:
            step(model, part(x), part(y))
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def agree(ours: list[Any], joined: list[Any], tolerance: float = 1e-9) -> None:
    for a, b in zip(ours, joined, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
        everyone = [torch.empty_like(a) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, a)
        for other in everyone:
            same(other, a)  # to the bit


def whole(x: Any) -> Any:
    return x


def plain() -> None:
    """Whatever the size of buckets, and whichever rank's parameters were others at first."""
    joined = train(net(), whole)
    ways = [(25, False), (0.0005, False), (0.0005, True), (0.00001, False)]
    for size, views in ways if dist.get_world_size() == 2 else ways[2:3]:
        model = DDP(net(dist.get_rank()), bucket_cap_mb=size, gradient_as_bucket_view=views)
        assert len(model.reducer.buckets) == 1 if size == 25 else len(model.reducer.buckets) > 1
        agree(train(model, own), joined)
    twice, x = DDP(net()), own(batch(0)[0])  # two forwards before a backward
    (twice(x) + twice(2 * x)).mean().backward()
    alone, x = net(), batch(0)[0]
    (alone(x) + alone(2 * x)).mean().backward()
    agree([p.grad for p in twice.parameters()], [p.grad for p in alone.parameters()])
    assert sorted(model.state_dict()) == [f"module.{n}" for n in sorted(net().state_dict())]
    model = DDP(net(), static_graph=True, bucket_cap_mb=0.0005)
    agree(train(model, own, optimizer=torch.optim.SGD), train(net(), whole, None, torch.optim.SGD))


def accumulated() -> None:
    """Gradients of parts of the batch come together without being reduced, until the last."""

    def step(model: Any, x: Any, y: Any) -> None:
        parts = [(x[i : i + 1], y[i : i + 1]) for i in range(len(x))]
        with model.no_sync():
            for xs, ys in parts[:-1]:
                (loss_of(model, xs, ys) / len(parts)).backward()
        (loss_of(model, *parts[-1]) / len(parts)).backward()

    for views in (False, True):
        agree(train(DDP(net(), gradient_as_bucket_view=views), own, step), train(net(), whole))


class Choosing(nn.Module):
    """Not all parameters take part in each step, and one never does."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.never = nn.Linear(6, 2), nn.Linear(6, 2), nn.Linear(6, 2)

    def forward(self, x: Any, which: str) -> Any:
        return getattr(self, which)(x)


def unused() -> None:
    rank, n = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    module = Choosing().double()
    model = DDP(module, find_unused_parameters=True, bucket_cap_mb=0.0001)
    x, y = batch(0)
    for _ in range(2):
        model.zero_grad()
        ((model(own(x), "a" if rank == 0 else "b") - own(y)) ** 2).mean().backward()
        assert module.never.weight.grad is None
        rows = torch.arange(len(x)) < ROWS
        for part, mask in ((module.a, rows), (module.b, ~rows)):
            w = part.weight.detach().requires_grad_()
            error = (x @ w.T + part.bias.detach() - y) ** 2
            (g,) = torch.autograd.grad((error.mean(1) * mask).sum() / (ROWS * n), w)
            torch.testing.assert_close(part.weight.grad, g)
    plain = DDP(Choosing().double())
    plain(own(x), "a").sum().backward()
    with pytest.raises(
        RuntimeError,
        match=r"prior iteration(.|\n)*: 2 3 4 5 \(b.weight, b.bias, "
        "never",
    ):
        plain(own(x), "a")


class Words(nn.Module):
    """Two tables of which a step uses a few rows, and one that only the first rank uses."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(12, 3, sparse=True)
        self.bag = nn.EmbeddingBag(12, 3, sparse=True, mode="sum")
        self.rare = nn.Embedding(4, 3, sparse=True)
        self.last = nn.Linear(3, 2)
        self.double()

    def forward(self, x: Any, rare: bool) -> Any:
        y = self.words(x).sum(1) + self.bag(x)
        return self.last(y + self.rare(x[:, 0] % 4) if rare else y)


def sparse() -> None:
    """The mean of all ranks' sparse gradients, coalesced, as PyTorch's is."""
    rank, n = dist.get_rank(), dist.get_world_size()
    rng = np.random.default_rng(7)
    for views in (False, True):
        torch.manual_seed(0)
        reference, module = Words(), Words()
        module.load_state_dict(reference.state_dict())
        model = DDP(module, find_unused_parameters=True, bucket_cap_mb=0.0001,
                    gradient_as_bucket_view=views)  # fmt: skip
        ours, joined = ([torch.optim.SGD(m.parameters(), lr=0.1)] for m in (model, reference))
        for _ in range(5):
            x = torch.tensor(rng.integers(0, 12, (n * ROWS, 2 if _ != 3 else 5)))
            for optimizer in (*ours, *joined):
                optimizer.zero_grad()
            with model.no_sync():
                model(own(x), rank == 0).sum().backward()
            model(own(x), rank == 0).square().mean().backward()
            for r in range(n):
                rows = x[r * ROWS : (r + 1) * ROWS]
                (reference(rows, r == 0).sum() / n).backward()
                (reference(rows, r == 0).square().mean() / n).backward()
            for p, q in zip(module.parameters(), reference.parameters(), strict=True):
                assert p.grad.is_sparse == q.grad.is_sparse
                if p.grad.is_sparse:
                    assert p.grad.is_coalesced()
                    same(p.grad.indices(), q.grad.coalesce().indices())
                torch.testing.assert_close(p.grad.to_dense(), q.grad.to_dense())
            for optimizer in (*ours, *joined):
                optimizer.step()
    with pytest.raises(NotImplementedError, match="register_comm_hook.*sparse gradients"):
        model.register_comm_hook(None, default_hooks.allreduce_hook)


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.inner, self.last, self.reentrant = net(), nn.Linear(2, 2).double(), reentrant

    def forward(self, x: Any) -> Any:
        from cugrad.utils.checkpoint import checkpoint

        y = checkpoint(self.inner, x.requires_grad_(), use_reentrant=self.reentrant)
        return self.last(y) + checkpoint(self.inner, x + 1, use_reentrant=self.reentrant)


def placed() -> None:
    """Where saved tensors wait, or that they are made again, changes nothing."""

    def offloaded(model: Any, x: Any, y: Any) -> None:
        with torch.autograd.graph.save_on_cpu():
            loss = loss_of(model, x, y)
        loss.backward()

    def within(model: Any, x: Any, y: Any) -> None:
        with torch.memory.budget("1GB"):
            loss_of(model, x, y).backward()

    joined = train(net(), whole)
    for step in (offloaded, within):
        agree(train(DDP(net(), bucket_cap_mb=0.0005), own, step), joined)
    torch.manual_seed(1)
    reference = Checkpointed(False)
    joined = train(reference, whole)
    for reentrant in (False, True):
        torch.manual_seed(1)
        model = DDP(Checkpointed(reentrant), bucket_cap_mb=0.0005, static_graph=reentrant)
        agree(train(model, own), joined)
    torch.manual_seed(1)
    model = DDP(Checkpointed(True))
    with pytest.raises(RuntimeError, match="ready only once.*inner"):
        loss_of(model, *map(own, batch(0))).backward()


def scaled() -> None:
    """Autocast and a scaler of losses: all ranks skip the same steps."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    model = DDP(net().float())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for i in range(STEPS):
        x, y = (own(t).float() for t in batch(i % 2))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = ((model(x) - y) ** 2).mean() * (1e38 if i == 3 and dist.get_rank() == 0 else 1)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 2.0**13
    for p in model.parameters():
        agree([p.detach()], [p.detach()])


def hooked() -> None:
    seen: list[tuple[int, bool, int]] = []

    def watching(state: Any, bucket: Any) -> Any:
        assert bucket.buffer().numel() == sum(p.numel() for p in bucket.parameters())
        assert [g.shape for g in bucket.gradients()] == [p.shape for p in bucket.parameters()]
        seen.append((bucket.index(), bucket.is_last(), state))
        return default_hooks.allreduce_hook(None, bucket)

    joined = train(net(), whole)
    model = DDP(net(), bucket_cap_mb=0.0005)
    model.register_comm_hook(7, watching)
    agree(train(model, own), joined)
    n = len(model.reducer.buckets)
    assert seen[-n:] == [(i, i == n - 1, 7) for i in range(n)]
    with pytest.raises(RuntimeError, match="can only be called once"):
        model.register_comm_hook(7, watching)

    def averaged(group: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """As in PyTorch's documentation: a future that the hook makes."""
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        dist.all_reduce(bucket.buffer(), dist.ReduceOp.AVG, group)
        future.set_result(bucket.buffer())
        return future

    model = DDP(net())
    model.register_comm_hook(None, averaged)
    agree(train(model, own), joined)
    for hook in (default_hooks.fp16_compress_hook, default_hooks.bf16_compress_hook,
                 default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)):  # fmt: skip
        model = DDP(net())
        model.register_comm_hook(None, hook)
        agree(train(model, own, None, torch.optim.SGD), train(net(), whole, None, torch.optim.SGD),
              1e-2)  # fmt: skip


def normed() -> None:
    """Batch norms with the statistics of all ranks, and buffers of the first rank without."""

    def image_net() -> Any:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(),
                             nn.Linear(8, 2)).double()  # fmt: skip

    reference = image_net()
    joined = train(reference, whole, None, torch.optim.SGD)
    model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(image_net()))
    agree(train(model, own, None, torch.optim.SGD), joined)
    for name, buffer in model.module.named_buffers():
        torch.testing.assert_close(buffer, reference.get_buffer(name))
    for is_broadcast in (True, False):
        model = DDP(image_net(), broadcast_buffers=is_broadcast)
        train(model, own)
        model.eval()(own(batch(0)[0]))  # begins with the buffers of the first rank, and keeps them
        for buffer in model.module[1].running_mean, model.module[1].running_var:
            first = buffer.clone()
            dist.broadcast(first, 0)
            assert torch.equal(buffer, first) == (is_broadcast or dist.get_rank() == 0)


def mistakes() -> None:
    rank = dist.get_rank()
    with pytest.raises(RuntimeError, match="DDP expects same model across all ranks.*rank 1"):
        DDP(nn.Linear(2, 3 if rank == 1 else 2))
    with pytest.raises(RuntimeError, match="not needed when a module doesn't have any parameter "):
        DDP(nn.ReLU())
    with pytest.raises(NotImplementedError, match="mixed_precision"):
        DDP(nn.Linear(1, 1), mixed_precision=object())
    with pytest.raises(NotImplementedError, match="join"):
        DDP(nn.Linear(1, 1), static_graph=True).join()
    with pytest.raises(ValueError, match="single element"):
        DDP(nn.Linear(1, 1), device_ids=[0, 1])


def uneven() -> None:
    """Ranks with fewer batches take part in the steps of others, and end with their parameters."""
    rank, n = dist.get_rank(), dist.get_world_size()

    def image_net() -> Any:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(),
                             nn.Linear(8, 2)).double()  # fmt: skip

    for by_all in (True, False):
        model, reference = DDP(net(), bucket_cap_mb=0.0005), net()
        adam = torch.optim.Adam(reference.parameters(), lr=1e-2)
        zero = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-2)
        with Join([model, zero], divide_by_initial_world_size=by_all):
            for i in range(2 * rank):  # rank 0 has no batch
                zero.zero_grad()
                loss_of(model, *map(own, batch(i))).backward()
                zero.step()
        for i in range(2 * (n - 1)):
            x, y = batch(i)
            ranks = range(i // 2 + 1, n)
            adam.zero_grad()
            for r in ranks:
                rows = slice(r * ROWS, (r + 1) * ROWS)
                (loss_of(reference, x[rows], y[rows]) / (n if by_all else len(ranks))).backward()
            adam.step()
        agree(
            [p.detach() for p in model.parameters()], [p.detach() for p in reference.parameters()]
        )
    model = DDP(image_net(), find_unused_parameters=True)
    with model.join():
        for i in range(rank + 1):
            with model.no_sync():
                loss_of(model, *map(own, batch(i))).backward()
            loss_of(model, *map(own, batch(i))).backward()
    agree([b.double() for b in model.buffers()], [b.double() for b in model.buffers()])
    with (
        pytest.raises(RuntimeError, match="exhausted"),
        model.join(throw_on_early_termination=True),
    ):
        for i in range(rank + 1):
            loss_of(model, *map(own, batch(i))).backward()


def gradients() -> None:
    """Collectives with gradients: as if all ranks' losses were computed in one graph."""
    rank, n = dist.get_rank(), dist.get_world_size()
    rng = np.random.default_rng(5)
    inputs = [torch.tensor(rng.normal(size=(n, 2)), requires_grad=True) for _ in range(n)]
    weights = [torch.tensor(rng.normal(size=(n, n, 2))) for _ in range(n)]
    total, parts = sum(inputs), [torch.stack([x[r] for x in inputs]) for r in range(n)]
    zeros = torch.zeros(n, 2)
    # what rank r computes of all ranks' inputs, and by which call of its own
    cases: list[tuple[Callable[[int], Any], Callable[[Any], Any]]] = [
        (lambda r: total, lambda x: functional.all_reduce(x)),
        (lambda r: total / n, lambda x: functional.all_reduce(x, dist.ReduceOp.AVG)),
        (lambda r: inputs[1], lambda x: functional.broadcast(x, 1)),
        (lambda r: total if r == 1 else zeros, lambda x: functional.reduce(x, 1)),
        (lambda r: torch.stack(inputs), lambda x: torch.stack(functional.all_gather(x))),
        (lambda r: torch.stack(inputs) if r == 0 else zeros,
         lambda x: torch.stack(functional.gather(x, 0)) * 1),
        (lambda r: inputs[1][r], lambda x: functional.scatter(list(x), 1)),
        (lambda r: total[r],
         lambda x: functional.reduce_scatter(torch.empty(2).double(), list(x))),
        (lambda r: parts[r],
         lambda x: torch.stack(functional.all_to_all(list(torch.empty(n, 2).double()), list(x)))),
        (lambda r: parts[r],
         lambda x: functional.all_to_all_single(torch.empty(n, 2).double(), x)),
    ]  # fmt: skip
    for i, (together, call) in enumerate(cases):
        expected = [(together(r) ** 2 * weights[r]).sum() for r in range(n)]
        (wish,) = torch.autograd.grad(sum(expected), inputs[rank], materialize_grads=True)
        x = inputs[rank].detach().requires_grad_()
        loss = (call(x) ** 2 * weights[rank]).sum()
        torch.testing.assert_close(loss, expected[rank], msg=f"case {i}")
        (g,) = torch.autograd.grad(loss, x, materialize_grads=True)
        torch.testing.assert_close(g, wish, msg=f"case {i}")
    with pytest.raises(NotImplementedError, match="all_reduce: got ReduceOp.MAX"):
        functional.all_reduce(torch.ones(1), dist.ReduceOp.MAX)


def sampled() -> None:
    """Each rank reads a part of a data set, all of them the whole."""
    sampler = torch.utils.data.DistributedSampler(range(10), shuffle=False)
    indices: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(indices, list(sampler))
    assert {i for part in indices for i in part} == set(range(10))
    assert os.environ["RANK"] == str(dist.get_rank())
