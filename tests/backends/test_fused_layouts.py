"""Kernels made of rows read operands however they lie, and write as NumPy's results lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")
ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")

import cugrad as torch  # noqa: E402
from cugrad.backends import get  # noqa: E402
from cugrad.ops.table import TABLE, raw  # noqa: E402
from cugrad.tensor import make  # noqa: E402
from tests.backends import cuda_toolchain as toolchain  # noqa: E402
from tests.support import fake_cuda  # noqa: E402

pytestmark = pytest.mark.host_only

Host = np.ndarray[Any, Any]


def numbers(*shape: int, dtype: Any = "f4") -> Host:
    """Whole numbers, whose products every dtype holds."""
    size = int(np.prod(shape))
    return (np.arange(size) % 13 - 6).reshape(shape).astype(dtype)


# name -> two operands; a device array is made of each `base`, and the view of it is taken there
Pair = tuple[Host, Host, Callable[[Any], Any], Callable[[Any], Any]]
SAME: Callable[[Any], Any] = lambda x: x
LAYOUTS: dict[str, Pair] = {
    **{f"{n} elements": (numbers(n), numbers(n), SAME, SAME)
       for n in (*range(1, 18), 31, 1023, 1024, 1025, 2047, 2048, 2049, 4097)},
    "two dims": (numbers(37, 19), numbers(37, 19), SAME, SAME),
    "no dims": (numbers(1)[0], numbers(1)[0], SAME, SAME),
    "a number on the device": (numbers(5, 7), np.float32(3), SAME, SAME),
    "a row": (numbers(9, 16), numbers(16), SAME, SAME),
    "a row of odd length": (numbers(9, 7), numbers(7), SAME, SAME),
    "a column": (numbers(9, 16), numbers(9, 1), SAME, SAME),
    "a row and a column": (numbers(1, 12), numbers(5, 1), SAME, SAME),
    "channels": (numbers(2, 3, 4, 4), numbers(3, 1, 1), SAME, SAME),
    "the middle": (numbers(4, 1, 8), numbers(4, 5, 8), SAME, SAME),
    "turned both": (numbers(6, 8), numbers(6, 8), lambda x: x.T, lambda x: x.T),
    "turned one": (numbers(6, 8), numbers(8, 6), lambda x: x.T, SAME),
    "stepped": (numbers(12, 10), numbers(6, 5), lambda x: x[::2, ::2], SAME),
    "stepped rows": (numbers(12, 8), numbers(6, 8), lambda x: x[::2], SAME),
    "backwards": (numbers(7, 6), numbers(7, 6), lambda x: x[::-1, ::-1], SAME),
    "a part": (numbers(9, 12), numbers(5, 8), lambda x: x[2:7, 1:9], SAME),
    "a part from a vector on": (numbers(9, 12), numbers(9, 8), lambda x: x[:, 4:], SAME),
    "from an odd address": (numbers(41), numbers(40), lambda x: x[1:], SAME),
    "from an odd address, both": (numbers(41), numbers(41), lambda x: x[1:], lambda x: x[1:]),
    "permuted": (numbers(3, 4, 5), numbers(3, 4, 5), lambda x: x.transpose(2, 0, 1),
                 lambda x: x.transpose(2, 0, 1)),
    "six dims": (numbers(2, 3, 2, 3, 2, 3), numbers(3, 2, 3, 2, 3, 2),
                 lambda x: x.transpose(5, 4, 3, 2, 1, 0), SAME),
    "many rows": (numbers(3000, 5), numbers(5), SAME, SAME),
    "many rows, turned": (numbers(5, 700), numbers(5), lambda x: x.T, SAME),
    "long rows": (numbers(3, 5000), numbers(3, 1), SAME, SAME),
    "many numbers": (numbers(70, 130), numbers(1)[0], SAME, SAME),
    "rows of two dims": (numbers(40, 9, 3, 4), numbers(1, 1, 3, 4), SAME, SAME),
    "rows of one dim": (numbers(9, 3, 40, 4), numbers(9, 3, 1, 1), SAME, SAME),
    "ones": (numbers(1, 5, 1, 3), numbers(5, 1, 3), SAME, SAME),
    "nothing": (numbers(0, 3), numbers(3), SAME, SAME),
}  # fmt: skip
DTYPES = [np.dtype("float32"), np.dtype("float16"), np.dtype(ml_dtypes.bfloat16)]


def placed(base: Any, turn: Callable[[Any], Any], dtype: Any) -> tuple[Any, Host]:
    """An operand on the device, and the same on the host."""
    host = np.asarray(base, dtype)
    return turn(fake_cuda.clothed(host.copy())), turn(host)


def forward(name: str, *operands: Any) -> Any:
    return get("cuda").row_function(TABLE[name])(*operands)


def backward(name: str, g: Any, saved: list[Any], inputs: list[Any]) -> Any:
    op = TABLE[name]
    mask = sum(1 << i for i, f in enumerate(op.formulas) if f is not None)
    key = op, mask
    if key not in GRADIENTS:
        GRADIENTS[key] = get("cuda").gradients_function(op, mask, raw)
    meta = tuple(x.shape for x in inputs), {}, tuple(x.dtype for x in inputs), None, False
    return GRADIENTS[key](g, saved, meta)


GRADIENTS: dict[Any, Any] = {}


def check_products(layout: str, dtype: Any) -> None:
    """A product and its gradients, to the bit, in the order of NumPy's results."""
    first, second, turn, other = LAYOUTS[layout]
    x, hx = placed(first, turn, dtype)
    y, hy = placed(second, other, dtype)
    found, wanted = forward("mul", x, y), np.asarray(hx * hy)
    if not fake_cuda.COLLECTED:
        assert found.dtype == dtype and found.shape == wanted.shape
        np.testing.assert_array_equal(found._host, wanted)
        if wanted.size > 1:  # CuPy's chain had this order, and PyTorch has it
            held = [s for s, n in zip(found.strides, found.shape) if n > 1]
            assert held == [s for s, n in zip(wanted.strides, wanted.shape) if n > 1], layout
    g, hg = placed(numbers(*wanted.shape), SAME, dtype)
    grads = backward("mul", g, [y, x], [x, y])
    if grads is None:
        assert layout == "nothing"
    elif not fake_cuda.COLLECTED:
        for grad, factor, like in zip(grads, (hy, hx), (hx, hy), strict=True):
            whole = hg.astype("f8") * factor.astype("f8")
            if grad.shape != whole.shape:  # summed in float32, and rounded once
                assert grad.shape == like.shape and grad.dtype == dtype
                dims = whole.ndim - like.ndim
                axes = [i for i, n in enumerate((1,) * dims + like.shape) if n == 1]
                whole = whole.sum(tuple(axes), keepdims=True).reshape(like.shape)
            with np.errstate(over="ignore"):
                np.testing.assert_array_equal(grad._host, whole.astype(dtype))


if fake_cuda.REAL is None:

    def test_over_the_fake_cuda() -> None:
        toolchain.host_compiler()
        fake_cuda.passed(__file__, fused=True)

else:
    from cugrad.backends.cupy.fused import launch, reductions
    from cugrad.backends.cupy.fused.layouts import LIMIT, Operand, layout_of
    from cugrad.backends.traced.arrays import Trace

    @pytest.fixture(scope="module", autouse=True)
    def compiled() -> Iterator[None]:
        fake_cuda.CHECKS = True
        with fake_cuda.compiled_together():
            for dtype in DTYPES:
                for layout in LAYOUTS:
                    check_products(layout, dtype)
        yield
        fake_cuda.CHECKS = False

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_operands_are_read_where_they_lie(layout: str) -> None:
        for dtype in DTYPES:
            check_products(layout, dtype)

    def test_few_kernels_serve_all_layouts() -> None:
        forms = {key[2] for key in launch._kernels if key[0] == "mul_forward"}
        assert len(forms) <= 25, forms
        assert all(pack in (1, 2, 4, 8) and not wide for _, pack, _, wide in forms)

    @pytest.mark.parametrize("shape, axis, keepdims", [
        ((4000, 6), 0, False), ((30, 40, 33), (0, 1), True), ((9, 70), (0,), False),
        ((3, 5, 2), (1, 0), False),
    ])  # fmt: skip
    def test_column_sums_are_added_up_in_one_order(shape: Any, axis: Any, keepdims: bool) -> None:
        host = np.random.default_rng(0).standard_normal(shape).astype("f4")
        x = fake_cuda.clothed(host)
        before = len(reductions._kernels)
        first = get("cuda").xp.sum(x, axis=axis, keepdims=keepdims)
        assert len(reductions._kernels) <= before + 1 and "'sum'" in str(reductions._kernels)
        wanted = host.astype("f8").sum(axis, keepdims=keepdims)
        np.testing.assert_allclose(first._host, wanted, rtol=1e-5, atol=1e-4)
        assert first.shape == wanted.shape and first.dtype == host.dtype
        for seed in range(1, 4):  # in whatever order the blocks run
            fake_cuda.SEED = seed
            again = get("cuda").xp.sum(x, axis=axis, keepdims=keepdims)
            np.testing.assert_array_equal(first._host, again._host)
        fake_cuda.SEED = 0

    @pytest.mark.parametrize("shape, axis, keepdims, dtype", [
        ((7, 300), -1, False, "f4"), ((4000, 6), 0, True, "f4"), ((9, 70), None, False, "f4"),
        ((3, 5, 40), (1, 2), True, "f2"), ((2, 9), (1,), False, "f8"),
    ])  # fmt: skip
    def test_a_mean_is_one_kernel(shape: Any, axis: Any, keepdims: bool, dtype: str) -> None:
        host = np.random.default_rng(0).standard_normal(shape).astype(dtype)
        mean = get("cuda").xp.mean(fake_cuda.clothed(host), axis=axis, keepdims=keepdims)
        wanted = host.astype("f8").mean(axis, keepdims=keepdims)
        assert mean.shape == wanted.shape and mean.dtype == host.dtype
        assert any(key[0] == "mean" for key in reductions._kernels)
        tolerance = {"f2": 1e-3, "f4": 1e-5, "f8": 1e-13}[dtype]
        np.testing.assert_allclose(mean._host, wanted, tolerance, tolerance)
        ones = get("cuda").xp.mean(fake_cuda.clothed(np.ones((3, 7), "f4")), axis=axis and -1)
        assert (ones._host == 1).all()

    def test_a_mean_over_dims_among_others_is_cupys() -> None:
        x = fake_cuda.clothed(np.arange(24.0).reshape(2, 3, 4))
        for axis in (1, (0, 2)):
            mean = get("cuda").xp.mean(x, axis=axis)
            np.testing.assert_allclose(mean._host, x._host.mean(axis))

    def test_masks_and_mixed_dtypes() -> None:
        x, hx = placed(numbers(3, 33), SAME, "f4")
        mask, hmask = placed(numbers(33) > 0, SAME, bool)
        found = forward("where", mask, x, x)._host
        np.testing.assert_array_equal(found, hx)
        g, hg = placed(numbers(3, 33), SAME, "f4")
        half = x._host.astype("f2")
        y = fake_cuda.clothed(half)
        meta = (x.shape, y.shape), {}, (np.dtype("f4"), np.dtype("f2")), np.dtype("f4"), False
        grads = get("cuda").gradients_function(TABLE["mul"], 3, raw)(g, [y, x], meta)
        assert [a.dtype.name for a in grads] == ["float32", "float16"]
        np.testing.assert_array_equal(grads[0]._host, hg * half)
        np.testing.assert_array_equal(grads[1]._host, (hg * hx).astype("f2"))

    @pytest.mark.parametrize("shape, strides", [
        ((2**31 + 9,), [(2,), (2,)]), ((2**16 + 1, 2**15 + 8), [(2, 0), (2 * (2**15 + 8), 2)]),
        ((2**15, 2**16 + 4), [(0, 2), (2 * (2**16 + 4), 2)]),
    ])  # fmt: skip
    def test_more_elements_than_32_bits_count(shape: Any, strides: Any) -> None:
        """The last block alone runs; only where it reads and writes there is memory."""
        operands = [Operand(2, shape, s) for s in strides]
        layout = layout_of(shape, operands)
        assert layout is not None and layout.wide and layout.pack > 1
        trace = Trace()
        x = trace.input(0, np.dtype("f2"))
        graph = launch.graph_of("doubled", [x + x], ["float16"], False)
        plan = launch.KernelPlan(graph, operands, [launch.New(shape, np.dtype("f2"), None)], layout)
        block, per = plan.grid[0] - 1, launch.THREADS * layout.pack
        memory, out = numbers(4 * per, dtype="f2"), np.zeros(4 * per, "f2")
        first = block * per  # the number of the block's first element
        begins = [offset(layout, first, own) // 8 * 8 for own in layout.strides]
        pointers = [a.ctypes.data - 2 * b for a, b in zip((memory, out), begins)]
        packed = np.frombuffer(plan.told.head(*pointers) + plan.told.tail, np.uint8)
        fake_cuda.Program(plan.kernel.raw._code).kernel("doubled")(
            plan.grid, (launch.THREADS,), [fake_cuda.bare_argument(packed)], arrays=(memory, out),
            only=range(block, block + 1),
        )  # fmt: skip
        written, start = layout.size - first, first - begins[1]
        assert 0 < written <= per
        assert not out[:start].any() and not out[start + written :].any()
        for k in range(written):
            source = offset(layout, first + k, layout.strides[0]) - begins[0]
            assert out[start + k] == 2 * memory[source]

    def test_arrays_of_a_vmap_have_no_kernel() -> None:
        x, w = placed(numbers(3, 4), SAME, "f4")[0], placed(numbers(4), SAME, "f4")[0]
        with torch.device("cuda"):
            whole = torch.vmap(torch.func.grad(lambda a, b: (a * b).tanh().sum()), (0, None))
            found = whole(make(x), make(w))
            wanted = torch.func.grad(lambda a: (a * make(w)).tanh().sum())(make(x))
        np.testing.assert_allclose(found.cpu().numpy(), wanted.cpu().numpy(), rtol=1e-6)
        assert backward("mul", x, [w, SimpleNamespace(dtype=x.dtype)], [x, w]) is None

    def test_what_counts_as_many() -> None:
        def wide(n: int) -> bool:
            layout = layout_of((n,), [Operand(4, (n,), (4,))] * 2)
            assert layout is not None
            return layout.wide

        assert not wide(LIMIT - 1) and wide(LIMIT) and LIMIT < 2**31

    def offset(layout: Any, number: int, strides: Any) -> int:
        """Where an operand has the element of a number, counted in the order of the dims."""
        place = 0
        for n, step in zip(reversed(layout.shape), reversed(strides)):
            place += number % n * step
            number //= n
        return place
