"""Placements: where a saved tensor lives between forward and backward."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .budgeting import BudgetError, budget
    from .disk import save_on_disk
    from .disk_store import DiskStore
    from .offloading import offload, save_on_cpu
    from .recomputing import RecomputeStats, recompute
    from .report import Report, lower_bound
    from .stats import OffloadStats

__all__ = [
    "BudgetError", "DiskStore", "OffloadStats", "RecomputeStats", "Report", "budget",
    "lower_bound", "offload", "recompute", "save_on_cpu", "save_on_disk",
]  # fmt: skip

# What many programs never use is imported when it is.
_LATER = {
    "BudgetError": "budgeting", "budget": "budgeting", "DiskStore": "disk_store",
    "OffloadStats": "stats", "RecomputeStats": "recomputing", "recompute": "recomputing",
    "Report": "report", "lower_bound": "report", "offload": "offloading",
    "save_on_cpu": "offloading", "save_on_disk": "disk",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{_LATER[name]}", __name__), name)
    return found


def __dir__() -> list[str]:
    return [*globals(), *_LATER]
