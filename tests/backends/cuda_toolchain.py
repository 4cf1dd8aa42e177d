"""Compiles CUDA sources to machine code without a GPU, with NVRTC."""

from __future__ import annotations

import importlib
import pkgutil
import re
import struct
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from tests.support import cuda_on_cpu

ARCHITECTURES = ("90",)  # and the oldest that the installed NVRTC still knows, see oldest()


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


def compile_cuda(
    source: str, arch: str, names: tuple[str, ...] = (), more: tuple[str, ...] = ()
) -> bytes:
    """The machine code (cubin) of `source` for `sm_<arch>`; RuntimeError with NVRTC's log."""
    from cupy._core import core
    from cupy_backends.cuda.libs import nvrtc

    options = core.assemble_cupy_compiler_options(())
    options += ("--device-as-default-execution-space", "-ftz=true", f"-arch=sm_{arch}", *more)
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


class Resources(NamedTuple):
    """What a kernel needs for a thread: registers, and bytes of local memory, where spills go."""

    registers: int
    frame: int


def resources(code: bytes) -> dict[str, Resources]:
    """The resources of each kernel of a cubin, by its (mangled) name: NVIDIA's ELF attributes."""
    table, size, count = struct.unpack_from("<Q", code, 40)[0], *struct.unpack_from("<HH", code, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, table + i * size) for i in range(count)]
    symbols = next(s for s in sections if s[1] == 2)  # SHT_SYMTAB
    names = sections[symbols[6]][4]

    def name(index: int) -> str:
        start = names + struct.unpack_from("<I", code, symbols[4] + 24 * index)[0]
        return code[start : code.index(b"\0", start)].decode()

    registers, frames = {}, {}
    for section in sections:
        if section[1] != 0x70000000 or section[7]:  # the .nv.info of the whole module
            continue
        place, end = section[4], section[4] + section[5]
        while place < end:
            form, attribute, length = struct.unpack_from("<BBH", code, place)
            if form == 4 and attribute in (0x2F, 0x11):  # EIATTR_REGCOUNT, EIATTR_FRAME_SIZE
                index, value = struct.unpack_from("<II", code, place + 4)
                (registers if attribute == 0x2F else frames)[name(index)] = value
            place += 4 + (length if form == 4 else 0)
    return {kernel: Resources(n, frames[kernel]) for kernel, n in registers.items()}


def some_of(sources: Sequence[str], every: int = 6) -> list[str]:
    """The first source of each kernel's name, and of those for other dtypes and sizes one in so
    many: all of them run on the CPU.
    """
    numbers: dict[str, int] = {}
    found = []
    for source in sources:
        name = " ".join(re.findall(r"__global__[^;{]*?(\w+)\s*\(", source))
        number = numbers[name] = numbers.get(name, -1) + 1
        if number % every == 0:
            found.append(source)
    return found


def compile_together(
    sources: Sequence[str], arch: str, more: tuple[str, ...] = ()
) -> list[Resources]:
    """Compiles sources of one kernel each in one run of NVRTC; what each needs, in their order."""
    heads = dict.fromkeys(line for s in sources for line in re.findall("#include.*\n", s))
    parts = [
        f"namespace n{k} {{\n{re.sub('#include.*', '', source)}}}\n".replace(
            'extern "C" __global__', "__global__"
        )
        for k, source in enumerate(sources)
    ]
    found = resources(compile_cuda("".join([*heads, *parts]), arch, more=more))
    numbers = {}
    for mangled in found:  # _ZN4n416...: of the namespace n416
        length = re.match(r"_ZN(\d+)n", mangled)
        assert length is not None, mangled
        numbers[int(mangled[length.end() : length.end() + int(length[1]) - 1])] = mangled
    return [found[numbers[k]] for k in range(len(sources))]


def host_compiler() -> None:
    """Skips the test, with the reason, where kernels cannot be built for the CPU."""
    try:
        cuda_on_cpu.compiler()
    except cuda_on_cpu.NoCompiler as error:
        pytest.skip(str(error))
