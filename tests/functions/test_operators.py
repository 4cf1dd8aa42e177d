"""Operators between tensors and what is of other classes: these may have the answer."""

from __future__ import annotations

import fractions
import operator
from typing import Any

import pytest

REFLECTED = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor",
             "lshift", "rshift")  # fmt: skip
MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def answers(name: str) -> Any:
    return lambda self, other: (name, type(other).__name__)


Other: Any = type("Other", (), {
    **{f"__r{name}__": answers(name) for name in REFLECTED},
    **{f"__{name}__": answers(name) for name in MIRRORED},
})  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16", "bool"])
def test_another_class_is_asked(lib: Any, dtype: str) -> None:
    x = lib.tensor([1, 0]).to(getattr(lib, dtype))
    for name in REFLECTED:
        if dtype != "bool" or name != "sub":  # which is refused before
            function = getattr(operator, name + "_" * (name in ("and", "or")))
            assert function(x, Other()) == (name, "Tensor")
    for name, mirrored in MIRRORED.items():
        assert getattr(operator, name)(x, Other()) == (mirrored, "Tensor")


def test_what_no_class_answers(lib: Any) -> None:
    x = lib.tensor([1.0, 0.0])
    for other in (object(), "text", None, {}):
        assert (x == other) is (other == x) is False and (x != other) is (other != x) is True
        for name in ("add", "sub", "mul", "truediv", "matmul", "pow", "lt"):
            function = getattr(operator, name)
            for pair in ((x, other), (other, x)):
                with pytest.raises(TypeError):
                    function(*pair)
    assert (x == fractions.Fraction(1, 2)) is False
    assert [other for other in (object(), None) if other in [x]] == []
    with pytest.raises(TypeError, match="mul"):
        x.mul(Other())  # no operator


def test_errors_of_operands_that_are_taken_stay(lib: Any) -> None:
    x = lib.ones(2)
    with pytest.raises(RuntimeError, match="must match the size"):
        x + lib.ones(3)
    with pytest.raises(RuntimeError, match="Subtraction"):
        (x > 0) - (x > 0)
