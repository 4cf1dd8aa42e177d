"""Buckets of gradients that are reduced over all ranks while backward goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ... import distributed as dist
from ...autograd.engine.backward_pass import task
from ...autograd.engine.reach import reachable
from ...autograd.mode import unrecorded
from ...autograd.recording.views import changed
from ...backends import backend_of
from ...distributed.groups import ProcessGroup
from ...functions.creation.factories import zeros
from ...tensor import Tensor, make
from .sparse_bucket import SparseBucket

__all__ = ["Bucket", "GradBucket", "Reducer"]

FIRST = 1 << 20  # bytes of the first bucket, which is small so that reduction begins early

UNFINISHED = (
    "Expected to have finished reduction in the prior iteration before starting a new one. This "
    "error indicates that your module has parameters that were not used in producing loss. You can "
    "enable unused parameter detection by passing the keyword argument "
    "`find_unused_parameters=True` to `torch.nn.parallel.DistributedDataParallel`, and by making "
    "sure all `forward` function outputs participate in calculating loss.\nParameter indices which "
    "did not receive grad"
)
TWICE = (
    "Expected to mark a variable ready only once. The parameter {name!r} was reached twice in one "
    "backward: it is used in several checkpoints with use_reentrant=True, or outside of `forward`. "
    "Use use_reentrant=False, or static_graph=True if the graph is the same in each step."
)

HIDDEN = (
    "DistributedDataParallel: the parameter {name!r} has a gradient, but the outputs of `forward` "
    "do not lead to it (find_unused_parameters=True), or did not in the first step "
    "(static_graph=True): return what the loss is computed from, or leave these arguments out"
)


class GradBucket:
    """What a hook of communication is given: the gradients of a bucket, as one flat tensor."""

    def __init__(self, bucket: Bucket, index: int, is_last: bool) -> None:
        self._bucket, self._index, self._is_last = bucket, index, is_last
        self._buffer = make(bucket.array)

    def index(self) -> int:
        """The number of the bucket; the first is reduced first."""
        return self._index

    def is_last(self) -> bool:
        """Whether no bucket follows in this backward."""
        return self._is_last

    def buffer(self) -> Tensor:
        """The gradients, flat, one behind the other."""
        return self._buffer

    def set_buffer(self, buffer: Tensor) -> None:
        """Replaces the tensor that `buffer` answers."""
        self._buffer = buffer

    def gradients(self) -> list[Tensor]:
        """The gradients in their shapes, which share the memory of `buffer`."""
        return [make(piece) for piece in self._bucket.pieces]

    def parameters(self) -> list[Tensor]:
        """The parameters whose gradients these are."""
        return [p for _, p in self._bucket.parameters]


class Bucket:
    """Some parameters of one dtype on one device, and the memory for their gradients."""

    def __init__(self, parameters: list[tuple[int, Tensor]]) -> None:
        self.parameters = parameters
        first = parameters[0][1]._array
        xp = backend_of(first).xp
        self.array = xp.zeros(sum(p._array.size for _, p in parameters), first.dtype)
        self.pieces: list[Any] = []
        begin = 0
        for _, p in parameters:
            array = self.array[begin : begin + p._array.size]
            self.pieces.append(array.reshape(p._array.shape))
            begin += p._array.size
        self.missing = len(parameters)
        self.future: Any = None

    def fill(self, as_views: bool) -> None:
        """Copies the gradients in; of those that did not come, zeros."""
        xp = backend_of(self.array).xp
        for (_, p), piece in zip(self.parameters, self.pieces, strict=True):
            if p._grad is None:
                piece[...] = 0
                continue
            if p._grad.is_sparse:
                raise RuntimeError(
                    "DistributedDataParallel: got a sparse gradient of a parameter that is in no "
                    "Embedding or EmbeddingBag with sparse=True, want a dense one"
                )
            if p._grad._array is not piece:
                xp.copyto(piece, p._grad._array)
                if as_views:
                    p._grad = make(piece)

    def deliver(self, result: Any, as_views: bool, unused: set[int]) -> None:
        """Writes what all ranks have in the end to the gradients, where a rank has used them."""
        if isinstance(result, (list, tuple)):
            result = result[0]
        xp = backend_of(self.array).xp
        if result._array is not self.array:
            xp.copyto(self.array, result._array.reshape(-1))
        for (i, p), piece in zip(self.parameters, self.pieces, strict=True):
            if i in unused:
                continue
            if as_views:
                if p._grad is None or p._grad._array is not piece:
                    p._grad = make(piece)
                continue
            if p._grad is None:
                p._grad = make(xp.empty_like(p._array))
            xp.copyto(p._grad._array, piece)
            changed(p._grad)


class Reducer:
    """Sees each gradient when it is whole, and reduces each bucket when all before it are."""

    def __init__(
        self, parameters: Iterable[tuple[str, Tensor]], group: ProcessGroup, bucket_bytes: int,
        find_unused: bool, static: bool, as_views: bool, sparse: Iterable[Tensor] = (),
    ) -> None:  # fmt: skip
        self.names, self.parameters = [], []
        for name, p in parameters:
            self.names.append(name)
            self.parameters.append(p)
        self.group, self.bucket_bytes = group, bucket_bytes
        self.find_unused, self.static, self.as_views = find_unused, static, as_views
        self.sparse = {id(p) for p in sparse}  # whose gradients are
        self.hook: tuple[Any, Callable[..., Any]] | None = None
        self.buckets: list[Bucket | SparseBucket] = []
        self.home: list[Bucket | SparseBucket] = []  # by the number of the parameter
        self.order: list[int] | None = []  # in which gradients became whole; None: buckets have it
        self.times: list[int] | None = None  # that each is reached, of a static graph
        self.is_armed = self.is_queued = False
        self.arrived: list[int] = []
        self.unused: set[int] = set()
        self.launched = 0
        self.divisor = group.size()  # of sums; fewer ranks may have a batch
        self.assign(range(len(self.parameters))[::-1])
        self.handles = [
            p.register_post_accumulate_grad_hook(self._hook_of(i))
            for i, p in enumerate(self.parameters)
        ]  # fmt: skip

    def _hook_of(self, i: int) -> Callable[[Tensor], None]:
        return lambda parameter: self.arrive(i)

    def assign(self, order: Iterable[int]) -> None:
        """Makes buckets for parameters in an order, each of one dtype on one device."""
        open_ones: dict[Any, tuple[list[tuple[int, Tensor]], int]] = {}
        limit = min(FIRST, self.bucket_bytes)
        whole: list[list[tuple[int, Tensor]]] = []
        for i in order:
            p = self.parameters[i]
            if id(p) in self.sparse:
                whole.append([(i, p)])
                continue
            kind = p.dtype, p.device
            members, size = open_ones.get(kind, ([], 0))
            members.append((i, p))
            size += p._array.nbytes
            open_ones[kind] = members, size
            if size >= limit:
                whole.append(members)
                del open_ones[kind]
                limit = self.bucket_bytes
        whole += [members for members, _ in open_ones.values()]
        self.buckets = [
            (SparseBucket if id(members[0][1]) in self.sparse else Bucket)(members)
            for members in whole
        ]
        homes = {i: bucket for bucket in self.buckets for i, _ in bucket.parameters}
        self.home = [homes[i] for i in range(len(self.parameters))]

    # ------------------------------------------------------------------ a step

    def prepare(self, outputs: Iterable[Tensor]) -> None:
        """Before a backward whose gradients are to be reduced."""
        if self.is_armed and self.is_queued and self.launched < len(self.buckets):
            absent = [i for i, count in enumerate(self.arrived) if not count]
            self.is_armed = False
            numbers = f"for rank {self.group.rank()}: {' '.join(map(str, absent))}"
            names = ", ".join(self.names[i] for i in absent)
            raise RuntimeError(f"{UNFINISHED} {numbers} ({names})")
        self.rebuild()
        for bucket in self.buckets:
            bucket.missing, bucket.future = len(bucket.parameters), None
        self.arrived, self.launched = [0] * len(self.parameters), 0
        self.unused, self.is_armed, self.is_queued = set(), True, False
        if self.times is not None:
            self.unused = {i for i, count in enumerate(self.times) if not count}
        elif self.find_unused and not self.static:
            ends = [t._node.grad_fn if t._node is not None else t for t in outputs
                    if t._requires_grad]  # fmt: skip
            seen = reachable([end for end in ends if end is not None])
            self.unused = {i for i, p in enumerate(self.parameters) if p not in seen}
        for i in self.unused:
            self.home[i].missing -= 1

    def arrive(self, i: int) -> None:
        """The gradient of a parameter is whole, and accumulated."""
        if not self.is_armed:
            return
        if not self.is_queued:
            self.is_queued = True
            task.running[0].callbacks.append(self.finish)
            unrecorded(self.launch)  # buckets of which nothing is used
        self.arrived[i] += 1
        if self.static and self.times is None:
            return  # all at the end of the first step, which shows how often each is reached
        if i in self.unused:
            raise RuntimeError(HIDDEN.format(name=self.names[i]))
        if self.arrived[i] != (1 if self.times is None else self.times[i]):
            if self.times is None:
                raise RuntimeError(TWICE.format(name=self.names[i]))
            return
        if self.order is not None:
            self.order.append(i)
        self.home[i].missing -= 1
        if not self.home[i].missing:
            unrecorded(self.launch)

    def launch(self) -> None:
        """Begins to reduce buckets that are whole, in the order that all ranks keep."""
        while self.launched < len(self.buckets) and not self.buckets[self.launched].missing:
            bucket = self.buckets[self.launched]
            if isinstance(bucket, SparseBucket):
                bucket.future = bucket.begin(self.group, self.divisor)
            else:
                bucket.fill(self.as_views)
                last = self.launched == len(self.buckets) - 1
                state, hook = self.hook or ((self.group, self.divisor), _average)
                bucket.future = hook(state, GradBucket(bucket, self.launched, last))
            self.launched += 1

    def finish(self) -> None:
        """At the end of backward: waits for what is on its way, and writes the gradients."""
        if self.static and self.times is None:
            self.times = list(self.arrived)
            self.unused = {i for i, count in enumerate(self.times) if not count}
            for bucket in self.buckets:
                bucket.missing = 0
        unrecorded(self._finish)

    def _finish(self) -> None:
        self.launch()
        if self.launched < len(self.buckets):
            return  # the next forward says which gradients did not come
        self.is_armed = False
        nowhere = self._unused_everywhere() if self.find_unused or self.static else set()
        for bucket in self.buckets:
            bucket.deliver(bucket.future.wait(), self.as_views, nowhere)
            bucket.future = None

    def shadow(self) -> None:
        """Takes part in a step of other ranks with gradients of zero, and gets theirs."""
        for p in self.parameters:
            p._grad = None
        self.arrived, self.launched = [0] * len(self.parameters), 0
        for bucket in self.buckets:
            bucket.missing = 0
        unrecorded(self._finish)

    def _unused_everywhere(self) -> set[int]:
        """The parameters that no rank has used: their gradients stay as they are."""
        used = zeros(len(self.parameters), device=self.parameters[0].device)
        for i in range(len(self.parameters)):
            if self.arrived[i]:
                used[i] = 1.0
        dist.all_reduce(used, dist.ReduceOp.MAX, self.group)
        return {i for i, flag in enumerate(used.tolist()) if not flag}

    def rebuild(self) -> None:
        """After the first step: buckets in the order in which gradients became whole on rank 0."""
        if not self.order or self.find_unused or self.static:
            return
        if len(self.order) == len(self.parameters):
            order = [self.order]
            dist.broadcast_object_list(order, group=self.group, group_src=0)
            self.assign(order[0])  # gradients that are views of the old buckets are copied once
            self.order = None


def _average(state: tuple[ProcessGroup, int], bucket: GradBucket) -> Any:
    """What is done without a hook: each rank's share of the average, then their sum."""
    group, divisor = state
    buffer = bucket.buffer()
    array = buffer._array
    array /= divisor
    work = dist.all_reduce(buffer, group=group, async_op=True)
    assert work is not None
    return work.get_future().then(lambda future: future.value()[0])
