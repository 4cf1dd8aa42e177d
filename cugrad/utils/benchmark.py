"""torch.utils.benchmark: times of statements, measured in blocks, compared in tables."""

from __future__ import annotations

import math
import statistics
import sys
import textwrap
import timeit
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from .. import cuda
from ..functions.switches import get_num_threads, set_num_threads
from ..runtime.absent import LIBRARY, explain

__all__ = ["Compare", "Measurement", "TaskSpec", "Timer", "select_unit", "timer", "trim_sigfig"]

ENGLISH = {"ns": "nanoseconds", "us": "microseconds", "ms": "milliseconds", "s": "seconds"}
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
SPREAD, WIDE_SPREAD = 0.1, 0.25  # of the median, above which a measurement warns


def timer() -> float:
    """Seconds, once the GPU has done what it was given."""
    if cuda.is_available() and cuda.is_initialized():
        cuda.synchronize()
    return perf_counter()


def select_unit(t: float) -> tuple[str, float]:
    """The unit to write a time with, and its seconds.

    >>> select_unit(0.0025)
    ('ms', 0.001)
    """
    power = int(math.log10(t) // 3) if t > 0 else 0
    unit = {-3: "ns", -2: "us", -1: "ms"}.get(power, "ns" if power < -3 else "s")
    return unit, UNITS[unit]


def trim_sigfig(x: float, n: int) -> float:
    """A number with n significant figures.

    >>> trim_sigfig(3.14159, 2)
    3.1
    """
    return float(f"{x:.{n}g}")


@dataclass(frozen=True)
class TaskSpec:
    """What is measured, and how it is called."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, or the statement."""
        if self.label is not None:
            return self.label + (f": {self.sub_label}" if self.sub_label else "")
        return self.stmt.replace("\n", "; ")

    def summarize(self) -> str:
        """Title, description, setup."""
        lines = [self.title, self.description or "", f"setup: {self.setup}" if self.setup else ""]
        return "\n".join(f"  {line}" for line in lines if line)


@dataclass
class Measurement:
    """Times of a task: `raw_times` of blocks of `number_per_run` runs each.

    `times` are seconds of one run; `mean`, `median` and `iqr`, the distance of the quartiles, are
    theirs.
    """

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        if name in TaskSpec.__dataclass_fields__:
            return getattr(self.task_spec, name)
        raise AttributeError(name)

    @property
    def times(self) -> list[float]:
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.times)

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    def _quartile(self, share: float) -> float:
        times = sorted(self.times)
        place = share * (len(times) - 1)
        low = int(place)
        high = min(low + 1, len(times) - 1)
        return times[low] + (place - low) * (times[high] - times[low])

    @property
    def iqr(self) -> float:
        return self._quartile(0.75) - self._quartile(0.25)

    @property
    def significant_figures(self) -> int:
        """How many figures of the median mean something, 1 to 5."""
        times = sorted(self.times)
        middle = times[len(times) // 4 : math.ceil(3 * len(times) / 4)] or times
        spread = max(1.645 * statistics.pstdev(middle) / math.sqrt(len(middle)), 25e-9)
        return min(max(int(math.floor(math.log10(max(self.median / spread, 1e-9)))), 1), 5)

    def meets_confidence(self, threshold: float = SPREAD) -> bool:
        """Whether the quartiles are near, by a share of the median."""
        return self.iqr / self.median < threshold

    @property
    def has_warnings(self) -> bool:
        return not self.meets_confidence()

    @property
    def title(self) -> str:
        return self.task_spec.title

    @property
    def as_row_name(self) -> str:
        return self.task_spec.sub_label or self.task_spec.stmt or "[Unknown]"

    def __repr__(self) -> str:
        unit, scale = select_unit(self.median)
        count, threads = len(self.times), self.task_spec.num_threads
        lines = [f"<{type(self).__module__}.Measurement object>", self.task_spec.summarize()]
        lines.append(f"  {'Median: ' if count > 1 else ''}{self.median / scale:.2f} {unit}")
        if count >= 4:
            low, high = self._quartile(0.25) / scale, self._quartile(0.75) / scale
            lines.append(f"  IQR:    {self.iqr / scale:.2f} {unit} ({low:.2f} to {high:.2f})")
        several = count > 1
        lines.append(
            f"  {count} measurement{'s' if several else ''}, {self.number_per_run} runs "
            f"{'per measurement,' if several else ','} {threads} thread{'s' * (threads > 1)}"
        )
        if self.has_warnings:
            wide = not self.meets_confidence(WIDE_SPREAD)
            lines.append(
                f"  WARNING: Interquartile range is {self.iqr / self.median:.1%} of the median "
                "measurement.\n           This "
                + ("suggests significant environmental influence." if wide else
                   "could indicate system fluctuation.")
            )  # fmt: skip
        return "\n".join(lines)

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """One measurement of all those of each task."""
        tasks: dict[TaskSpec, list[float]] = {}
        for measurement in measurements:
            tasks.setdefault(measurement.task_spec, []).extend(measurement.times)
        return [Measurement(1, times, task) for task, times in tasks.items()]


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = get_num_threads()
    try:
        set_num_threads(count)
        yield
    finally:
        set_num_threads(before)


class Timer:
    """Measures a statement of Python, as `timeit.Timer` does, with warm-up, threads and labels.

    `stmt` and `setup` see `globals`, and `torch`. ValueError for other languages.

    >>> import cugrad as torch
    >>> from cugrad.utils import benchmark
    >>> m = benchmark.Timer("x + 1", globals={"x": torch.ones(3)}).timeit(100)
    >>> m.number_per_run, m.median > 0
    (100, True)
    """

    def __init__(
        self, stmt: str = "pass", setup: str = "pass", global_setup: str = "",
        timer: Callable[[], float] = timer, globals: dict[str, Any] | None = None,
        label: str | None = None, sub_label: str | None = None, description: str | None = None,
        env: str | None = None, num_threads: int = 1, language: str = "python",
    ) -> None:  # fmt: skip
        if not isinstance(stmt, str):
            raise ValueError("Currently only a `str` stmt is supported.")
        if language not in ("python", "py") or global_setup:
            raise ValueError(
                f"Timer: got the language {language!r}, want Python, without global_setup"
            )

        stmt, setup = (textwrap.dedent(text).strip("\n").rstrip() for text in (stmt, setup))
        self._timer = timeit.Timer(
            stmt, setup, timer, {"torch": sys.modules[LIBRARY], **(globals or {})}
        )
        self._task_spec = TaskSpec(
            stmt, setup, "", label, sub_label, description, env, num_threads
        )  # fmt: skip

    def _timeit(self, number: int) -> float:
        return max(self._timer.timeit(number), 1e-9)

    def timeit(self, number: int = 1000000) -> Measurement:
        """The time of so many runs."""
        with _threads(self._task_spec.num_threads):
            self._timeit(max(number // 100, 2))
            return Measurement(number, [self._timeit(number)], self._task_spec)

    def _block_size(self, min_run_time: float) -> int:
        """So many runs that what the clock costs does not count."""
        cost = statistics.median(self._timeit(0) for _ in range(5))
        number = 1
        while number * 10 < 2**31:
            taken = self._timeit(number)
            if (cost / taken <= 1e-4 and taken >= min_run_time / 1000) or taken > min_run_time:
                break
            number *= 10
        return number

    def blocked_autorange(
        self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Blocks of as many runs as the clock needs, until `min_run_time` seconds are over."""
        return self._measured(min_run_time, math.inf, callback, lambda m: True)

    def adaptive_autorange(
        self, threshold: float = 0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:  # fmt: skip
        """Blocks until the quartiles are nearer than `threshold` times the median."""

        def enough(measurement: Measurement) -> bool:
            return len(measurement.raw_times) > 3 and measurement.meets_confidence(threshold)

        return self._measured(min_run_time, max_run_time, callback, enough)

    def _measured(
        self, least: float, most: float, callback: Any, enough: Callable[[Measurement], bool]
    ) -> Measurement:
        with _threads(self._task_spec.num_threads):
            number, total = self._block_size(least), 0.0
            measurement = Measurement(number, [], self._task_spec)
            while total <= most:
                taken = self._timeit(number)
                measurement.raw_times.append(taken)
                total += taken
                if callback is not None:
                    callback(number, taken)
                if total >= least and enough(measurement):
                    break
        return measurement


class Compare:
    """A table of measurements: a row for each `sub_label`, a column for each `description`."""

    def __init__(self, results: Iterable[Measurement]) -> None:
        self._results: list[Measurement] = []
        self._trims = False
        self.extend_results(results)

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Adds measurements; ValueError for anything else."""
        for result in results:
            if not isinstance(result, Measurement):
                raise ValueError(
                    f"Expected an instance of `Measurement`, got {type(result)} instead."
                )
            self._results.append(result)

    def trim_significant_figures(self) -> None:
        """Writes no more figures than mean something."""
        self._trims = True

    def _cell(self, measurement: Measurement | None, scale: float) -> str:
        if measurement is None:
            return ""
        value = measurement.median / scale
        if self._trims:
            value = trim_sigfig(value, measurement.significant_figures)
        return f"{value:.1f}"

    def __str__(self) -> str:
        tables = []
        merged = Measurement.merge(self._results)
        for label in dict.fromkeys(m.task_spec.label for m in merged):
            ours = [m for m in merged if m.task_spec.label == label]
            unit, scale = select_unit(min(m.median for m in ours))
            columns = list(dict.fromkeys(m.task_spec.description for m in ours))
            rows = [["", *(column or "" for column in columns)]]
            for threads in dict.fromkeys(m.task_spec.num_threads for m in ours):
                rows.append([f"{threads} threads:"])
                these = [m for m in ours if m.task_spec.num_threads == threads]
                for name in dict.fromkeys((m.task_spec.env, m.as_row_name) for m in these):
                    by = {m.task_spec.description: m for m in these
                          if (m.task_spec.env, m.as_row_name) == name}  # fmt: skip
                    title = f"  ({name[0]}) {name[1]}" if name[0] else f"  {name[1]}"
                    rows.append([title, *(self._cell(by.get(column), scale) for column in columns)])
            tables.append(
                _table(label or "", rows) + f"\n\nTimes are in {ENGLISH[unit]} ({unit}).\n"
            )
        return "\n".join(tables)

    def print(self) -> None:
        """Prints the table."""
        print(self)


def _table(title: str, rows: list[list[str]]) -> str:
    count = max(len(row) for row in rows)
    full = [row + [""] * (count - len(row)) for row in rows]
    widths = [max(len(row[i]) for row in full) for i in range(count)]
    lines = [
        "  |  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:]))])
        for row in full
    ]
    width = max(map(len, lines))
    head = f"[{title.center(width - 2, '-')}]"
    return "\n".join([head, lines[0], "-" * width, *lines[1:], "-" * width])


explain(__name__)
