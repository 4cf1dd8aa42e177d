"""torch.types: names for the annotations of programs."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import IO, Any, TypeAlias, Union

from .device import device
from .dtypes import dtype
from .functions.calls.out import layout
from .runtime.absent import explain
from .tensor import Size, Tensor

__all__ = ["Device", "FileLike", "IntLikeType", "Number", "Storage"]

Number: TypeAlias = Union[int, float, bool]  # noqa: UP007  programs ask typing.get_args of it
Device: TypeAlias = Union[device, str, int, None]  # noqa: UP007
FileLike: TypeAlias = Union[str, os.PathLike[str], IO[bytes]]  # noqa: UP007
IntLikeType: TypeAlias = int
FloatLikeType: TypeAlias = float
BoolLikeType: TypeAlias = bool
PySymType: TypeAlias = int
py_sym_types: tuple[type, ...] = ()  # sizes are ints
Storage: TypeAlias = Any
_TensorOrTensors: TypeAlias = Union[Tensor, Sequence[Tensor]]  # noqa: UP007
_TensorOrOptionalTensors: TypeAlias = Union[Tensor, Sequence[Union[Tensor, None]]]  # noqa: UP007
_TensorOrTensorsOrGradEdge: TypeAlias = Any
_int, _float, _bool, _complex = builtins.int, builtins.float, builtins.bool, builtins.complex
_dtype, _device, _layout = dtype, device, layout
_size: TypeAlias = Union[Size, list[int], tuple[int, ...]]  # noqa: UP007
_symsize: TypeAlias = _size
_Number = (builtins.int, builtins.float, builtins.bool)
_bytes, _str = builtins.bytes, builtins.str
_qscheme: TypeAlias = Any
_dispatchkey: TypeAlias = Any

explain(__name__)
