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
from cugrad.autograd.function import Function as Function
from cugrad.autograd.gradcheck import GradcheckError as GradcheckError
from cugrad.autograd.recording.saved import SavedTensor as SavedTensor
from cugrad.autograd.variable import Variable as Variable
from cugrad.autograd import anomaly_mode as anomaly_mode
from cugrad.autograd.engine.differentiate import backward as backward
from cugrad.autograd.anomaly_mode import detect_anomaly as detect_anomaly
from cugrad.autograd.mode import enable_grad as enable_grad
from cugrad.autograd import forward_ad as forward_ad
from cugrad.autograd import function as function
from cugrad.autograd import functional as functional
from cugrad.autograd.engine.differentiate import grad as grad
from cugrad.autograd import grad_mode as grad_mode
from cugrad.autograd.gradcheck import gradcheck as gradcheck
from cugrad.autograd.gradcheck import gradgradcheck as gradgradcheck
from cugrad.autograd import graph as graph
from cugrad.autograd.inference import inference_mode as inference_mode
from cugrad.autograd.mode import is_grad_enabled as is_grad_enabled
from cugrad.autograd.threads import is_multithreading_enabled as is_multithreading_enabled
from cugrad.autograd.mode import no_grad as no_grad
from cugrad.autograd import profiler as profiler
from cugrad.autograd.anomaly_mode import set_detect_anomaly as set_detect_anomaly
from cugrad.autograd.mode import set_grad_enabled as set_grad_enabled
from cugrad.autograd.threads import set_multithreading_enabled as set_multithreading_enabled
def variable(*args: Any, **kwargs: Any) -> Any: ...
