"""docs/design.md shows the rooms as they are, and what documents name exists."""

from __future__ import annotations

import ast
import builtins
import re
from functools import cache
from pathlib import Path

import pytest

from tests.documents import design_page
from tests.project.test_architecture import PACKAGE, package_files
from tests.support import ROOT

pytestmark = pytest.mark.host_only

PAGES = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PATH = re.compile(r"[\w.]+(?:/[\w.]+)*(?:/|\.(?:py|md|sh|toml|txt))")
ROOMS = [path for path in package_files() if path.name == "__init__.py" and path.parent != PACKAGE]


def test_page_is_up_to_date() -> None:
    said = "run: python -m tests.documents.design_page --write"
    assert design_page.PAGE.read_text() == design_page.page(), said


def quoted(text: str) -> list[str]:
    """What stands in backticks, outside of blocks of code."""
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"`([^`\n]+)`", prose)


@cache
def names_of_files() -> frozenset[str]:
    folders = ("cugrad", "tests", "ci", "docs", "benchmarks", "examples")
    return frozenset(path.name for each in folders for path in (ROOT / each).rglob("*.*"))


def found(path: str, homes: tuple[Path, ...]) -> Path | None:
    return next((home / path for home in homes if (home / path).exists()), None)


@cache
def names_of(path: Path) -> frozenset[str]:
    """The names that a file defines, and those that its classes define: `C` and `C.f`."""
    names: set[str] = set()

    def read(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names.add(prefix + node.name)
                read(node.body if isinstance(node, ast.ClassDef) else [], f"{prefix}{node.name}.")
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names.update(prefix + ast.unparse(target) for target in targets)

    read(ast.parse(path.read_text()).body, "")
    return frozenset(names)


def faults_of(text: str, homes: tuple[Path, ...] = (PACKAGE, ROOT)) -> list[str]:
    """The paths in backticks that lead nowhere, and the names that are not in their file."""
    faults = []
    for each in quoted(text):
        path, _, name = each.partition("::")
        if not PATH.fullmatch(path):
            continue
        file = found(path, homes)
        if file is None and not name and path in names_of_files():
            continue  # its folder is named before
        if file is None:
            faults.append(f"`{each}`: there is no such file")
        elif name and name not in names_of(file):
            faults.append(f"`{each}`: the file has no such name")
    return faults


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_exists(page: Path) -> None:
    faults = faults_of(page.read_text(), (PACKAGE, ROOT, page.parent))
    assert not faults, "\n".join(faults)


def words_in(folder: Path) -> set[str]:
    """The names in a folder's files, and those of the files."""
    paths = [path for path in folder.rglob("*") if path.suffix == ".py" or path.is_dir()]
    return {path.stem for path in paths}.union(*(words_of(path) for path in paths
                                                 if path.is_file()))  # fmt: skip


@cache
def words_of(path: Path) -> frozenset[str]:
    """The words of a file behind its docstring."""
    return frozenset(re.findall(r"\w+", without_docstring(path.read_text())))


def without_docstring(text: str) -> str:
    return text.partition('"""')[2].partition('"""')[2]


def names_in(text: str) -> set[str]:
    """Those in backticks that are one word."""
    return {each for each in quoted(text) if each.isidentifier()}


def test_names_in_the_design_page_are_in_the_library() -> None:
    unknown = names_in(design_page.PAGE.read_text()) - words_in(PACKAGE)
    assert not unknown, f"{unknown}: no file of the library has these names"


@pytest.mark.parametrize("title", ["An op and its backward", "A saved tensor that leaves"])
def test_a_short_way_passes_eight_files(title: str) -> None:
    text = design_page.PAGE.read_text().partition(f"### {title}")[2].partition("\n### ")[0]
    steps = "\n".join(re.findall(r"^\d+\. .*(?:\n   .*)*", text, re.MULTILINE))
    files = {each.partition("::")[0] for each in quoted(steps) if ".py" in each}
    assert 5 <= len(files) <= 8, sorted(files)


def test_the_checker_sees() -> None:
    assert not faults_of("`ops/table.py::Op.jvp`, `ops/`, `ops/table.py`, `x * y`, `Op.jvp`")
    assert len(faults_of("`ops/nothing.py`")) == 1
    assert len(faults_of("`ops/table.py::Op.nothing`")) == 1


@cache
def names_of_rooms() -> frozenset[str]:
    """The library's folders, and what is Python's own."""
    return frozenset(each.name for each in PACKAGE.rglob("*") if each.is_dir()) | {*dir(builtins)}


@pytest.mark.parametrize("path", ROOMS, ids=design_page.name_of)
def test_a_room_says_what_lives_there_and_where_to_begin(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    rest = text.partition("\n\n")[2]
    assert "egin" in rest, "want a paragraph: what lives there, who imports what, where to begin"
    faults = faults_of(text, (path.parent, PACKAGE, ROOT))
    assert not faults, "\n".join(faults)
    unknown = names_in(text) - words_in(path.parent) - names_of_rooms()
    assert not unknown, f"{unknown}: no file of the room has these names"
