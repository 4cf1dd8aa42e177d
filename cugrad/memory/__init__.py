"""Placements: where a saved tensor lives between forward and backward.

Each placement is a pair of hooks that pack a saved tensor and unpack it: `offloading` to host
memory, `disk`, `recomputing`, and `budgeting`, which chooses. Begin with `offloading/context.py`.
Programs import from here; `sizes.py` and `geometry.py` serve the profiler too.
"""

from typing import TYPE_CHECKING

from ..lazy import lazily

if TYPE_CHECKING:
    from .budgeting.context import BudgetError, budget
    from .disk.context import save_on_disk
    from .disk.store import DiskStore
    from .offloading.context import offload, save_on_cpu
    from .offloading.stats import OffloadStats
    from .recomputing.context import RecomputeStats, recompute
    from .report import Report, lower_bound

__all__ = [
    "BudgetError", "DiskStore", "OffloadStats", "RecomputeStats", "Report", "budget",
    "lower_bound", "offload", "recompute", "save_on_cpu", "save_on_disk",
]  # fmt: skip

# What many programs never use is imported when it is.
__getattr__, __dir__ = lazily(
    __name__,
    {
        "budgeting.context": "BudgetError budget",
        "disk.context": "save_on_disk",
        "disk.store": "DiskStore",
        "offloading.context": "offload save_on_cpu",
        "offloading.stats": "OffloadStats",
        "recomputing.context": "RecomputeStats recompute",
        "report": "Report lower_bound",
    },
)
