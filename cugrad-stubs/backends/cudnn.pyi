# Written by python -m tests.documents.stubs --write, and checked by tests/typing.
# mypy: disable-error-code="override, overload-overlap, overload-cannot-match"

import builtins
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, overload

import numpy

from cugrad._types import (
    DeviceLikeType, Generator, Number, _bool, _complex, _device, _dtype, _float, _Index, _int,
    _layout, _Node, _size, memory_format,
)
from ..tensor import Tensor

allow_tf32: _bool
benchmark: _bool
benchmark_limit: Any
class _conv:
    fp32_precision: str

conv: _conv
depthwise_kernel: str
deterministic: _bool
enabled: _bool
def flags(enabled: _bool = False, benchmark: _bool = False, benchmark_limit: _int | None = 10, deterministic: _bool = False, allow_tf32: _bool = True, fp32_precision: str = 'none', depthwise_kernel: str = 'auto') -> Any: ...
fp32_precision: str
def is_acceptable(tensor: Tensor) -> _bool: ...
def is_available() -> _bool: ...
def version() -> _int | None: ...
