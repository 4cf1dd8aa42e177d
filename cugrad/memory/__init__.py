"""Placements: where a saved tensor lives between forward and backward."""

from .offload import OffloadStats, save_on_cpu

__all__ = ["OffloadStats", "save_on_cpu"]
