"""assert_close and make_tensor beside PyTorch's: the same verdict, and the same words."""

from __future__ import annotations

import importlib
import itertools
import math
from functools import partial
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.testing import assert_close, make_tensor

torch = pytest.importorskip("torch")

DTYPES = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128", "int32", "int64",
          "uint8", "bool"]  # fmt: skip
# What is compared, made for a library.
CASES = {
    "other shape": lambda t: (t.ones(3), t.ones(4)),
    "other dtype": lambda t: (t.ones(3), t.ones(3).double()),
    "other stride": lambda t: (t.ones(2, 2).t().contiguous().t() * 2, t.ones(2, 2)),
    "numbers": lambda t: (1.0, 2.0),
    "whole numbers": lambda t: (1, 2),
    "complex numbers": lambda t: (1 + 1j, 1 + 2j),
    "number kinds": lambda t: (1, 1.0),
    "truths": lambda t: (True, False),
    "none": lambda t: (None, 1),
    "both none": lambda t: (None, None),
    "texts": lambda t: ("a", "a"),
    "nested": lambda t: ([1.0, {"a": t.ones(2)}], [1.0, {"a": t.zeros(2)}]),
    "two faults": lambda t: ([1.0, 2.0], [2.0, 3.0]),
    "keys": lambda t: ({"a": 1.0, "c": 2}, {"b": 1.0, "c": 2}),
    "lengths": lambda t: ([1], [1, 2]),
    "tuple and list": lambda t: ((1.0, 2.0), [1.0, 2.0]),
    "nan": lambda t: (t.tensor([1.0, math.nan]), t.tensor([1.0, math.nan])),
    "nan and number": lambda t: (t.tensor([1.0, math.nan]), t.tensor([1.0, 2.0])),
    "inf": lambda t: (t.tensor([math.inf, 1.0]), t.tensor([-math.inf, 1.0])),
    "same inf": lambda t: (t.tensor([math.inf, 1.0]), t.tensor([math.inf, 1.0])),
    "0-d": lambda t: (t.tensor(1.0), t.tensor(2.0)),
    "a matrix": lambda t: (t.arange(6.0).reshape(2, 3), t.arange(6.0).reshape(2, 3) * 1.5),
    "whole": lambda t: (t.tensor([1, 2, 5]), t.tensor([1, 3, 9])),
    "bool tensors": lambda t: (t.tensor([True, False]), t.tensor([True, True])),
    "complex tensors": lambda t: (t.tensor([1 + 1j]), t.tensor([1 + 2j])),
    "empty": lambda t: (t.ones(0, 3), t.ones(0, 3)),
    "grad": lambda t: (t.ones(2, requires_grad=True), t.ones(2)),
    "array": lambda t: (np.ones(2), np.zeros(2)),
    "array and tensor": lambda t: (t.ones(2), np.ones(2)),
    "a class": lambda t: (float, 3),
    "sparse": lambda t: (t.eye(2).to_sparse(), 2 * t.eye(2).to_sparse()),
    "sparse places": lambda t: (t.eye(2).to_sparse(), t.eye(2).flip(0).to_sparse().coalesce()),
    "sparse numbers": lambda t: (t.eye(2).to_sparse(), t.ones(2, 2).to_sparse()),
    "layouts": lambda t: (t.eye(2).to_sparse(), t.eye(2)),
    "no values": lambda t: (t.ones(2, device="meta"), t.zeros(2, device="meta")),
    "unsigned": lambda t: (t.tensor([1], dtype=t.uint16), t.tensor([2])),
}
OPTIONS: list[dict[str, Any]] = [
    {}, {"rtol": 0, "atol": 0}, {"rtol": 1.0, "atol": 2.0}, {"equal_nan": True},
    {"check_dtype": False}, {"check_stride": True}, {"msg": "text"}, {"msg": "more: {}".format},
    {"rtol": 1.0}, {"atol": 1.0},
]  # fmt: skip


def verdict(library: Any, case: Any, options: dict[str, Any]) -> tuple[str, str]:
    try:
        library.testing.assert_close(*case(library), **options)
    except Exception as error:
        return type(error).__name__, str(error).replace("torch._C._", "")
    return "close", ""


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: ",".join(o) or "plain")
@pytest.mark.parametrize("case", CASES)
def test_the_verdict_is_pytorchs(case: str, options: dict[str, Any]) -> None:
    got = verdict(cugrad, CASES[case], options)
    want = verdict(torch, CASES[case], options)
    assert got[0] == want[0]
    if got[0] != "TypeError":  # which names a class of the library
        assert got[1] == want[1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_tolerances_are_pytorchs(dtype: str) -> None:
    for step in (1e-8, 1e-6, 3e-6, 1e-5, 3e-5, 1e-3, 2e-3, 1e-2, 3e-2):
        pair = [[1.0, 100.0], [1.0 + step, 100.0 * (1 + step)]]
        got, want = (
            verdict(t, partial(tensors, rows=pair, dtype=dtype), {})[0] for t in (cugrad, torch)
        )
        assert got == want, step


def tensors(library: Any, rows: list[list[float]], dtype: str) -> list[Any]:
    return [library.tensor(row, dtype=getattr(library, dtype)) for row in rows]


@pytest.mark.parametrize(
    ("dtype", "options"),
    list(
        itertools.product(
            DTYPES, [{}, {"noncontiguous": True}, {"exclude_zero": True}, {"low": 0, "high": 2}]
        )
    ),  # fmt: skip
)
def test_made_tensors_lie_in_their_range(dtype: str, options: dict[str, Any]) -> None:
    made = make_tensor(7, 40, dtype=getattr(cugrad, dtype), device="cpu", **options)  # type: ignore[call-overload]
    theirs = torch.testing.make_tensor(7, 40, dtype=getattr(torch, dtype), device="cpu", **options)
    assert made.shape == theirs.shape
    assert made.is_contiguous() == theirs.is_contiguous()
    values = cugrad.view_as_real(made) if made.dtype.is_complex else made.double()
    least, most = {"bool": (0, 1), "uint8": (0, 9)}.get(dtype, (-9, 9))
    if "low" in options:
        least, most = 0, 2 if made.dtype.is_floating_point or made.dtype.is_complex else 1
    assert least <= float(values.min())
    assert float(values.max()) <= most
    assert float(values.max() - values.min()) >= (most - least) * 0.5 or "exclude_zero" in options
    if "exclude_zero" in options:
        assert bool((made != 0).all())


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"low": 2, "high": 1}, ValueError),
        ({"low": math.nan}, ValueError),
        ({"dtype": "int64", "requires_grad": True}, ValueError),
        ({"dtype": "int64", "low": 1, "high": 1}, ValueError),
        ({"low": 1, "high": 1}, None),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_range_must_be_one(options: dict[str, Any], error: type[Exception] | None) -> None:
    for t in (cugrad, torch):
        given = {**options, "dtype": getattr(t, options.get("dtype", "float32"))}
        if error is None:
            assert bool((t.testing.make_tensor(3, device="cpu", **given) == 1).all())
            continue
        with pytest.raises(error):
            t.testing.make_tensor(3, device="cpu", **given)


def test_a_made_tensor_may_require_gradients() -> None:
    made = make_tensor((2, 3), dtype=cugrad.float64, device="cpu", requires_grad=True)
    assert made.is_leaf
    assert made.requires_grad
    assert_close(made, made.clone())


def test_what_pytorch_s_tests_derive_from() -> None:
    """Pairs of their own, and what differs as a list."""
    comparison = importlib.import_module("cugrad.testing._comparison")

    class Lengths(comparison.Pair):  # type: ignore[misc, name-defined]
        def __init__(self, actual: Any, expected: Any, **options: Any) -> None:
            self._check_inputs_isinstance(actual, expected, cls=str)
            super().__init__(actual, expected, **options)

        def compare(self) -> None:
            if len(self.actual) != len(self.expected):
                self._fail(AssertionError, "lengths")

    def differ(actual: Any, expected: Any) -> list[Any]:
        kinds = (comparison.NumberPair, Lengths, comparison.ObjectPair)
        return [(e.id, e.msg) for e in comparison.not_close_error_metas(
            actual, expected, pair_types=kinds, rtol=0.1, atol=0.0)]  # fmt: skip

    assert differ(["ab", 1.0, {2: {3}}], ["cd", 1.05, {2: {3}}]) == []
    assert [d[0] for d in differ(["a", 1.0, {2: {3}}], ["cd", 2.0, {2: {4}}])] == [
        (0,),
        (1,),
        (2, 2),
    ]
    kinds = (cugrad.float32, cugrad.ones(1, dtype=cugrad.float16))
    assert comparison.default_tolerances(*kinds) == (1e-3, 1e-5)
