"""Processes that are forked from one which has imported what each of them needs.

To import NumPy, pytest and the library takes most of a second of a processor, and a hundred tests
start a process.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from tests.support import ROOT

__all__ = ["Forked", "end", "serve"]

_begun: list[Forked] = []


class Forked:
    """A module that is run as a program with some words, which calls `serve`; begun when it is
    first asked.
    """

    def __init__(self, module: str, *words: str) -> None:
        self.module, self.words = module, words
        self.process: subprocess.Popen[str] | None = None
        self.of = 0  # the process that has begun it: a fork of that begins its own

    def ask(self, **job: Any) -> str:
        """What it says of a job when that has ended."""
        if self.process is None or self.of != os.getpid():
            self.of = os.getpid()
            self.process = subprocess.Popen(
                [sys.executable, "-m", self.module, *self.words], cwd=ROOT, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
            _begun.append(self)
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            self.end()
            raise RuntimeError(f"{self.module}: the process that is forked is gone")
        return answer.strip()

    def end(self) -> None:
        if self.process is not None and self.of == os.getpid():
            self.process.communicate()
        self.process = None


def end() -> None:
    """Ends all that this process has begun."""
    while _begun:
        _begun.pop().end()


def serve(run: Callable[[dict[str, Any]], Any]) -> None:
    """Answers each job that it reads with what `run` returns of it, and ends."""
    gc.collect()
    gc.freeze()
    while line := sys.stdin.readline():
        print(run(json.loads(line)), flush=True)
    sys.exit()
