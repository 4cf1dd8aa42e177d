"""The page of defects names tests that are there, and commits of this history."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.support import ROOT

PAGE = ROOT / "docs" / "defects.md"
ROWS = [line.strip("|").split(" | ") for line in PAGE.read_text().splitlines()
        if line.startswith("| ") and not line.startswith("| what")]  # fmt: skip


def test_each_defect_is_held_by_something() -> None:
    assert len(ROWS) > 60
    for what, _, held in ROWS:
        cell = held.strip()
        if cell.startswith("[the page]"):
            assert (PAGE.parent / cell[cell.index("(") + 1 : -1]).is_file(), what
            continue
        path, _, test = cell.strip("`").partition("::")
        text = (ROOT / path).read_text()
        assert not test or f"def {test}(" in text, f"{what}: no test {test} in {path}"


def test_each_commit_is_in_the_history() -> None:
    commits = [commit.strip() for _, commit, _ in ROWS]
    assert all(re.fullmatch("[0-9a-f]{8}", commit) for commit in commits)
    asked = "".join([f"{commit}^{{commit}}\n" for commit in sorted(set(commits))])
    try:
        ran = subprocess.run(["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT,
                             capture_output=True, text=True)  # fmt: skip
    except FileNotFoundError:
        pytest.skip("git is not installed")
    if ran.stdout.strip() != "false":
        pytest.skip("the history is not here")
    said = subprocess.run(["git", "cat-file", "--batch-check"], cwd=ROOT, input=asked,
                          capture_output=True, text=True)  # fmt: skip
    assert "missing" not in said.stdout, said.stdout
