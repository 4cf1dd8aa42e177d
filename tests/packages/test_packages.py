"""Packages from PyPI, unchanged, in an environment without PyTorch: the numbers are PyTorch's.

`bash ci/packages.sh` makes the environment and runs this. `ci/test.sh` runs the smallest of them in
its own environment, from the folder CUGRAD_PACKAGES_AT. `references.json` has what PyTorch
computed: `python tests/packages/record.py` writes it, in an environment that has PyTorch and the
packages.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import sysconfig
from math import isclose, isnan
from pathlib import Path
from typing import Any

import pytest

from tests.packages import imports
from tests.support.patience import patient

HERE = Path(__file__).parent
REFERENCES: dict[str, dict[str, list[float]]] = json.loads((HERE / "references.json").read_text())
TOLERANCE = 1e-4
SMALL = ["einops", "lion_pytorch", "loralib", "schedulefree", "torchdiffeq", "torchinfo",
         "torchmetrics"]  # fmt: skip
TRAININGS = re.findall(r"@training\ndef (\w+)", (HERE / "halves.py").read_text())
AT = os.environ.get("CUGRAD_PACKAGES_AT", "")

pytestmark = pytest.mark.host_only


def outcomes(*names: str, path: str = "", module: str = "programs") -> list[dict[str, Any]]:
    search = os.pathsep.join(p for p in (path, os.environ.get("PYTHONPATH", "")) if p)
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "cugrad.as_torch", "-m", f"tests.packages.{module}",
         *names],
        cwd=HERE.parents[1], capture_output=True, text=True, timeout=patient(300),
        env={**os.environ, "CUGRAD_DEVICE": "cpu", "HF_HUB_OFFLINE": "1", "PYTHONPATH": search,
             "CUGRAD_SIMULATE_CUDA": "1" if module == "halves" else ""},
    )  # fmt: skip
    lines = [line for line in run.stdout.splitlines() if line.startswith('{"name"')]
    assert len(lines) == len(names), run.stdout + run.stderr
    return [json.loads(line) for line in lines]


wants_packages = pytest.mark.skipif(
    not os.environ.get("CUGRAD_PACKAGES") or importlib.util.find_spec("torch") is not None,
    reason="wants the packages, and no PyTorch: bash ci/packages.sh",
)
wants_small_packages = pytest.mark.skipif(
    not os.path.isdir(AT), reason="wants packages in CUGRAD_PACKAGES_AT: bash ci/test.sh"
)


def test_what_packages_import_is_there() -> None:
    """Where no package is installed, too: one name less, and they cannot be imported."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "cugrad.as_torch", "-m", "tests.packages.imports"],
        cwd=HERE.parents[1], capture_output=True, text=True,
    )  # fmt: skip
    assert (run.returncode, run.stdout) == (0, ""), run.stdout + run.stderr


def test_an_import_that_is_not_there_is_seen() -> None:
    text = "import os.path, tests.packages\ndef f():\n    from torch.nn import Linear as L, Lin"
    assert [*imports.imports_of(text)] == ["torch.nn:Linear", "torch.nn:Lin"]
    (line,) = imports.missing(["os:path", "os.path:join", "xml:dom", "os.path:torch"])
    assert line.startswith("os.path:torch: ")


@wants_packages
def test_the_list_of_imports_is_what_the_packages_import() -> None:
    lacking = {*imports.imported(Path(sysconfig.get_path("purelib")))}
    lacking -= {*imports.FILE.read_text().split()}
    assert not lacking, "python -m tests.packages.imports FOLDER writes imports.txt"


@wants_packages
@pytest.mark.parametrize("name", REFERENCES)
def test_a_package_computes_what_it_does_with_pytorch(name: str) -> None:
    (line,) = outcomes(name)
    compare(line)


@wants_small_packages
def test_small_packages_compute_what_they_do_with_pytorch() -> None:
    for line in outcomes(*SMALL, path=AT):
        compare(line)


@wants_packages
@pytest.mark.parametrize("name", TRAININGS)
def test_a_package_trains_in_half_of_its_memory(name: str) -> None:
    for line in outcomes(name, module="halves"):
        compare_halves(line)


@wants_small_packages
def test_small_packages_train_in_half_of_their_memory() -> None:
    for line in outcomes("einops", path=AT, module="halves"):
        compare_halves(line)


def compare_halves(line: dict[str, Any]) -> None:
    assert "error" not in line, line["error"]
    plain, half = line["plain"], line["half"]
    assert half["losses"] == plain["losses"] and len(set(plain["losses"])) > 1
    assert half["peak"] <= plain["peak"] // 2


def compare(line: dict[str, Any]) -> None:
    assert "error" not in line, line["error"]
    name = line["name"]
    assert line["numbers"].keys() == REFERENCES[name].keys()
    for what, theirs in REFERENCES[name].items():
        mine = line["numbers"][what]
        assert len(mine) == len(theirs), what
        for i, (a, b) in enumerate(zip(mine, theirs)):
            same = isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE) or (isnan(a) and isnan(b))
            assert same, f"{name}, {what}[{i}]: {a}, PyTorch's {b}"
