"""Counts the files that one has to open to follow a call: docs/design.md says how it is counted."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import pytest

import cugrad
from cugrad import backends
from cugrad.backends import simulated
from cugrad.memory.offloading import engine, storages
from tests.project.test_architecture import PACKAGE
from tests.support import ROOT

pytestmark = pytest.mark.host_only

ANSWER = 6  # lines: what runs no more of a file answers a question, and need not be opened
MOST = 8  # files
# The simulated device, and the accounts that it writes once a test has asked for statistics.
DEVICE = ("/backends/simulated/", "/backends/allocations.py")


class Walk(NamedTuple):
    """The lines that ran, by file, and which files called which."""

    lines: dict[str, set[int]]
    calls: set[tuple[str, str]]

    def files(self) -> set[str]:
        return {name for name, lines in self.lines.items() if len(lines) > ANSWER}

    def turns(self) -> set[frozenset[str]]:
        """Pairs of files that call one another."""
        mine = self.files()
        return {frozenset((a, b)) for a, b in self.calls
                if a != b and {a, b} <= mine and (b, a) in self.calls}  # fmt: skip


def home(frame: FrameType | None) -> str:
    """The file of a frame, below the package; "" for others, and for those of a device."""
    name = "" if frame is None else frame.f_code.co_filename
    if name.startswith("cugrad fast path"):
        return "the text of the row"
    inside = name.startswith(str(PACKAGE)) and not any(part in name for part in DEVICE)
    return name[len(str(PACKAGE)) + 1 :] if inside else ""


def walk(call: Callable[[], Any]) -> Walk:
    """What runs of the library while `call` does."""
    seen = Walk({}, set())

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if here := home(frame):
            if event == "call" and (caller := home(frame.f_back)):
                seen.calls.add((caller, here))
            if event == "line":
                seen.lines.setdefault(here, set()).add(frame.f_lineno)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return seen


def multiplication() -> list[Walk]:
    """`x * y`, and backward, after the row has been compiled."""
    x, y = (cugrad.ones(8, requires_grad=True, device="cpu") for _ in range(2))
    ones = cugrad.ones(8, device="cpu")
    for each in range(2):
        x.grad = y.grad = None
        seen = walk(lambda: (x * y).backward(ones)) if each else (x * y).backward(ones)
    assert isinstance(seen, Walk)
    return [seen]


def saving() -> list[Walk]:
    """A tensor that leaves, and that returns, in the third step of `save_on_cpu`."""
    context = cugrad.autograd.graph.save_on_cpu(pin_memory=True)
    packed: list[Any] = []
    walks: list[Walk] = []

    def run(call: Callable[[], Any], is_seen: bool) -> None:
        walks.append(walk(call)) if is_seen else call()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_engines", {})  # what others left is swept now and then
        # An allocator may give a root the id of one that is gone: here that happens each time.
        patch.setattr(storages, "id", lambda root: id(root) // 4096 % 5, raising=False)
        for step in range(3):
            with (
                context,
                simulated.configured(policy="earliest"),
            ):  # no tests before this one decide
                tensors = [cugrad.ones(4096, device="simulated") * i for i in range(8)]
                while tensors:
                    seen = (step, len(tensors)) == (2, 4)
                    run(lambda held=tensors: packed.append(context.pack_hook(held.pop())), seen)
            with simulated.configured(policy="earliest"):
                while packed:
                    run(lambda: context.unpack_hook(packed.pop()), (step, len(packed)) == (2, 4))
        backends.get("simulated").synchronize()  # before the engine goes
    return walks


# These run what they are handed with the state of the thread around it: no reader turns back.
HANDED = {
    frozenset(("autograd/mode.py", "runtime/kept.py")),
    frozenset(("autograd/mode.py", "autograd/engine/differentiate.py")),
}


@pytest.mark.parametrize("title, walks", [
    ("An op and its backward", multiplication), ("A saved tensor that leaves and returns", saving),
])  # fmt: skip
def test_a_call_passes_few_files_and_turns_back_nowhere(
    title: str, walks: Callable[[], list[Walk]]
) -> None:
    page = (ROOT / "docs" / "design.md").read_text()
    section = page[page.index(f"### {title}") :]
    section = section[: section.index("\n#", 1)]
    rows = [set(re.findall(r"`([^`]+)`", line)) for line in section.splitlines()
            if line.startswith("| ") and "`" in line]  # fmt: skip
    seen = walks()
    assert [len(each.files()) <= MOST for each in seen] == [True] * len(seen)
    assert rows == [each.files() for each in seen], "the page's table of files is another"
    assert not {pair for each in seen for pair in each.turns()} - HANDED


def test_a_file_that_calls_back_is_seen() -> None:
    both = {("a", "b"), ("b", "a"), ("b", "c")}
    seen = Walk({"a": set(range(9)), "b": set(range(9)), "c": {1}}, both)
    assert seen.files() == {"a", "b"} and seen.turns() == {frozenset("ab")}
