"""ZeroRedundancyOptimizer: each rank has the states of some parameters, and steps those."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .. import distributed as dist
from ..autograd.mode import no_grad
from ..backends import backend_of
from ..distributed.algorithms.join import Joinable, JoinHook
from ..distributed.groups import default_group
from ..tensor import Tensor, make
from .optimizer import Optimizer

__all__ = ["ZeroRedundancyOptimizer"]


class _SteppingShadow(JoinHook):
    """A rank without batches steps its parameters for the others."""

    def __init__(self, optimizer: ZeroRedundancyOptimizer) -> None:
        self.optimizer = optimizer

    def main_hook(self) -> None:
        self.optimizer.step()


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """Steps each parameter on one rank, which alone has its states; the others get the result.

    All ranks have all parameters and all gradients, as DistributedDataParallel leaves them. A rank
    is given parameters so that all have about as many elements. Steps give, to the bit, the
    parameters that `optimizer_class` would.

    Args:
        params: tensors, or dictionaries of groups; the same on all ranks.
        optimizer_class: such as Adam; `defaults` are its settings.
        process_group: default all ranks.
        parameters_as_bucket_view: whether the parameters of a rank lie in one piece of memory,
            and travel as one; else each does.
        overlap_with_ddp: False. NotImplementedError for steps within backward.

    `optim` is this rank's optimizer. `state_dict` is that of `optimizer_class` alone, and is there
    on the rank to which `consolidate_state_dict` has brought it.

    >>> import cugrad as torch
    >>> import cugrad.distributed as dist
    >>> from cugrad.distributed.optim import ZeroRedundancyOptimizer
    >>> dist.init_process_group("mpi", rank=0, world_size=1)
    >>> net = torch.nn.Linear(2, 1)
    >>> optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.1)
    >>> net(torch.ones(2)).sum().backward()
    >>> optimizer.step()
    >>> optimizer.consolidate_state_dict()
    >>> sorted(optimizer.state_dict()["state"])
    [0, 1]
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: type[Optimizer],
        process_group: Any | None = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if overlap_with_ddp:
            raise NotImplementedError(
                "ZeroRedundancyOptimizer: got overlap_with_ddp=True, want False: its step follows "
                "backward"
            )
        self.process_group = process_group or default_group()
        self.rank, self.world_size = self.process_group.rank(), self.process_group.size()
        self.parameters_as_bucket_view = parameters_as_bucket_view
        self.optim: Optimizer | None = None
        self._owner: dict[Tensor, int] = {}
        self._load = [0] * self.world_size  # elements of each rank
        self._consolidated: dict[int, Any] | None = None
        self._buckets: list[tuple[Tensor, int]] = []
        super().__init__(params, defaults)
        self._check_alike()
        self.optim = optimizer_class([self._own(group) for group in self.param_groups], **defaults)
        _copy_settings(self.optim, self)
        self._lay_out()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Optimise more parameters from now on; all ranks add the same."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for param in sorted(group["params"], key=lambda p: p.numel(), reverse=True):
            rank = self._load.index(min(self._load))
            self._owner[param] = rank
            self._load[rank] += param.numel()
        if self.optim is not None:
            self.optim.add_param_group(self._own(group))
            _copy_settings(self.optim, self)
            self._lay_out()

    def _own(self, group: dict[str, Any]) -> dict[str, Any]:
        """A group with this rank's parameters alone."""
        owned = [self._owner[param] == self.rank for param in group["params"]]
        lists = {"params", "param_names"}
        return {
            key: [x for x, is_own in zip(value, owned) if is_own] if key in lists else value
            for key, value in group.items()
        }

    def _check_alike(self) -> None:
        """RuntimeError, on all ranks, unless they have the same parameters."""
        own = [f"{p.dtype} {list(p.shape)}" for p in self._owner]
        ranks: list[Any] = [None] * self.world_size
        dist.all_gather_object(ranks, own, self.process_group)
        for rank, other in enumerate(ranks):
            if other != ranks[0]:
                raise RuntimeError(
                    "ZeroRedundancyOptimizer: want the same parameters on all ranks, but rank 0 "
                    f"has {len(ranks[0])}, {', '.join(ranks[0])}, and rank {rank} has "
                    f"{len(other)}, {', '.join(other)}"
                )

    def _lay_out(self) -> None:
        """What is broadcast after a step, and by whom: parameters, or the memory of many."""
        if not self.parameters_as_bucket_view:
            self._buckets = list(self._owner.items())
            return
        kinds: dict[Any, list[Tensor]] = {}
        for param, rank in self._owner.items():
            kinds.setdefault((rank, param.dtype, param.device), []).append(param)
        self._buckets = []
        for (rank, *_), params in kinds.items():
            first = params[0]._array
            xp = backend_of(first).xp
            flat = xp.empty(sum(p.numel() for p in params), first.dtype)
            begin = 0
            for param in params:
                piece = flat[begin : begin + param.numel()].reshape(param._array.shape)
                xp.copyto(piece, param._array)
                param._form, param._array = None, piece
                begin += param.numel()
            self._buckets.append((make(flat), rank))

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Steps this rank's parameters, and gets the others from the ranks that step them.

        All ranks call it. `kwargs` are those of the `step` of `optimizer_class`.
        """
        assert self.optim is not None
        _copy_settings(self, self.optim)
        loss = self.optim.step(closure, **kwargs)  # type: ignore[call-arg]
        _copy_settings(self.optim, self)
        self._share()
        return loss

    @no_grad()
    def _share(self) -> None:
        """Each parameter becomes what its rank has."""
        works = [
            dist.broadcast(t.detach(), group=self.process_group, group_src=rank, async_op=True)
            for t, rank in self._buckets
        ]
        for work in works:
            assert work is not None
            work.wait()

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Steps this rank's parameters for ranks that have batches left: `Join([model, self])`."""
        return _SteppingShadow(self)

    @property
    def join_device(self) -> Any:
        return next(iter(self._owner)).device

    @property
    def join_process_group(self) -> Any:
        return self.process_group

    # ------------------------------------------------------------------ states of all ranks

    def _numbers(self, rank: int) -> Iterator[int]:
        """The numbers, among all parameters, of those of a rank."""
        params = [param for group in self.param_groups for param in group["params"]]
        return (i for i, param in enumerate(params) if self._owner[param] == rank)

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Brings the states of all ranks to the rank `to`, on the CPU; all ranks call it."""
        assert self.optim is not None
        _copy_settings(self, self.optim)
        numbers = list(self._numbers(self.rank))
        local = self.optim.state_dict()["state"]
        own = {numbers[i] if isinstance(i, int) else i: _on_host(x) for i, x in local.items()}
        ranks: list[Any] | None = [None] * self.world_size if self.rank == to else None
        dist.gather_object(own, ranks, group=self.process_group, group_dst=to)
        if ranks is not None:
            self._consolidated = {i: x for part in ranks for i, x in part.items()}

    def state_dict(self) -> dict[str, Any]:
        """The states that were consolidated last, as `optimizer_class` would have them.

        RuntimeError on a rank to which none were brought.
        """
        if self._consolidated is None:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call "
                f"`consolidate_state_dict(to={self.rank})` on all ranks beforehand if you meant to "
                "save the global state."
            )
        saved = super().state_dict()
        saved["state"] = dict(sorted(self._consolidated.items()))
        return saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over this rank's part of a state dict of the whole; all ranks load the same."""
        assert self.optim is not None
        super().load_state_dict({**state_dict, "state": {}})
        _copy_settings(self, self.optim)
        local = self.optim.state_dict()
        local["state"] = {
            i: state_dict["state"][number]
            for i, number in enumerate(self._numbers(self.rank))
            if number in state_dict["state"]
        }
        self.optim.load_state_dict(local)


def _copy_settings(source: Optimizer, target: Optimizer) -> None:
    """Makes the settings of groups those of another optimizer, which has the same groups."""
    for theirs, ours in zip(source.param_groups, target.param_groups):
        ours.update({k: v for k, v in theirs.items() if k not in ("params", "param_names")})


def _on_host(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {k: _on_host(x) for k, x in value.items()}
    return type(value)(_on_host(x) for x in value) if isinstance(value, (list, tuple)) else value
