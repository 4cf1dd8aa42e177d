"""Placements: where a saved tensor lives between forward and backward, and a training state.

Each placement of saved tensors is a pair of hooks that pack one and unpack it: `offloading` to host
memory, `disk`, `recomputing`, and `budgeting`, which chooses. Begin with `offloading/context.py`.
`states` places weights, gradients and what an optimizer keeps, by the same engine.
Programs import from here; `sizes.py` and `geometry.py` serve the profiler too.
"""

from typing import TYPE_CHECKING

from ..runtime.lazy import lazily

if TYPE_CHECKING:
    from ..serialization.materialising import materialise
    from .budgeting.context import BudgetError, budget
    from .disk.context import save_on_disk
    from .disk.store import DiskStore
    from .offloading.context import offload, save_on_cpu
    from .offloading.stats import OffloadStats
    from .recomputing.context import RecomputeStats, recompute
    from .report import Report, lower_bound
    from .states.context import offload_states

__all__ = [
    "BudgetError", "DiskStore", "OffloadStats", "RecomputeStats", "Report", "budget",
    "lower_bound", "materialise", "offload", "offload_states", "recompute", "save_on_cpu",
    "save_on_disk",
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
        "states.context": "offload_states",
        ".serialization.materialising": "materialise",
    },
)
