"""Inference mode: ops are not recorded, and what they make can never take part in autograd."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..tensor import UNCOUNTED, Tensor, fresh
from .contexts import Context, decorated
from .mode import enable_grad, state

__all__ = ["inference_mode", "is_inference", "is_inference_mode_enabled", "out_of_inference"]


def is_inference_mode_enabled() -> bool:
    """Whether this thread is in inference mode."""
    return state.inference


def is_inference(input: Tensor) -> bool:
    """Whether a tensor was made in inference mode."""
    return input.is_inference()


@contextmanager
def out_of_inference() -> Iterator[None]:
    """Gradients are recorded inside, in inference mode too; forward mode stays as it is."""
    if not state.inference:
        with enable_grad():
            yield
        return
    was = state.inference, state.grad_mode, state.levels, state.hidden
    try:
        inference_mode._switch(False, True, state.levels, state.hidden)
        yield
    finally:
        inference_mode._switch(*was)


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
        levels, hidden = state.levels, state.hidden
        self._previous.append((state.inference, state.grad_mode, levels, hidden))
        if self.mode is not state.inference:
            levels, hidden = hidden if state.inference else (), () if state.inference else levels
        self._switch(self.mode, not self.mode, levels, hidden)

    def __exit__(self, *exc: object) -> None:
        self._switch(*self._previous.pop())

    @staticmethod
    def _switch(inference: bool, grad_mode: bool, levels: Any, hidden: Any) -> None:
        fresh.counter = UNCOUNTED if inference else None
        state.switch(inference=inference, grad_mode=grad_mode, levels=levels, hidden=hidden)

    def clone(self) -> inference_mode:
        return type(self)(self.mode)
