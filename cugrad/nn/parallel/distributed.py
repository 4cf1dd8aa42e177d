"""DistributedDataParallel: a module in every process, whose gradients are averaged over all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ... import distributed as dist
from ...autograd.mode import is_grad_enabled, no_grad
from ...distributed.algorithms.join import Join, Joinable, JoinHook
from ...distributed.groups import default_group
from ...functions.creation.factories import tensor
from ...functions.shapes.copies import cat
from ...tensor import Tensor
from ..modules.module import Module
from .reducer import Reducer
from .scatter_gather import device_of
from .sparse_bucket import sparse_parameters

__all__ = ["DistributedDataParallel"]


class _Shadow(JoinHook):
    """A rank without batches, in the steps of others."""

    def __init__(self, model: DistributedDataParallel, divides_by_all: bool) -> None:
        self.model, model._divides_by_all = model, divides_by_all

    def main_hook(self) -> None:
        if self.model._among_others(False, None, False):
            self.model.reducer.shadow()

    def post_hook(self, is_last_joiner: bool) -> None:
        """All ranks have the parameters of one that had the last step."""
        model = self.model
        source = tensor(model.process_group.rank() if is_last_joiner else -1, device=model.device)
        dist.all_reduce(source, dist.ReduceOp.MAX, model.process_group)
        model.reducer.divisor = model.process_group.size()
        state = [*model.module.parameters(), *model._buffers_of_module.values()]
        model._take_over(state, int(source.item()))


class DistributedDataParallel(Module, Joinable):
    """Trains one module in several processes, each with batches of its own.

    All ranks begin with the parameters and buffers of the group's first rank. In backward,
    gradients are averaged over all ranks, bucket by bucket, while backward goes on; so after it all
    ranks have the gradients of one process with the joined batch, where the loss is a mean and the
    batches are of one size.

    Args:
        module: the same on all ranks; RuntimeError that names a difference.
        device_ids: one GPU, to which inputs are moved; None for a module on the CPU.
        broadcast_buffers: whether each forward begins with the buffers of the first rank.
        process_group: default all ranks.
        bucket_cap_mb: the size of a bucket in MiB, 25 by default; the first is 1 MiB at most.
        find_unused_parameters: whether parameters may have no part in an output; their gradients
            are those of other ranks then, and stay None where no rank uses them.
        gradient_as_bucket_view: whether `.grad` lies in the memory that is reduced, which saves a
            copy of all gradients.
        static_graph: the graph is the same in each step, which allows for reentrant checkpoints;
            the first step reduces gradients at its end.

    Sparse gradients, of an Embedding with sparse=True, become the coalesced mean of all ranks'.
    `register_comm_hook` reduces otherwise, in half precision for one; `no_sync` accumulates.

    >>> import cugrad as torch
    >>> import cugrad.distributed as dist
    >>> dist.init_process_group("mpi", rank=0, world_size=1)
    >>> model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1, device="cpu"))
    >>> model(torch.ones(3, 2)).mean().backward()
    >>> sorted(model.state_dict()), model.module.weight.grad
    (['module.bias', 'module.weight'], tensor([[1., 1.]]))
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        mixed_precision: Any = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: Any = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: bool | None = None,
    ) -> None:
        super().__init__()
        refused: dict[str, Any] = {
            "check_reduction": check_reduction, "mixed_precision": mixed_precision,
            "delay_all_reduce_named_params": delay_all_reduce_named_params,
            "param_to_hook_all_reduce": param_to_hook_all_reduce, "device_mesh": device_mesh,
            "skip_all_reduce_unused_params": skip_all_reduce_unused_params,
            "bucket_cap_mb_list": bucket_cap_mb_list, "batched_grad_copy": batched_grad_copy,
        }  # fmt: skip
        for name, value in refused.items():
            if value:
                raise NotImplementedError(
                    f"DistributedDataParallel: got {name}=, which is not here: leave it out"
                )
        self.module, self.dim = module, dim
        self.process_group = process_group or default_group()
        self.static_graph, self.find_unused_parameters = static_graph, find_unused_parameters
        self.gradient_as_bucket_view = gradient_as_bucket_view
        buffers = broadcast_buffers if forward_sync_buffers is None else forward_sync_buffers
        self.broadcast_buffers = True if buffers is None else buffers
        self.require_backward_grad_sync = self._divides_by_all = True
        skipped = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        trained = {
            name: p for name, p in module.named_parameters()
            if p.requires_grad and name not in skipped
        }  # fmt: skip
        if not trained:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter "
                "that requires a gradient."
            )
        self._buffers_of_module = {n: b for n, b in module.named_buffers() if n not in skipped}
        self.device = next(iter(trained.values())).device
        self.device_ids = self._home(trained, device_ids, output_device)
        if init_sync:
            state = {n: p for n, p in module.named_parameters() if n not in skipped}
            self._check_alike(state)
            self._take_over([*state.values(), *self._buffers_of_module.values()])
        size = 25 if bucket_cap_mb is None else bucket_cap_mb
        self.reducer = Reducer(
            trained.items(), self.process_group, int(size * (1 << 20)), find_unused_parameters,
            static_graph, gradient_as_bucket_view, sparse_parameters(module),
        )  # fmt: skip

    @staticmethod
    def _home(
        trained: Mapping[str, Tensor], device_ids: Any, output_device: Any
    ) -> list[Any] | None:
        """The device to which inputs are moved, in a list; None if they stay where they are."""
        places = {p.device.type for p in trained.values()}
        if len(places) > 1:
            raise ValueError(
                "DistributedDataParallel's input module must be on the same type of devices, but "
                f"input module parameters locate in {places}."
            )
        if not device_ids:
            return None
        if len(device_ids) > 1:
            raise ValueError("device_ids can only be None or contain a single element.")
        if places == {"cpu"} and isinstance(device_ids[0], int):
            raise ValueError(
                "DistributedDataParallel device_ids and output_device arguments only work with "
                "single-device/multiple-device GPU modules or CPU modules, but got device_ids "
                f"{device_ids}, output_device {output_device}, and module parameters on the CPU."
            )
        return [device_of(device_ids[0])]

    def _check_alike(self, state: Mapping[str, Tensor]) -> None:
        """RuntimeError, on all ranks, unless they have the same parameters."""
        own = [f"{name}: {p.dtype} {list(p.shape)}" for name, p in state.items()]
        ranks: list[Any] = [None] * self.process_group.size()
        dist.all_gather_object(ranks, own, self.process_group)
        for rank, other in enumerate(ranks):
            if other == ranks[0]:
                continue
            pairs = [*zip(ranks[0], other), ("nothing more", "nothing more")]
            first = next((pair for pair in pairs if pair[0] != pair[1]), pairs[-1])
            raise RuntimeError(
                f"DDP expects same model across all ranks, but Rank 0 has {len(ranks[0])} params, "
                f"while rank {rank} has inconsistent {len(other)} params: {first[0]} is {first[1]} "
                "there"
            )

    def _take_over(self, tensors: list[Tensor], source: int = 0) -> None:
        """Makes tensors those of a rank, the first; those of one kind travel together."""
        kinds: dict[Any, list[Tensor]] = {}
        for t in tensors:
            kinds.setdefault((t.dtype, t.device), []).append(t)
        with no_grad():
            for members in kinds.values():
                whole = cat([t.detach().reshape(-1) for t in members])
                dist.broadcast(whole, group=self.process_group, group_src=source)
                begin = 0
                for t in members:
                    t.detach().copy_(whole[begin : begin + t.numel()].reshape(t.shape))
                    begin += t.numel()

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Calls the module."""
        syncs = is_grad_enabled() and self.require_backward_grad_sync
        if self._join_config.enable:
            count = Join.notify_join_context(self)
            self._among_others(True, None if self._divides_by_all else count, syncs)
        elif self.broadcast_buffers and self._buffers_of_module and syncs:
            self._take_over(list(self._buffers_of_module.values()))
        if self.device_ids is not None:
            inputs, kwargs = _moved((inputs, kwargs), self.device_ids[0])
        output = self.module(*inputs, **kwargs)
        if syncs:
            self.reducer.prepare(_tensors_in(output))
        else:
            self.reducer.is_armed = False
        return output

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block whose forward passes are not reduced: gradients accumulate on each rank.

        The first backward of a forward outside of the block reduces what has come together.
        """
        before = self.require_backward_grad_sync
        try:
            self.require_backward_grad_sync = False
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state: object, hook: Callable[..., Any]) -> None:
        """Has `hook(state, bucket)` reduce each bucket of gradients, a GradBucket.

        It returns a Future of the flat tensor, as `Work.get_future` does. See
        `distributed.algorithms.ddp_comm_hooks.default_hooks`. RuntimeError for a second one.
        """
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        if self.reducer.hook is not None:
            raise RuntimeError(
                "register_comm_hook or register_builtin_comm_hook can only be called once."
            )
        if self.reducer.sparse:
            raise NotImplementedError(
                "register_comm_hook: got a module with sparse gradients, want dense ones: make its "
                "Embeddings with sparse=False"
            )
        self.reducer.hook = state, hook

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """A context for ranks with different numbers of batches: `Join([self])`.

        Without `divide_by_initial_world_size` sums of gradients are divided by the number of ranks
        that have a batch.
        """
        return Join(
            [self], enable, throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        )  # fmt: skip

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What takes part in forward and backward of other ranks; see `join`."""
        if self.static_graph:
            raise NotImplementedError(
                "DistributedDataParallel.join: got static_graph=True, want False: the first step "
                "would not be alike on all ranks"
            )
        return _Shadow(self, kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_device(self) -> Any:
        return self.device

    @property
    def join_process_group(self) -> Any:
        return self.process_group

    def _among_others(self, is_active: bool, count: int | None, syncs: bool) -> bool:
        """What ranks in a `join` tell each other before forward; whether backward will reduce."""
        reducer = self.reducer
        reducer.order = None  # a rank without a step has seen no order
        reducer.divisor = count or self.process_group.size()
        rank = self.process_group.rank()
        told = tensor([rank if is_active else -1, int(is_active and syncs)], device=self.device)
        dist.all_reduce(told, dist.ReduceOp.MAX, self.process_group)
        source, reduces = (int(x) for x in told.tolist())
        if self.broadcast_buffers and self._buffers_of_module and reduces:
            self._take_over(list(self._buffers_of_module.values()), source)
        return bool(reduces)

    def _set_static_graph(self) -> None:
        """PyTorch's way to say `static_graph=True` later."""
        self.static_graph = self.reducer.static = True


def _tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors of an output, in lists, tuples, dicts and objects with fields."""
    waiting = [value]
    while waiting:
        x = waiting.pop()
        if isinstance(x, Tensor):
            yield x
        elif isinstance(x, dict):
            waiting.extend(x.values())
        elif isinstance(x, (list, tuple)):
            waiting.extend(x)
        elif hasattr(x, "__dataclass_fields__"):
            waiting.extend(vars(x).values())


def _moved(value: Any, device: Any) -> Any:
    """Inputs with their tensors on a device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {k: _moved(x, device) for k, x in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_moved(x, device) for x in value)
    return value
