"""The part of a dataset that one of several processes trains on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeVar

from ...functions.creation.random import Generator, randperm
from .sampler import Sampler

__all__ = ["DistributedSampler"]

T_co = TypeVar("T_co", covariant=True)


class DistributedSampler(Sampler[T_co]):
    """Every `num_replicas`-th index of a dataset, from `rank` on, so that processes share it.

    All processes shuffle alike, by `seed` and the epoch that `set_epoch` was told. Where the length
    is no multiple of `num_replicas`, some samples come twice, or with `drop_last` some do not come.

    `num_replicas` and `rank` are those of the default group of `cugrad.distributed` by default.
    ValueError where there is none, and unless `rank` is below `num_replicas`.

    >>> from cugrad.utils.data import DistributedSampler
    >>> list(DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False))
    [1, 3, 0]
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            from ... import distributed  # wanted only here

            num_replicas = distributed.get_world_size() if num_replicas is None else num_replicas
            rank = distributed.get_rank() if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueError(
                f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]"
            )
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.epoch, self.drop_last, self.shuffle, self.seed = 0, drop_last, shuffle, seed
        whole, rest = divmod(len(dataset), num_replicas)
        self.num_samples = whole + (rest > 0 and not drop_last)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[T_co]:
        n = len(self.dataset)
        indices: list[Any] = list(range(n))
        if self.shuffle:
            generator = Generator().manual_seed(self.seed + self.epoch)
            indices = randperm(n, generator=generator, device="cpu").tolist()
        indices = (indices * math.ceil(self.total_size / max(n, 1)))[: self.total_size]
        if len(indices) != self.total_size:
            raise AssertionError(
                f"Number of indices ({len(indices)}) does not match total_size ({self.total_size})"
            )
        return iter(indices[self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Has the next iterations shuffle otherwise than those of other epochs."""
        self.epoch = epoch
