"""Checks `out=`, and NumPy's names for arguments, against PyTorch and by what they promise."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import cugrad
from cugrad.functions import TAKES_OUT

X = [[0.5, -1.5, 2.0], [3.0, 0.25, -0.75]]
Y = [[1.0, 2.0, -0.5], [0.5, 4.0, 1.5]]
UNARY = [
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "deg2rad", "erf", "exp", "exp2",
    "expm1", "floor", "frac", "log1p", "neg", "reciprocal", "round", "sgn", "sigmoid", "sign",
    "signbit", "sin", "sinc", "sinh", "sqrt", "square", "tan", "tanh", "trunc", "isposinf",
    "logit", "frexp",
]  # fmt: skip
BINARY = [
    "add", "sub", "mul", "div", "atan2", "copysign", "eq", "ne", "lt", "le", "gt", "ge",
    "fmax", "fmin", "fmod", "remainder", "hypot", "logaddexp", "logical_and", "logical_or",
    "logical_xor", "maximum", "minimum", "floor_divide", "float_power", "xlogy",
]  # fmt: skip
REDUCING = [
    "sum", "mean", "prod", "amax", "amin", "all", "any", "argmax", "argmin", "cumsum",
    "cumprod", "logsumexp", "nansum", "std", "var", "median", "max", "min", "sort", "mode",
    "cummax", "cummin", "aminmax",
]  # fmt: skip


def call(lib: Any, name: str, out: Any) -> Any:
    x, y = lib.tensor(X), lib.tensor(Y)
    function = getattr(lib, name)
    if name in UNARY:
        return function(x, out=out)
    if name in BINARY:
        return function(x, y, out=out)
    return function(x, dim=1, out=out)


def outputs(lib: Any, name: str, *size: int) -> Any:
    """Empty tensors of the dtypes of the results."""
    x, y = lib.tensor(X), lib.tensor(Y)
    function = getattr(lib, name)
    if name in UNARY:
        results = function(x)
    elif name in BINARY:
        results = function(x, y)
    else:
        results = function(x, dim=1)
    if isinstance(results, lib.Tensor):
        return lib.zeros(*size, dtype=results.dtype)
    return tuple(lib.zeros(*size, dtype=r.dtype) for r in results)


def tuple_of(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


@pytest.mark.parametrize("name", [*UNARY, *BINARY, *REDUCING])
def test_out_is_filled_as_pytorch_does(name: str) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for lib in (torch, cugrad):
        outs = tuple_of(outputs(lib, name, 0))
        results = tuple_of(call(lib, name, outs if len(outs) > 1 else outs[0]))
        assert all(a is b for a, b in zip(outs, results))
        found.append(outs)
    for theirs, ours in zip(*found):
        assert str(ours.dtype) == str(theirs.dtype)
        assert ours.shape == tuple(theirs.shape)
        wanted = theirs.double().reshape(-1).tolist()
        assert ours.double().reshape(-1).tolist() == pytest.approx(wanted, rel=1e-5, nan_ok=True)


def test_a_wrong_shape_is_resized_with_a_warning(lib: Any) -> None:
    out = lib.zeros(5)
    with pytest.warns(UserWarning, match="was resized since it had shape"):
        lib.add(lib.ones(2), 1.0, out=out)
    assert out.tolist() == [2.0, 2.0]


def test_an_empty_out_is_resized_in_silence(lib: Any) -> None:
    out = lib.zeros(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert lib.exp(lib.zeros(2, 3), out=out) is out
    assert tuple(out.shape) == (2, 3)


def test_results_are_cast_to_a_wider_out_only(lib: Any) -> None:
    out = lib.zeros(2, dtype=lib.float64)
    assert lib.add(lib.ones(2), 1.0, out=out).dtype == lib.float64
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output"):
        lib.add(lib.ones(2), 1.0, out=lib.zeros(2, dtype=lib.int64))


@pytest.mark.parametrize("name", ["cat", "stack", "hstack", "vstack", "concat", "column_stack"])
def test_what_is_joined_is_cast_to_a_wider_out_only(lib: Any, name: str) -> None:
    with pytest.raises(TypeError, match="input types can't be cast to the desired output type"):
        getattr(lib, name)([lib.ones(2, dtype=lib.complex64)], out=lib.zeros(0))


def test_no_gradient_passes_through_out(lib: Any) -> None:
    x, out = lib.ones(2, requires_grad=True), lib.zeros(2)
    words = r"functions with out=... arguments don't support automatic differentiation"
    with pytest.raises(RuntimeError, match=words):
        lib.add(x, x, out=out)
    with pytest.raises(RuntimeError, match=words):
        lib.exp(lib.ones(2), out=lib.zeros(2, requires_grad=True))
    with lib.no_grad():
        lib.add(x, x, out=out)
    assert out.tolist() == [2.0, 2.0] and not out.requires_grad


def test_a_changed_out_is_noticed_by_backward(lib: Any) -> None:
    x, saved = lib.ones(2, requires_grad=True), lib.ones(2)
    y = x * saved
    lib.exp(lib.ones(2), out=saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("bad", [3, "x", [1.0]])
def test_out_is_a_tensor(lib: Any, bad: Any) -> None:
    with pytest.raises(TypeError):
        lib.exp(lib.ones(2), out=bad)


def test_factories_take_the_dtype_of_out(lib: Any) -> None:
    for name, args in (("zeros", (2,)), ("ones", (2,)), ("arange", (3,)), ("eye", (2,))):
        out = lib.empty(0, dtype=lib.float64)
        assert getattr(lib, name)(*args, out=out) is out
        assert out.dtype == lib.float64
    with pytest.raises(RuntimeError, match="does not match dtype of out"):
        lib.zeros(2, dtype=lib.float32, out=lib.zeros(2, dtype=lib.float64))


def test_linalg_and_fft_take_out(lib: Any) -> None:
    out = lib.empty(0)
    assert lib.linalg.inv(lib.eye(2) * 2, out=out) is out
    assert out.tolist() == [[0.5, 0.0], [0.0, 0.5]]
    out = lib.empty(0, dtype=lib.complex64)
    assert lib.fft.fft(lib.ones(2), out=out) is out


def test_numpys_names_of_arguments(lib: Any) -> None:
    x = lib.tensor(X)
    assert lib.sum(x, axis=1, keepdims=True).shape == (2, 1)
    assert x.sum(axis=0).shape == (3,)
    assert x.mean(axis=1, keepdims=True).shape == (2, 1)
    assert lib.equal(lib.exp(x=x), x.exp()) and lib.equal(lib.add(x, x2=x), x + x)
    assert lib.equal(lib.softmax(x, axis=0), lib.softmax(x, dim=0))


def test_unknown_arguments_are_type_errors(lib: Any) -> None:
    x = lib.ones(2)
    for wrong in (
        lambda: lib.exp(x, wrong=1), lambda: lib.sum(x, wrong=1), lambda: lib.exp(),
        lambda: lib.add(x, x, x2=x), lambda: x.sum(out=x), lambda: x.exp(out=x),
        lambda: lib.exp("x"), lambda: lib.sum([1.0]),
    ):  # fmt: skip
        with pytest.raises(TypeError):
            wrong()


def test_every_name_of_the_list_that_is_here_is_a_function() -> None:
    names = TAKES_OUT | cugrad.linalg.TAKES_OUT
    assert len(names) > 200
    assert all(callable(getattr(cugrad, n)) for n in names)


def test_placing_keywords_of_factories(lib: Any) -> None:
    assert lib.zeros(2, layout=lib.strided, pin_memory=False).tolist() == [0.0, 0.0]
    assert lib.ones(2).layout == lib.strided


@pytest.mark.parametrize("call", ["split_with_sizes_copy(x, (2, 2), out=outs)",
                                  "split_copy(x, 2, out=outs)",
                                  "unbind_copy(x.view(2, 2), out=outs)"])  # fmt: skip
def test_copies_of_several_views_fill_several_outs(lib: Any, call: str) -> None:
    outs = lib.empty(2), lib.empty(2)
    eval("lib." + call, {"lib": lib, "x": lib.arange(4.0), "outs": outs})
    assert lib.cat(outs).tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("view", [
    lambda x: x.diagonal(), lambda x: x.mT, lambda x: x[:, 1], lambda x: x.view(6),
    lambda x: x.T[1:], lambda x: x.select(1, 1), lambda x: x.permute(1, 0),
    lambda x: x.unfold(1, 2, 1),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore:An output with one or more elements")
def test_the_view_of_a_tensor_that_gets_another_shape(view: Any) -> None:
    """It has no history any more, and says so; its elements are there."""
    base = cugrad.ones(2, 3, requires_grad=True) * 1
    part = view(base)
    with cugrad.no_grad():
        cugrad.add(cugrad.ones(5), 1, out=base)
    assert base.shape == (5,) and float(part.detach().sum()) > 0
    for name in ("grad_fn", "is_leaf"):
        with pytest.raises(RuntimeError, match="shape"):
            getattr(part, name)
