"""Placements: what each rank along a dimension of a mesh has of a tensor."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Partial", "Placement", "Replicate", "Shard", "part_of"]


class Placement:
    """What each rank along a dimension of a mesh has: `Shard(dim)` or `Replicate()`."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether each rank has a part, along `dim` if that is given."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether each rank has the whole."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether each rank has a summand."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """Each rank has a part along a dimension, as `torch.chunk` makes them; the last have less.

    >>> from cugrad.distributed.tensor import Shard
    >>> Shard(0).is_shard(), Shard(0) == Shard(1)
    (True, False)
    """

    dim: int


@dataclass(frozen=True)
class _StridedShard(Shard):
    split_factor: int = 1


@dataclass(frozen=True)
class Replicate(Placement):
    """Each rank has the whole."""


@dataclass(frozen=True)
class Partial(Placement):
    """Each rank has what `reduce_op` puts together with the others': no DTensor is placed so."""

    reduce_op: str = "sum"


def part_of(extent: int, rank: int, size: int) -> slice:
    """The part of a rank of `extent` rows, which may be empty."""
    rows = -(-extent // size)
    return slice(min(rank * rows, extent), min((rank + 1) * rows, extent))
