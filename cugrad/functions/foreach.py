"""Functions of lists of tensors, `torch._foreach_add_` and its like, which optimizers call.

PyTorch computes a list in one kernel; here they are loops. A name is the function's behind
`_foreach_`; with `_` at its end it changes the tensors of the first list in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..runtime.absent import missing
from ..tensor import Tensor

__all__: list[str] = []

UNARY = frozenset(
    """
    abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg
    reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc zero clone
    """.split()  # noqa: SIM905
)
BINARY = frozenset("add clamp_max clamp_min div maximum minimum mul pow sub".split())  # noqa: SIM905
PREFIX = "_foreach_"


def _at(operand: Any, i: int) -> Any:
    """What the tensor number i meets: an entry of a list, or the number for all."""
    return operand[i] if isinstance(operand, (list, tuple)) else operand


def _checked(name: str, tensors: Any, *others: Any) -> None:
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(
            f"{name}(): argument 'self' (position 1) must be tuple of Tensors, not "
            f"{type(tensors).__name__}"
        )
    for other in others:
        if isinstance(other, (list, tuple)) and len(other) != len(tensors):
            raise RuntimeError(
                "Tensor lists must have the same number of tensors, got "
                f"{len(tensors)} and {len(other)}"
            )


def _of_tensor(base: str, inplace: bool) -> Callable[..., Any]:
    """The method of one tensor that the list function calls."""
    if base in ("clamp_max", "clamp_min", "maximum", "minimum"):
        bound = "max" if base in ("clamp_max", "minimum") else "min"
        method = "clamp_" if inplace else "clamp"
        return lambda tensor, other: getattr(tensor, method)(**{bound: other})
    return getattr(Tensor, base + "_" * inplace)


def _numbers(base: str, rest: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, Any]:
    """Operands, and keywords, of a call, from those that PyTorch's overloads have."""
    names = ("other", "scalar", "scalars", "tensors2", "exponent", "weight", "weights", "src")
    for name in ("tensors1", "tensor1", "tensors2", "tensor2", *names):
        if name in options:
            rest = (*rest, options.pop(name))
    return rest, options


def _function(name: str) -> Callable[..., Any]:
    inplace = name.endswith("_")
    base = name.removeprefix(PREFIX).rstrip("_")
    method = _of_tensor(base, inplace)

    def foreach(self: Any, *rest: Any, **options: Any) -> Any:
        rest, options = _numbers(base, rest, options)
        _checked(name, self, *rest)
        if base in ("addcmul", "addcdiv") and len(rest) == 3:
            *rest, options["value"] = rest  # type: ignore[assignment]
        results = [
            method(tensor, *[_at(r, i) for r in rest], **{k: _at(v, i) for k, v in options.items()})
            for i, tensor in enumerate(self)
        ]
        return list(self) if inplace else results

    return foreach


def _pow(self: Any, exponent: Any) -> list[Tensor]:
    """A list to a power, or a number to those of a list."""
    if isinstance(self, (list, tuple)):
        _checked("_foreach_pow", self, exponent)
        return [x ** _at(exponent, i) for i, x in enumerate(self)]
    return [self**x for x in exponent]


def _norm(self: Any, ord: float = 2, dtype: Any = None) -> list[Tensor]:
    """The norm of each tensor as a vector."""
    _checked("_foreach_norm", self)
    return [x.norm(ord, dtype=dtype) for x in self]


def _max(self: Any) -> list[Tensor]:
    """The largest element of each tensor."""
    return [x.max() for x in self]


def _copy_(self: Any, src: Any, non_blocking: bool = False) -> list[Tensor]:
    """Copies each tensor of the second list into that of the first."""
    _checked("_foreach_copy_", self, src)
    return [x.copy_(source, non_blocking) for x, source in zip(self, src)]


OTHERS = {"_foreach_pow": _pow, "_foreach_norm": _norm, "_foreach_max": _max,
          "_foreach_copy_": _copy_}  # fmt: skip
NAMES = [
    *OTHERS,
    *(f"{PREFIX}{n}" for n in sorted(UNARY | BINARY | {"addcmul", "addcdiv", "lerp"})
      if n not in ("zero", "pow")),
    *(f"{PREFIX}{n}_" for n in sorted(UNARY | BINARY | {"addcmul", "addcdiv", "lerp"})
      if n != "clone"),
]  # fmt: skip
__all__ += NAMES


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise missing("cugrad", name)
    function = OTHERS.get(name) or _function(name)
    function.__name__ = function.__qualname__ = name
    return globals().setdefault(name, function)
