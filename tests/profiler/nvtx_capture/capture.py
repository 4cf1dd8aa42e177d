"""Runs a Python script with an NVTX tool attached and reads back the ranges that the tool saw."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.support.warm import LIBRARY

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]


class Event(NamedTuple):
    """One line of the tool's output: what happened, in the order in which it happened."""

    time_ns: int
    thread: int
    kind: str  # push, pop, mark, start, end
    domain: str  # "default" for the unnamed one
    message: str
    payload: str


class Range(NamedTuple):
    """A push and its pop, with what the text of an emit_nvtx range says."""

    text: str
    name: str
    seq: int | None
    stashed: int | None
    sizes: str | None
    parents: tuple[str, ...]  # texts of the ranges around it, outermost first
    thread: int


def compiler() -> str | None:
    """The C compiler to build the tool with, or None."""
    return next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)


def build(folder: Path) -> Path:
    """Compiles the tool into `folder`; needs `compiler()`."""
    library = folder / "libnvtx_capture.so"
    options = ["-O1", "-Wall", "-Wextra", "-shared", "-fPIC", "-pthread"]
    source = str(HERE / "nvtx_capture.c")
    subprocess.run([compiler() or "cc", *options, "-o", str(library), source], check=True)
    return library


class Run(NamedTuple):
    """What the tool saw of a script, and what the script printed."""

    events: list[Event]
    printed: str


def run(script: str, library: Path, output: Path, emitter: str = "") -> Run:
    """Runs Python source in a process with the tool attached; AssertionError if it fails."""
    output.unlink(missing_ok=True)
    environment = os.environ | {
        "NVTX_INJECTION64_PATH": str(library),
        "NVTX_CAPTURE_FILE": str(output),
        "CUGRAD_NVTX": emitter,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    done = LIBRARY.run("-c", script, environment=environment)
    assert done.returncode == 0, f"the script failed:\n{done.stdout}\n{done.stderr}"
    lines = output.read_text(encoding="utf-8").splitlines() if output.exists() else []
    return Run([event_of(line) for line in lines], done.stdout)


ESCAPES = {r"\t": "\t", r"\n": "\n", r"\\": "\\"}


def event_of(line: str) -> Event:
    time_ns, thread, kind, domain, message, payload = line.split("\t")
    message = re.sub(r"\\[tn\\]", lambda match: ESCAPES[match[0]], message)
    return Event(int(time_ns), int(thread), kind, domain, message, payload)


TEXT = re.compile(
    r"(?P<name>.*?)(, (?P<stashed>stashed )?seq=(?P<seq>\d+))?(, sizes=(?P<sizes>.*))?", re.S
)


def ranges_of(events: Iterable[Event], domain: str = "default") -> list[Range]:
    """The ranges of a domain in the order of their pushes; AssertionError unless they balance."""
    found: list[Range] = []
    open_in: dict[int, list[str]] = defaultdict(list)
    for event in events:
        stack = open_in[event.thread]
        if event.domain != domain:
            continue
        if event.kind == "push":
            said = TEXT.fullmatch(event.message)
            assert said is not None
            seq = None if said["seq"] is None else int(said["seq"])
            forward, stashed = (None, seq) if said["stashed"] else (seq, None)
            context = said["sizes"], tuple(stack), event.thread
            found.append(Range(event.message, said["name"], forward, stashed, *context))
            stack.append(event.message)
        elif event.kind == "pop":
            assert stack, f"a pop without a push in thread {event.thread}, after {found[-1:]}"
            stack.pop()
    left = {thread: stack for thread, stack in open_in.items() if stack}
    assert not left, f"ranges that nobody popped: {left}"
    return found
