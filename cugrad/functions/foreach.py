"""Functions of lists of tensors, `torch._foreach_add_` and its like, which optimizers call.

On CUDA a function of elements is one kernel for many tensors, see `maths/together.py`; whatever
that does not take comes one after another. A name is the function's behind `_foreach_`; with `_` at
its end it changes the tensors of the first list in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..runtime.absent import missing
from ..tensor import Tensor
from .maths.lists import largest_together, norms_together
from .maths.together import (
    are_plain,
    changed_together,
    computed_together,
    copied_together,
    zeroed_together,
)

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
    if not tensors:
        raise RuntimeError("Tensor list must have at least one tensor.")
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


def _together(
    base: str, function: Any, tensors: Any, rest: Any, options: dict[str, Any], inplace: bool
) -> tuple[list[Any], list[int]]:
    """What kernels for many tensors make of them, and the places of those that they leave."""
    nothing, every = [None] * len(tensors), list(range(len(tensors)))
    if base == "zero":
        return nothing, zeroed_together(tensors)
    lists, names, numbers, by = [tensors], list[str | None](), list[Any](), None
    for name, operand in [*((None, x) for x in rest), *options.items()]:
        is_list = isinstance(operand, (list, tuple))
        if is_list and operand and isinstance(operand[0], Tensor) and name is None:
            lists.append(operand)
        elif isinstance(operand, Tensor):
            if name is not None or by is not None:
                return nothing, every
            by = operand
        else:
            numbers.append(operand if is_list else [operand] * len(tensors))
            names.append(name)
    count = len(lists) + (by is not None)

    def of_element(*values: Any) -> Any:
        told = list(zip(names, values[count:]))
        plain = [value for name, value in told if name is None]
        return function(*values[:count], *plain, **{k: v for k, v in told if k is not None})

    label = " ".join([base, str(count), *[name or "" for name in names]])
    told = list(zip(*numbers)) if numbers else [()] * len(tensors)
    if inplace:
        return nothing, changed_together(label, of_element, lists, told, by)
    return computed_together(label, of_element, lists, told, by)


def _function(name: str) -> Callable[..., Any]:
    inplace = name.endswith("_")
    base = name.removeprefix(PREFIX).rstrip("_")
    method, function = (
        _of_tensor(base, inplace),
        None if base == "zero" else _of_tensor(base, False),
    )

    def foreach(self: Any, *rest: Any, **options: Any) -> Any:
        rest, options = _numbers(base, rest, options)
        _checked(name, self, *rest)
        if base in ("addcmul", "addcdiv") and len(rest) == 3:
            *rest, value = rest  # type: ignore[assignment]
            options["value"] = _each(value, len(self)) if isinstance(value, Tensor) else value
        results, left = _together(base, function, self, rest, options, inplace)
        for i in left:
            more = {k: _at(v, i) for k, v in options.items()}
            results[i] = method(self[i], *[_at(r, i) for r in rest], **more)
        return self if inplace else tuple(results)

    return foreach


def _each(numbers: Tensor, count: int) -> list[Any]:
    """The numbers of a tensor, one for each of so many tensors."""
    if numbers.shape != (count,):
        raise RuntimeError(
            f"Expected scalars to be a tensor of {count} numbers, one for each tensor of the "
            f"lists, got one of shape {list(numbers.shape)}"
        )
    return list(numbers.tolist())


def _pow(self: Any, exponent: Any) -> tuple[Tensor, ...]:
    """A list to a power, or a number to those of a list."""
    if isinstance(self, (list, tuple)):
        _checked("_foreach_pow", self, exponent)
        results, left = _together("pow", Tensor.__pow__, self, [exponent], {}, False)
        for i in left:
            results[i] = self[i] ** _at(exponent, i)
        return tuple(results)
    return tuple([self**x for x in exponent])


def _norm(self: Any, ord: float = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The norm of each tensor as a vector."""
    _checked("_foreach_norm", self)
    norms: list[Any] = [None] * len(self)
    if dtype is None and not isinstance(ord, str) and are_plain(self):
        norms = norms_together(self, float(ord))
    return tuple([x.norm(ord, dtype=dtype) if n is None else n for x, n in zip(self, norms)])


def _max(self: Any) -> tuple[Tensor, ...]:
    """The largest element of each tensor."""
    _checked("_foreach_max", self)
    largest: Any = largest_together(self) if are_plain(self) else [None] * len(self)
    return tuple([x.max() if y is None else y for x, y in zip(self, largest)])


def _copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    """Copies each tensor of the second list into that of the first."""
    _checked("_foreach_copy_", self, src)
    for i in copied_together(self, src):
        self[i].copy_(src[i], non_blocking)
    return self


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
