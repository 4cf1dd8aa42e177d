"""Operators between tensors and what is of other classes: these may have the answer."""

from __future__ import annotations

import fractions
import operator
from contextlib import nullcontext
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


def silent(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    return NotImplemented


def passing(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    return func(*args, **kwargs or {})


def of_kind(lib: Any, kind: str, x: Any) -> tuple[Any, Any]:
    """A tensor plain, of a class that takes calls, or to be used in a mode; and a context."""
    if kind == "in a mode":
        mode = type("Mode", (lib.overrides.TorchFunctionMode,), {"__torch_function__": passing})
        return x, mode()
    if kind == "plain":
        return x, nullcontext()
    own = {"__torch_function__": classmethod(silent)} if kind == "of a silent class" else {}
    return x.as_subclass(type("Tensor", (lib.Tensor,), own)), nullcontext()


KINDS = ("plain", "of a subclass", "of a silent class", "in a mode")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16", "bool"])
def test_another_class_is_asked(lib: Any, dtype: str, kind: str) -> None:
    x, context = of_kind(lib, kind, lib.tensor([1, 0]).to(getattr(lib, dtype)))
    with context:
        for name in REFLECTED:
            if dtype != "bool" or name != "sub":  # which is refused before
                function = getattr(operator, name + "_" * (name in ("and", "or")))
                assert function(x, Other()) == (name, "Tensor")
                if name != "matmul":  # which changes nothing in place
                    assert getattr(operator, f"i{name}")(x, Other()) == (name, "Tensor")
        for name, mirrored in MIRRORED.items():
            assert getattr(operator, name)(x, Other()) == (mirrored, "Tensor")
        assert (x == object()) is (object() == x) is False
        for name in ("add", "iadd", "truediv", "matmul", "lt", "pow"):
            for pair in ((x, object()), (object(), x)):
                with pytest.raises(TypeError):
                    getattr(operator, name)(*pair)


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
