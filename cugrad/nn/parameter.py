"""Parameter: the tensor that a Module finds by itself."""

from __future__ import annotations

from typing import Any

from ..creation import empty
from ..tensor import UNCOUNTED, Tensor


class Parameter(Tensor):
    """A leaf tensor that a Module registers when it is assigned as an attribute.

    `data` is any tensor, whose memory the parameter shares; only floating-point and complex
    data can require gradients, else RuntimeError.

    >>> import cugrad as torch
    >>> torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    Parameter containing:
    tensor([1., 2.], requires_grad=True)
    """

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        source = empty(0) if data is None else data
        if not isinstance(source, Tensor):
            raise TypeError(
                f"Parameter: got data of type {type(data).__name__}, want a Tensor; "
                "make one with cugrad.tensor(data)"
            )
        self.fill_in(source._array)
        self._counter = UNCOUNTED if source.is_inference() else None
        self.requires_grad = requires_grad

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.detach().clone(), self.requires_grad)
        return memo[id(self)]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.detach(), self.requires_grad)
