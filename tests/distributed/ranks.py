"""Starts ranks with mpiexec: each runs cases of a module, and says how each case went."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT
from tests.support.patience import eventually

LIMIT = 150.0  # seconds after which ranks count as hanging, on a machine with other things to do
ENDED = "ended"


def mpiexec() -> str | None:
    """The path of MPI's launcher, beside this Python or on the PATH; None without mpi4py."""
    if importlib.util.find_spec("mpi4py") is None:
        return None
    beside = Path(sys.executable).parent / "mpiexec"
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def skip_without_mpi() -> None:
    """Skips a test where ranks cannot be started."""
    if mpiexec() is None:
        pytest.skip("mpi4py and mpich are not installed: pip install 'cugrad[mpi]'")


class Outcome:
    """What ranks said: by case and rank, "ok" or the text of what went wrong."""

    def __init__(self, folder: Path, size: int, output: str) -> None:
        self.output, self.size = output, size
        self.ranks: list[dict[str, str]] = []
        for rank in range(size):
            path = folder / f"{rank}.json"
            lines = path.read_text().splitlines() if path.exists() else []
            self.ranks.append(dict(json.loads(line) for line in lines))

    def of(self, case: str) -> list[str]:
        """What each rank says of a case."""
        return [rank.get(case, f"not run\n{self.output[-2000:]}") for rank in self.ranks]

    def check(self, case: str) -> None:
        """Fails, with what went wrong on which rank, unless a case went well on all."""
        __tracebackhide__ = True
        texts = [f"rank {rank}: {text}" for rank, text in enumerate(self.of(case)) if text != "ok"]
        if texts:
            pytest.fail("\n".join(texts), pytrace=False)


def run_ranks(module: str, size: int, cases: list[str], **environment: str) -> Outcome:
    """Runs cases of a module of tests in `size` processes, one case after the other."""
    skip_without_mpi()
    with tempfile.TemporaryDirectory() as folder:
        command = [str(mpiexec()), "-n", str(size), sys.executable, "-m",
                   "tests.distributed.ranks", module, folder, *cases]  # fmt: skip
        # ranks are told who they are by this mpiexec alone
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "SLURM", "OMPI"))}
        variables = {**clean, "PYTHONPATH": str(ROOT), "CUGRAD_DEVICE": "cpu", **environment}
        text = Path(folder) / "output"
        with open(text, "w") as output, subprocess.Popen(
            command, cwd=ROOT, env=variables, start_new_session=True,
            stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            try:
                process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                pass
            finally:
                if left := _alive(folder):
                    output.write(f"the ranks hang: killed after {LIMIT} s")
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        return Outcome(Path(folder), size, text.read_text())


def _alive(folder: str) -> list[int]:
    """The processes of ranks that have not ended: those that were started with this folder."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if folder.encode() in words and sys.executable.encode() == words[0]:
                pids.append(int(path.parent.name))
    return pids


def main(module: str, folder: str, *cases: str) -> None:
    """One rank, in a process behind the one that mpiexec sees: that ends when all ranks have.

    So a rank may be killed, and mpiexec does not kill the others for it.
    """
    os.environ["CUGRAD_RANKS_FOLDER"] = folder
    if os.fork():
        os.wait()
        (Path(folder) / f"ended.{os.environ['PMI_RANK']}").touch()
        eventually(lambda: len(list(Path(folder).glob("ended.*"))) == int(os.environ["PMI_SIZE"]))
        return
    functions: Any = importlib.import_module(module)
    rank = os.environ["PMI_RANK"]
    with open(Path(folder) / f"{rank}.json", "w") as file:
        for case in cases:
            try:
                text = getattr(functions, case)() or "ok"
            except BaseException:
                text = traceback.format_exc()
            print(json.dumps([case, text]), file=file, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
