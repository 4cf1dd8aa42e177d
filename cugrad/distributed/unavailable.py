"""torch.distributed as a PyTorch built without it has it: not available, and an error at use.

So programs that import it, and ask whether it is there before they use it, run on one device.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ..absent import DISTRIBUTED, PAGE, refuse

__all__ = [
    "is_available", "is_backend_available", "is_gloo_available", "is_initialized",
    "is_mpi_available", "is_nccl_available", "is_torchelastic_launched",
]  # fmt: skip

# What programs import of it before they ask.
NAMES = frozenset(
    """
    ReduceOp ProcessGroup Work all_gather all_gather_into_tensor all_gather_object all_reduce
    all_to_all all_to_all_single barrier batch_isend_irecv broadcast broadcast_object_list
    destroy_process_group gather gather_object get_backend get_rank get_world_size group
    init_process_group irecv isend monitored_barrier new_group recv reduce reduce_scatter
    reduce_scatter_tensor scatter scatter_object_list send P2POp
    """.split()  # noqa: SIM905
)


def is_available() -> bool:
    """False: there is no package for several processes."""
    return False


def is_initialized() -> bool:
    """False."""
    return False


def is_torchelastic_launched() -> bool:
    """False."""
    return False


def is_backend_available(backend: str) -> bool:
    """False, of any backend."""
    return False


def is_nccl_available() -> bool:
    """False."""
    return False


def is_gloo_available() -> bool:
    """False."""
    return False


def is_mpi_available() -> bool:
    """False."""
    return False


class Unavailable:
    """A name of torch.distributed that can be imported; using it raises RuntimeError."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def _refuse(self) -> NoReturn:
        raise RuntimeError(f"torch.distributed.{self.__name__}: {DISTRIBUTED} ({PAGE})")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    def __repr__(self) -> str:
        return f"<torch.distributed.{self.__name__}: {DISTRIBUTED}>"


def __getattr__(name: str) -> Any:
    if name in NAMES:
        return Unavailable(name)
    return refuse("cugrad.distributed", name)
