# Written by python -m tests.documents.stubs --write, and checked by tests/typing.
# mypy: disable-error-code="override, overload-overlap, overload-cannot-match"
"""What signatures are made of, by names that no method of Tensor has."""

import builtins
from collections.abc import Sequence
from types import EllipsisType
from typing import Any, SupportsIndex, TypeAlias

import numpy

from .autograd.recording import node
from .device import device
from .dtypes import dtype
from .functions.calls import out
from .functions.creation import random
from .functions.shapes import layouts
from .tensor import Tensor

_Node: TypeAlias = node.Node
_device: TypeAlias = device
_dtype: TypeAlias = dtype
_layout: TypeAlias = out.layout
Generator: TypeAlias = random.Generator
memory_format: TypeAlias = layouts.memory_format
_bool: TypeAlias = builtins.bool
_int: TypeAlias = builtins.int
_float: TypeAlias = builtins.float
_complex: TypeAlias = builtins.complex
_size: TypeAlias = Sequence[builtins.int]
_Index: TypeAlias = (
    SupportsIndex | slice | EllipsisType | Tensor | Sequence[Any] | numpy.ndarray[Any, Any] | None
)
Number: TypeAlias = builtins.int | builtins.float | builtins.bool
DeviceLikeType: TypeAlias = str | _device | builtins.int
