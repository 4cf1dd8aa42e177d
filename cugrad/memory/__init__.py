"""Placements: where a saved tensor lives between forward and backward."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .disk import save_on_disk
from .offloading import offload, save_on_cpu
from .report import Report, lower_bound
from .stats import OffloadStats

if TYPE_CHECKING:
    from .budgeting import BudgetError, budget
    from .disk_store import DiskStore
    from .recomputing import RecomputeStats, recompute

__all__ = [
    "BudgetError", "DiskStore", "OffloadStats", "RecomputeStats", "Report", "budget",
    "lower_bound", "offload", "recompute", "save_on_cpu", "save_on_disk",
]  # fmt: skip

# What most programs never use is imported when it is.
_LATER = {"BudgetError": "budgeting", "budget": "budgeting", "DiskStore": "disk_store",
          "RecomputeStats": "recomputing", "recompute": "recomputing"}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{_LATER[name]}", __name__), name)
    return found


def __dir__() -> list[str]:
    return [*globals(), *_LATER]
