"""Ops on shapes, strides, dtypes and dims that Hypothesis draws, beside PyTorch."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("hypothesis", reason="Hypothesis, which draws the cases, is not installed")
torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import cugrad  # noqa: E402

KINDS = (IndexError, RuntimeError, TypeError, ValueError)
DTYPES = ["float64", "float32", "complex128", "int64", "int32", "uint8", "bool"]
MANY = settings(max_examples=250, suppress_health_check=[HealthCheck.too_slow])

# words, because lists of names fill a page
WORDS = {
    "unary": "abs neg sin exp sigmoid tanh sqrt sign floor square relu reciprocal logical_not "
    "isnan expm1 atan erf rsqrt round",
    "binary": "add sub mul div maximum minimum pow atan2 eq lt logical_and floor_divide remainder "
    "hypot logaddexp fmax copysign",
    "reductions": "sum mean prod amax amin var std any all logsumexp argmax argmin max min median "
    "nansum count_nonzero cumsum cumprod softmax log_softmax sort norm cummax logcumsumexp mode",
    "no keepdim": "cumsum cumprod softmax log_softmax sort cummax logcumsumexp count_nonzero",
    "one dim": "cumsum cumprod softmax log_softmax sort cummax logcumsumexp argmax argmin max min "
    "median prod mode",
}
UNARY, BINARY, REDUCTIONS, NO_KEEPDIM, ONE_DIM = (WORDS[k].split() for k in WORDS)
INDEX_TIES = {"sort", "median", "mode", "cummax", "max", "min"}


@st.composite
def layouts(draw: Any, expanded: bool = True) -> Any:
    """An array of a drawn shape and dtype, in a drawn memory layout, and how it was laid out."""
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=4)))
    dtype = draw(st.sampled_from(DTYPES))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    wide = tuple(2 * n for n in shape)
    values = rng.integers(-4, 5, wide).astype(np.float64) + (rng.random(wide) if "int" not in dtype
                                                             else 0)  # fmt: skip
    if dtype == "bool":
        values = values > 0
    if dtype.startswith("complex"):
        values = values + 1j * rng.random(wide)
    if dtype == "uint8":
        values = np.abs(values)
    array = np.asarray(values).astype(dtype)
    stepped = draw(st.booleans())
    array = array[(*[slice(None, None, 2) if stepped else slice(0, n) for n in shape], ...)]
    order = draw(st.permutations(range(len(shape))))
    array = array.transpose(order)
    if expanded and draw(st.booleans()) and 1 in array.shape:
        shape = tuple(3 if n == 1 else n for n in array.shape)
        strides = [0 if n == 1 else s for n, s in zip(array.shape, array.strides, strict=True)]
        array = np.lib.stride_tricks.as_strided(array, shape, strides)
    return array


def both(array: np.ndarray, requires_grad: bool = False) -> tuple[Any, Any]:
    """The same elements in the same layout, in either library."""
    # writable: PyTorch warns of other memory once in a process, and another test waits for that
    mine, theirs = cugrad.from_numpy(array), torch.from_numpy(array)
    if requires_grad:
        mine, theirs = mine.detach().requires_grad_(), theirs.detach().requires_grad_()
    return mine, theirs


def outcome(call: Any) -> tuple[Any, type | None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call(), None
        except Exception as error:
            return None, next(k for k in type(error).__mro__ if k.__module__ == "builtins")


def flat(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


def assert_same(mine: Any, theirs: Any, what: str, narrow: bool, indices: bool = True) -> None:
    for nr, (a, b) in enumerate(zip(flat(mine), flat(theirs), strict=True)):
        assert tuple(a.shape) == tuple(b.shape), f"{what}: shape {a.shape}, PyTorch {b.shape}"
        assert str(a.dtype) == str(b.dtype), f"{what}: dtype {a.dtype}, PyTorch {b.dtype}"
        if nr == 1 and not indices:
            continue
        narrow = narrow or "float32" in str(a.dtype) or "complex64" in str(a.dtype)
        tolerance = 2e-4 if narrow else 1e-7
        np.testing.assert_allclose(
            a.detach().numpy(), b.detach().resolve_conj().resolve_neg().numpy(), rtol=tolerance,
            atol=tolerance, equal_nan=True, err_msg=what,
        )  # fmt: skip


def compare(name: str, arrays: list[np.ndarray], call: Any, indices: bool = True) -> None:
    """Value, dtype, shape and gradient are PyTorch's; errors are of a kind that it raises."""
    graded = all(a.dtype.kind in "fc" for a in arrays)
    pairs = [both(a, graded) for a in arrays]
    theirs, refused = outcome(lambda: call(torch, *[t for _, t in pairs]))
    mine, error = outcome(lambda: call(cugrad, *[m for m, _ in pairs]))
    said = f"{name} of " + ", ".join(f"{a.dtype}{a.shape} strides {a.strides}" for a in arrays)
    if refused is not None:
        # a superset is no fault; of two faults at once either may be named (test_opinfo has kinds)
        assert error is None or issubclass(error, KINDS), said
        return
    if error is IndexError and any(a.size == 0 for a in arrays):
        return  # PyTorch does not look at dims and indices of some empty tensors
    assert error is None, f"{said} raises {error}"
    narrow = any(a.dtype == np.float32 for a in arrays)
    assert_same(mine, theirs, said, narrow, indices)
    out, want = flat(mine)[0], flat(theirs)[0]
    if not graded or not want.requires_grad:
        return
    v = np.random.default_rng(1).standard_normal(tuple(want.shape))
    v = v.astype(out.detach().numpy().dtype)
    got = cugrad.autograd.grad(out, [m for m, _ in pairs], cugrad.from_numpy(v), allow_unused=True)
    expected, refused = outcome(lambda: torch.autograd.grad(
        want, [t for _, t in pairs], torch.from_numpy(v), allow_unused=True))  # fmt: skip
    if refused is not None:
        return  # such as floor_divide, whose derivative PyTorch has not written
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert (a is None) == (b is None), f"{said}: gradient {i}"
        if b is not None:
            assert_same(a, b, f"{said}: gradient {i}", narrow)


@MANY
@given(st.sampled_from(UNARY), layouts())
def test_unary(name: str, array: np.ndarray) -> None:
    compare(name, [array], lambda lib, x: getattr(lib, name)(x))


@MANY
@given(st.sampled_from(BINARY), layouts(), layouts())
def test_binary(name: str, a: np.ndarray, b: np.ndarray) -> None:
    """Shapes that broadcast, and those that do not; any two dtypes."""
    if name == "pow":
        a = np.asarray(np.abs(a)) if a.dtype.kind in "fiu" else a  # 0-d ones too
        b = np.asarray(np.abs(b)) if b.dtype.kind in "iu" else b
    if name in ("floor_divide", "remainder") and b.dtype.kind in "iub":
        b = np.where(b == 0, 1, b).astype(b.dtype)
    compare(name, [a, b], lambda lib, x, y: getattr(lib, name)(x, y))


@MANY
@given(
    st.sampled_from(REDUCTIONS), layouts(expanded=False), st.integers(-5, 4), st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_reductions(name: str, array: np.ndarray, dim: int, keepdim: bool, whole: bool) -> None:
    """Along dims in and out of range, of empty and 0-d tensors, kept or not.

    Not of expanded ones: PyTorch's median of a tensor with a stride of 0 is wrong.
    """
    if "softmax" in name and array.dtype.kind in "biu":
        array = array.astype(np.float64)  # which PyTorch refuses, and here become floating point
    how: dict[str, Any] = {"dim": dim}
    if name not in NO_KEEPDIM:
        how["keepdim"] = keepdim
    elif whole and name not in ONE_DIM:
        how = {}
    compare(name, [array], lambda lib, x: getattr(lib, name)(x, **how),
            indices=name not in INDEX_TIES)  # fmt: skip


def reshaped(lib: Any, x: Any, data: Any) -> Any:
    sizes = list(x.shape)
    return x.reshape([-1] if data % 2 and x.numel() else [*sizes[1:], *sizes[:1]])


def order_of(x: Any, k: int) -> Any:
    """Places along dim 0 for gather."""
    x = x.real if x.is_complex() else x
    return x.argsort(0, k % 2 == 1, stable=True)


SHAPES: dict[str, Any] = {
    "permute": lambda lib, x, k: x.permute(*[(i + k) % x.ndim for i in range(x.ndim)]),
    "transpose": lambda lib, x, k: x.transpose(k % 4, -1),
    "reshape": reshaped,
    "flatten": lambda lib, x, k: x.flatten(k % 3),
    "squeeze": lambda lib, x, k: x.squeeze(k % 5 - 2),
    "unsqueeze": lambda lib, x, k: x.unsqueeze(k % 7 - 3),
    "flip": lambda lib, x, k: x.flip(k % 3),
    "roll": lambda lib, x, k: x.roll(k % 5 - 2, k % 3) if x.numel() else x.roll(k),
    "narrow": lambda lib, x, k: x.narrow(0, k % 3, 1),
    "select": lambda lib, x, k: x.select(k % 3, k % 4 - 2),
    "index": lambda lib, x, k: x[..., k % 3 :, None],
    "advanced": lambda lib, x, k: x[[0, k % 3], ..., k % 2],
    "mask": lambda lib, x, k: x[x == x],
    "tril": lambda lib, x, k: x.tril(k % 5 - 2),
    "diagonal": lambda lib, x, k: x.diagonal(k % 5 - 2),
    "chunk": lambda lib, x, k: lib.cat(list(x.chunk(k % 3 + 1, 0)), 0),
    "repeat": lambda lib, x, k: x.repeat(*[2] * x.ndim, k % 3),
    "tile": lambda lib, x, k: x.tile(k % 3, 2),
    "gather": lambda lib, x, k: x.gather(0, order_of(x, k)) if x.ndim else x.clone(),
    "stack": lambda lib, x, k: lib.stack([x, x], k % 5 - 2),
    "expand": lambda lib, x, k: x.expand(k % 3, *x.shape),
    "movedim": lambda lib, x, k: x.movedim(k % 3, 0),
    "unbind": lambda lib, x, k: lib.stack(list(x.unbind(k % 3)), 0),
    "unfold": lambda lib, x, k: x.unfold(k % 3, 2, 1),
    "clone": lambda lib, x, k: x.clone(),
    "rot90": lambda lib, x, k: x.rot90(k, (0, 1)),
    "as_strided": lambda lib, x, k: x.contiguous().as_strided((2, 2), (1, k % 2), 0),
}  # fmt: skip


@MANY
@given(st.sampled_from(sorted(SHAPES)), layouts(), st.integers(0, 59))
def test_shapes_and_indices(name: str, array: np.ndarray, k: int) -> None:
    compare(name, [array], lambda lib, x: SHAPES[name](lib, x, k))
