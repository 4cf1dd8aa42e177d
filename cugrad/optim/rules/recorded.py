"""An update rule on tensors: a step that autograd records, or that is no formula by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...autograd.recording.recorded import recorded
from ...tensor import Tensor

__all__ = ["FORM", "RecordedForm", "follow"]


class RecordedForm:
    """The functions of a rule on tensors and on numbers; `symbols.py` has them on symbols.

    Those that only rules of whole tensors call are last; `batches.py` has them on stacks.
    """

    @staticmethod
    def sqrt(x: Any) -> Any:
        return x.sqrt() if isinstance(x, Tensor) else math.sqrt(x)

    @staticmethod
    def sign(x: Any) -> Any:
        return x.sign() if isinstance(x, Tensor) else math.copysign(float(x != 0), x)

    @staticmethod
    def abs(x: Any) -> Any:
        return abs(x)

    @staticmethod
    def maximum(a: Any, b: Any) -> Any:
        return _extreme(max, "maximum", "clamp_min", a, b)

    @staticmethod
    def minimum(a: Any, b: Any) -> Any:
        return _extreme(min, "minimum", "clamp_max", a, b)

    @staticmethod
    def single(x: Any) -> Any:
        return x if isinstance(x, Tensor) else float(np.float32(x))

    @staticmethod
    def equal(a: Any, b: Any) -> Any:
        return a == b

    @staticmethod
    def where(condition: Any, a: Any, b: Any) -> Any:
        if not isinstance(condition, Tensor):
            chosen = a if condition else b
            return chosen() if callable(chosen) else chosen
        a, b = (x() if callable(x) else x for x in (a, b))
        return recorded.where(condition, *(_tensor(x, condition, (a, b)) for x in (a, b)))

    @staticmethod
    def rank(x: Tensor) -> int:
        """The number of dims of a parameter, or of what has its shape."""
        return x.dim()

    @staticmethod
    def rms(x: Tensor, times: float = 1.0) -> Tensor:
        """The root mean square of all elements, over a number."""
        size: Tensor = x.norm(2) / (max(x.numel(), 1) ** 0.5 * times)
        return size

    @staticmethod
    def norm(x: Tensor) -> Tensor:
        """The Euclidean norm of all elements."""
        norm: Tensor = x.norm()
        return norm

    @staticmethod
    def fused(function: Callable[..., Any], *args: Any) -> Any:
        """`function(*args)`, which is one of elements: a kernel, where tensors are stacked."""
        return function(*args)

    def told(self, like: Tensor, *numbers: Any) -> Sequence[Any]:
        """Numbers for `fused` that are others in each step; None stays None."""
        return numbers


def _extreme(of_numbers: Callable[..., Any], op: str, bound: str, a: Any, b: Any) -> Any:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return getattr(recorded, op)(a, b)
    if isinstance(a, Tensor):
        return getattr(a, bound)(b)
    return getattr(b, bound)(a) if isinstance(b, Tensor) else of_numbers(a, b)


def _tensor(x: Any, condition: Tensor, others: tuple[Any, ...]) -> Tensor:
    if isinstance(x, Tensor):
        return x
    like = next((other for other in others if isinstance(other, Tensor)), None)
    return condition.to(float if like is None else like.dtype).new_full((), x)


FORM = RecordedForm()


def follow(
    function: Callable[..., dict[str, Any]],
    arrays: dict[str, Tensor | None],
    numbers: dict[str, Tensor],
    settings: dict[str, Any],
) -> dict[str, Tensor]:
    """One step of a rule, with a history: tensors get new values in place, by `copy_`.

    `arrays` has the parameter, its gradient, and the states, None for one that is yet to come:
    those that the rule has made are returned.
    """
    is_complex = arrays["param"] is not None and arrays["param"].is_complex()
    values = {name: t if t is None else _apart(t, is_complex) for name, t in arrays.items()}
    counts = {name: t.clone() if t.requires_grad else t.item() for name, t in numbers.items()}
    results = function(FORM, **values, **counts, **settings)
    created = {}
    for name, value in results.items():
        if value is None:
            continue
        old = numbers[name] if name in numbers else arrays[name]
        if isinstance(value, Tensor) and is_complex and name not in numbers:
            value = recorded.view_as_complex(value)
        if old is None:
            created[name] = value.clone()
        elif isinstance(value, Tensor):
            old.copy_(value)
        else:
            old.fill_(value)
    return created


def _apart(t: Tensor, is_complex: bool) -> Tensor:
    """A copy, which the changes to come leave as it is; a complex one as pairs of reals."""
    copy = t.clone()
    return recorded.view_as_real(copy) if is_complex and copy.is_complex() else copy
