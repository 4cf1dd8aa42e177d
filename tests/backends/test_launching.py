"""How kernels are started without CuPy's RawKernel: the driver is told the same."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import ROOT

pytest.importorskip("cupy")

ALIKE = """
import struct
from tests.support.still_cuda import last_launch, still
still()
import cupy, numpy as np
from cugrad.backends.cupy.arrays import by_value
from cugrad.backends.cupy import pools
from cugrad.backends.cupy.backend import CupyBackend
from cugrad.backends.cupy.fused import rows
from cugrad.backends.cupy.memory import use_pools
from cugrad.backends.cupy.launches.starting import StructKernel, here, start
from cugrad.backends.cupy.written import norms, registry
from cugrad.ops.table import TABLE

# A kernel by itself.
size, kernel = 40, StructKernel("", "kernel")
last_launch(size)
array, tail = cupy.ndarray((4,), "f4"), bytes(range(24))
told = np.array([array.data.ptr, 0], "u8").tobytes() + tail
argument = np.frombuffer(told, by_value(size))
for grid, block in (((3,), (256,)), ((3, 5), (32, 4)), ((7, 2, 9), (8, 8, 2))):
    for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
        with stream:
            kernel.raw(grid, block, (argument,))
            expected = last_launch(size)
            assert expected[1] == told
            for begin in (
                lambda: kernel(grid, block, told),
                lambda: start(kernel, grid, block, [array, None], struct.Struct("2P").pack, tail,
                              [0]),
            ):
                kernel.raw((1,), (1,), (np.zeros(1, by_value(size)),))
                begin()
                assert last_launch(size) == expected

# Rows: as they are started in a straight line, they were when their operands first came.
def launched(run, args):
    results = run(*args)
    several = results if type(results) is tuple else (results,)
    names = {x.data.ptr: k for k, x in enumerate(several)}
    numbers, told = last_launch(size)
    return numbers, [names.get(n, n) for n in struct.unpack(f"{size // 8}q", told)]

size = 48
last_launch(size)
x, y = cupy.ndarray((3, 4), "f4"), cupy.ndarray((4,), "f4")
fused = [(TABLE["add"], (x, y)), (TABLE["mul"], (x, 2.5)), (TABLE["exp"], (x.T,)),
         (TABLE["where"], (x > 0, x, y)), (TABLE["leaky_relu"], (x, 0.25))]
written = [(TABLE["native_layer_norm"], (x, y, y.copy(), (4,), 1e-5)), (TABLE["softmax"], (x, 1))]
runs = [(rows.forward_of(op, CupyBackend.xp), args) for op, args in fused]
runs += [(registry.forward_of(op, None), args) for op, args in written]
for run, args in runs:
    first = launched(run, args)
    assert len(run.kept.launches) == 1
    assert launched(run, args) == first

# What is for backward alone lies in one piece of memory, beside no result and in no other's place.
run, args = runs[len(fused)]
(y, mean, rstd), (again, *_) = run(*args), run(*args)
assert mean.data.mem is rstd.data.mem is not y.data.mem is not again.data.mem
assert rstd.data.ptr - mean.data.ptr == 256 >= mean.nbytes and mean.data.ptr % 256 == 0

# Memory is of the allocator that this thread has chosen, or the process; of pools that have none it
# is asked for in turn.
asked = []
def chosen(size):
    asked.append(size)
    return cupy.cuda.memory._malloc(size)
run, args = runs[0]
with cupy.cuda.using_allocator(chosen):
    run(*args)
assert asked.pop() == x.nbytes
use_pools()
ours = cupy.cuda.get_allocator()
assert ours is pools.process_pools().malloc
for count in (1 << 10, 1 << 20):
    long = cupy.ndarray((count,), "f4"), cupy.ndarray((1,), "f4")
    run(*long)
    held = pools.bytes_reserved(0)
    with cupy.cuda.Stream(non_blocking=True):  # of which there is no memory yet
        result = run(*long)
    assert type(result.data.mem) is cupy.cuda.memory.PooledMemory and held < pools.bytes_reserved(0)
    cupy.cuda.set_allocator(chosen)
    run(*long)
    assert asked.pop() == 4 * count
    cupy.cuda.set_allocator(ours)

# Another kernel that a signal's handler starts meanwhile.
inner = StructKernel("", "inner")
place = here.places.pop()
inner((1,), (1,), bytes(size))
assert here.places and here.places[0] is not place
print("alike")
"""

# Of each row, and of its gradients, the kernel for odd addresses is started before the other.
ODD = """
from tests.support.still_cuda import still
still()
import cupy
from cugrad.backends.cupy.backend import CupyBackend
from cugrad.backends.cupy.fused import rows
from cugrad.ops.table import ELEMENTWISE, TABLE, raw

runs = []
for op in TABLE.values():
    if op.kind != ELEMENTWISE or set(op.params) - set(op.defaults):
        continue
    count, mask = len(op.inputs), sum(1 << i for i, f in enumerate(op.formulas) if f is not None)
    runs.append((rows.forward_of(op, CupyBackend.xp), count, lambda *x: x))
    if mask and not op.params:
        backward = rows.backward_of(op, mask, raw)
        runs.append((backward, 1 + len(op.saves(mask)), lambda g, *saved: (g, saved, None)))
for run, count, form in runs:
    for begin in (1, 0):
        operands = [cupy.ndarray((9,), "f4")[begin : begin + 8] for _ in range(count)]
        run(*form(*operands))
print(sum(bool(run.kept and run.kept.launches) for run, _, _ in runs) > 100)
"""


def test_the_driver_is_told_what_cupy_tells_it() -> None:
    done = subprocess.run([sys.executable, "-c", ALIKE], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "alike\n", done.stderr


def test_kernels_are_compiled_before_they_are_started_again() -> None:
    done = subprocess.run([sys.executable, "-c", ODD], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr
