"""Collectives with gradients: those of all ranks' losses go back the way that the data came."""

from __future__ import annotations

from typing import Any

from ...autograd.function import Function
from ...autograd.mode import no_grad
from ...functions.creation.factories import empty, zeros_like
from ...functions.shapes.copies import cat
from ...tensor import Tensor
from .. import collectives
from ..checks import rank_in
from ..groups import ProcessGroup, default_group
from ..reduce_op import ReduceOp

__all__ = [
    "all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather", "reduce",
    "reduce_scatter", "scatter",
]  # fmt: skip

Group = Any  # a ProcessGroup; None for the default one


def _like(x: Tensor) -> Tensor:
    return empty(x.shape, dtype=x.dtype, device=x.device)


def _sums(name: str, op: ReduceOp) -> None:
    if op not in (ReduceOp.SUM, ReduceOp.AVG):
        raise NotImplementedError(
            f"distributed.nn.functional.{name}: got {op}, want ReduceOp.SUM or AVG, which have "
            "gradients"
        )


def _reduced(x: Tensor, op: ReduceOp, group: ProcessGroup) -> Tensor:
    total = x.detach().clone()
    collectives.all_reduce(total, op, group)
    return total


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, op: ReduceOp, group: ProcessGroup) -> Tensor:
        ctx.op, ctx.group = op, group
        return _reduced(x, op, group)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return _AllReduce.apply(g, ctx.op, ctx.group), None, None


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, root: int, group: ProcessGroup) -> Tensor:
        ctx.root, ctx.group = root, group
        copy = x.detach().clone()
        collectives.broadcast(copy, group=group, group_src=root)
        return copy

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return _Reduce.apply(g, ctx.root, ReduceOp.SUM, ctx.group), None, None


class _Reduce(Function):
    """The sum at the root, and zeros elsewhere."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, root: int, op: ReduceOp, group: ProcessGroup) -> Tensor:
        ctx.root, ctx.op, ctx.group = root, op, group
        total = x.detach().clone()
        collectives.reduce(total, op=op, group=group, group_dst=root)
        return total if group.rank() == root else zeros_like(total)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        g = _Broadcast.apply(g, ctx.root, ctx.group)
        return g / ctx.group.size() if ctx.op is ReduceOp.AVG else g, None, None, None


class _AllToAll(Function):
    """Sends a tensor to each rank, and gets those of the shapes `like`."""

    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, like: list[Any], *sent: Tensor) -> Any:
        ctx.group, ctx.shapes = group, [tuple(t.shape) for t in sent]
        out = [empty(shape, dtype=sent[0].dtype, device=sent[0].device) for shape in like]
        collectives.all_to_all(out, [t.detach() for t in sent], group)
        return tuple(out)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, None, *_AllToAll.apply(ctx.group, ctx.shapes, *gradients)


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, x: Tensor) -> Any:
        ctx.group = group
        out = [_like(x) for _ in range(group.size())]
        collectives.all_gather(out, x.detach(), group)
        return tuple(out)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, _ReduceScatter.apply(ctx.group, ReduceOp.SUM, *gradients)


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, op: ReduceOp, *parts: Tensor) -> Tensor:
        ctx.group, ctx.op = group, op
        out = _like(parts[group.rank()])
        collectives.reduce_scatter(out, [t.detach() for t in parts], op, group)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        if ctx.op is ReduceOp.AVG:
            g = g / ctx.group.size()
        return None, None, *_AllGather.apply(ctx.group, g)


class _Gather(Function):
    """The tensors of all ranks at the root, and zeros elsewhere."""

    @staticmethod
    def forward(ctx: Any, root: int, group: ProcessGroup, x: Tensor) -> Any:
        ctx.root, ctx.group = root, group
        out = [zeros_like(x) for _ in range(group.size())]
        is_root = group.rank() == root
        collectives.gather(x.detach(), out if is_root else None, group=group, group_dst=root)
        return tuple(out)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, None, _Scatter.apply(ctx.root, ctx.group, *gradients)


class _Scatter(Function):
    @staticmethod
    def forward(ctx: Any, root: int, group: ProcessGroup, *parts: Tensor) -> Tensor:
        ctx.root, ctx.group = root, group
        out = _like(parts[group.rank()])
        sent = [t.detach() for t in parts] if group.rank() == root else None
        collectives.scatter(out, sent, group=group, group_src=root)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return None, None, *_Gather.apply(ctx.root, ctx.group, g)


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Group = None) -> Tensor:
    """The sum, or average, of the tensors of all ranks, on all ranks.

    >>> import cugrad as torch
    >>> import cugrad.distributed as dist
    >>> from cugrad.distributed.nn import functional
    >>> dist.init_process_group("mpi", rank=0, world_size=1)
    >>> x = torch.tensor(3.0, requires_grad=True)
    >>> (functional.all_reduce(x) * x).backward()
    >>> x.grad
    tensor(6.)
    >>> dist.destroy_process_group()
    """
    _sums("all_reduce", op)
    return _AllReduce.apply(tensor, op, group or default_group())


def broadcast(tensor: Tensor, src: int, group: Group = None) -> Tensor:
    """The tensor of the rank `src`, on all ranks."""
    group = group or default_group()
    return _Broadcast.apply(tensor, rank_in(group, src, None), group)


def reduce(tensor: Tensor, dst: int, op: ReduceOp = ReduceOp.SUM, group: Group = None) -> Tensor:
    """The sum, or average, of the tensors of all ranks on the rank `dst`; zeros on the others."""
    _sums("reduce", op)
    group = group or default_group()
    return _Reduce.apply(tensor, rank_in(group, dst, None), op, group)


def gather(tensor: Tensor, dst: int = 0, group: Group = None) -> tuple[Tensor, ...]:
    """The tensors of all ranks, on the rank `dst`; zeros on the others."""
    group = group or default_group()
    return _Gather.apply(rank_in(group, dst, None), group, tensor)


def scatter(tensors: list[Tensor], src: int = 0, group: Group = None) -> Tensor:
    """This rank's tensor of those that the rank `src` has; others give some of the same shapes."""
    group = group or default_group()
    return _Scatter.apply(rank_in(group, src, None), group, *tensors)


def reduce_scatter(
    output: Tensor, input_list: list[Tensor], op: ReduceOp = ReduceOp.SUM, group: Group = None
) -> Tensor:
    """This rank's place of the sum, or average, of all ranks' lists; also written to `output`."""
    _sums("reduce_scatter", op)
    result = _ReduceScatter.apply(group or default_group(), op, *input_list)
    with no_grad():
        output.copy_(result)
    return result


def all_gather(tensor: Tensor, group: Group = None) -> tuple[Tensor, ...]:
    """The tensors of all ranks, on all ranks."""
    return _AllGather.apply(group or default_group(), tensor)


def all_to_all(
    output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Group = None
) -> tuple[Tensor, ...]:
    """A tensor from each rank, of the shapes in `output_tensor_list`, for one sent to each."""
    like = [tuple(t.shape) for t in output_tensor_list]
    return _AllToAll.apply(group or default_group(), like, *input_tensor_list)


def all_to_all_single(
    output: Tensor, input: Tensor, output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None, group: Group = None,
) -> Tensor:  # fmt: skip
    """Parts from each rank, joined along the first dim, in the shape of `output`."""
    group = group or default_group()
    n = group.size()
    rows = input.split(input_split_sizes or [input.shape[0] // n] * n)
    sizes = output_split_sizes or [output.shape[0] // n] * n
    parts = _AllToAll.apply(group, [(size, *output.shape[1:]) for size in sizes], *rows)
    return cat(parts)
