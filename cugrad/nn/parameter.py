"""Parameter and Buffer: the tensors that a Module finds by itself."""

from __future__ import annotations

from typing import Any

from ..absent import explain
from ..functions.creation.factories import empty
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


class _Buffers(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Tensor) and getattr(value, "_is_buffer", False)


class Buffer(metaclass=_Buffers):
    """A tensor that a Module registers as a buffer when it is assigned as an attribute.

    A Tensor is made, which shares the memory of `data`; `persistent` puts it in the state_dict.

    >>> import cugrad as torch
    >>> layer = torch.nn.Module()
    >>> layer.mean = torch.nn.Buffer(torch.zeros(2))
    >>> layer.state_dict()["mean"]
    tensor([0., 0.])
    """

    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Any:
        source = empty(0) if data is None else data
        buffer: Any = source.detach().requires_grad_(source.requires_grad)
        buffer.persistent, buffer._is_buffer = persistent, True
        return buffer


explain(__name__)
