"""The command line of `run`: torchrun's, in what is here."""

from __future__ import annotations

import os
from argparse import REMAINDER, ArgumentParser, Namespace
from typing import NamedTuple, NoReturn

from ... import backends

__all__ = ["Launch", "get_args_parser", "job_of"]

PROG = "python -m cugrad.distributed.run"
# Options of torchrun's that are not here, and what to do.
REFUSED = {
    "--log-dir": "redirect the output of the command",
    "--redirects": "redirect the output of the command",
    "--tee": "redirect the output of the command",
    "--local-ranks-filter": "print on rank 0 alone",
    "--local-addr": "give --master-addr",
    "--numa-binding": "use numactl",
}


class Launch(NamedTuple):
    """What is started: which command, in how many processes here, of how many machines."""

    command: list[str]  # of one process; a script, or a module behind "-m"
    is_module: bool
    is_python: bool
    here: int  # processes of this machine
    machines: int
    machine: int  # the number of this one
    address: str
    port: int | None
    restarts: int
    name: str  # TORCHELASTIC_RUN_ID
    role: str


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{PROG}: {message}\n")  # in one line


def get_args_parser() -> ArgumentParser:
    """The parser of the command line."""
    parser = _Parser(
        prog=PROG,
        description="Starts a script in several processes of this machine, its ranks. On several "
        "machines the same command is started on each.",
    )

    def add(name: str, **how: object) -> None:
        names = {name, "--" + name[2:].replace("-", "_")}
        parser.add_argument(*sorted(names), **how)  # type: ignore[arg-type]

    add("--nproc-per-node", default="1", help="ranks of this machine: a number, cpu, gpu or auto")
    add("--nnodes", default="1", help="machines")
    add("--node-rank", type=int, help="this machine's number; default SLURM_NODEID, or 0 of one")
    add("--master-addr", help="the address of machine 0; default 127.0.0.1 of one")
    add("--master-port", type=int, help="a free port there; default one that is free, of one")
    add("--max-restarts", type=int, default=0, help="how often to start again after a failure")
    add("--rdzv-endpoint", default="", help="HOST:PORT, in place of --master-addr and -port")
    add("--rdzv-backend", default="static", help="taken for static: give --node-rank")
    add("--rdzv-id", default="none", help="the job's name, TORCHELASTIC_RUN_ID")
    add("--role", default="default", help="ROLE_NAME of the processes")
    add("--standalone", action="store_true", help="one machine, and any free port")
    parser.add_argument("-m", "--module", action="store_true", help="as python -m does")
    add("--no-python", action="store_true", help="start a program that is none of Python's")
    for name, instead in REFUSED.items():
        add(name, help=f"not here: {instead}")
    parser.add_argument("script", help="the script or module")
    parser.add_argument("arguments", nargs=REMAINDER, help="its arguments")
    return parser


def job_of(arguments: list[str]) -> Launch:
    """What a command line asks for; SystemExit, with a line that says why, if it is none."""
    parser = get_args_parser()
    words = parser.parse_args(arguments)
    for name, instead in REFUSED.items():
        if getattr(words, name[2:].replace("-", "_")) is not None:
            parser.error(f"{name} is not here: {instead}")
    low, _, high = words.nnodes.partition(":")
    if not low.isdigit() or high not in ("", low) or int(low) < 1:
        parser.error(
            f"--nnodes: got {words.nnodes}, want a number of machines, which does not change"
        )
    machines = 1 if words.standalone else int(low)
    here = _processes(parser, words.nproc_per_node)
    address, port = _address(parser, words, machines)
    if words.module and words.no_python:
        parser.error(
            "Don't use both the '--no-python' flag and the '--module' flag at the same time."
        )
    if not words.module and not words.no_python and not os.path.exists(words.script):
        parser.error(f"can't open file {words.script!r}: there is no such file")
    machine = words.node_rank
    if machine is None:
        machine = int(os.environ.get("SLURM_NODEID", "-1" if machines > 1 else "0"))
    if not 0 <= machine < machines:
        parser.error(f"--node-rank: got {machine}, want a number from 0 to {machines - 1}")
    if words.max_restarts and machines > 1:
        parser.error("--max-restarts is not here for several machines: have the scheduler restart")
    return Launch(
        [words.script, *words.arguments], words.module, not words.no_python, here, machines,
        machine, address, port, words.max_restarts, words.rdzv_id, words.role,
    )  # fmt: skip


def _processes(parser: ArgumentParser, text: str) -> int:
    gpus = backends.get("cuda").device_count() if backends.is_usable("cuda") else 0
    if text == "gpu" and not gpus:
        parser.error("--nproc-per-node gpu: there is no GPU that can be used")
    if text == "gpu" or (text == "auto" and gpus):
        return gpus
    if text in ("cpu", "auto"):
        return os.cpu_count() or 1
    if not text.isdigit() or int(text) < 1:
        parser.error(f"--nproc-per-node: got {text}, want a number of processes, cpu, gpu or auto")
    return int(text)


def _address(parser: ArgumentParser, words: Namespace, machines: int) -> tuple[str, int | None]:
    """Where machine 0 listens; no port where any that is free will do."""
    address, port = words.master_addr, words.master_port
    if words.rdzv_endpoint and machines > 1:
        host, _, number = words.rdzv_endpoint.rpartition(":")
        address, port = address or host or words.rdzv_endpoint, port or int(number or 29500)
    if machines > 1 and not address:
        parser.error("--master-addr: want the address of machine 0, where there are several")
    return address or "127.0.0.1", port or (29500 if machines > 1 else None)
