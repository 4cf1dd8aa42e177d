"""Checks, without a GPU, that every CuPy name and argument that cugrad uses is in the installed
CuPy.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.support import ROOT

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
ml_dtypes = pytest.importorskip("ml_dtypes", reason="it has bfloat16")

from cugrad.backends.cupy import arrays  # noqa: E402
from cugrad.backends.cupy.arrays import by_value  # noqa: E402
from tests.backends import cupy_contract as contract  # noqa: E402
from tests.support import fake_cuda  # noqa: E402

if fake_cuda.REAL is not None:
    pytest.skip("the stand-in for CuPy is in its place", allow_module_level=True)

PACKAGE = ROOT / "cugrad"
CUPY_FILES = sorted((PACKAGE / "backends" / "cupy").rglob("*.py"))
ROW_FILES = sorted(
    path
    for path in PACKAGE.rglob("*.py")
    if "backends" not in path.parts and contract.uses_the_namespace(path.read_text())
)


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("path", CUPY_FILES, ids=relative)
def test_the_backend_uses_what_cupy_has(path: Path) -> None:
    faults = contract.faults_of(path.read_text(), relative(path))
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("path", ROW_FILES, ids=relative)
def test_rows_use_what_the_namespace_has(path: Path) -> None:
    from cugrad.backends.cupy.namespace import CupyNamespace

    faults = contract.faults_of_rows(path.read_text(), relative(path), CupyNamespace)
    assert not faults, "\n".join(faults)


BAD = [
    ("import cupy\ncupy.no_such_name", "no cupy.no_such_name"),
    ("import cupy\ncupy.cuda.runtime.memcpySideways(1, 2)", "no cupy.cuda.runtime.memcpySideways"),
    ("import cupy as cp\ncp.linalg.nothing()", "no cupy.linalg.nothing"),
    ("from cupyx.scipy.special import erff\nerff(x)", "no cupyx.scipy.special.erff"),
    ("import cupy\nruntime = cupy.cuda.runtime\nruntime.nothing", "no cupy.cuda.runtime.nothing"),
    ("import cupy\ncupy.sum(x, axes=0)", "no argument 'axes'"),
    ("import cupy\ncupy.cuda.Stream(nonblocking=True)", "no argument 'nonblocking'"),
    ("import cupy\ncupy.cuda.Event(timing=True)", "no argument 'timing'"),
    ("import cupy\ncupy.RawModule(source='')", "no argument 'source'"),
    ("import cupy\ncupy.cuda.runtime.memcpyAsync(1, 2, 3, 4)", "lacks the arguments ['stream']"),
    ("import cupy\ncupy.cuda.runtime.memcpyAsync(1, 2, 3, 4, 5, 6)", "takes 5 positional"),
    ("import cupy\ncupy.cuda.PinnedMemoryPointer(memory)", "lacks the arguments ['offset']"),
    ("from cupy_backends.cuda.libs import cublas\ncublas.gemmExtra", "no cupy_backends.cuda.libs"),
    ("from cupy_backends.cuda.libs import cublas\ncublas.gemmEx(1, 2, 3)", "lacks the arguments"),
    ("self._nccl.allReduces(1)", "nccl.NcclCommunicator.allReduces"),
    ("self._nccl.allReduce(1, 2, 3, 4, 5)", "lacks the arguments ['stream']"),
    ("self._nccl.bcast(1, 2, 3, 4, 5, 6)", "takes 5 positional arguments, got 6"),
    ("from cupy_backends.cuda.libs import nccl\nnccl.NCCL_INT16", "no cupy_backends.cuda.libs"),
    ("self.native.finished", "no cupy.cuda.Stream.finished or cupy.cuda.Event.finished"),
    ("self.native.wait_event()", "lacks the arguments ['event']"),
    ("import cupy\ncupy.cuda.Device(0).activate()", "no cupy.cuda.Device.activate"),
    ("import cupy\ncupy.get_default_memory_pool().free()", "no cupy.cuda.MemoryPool.free"),
    ("self._pool.free_bytes(1)", "takes 0 positional arguments, got 1"),
    ("def f(x: Array): return x.numpy()", "no cupy.ndarray.numpy"),
    ("def f(x: Array):\n def g(): return x.steps\n return g", "no cupy.ndarray.steps"),
    ("def f(x: Array): return x.astype(int, copied=False)", "no argument 'copied'"),
]
GOOD = [
    "import cupy\ncupy.sum(x, axis=0, keepdims=True)\ncupy.add(x, y, out=z)",
    "import cupy\ncupy.cuda.Stream(non_blocking=True, priority=-1)",
    "import cupy\nr = cupy.cuda.runtime\nr.memcpyAsync(1, 2, 3, r.memcpyDefault, 5)",
    "self.native.record(event)\nself.native.device_id\nself._pool.used_bytes()",
    "from cupy_backends.cuda.libs import cublas\ncublas.CUBLAS_COMPUTE_32F_FAST_TF32",
    "def f(x: Array): return x.astype(int, copy=False).device.id, x.data.ptr, x.flags.c_contiguous",
    "import numpy\nnumpy.no_such_name",
    "def f(x: Array): return [x.steps for x in parts]\ndef g(x): return x.steps",
]


@pytest.mark.parametrize("source, fault", BAD, ids=[fault for _, fault in BAD])
def test_the_checker_sees(source: str, fault: str) -> None:
    assert fault in "\n".join(contract.faults_of(source, "file.py"))


@pytest.mark.parametrize("source", GOOD)
def test_the_checker_allows(source: str) -> None:
    assert not contract.faults_of(source, "file.py")


def test_the_checker_sees_what_rows_lack() -> None:
    from cugrad.backends.cupy.namespace import CupyNamespace

    source = (
        'row("a", "self", "no_such_ufunc")\n'
        'row("b", "self", lambda xp, self: xp.no_such_function(self))\n'
        'row("c", "self", lambda xp, self: xp.sum(self, dims=0))\n'
        'row("d", "self", lambda xp, self: xp.take(self))\n'
        'row("e", "self", lambda xp, self: xp.erf(xp.sum(self, axis=0)))\n'
    )
    faults = contract.faults_of_rows(source, "rows.py", CupyNamespace)
    assert sorted(int(fault.split(":")[1]) for fault in faults) == [1, 2, 3, 4], faults


# Ufuncs that CuPy has no bfloat16 loop for, and why that is right.
NO_BFLOAT16 = {
    "bitwise_and": "integers only",
    "bitwise_or": "integers only",
    "bitwise_xor": "integers only",
    "invert": "integers only",
    "left_shift": "integers only",
    "right_shift": "integers only",
    "gcd": "integers only",
    "lcm": "integers only",
}


def test_elementwise_rows_have_half_precision_loops() -> None:
    """A ufunc without a loop for a dtype fails at its first use on a GPU, and nowhere else."""
    import cupy

    pytest.importorskip("ml_dtypes")
    lacking = []
    for name in sorted(contract.forwards_of([path.read_text() for path in ROW_FILES])):
        function = getattr(cupy, name, None)
        if type(function).__name__ == "ufunc" and name not in NO_BFLOAT16:
            taken = {loop[0] for loop in function.types}
            lacking += [
                f"cupy.{name} has no loop for {kind!r}" for kind in "eE" if kind not in taken
            ]
    assert not lacking, "\n".join(lacking)


def test_cupy_passes_the_argument_of_a_kernel_by_value() -> None:
    """It refuses host arrays of more than one element. The launch itself fails, on no kernel."""
    function = cupy.cuda.function.Function
    launch = partial(function.__new__(function), (1,), (1,), stream=SimpleNamespace(ptr=0))
    with pytest.raises(TypeError, match="Only numpy.ndarrays of size one"):
        launch((np.zeros(40, np.uint8),))
    for argument in (np.frombuffer(bytes(40), by_value(40)), np.zeros(1, [("at", "u8", 5)])):
        with pytest.raises(RuntimeError):  # CUDA's: there is no such kernel, or no driver
            launch((argument,))


def test_new_arrays_are_cupys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made in parts, they are what its class makes."""
    block = np.zeros(4096, np.uint8)
    memory = cupy.cuda.UnownedMemory(block.ctypes.data, block.nbytes, block, 0)
    monkeypatch.setattr(arrays, "alloc", lambda size: cupy.cuda.MemoryPointer(memory, size))
    for dtype in ("float32", "float16", "bool", "int64", ml_dtypes.bfloat16):
        form = arrays.form_of((3, 1, 4), np.dtype(dtype))
        array = arrays.new_array(form)
        assert (array.shape, array.dtype) == ((3, 1, 4), np.dtype(dtype))
        assert array.dtype is np.dtype(dtype) and type(array) is cupy.ndarray
        assert array.strides == np.empty(array.shape, dtype).strides and array._c_contiguous
        assert array.data.ptr == block.ctypes.data + array.nbytes
