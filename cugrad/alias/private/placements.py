"""torch.distributed.tensor: how a tensor would lie on several ranks, for packages that list it.

Tensors that lie on several ranks are not here: making one raises.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...absent import DISTRIBUTED
from ..refusals import refuse_the_rest

__all__ = ["Partial", "Placement", "Replicate", "Shard"]


class Placement:
    """How a tensor lies along one dim of a mesh of ranks."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether each rank has a part: along `dim`, where that is given."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether each rank has all of it."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether each rank has a summand."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """Each rank has a part along `dim`."""

    dim: int


@dataclass(frozen=True)
class _StridedShard(Shard):
    split_factor: int = 1


@dataclass(frozen=True)
class Replicate(Placement):
    """Each rank has all of it."""


@dataclass(frozen=True)
class Partial(Placement):
    """Each rank has what `reduce_op` puts together with the others'."""

    reduce_op: str = "sum"


refuse_the_rest(__name__, "distributed.tensor", DISTRIBUTED)
