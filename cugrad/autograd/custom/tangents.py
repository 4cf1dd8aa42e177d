"""What a custom Function saves and what its jvp returns, checked in PyTorch's words."""

from __future__ import annotations

from typing import Any

from ...dtypes import is_differentiable
from ...runtime.dispatching import overrides
from ...tensor import Tensor, aliased
from ..transforms import running
from .context import BackwardCFunction

__all__ = ["among", "check_saved", "check_tangent", "viewed"]


def among(tensors: Any, t: Tensor) -> bool:
    """Whether it is one of them itself."""
    return id(t) in map(id, tensors)


def check_saved(node: BackwardCFunction, args: tuple[Any, ...], result: Any) -> None:
    """RuntimeError if an input is also an output: which of the two should be saved?"""
    outputs = result if isinstance(result, tuple) else (result,)
    for t in (*(node.to_save or ()), *(node.saved_for_forward or ())):
        if t is not None and among(args, t) and among(outputs, t):
            if not (isinstance(node.dirty_tensors, tuple) and among(node.dirty_tensors, t)):
                raise RuntimeError(
                    "An input that has been returned as-is as output is being saved for backward. "
                    "This is not supported if you override setup_context. You should return and "
                    "save a view of the input instead, e.g. with x.view_as(x) or setup ctx inside "
                    "the forward function itself."
                )


def check_tangent(
    node: BackwardCFunction, nr: int, out: Tensor, t: Any, args: tuple[Any, ...],
    tangents: list[Any], versions: list[int],
) -> None:  # fmt: skip
    """RuntimeError for what cannot be the tangent of output `nr`."""
    if not isinstance(t, Tensor):
        raise RuntimeError(
            f"expected Variable or None (got {type(t).__name__}) for grad output {nr}."
        )
    hidden = among(node.non_differentiable or (), out)
    if hidden or not is_differentiable(out._array.dtype):
        raise RuntimeError(
            f"Function's jvp returned a gradient at position {nr}, but  the corresponding forward "
            "output is not a differentiable Tensor.You should return None at that position instead."
        )
    if t._array.shape != out._array.shape:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original "
            f"Tensor, this is not supported. Tensor is of size {list(out.shape)} while the given "
            f"forward gradient is of size {list(t.shape)}."
        )
    if among(node.dirty_tensors or (), out):
        changed = [a for a, before, version in zip(args, tangents, versions, strict=True)
                   if t is before and t.counter[0] != version]  # fmt: skip
        if not among(tuple(changed), out):
            raise RuntimeError(
                "An inplace custom Function is not modifying the forward mode gradients inplace. "
                "If the forward is modifying an input inplace, then the jvp function must modify "
                "the corresponding gradient inplace."
            )
    elif nr in (node.viewing or ()) and not running.levels:  # a tangent inside vmap is a new view
        _check_view(t, tangents[(node.viewing or {})[nr]])


def _check_view(t: Tensor, of: Tensor | None) -> None:
    """RuntimeError unless `t`, the tangent of a view, is a view of the tangent `of`."""
    if t._base is None:
        raise RuntimeError(
            "A custom Function's forward is returning a view (or an input as-is) but the jvp is "
            "not returning a view."
        )
    if of is not None and of._base is not None and t._base is not of._base:
        raise RuntimeError(
            "A custom Function is returning a view but the jvp is not returning a view of the same "
            "base as the given grad input."
        )
    if of is not None and of._base is None and t._base is not of:
        raise RuntimeError(
            "A custom Function is returning a view but the jvp is not returning a view of the "
            "given grad input."
        )


def viewed(out: Any, args: tuple[Any, ...], dirty: tuple[Tensor, ...]) -> int | None:
    """The number of the input that an output is as it was, or is a view of."""
    if not isinstance(out, Tensor) or among(dirty, out):
        return None
    base = out._base
    for k, a in enumerate(args):
        if not isinstance(a, Tensor):
            continue
        if a is out or base is not None and (base is a or base is a._base):
            return k
    return None


def handed_on(out: Tensor) -> Tensor:
    """What stands for an output that was there before; of its class, if that takes calls."""
    if overrides(type(out)):
        return out.detach()
    return aliased(out)
