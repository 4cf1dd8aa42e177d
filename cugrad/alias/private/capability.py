"""torch.backends.cpu: what a processor can do, for programs that choose a way by it."""

from __future__ import annotations

__all__ = ["get_cpu_capability"]


def get_cpu_capability() -> str:
    """ "DEFAULT": no kernels of this library's own are chosen by the processor."""
    return "DEFAULT"
