"""What `report()` says of codecs and of the host, and what contexts look like at a prompt."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest

import cugrad
from cugrad import memory
from cugrad.backends import simulated
from tests.memory.offload.test_conformance import Exact


class Slow(Exact):
    """A codec that takes its time, and spares the link nothing."""

    def encode(self, xp: Any, array: Any) -> Any:
        for _ in range(40):
            array = array + 0
        return super().encode(xp, array)


def stepped(saving: Any, device: str = "simulated", steps: int = 3) -> Any:
    x = cugrad.ones(256, 256, device=device, requires_grad=True)
    w = cugrad.eye(256, device=device)
    for _ in range(steps):
        with saving:
            h = x
            for _ in range(4):
                h = (h @ w).sin()
            y = h.sum()
        y.backward()
    return saving.report()


def offload(**options: Any) -> Any:
    return memory.offload(**{"min_bytes": 0, "backlog": 0, "lookahead": 0, **options})


def test_the_time_of_a_codec_is_its_cost() -> None:
    with simulated.configured("H200", policy="timed"):
        plain = stepped(offload(keep_last=0))
        slow = stepped(offload(compress=Slow()))
    coding = slow["times"]["coding_forward"] + slow["times"]["coding_backward"]
    assert coding > plain["plain_step"] and slow["verdict"].startswith("coding-bound: exact takes")
    assert slow["step"] > coding + 0.9 * slow["plain_step"] and slow["slowdown"] > 2
    assert slow["bound"] < slow["step"] and slow["over_bound"] > 1.5
    assert f"coding      {coding * 1e3:,.3f} ms by exact" in str(slow)
    assert plain["times"]["coding_forward"] == 0 and "coding" not in str(plain)


def test_a_codec_that_spares_the_link_pays() -> None:
    with simulated.configured("H200", policy="timed", to_host=1e9, to_device=1e9):
        found = stepped(offload(compress="fp8"))
    assert found["verdict"].startswith("the codec pays: fp8 takes"), found
    assert found["step"] < found["bound"] and found["over_bound"] < 1
    kernels = simulated.MACHINE.model.launch
    assert found["times"]["coding_forward"] < 4 * (10 * kernels + 1e-3)


@pytest.mark.parametrize("codec", ["bf16", "fp8", "int8"])
def test_the_bound_of_a_step_without_a_codec_is_below_that_step(codec: str) -> None:
    """Small copies reach a lower rate than the link does with large ones."""
    plain, coded = small_copies(None), small_copies(codec)
    assert coded["times"]["coding_forward"] > 0 and coded["bound"] <= plain["step"]
    assert coded["verdict"].startswith(f"coding-bound: {codec} takes"), coded


@functools.cache
def small_copies(codec: str | None) -> Any:
    x = cugrad.ones(512, 128, device="simulated", requires_grad=True)
    w = cugrad.eye(128, device="simulated")
    saving = offload(compress=codec, keep_last=0, backlog="2MiB", lookahead="2MiB")
    with simulated.configured("H200", policy="timed"):
        for _ in range(3):
            with saving:
                h = x
                for _ in range(12):
                    h = (h @ w).sin() * h[:1]  # large and small ones
                y = h.sum()
            y.backward()
        return saving.report()


def test_on_the_host_there_is_no_link(tmp_path: Path) -> None:
    for saving in (memory.offload(min_bytes=0, compress="bf16"),
                   memory.save_on_disk(tmp_path, min_bytes=0)):  # fmt: skip
        page = str(stepped(saving, "cpu"))
        assert not re.search("^link|^peak|GB/s|locked", page, re.MULTILINE), page
        assert "forward" in page and "verdict" in page


def test_one_that_was_never_used_says_so() -> None:
    report = memory.offload().report()
    assert report["verdict"].startswith("nothing was saved: no op ran in this context")


@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_a_report_shows_as_its_page(device: str) -> None:
    report = stepped(memory.offload(min_bytes=0), device)
    assert repr(report) == str(report) and repr(report).startswith("saved ")
    assert report["saved_tensors"] > 0 and isinstance(report, dict)


def test_contexts_say_what_they_are(tmp_path: Path) -> None:
    saving = offload(min_bytes="1KiB", keep_last="2MiB", compress="int8", host_limit="1GiB")
    assert repr(saving) == (
        "<offload(min_bytes=1 KiB, keep_last=2 MiB, lookahead=0 B, backlog=0 B, host_limit=1 GiB, "
        "compress='int8'): 0 tensors saved, 0 B; 0 B moved out, 0 B back>"
    )
    saving = memory.offload(min_bytes=0, keep_last=0)
    stepped(saving, steps=1)
    assert re.fullmatch(
        r"<offload\(.*\): \d+ tensors saved, .*; .*iB moved out, .*iB back>", repr(saving)
    )
    assert repr(memory.offload()).startswith("<offload(): 0 tensors")
    assert repr(memory.save_on_disk(tmp_path)).startswith(f"<save_on_disk(directory='{tmp_path}')")
    assert repr(memory.save_on_cpu(True)).startswith("<save_on_cpu(): 0 tensors")
