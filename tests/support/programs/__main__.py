"""Draws and runs programs in processes of their own, for a library may end one by a signal.

`python -m tests.support.programs --count 1000` runs so many, `--seconds 3600` for so long; `--seed`
begins with one, and `--seed 7 --show` prints the program of one. With `--device cuda` they run on
the CuPy that NumPy plays, again and again with operands that lie otherwise; with `gpu` on a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable

CHUNK = {"simulated": 200, "cuda": 20, "gpu": 100}  # programs in one process


Run = subprocess.CompletedProcess[str]


def in_a_process(words: list[str]) -> Run:
    """Runs this program with these words."""
    command = [sys.executable, "-m", __package__, *words]
    return subprocess.run(command, capture_output=True, text=True)


def supervise(options: argparse.Namespace, run: Callable[[list[str]], Run]) -> int:
    """Runs chunks in processes of their own until so many programs have run, or so long."""
    seed, count, seconds = options.seed, options.count, options.seconds
    began, counts, done = time.monotonic(), Counter[str](), 0
    while done < count and (not seconds or time.monotonic() - began < seconds):
        size = min(CHUNK[options.device], count - done)
        words = ["--chunk", "--seed", str(seed + done), "--count", str(size)]
        ran = run([*words, "--contexts", str(options.contexts), "--device", options.device])
        text, _, found = ran.stdout.rpartition("counts ")
        print(text if found else ran.stdout, end="", flush=True)
        if ran.returncode == 0 and found:
            counts.update(json.loads(found))
            done += size
        else:  # a signal ended it, and what it had counted is lost
            words = [line for line in ran.stderr.splitlines() if line.startswith("@ ")]
            where = words[-1] if words else f"@ {seed + done} start\n{ran.stderr}"
            torchs = "PyTorch" in where
            counts["ends of PyTorch's process" if torchs else "differences"] += 1
            if not torchs:
                print(f"# seed {where}: process ended by {ran.returncode}")
            done = int(where.split()[1]) - seed + 1
        if seconds:
            print(f"{time.monotonic() - began:.0f} s: {said(counts)}", flush=True)
    print(f"from seed {seed}: {said(counts)}; {time.monotonic() - began:.0f} s")
    return 1 if counts["differences"] else 0


def play_cuda() -> None:
    """Puts the CuPy that NumPy plays in the place of CuPy, with two devices: programs run on both,
    and the first is the current one.
    """
    os.environ["CUGRAD_DEVICE"] = "cpu"  # where no other is named
    os.environ["CUGRAD_CUDNN"] = "0"  # which looks for a driver
    os.environ.setdefault("CUGRAD_FAKE_DEVICES", "2")
    os.environ.setdefault("CUGRAD_FUSED", "0")  # with 1 each kernel is compiled: a second or two
    from tests.support import fake_cuda

    fake_cuda.COUNT = int(os.environ["CUGRAD_FAKE_DEVICES"])
    fake_cuda.install()


def play_gpu() -> None:
    """Has programs run on the GPU that there is, with CuPy's kernels and NVRTC's."""
    os.environ["CUGRAD_DEVICE"] = "cpu"  # where no other is named
    from tests.support import on_gpu

    assert on_gpu.fake_cuda.COUNT == 1


def said(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def has_gpu() -> bool:
    """Whether there is one that the library can use; asking imports it."""
    from cugrad.backends import is_usable

    return is_usable("cuda")


def main(argv: list[str] | None = None, run: Callable[[list[str]], Run] = in_a_process) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}", description=__doc__)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--contexts", type=int, default=2, help="in how many each program is run")
    parser.add_argument("--device", choices=[*CHUNK], default="simulated", help="beside the host")
    parser.add_argument("--show", action="store_true", help="print the program of a seed")
    parser.add_argument("--chunk", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.device == "gpu" and not has_gpu():
        print("programs: no GPU to run on", file=sys.stderr)
        return 2
    if not (options.show or options.chunk):  # this process only starts others, and loads no library
        return supervise(options, run)
    if options.device == "cuda":
        play_cuda()
    if options.device == "gpu":
        play_gpu()
    from .campaign import chunk, draw

    if options.show:
        print(draw(options.seed).script())
        return 0
    return chunk(options.seed, options.count, options.contexts)


if __name__ == "__main__":
    sys.exit(main())
