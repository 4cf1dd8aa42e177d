"""Comments, docstrings and documents say who does what: of some words the subject is unknown."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

import pytest

from tests.support import ROOT

pytestmark = pytest.mark.host_only

HIDING = re.compile(r"\b(anybody|everybody|nobody|somebody)\b", re.IGNORECASE)
FOLDERS = ("benchmarks", "ci", "cugrad", "examples", "tests")


def prose_of(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each comment and docstring of a file."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if ast.get_docstring(node) is not None:
                text = node.body[0]
                yield text.lineno, ast.get_docstring(node) or ""


@pytest.mark.parametrize("folder", FOLDERS)
def test_comments_name_their_subject(folder: str) -> None:
    paths = [path for path in (ROOT / folder).rglob("*.py") if HIDING.search(path.read_text())]
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {each.group()}"
        for path in paths if path.name != "test_prose.py"
        for line, text in prose_of(path.read_text())
        for each in HIDING.finditer(text)
    ]  # fmt: skip
    assert not wrong, f"{wrong}: the thread, the program, the caller, or what is not held"


def test_documents_name_their_subject() -> None:
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    wrong = [f"{path.name}: {each}" for path in paths for each in HIDING.findall(path.read_text())]
    assert len(paths) > 5 and not wrong


def test_comments_and_docstrings_are_read() -> None:
    source = 'def f():\n    """Nobody reads it."""\n    return "nobody"  # somebody does\n'
    assert [each for _, text in prose_of(source) for each in HIDING.findall(text)] == [
        "somebody", "Nobody"
    ]  # fmt: skip
