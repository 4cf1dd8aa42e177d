"""What a worker process of a loader runs: it takes orders, and sends a parcel for each."""

from __future__ import annotations

import os
import pickle
import queue
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from ....autograd.mode import is_grad_enabled, state
from ....backends.numpy import threads
from ....device import set_default_device
from ....functions.creation.random import manual_seed
from ....runtime.kept import LOCALS
from . import parcels
from .failures import ExceptionWrapper
from .fetch import _DatasetKind

__all__ = ["WorkerInfo", "get_worker_info"]

MP_STATUS_CHECK_INTERVAL = 5.0  # seconds between two looks whether the process that asks is there
_worker_info: WorkerInfo | None = None


@dataclass(frozen=True)
class WorkerInfo:
    """A worker: its number among `num_workers`, its seed, and its own copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any
    rng: Any = None
    worker_method: str | None = "multiprocessing"


def get_worker_info() -> WorkerInfo | None:
    """What a worker process knows of itself; None in another process.

    >>> from cugrad.utils.data import DataLoader, IterableDataset, get_worker_info
    >>> class Shard(IterableDataset):
    ...     def __iter__(self):
    ...         worker = get_worker_info()
    ...         return iter(range(6) if worker is None else range(worker.id, 6, worker.num_workers))
    >>> list(DataLoader(Shard(), batch_size=3))
    [tensor([0, 1, 2]), tensor([3, 4, 5])]
    """
    return _worker_info


@dataclass(frozen=True)
class _IterableDatasetStopIteration:
    """The answer of a worker whose dataset has no more samples."""

    worker_id: int


@dataclass(frozen=True)
class _ResumeIteration:
    """The order to begin anew, and the answer to it."""

    seed: int | None = None


@dataclass(frozen=True)
class Job:
    """What all workers of an iterator are told when they start."""

    dataset_kind: int
    dataset: Any
    auto_collation: bool
    collate_fn: Callable[[Any], Any]
    drop_last: bool
    base_seed: int
    init_fn: Callable[[int], Any] | None
    num_workers: int


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Four words for NumPy's old generator: PyTorch's, by the hash of NumPy's SeedSequence.

    >>> _generate_state(0, 1)
    [1835504127, 1731038949, 1320224556, 2330041505]
    """
    entropy = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    words = np.random.SeedSequence(entropy, pool_size=4).generate_state(4)
    return [int(word) for word in words]


def seed_worker(base_seed: int, worker_id: int) -> int:
    """Seeds cugrad's, Python's and NumPy's generators; the seed."""
    seed = base_seed + worker_id
    random.seed(seed)
    manual_seed(seed)
    np.random.seed(_generate_state(base_seed, worker_id))
    return seed


def begin_afresh() -> None:
    """Leaves what a forked process has of its parent's thread, all but its grad mode."""
    recording = is_grad_enabled()
    for local in LOCALS:
        vars(local).clear()
        vars(local).update(vars(type(local)()))
    state.switch(grad_mode=recording)
    set_default_device("cpu")  # a device is for the process that trains
    try:
        threads.set_num_threads(1)
    except RuntimeError:  # a BLAS that cannot be told
        pass


def _listen(orders: Connection, inbox: queue.SimpleQueue[bytes | None], asker: int) -> None:
    """Puts orders into the inbox, so that whoever sends them never waits.

    Ends the process when the one that asks is gone: what it sends would not be read.
    """
    try:
        while True:
            if orders.poll(MP_STATUS_CHECK_INTERVAL):
                order = orders.recv_bytes()
                inbox.put(order or None)
                if not order:
                    return
            elif os.getppid() != asker:
                break
    except (EOFError, OSError):
        pass
    os._exit(1)


class Worker:
    """One worker process: its fetcher, and its ends of the two pipes."""

    def __init__(self, job: Job, number: int, results: Connection) -> None:
        self.job, self.number, self.results = job, number, results
        self.where = f"in DataLoader worker process {number}"
        self.ended = False
        self.fetcher: Any = None
        self.failure: ExceptionWrapper | None = None

    def begin(self) -> None:
        """Seeds, and calls the user's function; what that raises answers the first order."""
        global _worker_info
        begin_afresh()
        seed = seed_worker(self.job.base_seed, self.number)
        _worker_info = WorkerInfo(self.number, self.job.num_workers, seed, self.job.dataset)
        try:
            if self.job.init_fn is not None:
                self.job.init_fn(self.number)
            self.make_fetcher()
        except Exception:
            self.failure = ExceptionWrapper(where=self.where)

    def make_fetcher(self) -> None:
        job = self.job
        self.ended = False
        self.fetcher = _DatasetKind.create_fetcher(
            job.dataset_kind, job.dataset, job.auto_collation, job.collate_fn, job.drop_last
        )

    def answer(self, task: Any, index: Any) -> None:
        """Sends what an order asks for."""
        if isinstance(task, _ResumeIteration):
            parcels.send(self.results, parcels.pack((task, None)))
            self.make_fetcher()
        elif not self.ended:
            parcels.send(self.results, self.packed(task, self.fetched(index)))

    def fetched(self, index: Any) -> Any:
        """The batch of an index, or what came instead."""
        if self.failure is not None:
            failure, self.failure = self.failure, None
            return failure
        try:
            return self.fetcher.fetch(index)
        except StopIteration:
            if self.job.dataset_kind == _DatasetKind.Iterable:
                self.ended = True
                return _IterableDatasetStopIteration(self.number)
            return ExceptionWrapper(where=self.where)
        except Exception:
            return ExceptionWrapper(where=self.where)

    def packed(self, task: int, data: Any) -> parcels.Parcel:
        """The parcel of a batch; of an error, for one that cannot be sent."""
        try:
            return parcels.pack((task, data))
        except Exception:
            return parcels.pack((task, ExceptionWrapper(where=self.where)))


def _worker_loop(
    job: Job, number: int, orders: Connection, results: Connection,
    others: tuple[Connection, ...],
) -> None:  # fmt: skip
    """Answers orders until one is empty; `others` are ends of pipes that it is to close."""
    for connection in others:
        connection.close()
    inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    listener = threading.Thread(target=_listen, args=(orders, inbox, os.getppid()), daemon=True)
    try:
        listener.start()
        worker = Worker(job, number, results)
        worker.begin()
        while (order := inbox.get()) is not None:
            worker.answer(*pickle.loads(order))
    except (ConnectionError, KeyboardInterrupt):
        pass  # the reader is gone; or the process that asks is interrupted, too, and says so
