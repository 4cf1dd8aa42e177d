"""Variable, PyTorch's old name of a tensor with history: every tensor is one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ..backends import get
from ..dtypes import get_default_dtype
from ..tensor import Tensor, make
from .engine.backward_pass import task

__all__ = ["ImperativeEngine", "Variable"]


class ImperativeEngine:
    """The engine under PyTorch's name, `Variable._execution_engine`."""

    def queue_callback(self, callback: Callable[[], Any]) -> None:
        """Calls `callback()` at the end of the backward pass that runs; one that fails calls none.

        RuntimeError outside of a backward pass.

        >>> import cugrad as torch
        >>> engine = torch.autograd.Variable._execution_engine
        >>> x = torch.ones(2, requires_grad=True)
        >>> handle = x.register_hook(lambda g: engine.queue_callback(lambda: print(x.grad)))
        >>> (x * 3).sum().backward()
        tensor([3., 3.])
        """
        if not task.running:
            raise RuntimeError("Final callbacks can only be installed during backward pass.")
        task.running[-1].callbacks.append(callback)

    def is_checkpoint_valid(self) -> bool:
        """Whether the pass that runs, if any, is for all leaves, as reentrant checkpoints want."""
        return not task.running or task.running[-1].needed is None


class VariableMeta(type):
    """Makes every tensor an instance of Variable."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=VariableMeta):
    """Deprecated: a tensor that shares the elements and the version of `data`, without history.

    TypeError for data that is no tensor. `volatile` has no effect any more.

    >>> import cugrad as torch
    >>> torch.autograd.Variable(torch.ones(2), requires_grad=True)
    tensor([1., 1.], requires_grad=True)
    >>> isinstance(torch.ones(2), torch.autograd.Variable)
    True
    """

    _execution_engine = ImperativeEngine()

    def __new__(
        cls, data: Tensor | None = None, requires_grad: bool = False, volatile: bool = False
    ) -> Any:
        if volatile:
            warnings.warn(
                "volatile was removed and now has no effect. Use `with torch.no_grad():` instead.",
                UserWarning,
                stacklevel=2,
            )
        if data is None:
            data = make(get("cpu").xp.empty((0,), get_default_dtype().numpy))
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        tensor = data.detach()
        tensor.requires_grad = requires_grad
        return tensor
