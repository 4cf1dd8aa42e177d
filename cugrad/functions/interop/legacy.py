"""PyTorch's old names of tensor types: torch.FloatTensor, torch.cuda.LongTensor and so on."""

from __future__ import annotations

import warnings
from typing import Any, Union

from ... import dtypes
from ...device import set_default_device
from ...tensor import Size, Tensor
from ..creation import factories as creation

__all__ = ["TYPES", "TensorType", "set_default_tensor_type", "typename"]


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


def set_default_tensor_type(t: Any) -> None:
    """The dtype and the device of such a type are the defaults of this thread, from now on.

    Args:
        t: a type of floating-point elements, such as `torch.cuda.FloatTensor`, or its name. It
            names the host where it names no GPU.

    TypeError for other types, and what `set_default_device` raises. PyTorch deprecates it.
    """
    warnings.warn(
        "torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use "
        "torch.set_default_dtype() and torch.set_default_device() as alternatives.", stacklevel=2,
    )  # fmt: skip
    named = t.name if isinstance(t, TensorType) else t
    place, _, kind = str(named).removeprefix("torch.").rpartition(".")
    is_type = isinstance(named, str) and kind in TYPES and place in ("", "cuda")
    if not is_type or not TYPES[kind].dtype.is_floating_point:
        raise TypeError(
            f"invalid type object: only floating-point types are supported as the default type, "
            f"got {t!r}"
        )
    set_default_device(place or "cpu")  # first: it may not be there
    dtypes.set_default_dtype(TYPES[kind].dtype)


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
