"""The package nvidia-cudnn-frontend, and a handle of cuDNN for each thread and device."""

from __future__ import annotations

import importlib
import threading
from functools import cache
from typing import Any

import cupy

from ....runtime.kept import of_thread
from ...wanted import wanted

__all__ = ["frontend", "handle_of", "not_supported", "version"]


@cache
def _imported() -> Any:
    """The module `cudnn` with its library; or the error, where one is missing."""
    try:
        module = importlib.import_module("cudnn")
        module.backend_version()
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        return error
    return module


def frontend() -> Any:
    """The module `cudnn`; None where it cannot be imported, but an ImportError that says how to
    install it where CUGRAD_CUDNN=1 asks for it.
    """
    module = _imported()
    if not isinstance(module, Exception):
        return module
    if not wanted.cudnn.asked:
        return None
    major = cupy.cuda.runtime.runtimeGetVersion() // 1000
    raise ImportError(
        "CUGRAD_CUDNN=1 asks for cuDNN, which cannot be imported: "
        f"{module}. Do `pip install 'cugrad[cudnn]' nvidia-cudnn-cu{major}`, or leave "
        "CUGRAD_CUDNN out"
    ) from module


def version() -> int | None:
    """cuDNN's, such as 92800 for 9.28.0; None where it is not there."""
    module = frontend()
    return None if module is None else int(module.backend_version())


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
