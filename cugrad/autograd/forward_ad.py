"""Forward-mode automatic differentiation: dual tensors, a value with its tangent."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..runtime.contexts import Context
from ..runtime.kept import Switch
from ..tensor import Tensor
from .forward.dual import below, hide_tangent, laid_out, leave, set_tangent, tangent_of
from .forward.dual_inplace import own
from .mode import Level, state

__all__ = [
    "UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual",
    "unpack_dual",
]  # fmt: skip


class UnpackedDualTensor(NamedTuple):
    """What `unpack_dual` returns: `primal`, and `tangent` or None."""

    primal: Tensor
    tangent: Tensor | None


def __getattr__(name: str) -> Any:
    if name == "_current_level":  # PyTorch's own tests read it
        return -1 if state.dual is None else 0
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def enter_dual_level() -> int:
    """Opens the level at which dual tensors can be made; returns its number, 0.

    RuntimeError when one is open: `func.jvp` nests, this does not.
    """
    if state.dual is not None:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    level = Level()
    state.switch(levels=(*state.levels, level), dual=level)
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Closes the level and forgets the tangents made at it."""
    if state.dual is None and level is None:
        raise RuntimeError("Dual level must be a positive number: there is none to exit.")
    if state.dual is None or level not in (None, 0):
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This is "
            "not supported."
        )
    leave(state.dual)
    state.dual = None


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A tensor that shares the elements of `tensor` and carries `tangent`, of the same shape.

    Differentiable in both. Ops on dual tensors compute the tangent of their result: the product of
    their Jacobian and the tangents of their inputs.

    Raises RuntimeError outside `dual_level`, for a tangent of another shape, and for a tensor that
    has a tangent; ValueError for integers.

    >>> import cugrad as torch
    >>> import cugrad.autograd.forward_ad as fwAD
    >>> with fwAD.dual_level():
    ...     x = fwAD.make_dual(torch.tensor([1., 2.]), torch.tensor([1., 0.]))
    ...     fwAD.unpack_dual(x * x).tangent
    tensor([2., 0.])
    """
    current = state.dual
    if level is not None and level < 0 or level is None and current is None:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to "
            "enter_dual_level() first."
        )
    if level or current is None:
        raise RuntimeError(f"Invalid level given to _make_dual: {level}, want 0, of a dual_level()")
    check_dual(tensor, tangent)
    if tangent_of(tensor, current) is not None:
        raise RuntimeError(
            "Making a dual Tensor based on a Tensor that already has a forward gradient at the "
            "same level 0 is not supported."
        )
    if tangent_of(tangent, current) is not None:
        raise RuntimeError(
            "Setting a forward grad that itself has a forward gradient at the same level 0 is not "
            "supported: the tangent is a dual tensor."
        )
    dual = tensor.view_as(tensor)
    tangent = laid_out(tangent, tensor)
    set_tangent(dual, current, tangent)
    if tangent._base is None:
        own(tangent, tensor if tensor._base is None else tensor._base, current)
    return dual


def check_dual(tensor: Tensor, tangent: Tensor) -> None:
    """TypeError, ValueError or RuntimeError for what cannot be a tensor and its tangent."""
    for what, x in (("primal", tensor), ("tangent", tangent)):
        if not isinstance(x, Tensor):
            raise TypeError(f"make_dual(): {what} must be Tensor, not {type(x).__name__}")
        if not (x.is_floating_point() or x.is_complex()):
            raise ValueError(f"Expected {what} to be floating point or complex, but got: {x.dtype}")
    if tensor.shape != tangent.shape:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original "
            f"Tensor, this is not supported. Tensor is of size {list(tensor.shape)} while the "
            f"given forward gradient is of size {list(tangent.shape)}."
        )


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The value of a dual tensor, a view of it, and its tangent, None for a tensor that has none.

    >>> import cugrad as torch
    >>> torch.autograd.forward_ad.unpack_dual(torch.ones(2)).tangent is None
    True
    """
    current = state.dual
    if level is not None and level < 0 or level is None and current is None:
        return UnpackedDualTensor(tensor, None)
    tangent = None if current not in state.levels else tangent_of(tensor, current)
    if tangent is None:
        return UnpackedDualTensor(tensor.view_as(tensor), None)
    if level:
        raise RuntimeError(f"Invalid level given to _fw_primal: {level}, want 0, of a dual_level()")
    return UnpackedDualTensor(primal_of(tensor, current), tangent)


def primal_of(tensor: Tensor, level: Any) -> Tensor:
    """A view of a tensor that has no tangent at `level`."""
    if tangent_of(tensor, level) is None:
        return tensor
    with below(level):
        primal: Tensor = tensor.view_as(tensor)
    hide_tangent(primal, level)
    return primal


class dual_level(Switch, Context):
    """The context in which dual tensors are made and used; a decorator too.

    Tangents are gone when it ends. `func.jvp` is the form that nests.
    """

    def as_is(self) -> Any:
        return state.dual, state.levels

    def change(self, before: Any) -> int:
        enter_dual_level()
        return 0

    def put_back(self, before: Any) -> None:
        dual, levels = before
        if dual is None and state.dual is not None:
            leave(state.dual)
        state.switch(dual=dual, levels=tuple([x for x in state.levels if x in levels]))


def _is_fwd_grad_enabled() -> bool:
    """Whether ops compute tangents, which they do but within the context below."""
    return state.dual is None or bool(state.levels)


class _set_fwd_grad_enabled(Switch, Context):
    """Whether ops inside compute tangents; PyTorch's tests switch it off."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode

    def as_is(self) -> Any:
        return state.levels

    def change(self, before: Any) -> None:
        dual = () if state.dual is None else (state.dual,)
        state.switch(levels=(state.levels or dual) if self.mode else ())

    def put_back(self, before: Any) -> None:
        state.switch(levels=before)

    def clone(self) -> _set_fwd_grad_enabled:
        return type(self)(self.mode)
