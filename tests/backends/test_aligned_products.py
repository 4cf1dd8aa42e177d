"""Products by aligned copies: the plan in numbers, and what the device computes by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cugrad.backends.cupy.aligned import plan as planning
from cugrad.backends.cupy.aligned.plan import Detour, LineCopy, detour
from cugrad.backends.cupy.gemm_plan import Gemm, plan
from tests.backends.test_gemm_plan import CASES, Array, column_major, flat, strides_of
from tests.support import fake_cuda

pytestmark = [pytest.mark.host_only, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

ELEMENTS = 8  # of half precision in 16 bytes


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies pay for the smallest product."""
    rates = {dtype: {**rates, 1: 1.0, 2: 1.0} for dtype, rates in planning.RATES.items()}
    for dtype in ("float16", "bfloat16"):
        rates[dtype][4] = 1.0
    for dtype, changed in rates.items():
        monkeypatch.setitem(planning.RATES, dtype, changed)


def copied(copy: LineCopy | None, memory: Array) -> Array:
    """What the kernel writes, by NumPy."""
    if copy is None:
        return memory
    out = np.zeros((copy.matrices, copy.to_lines, copy.to_columns), memory.dtype)
    lines, columns = min(copy.lines, copy.to_lines), min(copy.columns, copy.to_columns)
    for i in range(copy.matrices):
        read = column_major(memory, i * copy.step, copy.columns, copy.lines, copy.pitch).T
        out[i, :lines, :columns] = read[:lines, :columns]
    return out.ravel()


def cublas(gemm: Gemm, a: Array, b: Array) -> Array:
    """The memory of the result, as gemmStridedBatchedEx writes it."""
    m, n, k = gemm.m, gemm.n, gemm.k
    out = []
    for i in range(gemm.batch):
        x_shape = (k, m) if gemm.first_transposed else (m, k)
        y_shape = (n, k) if gemm.second_transposed else (k, n)
        x = column_major(b, i * gemm.first_stride, *x_shape, gemm.first_ld)
        y = column_major(a, i * gemm.second_stride, *y_shape, gemm.second_ld)
        x = x.T if gemm.first_transposed else x
        out.append(((x @ (y.T if gemm.second_transposed else y)).T).ravel())
    return np.concatenate(out)


def is_aligned(gemm: Gemm, elements: int = ELEMENTS) -> bool:
    """What cuBLAS's documentation asks for, in elements."""
    steps = (gemm.first_stride, gemm.second_stride, gemm.m * gemm.n) if gemm.batch > 1 else ()
    dense = (
        gemm.k if gemm.first_transposed else gemm.m,
        gemm.n if gemm.second_transposed else gemm.k,
    )
    sizes = (gemm.m, *dense, gemm.first_ld, gemm.second_ld, *steps)
    return all(size % elements == 0 for size in sizes)


def drawn(rng: Any) -> tuple[Array, Array]:
    """Operands that lie in some way that needs no copy."""
    m, n, k = (int(x) for x in rng.choice([1, 3, 7, 8, 9, 16, 24], 3))
    batch = int(rng.choice([1, 2, 3]))
    operands = []
    for rows, columns in ((m, k), (k, n)):
        extra, first = (int(x) for x in rng.choice([0, 1, 8], 2))
        stack = (1 if rng.random() < 0.3 else batch,) if batch > 1 else ()
        turned = rng.random() < 0.5
        shape = (columns, rows + extra) if turned else (rows, columns + extra)
        x = rng.integers(-4, 5, (*stack, shape[0] + first, shape[1])).astype(np.float64)
        x = x[..., : shape[0], : shape[1] - extra]
        operands.append(x.swapaxes(-1, -2) if turned else x)
    return operands[0], operands[1]


def checked(a: Array, b: Array, places: tuple[int, int, int]) -> Detour | None:
    """The product by its detour is NumPy's, and aligned; what there was, is not."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    gemm = plan(a.shape, strides_of(a), b.shape, strides_of(b), batch)
    if not isinstance(gemm, Gemm):
        return None
    way = detour(gemm, "bfloat16", 2, places)
    if way is None:
        assert is_aligned(gemm) and not any(places)
        return None
    assert is_aligned(way.gemm)
    for copy, place in zip((way.a, way.b, way.out), places, strict=True):
        assert copy is not None or place == 0
    result = cublas(way.gemm, copied(way.a, flat(a)), copied(way.b, flat(b)))
    assert result.size == way.results
    got = copied(way.out, result)
    np.testing.assert_array_equal(got.reshape((a @ b).shape), a @ b)
    return way


@pytest.mark.usefixtures("eager")
def test_a_detour_is_the_product() -> None:
    rng = np.random.default_rng(0)
    ways = [checked(a, b, (0, 0, 0)) for _, a, b, _ in CASES]
    for _ in range(400):
        places = tuple([int(x) for x in rng.choice([0, 0, 0, 2, 8], 3)])
        ways.append(checked(*drawn(rng), places))  # type: ignore[arg-type]
    taken = [way for way in ways if way is not None]
    assert len(taken) > 200 and len(ways) - len(taken) > 5
    for part in ("a", "b", "out"):
        assert {getattr(way, part) is None for way in taken} == {True, False}


WORDS, ROWS, FEATURES = 50257, 8192, 768
GPT2 = [
    Gemm(True, False, WORDS, ROWS, FEATURES, FEATURES, 0, FEATURES, 0, 1),
    Gemm(False, False, FEATURES, ROWS, WORDS, FEATURES, 0, WORDS, 0, 1),
    Gemm(False, True, FEATURES, WORDS, ROWS, FEATURES, 0, WORDS, 0, 1),
]


@pytest.mark.parametrize("gemm", GPT2, ids=["forward", "of the input", "of the weight"])
def test_the_layer_of_gpt2s_words_pays(gemm: Gemm) -> None:
    way = detour(gemm, "bfloat16", 2)
    assert way is not None and is_aligned(way.gemm)
    assert way.temporaries(2) < 2.1 * (WORDS * (ROWS + FEATURES))
    assert detour(gemm, "float64", 8) is None


@pytest.mark.parametrize("m, n, k", [
    (511, 511, 511), (8191, 8191, 9), (1, 8191, 8191), (50257, 1, 768), (50264, 8192, 768),
])  # fmt: skip
def test_what_is_small_thin_or_aligned_stays_as_it_is(m: int, n: int, k: int) -> None:
    assert detour(Gemm(True, False, m, n, k, k, 0, k, 0, 1), "bfloat16", 2) is None


def test_a_product_takes_the_detour_unless_more_bytes_make_it_the_slower_way() -> None:
    assert detour(GPT2[0], "bfloat16", 2, more=2 * ROWS * WORDS * 2) is not None
    assert detour(GPT2[0], "bfloat16", 2, more=12 << 30) is None


def test_few_matrices_are_copied_of_those_that_serve_all() -> None:
    gemm = Gemm(False, False, 4095, 4096, 4096, 4095, 0, 4096, 4096 * 4096, 4)
    way = detour(gemm, "float16", 2)
    assert way is not None and way.a is None and way.b is not None and way.out is not None
    assert (way.b.matrices, way.out.matrices, way.gemm.first_stride) == (1, 4, 0)


# On the device ------------------------------------------------------------------------------------

if fake_cuda.REAL is None:

    def test_over_the_fake_cuda() -> None:
        pytest.importorskip("cupy", reason="CuPy is not installed")
        pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
        fake_cuda.passed(__file__, fused=True)

else:
    import ml_dtypes

    import cugrad
    from cugrad.backends.cupy import gemm as cupy_gemm
    from cugrad.backends.cupy.aligned import products
    from cugrad.backends.cupy.written import products as affine
    from cugrad.backends.wanted import wanted

    @pytest.fixture
    def calls(eager: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
        """The products that cuBLAS is asked for: whether each is aligned."""
        found: list[bool] = []
        called = cupy_gemm._called

        def noting(gemm: Gemm, dtype: Any) -> Any:
            product = called(gemm, dtype)

            def run(*addresses: int) -> None:
                places = all(address % 16 == 0 for address in addresses)
                found.append(places and is_aligned(gemm, 16 // dtype.itemsize))
                product(*addresses)

            return run

        monkeypatch.setattr(cupy_gemm, "_called", noting)
        plans = cupy_gemm._plans, affine._plans, affine._sums
        for kept in plans:
            kept.clear()
        yield found
        for kept in plans:
            kept.clear()

    def on_device(x: Array, dtype: Any = ml_dtypes.bfloat16, away: int = 0) -> Any:
        """Small whole numbers, so sums are exact; from an element of memory on that is `away`."""
        memory = np.zeros(x.size + away + 16, dtype)
        start = (-memory.ctypes.data % 16) // memory.itemsize + away
        host = memory[start : start + x.size].reshape(x.shape)
        host[...] = x
        return fake_cuda.clothed(host)

    def lies_as(x: Array, dtype: Any, away: int) -> Any:
        """The same view of such a memory."""
        root = x
        while isinstance(root.base, np.ndarray):
            root = root.base
        root = root.reshape(-1)
        start = (x.ctypes.data - root.ctypes.data) // x.itemsize
        device = on_device(root, dtype, away)
        steps = tuple([s // x.itemsize * np.dtype(dtype).itemsize for s in x.strides])
        host = np.lib.stride_tricks.as_strided(device._host[start:], x.shape, steps)
        return fake_cuda.clothed(host)

    @pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32])
    def test_products_are_those_of_numpy(
        calls: list[bool], dtype: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:  # fmt: skip
        monkeypatch.setattr(wanted, "tf32", True)
        rng = np.random.default_rng(1)
        for _ in range(60):
            a, b = drawn(rng)
            x, y = (lies_as(operand, dtype, int(rng.choice([0, 0, 1, 8]))) for operand in (a, b))
            got = cupy_gemm.matmul(x, y)
            assert got.flags.c_contiguous and got.dtype == dtype
            np.testing.assert_array_equal(got._host.astype(np.float64), a @ b)
        assert all(calls)

    def test_float32_takes_the_detour_where_it_may_be_rounded(
        calls: list[bool], monkeypatch: pytest.MonkeyPatch
    ) -> None:  # fmt: skip
        x, y = (on_device(np.ones(shape), np.float32) for shape in ((8, 16), (16, 15)))
        for tf32 in (False, True, False):
            monkeypatch.setattr(wanted, "tf32", tf32)
            cupy_gemm.matmul(x, y)
            assert calls.pop() == tf32

    def leaves(dtype: Any = cugrad.bfloat16) -> list[Any]:
        rng = np.random.default_rng(2)
        values = [rng.integers(-2, 3, s) for s in ((2, 3, 8), (9, 8), (9,))]
        return [cugrad.tensor(v.astype("float32"), device="cuda").to(dtype).requires_grad_()
                for v in values]  # fmt: skip

    def test_an_affine_map_and_its_gradients(calls: list[bool]) -> None:
        """Again and again: from the second time on by the launches that were noted."""
        for _ in range(4):
            x, w, b = leaves()
            y = cugrad.nn.functional.linear(x, w, b)
            y.backward(cugrad.ones_like(y))
            wide = [leaf.detach().cpu().float().numpy() for leaf in (x, w, b)]
            ones = np.ones((2, 3, 9), np.float32)
            for got, want in (
                (y, wide[0] @ wide[1].T + wide[2]), (x.grad, ones @ wide[1]),
                (w.grad, ones.reshape(6, 9).T @ wide[0].reshape(6, 8)), (b.grad, ones.sum((0, 1))),
            ):  # fmt: skip
                assert got.is_contiguous() and got.storage_offset() == 0
                assert got.untyped_storage().nbytes() == got.numel() * 2
                np.testing.assert_array_equal(got.detach().cpu().float().numpy(), want)
        assert len(calls) == 12 and all(calls)

    @pytest.mark.parametrize("row", ["linear", "mm"])
    def test_both_gradients_take_one_copy(
        calls: list[bool], row: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:  # fmt: skip
        """Of what they both read; and what it was copied to is given back."""
        sources: list[int] = []

        def noting(copy: Any, dtype: Any, source: int, target: int) -> int:
            sources.append(source)
            return copied_on_device(copy, dtype, source, target)

        copied_on_device = products._copied
        monkeypatch.setattr(products, "_copied", noting)
        for seed in range(3):
            cugrad.manual_seed(seed)
            x, w, _ = leaves()
            x = x.detach().flatten(0, 1).requires_grad_()
            y = cugrad.nn.functional.linear(x, w) if row == "linear" else cugrad.mm(x, w.T)
            g = cugrad.randint(-2, 3, y.shape, device="cuda").to(y.dtype)
            sources.clear()
            grads = cugrad.autograd.grad(y, [x, w], g)
            assert sources.count(g.data_ptr()) == 1 and products.shared.copies is None
            wide = [t.detach().cpu().float() for t in (g, x, w)]
            for got, want in zip(grads, (wide[0] @ wide[2], wide[0].T @ wide[1]), strict=True):
                assert (got.cpu().float() == want).all()

    def test_a_result_in_memory_that_there_is(calls: list[bool]) -> None:
        x, w, _ = (leaf.detach() for leaf in leaves())
        out = cugrad.empty(6, 9, dtype=cugrad.bfloat16, device="cuda")
        cugrad.mm(x.flatten(0, 1), w.T, out=out)
        want = x.cpu().float().flatten(0, 1) @ w.cpu().float().T
        assert (out.cpu().float() == want).all() and all(calls)

    def test_a_graph_has_the_copies(calls: list[bool]) -> None:
        weight = leaves()[1]

        def step(x: Any) -> Any:
            y = cugrad.nn.functional.linear(x, weight)
            return [y.detach(), *cugrad.autograd.grad(y, [x, weight], cugrad.ones_like(y))]

        run = cugrad.cuda.capture_step(step, warmup=1)
        for seed in range(4):
            cugrad.manual_seed(seed)
            x = cugrad.randint(-2, 3, (6, 8), device="cuda").to(cugrad.bfloat16).requires_grad_()
            found = [y.clone() for y in run(x)]
            for got, want in zip(found, step(x), strict=True):
                assert (got == want).all()
        assert calls and all(calls)

    def test_a_full_device_multiplies_as_it_is(
        calls: list[bool], monkeypatch: pytest.MonkeyPatch
    ) -> None:  # fmt: skip
        def full(form: Any) -> Any:
            raise MemoryError

        monkeypatch.setattr(products, "new_array", full)
        x, y = on_device(np.ones((8, 16))), on_device(np.ones((16, 9)))
        np.testing.assert_array_equal(cupy_gemm.matmul(x, y)._host.astype(float), 16)
        assert calls == [False]

    @pytest.mark.parametrize("capability, memory", [("75", 1 << 30), ("90", 1000)])
    def test_old_and_small_devices_multiply_as_it_is(
        calls: list[bool], capability: str, memory: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:  # fmt: skip
        monkeypatch.setattr(products, "_of_device", lambda device: (int(capability), memory))
        x, y = on_device(np.ones((8, 16))), on_device(np.ones((16, 9)))
        np.testing.assert_array_equal(cupy_gemm.matmul(x, y)._host.astype(float), 16)
        assert calls == [False]

    def test_an_epilogue_is_left_where_copies_are_quicker(calls: list[bool]) -> None:
        x, w, b = (leaf.detach()._array for leaf in leaves())
        assert affine._plan(x, w, b).whole is None
        aligned = on_device(np.ones((16, 8))), on_device(np.ones(16))
        assert affine._plan(x, *aligned).whole is not None
