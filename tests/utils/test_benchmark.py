"""utils.benchmark: what is measured, how it is summed up and written; the clock is made up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import cugrad
from cugrad.utils import benchmark


def clock(step: float) -> Callable[[], float]:
    """A clock that goes on by so much each time that it is read."""
    now = [0.0]

    def read() -> float:
        now[0] += step
        return now[0]

    return read


def test_statements_run_as_often_as_is_said() -> None:
    calls: list[int] = []
    timer = benchmark.Timer("calls.append(1)", globals={"calls": calls}, timer=clock(1e-3))
    measurement = timer.timeit(500)
    assert len(calls) == 505 and measurement.raw_times == [pytest.approx(1e-3)]
    assert measurement.mean == measurement.median == pytest.approx(2e-6)
    assert measurement.iqr == 0 and not measurement.has_warnings
    threads = cugrad.get_num_threads()
    text = "assert torch.get_num_threads() == 2"
    benchmark.Timer(text, num_threads=2, timer=clock(1e-3)).timeit(3)
    assert cugrad.get_num_threads() == threads


@pytest.mark.parametrize("how", ["blocked_autorange", "adaptive_autorange"])
def test_blocks_are_measured_until_enough(how: str) -> None:
    seen: list[tuple[int, float]] = []
    timer = benchmark.Timer("pass", timer=clock(0.05))
    measurement = getattr(timer, how)(
        callback=lambda number, taken: seen.append((number, taken)), min_run_time=0.04
    )
    assert len(seen) == len(measurement.raw_times) == (4 if how.startswith("adaptive") else 1)
    assert sum(measurement.raw_times) == pytest.approx(sum(taken for _, taken in seen))
    assert measurement.meets_confidence()


def test_measurements_are_merged_and_compared() -> None:
    tasks = [
        benchmark.TaskSpec("x + 1", "pass", label="add", sub_label=name, description=size)
        for name in ("first", "second") for size in ("small", "large")
    ]  # fmt: skip
    results = [
        benchmark.Measurement(10, [1e-5 * (i + 1), 3e-5 * (i + 1)], task)
        for i, task in enumerate([*tasks, tasks[0]])
    ]
    merged = benchmark.Measurement.merge(results)
    assert len(merged) == 4 and len(merged[0].times) == 4
    assert merged[0].stmt == "x + 1" and merged[0].as_row_name == "first"
    table = benchmark.Compare(results)
    table.trim_significant_figures()
    lines = str(table).splitlines()
    assert "add" in lines[0] and lines[1].split() == ["|", "small", "|", "large"]
    assert [line.split()[0] for line in lines[4:6]] == ["first", "second"]
    assert "Times are in microseconds (us)." in lines
    text = repr(merged[0])
    assert "add: first" in text and "IQR:" in text and "WARNING" in text


def test_what_is_wrong() -> None:
    for wrong in ({"stmt": print}, {"language": "cpp"}, {"global_setup": "int x;"}):
        with pytest.raises(ValueError, match=r"want Python|Currently only"):
            benchmark.Timer(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Expected an instance"):
        benchmark.Compare([3])  # type: ignore[list-item]
