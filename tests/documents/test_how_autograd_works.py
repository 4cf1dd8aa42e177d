"""The page that rebuilds the library runs, step by step, and what it builds agrees with cugrad."""

from __future__ import annotations

import re

from tests.support import ROOT

PAGE = ROOT / "docs/how-autograd-works.md"


def test_the_page_runs() -> None:
    names: dict[str, object] = {"__name__": "how_autograd_works"}
    text = PAGE.read_text()
    for fence in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        line = text[: fence.start(1)].count("\n")
        exec(compile("\n" * line + fence[1], str(PAGE), "exec"), names)
    assert "compared" in names


def test_steps_are_short_and_name_files_that_are_there() -> None:
    steps = re.split(r"^## (?=\d)", PAGE.read_text(), flags=re.MULTILINE)[1:]
    assert len(steps) == 7
    for step in steps:
        code = re.findall(r"^```python\n(.*?)^```$", step, re.MULTILINE | re.DOTALL)
        assert max(len(part.splitlines()) for part in code) <= 60, step[:30]
        assert "The real thing" in step
        for named in re.findall(r"`(cugrad/[\w/]+(?:\.py)?)/?`", step):
            assert (PAGE.parent.parent / named).exists(), named
