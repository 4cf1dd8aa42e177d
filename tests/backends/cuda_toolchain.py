"""Compiles CUDA sources to machine code without a GPU, with NVRTC."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.metadata
import os
import pkgutil
import re
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from tests.support import cuda_on_cpu

ARCHITECTURES = ("80", "90")  # and the oldest that the installed NVRTC still knows, see oldest()
SAVED = 64  # bytes of registers around calls of functions: divisions, and exp and log of float64
SHARED = 48 << 10  # bytes of shared memory that a kernel may have without asking for more


def kernel_modules() -> Iterator[ModuleType]:
    """Every module of cugrad.backends.cupy.kernels, and of the rooms in it."""
    package = importlib.import_module("cugrad.backends.cupy.kernels")
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not info.ispkg:
            yield importlib.import_module(info.name)


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


def compile_cuda(
    source: str, arch: str, names: tuple[str, ...] = (), more: tuple[str, ...] = ()
) -> bytes:
    """The machine code (cubin) of `source` for `sm_<arch>`; RuntimeError with NVRTC's log."""
    return compiled(source, arch, names, more)[0]


def compiled(
    source: str, arch: str, names: tuple[str, ...] = (), more: tuple[str, ...] = ()
) -> tuple[bytes, str]:
    """The machine code, and what the assembler says of it; kept, as what g++ built is."""
    from cupy._core import core

    options = core.assemble_cupy_compiler_options(())
    options += ("--device-as-default-execution-space", "-ftz=true", f"-arch=sm_{arch}")
    options += ("--ptxas-options=-v", *more)
    parts = [*_about(), *names, *options, source]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
    kept = cuda_on_cpu.store() / f"{key}.cubin"
    if kept.exists():
        os.utime(kept)
        told, _, code = kept.read_bytes().partition(b"\0")
        return code, told.decode()
    code, log = _compiled(source, names, options)
    log = log.replace("\0", "")
    with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as file:
        file.write(log.encode() + b"\0" + code)
    os.replace(file.name, kept)
    return code, log


@cache
def _about() -> tuple[str, ...]:
    """What NVRTC is, and what its headers are."""
    import cupy
    from cupy_backends.cuda.libs import nvrtc

    found = [str(nvrtc.getVersion()), cupy.__version__]
    for name in ("nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-cccl"):
        for wheel in (name, f"{name}-cu12", f"{name}-cu13"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                found.append(f"{wheel} {importlib.metadata.version(wheel)}")
    return tuple(found)


def _compiled(source: str, names: tuple[str, ...], options: tuple[str, ...]) -> tuple[bytes, str]:
    from cupy_backends.cuda.libs import nvrtc

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
        return nvrtc.getCUBIN(program), nvrtc.getProgramLog(program)
    finally:
        nvrtc.destroyProgram(program)


class Resources(NamedTuple):
    """What a kernel needs: registers of a thread, and bytes of its stack, among them registers that
    are spilled there; bytes of shared memory of a block.
    """

    registers: int
    frame: int
    spills: int
    shared: int


ENTRY = re.compile(
    r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
    r"(\d+) bytes spill loads.*?Used (\d+) registers([^\n]*)", re.S,
)  # fmt: skip


def resources(log: str) -> dict[str, Resources]:
    """The resources of each kernel by its (mangled) name, from what the assembler says of it."""
    needs = {}
    for name, frame, stores, loads, registers, rest in ENTRY.findall(log):
        shared = re.search(r"(\d+) bytes smem", rest)
        needs[name] = Resources(
            int(registers), int(frame), int(stores) + int(loads), int(shared[1]) if shared else 0
        )
    return needs


def check(name: str, needs: Resources, saved: int = 0) -> None:
    """AssertionError where a kernel spills registers, but for a few bytes that it saves around a
    call of a division, or has more shared memory than any may.
    """
    assert needs.spills <= saved, f"{name} spills registers: {needs}"
    assert needs.shared <= SHARED, f"{name} has more than {SHARED} bytes of shared memory: {needs}"


def some_of(sources: Sequence[str], every: int = 24) -> list[str]:
    """The first source of each kernel's name, and of those for other dtypes and sizes one in so
    many: all of them run on the CPU.
    """
    numbers: dict[str, int] = {}
    found = []
    for source in sources:
        bounded = r"__global__ void (?:__launch_bounds__\(.*?\)\s*)?(\w+)\("
        name = " ".join(re.findall(bounded, source))
        number = numbers[name] = numbers.get(name, -1) + 1
        if number % every == 0:
            found.append(source)
    return found


def compile_together(
    sources: Sequence[str], arch: str, more: tuple[str, ...] = ()
) -> list[Resources]:
    """Compiles sources of one kernel each in few runs of NVRTC; what each needs, in their order."""
    found: dict[int, Resources] = {}
    for some in cuda_on_cpu.grouped(range(len(sources)), sources, 24):
        found.update(zip(some, _together([sources[k] for k in some], arch, more), strict=True))
    return [found[k] for k in range(len(sources))]


def _together(sources: Sequence[str], arch: str, more: tuple[str, ...]) -> list[Resources]:
    heads = dict.fromkeys(line for s in sources for line in re.findall("#include.*\n", s))
    parts = [
        f"namespace n{k} {{\n{re.sub('#include.*', '', source)}}}\n".replace(
            'extern "C" __global__', "__global__"
        )
        for k, source in enumerate(sources)
    ]
    found = resources(compiled("".join([*heads, *parts]), arch, more=more)[1])
    numbers = {}
    for mangled in found:  # _ZN4n416...: of the namespace n416
        length = re.match(r"_ZN(\d+)n", mangled)
        assert length is not None, mangled
        numbers[int(mangled[length.end() : length.end() + int(length[1]) - 1])] = mangled
    needs = [found[numbers[k]] for k in range(len(sources))]
    for source, each in zip(sources, needs, strict=True):
        check(source, each, SAVED)
    return needs


def host_compiler() -> None:
    """Skips the test, with the reason, where kernels cannot be built for the CPU."""
    try:
        cuda_on_cpu.compiler()
    except cuda_on_cpu.NoCompiler as error:
        pytest.skip(str(error))
