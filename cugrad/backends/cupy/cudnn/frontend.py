"""The package nvidia-cudnn-frontend, and a handle of cuDNN for each thread and device."""

from __future__ import annotations

import importlib
import threading
from functools import cache
from typing import Any

import cupy

from ....runtime.kept import of_thread

__all__ = ["frontend", "handle_of", "not_supported", "version"]


@cache
def frontend() -> Any:
    """The module `cudnn`; ImportError that says how to install it."""
    try:
        return importlib.import_module("cudnn")
    except (ImportError, OSError) as error:
        major = cupy.cuda.runtime.runtimeGetVersion() // 1000
        raise ImportError(
            "CUGRAD_CUDNN=1 asks for convolutions by cuDNN, which cannot be imported: "
            f"{error}. Do `pip install 'cugrad[cudnn]' nvidia-cudnn-cu{major}`, or leave "
            "CUGRAD_CUDNN out"
        ) from error


def version() -> int:
    """cuDNN's, such as 92800 for 9.28.0."""
    return int(frontend().backend_version())


def not_supported(module: Any) -> tuple[type[Exception], ...]:
    """What it raises where there is no algorithm for a graph."""
    return module.cudnnGraphNotSupportedError, NotImplementedError


class _HandlesOfThread(threading.local):
    """Those of this thread."""

    def __init__(self) -> None:
        self.by_device: dict[int, Any] = {}


_handles = of_thread(_HandlesOfThread())


def handle_of(module: Any) -> Any:
    """cuDNN's handle of this thread and the current device, set to the current stream."""
    device = cupy.cuda.runtime.getDevice()
    handle = _handles.by_device.get(device)
    if handle is None:
        handle = _handles.by_device[device] = module.create_handle()
    module.set_stream(handle=handle, stream=cupy.cuda.get_current_stream().ptr)
    return handle
