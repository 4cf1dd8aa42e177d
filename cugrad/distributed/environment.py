"""Which rank this process is, of how many: by arguments, PyTorch's variables, MPI, Slurm."""

from __future__ import annotations

import os
from typing import NamedTuple

__all__ = ["RankPlace", "is_under_mpi", "local_rank", "place_of"]

# What launchers set: rank, number of ranks, rank on its machine.
LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "MPICH": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    "Slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
}


class RankPlace(NamedTuple):
    """A process among those of its job."""

    rank: int
    size: int
    said_by: str  # who says so


def place_of(rank: int, size: int) -> RankPlace | None:
    """The place by arguments, -1 where they are not given, else as the launcher says; or None."""
    if rank >= 0 and size > 0:
        return RankPlace(rank, size, "the arguments")
    for launcher, (rank_name, size_name, _) in LAUNCHERS.items():
        if rank_name in os.environ and size_name in os.environ:
            numbers = int(os.environ[rank_name]), int(os.environ[size_name])
            return RankPlace(
                rank if rank >= 0 else numbers[0], size if size > 0 else numbers[1], launcher
            )
    return None


# What there is where MPI can ask who started it.
ASKED = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMI_FD", "PMIX_RANK")


def is_under_mpi() -> bool:
    """Whether a launcher started this process that MPI can talk with.

    With Slurm some can where none of these is said, unless another launcher says who is who.
    """
    if any(name in os.environ for name in ASKED):
        return True
    others = ("RANK", "MASTER_ADDR")
    return "SLURM_PROCID" in os.environ and not any(name in os.environ for name in others)


def local_rank() -> int | None:
    """The rank on this machine, which is the number of its GPU; None if no launcher says it."""
    for *_, name in LAUNCHERS.values():
        if name in os.environ:
            return int(os.environ[name])
    return None
