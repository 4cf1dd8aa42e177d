"""Reads changed files in a child with little memory, time and few descriptors; what may go wrong
is one of the documented errors. `python -m tests.support.mutations --seconds 60 --seed 1`."""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import IO, Any, NamedTuple, cast

from tests.support import mutators
from tests.support.mutation_seeds import archives, databases, old_files, traces

__all__ = ["FORMATS", "run"]

MEMORY = 256 << 20  # bytes of address space beyond what the imports take; files have 0.4 MB
CPU = 5.0  # seconds for one file
DESCRIPTORS = 40
AGAIN = 20  # times that a child is started anew after it died


class Format(NamedTuple):
    """A kind of files: whole ones, how they are changed, who reads them, what that may raise."""

    seeds: Callable[[Path], list[bytes]]
    change: Callable[[Random, bytes, list[bytes]], bytes]
    read: Callable[[Random, Path], Any]
    allowed: tuple[type[BaseException], ...]


class TooLong(BaseException):
    """A file was read for longer than any should be."""


def read_object(draw: Random, path: Path) -> None:
    import cugrad

    what = draw.randrange(6)
    if what == 0:
        cugrad.serialization.get_unsafe_globals_in_checkpoint(path)
    elif what == 1:
        cugrad.load(path, mmap=True)
    elif what == 2:
        cugrad.load(path, map_location="simulated")
    elif what == 3:
        cugrad.load(io.BytesIO(path.read_bytes()), map_location="cpu")
    else:
        cugrad.load(path)


def read_trace(draw: Random, path: Path) -> None:
    from cugrad.profiler import __main__ as command
    from cugrad.profiler import correlate, load_nsys, load_nvprof

    if draw.random() < 0.5:
        said, errors = io.StringIO(), io.StringIO()
        page = ["--html", str(path.with_suffix(".html"))] if draw.random() < 0.2 else []
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
            code = command.main(["report", str(path), *page])
        assert code in (0, 2), code
        assert errors.getvalue().count("\n") == (code == 2), errors.getvalue()
        return
    load = load_nvprof if b"StringTable" in path.read_bytes() else load_nsys
    events = load(path)
    str(events.key_averages())
    correlate(events).table()
    events.export_chrome_trace(path.with_suffix(".again"))


OF_LOAD = (pickle.UnpicklingError, RuntimeError, EOFError)
FORMATS = {
    "archive": Format(archives, mutators.changed_archive, read_object, OF_LOAD),
    "old format": Format(old_files, mutators.changed_old, read_object, OF_LOAD),
    "database": Format(databases, mutators.changed_database, read_trace, (ValueError,)),
    "Chrome trace": Format(traces, mutators.changed_chrome, read_trace, (ValueError,)),
}


# The child ----------------------------------------------------------------------------------------


def memory_taken() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def limit(seconds: float) -> None:
    """Lets this process take little; also what it writes to disk."""

    def late(*_: Any) -> None:
        raise TooLong

    signal.signal(signal.SIGVTALRM, late)
    most = memory_taken() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds + 2 * CPU + 60),) * 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 20,) * 2)


def attempt(seed: str, number: int, files: dict[str, list[bytes]], path: Path) -> str:
    """Reads one changed file; the traceback of what went wrong, or nothing."""
    draw = Random(f"{seed}:{number}")
    name = draw.choice(list(FORMATS))
    kind = FORMATS[name]
    path.write_bytes(kind.change(draw, draw.choice(files[name]), files[name]))
    open_before, wrong = open_files(), ""
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU)
    try:
        kind.read(draw, path)
    except kind.allowed as error:
        if not isinstance(error, OF_LOAD) and type(error).__name__ != "TraceError":
            wrong = traceback.format_exc()
    except BaseException:
        wrong = traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    if open_files() > open_before:
        gc.collect()
        wrong = wrong or ("descriptors are left open" if open_files() > open_before else "")
    return f"{name}, a copy is {kept(path, number)}: {wrong}" if wrong else ""


def kept(path: Path, number: int) -> Path:
    """A copy of a file that stays."""
    copy = path.parent.parent / f"mutation-{os.getpid()}-{number}"
    copy.write_bytes(path.read_bytes())
    return copy


def child(folder: Path, seed: str, first: int, seconds: float, only: bool) -> None:
    """Reads files until time is over; says the number of each, and what went wrong."""
    warnings.simplefilter("ignore")
    files = {name: kind.seeds(folder) for name, kind in FORMATS.items()}
    say: Callable[[Any], Any] = lambda what: os.write(1, json.dumps(what).encode() + b"\n")
    limit(seconds)
    gc.collect()
    end, number = time.monotonic() + seconds, first
    while only or time.monotonic() < end:
        say(number)
        wrong = attempt(seed, number, files, folder / "changed")
        if wrong:
            say([number, wrong])
        number += 1
        if only:
            return


# The parent ---------------------------------------------------------------------------------------


def run(seconds: float, seed: str, only: int | None = None) -> tuple[int, dict[int, str]]:
    """Reads changed files for so long: how many, and what went wrong by the number of the file."""
    wrong: dict[int, str] = {}
    end, number, count = time.monotonic() + seconds, only or 0, 0
    folder = Path(tempfile.mkdtemp(prefix="mutations-"))
    try:
        for _ in range(AGAIN):
            left = max(end - time.monotonic(), 0.0)
            command = [sys.executable, "-m", "tests.support.mutations", "--child", str(folder),
                       "--seed", seed, "--first", str(number), "--seconds", str(left)]  # fmt: skip
            place = {**os.environ, "PYTHONHASHSEED": "0", "TMPDIR": str(folder)}
            started = subprocess.Popen(
                [*command, *(["--only"] if only is not None else [])], stdout=subprocess.PIPE,
                env=place, text=True,
            )  # fmt: skip
            at = number - 1
            with started, cast("IO[str]", started.stdout) as lines:
                for line in lines:
                    said = json.loads(line)
                    if isinstance(said, int):
                        at, count = said, count + 1
                    else:
                        wrong[said[0]] = said[1]
            code = started.returncode
            if code == 0:
                break
            copy = kept(folder / "changed", at) if (folder / "changed").exists() else "not there"
            wrong[at] = wrong.get(at, "") + f"a copy is {copy}: the child ended with {code}"
            number = at + 1
            if only is not None or time.monotonic() >= end:
                break
    finally:
        shutil.rmtree(folder)
    return count, wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.mutations", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", default=str(Random().randrange(10**9)))
    parser.add_argument("--only", nargs="?", type=int, const=-1, metavar="N", help="one file again")
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        child(options.child, options.seed, options.first, options.seconds, options.only is not None)
        return 0
    print(f"seed {options.seed}", flush=True)
    count, wrong = run(options.seconds, options.seed, options.only)
    kinds: dict[str, int] = {}
    for number, text in wrong.items():
        last = text.strip().splitlines()[-1][:300]
        kinds[last] = kinds.get(last, 0) + 1
        if kinds[last] <= 2:
            print(f"--seed {options.seed} --only {number}\n{text}\n")
    print(f"{count} files, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
