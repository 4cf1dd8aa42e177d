"""Training scripts that were drawn do in cugrad what they do in PyTorch, statement by statement."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

from tests.support import ROOT
from tests.support.scripts.drawing import draw, draw_context
from tests.support.scripts.running import ACCEPTED, difference_in, difference_of, shortened

pytestmark = [pytest.mark.host_only, pytest.mark.slow]

FIRST = 300001  # of the seeds, which are the same in each run: news are for ci/fuzz.sh
DRAWN = 60  # scripts
WITHIN = 30  # contexts of memory


@pytest.mark.parametrize("count, options", [(DRAWN, ""), (WITHIN, "--contexts --device simulated")])
def test_scripts_do_the_same(count: int, options: str) -> None:
    """What is found is mended, and has a test of its own; or a row of the page says why it is
    there, and a line of `accepted.txt` how it is known.
    """
    for seed in range(FIRST, FIRST + count):
        script: list[str] = draw(seed)
        look: Any = difference_of
        if options:
            look = partial(
                difference_in, context=draw_context(seed), device="simulated", looks=seed % 2 == 0
            )
        found = look(script)
        if found is not None:
            script, found = shortened(script, found, look)
            again = f"python -m tests.support.scripts --seed {seed} --count 1 {options}"
            raise AssertionError("\n".join([f"{found}, again by: {again}", *script]))


def test_a_difference_is_found_and_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    script = [
        "net = nn.Sequential(nn.Linear(2, 2))", "fill(net)", "x = numbers(3, 2)", "log(net(x))",
        "opt = optim.SGD(net.parameters(), lr=.1)", "net.eval()", "net(x).sum().backward()",
        "opt.step()", "log(net(x))",
    ]  # fmt: skip
    assert difference_of(["net = fill(nn.Sequential(nn.Linear(2, 2)))", *script[2:]]) is None
    monkeypatch.setattr("cugrad.optim.SGD.step", lambda self: None)
    script[:2] = ["net = fill(nn.Sequential(nn.Linear(2, 2)))"]
    found = difference_of(script)
    assert found is not None and found.statement == "opt.step()" and found.where == "net.0.bias"
    script, found = shortened(script, found)
    assert script == [script[0], "x = numbers(3, 2)", "opt = optim.SGD(net.parameters(), lr=.1)",
                      "net(x).sum().backward()", "opt.step()"]  # fmt: skip


def test_what_is_accepted_stands_on_the_page() -> None:
    page = (ROOT / "docs" / "torch-compatibility.md").read_text()
    rows = {line.split(" | ")[0].strip("| ") for line in page.splitlines() if line[:1] == "|"}
    assert {row for row, _, _ in ACCEPTED} <= rows
