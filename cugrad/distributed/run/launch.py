"""Starts the processes of this machine, and waits for them."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...runtime.absent import Asked
from ..engines import mpi
from ..starting import is_nccl_available
from .options import PROG, Launch, job_of

__all__ = ["main"]

GRACE = 10.0  # seconds in which processes may end by themselves when they are asked to
PAUSE = 0.05
# What says who a process is; those that are started are told anew.
PLACES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "PMI_", "PMIX_", "OMPI_", "MPI_LOCAL", "SLURM_PROCID",
          "SLURM_LOCALID", "SLURM_NTASKS", "TORCHELASTIC_USE_AGENT")  # fmt: skip


def main(args: Sequence[str] | None = None) -> int:
    """Starts what a command line asks for; 0, or the status of a process that failed.

    On one machine MPI's launcher starts the processes, where there is one. Else they are started
    here, and meet at MASTER_ADDR and MASTER_PORT.
    """
    job = job_of(list(sys.argv[1:] if args is None else args))
    launcher = mpiexec() if job.machines == 1 and job.here > 1 else None
    if job.here * job.machines > 1 and not (is_nccl_available() or mpi.is_there()):
        return _said("ranks on CPUs meet by MPI: pip install 'cugrad[mpi]'", 2)
    for restart in range(job.restarts + 1):
        variables = environment(job, restart)
        with tempfile.TemporaryDirectory() as folder:
            if launcher is None:
                status, who = _run_each(job, variables, folder)
            else:
                status, who = _run_by_mpi(launcher, job, variables, folder), "a rank"
            if status == 0:
                return 0
            again = ", and starts again" if restart < job.restarts else ""
            who, why = _recorded(folder) or (who, _shown(status))
            _said(f"{who} of {job.command[0]} ended with {why}{again}", 0)
    return status if status > 0 else 128 - status


def _recorded(folder: str) -> tuple[str, str] | None:
    """Which rank failed first, and of what, where its program notes that by `record`."""
    notes = sorted(Path(folder).iterdir(), key=lambda path: path.stat().st_mtime_ns)
    for path in notes:
        try:
            message = json.loads(path.read_text())["message"]["message"]
        except ValueError:  # its program was ended as it wrote
            continue
        return f"rank {path.name}", message.partition("\n")[0]
    return None


def mpiexec() -> str | None:
    """MPI's launcher, beside this Python or on the PATH; None where mpi4py is not installed."""
    if not mpi.is_there():
        return None
    beside = Path(sys.executable).parent / "mpiexec"
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def environment(job: Launch, restart: int) -> dict[str, str]:
    """The variables of all processes."""
    size = job.here * job.machines
    variables = {k: v for k, v in os.environ.items() if not k.startswith(PLACES)}
    variables.update(
        WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(job.here), GROUP_RANK=str(job.machine),
        GROUP_WORLD_SIZE=str(job.machines), ROLE_NAME=job.role, ROLE_WORLD_SIZE=str(size),
        MASTER_ADDR=job.address, MASTER_PORT=str(job.port or _free_port()),
        TORCHELASTIC_RUN_ID=job.name if job.name != "none" else secrets.token_hex(8),
        TORCHELASTIC_RESTART_COUNT=str(restart), TORCHELASTIC_MAX_RESTARTS=str(job.restarts),
    )  # fmt: skip
    if job.here > 1:
        variables.setdefault("OMP_NUM_THREADS", "1")  # else each takes all processors
    return variables


def _own(job: Launch, local: int, folder: str) -> dict[str, str]:
    """The variables of one process."""
    rank = str(job.machine * job.here + local)
    return {"RANK": rank, "ROLE_RANK": rank, "LOCAL_RANK": str(local),
            "TORCHELASTIC_ERROR_FILE": os.path.join(folder, rank)}  # fmt: skip


def _command(job: Launch) -> list[str]:
    if not job.is_python:
        return job.command
    python = [sys.executable, "-u"]
    if Asked.instead is not None:  # cugrad goes by PyTorch's name here, and so it does there
        python += ["-m", "cugrad.as_torch"]
    return [*python, *(["-m"] if job.is_module else []), *job.command]


def _run_by_mpi(launcher: str, job: Launch, variables: dict[str, str], folder: str) -> int:
    """The status of MPI's launcher, which ends all processes when one fails."""
    command = [launcher]
    for local in range(job.here):
        own = [f"{name}={value}" for name, value in _own(job, local, folder).items()]
        command += [*([":"] if local else []), "-n", "1", "env", *own, *_command(job)]
    return _wait([subprocess.Popen(command, env=variables)])[0]


def _run_each(job: Launch, variables: dict[str, str], folder: str) -> tuple[int, str]:
    """The status of the first process that fails, and which one it was."""
    processes = [
        subprocess.Popen(_command(job), env={**variables, **_own(job, local, folder)})
        for local in range(job.here)
    ]
    status, local = _wait(processes)
    return status, f"rank {job.machine * job.here + local}"


def _wait(processes: list[Any]) -> tuple[int, int]:
    """Until all have ended, or one has failed, when the others are ended."""
    handlers = {s: signal.signal(s, _interrupted) for s in (signal.SIGTERM, signal.SIGINT)}
    try:
        while True:
            states = [process.poll() for process in processes]
            for i, status in enumerate(states):
                if status:
                    return status, i
            if None not in states:
                return 0, 0
            time.sleep(PAUSE)
    except _Interrupted as interrupt:
        return -interrupt.number, 0
    finally:
        _end(processes)
        for number, handler in handlers.items():
            signal.signal(number, handler)


class _Interrupted(Exception):
    def __init__(self, number: int) -> None:
        self.number = number


def _interrupted(number: int, frame: Any) -> None:
    raise _Interrupted(number)


def _end(processes: list[Any]) -> None:
    """Asks processes to end, and ends those that do not."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    end = time.monotonic() + GRACE
    for process in processes:
        try:
            process.wait(max(end - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _shown(status: int) -> str:
    return f"exit code {status}" if status > 0 else f"signal {signal.Signals(-status).name}"


def _said(text: str, status: int) -> int:
    print(f"{PROG}: {text}", file=sys.stderr)
    return status
