"""What a Tensor is apart from gradients: how it prints, copies, converts, and promotes."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import cugrad

SHOWN = [
    "t.tensor(3)", "t.tensor(3.)", "t.tensor(3.14159)", "t.tensor(True)", "t.tensor(1e10)",
    "t.tensor(1e-10)", "t.tensor(2 - 3j)", "t.tensor(float('nan'))", "t.tensor([])",
    "t.zeros(0, 3)", "t.zeros(0, dtype=t.int64)", "t.zeros(2, 0, dtype=t.float64)",
    "t.tensor([1, 2, 3])", "t.tensor([-1, 200, 30])", "t.tensor([1., 2., 3.])",
    "t.tensor([1.5, 2, 3])", "t.tensor([0.001, 1000.])", "t.tensor([0.00001, 1.])",
    "t.tensor([1e8, 1.5])", "t.tensor([1e9, 1.])", "t.tensor([123456., 1.])", "t.tensor([-0., 0.])",
    "t.tensor([float('inf'), 1.])", "t.tensor([float('nan'), 1.5, -float('inf')])",
    "t.tensor([float('nan'), 2.])", "t.tensor([True, False])", "t.tensor([[1, 2], [3, 4]])",
    "t.tensor([[1.5, -2], [3, 400]])", "t.arange(24).reshape(2, 3, 4)", "t.arange(30.) / 7",
    "t.arange(12.).reshape(2, 1, 2, 3)", "t.arange(2000)", "t.arange(2000.)",
    "t.arange(2000.) * 1.5", "t.ones(50, 50)", "t.ones(3, 400)", "t.zeros(11, 10, 10)",
    "t.arange(1000)", "t.arange(1001)", "t.ones(2, 3, dtype=t.float16)",
    "t.ones(2, dtype=t.float64)", "t.ones(2, dtype=t.int32)", "t.ones(2, dtype=t.uint8)",
    "t.tensor([1 + 2j, -3.5 - 0.25j])", "t.tensor([1 + 0j, 2 - 1j])",
    "t.tensor([[1j, 2], [3.25, 4 - 4j]], dtype=t.complex128)", "t.tensor([1e10 + 1j])",
    "t.tensor([1.5, 2], requires_grad=True)", "t.tensor([1.5, 2], requires_grad=True) * 2",
    "t.ones(3, 7, requires_grad=True).exp()", "t.ones(2, dtype=t.float64, requires_grad=True)",
    "t.ones(12, requires_grad=True) * 2", "t.ones(13, dtype=t.float64, requires_grad=True) * 2",
    "t.ones(2, 2, requires_grad=True).t()", "t.ones(3, requires_grad=True).sum()",
    "t.tensor([1.5, 2]).bfloat16()", "t.tensor([0.1, 0.25], dtype=t.float16)",
    "t.linspace(0, 1, 7)", "t.tensor([1e-5, 2e-5])", "t.tensor([[1e-3, 1e3], [1, 2]])",
    "t.tensor([12345.678, 0.5])", "t.tensor([99999999., 1.])", "t.tensor([1e38, 1.])",
    "t.arange(40).reshape(1, 40)", "t.arange(100.) - 50", "t.ones(1, 1, 1, 1)",
    "t.tensor([2.0000001, 3.])", "t.eye(3).bool()", "t.full((3, 3), -1.5)",
    "t.zeros(2000, dtype=t.bool)", "(t.arange(1500.) * (1 + 1j))", "t.Size([2, 3])", "t.float32",
    "t.zeros(2, 3).shape", "t.device('cpu')",
]  # fmt: skip


@pytest.mark.parametrize("code", SHOWN)
def test_repr_is_pytorchs(code: str) -> None:
    torch = pytest.importorskip("torch")
    with cugrad.device("cpu"):
        got = eval(code, {"t": cugrad})
    want = eval(code, {"t": torch})
    assert repr(got) == repr(want)
    assert str(got) == str(want)


def test_repr_of_random_tensors_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    for _ in range(300):
        shape = tuple(rng.integers(0, 5, rng.integers(0, 4)))
        scale = 10.0 ** rng.integers(-6, 9)
        array = np.asarray(rng.standard_normal(shape) * scale, np.float32)
        kind = rng.integers(5)
        if kind == 0:
            array = np.asarray(np.round(array))
        elif kind == 1:
            array = np.asarray(array, np.int64) if scale < 1e7 else array
        elif kind == 2 and array.size:
            array[tuple(0 for _ in shape)] = rng.choice([np.nan, np.inf, -np.inf, 0])
        elif kind == 3:
            array = array.astype(np.float64)
        ours = cugrad.from_numpy(array.copy())
        assert repr(ours) == repr(torch.from_numpy(array.copy())), repr(array)


def test_format(lib: Any) -> None:
    assert f"{lib.tensor(1.23456):.2f}" == "1.23" and f"{lib.tensor(7):03d}" == "007"
    with pytest.raises(TypeError):
        format(lib.ones(2), ".2f")


# Copies and conversions ---------------------------------------------------------------------------


@pytest.mark.parametrize("through", [lambda t: pickle.loads(pickle.dumps(t)), copy.deepcopy])
def test_pickles_and_deep_copies(lib: Any, through: Any) -> None:
    for t in (
        lib.arange(6.0).reshape(2, 3).t(), lib.tensor(3), lib.zeros(0, 2), lib.tensor([1 + 2j]),
        lib.ones(2, dtype=lib.bfloat16), lib.ones(2, requires_grad=True),
    ):  # fmt: skip
        twin = through(t)
        assert twin is not t and twin.dtype is t.dtype and twin.requires_grad == t.requires_grad
        assert twin.tolist() == t.tolist() and tuple(twin.shape) == tuple(t.shape)
        assert not t.numel() or twin.data_ptr() != t.data_ptr()
    parameter = lib.nn.Parameter(lib.ones(2))
    assert isinstance(through(parameter), lib.nn.Parameter)


@pytest.mark.parametrize("through", [lambda t: pickle.loads(pickle.dumps(t)), copy.deepcopy])
def test_pickles_and_deep_copies_lie_as_they_did(lib: Any, through: Any) -> None:
    rows = lib.arange(120.0).reshape(2, 3, 4, 5)
    for t in (
        rows.permute(3, 0, 2, 1), rows.contiguous(memory_format=lib.channels_last),
        rows[0, 0].t(), rows,
    ):  # fmt: skip
        for twin in (through(t), through(lib.nn.Parameter(t)).detach()):
            assert twin.stride() == t.stride() and twin.tolist() == t.tolist()
    net = lib.nn.Conv2d(2, 3, 3).to(memory_format=lib.channels_last)
    net.register_buffer("seen", net.weight.detach().clone())
    twin = through(net)
    assert all(t.is_contiguous(memory_format=lib.channels_last) for t in (twin.weight, twin.seen))


@pytest.mark.parametrize("through", [lambda t: pickle.loads(pickle.dumps(t)), copy.deepcopy])
def test_pickles_and_deep_copies_of_the_meta_device(lib: Any, through: Any) -> None:
    t = lib.empty(2, 3, dtype=lib.float64, device="meta").t()
    twin = through(t)
    assert (twin.is_meta, twin.dtype, twin.stride()) == (True, lib.float64, (1, 3))
    net = through(lib.nn.Linear(2, 3, device="meta"))
    assert net.weight.is_meta and net.weight.requires_grad and net.weight.shape == (3, 2)


@pytest.mark.parametrize("name", ["relu", "mul", "multiply", "add", "sum", "rand", "softmax"])
def test_functions_pickle_so_that_modules_can_hold_them(name: str) -> None:
    function = getattr(cugrad, name)
    assert pickle.loads(pickle.dumps(function)) is function and function.__doc__


def test_a_deep_copy_takes_the_grad_along(lib: Any) -> None:
    x = lib.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    twin = copy.deepcopy([x, x])
    assert twin[0] is twin[1] and twin[0].grad.tolist() == [3, 3] and twin[0].grad is not x.grad
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(x * 2)


def test_numpy_shares_memory() -> None:
    for lib in (cugrad, pytest.importorskip("torch")):
        x = lib.zeros(3) if lib is not cugrad else cugrad.zeros(3, device="cpu")
        array = x.numpy()
        array[0] = 5
        x[1] = 6
        assert x.tolist() == array.tolist() == [5, 6, 0]
        assert np.asarray(x) is not None and np.shares_memory(np.asarray(x), array)
        assert np.asarray(x, dtype=np.float64).dtype == np.float64
        with pytest.raises(RuntimeError, match="requires grad"):
            x.clone().requires_grad_().numpy()
        assert x.requires_grad_().detach().numpy().tolist() == [5, 6, 0]
        assert (x * 1).numpy(force=True).tolist() == [5, 6, 0]


def test_numbers(lib: Any) -> None:
    assert lib.tensor(3).item() == 3 and type(lib.tensor(3).item()) is int
    assert type(lib.tensor(3.0).item()) is float and type(lib.tensor(True).item()) is bool
    assert type(lib.tensor(2j).item()) is complex and lib.tensor([[5]]).item() == 5
    assert int(lib.tensor(3.7)) == 3 and float(lib.tensor(2)) == 2.0
    assert bool(lib.tensor([1])) and not lib.tensor(0.0)
    assert [10, 20, 30][lib.tensor(1)] == 20 and list(range(lib.tensor(2))) == [0, 1]
    with pytest.raises(
        RuntimeError, match="a Tensor with 2 elements cannot be converted to Scalar"
    ):
        lib.ones(2).item()
    with pytest.raises(RuntimeError, match="Boolean value of Tensor with more than one value is"):
        bool(lib.ones(2))
    with pytest.raises(RuntimeError, match="Boolean value of Tensor with no values is ambiguous"):
        bool(lib.ones(0))
    with pytest.raises(TypeError, match="only integer tensors of a single element"):
        [1, 2][lib.tensor(1.0)]
    assert lib.arange(4).reshape(2, 2).tolist() == [[0, 1], [2, 3]] and lib.tensor(3).tolist() == 3


def test_iteration_and_length(lib: Any) -> None:
    x = lib.arange(6).reshape(3, 2)
    assert len(x) == 3 and [row.tolist() for row in x] == [[0, 1], [2, 3], [4, 5]]
    assert 5 in x and 6 not in x
    for call in (len, iter):
        with pytest.raises(TypeError, match="0-d tensor"):
            call(lib.tensor(1))
    a, b = lib.ones(2, requires_grad=True)
    assert a.requires_grad and b.item() == 1


def test_tensors_are_hashable_by_identity(lib: Any) -> None:
    a, b = lib.ones(1), lib.ones(1)
    assert len({a, b, a}) == 2 and {a: 1}[a] == 1


def test_shapes(lib: Any) -> None:
    x = lib.zeros(2, 3, 4)
    assert x.shape == (2, 3, 4) and x.size() == x.shape and x.size(1) == x.size(-2) == 3
    assert x.shape.numel() == x.numel() == x.nelement() == 24 and x.ndim == x.dim() == 3
    assert x.shape[1:] + (5,) == (3, 4, 5) and type(x.shape[1:]) is lib.Size
    assert x.stride() == (12, 4, 1) and x.transpose(0, 2).stride(0) == 1
    assert x.is_contiguous() and not x.transpose(0, 1).is_contiguous()
    assert x.element_size() == x.itemsize == 4 and x.nbytes == 96


SIZES = """
x.shape + (5,)
(5,) + x.shape
x.shape * 2
2 * x.shape
x.shape[::2]
t.Size([2, t.tensor(3)])
t.Size([t.tensor([2]), True])
t.Size(t.tensor([2, 3]))
t.Size([2]) + (t.count_nonzero(x),)
t.Size(n for n in (1, 2))
t.Size()
t.utils._pytree.tree_map(lambda n: n / 2, x.shape)
""".strip().splitlines()


@pytest.mark.parametrize("call", SIZES)
def test_what_is_made_of_shapes_is_a_shape_of_ints(call: str) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = (eval(call, {"t": lib, "x": lib.ones(2, 3)}) for lib in (cugrad, torch))
    assert repr(ours) == repr(theirs) and [*map(type, ours)] == [*map(type, theirs)]


CASTS = ["float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool"]


@pytest.mark.parametrize("name", CASTS)
def test_casts(name: str) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for lib in (cugrad, torch):
        x = (
            lib.tensor([0.0, 1.5, -2.75, 100.0])
            if name != "byte"
            else lib.tensor([0.0, 1.5, 100.0])
        )
        y = getattr(x, name)()
        assert (y is x) == (name == "float")
        assert x.to(y.dtype).dtype is y.dtype and x.type(y.dtype).tolist() == y.tolist()
        found.append((str(y.dtype), y.type(), y.tolist()))
    assert found[0] == found[1]


def test_to(lib: Any) -> None:
    x = lib.ones(2, requires_grad=True)
    assert x.to(lib.float32) is x and x.to(x.device) is x and x.to(x) is x
    assert x.to(lib.float32, copy=True) is not x
    assert x.to(x.device, lib.float64).dtype is lib.float64
    assert x.to(dtype=lib.float16).dtype is lib.float16
    assert x.to(lib.ones(1, dtype=lib.float64)).dtype is lib.float64
    assert x.type_as(lib.ones(1, dtype=lib.int64)).dtype is lib.int64
    assert x.cpu().get_device() == -1
    x.to(lib.float64).sum().backward()
    assert x.grad.dtype is lib.float32 and x.grad.tolist() == [1, 1]
    with pytest.raises(TypeError):
        x.to("no such", "thing", 3)
    with pytest.raises(RuntimeError):
        x.to("nowhere")


def test_data(lib: Any) -> None:
    x = lib.ones(2, requires_grad=True)
    assert not x.data.requires_grad and x.data.data_ptr() == x.data_ptr()
    x.data = lib.zeros(3)
    assert x.tolist() == [0, 0, 0] and x.requires_grad


DTYPES = ["bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64",
          "complex64", "complex128"]  # fmt: skip


def test_promotion() -> None:
    torch = pytest.importorskip("torch")
    for a in DTYPES:
        for b in DTYPES:
            if {a, b} & {"float16", "bfloat16"} and {a, b} & {"complex64", "complex128"}:
                continue  # PyTorch has a complex32, and warns of it
            found = []
            for lib in (cugrad, torch):
                x, y = (lib.ones(2, dtype=getattr(lib, kind)) for kind in (a, b))
                zero_d = lib.ones((), dtype=getattr(lib, b))
                found.append([str(r.dtype) for r in (x * y, x * zero_d, x + 1, x + 1.5, x / y)]
                             + [str(lib.promote_types(x.dtype, y.dtype))])  # fmt: skip
            assert found[0] == found[1], (a, b)


def test_attributes_of_the_user_stay(lib: Any) -> None:
    x = lib.ones(2)
    x.note = "mine"
    assert x.note == "mine"
    with pytest.raises(AttributeError):
        x.nothing_like_this  # noqa: B018
