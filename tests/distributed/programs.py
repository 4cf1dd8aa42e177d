"""What ranks run: each function is called by all ranks at once, and raises if it is not so."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import cugrad as torch
import cugrad.distributed as dist
from cugrad.distributed import ReduceOp
from tests.support.patience import patient

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
    torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip
SHAPES: list[tuple[int, ...]] = [(), (0,), (7,), (3, 5), (2, 1, 9)]
LARGE = (30_001,)  # more than goes in one message


def start() -> None:
    dist.init_process_group(timeout=timedelta(seconds=patient()))


def data(rank: int, shape: tuple[int, ...], dtype: Any, salt: int = 0) -> Any:
    """A tensor of whole numbers that each rank can make for each other; their sums are exact."""
    rng = np.random.default_rng([rank, len(shape), salt])
    values = torch.tensor(rng.integers(0, 4, shape))
    if dtype.is_complex:
        values = torch.complex(values.double(), torch.tensor(rng.integers(0, 4, shape)).double())
    return values.to(dtype)


def everyone(shape: tuple[int, ...], dtype: Any, salt: int = 0) -> list[Any]:
    return [data(r, shape, dtype, salt) for r in range(dist.get_world_size())]


def same(x: Any, y: Any, what: Any = "") -> None:
    assert x.dtype == y.dtype and x.shape == y.shape, (what, x.dtype, y.dtype, x.shape, y.shape)
    assert torch.equal(x, y), f"{what}: {x} is not {y}"


def kinds() -> list[tuple[Any, tuple[int, ...]]]:
    """Each dtype in each shape, and a large tensor."""
    return [*itertools.product(DTYPES, SHAPES), (torch.float64, LARGE)]


NUMPY: dict[ReduceOp, Callable[..., Any]] = {
    ReduceOp.SUM: np.add, ReduceOp.PRODUCT: np.multiply, ReduceOp.MIN: np.minimum,
    ReduceOp.MAX: np.maximum, ReduceOp.BAND: np.bitwise_and, ReduceOp.BOR: np.bitwise_or,
    ReduceOp.BXOR: np.bitwise_xor,
}  # fmt: skip


def reduced(tensors: list[Any], op: ReduceOp) -> Any:
    """What NumPy makes of the tensors of all ranks."""
    dtype = tensors[0].dtype
    half = dtype in (torch.float16, torch.bfloat16)
    arrays = [(t.float() if half else t).numpy() for t in tensors]
    function = NUMPY[ReduceOp.SUM if op is ReduceOp.AVG else op]
    total = arrays[0]
    for array in arrays[1:]:
        total = function(total, array, dtype=total.dtype if total.dtype.kind != "b" else None)
    if op is ReduceOp.AVG:
        total = total / len(arrays) if total.dtype.kind in "fc" else total // len(arrays)
    return torch.tensor(total).to(dtype)


def operations(dtype: Any) -> list[ReduceOp]:
    if dtype.is_complex:
        return [ReduceOp.SUM, ReduceOp.AVG]
    bits = [ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR]
    if dtype is torch.bool:
        return [ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX, *bits]
    return [op for op in ReduceOp if not (dtype.is_floating_point and op in bits)]


def reductions() -> Iterator[tuple[Any, tuple[int, ...], ReduceOp]]:
    """Each dtype with each operation in two shapes, and in each shape with some of them."""
    for k, (dtype, shape) in enumerate(kinds()):
        for i, op in enumerate(operations(dtype)):
            if shape == LARGE or (k + i) % len(SHAPES) < 2:
                yield dtype, shape, op


def sums() -> None:
    rank = dist.get_rank()
    for dtype, shape, op in reductions():
        expected = reduced(everyone(shape, dtype), op)
        x = data(rank, shape, dtype)
        dist.all_reduce(x, op)
        same(x, expected, ("all_reduce", dtype, op))
        x = data(rank, shape, dtype)
        dist.reduce(x, 1, op)
        same(x, expected if rank == 1 else data(rank, shape, dtype), ("reduce", dtype, op))


def sums_in_parts() -> None:
    rank, n = dist.get_rank(), dist.get_world_size()
    for dtype, shape, op in reductions():
        parts = [[data(r, shape, dtype, i) for i in range(n)] for r in range(n)]
        expected = reduced([p[rank] for p in parts], op)
        out = torch.empty_like(expected)
        dist.reduce_scatter(out, parts[rank], op)
        same(out, expected, ("reduce_scatter", dtype, op))
        out = torch.empty_like(expected)
        dist.reduce_scatter_tensor(out, torch.stack(parts[rank]), op)
        same(out, expected, ("reduce_scatter_tensor", dtype, op))


def copies() -> None:
    rank, n = dist.get_rank(), dist.get_world_size()
    for dtype, shape in kinds():
        x = data(rank, shape, dtype)
        dist.broadcast(x, n - 1)
        same(x, data(n - 1, shape, dtype), ("broadcast", dtype))
        x, all_of_them = data(rank, shape, dtype), everyone(shape, dtype)
        out = [torch.empty_like(x) for _ in range(n)]
        dist.all_gather(out, x)
        for got, wish in zip(out, all_of_them, strict=True):
            same(got, wish, ("all_gather", dtype))
        whole = torch.empty((n, *shape), dtype=dtype)
        dist.all_gather_into_tensor(whole, x)
        same(whole, torch.stack(all_of_them), ("all_gather_into_tensor", dtype))
        out = [torch.empty_like(x) for _ in range(n)] if rank == 1 else None
        dist.gather(x, out, dst=1)
        for got, wish in zip(out or [], all_of_them):
            same(got, wish, ("gather", dtype))
        got = torch.empty_like(x)
        dist.scatter(got, [t + t for t in all_of_them] if rank == 1 else None, src=1)
        same(got, x + x, ("scatter", dtype))


def exchanges() -> None:
    rank, n = dist.get_rank(), dist.get_world_size()
    for dtype, shape in kinds():
        sent = [data(rank, shape, dtype, i) for i in range(n)]
        wish = [data(r, shape, dtype, rank) for r in range(n)]
        got = [torch.empty_like(t) for t in wish]
        dist.all_to_all(got, sent)
        same(torch.stack(got), torch.stack(wish), ("all_to_all", dtype))
        whole = torch.empty_like(torch.stack(wish))
        dist.all_to_all_single(whole, torch.stack(sent))
        same(whole, torch.stack(wish), ("all_to_all_single", dtype))
    # parts of other sizes: rank r sends i + 1 rows to rank i
    sent = torch.full((n * (n + 1) // 2, 2), float(rank))
    whole = torch.empty(n * (rank + 1), 2)
    dist.all_to_all_single(whole, sent, [rank + 1] * n, [i + 1 for i in range(n)])
    same(whole[:, 0], torch.arange(float(n)).repeat_interleave(rank + 1))
    with pytest.raises(ValueError, match=r"all_to_all_single: .* sends 2 .* has a place for 3"):
        dist.all_to_all_single(torch.empty(3 * n), torch.empty(2 * n))
    with pytest.raises(ValueError, match=r"all_to_all: .* sends 1 .* has a place for 2"):
        dist.all_to_all([torch.empty(2)] * n, [torch.empty(1)] * n)


def layouts() -> None:
    """Tensors that are not dense, parts of others, and lists of different shapes."""
    rank, n = dist.get_rank(), dist.get_world_size()
    whole = torch.arange(24.0).reshape(4, 6) * (rank + 1)
    x = whole.t()[1:4, ::2]
    before = whole.clone()
    dist.all_reduce(x)
    factor = n * (n + 1) / 2
    same(x, torch.arange(24.0).reshape(4, 6).t()[1:4, ::2] * factor)
    same(whole[:, 0], before[:, 0])
    assert x._version == 1 == whole._version
    rows = [torch.empty(r + 1, 2) for r in range(n)]  # of each rank as many as it has
    dist.all_gather(rows, torch.full((rank + 1, 2), float(rank)))
    for r in range(n):
        same(rows[r], torch.full((r + 1, 2), float(r)))
    w = torch.ones(3, requires_grad=True)
    y = (w * w).sum()
    with torch.no_grad():
        dist.all_reduce(w)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def later() -> None:
    """Work that is waited for later, in any order, and futures."""
    rank, n = dist.get_rank(), dist.get_world_size()
    tensors = [torch.full((50_000,), float(rank + i)) for i in range(6)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    assert all(isinstance(work, dist.Work) for work in works)
    for i in (3, 0, 5, 1, 4, 2):
        assert works[i].wait() and works[i].is_completed() and works[i].is_success()
        same(tensors[i], torch.full((50_000,), float(sum(r + i for r in range(n)))))
        assert works[i].result()[0] is tensors[i] and works[i].exception() is None
    x = torch.ones(3)
    future = dist.all_reduce(x, async_op=True).get_future().then(lambda f: f.value()[0] / n)
    same(future.wait(), torch.ones(3))
    assert future.done()
    for call in (dist.broadcast, dist.reduce):  # alike on the rank that reads, and on the others
        x = torch.full((3,), float(rank))
        future = call(x, 0, async_op=True).get_future().then(lambda f: f.value()[0])
        assert future.wait() is x
    work = dist.barrier(async_op=True)
    while not work.is_completed():
        pass


def pairs() -> None:
    rank, n = dist.get_rank(), dist.get_world_size()
    following, before = (rank + 1) % n, (rank - 1) % n
    for dtype in DTYPES:
        x, got = data(rank, (5,), dtype), torch.empty(5, dtype=dtype)
        if rank % 2:
            assert dist.recv(got, before) == before
            dist.send(x, following)
        else:
            dist.send(x, following)
            assert dist.recv(got) == before  # from any rank
        same(got, data(before, (5,), dtype))
    # large ones, which all send before they receive, and two tags out of order
    x, got = torch.full((200_000,), float(rank)), torch.empty(200_000)
    small, other = torch.tensor(rank), torch.tensor(-1)
    batch = [
        dist.P2POp(dist.isend, x, following, tag=1),
        dist.P2POp(dist.isend, small, following, tag=2),
        dist.P2POp(dist.irecv, other, before, tag=2),
        dist.P2POp(dist.irecv, got, before, tag=1),
    ]  # fmt: skip
    assert "isend" in repr(batch[0])
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    same(got, torch.full((200_000,), float(before)))
    assert other.item() == before
    with pytest.raises(ValueError, match="Invalid destination rank"):
        dist.send(x, rank)


def things() -> None:
    """Objects of Python's, of different sizes."""
    rank, n = dist.get_rank(), dist.get_world_size()
    own = {"rank": rank, "text": "x" * (rank * 100), "tensor": torch.full((2,), float(rank))}
    out: list[Any] = [None] * n
    dist.all_gather_object(out, own)
    assert [o["rank"] for o in out] == list(range(n)) and len(out[-1]["text"]) == (n - 1) * 100
    same(out[1]["tensor"], torch.ones(2))
    out = [None] * n
    dist.gather_object(own, out if rank == 0 else None, dst=0)
    assert rank != 0 or [o["rank"] for o in out] == list(range(n))
    objects = ["a", {"b": 2}, 3.5] if rank == 1 else [None] * 3
    dist.broadcast_object_list(objects, src=1)
    assert objects == ["a", {"b": 2}, 3.5]
    got: list[Any] = [None]
    dist.scatter_object_list(got, [("for", r) for r in range(n)] if rank == 0 else None, src=0)
    assert got == [("for", rank)]
    if rank == 0:
        dist.send_object_list(["one", 2], dst=1)
    if rank == 1:
        assert dist.recv_object_list(pair := [None, None], src=0) == 0 and pair == ["one", 2]


def groups() -> None:
    rank, n = dist.get_rank(), dist.get_world_size()
    pair, last = dist.new_group([1, 0]), dist.new_group([n - 1])
    evens = dist.new_group(range(0, n, 2), timeout=timedelta(seconds=patient()))
    assert dist.get_rank(pair) == (rank if rank < 2 else -1)
    x = torch.tensor(float(rank + 1))
    if rank < 2:
        dist.all_reduce(x, group=pair)
        assert x.item() == 3 and dist.get_process_group_ranks(pair) == [0, 1]
        assert dist.get_group_rank(pair, 1) == 1 and dist.get_global_rank(pair, 0) == 0
    else:
        with pytest.warns(UserWarning, match="does not belong to the given group"):
            assert dist.all_reduce(x, group=pair) is None
    if rank == n - 1:
        dist.all_reduce(x, group=last)
        assert dist.get_world_size(last) == 1 and dist.get_rank(last) == 0
    if rank % 2 == 0:
        y = torch.tensor(float(rank))
        dist.broadcast(y, src=evens.ranks[-1], group=evens)
        assert y.item() == evens.ranks[-1]
        with pytest.raises(ValueError, match="Global rank 1 is not part of group"):
            dist.broadcast(y, src=1, group=evens)
        dist.destroy_process_group(evens)
        with pytest.raises(ValueError, match="Invalid process group"):
            dist.all_reduce(y, group=evens)
    for call in (dist.get_rank, dist.get_world_size, dist.get_backend, dist.destroy_process_group,
                 lambda g: dist.get_group_rank(g, 0), lambda g: dist.get_global_rank(g, 0),
                 lambda g: dist.all_reduce(x, group=g), lambda g: dist.barrier(g)):  # fmt: skip
        with pytest.raises(ValueError, match="Invalid process group specified: got int"):
            call(3)
    own, all_of_them = dist.new_subgroups(1)
    assert own is all_of_them[rank] and dist.get_world_size(own) == 1
    own, _ = dist.new_subgroups_by_enumeration([[0, n - 1]])
    assert own is (None if 0 < rank < n - 1 else dist.groups.world.groups[str(own.group_name)])
    if own is not None:
        y = torch.tensor(1.0)
        dist.all_reduce(y, group=own)
        assert y.item() == 2
    for size, text in ((0, "must be positive"), (n + 1, "must not exceed"), (n - 1, "divisible")):
        if size != 1:
            with pytest.raises(ValueError, match=text):
                dist.new_subgroups(size)
    with pytest.raises(ValueError, match="Rank 0 has appeared in both subgroup"):
        dist.new_subgroups_by_enumeration([[0], [0, 1]])
    dist.barrier()
    dist.monitored_barrier(timeout=timedelta(seconds=patient()))


def again() -> None:
    """Ends the job's groups, and begins anew."""
    rank = dist.get_rank()
    dist.destroy_process_group()
    assert not dist.is_initialized() and dist.group.WORLD is None
    start()
    x = torch.tensor(float(rank))
    dist.all_reduce(x, ReduceOp.MAX)
    assert x.item() == dist.get_world_size() - 1
