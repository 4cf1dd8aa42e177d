"""Processes in which the fake CUDA is CuPy, forked from one that has imported what each needs.

Nothing of the library is imported in the one that is forked: what a variable of the environment
says is read after that.
"""

from __future__ import annotations

import atexit
import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support import forked

EARLY = ("_hypothesis_pytestplugin", "_pytest.setupplan", "_pytest.unittest", "_pytest.warnings",
         "asyncio", "cupy.testing", "cupyx.linalg", "cupyx.scipy.special", "hypothesis",
         "ml_dtypes", "numpy.testing", "pdb", "pytest", "readline", "scipy.linalg", "scipy.special",
         "tomllib", "unittest.mock")  # fmt: skip
_first = forked.Forked(__name__)


def run(words: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs pytest on the fake CUDA in a process with that environment alone."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        code = _first.ask(words=words, environment=environment, out=str(out), err=str(err))
        return subprocess.CompletedProcess([*words], int(code), out.read_text(), err.read_text())


class InFork(Exception):
    """The process goes on as a fork, with these words for pytest."""

    def __init__(self, words: list[str]) -> None:
        self.words = words


def fork(job: dict[str, Any]) -> int:
    """The status of a fork that does a job; in the fork, InFork."""
    pid = os.fork()
    if pid == 0:
        raise InFork(_begin(**job))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _begin(words: list[str], environment: dict[str, str], out: str, err: str) -> list[str]:
    for number, path in enumerate((os.devnull, out, err)):
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    return [
        *words,
        "-W",
        "ignore:Module already imported so cannot:pytest.PytestAssertRewriteWarning",
    ]


def main() -> None:
    for name in EARLY:
        with suppress(ImportError):
            importlib.import_module(name)
    fake_cuda = importlib.import_module("tests.support.fake_cuda")
    try:
        forked.serve(fork)
    except InFork as begun:
        words = begun.words
    outcome = fake_cuda.main(words)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(outcome)  # what was imported is taken apart in none of them


if __name__ == "__main__":
    main()
