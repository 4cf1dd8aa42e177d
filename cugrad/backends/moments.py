"""Running statistics: numbers that follow those of batches, in place."""

from __future__ import annotations

import threading
from typing import Any

from ..runtime.kept import of_thread

__all__ = ["RunningStatistics", "track_moment", "waiting"]

Array = Any  # an array of some backend


class RunningStatistics:
    """Arrays that a batch norm in training changes beside its result; None where one is absent.

    `mean` and `var` go towards the batch's by the number `momentum`; `batches` counts. Whoever has
    changed them says so in `moved`.
    """

    __slots__ = ("mean", "var", "batches", "momentum", "moved")

    def __init__(
        self, mean: Array | None, var: Array | None, batches: Array | None, momentum: float
    ) -> None:
        self.mean, self.var, self.batches, self.momentum = mean, var, batches, momentum
        self.moved = False

    def arrays(self) -> tuple[Array | None, ...]:
        return self.mean, self.var, self.batches

    def form(self) -> tuple[Any, ...]:
        """What a kernel that changes them depends on, beside their addresses."""
        each = [x if x is None else (type(x), x.dtype.num, x.shape, x.strides)
                for x in self.arrays()]  # fmt: skip
        return *each, repr(self.momentum)


class _Waiting(threading.local):
    """What the next batch norm of this thread may change in the kernel that has its statistics."""

    now: RunningStatistics | None = None

    def taken(self) -> RunningStatistics | None:
        running = self.now
        self.now = None
        return running


waiting = of_thread(_Waiting())


def track_moment(
    running: Array, statistic: Array, momentum: Any, eps: float | None = None, scale: float = 1.0
) -> None:
    """running += momentum * (towards - running), in place, towards a statistic.

    With `eps` the statistic is 1 / sqrt(variance + eps), and running goes towards scale * variance.
    """
    towards = statistic if eps is None else (1 / (statistic * statistic) - eps) * scale
    running += (towards - running) * momentum
