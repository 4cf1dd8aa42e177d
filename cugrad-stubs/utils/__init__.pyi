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
from cugrad.utils import benchmark as benchmark
from cugrad.utils import checkpoint as checkpoint
from cugrad.utils import collect_env as collect_env
from cugrad.utils import data as data
from cugrad.utils import dlpack as dlpack
from cugrad.utils import flop_counter as flop_counter
from cugrad.utils import hooks as hooks
from cugrad.utils.swapping import swap_tensors as swap_tensors
from cugrad.utils import tensorboard as tensorboard
from cugrad.utils import weak as weak
