"""Elementwise functions on CUDA, of arrays that lie in one order other than that of their dims."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

from tests.support import fake_cuda

pytestmark = [pytest.mark.host_only, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

if fake_cuda.REAL is None:

    @pytest.mark.parametrize("fused", [False, True])
    def test_over_the_fake_cuda(fused: bool) -> None:
        fake_cuda.passed(__file__, fused=fused)

else:
    import cupy

    import cugrad
    from cugrad.backends import get
    from cugrad.backends.cupy.launches.order import copyto, in_memory_order
    from cugrad.backends.wanted import wanted
    from cugrad.ops.table import ELEMENTWISE, TABLE

    LAST, SHAPE = (0, 3, 1, 2), (2, 5, 4, 3)
    PARAMS: dict[str, dict[str, Any]] = {
        "to_dtype": {"dtype": np.dtype("float64")}, "masked_fill": {"value": 1},
        "polygamma": {"n": 1}, "threshold": {"threshold": 0.1, "value": 2}, "clamp": {"min": 1},
    }  # fmt: skip
    ROWS = [op for op in TABLE.values() if not op.variadic and (
        op.kind == ELEMENTWISE or isinstance(getattr(np, op.ufunc or "", None), np.ufunc)
        and getattr(np, op.ufunc).signature is None)]  # fmt: skip

    def host(dtype: str, name: str) -> np.ndarray[Any, Any]:
        values = np.arange(120).reshape(SHAPE) % 5 + 1
        return values.astype("?" if name in ("condition", "mask") else dtype).transpose(LAST)

    def on_device(array: np.ndarray[Any, Any], axes: Any = LAST) -> Any:
        back = np.argsort(axes)
        return cupy.asarray(array.transpose(back), blocking=True).transpose(axes)

    # Of float64 most rows are kernels: tests/backends/test_fused_rows.py.
    DTYPES = ["int32", "bool", "complex64"] + ["float64"] * (not wanted.fused)

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_results_lie_as_those_of_numpy(dtype: str) -> None:
        """Most do as operands do; those of CuPy's functions in the order of their dims."""
        with fake_cuda.compiled_together():  # where they lie is known before they are computed
            compare_layouts(dtype)
        compare_layouts(dtype)

    def compare_layouts(dtype: str) -> None:
        compared = []
        for op in ROWS:
            arrays = [host(dtype, name) for name in op.inputs]
            names = [p for p in op.params if p not in op.defaults]
            if set(names) - set(PARAMS.get(op.name, {})):
                continue
            params = PARAMS.get(op.name, {})
            with suppress(TypeError, NotImplementedError):
                want = get("cpu").run_row(op, arrays, params)
                y = get("cuda").run_row(op, [on_device(x) for x in arrays], params)
                assert y.shape == want.shape, op.name
                assert np.array_equal(*[np.array(x.strides) // x.itemsize for x in (y, want)]), op
                compared.append(want.flags.c_contiguous)
        assert compared.count(False) > 25

    @pytest.mark.parametrize("name, count", [("native_batch_norm", 2), ("batch_norm_inference", 4)])
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_channels_that_lie_last_stay_so(name: str, count: int, dtype: str) -> None:
        """Whose numbers are `count` operands."""
        x, each = host(dtype, "input"), np.linspace(0.5, 1.5, SHAPE[3], dtype=dtype)
        want = get("cpu").run_row(TABLE[name], [x, *[each] * count], {"eps": 1e-5})
        numbers = [cupy.asarray(each) for _ in range(count)]
        got = get("cuda").run_row(TABLE[name], [on_device(x), *numbers], {"eps": 1e-5})
        want, got = (r[0] if type(r) is tuple else r for r in (want, got))
        assert got.strides == want.strides == x.strides
        assert np.allclose(got.get(), want, rtol=1e-4, atol=1e-5)

    def test_functions_are_told_of_memory_in_order() -> None:
        told: list[Any] = []

        def function(*arrays: Any) -> Any:
            told.extend(arrays)
            return cupy.add(*arrays)

        run = in_memory_order(function)
        a, b = on_device(host("f4", "a")), on_device(host("f4", "b"))
        result = run(a, b)
        assert result.strides == a.strides and result.shape == a.shape
        np.testing.assert_array_equal(result.get(), (host("f4", "a") * 2))
        assert len(told) == 2 and all(x.flags.c_contiguous for x in told)
        told.clear()
        for row in (cupy.ones((3, 1, 1), "f4"), cupy.ones((1, 3, 1, 1), "f4"), cupy.ones(4, "f4")):
            assert run(row, a).strides == a.strides
        assert all(x.flags.c_contiguous or 1 in x.shape for x in told)
        told.clear()
        row = cupy.ones((4, 3), "f4")[:, 2]  # is repeated, and says nothing of the order
        assert not row.flags.c_contiguous
        for pair in ((row, a), (a, row), (a[:1], b), (a, b[:, :1])):
            assert run(*pair).strides == a.strides
            np.testing.assert_array_equal(run(*pair).get(), pair[0].get() + pair[1].get())
        told.clear()
        mixed = cupy.ascontiguousarray(b)
        repeated = cupy.broadcast_to(mixed[:, :1], mixed.shape)
        pairs = (a, mixed), (mixed, mixed), (repeated, repeated)
        for pair in pairs:
            want = pair[0].get() + pair[1].get()
            np.testing.assert_array_equal(run(*pair).get(), want)
        assert [x.strides for x in told] == [x.strides for pair in pairs for x in pair]
        for part in ((slice(None), slice(None, None, 2)), (..., slice(1, 3))):
            x, y = a[part], b[part]  # with gaps
            want = host("f4", "a")[part] + host("f4", "b")[part]
            result = run(x, y)
            np.testing.assert_array_equal(result.get(), want)
            assert result.strides == want.strides

    def test_copies_are_told_of_memory_in_order() -> None:
        a, told = on_device(host("f4", "a")), []
        real = cupy.copyto

        def watched(dst: Any, src: Any, **more: Any) -> None:
            told.append(dst.flags.c_contiguous)
            real(dst, src, **more)

        to = cupy.empty_like(a)
        with patch("cugrad.backends.cupy.launches.order._copyto", in_memory_order(watched)):
            copyto(to, a)
            copyto(to, 3, casting="unsafe")
        assert told == [True, True]
        x = cugrad.tensor(host("f4", "a"), device="cuda").to(memory_format=cugrad.channels_last)
        for copy in (x.clone(), x.to(cugrad.float64), x.contiguous(), x.mT.clone()):
            assert copy.float().tolist() == (x if copy.shape == x.shape else x.mT).tolist()
        assert x.clone().stride() == x.stride() and x.mT.clone().stride() == x.mT.stride()
        assert x.contiguous().is_contiguous()

    def test_in_place_no_function_of_cupy_is_asked() -> None:
        """A large array of channels that lie last is changed where it lies, by the row's kernel."""
        x = cugrad.ones(2, 8, 32, 32, device="cuda").to(memory_format=cugrad.channels_last)
        y, (address, strides) = x * 2, (x._array.data.ptr, x._array.strides)
        if wanted.fused:
            with patch.object(cupy, "maximum", None), patch.object(cupy, "add", None):
                x.relu_().add_(y)
        x.relu_().add_(y)
        x[:, ::2].mul_(2)
        assert (x._array.data.ptr, x._array.strides) == (address, strides)
        ones = 5 if wanted.fused else 3
        assert x[0, :2, 0, 0].tolist() == [2 * ones, ones]

    def test_gradients_that_meet_lie_as_they_did() -> None:
        seen = []
        for last in (False, True):
            x = cugrad.ones(2, 8, 5, 6, device="cuda")
            x = (x.to(memory_format=cugrad.channels_last) if last else x).requires_grad_()
            y = x * 2
            y.register_hook(lambda g: seen.append(g.stride()))
            (y * 3 + y.sin() + y.cos()).backward(x.detach())
            x.grad = None
            for _ in range(2):
                (x * 2 + x).backward(x.detach())
            assert x.grad.stride() == x.stride()
            assert seen[-1] == x.stride() or not wanted.fused  # else by CuPy's functions
            assert x.grad.unique().tolist() == [6]

    def test_sums_of_other_kinds() -> None:
        """Of complex numbers and of two dtypes, of no elements, of what is expanded."""
        backend = get("cuda")
        c = on_device(host("c8", "a"))
        assert backend.plus(c, c).strides == c.strides
        assert (backend.add_to(c, c) is c) and (c.get() == 2 * host("c8", "a")).all()
        f = on_device(host("f4", "a"))
        assert backend.plus(f, on_device(host("f8", "a"))).dtype == "f8"
        empty = cupy.empty((0, 3), "f4")
        assert backend.plus(empty, empty).shape == (0, 3)
        row = cupy.ones((3,), "f4")
        assert backend.plus(cupy.broadcast_to(row, (2, 3)), row).get().tolist() == [[2.0] * 3] * 2

    def test_sums_of_sparse_gradients_and_dense_ones_that_lie_otherwise() -> None:
        """What is no array of CuPy's keeps its dims, and so do those beside it."""
        table = cugrad.ones(2, 3, device="cuda", requires_grad=True)
        index = cugrad.tensor([1, 1], device="cuda")
        rows = cugrad.nn.functional.embedding(index, table, sparse=True)
        turned = table.t() * cugrad.arange(6.0, device="cuda").reshape(3, 2)
        (rows.sum() + turned.sum()).backward()
        assert table.grad.tolist() == [[0, 2, 4], [3, 5, 7]]

    def test_results_within_a_vmap_lie_as_operands_do() -> None:
        x = cugrad.arange(120.0, device="cuda").reshape(SHAPE).permute(*LAST)
        like = cugrad.arange(120.0).reshape(SHAPE).permute(*LAST)
        vmap = cugrad.func.vmap
        for within in (
            lambda x: x * 2, lambda x: x * x.new_ones(5, 1), vmap(lambda x: x > 3),
            vmap(lambda x: x.exp() + x),
        ):  # fmt: skip
            got, want = (vmap(within)(a) for a in (x, like))
            assert got.stride() == want.stride() == x.stride()
            cugrad.testing.assert_close(got.cpu(), want)

    @pytest.mark.parametrize("name", ["complex", "polar"])
    def test_complex_numbers_lie_as_their_parts(name: str) -> None:
        parts = host("float32", "self"), host("float32", "other")
        on_host = getattr(cugrad, name)(*[cugrad.from_numpy(x) for x in parts])
        there = getattr(cugrad, name)(*[cugrad.from_numpy(x).to("cuda") for x in parts])
        assert there.stride() == on_host.stride() and not there.is_contiguous()
        assert (there.cpu() - on_host).abs().max() < 1e-5
        assert there.contiguous() is not there
