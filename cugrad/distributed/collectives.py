"""Collectives: what all ranks of a group call together, in the same order, on tensors."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ..tensor import Tensor
from .checks import (
    check_list,
    check_lists,
    check_same_dtype,
    check_tensor,
    compare,
    member_group,
    rank_in,
)
from .engines.protocol import Engine, Pending
from .engines.wires import Wire
from .groups import ProcessGroup
from .reduce_op import ReduceOp, check_reduction
from .starting import seconds_of
from .work import Work

__all__ = [
    "all_gather", "all_gather_into_tensor", "all_gather_single", "all_reduce", "all_to_all",
    "all_to_all_single", "barrier", "broadcast", "gather", "monitored_barrier", "reduce",
    "reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor", "scatter",
]  # fmt: skip

Group = Any  # a ProcessGroup; None for the default one


class Beginning:
    """A collective whose arguments are checked, about to begin."""

    def __init__(self, group: ProcessGroup, name: str, tensor: Tensor) -> None:
        self.group, self.name = group, name
        self.engine: Engine = group.engine_for(name, tensor._array)
        self.compared: tuple[Any, ...] = ([], False)
        self.parts: tuple[list[int], list[int]] | None = None
        self.outputs: list[Wire] = []
        self.result: list[Tensor] | None = None

    def reads(self, *tensors: Tensor) -> Wire:
        return Wire(list(tensors), self.engine.on_host, reads=True)

    def writes(self, *tensors: Tensor, reads: bool = False) -> Wire:
        wire = Wire(list(tensors), self.engine.on_host, reads=reads, writes=True)
        self.outputs.append(wire)
        return wire

    def compare(self, tensors: list[Tensor], shapes: bool, *how: Any) -> None:
        """What all ranks agree in, if they are asked."""
        self.compared = (tensors, shapes, *how)

    def begin(self, start: Callable[[], Pending], async_op: bool) -> Work | None:
        """Calls the engine; waits, or returns the Work to wait for."""
        call = self.group.begin(self.name)
        compare(call, *self.compared, parts=self.parts)
        try:
            pending = start()
        except (TypeError, ValueError):  # what the engine does not do, on any rank
            raise
        except Exception as error:
            if self.group.member is None:
                raise
            raise call.failed(f"{call}: {error}") from error

        def deliver() -> None:
            for wire in self.outputs:
                wire.deliver()

        written = [t for wire in self.outputs for t in wire.tensors]
        work = Work(call, pending, self.result or written, deliver)
        if async_op:
            pending.attend()
            return work
        work.wait()
        return None


def all_reduce(
    tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False
) -> Work | None:
    """Makes each rank's `tensor`, in place, the sum (by default) of those of all ranks.

    >>> import cugrad as torch
    >>> import cugrad.distributed as dist
    >>> dist.init_process_group("mpi", rank=0, world_size=1)
    >>> x = torch.ones(2)
    >>> work = dist.all_reduce(x, dist.ReduceOp.AVG, async_op=True)
    >>> work.wait(), x
    (True, tensor([1., 1.]))
    >>> dist.destroy_process_group()
    """
    check_tensor(tensor, "tensor")
    check_reduction("all_reduce", op, tensor.dtype)
    chosen = member_group(group, "all_reduce")
    if chosen is None:
        return None
    work = Beginning(chosen, "all_reduce", tensor)
    work.compare([tensor], True, op)
    wire = work.writes(tensor, reads=True)
    return work.begin(lambda: work.engine.all_reduce(wire.array, op), async_op)


def reduce(
    tensor: Tensor, dst: int | None = None, op: ReduceOp = ReduceOp.SUM, group: Group = None,
    async_op: bool = False, group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """Makes `tensor` of the rank `dst`, in place, the sum of those of all ranks."""
    check_tensor(tensor, "tensor")
    check_reduction("reduce", op, tensor.dtype)
    chosen = member_group(group, "reduce")
    if chosen is None:
        return None
    root = rank_in(chosen, dst, group_dst)
    work = Beginning(chosen, "reduce", tensor)
    work.compare([tensor], True, op, f"to rank {root} of the group")
    work.result = [tensor]  # on all ranks: what `then` is given looks alike on them
    wire = work.writes(tensor, reads=True) if chosen.rank() == root else work.reads(tensor)
    return work.begin(lambda: work.engine.reduce(wire.array, op, root), async_op)


def broadcast(
    tensor: Tensor, src: int | None = None, group: Group = None, async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:  # fmt: skip
    """Makes each rank's `tensor`, in place, equal to that of the rank `src`."""
    check_tensor(tensor, "tensor")
    chosen = member_group(group, "broadcast")
    if chosen is None:
        return None
    root = rank_in(chosen, src, group_src)
    work = Beginning(chosen, "broadcast", tensor)
    work.compare([tensor], True, f"from rank {root} of the group")
    work.result = [tensor]
    wire = work.reads(tensor) if chosen.rank() == root else work.writes(tensor)
    return work.begin(lambda: work.engine.broadcast(wire.array, root), async_op)


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: Group = None, async_op: bool = False
) -> Work | None:
    """Writes the tensor of each rank to a tensor of `tensor_list`, on all ranks."""
    check_list(tensor_list, "tensor_list")
    check_tensor(tensor, "tensor")
    check_same_dtype(*tensor_list, tensor)
    chosen = member_group(group, "all_gather")
    if chosen is None:
        return None
    check_lists("all_gather", chosen, tensor_list)
    _check_size("all_gather", tensor, tensor_list[chosen.rank()])
    work = Beginning(chosen, "all_gather", tensor)
    source, wire = work.reads(tensor), work.writes(*tensor_list)
    is_even = len({t.shape for t in tensor_list}) == 1
    work.compare([tensor], is_even, *([] if is_even else [wire.counts]))
    return work.begin(
        lambda: work.engine.all_gather(wire.array, source.array, wire.counts), async_op
    )


def all_gather_single(
    output_tensor: Tensor, input_tensor: Tensor, group: Group = None, async_op: bool = False
) -> Work | None:
    """Writes the tensors of all ranks to one, whose first dim is that of all of them."""
    check_tensor(input_tensor, "input_tensor")
    check_tensor(output_tensor, "output_tensor")
    check_same_dtype(output_tensor, input_tensor)
    chosen = member_group(group, "all_gather_single")
    if chosen is None:
        return None
    n = chosen.size()
    if output_tensor.numel() != n * input_tensor.numel():
        raise ValueError("output tensor size must be equal to world_size times input tensor size")
    work = Beginning(chosen, "all_gather_single", input_tensor)
    work.compare([input_tensor], True)
    source, wire = work.reads(input_tensor), work.writes(output_tensor)
    counts = [input_tensor.numel()] * n
    return work.begin(lambda: work.engine.all_gather(wire.array, source.array, counts), async_op)


all_gather_into_tensor = all_gather_single


def gather(
    tensor: Tensor, gather_list: list[Tensor] | None = None, dst: int | None = None,
    group: Group = None, async_op: bool = False, group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """Writes the tensor of each rank to a tensor of `gather_list`, on the rank `dst` (0)."""
    check_tensor(tensor, "tensor")
    if gather_list:
        check_list(gather_list, "gather_list")
        check_same_dtype(tensor, *gather_list)
    chosen = member_group(group, "gather")
    if chosen is None:
        return None
    root = rank_in(chosen, dst, group_dst, default=0)
    is_root = chosen.rank() == root
    if is_root and not gather_list:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    if gather_list and not is_root:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    work = Beginning(chosen, "gather", tensor)
    work.compare([tensor], True, f"to rank {root} of the group")
    source, counts, out = work.reads(tensor), [0], None
    if gather_list:
        check_lists("gather", chosen, gather_list)
        _check_size("gather", tensor, gather_list[root])
        wire = work.writes(*gather_list)
        counts, out = wire.counts, wire.array
    return work.begin(lambda: work.engine.gather(out, source.array, counts, root), async_op)


def scatter(
    tensor: Tensor, scatter_list: list[Tensor] | None = None, src: int | None = None,
    group: Group = None, async_op: bool = False, group_src: int | None = None,
) -> Work | None:  # fmt: skip
    """Writes a tensor of `scatter_list`, which the rank `src` (0) has, to `tensor` of each rank."""
    check_tensor(tensor, "tensor")
    if scatter_list:
        check_list(scatter_list, "scatter_list")
        check_same_dtype(tensor, *scatter_list)
    chosen = member_group(group, "scatter")
    if chosen is None:
        return None
    root = rank_in(chosen, src, group_src, default=0)
    is_root = chosen.rank() == root
    if is_root and not scatter_list:
        raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
    if scatter_list and not is_root:
        raise ValueError("Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    work = Beginning(chosen, "scatter", tensor)
    work.compare([tensor], True, f"from rank {root} of the group")
    counts, whole = [0], None
    if scatter_list:
        check_lists("scatter", chosen, scatter_list)
        _check_size("scatter", tensor, scatter_list[root])
        source = work.reads(*scatter_list)
        counts, whole = source.counts, source.array
    out = work.writes(tensor)
    return work.begin(lambda: work.engine.scatter(out.array, whole, counts, root), async_op)


def reduce_scatter(
    output: Tensor, input_list: list[Tensor], op: ReduceOp = ReduceOp.SUM, group: Group = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Writes the sum of what all ranks have at a place of `input_list` to that rank's `output`."""
    check_tensor(output, "output")
    check_list(input_list, "input_list")
    check_same_dtype(output, *input_list)
    check_reduction("reduce_scatter", op, output.dtype)
    chosen = member_group(group, "reduce_scatter")
    if chosen is None:
        return None
    check_lists("reduce_scatter", chosen, input_list)
    _check_size("reduce_scatter", output, input_list[chosen.rank()])
    work = Beginning(chosen, "reduce_scatter", output)
    work.compare([*input_list], True, op)
    source, wire = work.reads(*input_list), work.writes(output)
    return work.begin(
        lambda: work.engine.reduce_scatter(wire.array, source.array, source.counts, op), async_op
    )


def reduce_scatter_single(
    output: Tensor, input: Tensor, op: ReduceOp = ReduceOp.SUM, group: Group = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Writes to each rank's `output` its part, along the first dim, of the sum of all `input`."""
    check_tensor(input, "input")
    check_tensor(output, "output")
    check_same_dtype(output, input)
    check_reduction("reduce_scatter_single", op, output.dtype)
    chosen = member_group(group, "reduce_scatter_single")
    if chosen is None:
        return None
    n = chosen.size()
    if input.numel() != n * output.numel():
        raise ValueError("input tensor must be the same size as output size times world size")
    work = Beginning(chosen, "reduce_scatter_single", output)
    work.compare([input], True, op)
    source, wire = work.reads(input), work.writes(output)
    counts = [output.numel()] * n
    return work.begin(
        lambda: work.engine.reduce_scatter(wire.array, source.array, counts, op), async_op
    )


reduce_scatter_tensor = reduce_scatter_single


def all_to_all_single(
    output: Tensor, input: Tensor, output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None, group: Group = None, async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Sends a part of `input`, along the first dim, to each rank, and joins what each rank sends.

    The parts are equal, or have the given sizes.
    """
    check_tensor(output, "output")
    check_tensor(input, "input")
    check_same_dtype(output, input)
    chosen = member_group(group, "all_to_all_single")
    if chosen is None:
        return None
    n = chosen.size()
    counts, out_counts = _parts(input, input_split_sizes, n), _parts(output, output_split_sizes, n)
    work = Beginning(chosen, "all_to_all_single", input)
    work.compare([input], False)
    source, wire = work.reads(input), work.writes(output)
    work.parts = counts, out_counts
    _check_own_part("all_to_all_single", chosen, counts, out_counts)
    return work.begin(
        lambda: work.engine.all_to_all(wire.array, out_counts, source.array, counts), async_op
    )


def all_to_all(
    output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Group = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Sends a tensor of `input_tensor_list` to each rank, and gets one from each."""
    check_list(output_tensor_list, "output_tensor_list")
    check_list(input_tensor_list, "input_tensor_list")
    check_same_dtype(*output_tensor_list, *input_tensor_list)
    chosen = member_group(group, "all_to_all")
    if chosen is None:
        return None
    check_lists("all_to_all", chosen, output_tensor_list, input_tensor_list)
    work = Beginning(chosen, "all_to_all", input_tensor_list[0])
    work.compare([input_tensor_list[0]], False)
    source, wire = work.reads(*input_tensor_list), work.writes(*output_tensor_list)
    work.parts = source.counts, wire.counts
    _check_own_part("all_to_all", chosen, *work.parts)
    return work.begin(
        lambda: work.engine.all_to_all(wire.array, wire.counts, source.array, source.counts),
        async_op,
    )


def _check_size(name: str, tensor: Tensor, other: Tensor) -> None:
    if tensor.numel() != other.numel():
        raise ValueError(
            f"{name}: got a tensor of shape {list(tensor.shape)} and, in this rank's place of the "
            f"list, one of shape {list(other.shape)}: want as many elements"
        )


def _check_own_part(name: str, group: ProcessGroup, sent: list[int], places: list[int]) -> None:
    rank = group.rank()
    if sent[rank] != places[rank]:
        raise ValueError(
            f"{name}: this rank sends {sent[rank]} elements to itself, and has a place for "
            f"{places[rank]} of its own: want as many"
        )


def _parts(tensor: Tensor, sizes: list[int] | None, n: int) -> list[int]:
    """The elements of each rank's part of a tensor along its first dim."""
    extent = tensor.shape[0] if tensor.ndim else 1
    row = math.prod(tensor.shape[1:])
    if not sizes:
        if extent % n:
            raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
        return [extent // n * row] * n
    if len(sizes) != n:
        raise RuntimeError("Number of tensor splits not equal to group size")
    if sum(sizes) != extent:
        raise RuntimeError("Split sizes doesn't match total dim 0 size")
    return [size * row for size in sizes]


# ---------------------------------------------------------------------- barriers


def barrier(
    group: Group = None, async_op: bool = False, device_ids: Any = None,
    timeout: timedelta | None = None,
) -> Work | None:  # fmt: skip
    """Returns when all ranks have called it.

    `device_ids` is PyTorch's, which needs a device for its barrier.
    """
    if device_ids is not None and not isinstance(device_ids, list):
        raise TypeError(f"Invalid function argument: device_ids type should be List[int], got "
                        f"{type(device_ids).__name__}")  # fmt: skip
    chosen = member_group(group, "barrier")
    if chosen is None:
        return None
    return _barrier(chosen, "barrier", async_op, timeout)


def monitored_barrier(
    group: Group = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """A barrier with a timeout of its own, whose error names the ranks that did not come.

    It names all of them, whatever `wait_all_ranks` is.
    """
    if isinstance(timeout, float):
        warnings.warn(
            f"Please specify timeout arg as a timedelta. Converting current value of {timeout} "
            "assuming it represents seconds", stacklevel=2,
        )  # fmt: skip
        timeout = timedelta(seconds=timeout)
    if timeout is not None:
        seconds_of(timeout)
    chosen = member_group(group, "monitored_barrier")
    if chosen is not None:
        _barrier(chosen, "monitored_barrier", False, timeout)


def _barrier(
    group: ProcessGroup, name: str, async_op: bool, timeout: timedelta | None
) -> Work | None:  # fmt: skip
    engine = group.engines.get("") or group.engines.get("cpu") or next(iter(group.engines.values()))
    call = group.begin(name)
    compare(call, [], False)
    pending = engine.barrier()
    work = Work(call, pending, [], lambda: None)
    if async_op:
        pending.attend()
        return work
    work.wait(timeout)
    return None
