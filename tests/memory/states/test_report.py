"""The report of states elsewhere says what a step takes, and at least."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cugrad
from cugrad import memory
from cugrad.backends import simulated

PLACES: dict[str, Any] = {
    "host": {"states": "host"},
    "stream": {"weights": "host", "gradients": "host", "states": "stream"},
}


def reported(places: Any, rows: int, steps: int) -> Any:
    cugrad.manual_seed(0)
    layers = [cugrad.nn.Linear(128, 128, bias=False) for _ in range(8)]
    net = cugrad.nn.Sequential(*layers).to("simulated")
    optimizer = cugrad.optim.Adam(net.parameters())
    x = cugrad.ones(rows, 128, device="simulated")
    placed = memory.offload_states(net, optimizer, window="256KiB", min_bytes=1024, **places)
    with simulated.configured(simulated.H200, policy="timed", scale=4096.0), placed:
        for _ in range(steps):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        return placed.report(tokens=rows)


@pytest.mark.parametrize("place", PLACES)
def test_a_step_takes_at_least_its_bound(place: str, tmp_path: Path) -> None:
    report = reported(PLACES[place], 4, 4)
    assert set(report) == {"weights", "gradients", "states"}  # as before, for who reads them
    step, words = report.step, str(report)
    assert 1 <= step["over_bound"] < 1.7
    assert step["seconds"] == pytest.approx(step["passes"] + step["optimizer"])
    assert step["tokens_per_second"] == pytest.approx(4 / step["seconds"])
    assert (step["host"] > 0) == (place == "host")
    assert report.parameters == 8 * 128 * 128
    assert f"states     {place}" in words and "8.00" in words  # bytes a parameter
    assert "more tokens a step" in words and "a second" in words and "bound" in words
    assert ("during backward" in words) == ('states="host"' in words) == (place == "stream")
    link_bound = max(step["link_in"], step["link_out"]) >= step["bound"]
    assert ("a second link" in words) == link_bound == (place == "stream")
    assert ("arithmetic steps are the host's, with its rounding" in words) == (place == "host")
    assert "arithmetic a norm of gradients" in words
    rows = report.timeline
    busy = {name: sum([part.end - part.start for part in row]) for name, row in rows.items()}
    assert max([part.end for row in rows.values() for part in row]) <= step["seconds"] + 1e-9
    picture = words.split("device     |")[1]
    for name, least, letter in (
        ("link, in", "link_in", ">"), ("link, out", "link_out", "<"), ("host", "host_busy", "@"),
    ):  # fmt: skip
        assert (
            0.7 * step[least] <= busy[name] <= step["seconds"]
        )  # parts are of the steps beside it
        assert all(a.end < b.start for a, b in zip(rows[name], rows[name][1:]))
        assert (letter in picture.split("forward")[0].rpartition("|")[0]) == bool(step[least])
    # those of "stream" are taken within backward
    assert {part.what for part in rows["device"]} >= {"passes", "optimizer"} - (
        {"optimizer"} if place == "stream" else set()
    )
    pytest.importorskip("matplotlib")
    report.plot(str(tmp_path / "step.png"))
    assert (tmp_path / "step.png").stat().st_size > 1000


def test_before_two_steps_there_is_no_time() -> None:
    report = reported(PLACES["host"], 4, 1)
    assert report.step is None and "bound" not in str(report)
    with pytest.raises(RuntimeError, match="two steps are needed"):
        report.plot()


def test_where_all_is_as_on_the_device_nothing_is_said_of_arithmetic() -> None:
    report = reported({"states": "stream"}, 4, 1)
    assert not report.arithmetic and "arithmetic" not in str(report)
