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

def get_fastpath_enabled() -> _bool: ...
def set_fastpath_enabled(value: _bool) -> None: ...
