"""A program that is run in a fork ends, and says, as one in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.warm import Warm

pytestmark = [
    pytest.mark.host_only,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no process can be forked"),
]
FIRST = Warm("no_such_module", "json")
PROGRAMS = {
    "words": "import sys; print(sys.argv[1:], __name__, sys.path[0] == ''); sys.stderr.write('é')",
    "status": "raise SystemExit(7)",
    "text": "raise SystemExit('why')",
    "error": "def f(): 1 / 0\nf()",
    "at the end": "import atexit; atexit.register(print, 'last'); print('first')",
    "a thread": "import threading, time\n"
                "threading.Thread(target=lambda: (time.sleep(0.05), print('late'))).start()",
    "killed": "import os; os.kill(os.getpid(), 9)",
    "environment": "import os; print(os.environ['ONE'], os.environ.get('CUGRAD_DEVICE'))",
    "its own path": "import warm_program_of_the_tests; print('found')",
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_fork_is_as_a_process(name: str, tmp_path: Path) -> None:
    (tmp_path / "warm_program_of_the_tests.py").write_text("")
    environment = {"PATH": os.environ["PATH"], "ONE": "1", "PYTHONPATH": str(tmp_path)}
    environment |= {"PYTHONIOENCODING": "utf-8", "PYTHONDONTWRITEBYTECODE": "1"}
    words = ["-c", PROGRAMS[name], "a", "b c"]
    own = subprocess.run(
        [sys.executable, *words], env=environment, cwd=ROOT, capture_output=True, text=True,
        encoding="utf-8",
    )  # fmt: skip
    fork = FIRST.run(*words, environment=environment)
    assert (fork.returncode, fork.stdout) == (own.returncode, own.stdout)
    last = [run.stderr.splitlines()[-1:] for run in (fork, own)]
    assert last[0] == last[1]


def test_a_script_finds_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("found = 'yes'\n")
    script = tmp_path / "script.py"
    script.write_text("import beside, sys\nprint(beside.found, __file__ == sys.argv[0])\n")
    assert FIRST.run(str(script)).stdout == "yes True\n"


def test_what_takes_too_long_is_ended() -> None:
    run = FIRST.run("-c", "import time; time.sleep(60)", limit=1)
    assert run.returncode == -signal.SIGALRM
