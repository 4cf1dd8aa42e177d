"""Compiles CUDA sources without a GPU: with NVRTC to machine code, and with a C++ compiler for the
host.

The host build runs kernels thread by thread, which shows their numbers; it says nothing about
speed, races or launch limits.
"""

from __future__ import annotations

import ctypes
import importlib
import pkgutil
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

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


# What CUDA provides and a host compiler does not.
HOST_SHIM = r"""
#include <cmath>
#include <cstdint>
#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
struct Index { unsigned x = 0, y = 0, z = 0; };
static thread_local Index threadIdx, blockIdx, blockDim, gridDim;
static inline unsigned __umulhi(unsigned a, unsigned b)
{ return (unsigned)(((unsigned long long)a * b) >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{ return (unsigned long long)(((unsigned __int128)a * b) >> 64); }
static inline void sincospi(double x, double* s, double* c)
{ *s = std::sin(M_PI * x); *c = std::cos(M_PI * x); }
static inline void sincospif(float x, float* s, float* c)
{ *s = (float)std::sin(M_PI * (double)x); *c = (float)std::cos(M_PI * (double)x); }
using std::isnan; using std::isinf;

// Runs a kernel on the host, one thread after another.
template <class Kernel, class... Args>
static void launch(unsigned grid, unsigned block, Kernel kernel, Args... args)
{
    gridDim.x = grid; blockDim.x = block;
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x)
        for (threadIdx.x = 0; threadIdx.x < block; ++threadIdx.x) kernel(args...);
}
"""


def host_library(source: str, entries: str, folder: Path) -> ctypes.CDLL:
    """`source` and the `extern "C"` functions `entries`, built for the host; skips without a
    compiler.
    """
    compiler = shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler (g++, clang++ or c++)")
    (folder / "kernels.cpp").write_text(HOST_SHIM + source + entries)
    flags = ["-std=c++17", "-O2", "-w", "-shared", "-fPIC", "-o", "kernels.so"]
    done = subprocess.run(
        [compiler, *flags, "kernels.cpp"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(folder / "kernels.so"))
