"""The seal on global state works: a leak fails its own test and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.warm import Warm

pytestmark = pytest.mark.host_only
FIRST = Warm("numpy", "pytest", "cugrad")
PYTEST = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"

HEAD = """
import os
from tests.support import ROOT
import cugrad
import numpy as np
from cugrad.autograd import mode, transforms
"""
LEAK = """
def test_leak_{number}():
    {leak}

def test_after_{number}():
    assert cugrad.is_grad_enabled() and cugrad.get_default_dtype() is cugrad.float32
    assert "CUGRAD_LEAK" not in os.environ
    x = cugrad.ones(2, requires_grad=True)
    (x * x).sum().backward()
"""
LEAKS = {
    "cugrad.set_grad_enabled(False)": "State.grad_enabled",
    "cugrad.set_default_dtype(cugrad.float64)": "_Default.dtype",
    "cugrad.set_default_device('cpu')": "_DeviceState.default",
    "mode.push_hooks((id, id))": "State.hooks",
    "cugrad.set_anomaly_enabled(True)": "Anomaly.enabled",
    "cugrad.inference_mode().__enter__()": "Fresh.counter",
    "mode.push_observer(object())": "State.observers",
    "transforms.active(transforms.GRAD).__enter__()": "Running.transforms",
    "os.environ['CUGRAD_LEAK'] = '1'": "os.environ",
}


def test_a_leak_fails_its_own_test_only(tmp_path: Path) -> None:
    tests = [LEAK.format(number=number, leak=leak) for number, leak in enumerate(LEAKS)]
    out = run_pytest(tmp_path, HEAD + "".join(tests))
    assert f"{2 * len(LEAKS)} passed, {len(LEAKS)} errors" in out
    _, *reports = re.split(r"ERROR at teardown of test_leak_\d+", out)
    assert len(reports) == len(LEAKS)
    for report, named in zip(reports, LEAKS.values()):
        assert named in report


def test_hypothesis_lives_with_the_seal(tmp_path: Path) -> None:
    pytest.importorskip("hypothesis", reason="hypothesis is not installed")
    given = "from hypothesis import given, strategies\n@given(strategies.integers())\n"
    out = run_pytest(tmp_path, f"{HEAD}{given}def test_given(n): assert n == n\n")
    assert "1 passed" in out


def run_pytest(folder: Path, source: str) -> str:
    (folder / "test_inner.py").write_text(source)
    words = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-c", "pyproject.toml", "-q"]
    run = FIRST.run("-c", PYTEST, *words, str(folder / "test_inner.py"))
    return run.stdout + run.stderr
