"""Checks the CUDA sources without a GPU: all compile to machine code, and Philox gives Philox's
numbers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cugrad.backends.cupy.kernels import philox
from tests.backends import cuda_toolchain as toolchain
from tests.support import ROOT
from tests.support.cuda_on_cpu import Kernel, Program

MODULES = list(toolchain.kernel_modules())
STARTED_OTHERWISE = {"copy_lines", "track_moment"}  # than by the function of a row
SOURCES = [(module, name) for module in MODULES for name in toolchain.sources_of(module)]


def started_by_tests_of_rows(module: Any) -> bool:
    """Whether those compile all of its kernels for the newest GPU."""
    return hasattr(module, "KERNELS") and not STARTED_OTHERWISE & set(module.NAMES)


@pytest.mark.parametrize(
    "module, name", SOURCES, ids=[f"{m.__name__.partition('.kernels.')[2]}.{n}" for m, n in SOURCES]
)
def test_a_source_compiles(module: Any, name: str) -> None:
    """Without spills, and within the shared memory that any kernel may have: on the oldest GPU, on
    those between if the source asks which it is, and on the newest, for which the tests of rows
    compile each kernel in their dtypes. (benchmarks/resources.py reports what each kernel needs.)
    """
    toolchain.nvrtc()
    source = toolchain.sources_of(module)[name]
    least = max(toolchain.oldest(), getattr(module, "LEAST", ""), key=lambda arch: int(arch or 0))
    others = toolchain.ARCHITECTURES if "__CUDA_ARCH__" in source else toolchain.ARCHITECTURES[-1:]
    if "__CUDA_ARCH__" not in source and started_by_tests_of_rows(module):
        others = ()
    for arch in dict.fromkeys([least, *others]):
        needs = toolchain.resources(toolchain.compiled(source, arch)[1])
        assert set(needs) >= set(getattr(module, "NAMES", ())), f"{name} for sm_{arch}"
        for kernel, each in needs.items():
            toolchain.check(f"{kernel} for sm_{arch}", each)


def test_what_a_kernel_needs_is_read() -> None:
    toolchain.nvrtc()
    source = """extern "C" __global__ void __launch_bounds__(256) kept(float* x, int at)
    {
        __shared__ float line[256];
        float some[32];
        for (int k = 0; k < 32; ++k) some[k] = x[k];
        line[threadIdx.x] = some[at];
        __syncthreads();
        x[threadIdx.x] = line[255 - threadIdx.x];
    }
    extern "C" __global__ void __launch_bounds__(1024, 2) spilled(volatile float* x)
    {
        float some[64];
    #pragma unroll
        for (int k = 0; k < 64; ++k) some[k] = x[k * 64];
        __syncthreads();
    #pragma unroll
        for (int k = 0; k < 64; ++k) x[k * 32] = some[63 - k];
    }"""
    for arch in toolchain.ARCHITECTURES:
        needs = toolchain.resources(toolchain.compiled(source, arch)[1])
        kept, spilled = needs["kept"], needs["spilled"]
        assert kept.shared == 1024 and kept.spills == 0
        assert spilled.registers <= 32 and spilled.spills >= spilled.frame > 0
        with pytest.raises(AssertionError, match="spilled spills registers"):
            toolchain.check("spilled", spilled)


def test_what_was_made_is_kept_and_an_error_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    toolchain.nvrtc()
    source = f"__global__ void once(float* x) {{ x[0] = {os.getpid()}; }}"
    first = toolchain.compiled(source, "90")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="nowhere"):
            toolchain.compiled(source + "nowhere", "90")
    monkeypatch.delattr(toolchain, "_compiled")
    assert toolchain.compiled(source, "90") == first and first[0].startswith(b"\x7fELF")


def test_a_script_writes_what_all_kernels_need(tmp_path: Path) -> None:
    toolchain.nvrtc()
    results = tmp_path / "resources.json"
    words = ["--check", "--only", "cells", "--json", str(results)]
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.resources", *words], cwd=ROOT, capture_output=True,
        text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    lines = json.loads(results.read_text())["kernels"]
    assert {(x["kernel"], x["arch"]) for x in lines} >= {("lstm_step", "80"), ("gru_back", "90")}
    assert all(x["registers"] > 0 and x["spills"] == x["shared"] == 0 for x in lines)
    assert run.stdout.count("| cells: ") == len(lines) / 2


def test_every_kernels_module_has_a_source() -> None:
    for module in MODULES:
        assert toolchain.sources_of(module), f"{module.__name__} has no string with a kernel in it"


def test_the_compiler_sees_a_fault() -> None:
    toolchain.nvrtc()
    with pytest.raises(RuntimeError, match="undefined_name"):
        toolchain.compile_cuda(
            'extern "C" __global__ void k(int* x) { *x = undefined_name; }', "90"
        )


# Philox on the host
# ------------------------------------------------------------------------------------

KNOWN = r"""
extern "C" __global__ void known(const u32* counter, const u32* key, u32* out)
{
    Words c = {counter[0], counter[1], counter[2], counter[3]};
    Words w = philox(c, key[0], key[1]);
    out[0] = w.x; out[1] = w.y; out[2] = w.z; out[3] = w.w;
}
"""

# Random123's kat_vectors for philox4x32-10: counter, key, result.
KNOWN_ANSWERS = [
    ("0 0 0 0", "0 0", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
     "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
     "d16cfe09 94fdcceb 5001e420 24126ea1"),
]  # fmt: skip

Fill = Callable[..., np.ndarray[Any, Any]]


@pytest.fixture(scope="module")
def host() -> Callable[[str, int], Kernel]:
    """host(kernel, n): a kernel of philox on the CPU, watched where it writes few elements."""
    source = philox.SOURCE + KNOWN
    watched, blind = Program(source), Program(source, checks=False)
    toolchain.host_compiler()
    return lambda name, n: (watched if n < 1000 else blind).kernel(name)


@pytest.fixture(scope="module")
def fill(host: Callable[[str, int], Kernel]) -> Fill:
    """fill(kernel, n, dtype, *extra): what the kernel writes; beyond n it must write nothing."""

    def run(
        kernel: str, n: int, dtype: Any, *extra: Any, seed: int = 7, offset: int = 0,
        grid: int = 3, block: int = 5,
    ) -> np.ndarray[Any, Any]:  # fmt: skip
        out = np.full(n + 8, 99, dtype)
        numbers = [np.uint64(x) for x in (n, seed, offset, 0)]
        host(kernel, n)((grid,), (block,), (out, *numbers, *extra))
        assert (out[n:] == 99).all(), f"{kernel} writes beyond its {n} elements"
        return out[:n]

    return run


def words(text: str) -> np.ndarray[Any, Any]:
    return np.array([int(word, 16) for word in text.split()], np.uint32)


@pytest.mark.parametrize("counter, key, answer", KNOWN_ANSWERS)
def test_philox_gives_the_known_answers(
    host: Callable[[str, int], Kernel], counter: str, key: str, answer: str
) -> None:
    out = np.zeros(4, np.uint32)
    host("known", 4)((1,), (1,), (words(counter), words(key), out))
    assert [f"{word:08x}" for word in out] == answer.split()


LAUNCHES = [
    ("philox_uniform_float", np.float32, 4, (np.int32(24),)),
    ("philox_uniform_double", np.float64, 2, ()),
    ("philox_normal_float", np.float32, 4, ()),
    ("philox_normal_double", np.float64, 2, ()),
    ("philox_integers", np.int64, 2, (np.int64(-5), np.uint64(1000))),
]
every_kernel = pytest.mark.parametrize(
    "kernel, dtype, per_block, extra", LAUNCHES, ids=[row[0] for row in LAUNCHES]
)


def test_every_philox_kernel_is_run() -> None:
    assert [*[row[0] for row in LAUNCHES], "philox_bits", "philox_place"] == list(philox.NAMES)


@pytest.mark.parametrize("count", [1, 8, 97])
def test_bits_say_which_uniform_numbers_are_small(fill: Fill, count: int) -> None:
    how = np.uint64(count), np.float32(0.3)
    bits = fill("philox_bits", -(-count // 8), np.uint8, *how, offset=5)
    drawn = fill("philox_uniform_float", count, np.float32, np.int32(24), offset=5)
    np.testing.assert_array_equal(bits, np.packbits(drawn < np.float32(0.3)))


@every_kernel
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 97])
def test_numbers_do_not_depend_on_the_launch(
    fill: Fill, kernel: str, dtype: Any, per_block: int, extra: Any, n: int
) -> None:
    wide = fill(kernel, n, dtype, *extra, grid=40, block=32)
    narrow = fill(kernel, n, dtype, *extra, grid=1, block=1)
    longer = fill(kernel, 128, dtype, *extra)
    np.testing.assert_array_equal(wide, narrow)
    np.testing.assert_array_equal(wide, longer[:n])


@every_kernel
def test_the_next_draw_goes_on_where_the_last_ended(
    fill: Fill, kernel: str, dtype: Any, per_block: int, extra: Any
) -> None:
    whole = fill(kernel, 20 * per_block, dtype, *extra)
    rest = fill(kernel, 12 * per_block, dtype, *extra, offset=8)
    np.testing.assert_array_equal(whole[8 * per_block :], rest)
    assert not np.array_equal(whole, fill(kernel, 20 * per_block, dtype, *extra, seed=8))
    far = fill(kernel, per_block, dtype, *extra, offset=2**32)  # the counter's second word counts
    assert not np.array_equal(whole[:per_block], far)


N = 200_000
TOLERANCE = 5 / N**0.5  # five standard errors of a mean of unit variance


@pytest.mark.parametrize("kernel, dtype, extra", [
    ("philox_uniform_float", np.float32, (np.int32(24),)),
    ("philox_uniform_float", np.float32, (np.int32(11),)),
    ("philox_uniform_double", np.float64, ()),
])  # fmt: skip
def test_uniform_numbers_have_the_moments_of_the_unit_interval(
    fill: Fill, kernel: str, dtype: Any, extra: Any
) -> None:
    x = fill(kernel, N, dtype, *extra).astype(np.float64)
    assert 0 <= x.min() < 1e-3 and 1 - 1e-3 < x.max() < 1
    assert abs(x.mean() - 0.5) < TOLERANCE + 2**-12
    assert abs(x.var() - 1 / 12) < TOLERANCE
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < TOLERANCE


@pytest.mark.parametrize("bits, half", [(11, "float16"), (8, "bfloat16")])
def test_half_precision_never_rounds_up_to_one(fill: Fill, bits: int, half: str) -> None:
    if half == "bfloat16":
        half = pytest.importorskip("ml_dtypes").bfloat16
    x = fill("philox_uniform_float", 20_000, np.float32, np.int32(bits))
    assert (x.astype(half).astype(np.float32) == x).all()


@pytest.mark.parametrize("kernel, dtype", [
    ("philox_normal_float", np.float32), ("philox_normal_double", np.float64),
])  # fmt: skip
def test_normal_numbers_have_the_moments_of_the_bell(fill: Fill, kernel: str, dtype: Any) -> None:
    x = fill(kernel, N, dtype).astype(np.float64)
    assert np.isfinite(x).all()
    assert abs(x.mean()) < TOLERANCE
    assert abs(x.var() - 1) < 2 * TOLERANCE
    assert abs((x**3).mean()) < 4 * TOLERANCE
    assert abs((x**4).mean() - 3) < 10 * TOLERANCE
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < TOLERANCE


def test_integers_cover_their_range_evenly(fill: Fill) -> None:
    x = fill("philox_integers", N, np.int64, np.int64(-3), np.uint64(10))
    counts = np.bincount(x + 3, minlength=10)
    assert len(counts) == 10
    assert np.abs(counts / N - 0.1).max() < TOLERANCE


def test_a_range_of_zero_means_every_integer(fill: Fill) -> None:
    x = fill("philox_integers", N, np.int64, np.int64(-(2**63)), np.uint64(0))
    assert x.min() < -(2**62) and x.max() > 2**62
    assert len(np.unique(x)) == N
