"""Creation functions: values, dtypes, shapes and refusals of PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cugrad

MADE = [
    "t.tensor(3)", "t.tensor(3.5)", "t.tensor(True)", "t.tensor(2j)", "t.tensor([])",
    "t.tensor([[], []])", "t.tensor([1, 2])", "t.tensor([1, 2.5])", "t.tensor([True, False])",
    "t.tensor([1, 1j])", "t.tensor([[1, 2], [3, 4]], dtype=t.float16)", "t.tensor((1, (2)))",
    "t.tensor([1.7, -1.7], dtype=t.int64)", "t.tensor([0, 3], dtype=t.bool)",
    "t.tensor(np.arange(3))", "t.tensor(np.float64(2))", "t.tensor(np.ones((2, 2), np.float32))",
    "t.tensor([t.tensor(1), t.tensor(2)])", "t.tensor(range(4))", "t.tensor([np.float32(1.5)])",
    "t.tensor([[True, 2], [3.5, 4]])", "t.tensor(-1, dtype=t.uint8)", "t.tensor(2**40)",
    "t.tensor([1e300])",
    "t.zeros(2, 3)", "t.zeros((2, 3))", "t.zeros([2])", "t.zeros(())", "t.zeros(0)", "t.ones(2)",
    "t.ones(2, dtype=t.int32)", "t.full((2,), 7)", "t.full((2,), 7.5)", "t.full((), True)",
    "t.full((2, 1), 3, dtype=t.float64)", "t.full((1,), 1j)", "t.zeros(t.Size([2, 2]))",
    "t.zeros(size=(2, 1))", "t.ones(size=(3,), dtype=t.int64)", "t.arange(t.tensor(3))",
    "t.arange(5)", "t.arange(1, 4)", "t.arange(1, 2.5, 0.5)", "t.arange(5, 0, -2)",
    "t.arange(3, dtype=t.float32)", "t.arange(0)", "t.arange(0, 1, 0.1)", "t.arange(2.5)",
    "t.arange(1, 7, 2, dtype=t.int16)", "t.linspace(0, 1, 5)", "t.linspace(3, -3, 4)",
    "t.linspace(2, 5, 1)", "t.linspace(0, 1, 0)", "t.linspace(0, 10, 5, dtype=t.float64)",
    "t.logspace(0, 2, 3)", "t.logspace(-1, 1, 5, base=2)", "t.eye(3)", "t.eye(2, 3)",
    "t.eye(2, dtype=t.int64)", "t.eye(0)", "t.zeros_like(t.ones(2, 3, dtype=t.int16))",
    "t.ones_like(t.zeros(3), dtype=t.float64)", "t.full_like(t.zeros(2), 3)",
    "t.full_like(t.zeros(2, dtype=t.int64), 3)", "t.empty(2, 3).fill_(1)",
    "t.empty_like(t.zeros(4)).zero_()", "t.scalar_tensor(3)", "t.as_tensor([1.5, 2])",
    "t.as_tensor(np.arange(3), dtype=t.float32)", "t.asarray([1, 2])", "t.from_numpy(np.eye(2))",
    "t.complex(t.tensor([1., 2.]), t.tensor([3., 4.]))", "t.tensor([3]).new_tensor([1.5])",
    "t.tensor([3.]).new_zeros(2)", "t.tensor([3]).new_ones(2, 2)", "t.tensor(3.).new_full((2,), 5)",
    "t.tensor([1., 2.]).new_tensor(4)",
]  # fmt: skip


@pytest.mark.parametrize("code", MADE)
def test_what_is_made_is_pytorchs(code: str) -> None:
    torch = pytest.importorskip("torch")
    with cugrad.device("cpu"):
        got = eval(code, {"t": cugrad, "np": np})
    want = eval(code, {"t": torch, "np": np})
    assert str(got.dtype) == str(want.dtype)
    assert tuple(got.shape) == tuple(want.shape) and got.stride() == want.stride()
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)
    assert not got.requires_grad and got.is_leaf


REFUSED = [
    ("t.tensor([[1, 2], [3]])", ValueError), ("t.tensor('text')", (TypeError, ValueError)),
    ("t.tensor(['a'])", (TypeError, ValueError)), ("t.tensor(None)", (TypeError, RuntimeError)),
    ("t.tensor([None])", (TypeError, RuntimeError)), ("t.tensor({})", (TypeError, RuntimeError)),
    ("t.zeros(-1)", RuntimeError), ("t.zeros(2, -3)", RuntimeError),
    ("t.arange(0, 5, 0)", RuntimeError), ("t.arange(0, 5, -1)", RuntimeError),
    ("t.linspace(0, 1, -1)", RuntimeError), ("t.eye(-1)", RuntimeError),
    ("t.from_numpy([1, 2])", TypeError), ("t.tensor([1], requires_grad=True)", RuntimeError),
    ("t.complex(t.ones(2), t.ones(2, dtype=t.float64))", RuntimeError),
    ("t.tensor([300], dtype=t.uint8)", RuntimeError), ("t.tensor(1j, dtype=t.float32)", TypeError),
    ("t.tensor(-1e10, dtype=t.int32)", RuntimeError), ("t.tensor(2**70)", (TypeError, ValueError)),
    ("t.tensor(2**63)", (RuntimeError, ValueError)),
    ("t.zeros(2, size=(2,))", TypeError), ("t.randint(0, 10, 2)", TypeError),
    ("t.randperm(2.5)", TypeError), ("t.rand(2, generator=3)", TypeError),
    ("t.zeros(2.5)", TypeError), ("t.tensor([1, 2], dtype='float32')", TypeError),
]  # fmt: skip


@pytest.mark.parametrize("code, error", REFUSED)
def test_what_is_refused(lib: Any, code: str, error: Any) -> None:
    with pytest.raises(error):
        eval(code, {"t": lib, "np": np})


def test_tensor_copies_and_as_tensor_shares() -> None:
    for lib in (cugrad, pytest.importorskip("torch")):
        array = np.zeros(3)
        made = [lib.tensor(array), lib.as_tensor(array, device="cpu"), lib.from_numpy(array)]
        array[0] = 5
        assert [t.tolist()[0] for t in made] == [0, 5, 5]
        made[2][1] = 7
        assert array[1] == 7


def test_tensors_in_lists_keep_their_dtype_and_stand_beside_numbers(lib: Any) -> None:
    small, wide = lib.tensor(1, dtype=lib.int8), lib.tensor(2.0, dtype=lib.float64)
    for data, dtype in (
        ([wide], "float64"), ([small], "int8"), ([small, 2], "int64"), ((small, 2.5), "float32"),
        ([[wide, 1], [True, small]], "float64"), ([small, wide], "float64"),
    ):  # fmt: skip
        made = lib.tensor(data)
        assert made.dtype is getattr(lib, dtype)
        assert made.dtype is lib.tensor(data, dtype=made.dtype).dtype
    assert lib.ones(1).new_tensor((small, 0)).tolist() == [1.0, 0.0]


def test_a_tensor_from_a_tensor_is_a_copy_without_history(lib: Any) -> None:
    x = lib.ones(2, requires_grad=True)
    if lib is cugrad:  # PyTorch warns, and asks for clone().detach()
        y = lib.tensor(x)
        assert not y.requires_grad and y.data_ptr() != x.data_ptr()
    assert lib.as_tensor(x) is x


def test_default_dtype(lib: Any) -> None:
    assert lib.get_default_dtype() is lib.float32
    lib.set_default_dtype(lib.float64)
    try:
        assert lib.tensor(1.5).dtype is lib.zeros(2).dtype is lib.float64
        assert lib.tensor(1j).dtype is lib.complex128
        assert (lib.tensor([1, 2]) / 2).dtype is lib.float64
    finally:
        lib.set_default_dtype(lib.float32)
    with pytest.raises(TypeError):
        lib.set_default_dtype(lib.int64)


@pytest.mark.parametrize("name, width", [("gaussian", "std"), ("exponential", "tau")])
def test_a_window_has_any_width_but_none_or_less(name: str, width: str, lib: Any) -> None:
    torch = pytest.importorskip("torch")
    for value in (0.01, 0.5, 1.0, 3):
        both = [getattr(of.signal.windows, name)(7, **{width: value}) for of in (lib, torch)]
        np.testing.assert_allclose(both[0].tolist(), both[1].tolist(), rtol=1e-5, atol=1e-30)
    for value in (0, 0.0, -1):
        with pytest.raises(ValueError, match="must be positive"):
            getattr(lib.signal.windows, name)(7, **{width: value})


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
def test_a_default_type_is_a_dtype_and_a_device() -> None:
    for lib in (cugrad, pytest.importorskip("torch")):
        try:
            lib.set_default_tensor_type("torch.DoubleTensor")
            assert lib.ones(1).dtype is lib.float64 and lib.ones(1).device.type == "cpu"
            for wrong in ("torch.LongTensor", lib.IntTensor, lib.float64):
                with pytest.raises(TypeError, match="only floating-point types"):
                    lib.set_default_tensor_type(wrong)
            lib.set_default_tensor_type(lib.FloatTensor)
            assert lib.ones(1).dtype is lib.float32
        finally:
            lib.set_default_dtype(lib.float32)
            lib.set_default_device(None)


@pytest.mark.filterwarnings("ignore:Creating a tensor from a list")
@pytest.mark.parametrize("data, dtype", [
    ([np.float64(1)], "float64"), ([np.float32(1), 2.0], "float32"),
    ([1.0, np.float64(2)], "float64"),
    ([np.float16(1), 1], "float16"), ([np.int32(3)], "int32"), ([np.int32(3), 2], "int64"),
    ([np.uint8(1), np.int8(1)], "int16"), ([True, np.int16(1)], "int16"),
    ([np.int32(1), np.float32(1)], "float32"), ([np.int32(1), 1.5], "float32"),
    ([[np.float64(1)], [2.0]], "float64"), ([np.ones(2), np.ones(2)], "float64"),
    ([np.ones(2, np.float32), [1.0, 2.0]], "float32"), ([np.complex64(1), 1.0], "complex64"),
    ((np.float32(1), np.float64(2)), "float64"), ([np.bool_(True)], "bool"), ([1.0, 2], "float32"),
])  # fmt: skip
def test_what_is_numpys_in_lists_keeps_its_dtype(lib: Any, data: Any, dtype: str) -> None:
    for function in (lib.tensor, lib.as_tensor):
        assert function(data).dtype == getattr(lib, dtype)
        assert function(data, dtype=lib.float32 if "c" not in dtype else None).numel()
