"""Gradients of sparse tensors: from those of their values, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import dtypes
from ..functions import FUNCTIONS
from ..functions.creation.factories import zeros
from ..functions.creation.ranges import arange
from ..tensor import Tensor

__all__ = ["add_hook", "add_post_hook", "once_a_place", "retain", "retains", "values_at"]


def once_a_place(x: Any, values: Tensor) -> Any:
    """The gradient of `x`, of that of its values, which is the same where a place is listed twice.

    Of what depends on the sum at a place alone, as all ops do.
    """
    keys: Any
    inverse: Any
    keys, inverse = (None, None) if x._coalesced else x._distinct_keys()
    if keys is None or keys.shape == inverse.shape:
        return x._with(values)
    at = zeros(keys.shape[0], dtype=dtypes.int64, device=x.device)
    at = at.index_copy(0, inverse, arange(inverse.shape[0], device=x.device))
    return x._at(keys, values.index_select(0, at))


def values_at(x: Any, grad: Any) -> Tensor:
    """The gradient of the values of `x`, of one at places of `x`: it is zero at the others."""
    if not isinstance(grad, Tensor) or not grad.is_sparse:
        raise RuntimeError(
            "attempting to assign a gradient to a tensor that has data of a different type: got "
            f"{'a dense one' if isinstance(grad, Tensor) else type(grad).__name__}, want it sparse"
        )
    if grad._places is x._places:
        return grad._values()
    grad = grad.coalesce()
    keys, own = grad._keys(), x._keys()
    if not FUNCTIONS["isin"](keys, own).all():
        raise RuntimeError(
            "a gradient of a sparse tensor has elements at places that the tensor does not list: "
            "compute it from the gradient that the hook is given, or from the tensor"
        )
    if not keys.shape[0]:
        return FUNCTIONS["zeros_like"](x._values())
    at = FUNCTIONS["searchsorted"](keys, own).clamp(max=keys.shape[0] - 1)
    values = grad._values().index_select(0, at)
    listed = keys.index_select(0, at) == own
    return values * listed.to(values.dtype).reshape(-1, *[1] * (values.dim() - 1))


def add_hook(x: Any, hook: Callable[[Any], Any]) -> Any:
    """Calls `hook(grad)` with the sparse gradient; it may return another at these places."""

    def of_values(g: Tensor) -> Tensor | None:
        changed = hook(once_a_place(x, g))
        return None if changed is None else values_at(x, changed)

    return x._values().register_hook(of_values)


def add_post_hook(x: Any, hook: Callable[[Any], None]) -> Any:
    """Calls `hook(x)` after the gradient of this leaf has been accumulated."""
    return x._values().register_post_accumulate_grad_hook(lambda values: hook(x))


def retain(x: Any) -> None:
    """Makes a sparse tensor that is no leaf keep its gradient in `.grad`."""
    x._values().retain_grad()


def retains(x: Any) -> bool:
    return bool(x._values().retains_grad)
