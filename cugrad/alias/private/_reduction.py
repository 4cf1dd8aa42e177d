"""torch.nn._reduction: the three ways to put losses together, and their numbers."""

from __future__ import annotations

from ...nn.functional.loss import check_reduction, settled

__all__ = ["get_enum", "legacy_get_enum", "legacy_get_string"]

_NUMBERS = {"none": 0, "mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """The number of a reduction; ValueError for another word."""
    return _NUMBERS[check_reduction("mean" if reduction == "elementwise_mean" else reduction)]


def legacy_get_string(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> str:
    """The reduction that two old arguments mean."""
    if emit_warning:
        return settled("mean", True if size_average is None else size_average, reduce)
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def legacy_get_enum(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> int:
    """The number of the reduction that two old arguments mean."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
