"""Says why CUDA cannot be used here, in one sentence, without disturbing a process that never asks
for it.
"""

from __future__ import annotations

from functools import cache

from ..forks import unforked

__all__ = ["device_count", "why_uncompilable", "why_unusable"]

INSTALL = 'pip install "cugrad[cuda12]" (or "cugrad[cuda13]" for a CUDA 13 driver)'

# The distributions that unpack into the same folder `cupy/`.
WHEELS = ("cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x")


@cache
def why_unusable() -> str | None:
    """None, or one sentence that says what CUDA lacks on this machine. Never raises.

    The answer is kept for the life of the process. The question asks the driver for its devices
    and makes no CUDA context.
    """
    try:
        with unforked:
            return _installation() or _devices()
    except Exception as error:
        return f"CuPy does not answer: {type(error).__name__}: {_first_line(error)}"


def installed_wheels() -> list[str]:
    """The CuPy distributions that are installed; one is healthy, two overwrite each other's
    files.
    """
    import importlib.metadata  # slow to import, and rarely asked for

    wheels = []
    for name in WHEELS:
        try:
            importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        wheels.append(name)
    return wheels


def _installation() -> str | None:
    wheels = installed_wheels()
    if len(wheels) > 1:
        names = " ".join(wheels)
        return (
            f"{' and '.join(wheels)} are both installed and overwrite each other's files: "
            f"pip uninstall -y {names}, then {INSTALL}"
        )
    import importlib.util  # slow to import, and not asked for where there is no CUDA

    if importlib.util.find_spec("cupy") is None:
        return f"CuPy is not installed: {INSTALL}"
    try:
        import cupy
    except Exception as error:
        return (
            f"CuPy is installed but fails to import ({_first_line(error)}): "
            f"reinstall it with {INSTALL}"
        )
    if cupy.cuda.runtime.is_hip:
        return "this CuPy is built for ROCm, and cugrad's kernels are CUDA"
    return None


def _devices() -> str | None:
    """What the driver says. Asks no Stream(): a failed one prints to stderr when it is
    collected.
    """
    import cupy

    runtime = cupy.cuda.runtime
    driver, built_for = runtime.driverGetVersion(), runtime.runtimeGetVersion()
    if driver == 0:
        return "no NVIDIA driver is installed here, or this container does not show it"
    try:
        count = runtime.getDeviceCount()
    except Exception as error:
        if driver // 1000 < built_for // 1000:
            return (
                f"the NVIDIA driver supports CUDA {_version(driver)} and this CuPy is built for "
                f"CUDA {_version(built_for)}: update the driver, or install the CuPy of its CUDA"
            )
        return f"the driver finds no usable GPU ({_first_line(error)})"
    if count == 0:
        return "the driver finds no GPU; CUDA_VISIBLE_DEVICES may hide it"
    return None


def device_count() -> int:
    """The number of CUDA devices, 0 where CUDA is unusable. Never raises, makes no context."""
    if why_unusable() is not None:
        return 0
    import cupy

    return cupy.cuda.runtime.getDeviceCount()


def runtime_version() -> str:
    """The version of CUDA's runtime that CuPy has loaded."""
    from cupy.cuda import runtime

    return _version(runtime.runtimeGetVersion())


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


@cache
def why_uncompilable() -> str | None:
    """None, or one sentence that says why kernels do not compile on the current device. Never
    raises.

    For first real use, when there is a device: CuPy compiles every kernel at its first call, which
    needs NVRTC and the CUDA headers, and CuPy's wheel contains neither.
    """
    try:
        import cupy

        cupy.RawKernel('extern "C" __global__ void cugrad_probe() {}', "cugrad_probe").compile()
    except Exception as error:
        return (
            f"there is a GPU, but CUDA kernels do not compile ({_first_line(error)}): install the "
            'CUDA toolkit, or pip install "cugrad[cuda12-ctk]" (or "cugrad[cuda13-ctk]"), '
            "or stay on the CPU with CUGRAD_DEVICE=cpu"
        )
    return None
