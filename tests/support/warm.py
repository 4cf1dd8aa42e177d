"""Python programs in forks of a process that has imported what they need.

To import PyTorch and its compiler takes eight seconds of a processor, the library one.
"""

from __future__ import annotations

import atexit
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support import forked
from tests.support.patience import patient

__all__ = ["LIBRARY", "Warm"]

LIMIT = 300  # seconds after which a program is ended


class Warm:
    """Runs programs that may find some modules imported, as far as these are installed.

    What a program needs else it imports itself, by the path that a process of its own has. What a
    module reads of the environment as it is imported, CUGRAD_FUSED among that, is what stood there
    when the first program ran: to change it takes a process, or a `Warm` without the library.
    """

    def __init__(self, *modules: str) -> None:
        self._first = forked.Forked(__name__, *modules)

    def run(
        self, *words: str, environment: Mapping[str, str] | None = None, limit: int = LIMIT
    ) -> subprocess.CompletedProcess[str]:
        """Runs a script with arguments, or what follows "-c", in the root folder, with that
        environment alone, or this process's.
        """
        environment = dict(os.environ if environment is None else environment)
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            job = {"words": words, "environment": environment, "limit": limit}
            code = self._first.ask(**job, out=str(out), err=str(err))
            return subprocess.CompletedProcess(
                [*words], int(code), out.read_text("utf-8"), err.read_text("utf-8")
            )

    def end(self) -> None:
        """Ends the process that is forked; the next program begins another."""
        self._first.end()


LIBRARY = Warm("cugrad", "cugrad.nn.functional", "cugrad.profiler")


def fork(job: dict[str, Any]) -> int:
    """The status of a fork that does a job."""
    pid = os.fork()
    if pid == 0:
        _become(**job)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _become(words: list[str], environment: dict[str, str], limit: int, out: str, err: str) -> None:
    """Goes on as a program, and ends this process with its status."""
    code = 1
    try:
        for number, path in enumerate((os.devnull, out, err)):
            file = os.open(path, os.O_RDWR | os.O_CREAT)
            os.dup2(file, number)
            os.close(file)
        os.environ.clear()
        os.environ.update(environment)
        tempfile.tempdir = None
        signal.alarm(int(patient(limit)))
        code = _status_of(words)
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # what was imported is taken apart in none of them


def _status_of(words: list[str]) -> int:
    """Runs the program as the module `__main__`."""
    name, *rest = words
    if name == "-c":
        (text, *rest), sys.path[0] = rest, ""
    else:
        text, sys.path[0] = Path(name).read_text("utf-8"), str(Path(name).resolve().parent)
    paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[1:1] = [path for path in paths if path not in sys.path]
    sys.argv = [name, *rest]
    sys.modules["__main__"] = module = types.ModuleType("__main__")
    if name != "-c":
        module.__file__ = name
    try:
        exec(compile(text, "<string>" if name == "-c" else name, "exec"), module.__dict__)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    for name in sys.argv[1:]:
        with suppress(ImportError):
            importlib.import_module(name)
    forked.serve(fork)


if __name__ == "__main__":
    main()
