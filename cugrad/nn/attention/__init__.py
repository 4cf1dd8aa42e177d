"""torch.nn.attention: PyTorch's choice among ways to compute attention.

Attention is `nn.functional.scaled_dot_product_attention` and `nn.MultiheadAttention`; with a
function of the scores and a mask that is written as a function, it is `flex_attention.py`: begin
there. `masks.py` has what is made of such functions, `block_mask.py` their blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING

from ...functions import switches
from ...runtime.contexts import Context
from ...runtime.kept import Switch
from ...runtime.lazy import lazily

__all__ = ["SDPBackend", "sdpa_kernel"]

if TYPE_CHECKING:  # imported when it is asked for
    from . import flex_attention as flex_attention
else:
    __getattr__, __dir__ = lazily(__name__, {"flex_attention": "flex_attention"})


class SDPBackend(Enum):
    """PyTorch's ways to compute attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


# What `backends.cuda.enable_..._sdp` calls them.
WAYS = {
    SDPBackend.FLASH_ATTENTION: "flash", SDPBackend.EFFICIENT_ATTENTION: "mem_efficient",
    SDPBackend.MATH: "math", SDPBackend.CUDNN_ATTENTION: "cudnn",
}  # fmt: skip


class sdpa_kernel(Switch, Context):
    """Within it `backends.cuda.*_sdp_enabled()` are true of these ways alone.

    On CUDA FLASH_ATTENTION are kernels of half precision on tensor cores, EFFICIENT_ATTENTION are
    kernels of any, with tensor cores in float32 alone, and CUDNN_ATTENTION is cuDNN, where its
    packages are installed, in half precision without mask and dropout. They are tried in this
    order, MATH before CUDNN_ATTENTION, or with `set_priority` in that of `backends`. What none
    takes goes by MATH, tensor functions, also where that is not named. On a CPU MATH is the one
    way.

    TypeError for something that is no SDPBackend.

    >>> import cugrad as torch
    >>> with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
    ...     torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()
    (False, True)
    """

    def __init__(
        self, backends: SDPBackend | Iterable[SDPBackend], set_priority: bool = False
    ) -> None:
        chosen = [backends] if isinstance(backends, SDPBackend) else list(backends)
        for backend in chosen:
            if not isinstance(backend, SDPBackend):
                raise TypeError(
                    "sdpa_kernel(): backends must be an SDPBackend, or a list of them, got "
                    f"{type(backend).__name__}"
                )
        self.backends, self.set_priority = chosen, set_priority

    def as_is(self) -> Mapping[str, bool]:
        return switches.attention_ways()

    def change(self, before: Mapping[str, bool]) -> None:
        chosen = [WAYS[backend] for backend in self.backends if backend in WAYS]
        order = [*chosen, *before] if self.set_priority else before
        switches.set_attention_ways({way: way in chosen for way in order})

    def put_back(self, before: Mapping[str, bool]) -> None:
        switches.set_attention_ways(before)

    def clone(self) -> sdpa_kernel:
        """Another context with the same settings."""
        return type(self)(self.backends, self.set_priority)
