"""The iterators of a loader: one that gets batches itself, and one that has workers get them."""

from __future__ import annotations

import itertools
import multiprocessing
import warnings
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from ...backends import get, is_usable
from ...device import device
from ...profiler import record_function
from ._utils.ahead import on_device
from ._utils.failures import ExceptionWrapper
from ._utils.fetch import _DatasetKind
from ._utils.pin_memory import pin_memory
from ._utils.worker import (
    MP_STATUS_CHECK_INTERVAL,
    Job,
    _IterableDatasetStopIteration,
    _ResumeIteration,
)
from ._utils.workforce import NOTHING, PinningWorkforce, Workforce
from .sampler import drawn_seed

if TYPE_CHECKING:
    from .dataloader import DataLoader

__all__: list[str] = []


class _BaseDataLoaderIter:
    """What both have in common: the order of indices, the seed, the warning of a wrong length."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._dataset = loader.dataset
        self._dataset_kind = loader._dataset_kind
        self._IterableDataset_len_called = loader._IterableDataset_len_called
        self._auto_collation = loader._auto_collation
        self._drop_last = loader.drop_last
        self._index_sampler = loader._index_sampler
        self._num_workers = loader.num_workers
        self._pin_memory = loader.pin_memory and is_usable("cuda")
        self._pin_memory_device = "cuda" if self._pin_memory else None
        self._on_device = (
            None if loader.device is None else on_device(loader.device, loader.num_workers > 0)
        )
        self._warn_of_pinning(loader)
        self._timeout = loader.timeout
        self._collate_fn = loader.collate_fn
        self._sampler_iter = iter(self._index_sampler)
        self._base_seed = drawn_seed(loader.generator)
        self._persistent_workers = loader.persistent_workers
        self._num_yielded = 0
        self._profile_name = f"enumerate(DataLoader)#{self.__class__.__name__}.__next__"

    def _warn_of_pinning(self, loader: DataLoader[Any]) -> None:
        if loader.pin_memory and loader.pin_memory_device:
            warnings.warn(
                "pin_memory_device is deprecated, the current accelerator will be used as the "
                f"device,ignore pin_memory_device='{loader.pin_memory_device}'.",
                stacklevel=6,
            )
        if loader.pin_memory and not self._pin_memory:
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device "
                "pinned memory won't be used.",
                stacklevel=6,
            )

    def __iter__(self) -> _BaseDataLoaderIter:
        return self

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        self._sampler_iter = iter(self._index_sampler)
        self._num_yielded = 0
        if self._on_device is not None:
            self._on_device.forget()
        self._IterableDataset_len_called = loader._IterableDataset_len_called

    def _next_index(self) -> Any:
        return next(self._sampler_iter)

    def _next_data(self) -> Any:
        raise NotImplementedError

    def __next__(self) -> Any:
        with record_function(self._profile_name):
            moves = self._on_device
            data = self._next_data() if moves is None else moves.next(self._next_data)
            self._num_yielded += 1
            length = self._IterableDataset_len_called
            if length is not None and self._num_yielded > length:
                self._warn_of_length(length)
            return data

    def _warn_of_length(self, length: int) -> None:
        text = (
            f"Length of IterableDataset {self._dataset} was reported to be {length}"
            f"(when accessing len(dataloader)), but {self._num_yielded} samples have been fetched. "
        )
        if self._num_workers > 0:
            text += (
                "For multiprocessing data-loading, this could be caused by not properly "
                "configuring the IterableDataset replica at each worker. Please see "
                "https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset for "
                "examples."
            )
        warnings.warn(text, stacklevel=3)

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __getstate__(self) -> Any:
        raise NotImplementedError("{} cannot be pickled", self.__class__.__name__)


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """Gets each batch when it is asked for."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        if self._timeout != 0:
            raise AssertionError("_SingleProcessDataLoaderIter requires timeout == 0")
        self._dataset_fetcher = _DatasetKind.create_fetcher(
            self._dataset_kind, self._dataset, self._auto_collation, self._collate_fn,
            self._drop_last,
        )  # fmt: skip

    def _next_data(self) -> Any:
        index = self._next_index()
        if self._on_device is None and not self._pin_memory:
            return self._dataset_fetcher.fetch(index)
        with device("cpu"):  # what numbers and arrays become is not on a device yet
            data = self._dataset_fetcher.fetch(index)
        return (
            pin_memory(data) if self._on_device is None else data
        )  # that page-locks what it copies


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Has workers get batches ahead: `prefetch_factor` each, by turns, and yields them in order.

    A batch that was asked of a worker is a task. `_task_info` has the worker of each task that was
    not yielded, and its batch once that has come.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        if loader.prefetch_factor is None or loader.prefetch_factor <= 0:
            raise AssertionError(
                "prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter"
            )
        self._prefetch_factor = loader.prefetch_factor
        self._in_order = loader.in_order
        self._worker_init_fn = loader.worker_init_fn
        job = Job(
            self._dataset_kind, self._dataset, self._auto_collation, self._collate_fn,
            self._drop_last, self._base_seed, self._worker_init_fn, self._num_workers,
        )  # fmt: skip
        force = Workforce(loader.multiprocessing_context or multiprocessing, job)
        self._workforce: Workforce | PinningWorkforce = force
        if self._pin_memory:
            index = get("cuda").current_device()
            self._workforce = PinningWorkforce(force, partial(_pinned_on, index))
        self._workers = force.processes
        self._shutdown_workers = weakref.finalize(self, self._workforce.close)  # at exit too
        try:
            self._reset(loader, first_iter=True)
        except BaseException:  # an interrupt, or a worker that has died
            self._end_now()
            raise

    def _end_now(self) -> None:
        """Ends the workers without the time that they have to end by themselves."""
        if self._workforce.grace:
            self._workforce.grace = 0.0
            self._shutdown_workers()

    @property
    def _shutdown(self) -> bool:
        return not self._shutdown_workers.alive

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        super()._reset(loader, first_iter)
        self._send_idx = self._rcvd_idx = 0  # the next task to be sent; to be yielded
        self._task_info: dict[int, tuple[Any, ...]] = {}
        self._tasks_outstanding = 0  # those whose batch has not come
        self._workers_status = [True] * self._num_workers  # False: its dataset is exhausted
        self._workers_num_tasks = [0] * self._num_workers
        self._worker_queue_idx_cycle = itertools.cycle(range(self._num_workers))
        if not first_iter:
            self._resume()
        for _ in range(self._prefetch_factor * self._num_workers):
            self._try_put_index()

    def _resume(self) -> None:
        """Has persistent workers begin anew, and forgets what they were at."""
        for number in range(self._num_workers):
            self._workforce.send(number, _ResumeIteration(), None)
        waiting = self._num_workers
        while waiting:
            task, _ = self._get_data()
            waiting -= isinstance(task, _ResumeIteration)

    def _get_data(self) -> Any:
        """The next answer; RuntimeError for a worker that is dead, or late."""
        force = self._workforce
        try:
            if self._timeout > 0:
                answer = force.receive(self._timeout)
                if answer is NOTHING:
                    force.grace = 0.0
                    raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
                return answer
            while (answer := force.receive(MP_STATUS_CHECK_INTERVAL)) is NOTHING:
                pass
            return answer
        except BaseException:  # a worker is dead, or the user interrupts
            self._end_now()
            raise

    def _next_data(self) -> Any:
        while self._advance():
            if len(self._task_info[self._rcvd_idx]) == 2:
                number, data = self._task_info.pop(self._rcvd_idx)
                self._rcvd_idx += 1
                return self._process_data(data, number)
            if self._shutdown:
                raise RuntimeError(
                    "the workers of this iterator have ended: an error, or an interrupt, came "
                    "before; iterate over the loader anew"
                )
            task, data = self._get_data()
            self._tasks_outstanding -= 1
            if isinstance(data, _IterableDatasetStopIteration):
                self._mark_as_exhausted(data.worker_id)
            elif task == self._rcvd_idx or not self._in_order:
                number = self._task_info.pop(task)[0]
                self._rcvd_idx += task == self._rcvd_idx
                return self._process_data(data, number)
            else:
                self._task_info[task] += (data,)
        if not self._persistent_workers:
            self._shutdown_workers()
        raise StopIteration

    def _advance(self) -> bool:
        """Goes on to the next task that will come or has come; whether there is one."""
        while self._rcvd_idx < self._send_idx:
            info = self._task_info.get(self._rcvd_idx)
            if info:
                if len(info) == 2 or self._workers_status[info[0]]:
                    return True
                del self._task_info[self._rcvd_idx]  # its worker has nothing left
            self._rcvd_idx += 1
        return False

    def _mark_as_exhausted(self, number: int) -> None:
        self._workers_status[number] = False
        if not self._persistent_workers:
            self._workforce.dismiss(number)
        self._try_put_index()

    def _try_put_index(self) -> None:
        """Gives the next index, if there is one, to the next worker that takes more."""
        try:
            index = self._next_index()
        except StopIteration:
            return
        for _ in range(self._num_workers):
            number = next(self._worker_queue_idx_cycle)
            if self._workers_status[number] and (self._in_order or self._has_room(number)):
                break
        else:
            return
        self._task_info[self._send_idx] = (number,)
        self._workers_num_tasks[number] += 1
        self._tasks_outstanding += 1
        self._send_idx += 1
        self._workforce.send(number, self._send_idx - 1, index)

    def _has_room(self, number: int) -> bool:
        share = self._prefetch_factor * self._num_workers // sum(self._workers_status)
        return self._workers_num_tasks[number] < share

    def _process_data(self, data: Any, number: int) -> Any:
        self._workers_num_tasks[number] -= 1
        self._try_put_index()
        if isinstance(data, ExceptionWrapper):
            data.reraise()
        return data


def _pinned_on(index: int | None, data: Any) -> Any:
    with get("cuda").use_device(index):
        return pin_memory(data)
