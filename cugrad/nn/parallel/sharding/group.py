"""The parameters of one sharded module: in parts, on their way, or whole."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from .... import distributed as dist
from ....autograd.engine.backward_pass import task
from ....autograd.mode import unrecorded
from ....autograd.recording.views import changed
from ....backends import backend_of
from ....backends import get as backend_named
from ....distributed.device_mesh import DeviceMesh
from ....distributed.reduce_op import ReduceOp
from ....distributed.tensor.dtensor import DTensor
from ....distributed.tensor.placements import Replicate, Shard, part_of
from ....tensor import Tensor, make
from ...modules.module import Module
from .policies import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy
from .whole import WholeHome, whole_parameter

__all__ = ["ShardedGroup", "ShardedParameter"]


class Gathered(Enum):
    """What a group has: its parts alone, the whole on its way, or the whole."""

    SHARDED = "sharded"
    GATHERING = "gathering"
    WHOLE = "whole"


class ShardedParameter:
    """A parameter in its two forms: `sharded`, a DTensor, and `whole`, with which is computed."""

    def __init__(
        self, owners: list[tuple[Module, str]], parameter: Tensor, fqn: str, dim: int = 0
    ) -> None:  # fmt: skip
        self.owners, self.fqn, self.dim = owners, fqn, dim
        self.parameter: Any = parameter  # until it is in parts
        self.sharded: Any = None
        self.whole: Any = None
        self.home: WholeHome | None = None
        self.rows = 0  # of a part, those of the last ranks filled up

    def show(self, parameter: Any) -> None:
        """Makes it the modules' parameter."""
        for module, name in self.owners:
            module._parameters[name] = parameter


class Flight:
    """A collective on its way, and what is done when it has come."""

    def __init__(self, work: Any, land: Callable[[], None]) -> None:
        self.work, self.land = work, land

    def wait(self) -> None:
        self.work.wait()
        self.land()


def wait_for(flights: list[Flight]) -> None:
    """Until all have come; the list is empty then."""
    while flights:
        flights.pop(0).wait()


class ShardedGroup:
    """Parameters that are gathered together before a module computes, and let go of after it.

    In backward they are gathered anew. When the last of them has its gradient, the gradients are
    summed up, each rank gets its part of them, and the whole goes again.
    """

    def __init__(
        self, parameters: list[ShardedParameter], mesh: DeviceMesh, policy: MixedPrecisionPolicy,
        offload: OffloadPolicy,
    ) -> None:  # fmt: skip
        self.parameters, self.mesh = parameters, mesh
        self.policy, self.offload = policy, offload
        self.group = mesh.get_group(mesh.ndim - 1)
        self.copies = mesh.get_group(0) if mesh.ndim == 2 else None  # of the same parts
        self.state = Gathered.SHARDED
        self.reshards_after_forward: bool | None = None  # None: not if it is the outermost
        self.reshards_after_backward = self.syncs = self.syncs_copies = self.waits = True
        self.divide_factor: float | None = None
        self.gathering: list[Flight] = []
        self.reducing: list[Flight] = []
        self.earlier: list[Flight] = []  # of backward passes that did not wait
        self.arrived: set[int] = set()
        self.running = -1  # the backward pass at whose end gradients are delivered
        self.versions: list[int] = []  # of the parts that were gathered
        self.gathered = self.reduced = 0  # how often
        self.ahead_in_backward: ShardedGroup | None = None
        for p in parameters:
            self._shard(p)

    # ------------------------------------------------------------------ parts

    def _shard(self, p: ShardedParameter) -> None:
        """Puts a parameter in parts; only this rank's is kept."""
        whole = p.parameter
        n, rank = self.group.size(), self.group.rank()
        array = whole._array
        backend = backend_of(array)
        extent = array.shape[p.dim]
        if p.dim and extent % n:
            raise NotImplementedError(
                f"FSDP does not support uneven sharding on dim {p.dim}: {whole.shape} (world size: "
                f"{n})"
            )
        p.rows = -(-extent // n)
        part = array[(slice(None),) * p.dim + (part_of(extent, rank, n),)]
        placement = Shard(p.dim)
        placements = (placement,) if self.copies is None else (Replicate(), placement)
        computes_in = self.policy.param_dtype or whole.dtype
        like = make(backend.xp.empty(array.shape, computes_in.numpy), whole.requires_grad)
        p.whole, p.home = whole_parameter(like, self)
        if self._is_on_host and backend.device_type != "cpu":
            part = self._host_part(make(backend.xp.ascontiguousarray(part)))
        else:
            part = backend.xp.ascontiguousarray(part).copy()
        p.sharded = DTensor._of(part, self.mesh, placements, array.shape)
        p.sharded._requires_grad, p.sharded._is_param = whole.requires_grad, True
        if whole.requires_grad:
            p.whole.register_post_accumulate_grad_hook(lambda _, p=p: self.arrive(p))
        p.parameter = None
        p.show(p.sharded)

    @property
    def _is_on_host(self) -> bool:
        return isinstance(self.offload, CPUOffloadPolicy)

    def _host_part(self, part: Tensor) -> Any:
        host = part.detach().cpu()
        pins = isinstance(self.offload, CPUOffloadPolicy) and self.offload.pin_memory
        return (host.pin_memory() if pins else host)._array

    # ------------------------------------------------------------------ gathered

    def _by_dtype(self, key: Callable[[ShardedParameter], Any]) -> list[list[ShardedParameter]]:
        kinds: dict[Any, list[ShardedParameter]] = {}
        for p in self.parameters:
            if (kind := key(p)) is not None:
                kinds.setdefault(kind, []).append(p)
        return list(kinds.values())

    def begin_unshard(self) -> None:
        """Begins to gather the whole, anew if the parts have changed since."""
        versions = [p.sharded.counter[0] for p in self.parameters]
        if self.state is not Gathered.SHARDED and versions != self.versions:
            self.reshard()
        self.versions = versions
        if self.state is Gathered.SHARDED:
            self._queue()  # what backward gathers ahead goes with it
            unrecorded(self._begin_unshard)

    def _begin_unshard(self) -> None:
        self.state = Gathered.GATHERING
        self.gathered += 1
        for members in self._by_dtype(lambda p: (p.whole.dtype, str(p.whole.device))):
            self.gathering.append(self._gather(members))

    def _gather(self, members: list[ShardedParameter]) -> Flight:
        """Gathers parameters of one dtype: each rank's parts, one behind the other."""
        n, form = self.group.size(), members[0].whole
        backend: Any = backend_named(form.device.type)
        xp, dtype = backend.xp, form.dtype.numpy
        sizes = [p.rows * row_size(p) for p in members]
        flat = xp.zeros(sum(sizes), dtype)
        begin = 0
        for p, size in zip(members, sizes):
            part = xp.moveaxis(backend.asarray(p.sharded._array), p.dim, 0)
            xp.copyto(flat[begin : begin + part.size], part.reshape(-1), casting="unsafe")
            begin += size
        out = xp.empty(n * flat.size, dtype)
        work = dist.all_gather_single(make(out), make(flat), self.group, async_op=True)

        def land() -> None:
            ranks, begin = out.reshape(n, -1), 0
            for p, size in zip(members, sizes):
                extents = list(p.whole.shape)
                extent = extents.pop(p.dim)
                rows = ranks[:, begin : begin + size].reshape(n * p.rows, *extents)[:extent]
                assert p.home is not None
                p.home.array = xp.ascontiguousarray(xp.moveaxis(rows, 0, p.dim)) if p.dim else rows
                begin += size

        return Flight(work, land)

    def unshard(self) -> None:
        """Has the whole there, as the module's parameters."""
        self.begin_unshard()
        if self.state is Gathered.GATHERING:
            unrecorded(lambda: wait_for(self.gathering))
            self.state = Gathered.WHOLE
        for p in self.parameters:
            p.show(p.whole)

    def reshard(self) -> None:
        """Lets go of the whole; the module's parameters are the parts."""
        if self.state is Gathered.GATHERING:
            unrecorded(lambda: wait_for(self.gathering))
        if self.state is not Gathered.SHARDED:
            self.state = Gathered.SHARDED
            for p in self.parameters:
                assert p.home is not None
                p.home.array = None
        for p in self.parameters:
            p.show(p.sharded)

    # ------------------------------------------------------------------ backward

    def before_backward(self) -> None:
        """What is needed is gathered, and what will be needed next begins to be."""
        self._queue()
        self.unshard()
        if self.ahead_in_backward is not None:
            self.ahead_in_backward.begin_unshard()

    def _queue(self) -> None:
        """Has `finish` called at the end of the pass that runs, if one does."""
        if not task.running or task.running[0].number == self.running:
            return
        if self.running >= 0:
            self._forget()
        self.running = task.running[0].number
        task.running[0].callbacks.append(self.finish)

    def _forget(self) -> None:
        """Drops what a pass has left that ended in an error."""
        for p in self.parameters:
            if id(p) in self.arrived:
                p.whole._grad = None
        self.arrived.clear()
        while self.reducing:
            self.reducing.pop(0).work.wait()

    def arrive(self, p: ShardedParameter) -> None:
        """The gradient of a parameter is whole; if it is the last, all are reduced."""
        self._queue()
        self.arrived.add(id(p))
        if len(self.arrived) == sum(p.whole.requires_grad for p in self.parameters):
            unrecorded(self._reduce)

    def _reduce(self) -> None:
        """Begins to sum up gradients, and lets go of the whole."""
        self.arrived.clear()
        if self.syncs:
            for members in self._by_dtype(
                lambda p: None if p.whole._grad is None else (p.whole.dtype, p.sharded.dtype)
            ):
                self.reducing.append(self._scatter(members))
        if self.reshards_after_backward:
            self.reshard()

    def _scatter(self, members: list[ShardedParameter]) -> Flight:
        """Sums up gradients of one dtype, of which each rank gets its part."""
        self.reduced += 1
        n = self.group.size()
        first = members[0].whole
        backend: Any = backend_named(first.device.type)
        xp, dtype = backend.xp, (self.policy.reduce_dtype or first.dtype).numpy
        sizes = [p.rows * row_size(p) for p in members]
        whole, begin = xp.zeros((n, sum(sizes)), dtype), 0
        for p, size in zip(members, sizes):
            gradient = xp.moveaxis(p.whole._grad._array, p.dim, 0)
            padded = xp.zeros((n * p.rows, *gradient.shape[1:]), dtype)
            xp.copyto(padded[: gradient.shape[0]], gradient, casting="unsafe")
            xp.copyto(whole[:, begin : begin + size], padded.reshape(n, size))
            p.whole._grad = None
            begin += size
        out = xp.empty(sum(sizes), dtype)
        op = ReduceOp.AVG if self.divide_factor is None else ReduceOp.SUM
        work = dist.reduce_scatter_single(
            make(out), make(whole.reshape(-1)), op, self.group, async_op=True
        )

        def land() -> None:
            if self.copies is not None and self.syncs_copies:
                dist.all_reduce(make(out), op, self.copies)
            if self.divide_factor is not None:
                xp.divide(out, xp.asarray(self.divide_factor, dtype), out=out)
            begin = 0
            for p, size in zip(members, sizes):
                extents = list(p.sharded._array.shape)
                rows = extents.pop(p.dim)
                part = out[begin : begin + p.sharded._array.size].reshape(rows, *extents)
                self._deliver(p, xp.ascontiguousarray(xp.moveaxis(part, 0, p.dim)))
                begin += size

        return Flight(work, land)

    def _deliver(self, p: ShardedParameter, part: Any) -> None:
        """Adds this rank's part of a gradient to what is there."""
        home = backend_of(p.sharded._array)
        if backend_of(part) is not home:
            part = backend_of(part).to_host(part)
        part = part.astype(p.sharded.dtype.numpy)
        if p.sharded._grad is not None:
            home.xp.add(p.sharded._grad._array, part, out=p.sharded._grad._array)
            changed(p.sharded._grad)
            return
        gradient = DTensor._of(part, self.mesh, p.sharded.placements, p.sharded.shape)
        p.sharded._grad = gradient

    def finish(self) -> None:
        """At the end of backward: what has come is reduced, and what is on its way waited for."""
        self.running = -1
        if self.arrived:
            unrecorded(self._reduce)
        elif self.reshards_after_backward:
            self.reshard()
        self.earlier.extend(self.reducing)
        self.reducing.clear()
        if self.waits:
            self.wait_for_earlier()

    def wait_for_earlier(self) -> None:
        """Has the gradients of passes that have ended there."""
        unrecorded(lambda: wait_for(self.earlier))


def row_size(p: ShardedParameter) -> int:
    """The elements of a row of the whole, or of what else it is in parts along."""
    shape = p.sharded.shape
    return int(shape.numel() // shape[p.dim]) if shape[p.dim] else 0
