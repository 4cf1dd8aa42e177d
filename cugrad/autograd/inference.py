"""Inference mode: ops are not recorded, and what they make can never take part in autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from ..runtime.contexts import Context, F, decorated
from ..runtime.kept import Switch
from ..tensor import UNCOUNTED, Tensor, fresh
from .mode import state

__all__ = ["inference_mode", "is_inference", "is_inference_mode_enabled", "out_of_inference"]


def is_inference_mode_enabled() -> bool:
    """Whether this thread is in inference mode."""
    return state.inference


def is_inference(input: Tensor) -> bool:
    """Whether a tensor was made in inference mode."""
    if not isinstance(input, Tensor):
        raise TypeError(
            "is_inference(): argument 'input' (position 1) must be Tensor, not "
            f"{type(input).__name__}"
        )
    return input.is_inference()


class _Inference(Switch):
    """A switch of the inference mode, which restores all that depends on it."""

    def as_is(self) -> tuple[Any, ...]:
        return state.inference, state.grad_mode, state.levels, state.hidden

    def put_back(self, before: tuple[Any, ...]) -> None:
        inference, grad_mode, levels, hidden = before
        fresh.counter = UNCOUNTED if inference else None
        state.switch(inference=inference, grad_mode=grad_mode, levels=levels, hidden=hidden)


class out_of_inference(_Inference):
    """Gradients are recorded inside, in inference mode too; forward mode stays as it is."""

    def change(self, before: tuple[Any, ...]) -> None:
        _, _, levels, hidden = before
        self.put_back((False, True, levels, hidden))


class inference_mode(_Inference, Context):
    """Ops inside are not recorded, and their results never will be: the extreme form of `no_grad`.

    What is made inside is an inference tensor: no version is counted and no view remembered.
    Outside it can be read, but not saved for backward, nor changed in place; `clone()` makes a
    normal tensor of it. Forward mode is off inside. `inference_mode(False)` is normal mode, with
    gradients. A decorator too, with or without parentheses.

    >>> import cugrad as torch
    >>> x = torch.ones(1, 2, 3, requires_grad=True)
    >>> with torch.inference_mode():
    ...     y = x * x
    >>> y.requires_grad, y.is_inference()
    (False, True)
    >>> y._version
    Traceback (most recent call last):
    RuntimeError: Inference tensors do not track version counter.
    >>> @torch.inference_mode()
    ... def func(x):
    ...     return x * x
    >>> func(x).requires_grad
    False
    """

    @overload
    def __new__(cls, mode: F) -> F: ...  # type: ignore[misc]
    @overload
    def __new__(cls, mode: bool = True) -> inference_mode: ...
    def __new__(cls, mode: bool | Callable[..., Any] = True) -> Any:
        if isinstance(mode, bool):
            return super().__new__(cls)
        return decorated(cls, mode)

    def __init__(self, mode: bool = True) -> None:
        self.mode = mode

    def change(self, before: tuple[Any, ...]) -> None:
        inference, _, levels, hidden = before
        if self.mode is not inference:
            levels, hidden = hidden if inference else (), () if inference else levels
        self.put_back((self.mode, not self.mode, levels, hidden))

    def clone(self) -> inference_mode:
        return type(self)(self.mode)
