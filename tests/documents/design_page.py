"""Writes the rooms of docs/design.md from the layers, the folders and their first sentences.

`python -m tests.documents.design_page --write` after a file, a room or a layer has changed; a test
fails until then.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from tests.project.test_architecture import IGNORANCE, LAYERS, PACKAGE
from tests.support import ROOT

PAGE = ROOT / "docs" / "design.md"
BEGIN = "<!-- rooms: written by `python -m tests.documents.design_page --write` -->"
END = "<!-- rooms: end -->"
COLUMNS = 100


def home_of(room: str) -> Path:
    """The folder of a room, or its one file."""
    folder = PACKAGE / room
    return folder if folder.is_dir() else PACKAGE / f"{room}.py"


def name_of(path: Path) -> str:
    """What a room is called: `autograd/engine`."""
    return (path.parent if path.name == "__init__.py" else path).relative_to(PACKAGE).as_posix()


def rooms_in(folder: Path) -> Iterator[Path]:
    """A folder and the folders in it that are packages, at any depth."""
    yield folder
    for inner in sorted(path.parent for path in folder.glob("*/__init__.py")):
        yield from rooms_in(inner)


def first_sentence(path: Path) -> str:
    """What the docstring of a file says first."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    found = re.match(r".*?[.!?](?=\s|$)", text.split("\n\n")[0].replace("\n", " "))
    return found.group() if found else text


def layers() -> list[tuple[int, list[str]]]:
    """Each layer that has rooms, with its number; the lowest is 1."""
    built = [[room for room in row if home_of(room).exists()] for row in LAYERS]
    built = [row for row in built if row]
    return [(len(built) - depth, row) for depth, row in enumerate(built)]


def picture() -> str:
    """The layers as lines of text, the public face on top."""
    rule = "     +" + "-" * (COLUMNS - 8)
    lines = [rule]
    for number, row in layers():
        names = "  ".join("cugrad/__init__.py" if room == "__init__" else room for room in row)
        for i, part in enumerate(textwrap.wrap(names, COLUMNS - 12)):
            lines.append(f"{number if i == 0 else '':>4} |  {part}")
        lines.append(rule)
    return "\n".join(["```text", *lines, "```"])


def entry(home: Path) -> str:
    """A line of the list: a room, how many files it has, and its first sentence."""
    name = home.relative_to(PACKAGE).as_posix()
    if home.is_dir():
        count = len(list(home.glob("*.py")))
        label, sentence = f"`{name}/`, {count} files", first_sentence(home / "__init__.py")
    else:
        label, sentence = f"`{home.stem}`, 1 file", first_sentence(home)
    depth = 2 * name.count("/")
    return textwrap.fill(
        f"- {label}: {sentence}", COLUMNS, initial_indent=" " * depth,
        subsequent_indent=" " * (depth + 2), break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def rooms() -> str:
    """All rooms by layer, with what each layer may import."""
    parts = []
    for number, row in layers():
        below = {1: "nothing of cugrad", 2: "layer 1"}.get(number, f"layers 1 to {number - 1}")
        parts.append(f"**Layer {number}** may import {below}.\n")
        for room in row:
            home = home_of(room)
            parts += [entry(each) for each in (rooms_in(home) if home.is_dir() else [home])]
        parts.append("")
    parts.append("Some imports are forbidden although the layers would allow them:\n")
    for importer, imported, reason in IGNORANCE:
        parts.append(f"- `{importer}` does not import `{imported}`: {reason}.")
    return "\n".join(parts)


def block() -> str:
    """What stands between the two marks in the page."""
    return f"{BEGIN}\n\n{picture()}\n\n{rooms()}\n\n{END}"


def page() -> str:
    """The page as it should be: what people wrote, and the block as it is now."""
    before, mark, rest = PAGE.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (mark and end):
        raise ValueError(f"{PAGE.name}: want the lines {BEGIN!r} and {END!r} around the rooms")
    return before + block() + after


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.documents.design_page", description=__doc__
    )
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}, not to stdout")
    if parser.parse_args().write:
        PAGE.write_text(page())
    else:
        print(block())
    return 0


if __name__ == "__main__":
    sys.exit(main())
