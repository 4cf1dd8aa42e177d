"""Starts ranks: each runs cases of a module, and says how each case went."""

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

from cugrad.distributed.run import launch
from tests.support import ROOT, forked
from tests.support.patience import eventually, patient

LIMIT = 150.0  # seconds after which ranks count as hanging, on a machine with other things to do
HANG = f"the ranks hang: killed after {LIMIT} s"
ENDED = "ended"
_first = forked.Forked(__name__)


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


def run_ranks(module: str, size: int, cases: list[str], by_mpiexec: bool = False) -> Outcome:
    """Runs cases of a module of tests in `size` processes, one case after the other.

    The processes are forks, which bring MPI together; or mpiexec starts them.
    """
    skip_without_mpi()
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "output"
        if by_mpiexec:
            _start_by_mpiexec([module, folder, *cases], size, text)
        else:
            _first.ask(words=[module, folder, *cases], size=size, output=str(text))
        return Outcome(Path(folder), size, text.read_text())


def _start_by_mpiexec(words: list[str], size: int, text: Path) -> None:
    command = [str(mpiexec()), "-n", str(size), sys.executable, "-m", __name__, *words]
    with open(text, "w") as output, subprocess.Popen(
        command, cwd=ROOT, env=_environment(), start_new_session=True,
        stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            process.wait(patient(LIMIT))
        except subprocess.TimeoutExpired:
            output.write(HANG)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _environment() -> dict[str, str]:
    """Without what tells a rank who it is: who starts it does."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "SLURM", "OMPI"))}
    return {**clean, "PYTHONPATH": str(ROOT), "CUGRAD_DEVICE": "cpu"}


def fork(job: dict[str, Any]) -> str:
    """Forks all ranks of a job, and waits until they have ended. In a fork it does not return."""
    size, words = job["size"], job["words"]
    shared = {
        **_environment(), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(launch._free_port()),
    }  # fmt: skip
    left = set()
    for rank in range(size):
        pid = os.fork()
        if pid == 0:
            os.environ.clear()
            os.environ.update(shared, RANK=str(rank), LOCAL_RANK=str(rank))
            for number, path in enumerate((os.devnull, job["output"], job["output"])):
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
                os.dup2(file, number)
                os.close(file)
            tempfile.tempdir = None
            main(*words)
            sys.exit()
        left.add(pid)

    def have_ended() -> bool:
        left.difference_update([pid for pid in left if os.waitpid(pid, os.WNOHANG)[0]])
        return not left

    if not eventually(have_ended, LIMIT):
        with open(job["output"], "a") as output:
            output.write(HANG)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return ENDED


def main(module: str, folder: str, *cases: str) -> None:
    """One rank."""
    os.environ["CUGRAD_RANKS_FOLDER"] = folder
    functions: Any = importlib.import_module(module)
    rank = os.environ.get("RANK") or os.environ["PMI_RANK"]
    with open(Path(folder) / f"{rank}.json", "w") as file:
        for case in cases:
            try:
                text = getattr(functions, case)() or "ok"
            except BaseException:
                text = traceback.format_exc()
            print(json.dumps([case, text]), file=file, flush=True)


if __name__ == "__main__":
    if sys.argv[1:]:
        main(*sys.argv[1:])
    else:  # to be forked
        os.environ["CUGRAD_DEVICE"] = "cpu"
        forked.serve(fork)
