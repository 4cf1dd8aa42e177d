"""torch.backends of engines that are not used here: they say so, and their flags change nothing."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from functools import partial
from types import ModuleType
from typing import Any

from .. import backends
from .flags import BackendFlag, Flagged, Flags, Switches
from .precisions import Precision, get_precision, set_precision

__all__ = ["ENGINES"]


def _no() -> bool:
    """False."""
    return False


class mps(Switches):
    """torch.backends.mps: Apple's GPUs are no devices here."""

    is_available = is_built = staticmethod(_no)


class mkl(Switches):
    """torch.backends.mkl: NumPy's BLAS is used, whichever it is: see numpy.show_config()."""

    is_available = staticmethod(_no)


class openmp(Switches):
    """torch.backends.openmp: threads are those of NumPy's BLAS: see set_num_threads."""

    is_available = staticmethod(_no)


class mkldnn(Flagged):
    """torch.backends.mkldnn: oneDNN is not used. Its flags are remembered, and change nothing."""

    is_available = is_acl_available = staticmethod(_no)
    enabled = BackendFlag(True, "Changes nothing: oneDNN is not used.")
    deterministic = BackendFlag(False, "Changes nothing: oneDNN is not used.")
    allow_tf32 = BackendFlag(True, "Changes nothing: products on a CPU are float32.")
    fp32_precision = BackendFlag(
        "none", "Changes nothing: as allow_tf32.", partial(set_precision, "mkldnn", "all"),
        partial(get_precision, "mkldnn"), str,
    )  # fmt: skip
    conv = Precision("mkldnn", "conv", "Changes nothing: as allow_tf32.")
    matmul = Precision("mkldnn", "matmul", "Changes nothing: as allow_tf32.")
    rnn = Precision("mkldnn", "rnn", "Changes nothing: as allow_tf32.")

    def flags(
        self, enabled: bool = False, deterministic: bool = False, allow_tf32: bool = True,
        fp32_precision: str = "none",
    ) -> AbstractContextManager[Any]:  # fmt: skip
        """Sets the flags within a `with`."""
        return Flags(self, {
            "enabled": enabled, "deterministic": deterministic, "allow_tf32": allow_tf32,
            "fp32_precision": fp32_precision,
        })  # fmt: skip


class nnpack(Flagged):
    """torch.backends.nnpack: NNPACK is not used. Its flag is remembered, and changes nothing."""

    is_available = staticmethod(_no)
    enabled = BackendFlag(True, "Changes nothing: NNPACK is not used.")

    def flags(self, enabled: bool = False) -> AbstractContextManager[Any]:
        """Sets the flag within a `with`."""
        return Flags(self, {"enabled": enabled})


class opt_einsum(Flagged):
    """torch.backends.opt_einsum: the package is not used; `einsum` goes from left to right."""

    is_available = staticmethod(_no)
    enabled = BackendFlag(False, "Changes nothing: einsum goes from left to right.")
    strategy = BackendFlag(None, "Changes nothing: as enabled.", kind=(str, type(None)))

    def flags(
        self, enabled: bool | None = None, strategy: str | None = None
    ) -> AbstractContextManager[Any]:
        """Sets the flags that are not None within a `with`."""
        flags = {"enabled": enabled, "strategy": strategy}
        return Flags(self, {name: value for name, value in flags.items() if value is not None})


class mha(Switches):
    """torch.backends.mha: a second way through attention in inference, which there is not here."""

    _fastpath = True

    def get_fastpath_enabled(self) -> bool:
        """What `set_fastpath_enabled` set, at first True."""
        return type(self)._fastpath

    def set_fastpath_enabled(self, value: bool) -> None:
        """Remembered, and changes nothing: layers compute alike in training and inference."""
        type(self)._fastpath = value


class cpu(Switches):
    """torch.backends.cpu: what a processor can do, for programs that choose a way by it."""

    @staticmethod
    def get_cpu_capability() -> str:
        """ "DEFAULT": no kernels of this library's own are chosen by the processor."""
        return "DEFAULT"


class Every(ModuleType):
    """torch.backends itself, which has a switch for all backends."""

    fp32_precision = BackendFlag(
        "none", "Of all backends, for what has no word of its own: \"tf32\" lets products and "
        'convolutions on CUDA round float32 to TF32; "ieee" does not.',
        partial(set_precision, "generic", "all"), partial(get_precision, "generic"), str,
    )  # fmt: skip

    @staticmethod
    def set_flags(_fp32_precision: str | None = "none") -> tuple[str, ...]:
        """Sets the switch, but for None; what it was."""
        before = get_precision("generic")
        if _fp32_precision is not None:
            set_precision("generic", "all", _fp32_precision)
        return (before,)

    def flags(self, fp32_precision: str = "none") -> AbstractContextManager[Any]:
        """Sets the switch within a `with`."""
        return Flags(self, {"fp32_precision": fp32_precision})


backends.__class__ = Every  # type: ignore[assignment]

ENGINES = (mps, mkl, openmp, mkldnn, nnpack, opt_einsum, mha, cpu)
for _kind in ENGINES:
    _module = _kind()
    vars(backends)[_kind.__name__] = sys.modules[_module.__name__] = _module
