"""torch.version: the versions of the library and of the CUDA that it runs on."""

from __future__ import annotations

from typing import Any

from . import backends
from .runtime.absent import refuse

__all__ = ["__version__", "debug", "git_version", "hip", "rocm", "xpu"]

__version__ = "0.1.0"
debug = False
git_version = hip = rocm = xpu = None


def __getattr__(name: str) -> Any:
    """`cuda`: the version of CUDA's runtime, such as "12.8"; None where CUDA cannot be used."""
    if name == "cuda":
        return backends.runtime_version() if backends.is_usable("cuda") else None
    return refuse(__name__, name)
