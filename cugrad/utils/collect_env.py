"""torch.utils.collect_env: what a report of a fault should say of the machine.

`python -m cugrad.utils.collect_env` prints it.
"""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from typing import Any

import numpy as np

from .. import backends
from ..backends.numpy.threads import get_num_threads
from ..cuda.devices import get_device_capability, get_device_properties
from ..runtime.absent import explain
from ..version import __version__

__all__ = ["get_env_info", "get_pretty_env_info", "main"]

PACKAGES = (
    "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x", "cupy", "ml_dtypes", "mpi4py", "numba",
    "numkong", "numpy", "nvidia-cudnn-frontend", "nvtx", "safetensors", "scipy", "torch",
)  # fmt: skip


def get_env_info() -> dict[str, Any]:
    """What is known of the machine, by name; None where there is nothing."""
    cuda = backends.is_usable("cuda")
    return {
        "cugrad version": __version__,
        "Python version": sys.version.replace("\n", " "),
        "OS": platform.platform(),
        "CPU": platform.processor() or platform.machine(),
        "Threads of BLAS": get_num_threads(),
        "CUDA usable": str(cuda) if cuda else f"False: {backends.why_unusable('cuda')}",
        "CUDA simulated": backends.is_simulated("cuda") if cuda else None,
        "CUDA runtime": backends.runtime_version() if cuda else None,
        "GPUs": _devices() if cuda else None,
        "NumPy's BLAS": _blas(),
        "Packages": [f"{name} {version}" for name in PACKAGES
                     if (version := _version(name)) is not None],
    }  # fmt: skip


def get_pretty_env_info() -> str:
    """The same as a text, a line each.

    >>> get_pretty_env_info().startswith("cugrad version: ")
    True
    """
    lines = []
    for name, value in get_env_info().items():
        if isinstance(value, list):
            lines += [f"{name}:", *(f"  {item}" for item in value)]
        else:
            lines.append(f"{name}: {'none' if value is None else value}")
    return "\n".join(lines)


def main() -> None:
    """Prints the text."""
    print(get_pretty_env_info())


def _devices() -> list[str]:
    names = []
    for index in range(backends.get("cuda").device_count()):
        about = get_device_properties(index)
        major, minor = get_device_capability(index)
        size = about.total_memory / 2**30
        names.append(f"{index}: {about.name}, capability {major}.{minor}, {size:.0f} GiB")
    return names


def _blas() -> str:
    config: Any = np.show_config(mode="dicts")
    blas = config.get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


explain(__name__)

if __name__ == "__main__":
    main()
