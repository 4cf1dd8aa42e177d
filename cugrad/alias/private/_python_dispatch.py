"""torch.utils._python_dispatch: calls are taken by __torch_function__ alone, not below autograd."""

from __future__ import annotations

from ..refusals import refusal, refuse_the_rest

__all__ = ["TorchDispatchMode", "is_traceable_wrapper_subclass"]

REASON = "calls are taken by __torch_function__: derive from TorchFunctionMode"
TorchDispatchMode = refusal("torch.utils._python_dispatch.TorchDispatchMode", REASON)


def is_traceable_wrapper_subclass(t: object) -> bool:
    """False: there are no tensors that wrap others for a compiler."""
    return False


refuse_the_rest(__name__, "utils._python_dispatch", REASON)
