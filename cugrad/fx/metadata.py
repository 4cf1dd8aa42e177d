"""What is noted of tensors that pass through a graph: shapes, dtypes, strides."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..dtypes import dtype as Dtype
from ..functions.shapes.layouts import memory_format
from ..tensor import Size

__all__ = ["TensorMetadata", "dtype_name"]


class TensorMetadata(NamedTuple):
    """What is known of a tensor without its values."""

    shape: Size
    dtype: Dtype
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: memory_format | None
    is_quantized: bool
    qparams: dict[str, Any]


def dtype_name(kind: Dtype) -> str:
    """The short name of a dtype.

    >>> import cugrad as torch
    >>> [dtype_name(d) for d in (torch.float32, torch.bfloat16, torch.int64, torch.bool)]
    ['f32', 'bf16', 'i64', 'b8']
    """
    name = str(kind).partition(".")[2]
    if name == "bool":
        return "b8"
    for long, short in (("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "i"),
                        ("complex", "c")):  # fmt: skip
        if name.startswith(long):
            return short + name[len(long) :].replace("_", "")
    return name
