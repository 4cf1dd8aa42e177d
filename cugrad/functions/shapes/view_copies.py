"""Views as copies, `transpose_copy` and its like, and views in place, `transpose_` and its like."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import Any

from ...autograd.forward.dual import below, set_tangent
from ...autograd.inference import inference_mode
from ...autograd.mode import state
from ...autograd.recording.record import recorded
from ...autograd.recording.views import NORMAL, Step, became, check_inplace, hand_over, lead_back
from ...dtypes import dtype as Dtype
from ...ops.table import TABLE
from ...tensor import Tensor, make
from ..calls.arguments import array_of
from ..calls.out import renaming
from . import splitting, strided, views

# Copies -------------------------------------------------------------------------------------------


def _copied(result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple([recorded.clone(x, "C") for x in result])
    return recorded.clone(result, "C")


def _copying(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)  # which says what arguments there are
    def call(input: Tensor, *args: Any, **options: Any) -> Any:
        array_of(input, name)
        return _copied(function(input, *args, **options))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"What `{name.removesuffix('_copy')}` sees, in memory of its own."
    return call


def _slice(
    input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    index = (slice(None),) * views.D.canonical_dim(dim, input._array.ndim)
    return input[(*index, slice(start, end, step))]


def _expanded(input: Tensor, size: Any, *, implicit: bool = False) -> Tensor:
    return views.broadcast_to(input, size)


def _split(input: Tensor, split_size_or_sections: Any, dim: int = 0) -> Any:
    return splitting.split(input, split_size_or_sections, dim)


def _unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    return strided.unfold(input, dimension, size, step)


def _seen(input: Tensor, size: Any = None, dtype: Any = None) -> Tensor:
    """What `view` answers, of a copy where a view would not do."""
    if isinstance(size, (Dtype, type)):
        size, dtype = None, size
    how: dict[str, Any] = {"dtype": dtype} if size is None else {"size": size}
    try:
        return strided.view(input, **how)
    except RuntimeError:
        return strided.view(recorded.clone(input, "C"), **how)


_VIEWS: dict[str, Callable[..., Any]] = {
    "alias_copy": lambda input: input,
    "as_strided_copy": strided.as_strided,
    "detach_copy": lambda input: input.detach(),
    "diagonal_copy": views.diagonal,
    "expand_copy": _expanded,
    "narrow_copy": views.narrow,
    "permute_copy": views.permute,
    "select_copy": views.select,
    "slice_copy": _slice,
    "split_copy": _split,
    "split_with_sizes_copy": splitting.split_with_sizes,
    "squeeze_copy": views.squeeze,
    "t_copy": views.t,
    "transpose_copy": views.transpose,
    "unbind_copy": splitting.unbind,
    "unfold_copy": _unfold,
    "unsqueeze_copy": views.unsqueeze,
    "view_as_complex_copy": strided.view_as_complex,
    "view_as_real_copy": lambda input: strided.view_as_real(recorded.clone(input)),
    "view_copy": _seen,
}
FUNCTIONS = {name: _copying(name, view) for name, view in _VIEWS.items()}
globals().update(FUNCTIONS)
__all__ = tuple(FUNCTIONS)
TAKES_OUT = frozenset(FUNCTIONS)


# In place -----------------------------------------------------------------------------------------


def _in_place(
    name: str, function: Callable[..., Tensor], inverse: Callable[..., tuple[Step, ...]] | None
) -> Callable[..., Tensor]:
    def call(input: Tensor, *args: Any, **options: Any) -> Tensor:
        array_of(input, name)
        check_inplace(input, name)
        before = make(input._array, input._requires_grad, input._node)
        before._counter, view = input._counter, None if input._rare is None else input._rare.view
        if view is not None:
            before.rare.view = view
        with inference_mode(False) if _has_history(input) else nullcontext():
            out = function(before, *args, **options)
        if out is before:
            return input
        input._form, input._array, input._counter = None, out._array, before._counter
        if view is not None and out._rare is not None:
            input.rare.view = out._rare.view
        elif input._rare is not None and input._rare.views:
            if inverse is not None:
                lead_back(input, inverse(out, before._array))
            elif not input._requires_grad or input._node is not None:  # else it stays the leaf
                hand_over(input, before, out)
        became(input, out._node)
        for level, tangent in dict((input._rare and input._rare.tangents) or {}).items():
            if tangent is not None:
                with below(level):
                    set_tangent(input, level, function(tangent, *args, **options))
        return input

    call.__name__ = name
    call.__qualname__ = f"Tensor.{name}"
    call.__doc__ = f"`{name.removesuffix('_')}` in place: this tensor becomes that view."
    return call


def _has_history(t: Tensor) -> bool:
    """Whether a tensor's gradient must go through this change, be it recorded or not."""
    view = None if t._rare is None else t._rare.view
    has_edge = t._node is not None or (view is not None and view.creation == NORMAL)
    return t._requires_grad and has_edge and not state.grad_enabled


def _shaped(out: Tensor, old: Any) -> tuple[Step, ...]:
    return ((TABLE["view"], {"shape": old.shape}),)


def _turned(out: Tensor, old: Any) -> tuple[Step, ...]:
    view = None if out._rare is None else out._rare.view
    return () if view is None else view.steps


# The view op, and the steps that lead from its result back to an array as it was, if it has all
# of its elements.
_MOVES: dict[str, tuple[Callable[..., Tensor], Callable[..., tuple[Step, ...]] | None]] = {
    "as_strided_": (strided.as_strided, None),
    "squeeze_": (views.METHODS["squeeze"], _shaped),
    "swapaxes_": (renaming(views.transpose), _turned),
    "swapdims_": (views.transpose, _turned),
    "t_": (views.t, _turned),
    "transpose_": (views.transpose, _turned),
    "unsqueeze_": (views.unsqueeze, _shaped),
}

METHODS = {name: _in_place(name, *functions) for name, functions in _MOVES.items()}
METHODS["narrow_copy"] = FUNCTIONS["narrow_copy"]
