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
from cugrad.tensor import Tensor
BY_ARRAY_TYPE: Any
from cugrad.backends.protocol import Backend as Backend
def backend_of(array: Any) -> Any: ...
from cugrad.backends import cpu as cpu
from cugrad.backends import cuda as cuda
from cugrad.backends import cudnn as cudnn
def get(device_type: str) -> Any: ...
def is_simulated(device_type: str) -> _bool: ...
def is_usable(device_type: str) -> _bool: ...
from cugrad.backends import mha as mha
from cugrad.backends import mkl as mkl
from cugrad.backends import mkldnn as mkldnn
from cugrad.backends import mps as mps
from cugrad.backends import nnpack as nnpack
from cugrad.backends import openmp as openmp
from cugrad.backends import opt_einsum as opt_einsum
from cugrad.backends import simulated as simulated
def started() -> Any: ...
def why_unusable(device_type: str) -> str | None: ...
fp32_precision: str
def flags(fp32_precision: str = 'none') -> Any: ...
def set_flags(_fp32_precision: str | None = 'none') -> tuple[str, ...]: ...
