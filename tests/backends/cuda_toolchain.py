"""Compiles CUDA sources to machine code without a GPU, with NVRTC."""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

import pytest

from tests.support import cuda_on_cpu

ARCHITECTURES = ("80", "90")  # and the oldest that the installed NVRTC still knows, see oldest()


def kernel_modules() -> Iterator[ModuleType]:
    """Every module of cugrad.backends.cupy.kernels."""
    package = importlib.import_module("cugrad.backends.cupy.kernels")
    for info in pkgutil.iter_modules(package.__path__):
        yield importlib.import_module(f"{package.__name__}.{info.name}")


def sources_of(module: ModuleType) -> dict[str, str]:
    """The CUDA sources of a kernels module by name: its upper-case strings with a kernel in
    them.
    """
    return {
        name: value
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str) and "__global__" in value
    }


@cache
def nvrtc() -> Any:
    """CuPy's binding of NVRTC; skips the test, with the reason, where it or the CUDA headers
    are absent.
    """
    pytest.importorskip("cupy", reason="CuPy is not installed")
    from cupy_backends.cuda.libs import nvrtc

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nvrtc.getVersion()
            compile_cuda("#include <cuda_fp16.h>\n__global__ void probe(__half*) {}", "90")
    except Exception as error:
        pytest.skip(f"NVRTC or the CUDA headers are not installed: {str(error).splitlines()[0]}")
    return nvrtc


def oldest() -> str:
    """The oldest architecture tried: 70 with CUDA 12, 75 with CUDA 13, which dropped 70."""
    return "70" if nvrtc().getVersion()[0] < 13 else "75"


def compile_cuda(source: str, arch: str, names: tuple[str, ...] = ()) -> bytes:
    """The machine code (cubin) of `source` for `sm_<arch>`; RuntimeError with NVRTC's log."""
    from cupy._core import core
    from cupy_backends.cuda.libs import nvrtc

    options = core.assemble_cupy_compiler_options(())
    options += ("--device-as-default-execution-space", "-ftz=true", f"-arch=sm_{arch}")
    program = nvrtc.createProgram(source, "kernels.cu", (), ())
    try:
        for name in names:
            nvrtc.addNameExpression(program, name)
        try:
            nvrtc.compileProgram(program, options)
        except nvrtc.NVRTCError as error:
            raise RuntimeError(nvrtc.getProgramLog(program)) from error
        for name in names:
            nvrtc.getLoweredName(program, name)
        return nvrtc.getCUBIN(program)
    finally:
        nvrtc.destroyProgram(program)


def host_compiler() -> None:
    """Skips the test, with the reason, where kernels cannot be built for the CPU."""
    try:
        cuda_on_cpu.compiler()
    except cuda_on_cpu.NoCompiler as error:
        pytest.skip(str(error))
