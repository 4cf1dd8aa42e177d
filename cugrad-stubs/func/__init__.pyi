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
from cugrad.nn.stateless import functional_call as functional_call
from cugrad.func.transforms import grad as grad
from cugrad.func.transforms import grad_and_value as grad_and_value
from cugrad.func.jacobians import hessian as hessian
from cugrad.func.jacobians import jacfwd as jacfwd
from cugrad.func.jacobians import jacrev as jacrev
from cugrad.func.transforms import jvp as jvp
from cugrad.func.transforms import linearize as linearize
from cugrad.nn.stateless import replace_all_batch_norm_modules_ as replace_all_batch_norm_modules_
from cugrad.nn.stateless import stack_module_state as stack_module_state
from cugrad.func.transforms import vjp as vjp
from cugrad.func.batching import vmap as vmap
