"""PyTorch's import path for the grad modes and inference mode."""

from ..runtime.absent import explain
from .inference import inference_mode as inference_mode
from .mode import enable_grad as enable_grad
from .mode import no_grad as no_grad
from .mode import set_grad_enabled as set_grad_enabled
from .threads import set_multithreading_enabled as set_multithreading_enabled

__all__ = [
    "enable_grad", "inference_mode", "no_grad", "set_grad_enabled", "set_multithreading_enabled",
]  # fmt: skip


explain(__name__)
