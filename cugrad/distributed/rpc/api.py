"""The names of remote calls, each of which says that there are none."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

__all__ = [
    "RRef", "get_rpc_timeout", "get_worker_info", "init_rpc", "is_available", "remote",
    "rpc_async", "rpc_sync", "shutdown",
]  # fmt: skip

UNSET_RPC_TIMEOUT = -1.0  # PyTorch's: the timeout that `init_rpc` was given


def is_available() -> bool:
    """False: collectives and sends are what processes have.

    >>> from cugrad.distributed import rpc
    >>> rpc.is_available()
    False
    """
    return False


def _refusing(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"distributed.rpc.{name}: there are no remote calls; use collectives, send and recv, "
            "or their likes for objects, of torch.distributed"
        )

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "NotImplementedError: there are no remote calls."
    return refuse


class RRef:
    """An object in another process. NotImplementedError: there are no remote calls."""

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        return _refusing("RRef")()


get_rpc_timeout = _refusing("get_rpc_timeout")
get_worker_info = _refusing("get_worker_info")
init_rpc = _refusing("init_rpc")
remote = _refusing("remote")
rpc_async = _refusing("rpc_async")
rpc_sync = _refusing("rpc_sync")
shutdown = _refusing("shutdown")


def _require_initialized(func: Callable[..., Any]) -> Callable[..., Any]:
    """A function that wants `init_rpc` to have been called: RuntimeError, since it never was."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            "RPC has not been initialized. Call torch.distributed.rpc.init_rpc first "
            "(distributed.rpc: there are no remote calls)"
        )

    return wrapper
