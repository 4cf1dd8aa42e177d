"""What a type checker says of users' programs, and that the stubs it reads are up to date."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

pytestmark = pytest.mark.host_only

HERE = Path(__file__).parent
WRITE = "python -m tests.documents.stubs --write"
# a user's mypy reads no settings of this project: those are for errors in the library itself
CHECKERS = {
    "mypy": ["--strict", "--config-file=", "--cache-dir", str(ROOT / ".mypy_cache" / "users")],
    "pyright": [],
}


def test_the_stubs_are_up_to_date() -> None:
    """In a process of its own: a subclass of Tensor gives public functions other code."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.documents.stubs"], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0 and run.stdout == "", f"run {WRITE}\n{run.stdout}{run.stderr}"


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_checker_finds_each_mistake_and_no_other(checker: str) -> None:
    """Names, arguments and results are those of the documents, for `--strict` too."""
    pytest.importorskip(checker, reason=f"{checker} is not installed")
    run = subprocess.run(
        [sys.executable, "-m", checker, *CHECKERS[checker], "accepted.py", "refused.py"],
        cwd=HERE, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    lines = re.findall(r"(\w+\.py):(\d+)(?::\d+)?(?: -|:) error", run.stdout)
    assert lines, run.stdout + run.stderr
    said = {(file, int(number)) for file, number in lines}
    marked = {
        ("refused.py", number)
        for number, line in enumerate((HERE / "refused.py").read_text().splitlines(), 1)
        if line.endswith("# wrong")
    }
    assert said == marked, run.stdout
