"""The GPT example: every placement learns the same, says what it moved, and refuses bad values."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from cugrad.backends import simulated
from tests.support import ROOT
from tests.support.patience import patient

EXAMPLE = ROOT / "examples" / "offload_gpt.py"
_environment = dict(os.environ)
_spec = importlib.util.spec_from_file_location("offload_gpt", EXAMPLE)
assert _spec is not None and _spec.loader is not None
example = importlib.util.module_from_spec(_spec)
sys.modules["offload_gpt"] = example  # dataclasses look their module up
_spec.loader.exec_module(example)
os.environ.clear()
os.environ.update(_environment)

SMALL = ["--steps", "3", "--batch-size", "6", "--context", "16", "--width", "16", "--sample", "5"]


PLAIN: dict[str, list[str]] = {}  # the losses without offload, by device


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """The example chooses a modelled GPU for its process; the tests' process goes on."""
    with simulated.configured():
        yield
    simulated.reset()


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = example.main([*SMALL, *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def losses(out: str) -> list[str]:
    return re.findall(r"loss (\d+\.\d{4})", out)


@pytest.mark.parametrize("placement", list(example.PLACEMENTS))
def test_every_placement_learns(
    placement: str, device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "--placement", placement, "--device", device)
    assert code == 0 and err == ""
    assert f"{device}" in out.splitlines()[0] and f"placement {placement}" in out.splitlines()[0]
    found = losses(out)
    assert len(found) == 3 and float(found[-1]) < float(found[0])
    if device not in PLAIN:
        PLAIN[device] = losses(run(capsys, "--placement", "keep", "--device", device)[1])
    plain = PLAIN[device]
    if "-" in placement:
        assert [float(x) for x in found] == pytest.approx([float(x) for x in plain], abs=0.02)
        assert "relative error" in out
    else:
        assert found == plain
    if device == "simulated":
        assert "step " in out and "overlap" in out
        moves = placement not in ("keep", "recompute")
        assert ("copied / unique" in out) == moves
        assert (", and made again" in out) == (placement == "recompute")
        assert ("copied / unique 1.00" in out) == (moves and "-" not in placement)
        assert (" on disk" in out) == (placement == "disk")
    elif device == "cpu" and placement == "offload":
        assert "already on the host" in out


def test_it_runs_as_a_script_and_samples_text() -> None:
    words = [sys.executable, str(EXAMPLE), *SMALL, "--device", "cpu", "--sample", "12"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=patient())
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.partition("-" * 64 + "\n")[2]) == 12 + 1  # and the line's end


@pytest.mark.parametrize(
    "arguments, named",
    [
        (["--steps", "0"], "--steps"), (["--heads", "5"], "divisor of --width 16"),
        (["--placement", "moon"], "--placement"), (["--device", "tpu"], "--device"),
        (["--context", "900000"], "--context"), (["--seed", "-1"], "--seed"),
        (["--width", "many"], "--width"), (["--step", "3"], "--step"), (["surprise"], "surprise"),
    ],
)  # fmt: skip
def test_a_bad_value_gets_one_clear_line(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *arguments)
    assert code == 2 and out == "" and err.count("\n") == 1
    assert err.startswith("offload_gpt.py: error: ") and named in err
