"""docs/torch-compatibility.md names what is here, and what it says of PyTorch is so."""

from __future__ import annotations

import importlib
import importlib.util
import operator
import re
from typing import Any

import pytest

import cugrad
from tests.documents import compatibility_page as page


def test_page_is_up_to_date() -> None:
    written = page.PAGE.read_text()
    assert written == page.page(), "run: python -m tests.documents.compatibility_page --write"


@pytest.mark.pinned_torch
def test_record_is_pytorch_s() -> None:
    pytest.importorskip("torch")
    assert page.RECORD.read_text() == page.record(), (
        "run, with PyTorch 2.13: python -m tests.documents.compatibility_page --record"
    )


def test_notes_are_of_names_that_are_asked_for() -> None:
    names = {page.full(space, name) for space, listed in page.SPACES.items() for name in listed}
    assert set(page.NOTES) <= names
    assert {note.state for note in page.NOTES.values()} <= {"differs", "more", "absent"}


def test_what_is_absent_is_not_here() -> None:
    """A note that says so goes when the name has come."""
    stale = [
        page.full(space, name)
        for space, listed in page.SPACES.items()
        for name in listed
        if page.NOTES.get(page.full(space, name), ("", ""))[0] == "absent"
        and page.found("cugrad", space, name) is not None
    ]
    assert not stale


@pytest.mark.parametrize(
    ("theirs", "ours", "said"),
    [
        ("(x, y=None)", "(x, y=None)", ""),
        ("(x, y=None)", "(x)", "without `y`"),
        ("(x)", "(x, *, z=1)", "also `z`"),
        ("(x, y=1)", "(x, y=2)", "by default `y=2`"),
        ("(f)", "(fn)", "named otherwise: `f` is `fn`"),
        ("callable", "(x)", ""),
        ("(*args)", "(x)", ""),
        ("(x, y=(1, 2))", "(x, y=(1, 2))", ""),
        ("(x, _hidden=1)", "(x)", ""),
        ("(x, y=...)", "(x, y=1)", ""),
    ],
)
def test_differences_of_signatures(theirs: str, ours: str, said: str) -> None:
    assert page.difference(theirs, ours) == said


def test_an_absent_name_wants_a_reason() -> None:
    with pytest.raises(SystemExit, match="nowhere is not here: say why in NOTES"):
        page.row("nowhere", "()", None)


def test_names_in_the_documents_are_there() -> None:
    """A dotted name in a code span of a page resolves, and its links lead somewhere."""
    importlib.import_module("cugrad.backends.simulated")
    homes: dict[str, Any] = {"torch": cugrad, "cugrad": cugrad, "F": cugrad.nn.functional}
    for name in ("memory", "profiler", "nn", "optim", "backends", "cuda", "func", "amp", "autograd",
                 "linalg", "fft", "special", "utils", "random"):  # fmt: skip
        homes[name] = getattr(cugrad, name)
    span = re.compile(rf"`((?:{'|'.join(homes)})(?:\.[A-Za-z_]\w*)+)")
    files = [f for f in (page.ROOT / "docs").glob("*.md") if f != page.PAGE]
    for file in [page.ROOT / "README.md", *files]:
        text = file.read_text()
        for name in span.findall(text):
            first, _, rest = name.partition(".")
            try:
                operator.attrgetter(rest)(homes[first])
            except AttributeError:  # a module, which nothing has imported yet
                path = f"{homes[first].__name__}.{rest}"
                assert importlib.util.find_spec(path), f"{file.name}: {name}"
        for link in re.findall(r"\]\(([\w./-]+)\)", text):
            assert (file.parent / link).exists(), (file.name, link)
