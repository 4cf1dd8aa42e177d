"""Packages from PyPI, unchanged, in an environment without PyTorch: the numbers are PyTorch's.

`bash ci/packages.sh` makes the environment and runs this. `references.json` has what PyTorch
computed: `python tests/packages/record.py` writes it, in an environment that has PyTorch and the
packages.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from math import isclose, isnan
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
REFERENCES: dict[str, dict[str, list[float]]] = json.loads((HERE / "references.json").read_text())
TOLERANCE = 1e-4
ALLOWED = {("kornia", "losses"): 2e-2}  # steps of 100 along an angle: differences grow

pytestmark = [
    pytest.mark.host_only,
    pytest.mark.skipif(
        not os.environ.get("CUGRAD_PACKAGES") or importlib.util.find_spec("torch") is not None,
        reason="wants the packages, and no PyTorch: bash ci/packages.sh",
    ),
]


def outcome(name: str) -> dict[str, Any]:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "cugrad.as_torch", "-m", "tests.packages.programs",
         name],
        cwd=HERE.parents[1], capture_output=True, text=True, timeout=300,
        env={**os.environ, "CUGRAD_DEVICE": "cpu", "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    lines = [line for line in run.stdout.splitlines() if line.startswith('{"name"')]
    assert lines, run.stdout + run.stderr
    return json.loads(lines[-1])


@pytest.mark.parametrize("name", REFERENCES)
def test_a_package_computes_what_it_does_with_pytorch(name: str) -> None:
    line = outcome(name)
    assert "error" not in line, line["error"]
    assert line["numbers"].keys() == REFERENCES[name].keys()
    for what, theirs in REFERENCES[name].items():
        mine = line["numbers"][what]
        near = ALLOWED.get((name, what), TOLERANCE)
        assert len(mine) == len(theirs), what
        for i, (a, b) in enumerate(zip(mine, theirs)):
            same = isclose(a, b, rel_tol=near, abs_tol=near) or (isnan(a) and isnan(b))
            assert same, f"{what}[{i}]: {a}, PyTorch's {b}"
