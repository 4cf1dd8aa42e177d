"""Placements: what each rank along a dimension of a mesh has of a tensor."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Placement", "Replicate", "Shard", "part_of"]


class Placement:
    """What each rank along a dimension of a mesh has: `Shard(dim)` or `Replicate()`."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether each rank has a part, along `dim` if that is given."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether each rank has the whole."""
        return isinstance(self, Replicate)


@dataclass(frozen=True)
class Shard(Placement):
    """Each rank has a part along a dimension, as `torch.chunk` makes them; the last have less.

    >>> from cugrad.distributed.tensor import Shard
    >>> Shard(0).is_shard(), Shard(0) == Shard(1)
    (True, False)
    """

    dim: int


@dataclass(frozen=True)
class Replicate(Placement):
    """Each rank has the whole."""


def part_of(extent: int, rank: int, size: int) -> slice:
    """The part of a rank of `extent` rows, which may be empty."""
    rows = -(-extent // size)
    return slice(min(rank * rows, extent), min((rank + 1) * rows, extent))
