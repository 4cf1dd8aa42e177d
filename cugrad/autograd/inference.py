"""Inference mode: ops are not recorded, and what they make can never take part in autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..tensor import UNCOUNTED, Tensor, fresh
from .contexts import Context, decorated
from .mode import state

__all__ = ["inference_mode", "is_inference", "is_inference_mode_enabled"]

def is_inference_mode_enabled() -> bool:
    """Whether this thread is in inference mode."""
    return state.inference


def is_inference(input: Tensor) -> bool:
    """Whether a tensor was made in inference mode."""
    return input.is_inference()


class inference_mode(Context):
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

    def __new__(cls, mode: bool | Callable[..., Any] = True) -> Any:
        if isinstance(mode, bool):
            return super().__new__(cls)
        return decorated(cls, mode)

    def __init__(self, mode: bool = True) -> None:
        self.mode = mode
        self._previous: list[tuple[Any, ...]] = []

    def __enter__(self) -> None:
        self._previous.append((state.inference, state.grad_mode, state.levels, state.hidden))
        if self.mode and not state.inference:
            state.hidden, state.levels = state.levels, ()
        elif state.inference and not self.mode:
            state.levels, state.hidden = state.hidden, ()
        self._switch(self.mode, not self.mode)

    def __exit__(self, *exc: object) -> None:
        inference, grad_mode, state.levels, state.hidden = self._previous.pop()
        self._switch(inference, grad_mode)

    @staticmethod
    def _switch(inference: bool, grad_mode: bool) -> None:
        state.inference, state.grad_mode = inference, grad_mode
        state.grad_enabled = grad_mode and not inference
        fresh.counter = UNCOUNTED if inference else None
        state.refresh()

    def clone(self) -> inference_mode:
        return type(self)(self.mode)
