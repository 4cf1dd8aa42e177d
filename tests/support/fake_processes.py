"""Processes in which the fake CUDA is CuPy, forked from one that has imported what each needs.

A process that imports CuPy, SciPy and pytest takes most of a second of a processor before its first
test, and thirty tests start one. Nothing of the library is imported in the one that is forked: what
a variable of the environment says is read after that.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.support import ROOT

EARLY = ("_hypothesis_pytestplugin", "_pytest.setupplan", "_pytest.unittest", "_pytest.warnings",
         "asyncio", "cupy.testing", "cupyx.linalg", "cupyx.scipy.special", "hypothesis",
         "ml_dtypes", "numpy.testing", "pdb", "pytest", "readline", "scipy.linalg", "scipy.special",
         "tomllib", "unittest.mock", "xdist.looponfail", "xdist.newhooks",
         "xdist.plugin")  # fmt: skip
_first: list[subprocess.Popen[str]] = []
_began: list[int] = []  # the process that has begun it


def run(words: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs pytest on the fake CUDA in a process with that environment alone."""
    if not _first or _began != [os.getpid()]:
        _began[:], _first[:] = [os.getpid()], []
        _first.append(subprocess.Popen(
            [sys.executable, "-m", __name__], cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        ))  # fmt: skip
    process = _first[0]
    assert process.stdin is not None and process.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        job = {"words": words, "environment": environment, "out": str(out), "err": str(err)}
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            end()
            raise RuntimeError("the process that is forked for the fake CUDA is gone")
        return subprocess.CompletedProcess([*words], int(answer), out.read_text(), err.read_text())


def end() -> None:
    """Ends the process that is forked, if it was begun; not in a fork of the one that began it."""
    for process in _first:
        if _began == [os.getpid()]:
            process.communicate()
    _first.clear()


def serve() -> list[str]:
    """Forks a process for each line that it reads; returns there, with the words for pytest."""
    for name in EARLY:
        with suppress(ImportError):
            importlib.import_module(name)
    importlib.import_module("tests.support.fake_cuda")
    gc.collect()
    gc.freeze()
    while line := sys.stdin.readline():
        pid = os.fork()
        if pid == 0:
            return _begin(**json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    sys.exit()


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


if __name__ == "__main__":
    words = serve()
    outcome = importlib.import_module("tests.support.fake_cuda").main(words)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(outcome)  # what was imported is taken apart in none of them
