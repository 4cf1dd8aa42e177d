"""Datasets and functions for loaders that a worker process of any start method can import."""

from __future__ import annotations

import collections
import os
import random
import signal
import sys
import time
from typing import Any

import numpy as np

import cugrad
from cugrad.utils import data

Point = collections.namedtuple("Point", "x y")


class Images(data.Dataset[Any]):
    """Arrays large enough for shared memory, with a number each."""

    def __init__(self, size: int = 7) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, i: int) -> Any:
        return np.full((3, 64, 64), i, np.float32), i


class Structures(data.Dataset[Any]):
    """Samples of every form that is collated."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, i: int) -> Any:
        return {
            "point": Point(float(i), np.float32(i)),
            "words": [str(i), b"b"],
            "tensor": cugrad.full((2,), i, dtype=cugrad.bfloat16, device="cpu"),
            "empty": np.zeros((0, 3)),
            "strided": np.asfortranarray(np.full((2, 3), i)),
        }


class Counting(data.IterableDataset[Any]):
    """The numbers below `size`, shared out among the workers; `said` is the length it claims."""

    def __init__(self, size: int = 7, said: int | None = None) -> None:
        self.size, self.said = size, said

    def __iter__(self) -> Any:
        worker = data.get_worker_info()
        return iter(range(self.size)[slice(None) if worker is None
                                     else slice(worker.id, None, worker.num_workers)])  # fmt: skip

    def __len__(self) -> int:
        if self.said is None:
            raise TypeError("no length")
        return self.said


class Draws(data.Dataset[Any]):
    """What each worker's generators draw first, and its seed."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, i: int) -> Any:
        worker = data.get_worker_info()
        assert worker is not None
        return (worker.id, worker.seed, random.random(), float(np.random.rand()),
                float(cugrad.rand(())), str(cugrad.rand(()).device))  # fmt: skip


class NeedsTwo(Exception):
    """An exception that a text alone does not make."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(one, two)


class Failing(data.Dataset[Any]):
    """Sample 2 does what `how` says; the others are their index."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> Any:
        return getattr(self, self.how)() if i == 2 else np.full(20_000, i)

    def value(self) -> Any:
        raise ValueError("this is wrong")

    def key(self) -> Any:
        raise KeyError("this is wrong")

    def two(self) -> Any:
        raise NeedsTwo(1, 2)

    def local(self) -> Any:
        class Local(Exception):
            pass

        raise Local("this is wrong")

    def unsent(self) -> Any:
        return lambda: None

    def graph(self) -> Any:
        return cugrad.ones(2, requires_grad=True) * 2

    def stop(self) -> Any:
        raise StopIteration

    def killed(self) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    def exits(self) -> Any:
        os._exit(3)

    def interrupts(self) -> Any:
        while True:  # Python drops one that arrives in a destructor
            os.kill(os.getppid(), signal.SIGINT)
            time.sleep(60)  # longer than the time that a worker is given to end by itself

    def sleeps(self) -> Any:
        time.sleep(1000)


def identity(batch: Any) -> Any:
    return batch


def shifted(number: int) -> None:
    """A `worker_init_fn` that changes the worker's own dataset."""
    worker = data.get_worker_info()
    assert worker is not None and worker.id == number
    worker.dataset.size += 10


def refuses(number: int) -> None:
    raise RuntimeError(f"worker {number} will not")


def main(how: str) -> None:
    """A program that is ended in the middle of an epoch in some way."""
    loader = data.DataLoader(
        Images(1000), num_workers=2, batch_size=2, prefetch_factor=4,
        persistent_workers=how == "persistent",
    )  # fmt: skip
    batches = iter(loader)
    next(batches)
    print(*[process.pid for process in batches._workers], flush=True)  # type: ignore[attr-defined]
    if how in ("exits", "persistent"):
        return
    if how == "raises":
        raise SystemExit(5)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            next(batches, None)
    except KeyboardInterrupt:
        sys.exit(7)


if __name__ == "__main__":
    main(sys.argv[1])
