"""Runs the CuPy backend's own logic where there is no GPU, with NumPy standing in for CuPy.

It shows that arguments, shapes and arithmetic are right; CuPy's side of the bargain is checked by
name in test_cupy_contract.py.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cugrad.backends.cupy.backend as backend_module
from cugrad.backends.cupy import (
    gemm as cupy_gemm,
)
from cugrad.backends.cupy import (
    memory as cupy_memory,
)
from cugrad.backends.cupy import (
    namespace as cupy_namespace,
)
from cugrad.backends.cupy import (
    random as cupy_random,
)
from cugrad.backends.cupy.kernels import philox
from tests.backends import cuda_toolchain as toolchain
from tests.backends.test_gemm_plan import CASES
from tests.support import fake_cuda
from tests.support.cuda_on_cpu import Program

pytestmark = pytest.mark.host_only

Array = np.ndarray[Any, Any]


class Add:
    """cupy.add, whose `at` has the dtypes that it has in every CuPy."""

    def __call__(self, x: Any, y: Any) -> Any:
        return np.add(x, y)

    def at(self, a: Array, indices: Any, b: Any) -> None:
        assert a.dtype.name in fake_cuda.ATOMIC, f"cupy.add.at has no {a.dtype}"
        np.add.at(a, indices, b)


class NumpyAsCupy:
    """NumPy under CuPy's name."""

    add = Add()
    lib = SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=np.lib.stride_tricks.as_strided))

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


@pytest.fixture
def xp(monkeypatch: pytest.MonkeyPatch) -> cupy_namespace.CupyNamespace:
    monkeypatch.setattr(cupy_namespace, "cupy", NumpyAsCupy())
    monkeypatch.setattr(cupy_namespace, "as_strided", np.lib.stride_tricks.as_strided)
    return cupy_namespace.CupyNamespace()


def half_dtypes() -> list[Any]:
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        return [np.float16]
    return [np.float16, bfloat16]


DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64", "complex64",
          "complex128"]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", [[0, 2, 0], ([0, 1, 0], [2, 2, 2])], ids=["rows", "elements"])
def test_index_add_adds_duplicates(
    xp: cupy_namespace.CupyNamespace, dtype: str, index: Any
) -> None:
    index = tuple(map(np.array, index)) if isinstance(index, tuple) else np.array(index)
    got = np.arange(12).reshape(4, 3).astype(dtype)
    want = got.copy()
    values = (np.arange(want[index].size).reshape(want[index].shape) % 5).astype(dtype)
    xp.index_add(got, index, values)
    np.add.at(want, index, values)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32", "float16"])
@pytest.mark.parametrize("how", ["add", "multiply", "maximum", "minimum"])
def test_index_reduce_reduces_duplicates(
    xp: cupy_namespace.CupyNamespace, dtype: str, how: str
) -> None:
    index = np.array([2, 0, 2, 2, 3, 0])
    got = np.arange(1, 13).reshape(4, 3).astype(dtype)
    want, values = got.copy(), (np.arange(18).reshape(6, 3) % 4 + 1).astype(dtype)
    xp.index_reduce(got, index, values, how)
    getattr(np, how).at(want, index, values)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", half_dtypes())
def test_half_precision_accumulates_in_float32(
    xp: cupy_namespace.CupyNamespace, dtype: Any
) -> None:
    """4096 ones: half precision stops counting at 2048 (float16) or 256 (bfloat16)."""
    ones = np.ones(4096, dtype)
    total = np.zeros(1, dtype)
    xp.index_add(total, np.zeros(4096, np.int64), ones)
    sums = [total[0], xp.sum(ones), xp.cumsum(ones)[-1], xp.mean(ones) * 4096]
    assert [float(s) for s in sums] == [4096.0] * 4
    assert all(s.dtype == dtype for s in sums[:3])
    assert xp.sum(ones, dtype=np.float32).dtype == np.float32
    assert float(xp.prod(np.full(3, 2, dtype))) == 8


@pytest.mark.parametrize("dtype", half_dtypes())
def test_half_precision_sorts(xp: cupy_namespace.CupyNamespace, dtype: Any) -> None:
    x = np.array([3, -1, 2], dtype)
    np.testing.assert_array_equal(xp.sort(x).astype(np.float32), [-1, 2, 3])
    np.testing.assert_array_equal(xp.argsort(x), [1, 2, 0])


@pytest.mark.filterwarnings("ignore:invalid value encountered")  # NaN > 0 in bfloat16
@pytest.mark.parametrize("dtype", half_dtypes())
def test_half_precision_is_chosen_and_clipped(xp: cupy_namespace.CupyNamespace, dtype: Any) -> None:
    x = np.array([[-2, -1, np.nan], [0, 1, np.inf]], dtype)
    for other in (0, 0.5, float("-inf"), x[::-1].copy()):
        for got, want in (
            (xp.where(x > 0, x, other), np.where(x > 0, x, np.asarray(other, dtype))),
            (xp.where(x > 0, other, x), np.where(x > 0, np.asarray(other, dtype), x)),
        ):
            assert got.dtype == dtype
            np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))
    for low, high in ((-1, 0.5), (None, 0), (0, None)):
        got = xp.clip(x, low, high)
        assert got.dtype == dtype
        np.testing.assert_array_equal(
            got.astype(np.float32), np.clip(x.astype(np.float32), low, high)
        )
    assert xp.where(x > 0, x, np.zeros(3, np.float32)).dtype == np.float32
    assert len(xp.where(x > 0)) == 2


@pytest.mark.parametrize(
    "window, axis", [(2, 0), ((2, 3), (1, 2)), ((1, 2, 3), None), ((2, 2), (-1, -2))]
)
def test_sliding_windows_are_numpys(
    xp: cupy_namespace.CupyNamespace, window: Any, axis: Any
) -> None:
    x = np.arange(2 * 4 * 5).reshape(2, 4, 5)[:, ::-1]
    np.testing.assert_array_equal(
        xp.sliding_window_view(x, window, axis),
        np.lib.stride_tricks.sliding_window_view(x, window, axis),
    )
    with pytest.raises(ValueError, match="longer"):
        xp.sliding_window_view(x, 6, 2)


# The matrix product: every call to cuBLAS, run as BLAS would


class Blas:
    """cuBLAS's two calls in column-major NumPy; pointers are looked up among the arrays made."""

    CUBLAS_OP_N, CUBLAS_OP_T = 0, 1
    CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_32F_FAST_TF32 = 68, 70, 77
    CUBLAS_GEMM_DEFAULT = -1

    def __init__(self) -> None:
        self.calls: list[str] = []

    def gemmEx(self, *args: Any) -> None:
        handle, ta, tb, m, n, k, alpha, A, At, lda, B, Bt, ldb, beta, C, Ct, ldc, how, algo = args
        self.calls.append("gemmEx")
        self._run(ta, tb, m, n, k, alpha, A, At, lda, 0, B, ldb, 0, beta, C, ldc, 0, 1, how)

    def gemmStridedBatchedEx(self, *args: Any) -> None:
        (handle, ta, tb, m, n, k, alpha, A, At, lda, sa, B, Bt, ldb, sb, beta, C, Ct, ldc, sc,
         batch, how, algo) = args  # fmt: skip
        self.calls.append("gemmStridedBatchedEx")
        self._run(ta, tb, m, n, k, alpha, A, At, lda, sa, B, ldb, sb, beta, C, ldc, sc, batch, how)

    def _run(
        self, ta: int, tb: int, m: int, n: int, k: int, alpha: int, A: int, kind: int, lda: int,
        sa: int, B: int, ldb: int, sb: int, beta: int, C: int, ldc: int, sc: int, batch: int,
        how: int,
    ) -> None:  # fmt: skip
        dtype = {0: np.float32, 1: np.float64, 2: np.float16}[kind]
        scalar = np.float64 if how == self.CUBLAS_COMPUTE_64F else np.float32
        assert (how == self.CUBLAS_COMPUTE_64F) == (dtype == np.float64)
        assert at(alpha, scalar, 0) == 1 and at(beta, scalar, 0) == 0
        for i in range(batch):
            for row, column in itertools.product(range(m), range(n)):
                total = scalar(0)
                for j in range(k):
                    a = at(A, dtype, i * sa + _index(ta, row, j, lda))
                    b = at(B, dtype, i * sb + _index(tb, j, column, ldb))
                    total += scalar(a) * scalar(b)
                put(C, dtype, i * sc + row + column * ldc, total)


def _index(transposed: int, row: int, column: int, ld: int) -> int:
    return column + row * ld if transposed else row + column * ld


def at(pointer: int, dtype: Any, offset: int) -> Any:
    size = np.dtype(dtype).itemsize
    return np.frombuffer(ctypes.string_at(pointer + offset * size, size), dtype)[0]


def put(pointer: int, dtype: Any, offset: int, value: Any) -> None:
    size = np.dtype(dtype).itemsize
    ctypes.memmove(pointer + offset * size, np.array(value, dtype).tobytes(), size)


class DeviceArray(np.ndarray[Any, Any]):
    """A NumPy array with CuPy's `.data.ptr`."""

    @property
    def _c_contiguous(self) -> bool:
        return self.flags.c_contiguous

    @property
    def data(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(ptr=self.ctypes.data)


@pytest.fixture
def blas(monkeypatch: pytest.MonkeyPatch) -> Blas:
    class Cupy(NumpyAsCupy):
        runtime = SimpleNamespace(CUDA_R_32F=0, CUDA_R_64F=1, CUDA_R_16F=2, CUDA_R_16BF=14)
        cuda = SimpleNamespace(runtime=runtime, get_cublas_handle=lambda: 1)
        empty = staticmethod(lambda shape, dtype: np.full(shape, 77, dtype).view(DeviceArray))
        ndarray = empty
        ascontiguousarray = staticmethod(lambda x: np.ascontiguousarray(x).view(DeviceArray))

    found = Blas()
    monkeypatch.setattr(cupy_gemm, "cupy", Cupy())
    monkeypatch.setattr(cupy_gemm, "cuda", Cupy.cuda)
    monkeypatch.setattr(cupy_gemm, "new_array", lambda form: Cupy.empty(form.shape, form.kind))
    monkeypatch.setattr(cupy_gemm, "_plans", {})  # which keep the functions of cuBLAS
    import cupy_backends.cuda.libs as libs

    monkeypatch.setitem(vars(libs), "cublas", found)
    return found


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name, a, b, copies", CASES, ids=[case[0] for case in CASES])
def test_matmul_calls_cublas_for_numpys_matmul(
    blas: Blas, name: str, a: Array, b: Array, copies: int, dtype: Any
) -> None:
    if dtype != np.float64:  # a copy in the same layout
        a, b = _astype(a, dtype), _astype(b, dtype)
    got = cupy_gemm.matmul(a.view(DeviceArray), b.view(DeviceArray))
    np.testing.assert_array_equal(got, a @ b)
    assert got.dtype == dtype and len(blas.calls) == 1
    if a.ndim == 2 and b.ndim == 2 or name.startswith("Linear on (B"):
        assert blas.calls == ["gemmEx"]


def _astype(x: Array, dtype: Any) -> Array:
    return x.astype(dtype, order="K")


SHAPES = [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((3,), (4, 3, 2)), ((4, 2, 3), (3,)),
    ((2, 0), (0, 3)), ((0, 2), (2, 3)),
]  # fmt: skip


@pytest.mark.parametrize("a, b", SHAPES)
def test_vectors_and_empty_matrices(blas: Blas, a: Any, b: Any) -> None:
    x = np.arange(np.prod(a), dtype=np.float32).reshape(a).view(DeviceArray)
    y = np.arange(np.prod(b), dtype=np.float32).reshape(b).view(DeviceArray)
    got = cupy_gemm.matmul(x, y)
    want = np.asarray(x) @ np.asarray(y)
    assert got.shape == np.shape(want)
    np.testing.assert_array_equal(got, want)


def test_shapes_that_do_not_fit_are_refused(blas: Blas) -> None:
    x = np.zeros((3, 4), np.float32).view(DeviceArray)
    with pytest.raises(ValueError, match=r"got \(3, 4\) and \(3, 4\), want x.shape\[-1\]"):
        cupy_gemm.matmul(x, x)
    with pytest.raises(ValueError, match="1-D or more"):
        cupy_gemm.matmul(x[:1, :1].reshape(()), x)


# Random numbers: the Python side's arguments are those that the kernels take


PHILOX = Program(philox.SOURCE)


@pytest.fixture
def rng(monkeypatch: pytest.MonkeyPatch) -> Iterator[cupy_random.CudaRng]:
    """A CudaRng whose launches run on the host, each argument checked against the kernel's."""
    toolchain.host_compiler()

    def kernel(name: str) -> Any:
        def launch(grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...]) -> None:
            assert 1 <= grid[0] <= cupy_random.MAX_BLOCKS
            PHILOX.kernel(name)(grid, block, args)

        return launch

    monkeypatch.setattr(cupy_random, "_kernel", kernel)
    monkeypatch.setattr(cupy_random, "cupy", NumpyAsCupy())
    yield cupy_random.CudaRng(123)


def draws(rng: cupy_random.CudaRng) -> list[Array]:
    f4, f8, f2 = np.dtype("float32"), np.dtype("float64"), np.dtype("float16")
    return [
        rng.uniform((3, 5), f4), rng.uniform((7,), f8), rng.uniform((5,), f2),
        rng.normal((3, 5), f4), rng.normal((7,), f8), rng.normal((5,), f2),
        rng.integers(-4, 9, (11,), np.dtype("int64")), rng.integers(0, 3, (4,), np.dtype("uint8")),
        rng.integers(-(2**63), 2**63, (4,), np.dtype("int64")),
        rng.permutation(17, np.dtype("int64")), rng.uniform((0,), f4), rng.normal((), f4),
        rng.bits(0.3, (3, 9)), rng.bits(0.3, ()),
    ]  # fmt: skip


def test_a_seed_gives_the_same_numbers(rng: cupy_random.CudaRng) -> None:
    first = draws(rng)
    again = draws(cupy_random.CudaRng(123))
    other = draws(cupy_random.CudaRng(124))
    for x, y in zip(first, again):
        np.testing.assert_array_equal(x, y)
    assert not np.array_equal(first[0], other[0])
    assert sorted(first[9]) == list(range(17)) and list(first[9]) != list(range(17))
    assert first[6].min() >= -4 and first[6].max() < 9
    assert [x.dtype.name for x in first[:3]] == ["float32", "float64", "float16"]
    assert first[7].dtype == np.uint8 and first[11].shape == ()


def test_no_number_is_drawn_twice(rng: cupy_random.CudaRng) -> None:
    pieces = [rng.uniform((n,), np.dtype("float64")) for n in (1, 2, 3, 5, 8, 13)]
    drawn = np.concatenate(pieces)
    assert len(np.unique(drawn)) == drawn.size


def test_a_state_can_be_read_and_set(rng: cupy_random.CudaRng) -> None:
    draws(rng)
    state = rng.get_state()
    assert state.dtype == np.uint8 and state.shape == (16,)
    wanted = draws(rng)
    other = cupy_random.CudaRng(-5)
    other.set_state(state)
    assert other.seed == 123
    for x, y in zip(draws(other), wanted):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("size", [0, 8, 15, 17, 112])
def test_a_state_of_another_size_is_refused(rng: cupy_random.CudaRng, size: int) -> None:
    with pytest.raises(RuntimeError, match=f"got {size} bytes, want 16"):
        rng.set_state(np.zeros(size, np.uint8))


@pytest.mark.parametrize("low, high", [(3, 3), (4, 3), (0, 2**63 + 1), (-(2**63) - 1, 0)])
def test_impossible_ranges_are_refused(rng: cupy_random.CudaRng, low: int, high: int) -> None:
    with pytest.raises(ValueError, match="integers: got low="):
        rng.integers(low, high, (2,), np.dtype("int64"))


# Copies, peaks and pinned memory


class Copies:
    """cudaMemcpyAsync, for the kinds it is asked for."""

    memcpyHostToHost, memcpyHostToDevice, memcpyDeviceToHost, memcpyDeviceToDevice = range(4)

    def __init__(self) -> None:
        self.kinds: list[int] = []

    def memcpyAsync(self, dst: int, src: int, size: int, kind: int, stream: int) -> None:
        self.kinds.append(kind)
        assert stream == 42
        ctypes.memmove(dst, src, size)


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Copies:
    found = Copies()
    fake = SimpleNamespace(ndarray=DeviceArray, cuda=SimpleNamespace(runtime=found))
    monkeypatch.setattr(backend_module, "cupy", fake)
    monkeypatch.setattr(cupy_memory, "cupy", fake)
    return found


def copy_async(dst: Array, src: Array) -> None:
    backend = object.__new__(backend_module.CupyBackend)
    backend.copy_async(dst, src, SimpleNamespace(ptr=42))


@pytest.mark.parametrize("from_device, to_device, kind", [
    (False, False, 0), (False, True, 1), (True, False, 2), (True, True, 3),
])  # fmt: skip
def test_a_copy_says_its_direction(
    copies: Copies, from_device: bool, to_device: bool, kind: int
) -> None:
    src, dst = np.arange(6.0).reshape(2, 3), np.zeros((2, 3))
    copy_async(
        dst.view(DeviceArray) if to_device else dst, src.view(DeviceArray) if from_device else src
    )
    np.testing.assert_array_equal(dst, src)
    assert copies.kinds == [kind]


def test_copies_that_would_scramble_are_refused(copies: Copies) -> None:
    x = np.arange(6.0).reshape(2, 3)
    with pytest.raises(ValueError, match="equal numbers of bytes"):
        copy_async(np.zeros((2, 3), np.float32), x)
    with pytest.raises(ValueError, match="equal numbers of bytes"):
        copy_async(np.zeros((2, 2)), x)
    with pytest.raises(ValueError, match="contiguous in the same order"):
        copy_async(np.zeros((3, 2)).T, x)
    with pytest.raises(ValueError, match="contiguous in the same order"):
        copy_async(np.zeros((2, 6))[:, ::2], x)
    copy_async(np.zeros((3, 2)).T, np.zeros((3, 2)).T)
    copy_async(np.zeros((0, 2)), np.zeros((0, 2)))
    slab = np.zeros(48, np.uint8)
    copy_async(slab, x)
    np.testing.assert_array_equal(slab.view(np.float64), x.ravel())
    copy_async(slab, x.T)  # the slab keeps memory order, and the caller the strides
    assert copies.kinds == [0, 0, 0]


def test_the_peak_is_the_most_in_use_since_the_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"used": 0, "device": 0, "allocator": None}

    pools = SimpleNamespace(
        bytes_allocated=lambda: int(state["used"] or 0), bytes_reserved=lambda device: 1000
    )

    def allocate(size: int) -> str:
        state["used"] = int(state["used"] or 0) + size
        return "memory"

    state["allocator"] = allocate
    fake_cuda = SimpleNamespace(
        runtime=SimpleNamespace(getDevice=lambda: state["device"]),
        get_allocator=lambda: state["allocator"],
        set_allocator=lambda function: state.update(allocator=function),
    )
    monkeypatch.setattr(cupy_memory, "cupy", SimpleNamespace(cuda=fake_cuda))
    monkeypatch.setattr(cupy_memory, "pools", pools)
    meter = cupy_memory.PeakMeter()
    assert state["allocator"] is allocate and meter.peak() == 1000  # nothing is watched yet
    meter.reset()
    watched: Any = state["allocator"]
    assert watched(100) == "memory"
    state["used"] = 30
    watched(20)
    assert meter.peak() == 100
    meter.reset()
    assert state["allocator"] is watched  # installed once
    watched(5)
    assert meter.peak() == 55
    state["device"] = 1
    assert meter.peak() == 1000  # another device, never reset
