"""Running statistics: numbers that follow those of batches, in place."""

from __future__ import annotations

from typing import Any

__all__ = ["track_moment"]

Array = Any  # an array of some backend


def track_moment(
    running: Array, statistic: Array, momentum: Any, eps: float | None = None, scale: float = 1.0
) -> None:
    """running += momentum * (towards - running), in place, towards a statistic.

    With `eps` the statistic is 1 / sqrt(variance + eps), and running goes towards scale * variance.
    """
    towards = statistic if eps is None else (1 / (statistic * statistic) - eps) * scale
    running += (towards - running) * momentum
