"""Mixed precision: ops in half precision where that is enough, and scaled losses for float16.

`autocast_mode.py` has PyTorch's contexts over `cugrad/autograd/autocast.py`, `grad_scaler.py` the
scaled losses, `settings.py` the switches of `torch`, `old_settings.py` their former names. Begin
with `autocast_mode.py`. Programs import from here; rooms below know autocast only.
"""

from .autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from .grad_scaler import GradScaler
from .old_settings import (
    autocast_decrement_nesting,
    autocast_increment_nesting,
    get_autocast_cpu_dtype,
    get_autocast_gpu_dtype,
    is_autocast_cpu_enabled,
    set_autocast_cpu_dtype,
    set_autocast_cpu_enabled,
    set_autocast_gpu_dtype,
)
from .settings import (
    clear_autocast_cache,
    get_autocast_dtype,
    is_autocast_cache_enabled,
    is_autocast_enabled,
    set_autocast_cache_enabled,
    set_autocast_dtype,
    set_autocast_enabled,
)

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
