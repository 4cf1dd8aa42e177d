"""Runs the examples in the package's docstrings, in the README and in the documents."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

from tests.support import ROOT

pytestmark = pytest.mark.host_only

DOCUMENTS = ["README.md", "docs/tour.md", "docs/adding-an-op.md", "docs/adding-a-placement.md",
             "docs/design.md", "docs/fast-path.md", "docs/offload.md", "docs/memory-budget.md",
             "docs/profiling.md", "docs/larger-than-the-gpu.md"]  # fmt: skip
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


MATHS = "cugrad.functions.maths."
NEED_SCIPY = {"cugrad.special", MATHS + "arithmetic", MATHS + "composites"}


def modules_with_examples() -> list[str]:
    return [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((ROOT / "cugrad").rglob("*.py"))
        if ">>> " in path.read_text()
    ]


@pytest.mark.parametrize("name", modules_with_examples())
def test_docstrings(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "cugrad":
            raise
        pytest.skip(f"{name} needs {error.name}")
    if name in NEED_SCIPY:
        pytest.importorskip("scipy", reason="SciPy, which has the special functions, is absent")
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module):
        runner.run(test, out=report.append)
    assert not runner.summarize(verbose=False).failed, "".join(report)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_documents(document: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = ROOT / document
    if not path.exists():
        pytest.skip(f"{document} is not there")
    monkeypatch.chdir(tmp_path)  # an example may write a file
    report: list[str] = []
    text = path.read_text()
    test = doctest.DocTestParser().get_doctest(text, {}, document, str(path), 0)
    outcome = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append)
    assert not outcome.failed, "".join(report)
