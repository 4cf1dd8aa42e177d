"""Automatic differentiation: `backward`, `grad`, and the namespace of `torch.autograd`.

The files here are PyTorch's modules, and what a thread has switched on (`mode.py`,
`transforms.py`). Behind them are rooms: `recording` (ops, nodes, saved tensors), `engine`
(backward), `forward` mode, `custom` Functions, and `check`. Rooms above import `mode`, `graph` and
`recording.record`. Begin with docs/how-autograd-works.md, then `recording/record.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..runtime.lazy import lazily
from . import anomaly_mode, grad_mode, graph
from .anomaly_mode import detect_anomaly, set_detect_anomaly
from .engine.differentiate import backward, grad
from .function import Function
from .gradcheck import GradcheckError, gradcheck, gradgradcheck
from .inference import inference_mode
from .mode import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from .recording.mutation import _unsafe_preserve_version_counter as _unsafe_preserve_version_counter
from .recording.saved import SavedTensor
from .threads import is_multithreading_enabled, set_multithreading_enabled
from .variable import Variable

__all__ = [
    "Function", "GradcheckError", "SavedTensor", "Variable", "anomaly_mode", "backward",
    "detect_anomaly", "enable_grad", "forward_ad", "functional", "grad", "grad_mode", "gradcheck",
    "gradgradcheck", "graph", "inference_mode", "is_grad_enabled", "is_multithreading_enabled",
    "no_grad", "set_detect_anomaly", "set_grad_enabled", "set_multithreading_enabled", "variable",
]  # fmt: skip


def variable(*args: Any, **kwargs: Any) -> Any:
    """Removed in PyTorch; calling it is a RuntimeError. The class is `Variable`."""
    raise RuntimeError("torch.autograd.variable(...) is deprecated, use torch.tensor(...) instead")


def _is_checkpoint_valid() -> bool:
    """Whether the pass that runs fills `.grad` of all leaves, as a re-entrant checkpoint needs."""
    return Variable._execution_engine.is_checkpoint_valid()


if TYPE_CHECKING:  # profiler comes from cugrad.profiler
    from . import forward_ad as forward_ad
    from . import functional as functional

    def __getattr__(name: str) -> Any: ...

else:
    __getattr__, __dir__ = lazily(
        __name__, {"forward_ad": "forward_ad", "functional": "functional"}
    )
