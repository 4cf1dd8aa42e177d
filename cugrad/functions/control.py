"""Choices and checks that PyTorch's compilers see as ops: here they are Python's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..tensor import Tensor
from .creation.factories import tensor

__all__ = ["_assert", "_assert_async", "_check", "_check_is_size", "_check_tensor_all",
           "_check_with", "_shape_as_tensor", "cond", "while_loop"]  # fmt: skip


def cond(
    pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any],
    operands: tuple[Any, ...] | list[Any] = (),
) -> Any:  # fmt: skip
    """`true_fn(*operands)` where `pred`, a bool or a tensor of one element, is true, or `false_fn`.

    >>> import cugrad as torch
    >>> torch.cond(torch.tensor(True), torch.sin, torch.cos, (torch.zeros(2),))
    tensor([0., 0.])
    """
    if not isinstance(pred, (bool, int, float, Tensor)):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    if isinstance(pred, Tensor) and pred.numel() != 1:
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    if not isinstance(operands, (tuple, list)):
        raise RuntimeError(f"Expect operands to be a tuple of tensors, but got {operands}.")
    return (true_fn if pred else false_fn)(*operands)


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any
) -> Any:
    """`body_fn` of its own results as long as `cond_fn` of them is true."""
    while cond_fn(*carried_inputs):
        carried_inputs = body_fn(*carried_inputs)
        if not isinstance(carried_inputs, (tuple, list)):
            carried_inputs = (carried_inputs,)
    return carried_inputs


def _assert(condition: Any, message: str) -> None:
    """AssertionError with the message unless the condition holds."""
    if not condition:
        raise AssertionError(message)


def _check(cond: Any, message: Callable[[], Any] | None = None) -> None:
    """RuntimeError of the message unless the condition holds."""
    _check_with(RuntimeError, cond, message)


def _check_with(kind: type[Exception], cond: Any, message: Any = None) -> None:
    if not cond:
        text = "Expected cond to be True, but got False" if message is None else str(message())
        raise kind(text)


def _check_is_size(i: int, message: Any = None, *, max: int | None = None) -> None:
    _check(i >= 0 and (max is None or i <= max), message)


def _check_tensor_all(cond: Tensor, message: Any = None) -> None:
    _check(bool(cond.all()), message)


def _assert_async(tensor: Tensor, assert_msg: str | None = None) -> None:
    """RuntimeError unless the only element is true; the host waits for it."""
    if not bool(tensor):
        raise RuntimeError(assert_msg or "Expected Tensor with single nonzero value")


def _shape_as_tensor(self: Tensor) -> Tensor:
    """The shape as a tensor of integers."""
    return tensor(list(self.shape), device="cpu")
