"""What is chosen by the bits of numbers is what NumPy's `where` chooses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cugrad.backends.numpy import choosing
from cugrad.dtypes import bfloat16

Array = np.ndarray[Any, Any]
SHAPE = (8, 16, 32)
KINDS = {"float32": np.float32, "float64": np.float64, "float16": np.float16,
         "bfloat16": bfloat16.numpy, "int32": np.int32, "int16": np.int16}  # fmt: skip
LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "in order": lambda x: x,
    "channels last": lambda x: x.transpose(1, 2, 0).copy().transpose(2, 0, 1),
    "turned round": lambda x: x.T.copy().T,
    "every second": lambda x: np.repeat(x, 2, -1)[..., ::2],
    "repeated": lambda x: np.broadcast_to(x[:1], SHAPE),
    "no dims": lambda x: x[0, 0, 0, ...].copy(),
}


def numbers(kind: Any, seed: int) -> Array:
    with np.errstate(all="ignore"):
        x = (100 * np.random.default_rng(seed).standard_normal(SHAPE)).astype(kind)
    if np.dtype(kind).kind in "fV":
        x[0, 0, :4] = [np.nan, np.inf, -np.inf, -0.0]
    return x


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_choices_have_the_bits_and_the_layout_of_numpys(kind: Any) -> None:
    condition = np.random.default_rng(2).random(SHAPE) < 0.5
    a, b = numbers(kind, 0), numbers(kind, 1)
    for change in LAYOUTS.values():
        for other in LAYOUTS.values():
            for by in LAYOUTS.values():
                args = by(condition), change(a), other(b)
                got, want = choosing.where(*args), np.where(*args)
                assert (got.dtype, got.shape, got.strides) == (want.dtype, want.shape, want.strides)
                assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16])
def test_a_number_beside_an_array_is_of_its_dtype(kind: Any) -> None:
    condition, x = np.random.default_rng(2).random(SHAPE) < 0.5, numbers(kind, 0)
    for number in (0.1, -0.0, 7, float("nan"), float("-inf"), 0.0):
        for args in ((condition, x, number), (condition, number, x)):
            got, want = choosing.where(*args), np.where(*args)
            assert got.dtype == want.dtype == kind
            np.testing.assert_array_equal(got, want)
            np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def test_other_operands_are_left_to_numpy() -> None:
    condition, x = np.random.default_rng(2).random(SHAPE) < 0.5, numbers(np.float32, 0)
    whole = np.arange(x.size).reshape(SHAPE)
    for args in ((condition, x, x.astype(float)), (condition, whole, 2.5), (condition, x, x[0]),
                 (condition[0], x, x), (condition, 1.0, 2.0), (whole, x, x), (condition, x, True),
                 (condition, x + 1j, 2.0), (condition, condition, condition)):  # fmt: skip
        got, want = choosing.where(*args), np.where(*args)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "int32", "bool", "complex64"])
@pytest.mark.parametrize("shape", [(5, 7), (3, 4, 4), (2, 0, 3), (1, 1), (40, 60)])
@pytest.mark.parametrize("turned", [False, True])
def test_triangles_are_those_of_numpy(kind: str, shape: tuple[int, ...], turned: bool) -> None:
    x = np.where(np.arange(np.prod(shape)) % 3 == 0, np.inf, -0.0).reshape(shape)
    x = (x > 0).astype(kind) if kind in ("int32", "bool") else x.astype(kind)
    x = x.swapaxes(-1, -2) if turned else x
    for k in (-9, -2, -1, 0, 1, 3, 9):
        for ours, theirs in ((choosing.tril, np.tril), (choosing.triu, np.triu)):
            got, want = ours(x, k), theirs(x, k)
            assert got.dtype == want.dtype and got.tobytes() == want.tobytes()
