"""Join: ranks that have no more batches take part in the collectives of those that have."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

from ...functions.creation.factories import full
from ...tensor import Tensor
from .. import collectives
from ..groups import ProcessGroup
from ..reduce_op import ReduceOp

__all__ = ["Join", "JoinConfig", "JoinHook", "Joinable"]


class JoinConfig(NamedTuple):
    """What a Joinable knows of the context that it is in; PyTorch's `_JoinConfig`."""

    enable: bool = False
    throw_on_early_termination: bool = False
    is_first_joinable: bool = False


class JoinHook:
    """What a rank without batches does: `main_hook` in each step of others, then `post_hook`."""

    def main_hook(self) -> None:
        """Takes part in the collectives of one step of the others."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """When all have come to their end; `is_last_joiner` of those that came last."""


class Joinable:
    """What `Join` takes: it has a hook, and calls `Join.notify_join_context(self)` in each step."""

    _join_config = JoinConfig()

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """The hook; `kwargs` are those of `Join`."""
        raise NotImplementedError

    @property
    def join_device(self) -> Any:
        """The device of the tensors by which ranks tell each other that they go on."""
        raise NotImplementedError

    @property
    def join_process_group(self) -> ProcessGroup:
        """The group whose ranks wait for each other."""
        raise NotImplementedError


class Join:
    """A context for loops that have more steps on some ranks than on others.

    A rank that leaves the block stays in it until all have come to its end: for each step of the
    others it calls the hooks of the `joinables`, in their order. With
    `throw_on_early_termination` all ranks raise RuntimeError instead, as soon as one has come
    to the end. Other keywords go to the hooks.

    >>> import cugrad as torch
    >>> import cugrad.distributed as dist
    >>> from cugrad.distributed.algorithms.join import Join
    >>> dist.init_process_group("mpi", rank=0, world_size=1)
    >>> model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    >>> with Join([model]):
    ...     for batch in (torch.ones(2, 1), torch.ones(2, 1)):
    ...         model(batch).sum().backward()
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        joinables: list[Any],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Any,
    ) -> None:
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        first = joinables[0]
        for other in joinables[1:]:
            if other.join_process_group is not first.join_process_group:
                raise ValueError("Using join context manager with multiple process groups")
        self._joinables, self._enable = joinables, enable
        self._throws = throw_on_early_termination
        self._hooks = [joinable.join_hook(**kwargs) for joinable in joinables]
        self._group: ProcessGroup = first.join_process_group
        self._device = first.join_device

    def __enter__(self) -> Join:
        for i, joinable in enumerate(self._joinables):
            joinable._join_config = JoinConfig(self._enable, self._throws, i == 0)
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        try:
            if self._enable and kind is None:
                self._stay()
        finally:
            for joinable in self._joinables:
                joinable._join_config = JoinConfig()

    def _stay(self) -> None:
        """Until no rank has a step left."""
        steps, is_last = 0, True
        while _active(self._group, self._device, False):
            if self._throws:
                _any_throws(self._group, self._device, True)
                raise RuntimeError("Rank exhausted all inputs.")
            is_last = False
            for hook in self._hooks:
                hook.main_hook()
            steps += 1
            if steps == 1000:
                warnings.warn(
                    f"Detected uneven input skew of greater than {steps}: this rank has no batches "
                    "left, and takes part in the steps of others", stacklevel=3,
                )  # fmt: skip
        for hook in self._hooks:
            hook.post_hook(is_last)

    @staticmethod
    def notify_join_context(joinable: Joinable) -> int | None:
        """Says that this rank has a step: how many ranks have; None where no context asks.

        RuntimeError, on all ranks, where one has come to the end and the context throws then.
        """
        config = joinable._join_config
        if not config.enable or not config.is_first_joinable:
            return None
        group, device = joinable.join_process_group, joinable.join_device
        count = _active(group, device, True)
        if config.throw_on_early_termination and count < group.size():
            _any_throws(group, device, False)
            raise RuntimeError(
                "Detected at least one rank that exhausted inputs. Throwing across all ranks."
            )
        return count


def _active(group: ProcessGroup, device: Any, is_active: bool) -> int:
    """How many ranks have a step to make."""
    count: Tensor = full((), int(is_active), device=device)
    collectives.all_reduce(count, group=group)
    return int(count.item())


def _any_throws(group: ProcessGroup, device: Any, throws: bool) -> None:
    """All ranks are there, and about to raise."""
    flag: Tensor = full((), int(throws), device=device)
    collectives.all_reduce(flag, ReduceOp.MAX, group)
