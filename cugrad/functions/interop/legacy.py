"""PyTorch's old names of tensor types: torch.FloatTensor, torch.cuda.LongTensor and so on."""

from __future__ import annotations

from typing import Any, Union

from ... import dtypes
from ...tensor import Size, Tensor
from ..creation import factories as creation

__all__ = ["TYPES", "TensorType", "typename"]


class TensorType:
    """A dtype and a device as something to call, and to ask `isinstance` of.

    >>> import cugrad as torch
    >>> x = torch.LongTensor([1, 2])
    >>> x.dtype, isinstance(x, torch.LongTensor), isinstance(x, torch.FloatTensor), x.type()
    (torch.int64, True, False, 'torch.LongTensor')
    """

    sparse = False

    def __init__(self, dtype: dtypes.dtype, device: str) -> None:
        self.dtype, self.device = dtype, device
        place = "" if device == "cpu" else f"{device}."
        place += "sparse." if self.sparse else ""
        self.name = f"torch.{place}{dtypes.type_name(dtype)}Tensor"

    def __call__(self, *data: Any) -> Tensor:
        """`FloatTensor(2, 3)` is uninitialised, `FloatTensor([1, 2])` has data."""
        if len(data) == 1 and not isinstance(data[0], (int, Size)):
            return creation.tensor(data[0], dtype=self.dtype, device=self.device)
        return creation.empty(*(data or (0,)), dtype=self.dtype, device=self.device)

    def __instancecheck__(self, instance: Any) -> bool:
        return (
            isinstance(instance, Tensor)
            and instance.dtype is self.dtype
            and instance.device.type == self.device
            and instance.is_sparse is self.sparse
        )

    def __or__(self, other: Any) -> Any:
        """In an annotation: a tensor, or something else."""
        return Union[Tensor, other]  # noqa: UP007  of two values

    __ror__ = __or__

    def __repr__(self) -> str:
        return f"<class '{self.name}'>"

    def __str__(self) -> str:
        return self.name


def types_on(device: str) -> dict[str, TensorType]:
    """The old types of one kind of device, by name."""
    return {f"{dtypes.type_name(d)}Tensor": TensorType(d, device)
            for d in dtypes.ALL if not d.is_complex}  # fmt: skip


TYPES = types_on("cpu")


def typename(obj: Any) -> str:
    """The name of an object's type: 'torch.FloatTensor' for a tensor.

    >>> import cugrad as torch
    >>> torch.typename(torch.ones(1)), torch.typename(3)
    ('torch.FloatTensor', 'int')
    """
    if isinstance(obj, Tensor):
        return obj.type()
    kind = obj if isinstance(obj, type) else type(obj)
    module = "" if kind.__module__ in ("builtins", "__builtin__") else f"{kind.__module__}."
    return module + kind.__qualname__
