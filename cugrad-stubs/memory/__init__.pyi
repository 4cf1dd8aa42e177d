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
from cugrad.memory.budgeting.context import BudgetError as BudgetError
from cugrad.memory.disk.store import DiskStore as DiskStore
from cugrad.memory.offloading.stats import OffloadStats as OffloadStats
from cugrad.memory.recomputing.context import RecomputeStats as RecomputeStats
from cugrad.memory.report import Report as Report
from cugrad.memory.budgeting.context import budget as budget
from cugrad.memory.report import lower_bound as lower_bound
from cugrad.serialization.materialising import materialise as materialise
from cugrad.memory.offloading.context import offload as offload
from cugrad.memory.states.context import offload_states as offload_states
from cugrad.memory.recomputing.context import recompute as recompute
from cugrad.memory.offloading.context import save_on_cpu as save_on_cpu
from cugrad.memory.disk.context import save_on_disk as save_on_disk
