"""Placements: where a saved tensor lives between forward and backward."""

from .offloading import offload, save_on_cpu
from .report import Report, lower_bound
from .stats import OffloadStats

__all__ = ["OffloadStats", "Report", "lower_bound", "offload", "save_on_cpu"]
