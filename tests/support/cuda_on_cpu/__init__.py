"""Runs CUDA kernels on the CPU from their own source, and finds what a GPU would not tell.

    program = Program(source)
    program.kernel("scale")((blocks,), (threads,), (x, y, np.float32(2), np.int32(n)))

The text that NVRTC gets is compiled by g++ behind `words.h`, which has the words of CUDA C, and is
linked with `machine.cpp`, which runs the threads of a block in turns. KernelError says, with the
line of the source, what a GPU would answer with garbage, a fault or a hang: an access out of the
bounds of the arrays, misaligned, or to shared memory that was not set; a race between barriers;
threads that do not meet at a barrier or in their warp; undefined behaviour of C++. Arguments are
checked against the kernel's own signature. Nothing is said about speed, registers or occupancy.
Inline PTX does not compile: such code stands under `#ifndef CUDA_ON_CPU`.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Kernel", "KernelError", "NoCompiler", "Program"]

HERE = Path(__file__).parent
HEADERS = ("cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h", "math_constants.h")  # words.h is all
PLAIN = ("-std=gnu++17", "-fPIC", "-fvisibility=hidden", "-w", "-U_FORTIFY_SOURCE")
CHECKED = (
    "-O0", "-g1", "-gdwarf-4", "-ffp-contract=off", "-fno-extern-tls-init",
    "-fsanitize=thread",
    "-fsanitize=bounds,shift,integer-divide-by-zero,signed-integer-overflow",
)  # fmt: skip
# To optimise what runs for a moment takes longer than it saves.
UNCHECKED = ("-O0", "-ffp-contract=off", "-fno-extern-tls-init")
# Nothing is searched in the C++ library, which takes a linker ten times as long: `load` brings it.
SHARED = ("-shared", "-nodefaultlibs", "-Wl,-Bsymbolic")
NEEDED = ("libstdc++.so.6", "libm.so.6")
MEETING = re.compile(r"__sync|_sync\(|__shared__|__threadfence|atomic[A-Z]")
KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(")
DEFINED = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.M)
DYNAMIC = re.compile(r"extern\s+__shared__\s+(?:__align__\(\d+\)\s+)?([\w ]+?)\s+(\w+)\[\];")
TLS = re.compile(r"^ *\d+: (\w+) +(\w+) TLS .* (\S+)$", re.M)  # a line of a table of symbols
OWNER = re.compile(r"_ZZN[KVRO]*(\d+)n(\d+)")
A_WEEK = 7 * 24 * 3600.0
MAX_SHARED = 227 * 1024
ONE_AT_A_TIME = threading.Lock()  # the machine of a library runs one launch
STACKS: list[int | None] = [None]  # of the threads of a block, which the first launch makes


class KernelError(AssertionError):
    """A kernel did what a GPU may answer with garbage, a fault or a hang."""


class NoCompiler(RuntimeError):
    """There is no g++ here."""


class Range(ctypes.Structure):
    _fields_ = [
        ("low", ctypes.c_void_p), ("size", ctypes.c_size_t), ("read_only", ctypes.c_int),
        ("cells", ctypes.c_void_p),
    ]  # fmt: skip


class Type(ctypes.Structure):
    """Of an argument, as words.h has it."""

    _fields_ = [
        ("is_pointer", ctypes.c_bool), ("kind", ctypes.c_char), ("size", ctypes.c_size_t),
    ]  # fmt: skip


class Launch(ctypes.Structure):
    _fields_ = [
        ("stacks", ctypes.c_void_p), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("races", ctypes.c_uint), ("early_exit", ctypes.c_uint), ("in_turns", ctypes.c_uint),
        ("watched", ctypes.c_uint), ("low", ctypes.c_uint), ("high", ctypes.c_uint),
        ("seed", ctypes.c_uint64), ("first", ctypes.c_uint64), ("blocks", ctypes.c_uint64),
    ]  # fmt: skip


# Building -----------------------------------------------------------------------------------------


@cache
def compiler() -> str:
    """The path of g++; NoCompiler without one. (clang's instrumentation has other names.)"""
    found = shutil.which("g++")
    if found is None:
        raise NoCompiler("no C++ compiler (g++)")
    return found


@cache
def store() -> Path:
    """The user's own folder of what was built, kept for a week; code is loaded from it."""
    folder = Path(tempfile.gettempdir()) / f"cugrad_cuda_on_cpu_{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077 or folder.is_symlink():
        folder = Path(tempfile.mkdtemp(prefix="cugrad_cuda_on_cpu_"))
    for old in folder.iterdir():
        if old.is_file() and time.time() - old.stat().st_mtime > A_WEEK:
            old.unlink(missing_ok=True)
    for header in HEADERS:
        (folder / header).touch()
    return folder


@cache
def version() -> str:
    """What everything built depends on."""
    about = subprocess.run([compiler(), "--version"], capture_output=True, text=True).stdout
    files = [(HERE / name).read_text() for name in ("words.h", "machine.cpp")]
    return hashlib.sha256("\0".join([about, *files, *PLAIN]).encode()).hexdigest()


def built(suffix: str, texts: dict[str, str], *command: str) -> Path:
    """The file that g++ makes of texts with a command, from the store if it is there."""
    parts = [version(), suffix, *texts, *texts.values(), *command]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
    out = store() / f"{key}{suffix}"
    if out.exists():
        os.utime(out)  # what is in use stays in the store
        return out
    work = Path(tempfile.mkdtemp(dir=store()))
    try:
        for name, text in texts.items():
            (work / name).write_text(text)
        made = work / f"made{suffix}"
        done = subprocess.run(
            [compiler(), *PLAIN, f"-I{store()}", f"-I{HERE}", *command, "-o", str(made)],
            cwd=work, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            raise SyntaxError(done.stderr[:4000])
        os.replace(made, out)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return out


def header(flags: Sequence[str]) -> Path:
    """words.h, compiled ahead: half of the time that a short source takes."""
    text = (HERE / "words.h").read_text()
    compiled = built(".h.gch", {"words.h": text}, *flags, "-x", "c++-header", "words.h")
    plain = compiled.with_suffix("")  # g++ wants the text, or a file of its name, beside it
    if not plain.exists():
        plain.write_text(text)
    return plain


def library(sources: Sequence[str], checks: bool) -> Path:
    """The library of all kernels of some sources, each in a namespace of its own."""
    flags = CHECKED if checks else UNCHECKED
    machine = (HERE / "machine.cpp").read_text()
    runs = built(".o", {"machine.cpp": machine}, *UNCHECKED, "-O2", "-c", "machine.cpp")
    texts, parts = {}, []
    for k, source in enumerate(sources):
        text = DYNAMIC.sub(r"\1* \2 = (\1*)on_cpu_dynamic();", source)
        texts[f"source{k}.cu"] = text.replace('extern "C" __global__', "__global__")
        entries = [f"ON_CPU_ENTRY(n{k}_{name}, n{k}::{name})\n" for name in KERNEL.findall(source)]
        ends = [f"#undef {name}\n" for name in DEFINED.findall(source)]  # they are its own
        parts.append(f'namespace n{k} {{\n#include "source{k}.cu"\n}}\n{"".join(ends + entries)}')
    texts["kernels.cpp"] = "".join(parts)
    words = "-include", str(header(flags))
    if not checks:
        return built(".so", texts, *flags, *words, *SHARED, "kernels.cpp", str(runs), "-lgcc")
    kernels = built(".o", texts, *flags, *words, "-c", "kernels.cpp")  # linked without libtsan
    return built(".so", {}, *SHARED, str(kernels), str(runs), "-lgcc")


@cache
def shared_of(library: Path) -> dict[int, tuple[int, int]]:
    """Where the shared variables of each source begin and end among all those of a library."""
    table = subprocess.run(["readelf", "-sW", str(library)], capture_output=True, text=True).stdout
    found: dict[int, tuple[int, int]] = {}
    for value, size, name in TLS.findall(table):
        owner = OWNER.match(name)
        if owner is None:
            assert "dynamic_memory" in name, f"{name} is a shared variable of no source"
            continue
        number = int(owner[2][: int(owner[1]) - 1])  # _ZZN3n125scale...: of the namespace n12
        begin = int(value, 16)
        low, high = found.get(number, (begin, begin))
        found[number] = min(low, begin), max(high, begin + int(size, 0))
    return found


def grouped(things: Sequence[Any], texts: Sequence[str], about: int) -> list[list[Any]]:
    """Groups of about so many, by their texts: a text that changes is in one group or in two, and
    what is built of the others is in the store.
    """
    number = 1 << max(0, math.ceil(math.log2(max(1, len(things)) / about)))
    groups: list[list[Any]] = [[] for _ in range(number)]
    for thing, text in zip(things, texts, strict=True):
        groups[hashlib.sha256(text.encode()).digest()[0] % number].append(thing)
    return [group for group in groups if group]


class Program:
    """A CUDA source, compiled when its first kernel runs; `checks=False` runs faster and blind."""

    def __init__(self, source: str, *, checks: bool = True) -> None:
        self.source, self.checks = source, checks
        self.names = tuple(KERNEL.findall(source))
        self.in_turns = MEETING.search(source) is not None
        self.path: Path | None = None
        self._number = 0  # among the sources of its library
        self._kernels: dict[str, Kernel] = {}

    def load(self) -> ctypes.CDLL:
        if self.path is None:
            self.path = library([self.source], self.checks)
        for name in NEEDED:
            ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
        return ctypes.CDLL(str(self.path))

    @staticmethod
    def compile_together(programs: Sequence[Program], most: int = 64) -> None:
        """Compiles many sources in few runs of g++: each run costs as much as some kernels."""
        for checks in (True, False):
            left = [p for p in programs if p.checks is checks and p.path is None]
            for some in grouped(left, [p.source for p in left], most):
                path = library([p.source for p in some], checks)
                for number, program in enumerate(some):
                    program.path, program._number = path, number

    def kernel(self, name: str) -> Kernel:
        found = self._kernels.get(name)
        if found is None:
            if name not in self.names:
                raise KeyError(f"no kernel {name!r} in the source, which has {self.names}")
            library = self.load()
            found = self._kernels[name] = Kernel(self, library, name, f"n{self._number}_{name}")
        return found


# Launching ----------------------------------------------------------------------------------------


class Kernel:
    """kernel(grid, block, args): arguments are arrays, NumPy scalars, and structs as np.void.

    `arrays` are those that a struct points to. `seed` draws the order of blocks and threads.
    `races`: 2 looks in shared and global memory, 1 in shared memory, 0 nowhere. `early_exit` lets
    threads return before a barrier of the others. `only` is a range of blocks; others do not run.
    """

    def __init__(self, program: Program, library: ctypes.CDLL, name: str, label: str) -> None:
        self.program, self.name, self._library = program, name, library
        told = (Type * 200).in_dll(library, f"types_{label}")
        self.types = [  # "*f4" is a pointer to float, "V24" a struct
            f"{'*' * t.is_pointer}{t.kind.decode()}{t.size}"
            for t in takewhile(lambda t: t.kind != b"\0", told)
        ]
        self._entry = ctypes.cast(getattr(library, f"run_{label}"), ctypes.c_void_p)
        self._shared = (0, 0)  # where its source's shared variables begin and end
        if "__shared__" in program.source and program.path is not None:
            self._shared = shared_of(program.path).get(program._number, (0, 0))

    def __call__(
        self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], shared_mem: int = 0,
        *, arrays: Sequence[Any] = (), seed: int = 0, races: int = 2, early_exit: bool = False,
        only: range = range(0),
    ) -> None:  # fmt: skip
        if len(args) != len(self.types):
            raise TypeError(f"{self.name}: got {len(args)} arguments, want {len(self.types)}")
        values = [self._packed(i, t, a) for i, (t, a) in enumerate(zip(self.types, args))]
        pointers = (ctypes.c_void_p * len(values))(*[v.ctypes.data for v in values])
        ranges = [_range(a) for a in (*args, *arrays) if isinstance(a, np.ndarray)]
        how = self._launch(grid, block, shared_mem)
        how.seed, how.races, how.early_exit = seed, races, early_exit
        how.low, how.high = self._shared
        how.first, how.blocks = only.start, len(only)
        error = ctypes.create_string_buffer(2048)
        with ONE_AT_A_TIME:
            how.stacks = STACKS[0]
            failed = self._library.on_cpu_launch(
                self._entry, pointers, (Range * len(ranges))(*ranges), len(ranges),
                ctypes.byref(how), error,
            )  # fmt: skip
            STACKS[0] = how.stacks
        if failed:
            text = re.sub(r"@([0-9a-f]+)", self._line, error.value.decode())
            raise KernelError(f"{self.name}: {text}")

    def _launch(self, grid: Sequence[int], block: Sequence[int], shared: int) -> Launch:
        g, b = (*grid, 1, 1)[:3], (*block, 1, 1)[:3]
        threads = b[0] * b[1] * b[2]
        limits = g[0] <= 2**31 - 1 and max(g[1:]) <= 65535 and max(b[:2]) <= 1024 and b[2] <= 64
        if min(*g, *b) < 1 or threads > 1024 or not limits or shared > MAX_SHARED:
            raise ValueError(
                f"{self.name}: no GPU launches a grid of {g} blocks of {b} threads with {shared} "
                "bytes of shared memory"
            )
        three = ctypes.c_uint * 3
        return Launch(
            None,
            three(*g),
            three(*b),
            shared,
            in_turns=self.program.in_turns,
            watched=self.program.checks,
        )

    def _packed(self, i: int, kind: str, value: Any) -> Any:
        """One argument's bytes; a GPU would take whatever bytes are there."""
        if kind[0] == "*":
            if isinstance(value, np.ndarray):
                letter = kind[1] if kind[1] == "u" else value.dtype.kind  # bits of anything
                if kind[1] == "V" or f"{letter}{value.itemsize}" == kind[1:]:
                    return np.array(value.ctypes.data, np.uint64)
        elif isinstance(value, np.generic):  # a Python number has no size that a kernel knows
            letter = value.dtype.kind.replace("b", "u")
            if value.dtype.itemsize == int(kind[1:]) and letter == kind[0]:
                return np.asarray(value)
        got = getattr(value, "dtype", type(value).__name__)
        raise TypeError(f"{self.name}: argument {i} is {got}, want {kind}")

    def _line(self, found: re.Match[str]) -> str:
        """The line of a place in the code, through functions that were inlined."""
        place = hex(int(found[1], 16) - 1)
        done = subprocess.run(
            ["addr2line", "-i", "-e", str(self.program.path), place],
            capture_output=True, text=True,
        )  # fmt: skip
        lines = re.findall(r"source\d+\.cu:(\d+)", done.stdout)
        return f"(line {lines[0]})" if lines else f"(at {place})"


def _range(a: np.ndarray[Any, Any]) -> Range:
    low, high = np.lib.array_utils.byte_bounds(a) if a.size else (a.ctypes.data,) * 2
    return Range(low, high - low, not a.flags.writeable, None)
