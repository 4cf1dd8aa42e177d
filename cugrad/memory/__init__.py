"""Placements: where a saved tensor lives between forward and backward."""

from typing import TYPE_CHECKING

from ..lazy import lazily

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
__getattr__, __dir__ = lazily(
    __name__,
    {
        "budgeting": "BudgetError budget",
        "disk": "save_on_disk",
        "disk_store": "DiskStore",
        "offloading": "offload save_on_cpu",
        "recomputing": "RecomputeStats recompute",
        "report": "Report lower_bound",
        "stats": "OffloadStats",
    },
)
