"""The loader: which samples of a dataset, in which batches, by which workers."""

from __future__ import annotations

import math
import multiprocessing
import multiprocessing.context
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from ...backends import get
from ...device import device as Device
from ...functions.creation.random import Generator
from ...runtime.absent import explain
from ._utils.collate import default_collate, default_convert
from ._utils.fetch import _DatasetKind
from ._utils.worker import get_worker_info
from .dataset import Dataset, IterableDataset
from .iterators import (
    _BaseDataLoaderIter,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]

T_co = TypeVar("T_co", covariant=True)
FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class _InfiniteConstantSampler(Sampler[None]):
    """None for ever: the "keys" of an IterableDataset, which alone knows its end."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


class DataLoader(Generic[T_co]):
    """Iterates over a dataset in batches, which `num_workers` processes can get ready ahead.

    Args:
        dataset: a Dataset, or whatever has `__getitem__` and `__len__`; or an IterableDataset.
        batch_size: samples of a batch; None: samples come one by one, as `collate_fn` makes them.
        shuffle: whether samples come in random order, another one each time.
        sampler: the keys of the samples, in order, instead of `shuffle`.
        batch_sampler: lists of keys; instead of all of the above, and of `drop_last`.
        num_workers: processes that get batches; with 0 this one does, when a batch is asked for.
        collate_fn: makes a batch of a list of samples; `default_collate` makes tensors.
        pin_memory: whether batches are copied to page-locked memory, by a thread where there are
            workers, so that `x.to("cuda", non_blocking=True)` does not make the host wait.
        drop_last: whether a last batch that is not full is left out.
        timeout: seconds that a batch of workers is waited for; 0: as long as all of them live.
        worker_init_fn: called with the number of the worker in each, after seeding.
        multiprocessing_context: how workers are started: "fork", "spawn", or a context of
            multiprocessing's; None: as Python does by default.
        generator: decides the order, and the seeds of workers; None: the default generator.
        prefetch_factor: batches that each worker gets ahead, 2 unless said otherwise.
        persistent_workers: whether workers live on when all batches have come.
        pin_memory_device: deprecated, and ignored with a warning: the device is the one in use.
        in_order: whether batches of workers come in order; else as they get ready.
        device: where batches are when they come; an addition to PyTorch's. The next batch is copied
            from page-locked memory by a side stream while the one before is in use, so that
            `x.to(device)` has nothing left to do. None: they stay where they were made.

    With `device` a batch is got before it is asked for, here too: the dataset is one batch ahead of
    the loop, and three batches are on the device at most. What is no dense tensor without gradient
    and has a method `to` is moved by that in its turn, on the current stream.

    A worker computes on the CPU, with the seed `base_seed + number`, Python's and NumPy's
    generators too. Its batches come in shared memory. What it raises is raised here, of the same
    type, with the worker's traceback in the text; one that dies is named by a RuntimeError.

    ValueError and TypeError for arguments that exclude one another, or are out of range.

    >>> import cugrad as torch
    >>> from cugrad.utils.data import DataLoader, TensorDataset
    >>> images, labels = torch.arange(10.0).reshape(5, 2), torch.arange(5)
    >>> loader = DataLoader(TensorDataset(images, labels), batch_size=2, shuffle=True)
    >>> len(loader), sum(y.sum().item() for x, y in loader)
    (3, 10)
    """

    dataset: Any
    batch_size: int | None
    num_workers: int
    pin_memory: bool
    drop_last: bool
    timeout: float
    sampler: Any
    pin_memory_device: str
    device: Device | None
    prefetch_factor: int | None
    _iterator: _BaseDataLoaderIter | None
    __initialized = False

    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        device: Device | str | int | None = None,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        self.dataset, self.num_workers, self.timeout = dataset, num_workers, timeout
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.worker_init_fn, self.in_order = worker_init_fn, in_order
        self.device = None if device is None else Device(device)
        if self.device is not None:
            get(self.device.type)  # RuntimeError with the reason, where it cannot be used
        self.multiprocessing_context = multiprocessing_context
        self._dataset_kind = _DatasetKind.Map
        if isinstance(dataset, IterableDataset):
            self._dataset_kind = _DatasetKind.Iterable
            _check_iterable(shuffle, sampler, batch_sampler)
        shuffle = bool(shuffle)
        _check_sampling(batch_size, shuffle, sampler, batch_sampler, drop_last)
        if batch_sampler is not None:
            batch_size = None
        if sampler is None:
            sampler = self._default_sampler(shuffle, generator)
        if batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size, self.drop_last, self.sampler = batch_size, drop_last, sampler
        self.batch_sampler, self.generator = batch_sampler, generator
        self.collate_fn = collate_fn or (
            default_collate if self._auto_collation else default_convert
        )
        self.persistent_workers = persistent_workers
        self._IterableDataset_len_called: int | None = None
        self._iterator = None
        self.__initialized = True
        self.check_worker_number_rationality()

    def _default_sampler(self, shuffle: bool, generator: Generator | None) -> Sampler[Any]:
        if self._dataset_kind == _DatasetKind.Iterable:
            return _InfiniteConstantSampler()
        if shuffle:
            return RandomSampler(self.dataset, generator=generator)
        return SequentialSampler(self.dataset)

    def _get_iterator(self) -> _BaseDataLoaderIter:
        if self.num_workers == 0:
            return _SingleProcessDataLoaderIter(self)
        self.check_worker_number_rationality()
        return _MultiProcessingDataLoaderIter(self)

    @property
    def multiprocessing_context(self) -> Any:
        """How workers are started; None: as Python does by default."""
        return self.__multiprocessing_context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        if context is not None:
            context = _checked_context(context, self.num_workers)
        self.__multiprocessing_context = context

    def __setattr__(self, attr: str, val: Any) -> None:
        if self.__initialized and attr in FIXED:
            raise ValueError(
                f"{attr} attribute should not be set after {self.__class__.__name__} is initialized"
            )
        super().__setattr__(attr, val)

    def __iter__(self) -> _BaseDataLoaderIter:
        if not self.persistent_workers or self.num_workers == 0:
            return self._get_iterator()
        if self._iterator is None or getattr(self._iterator, "_shutdown", False):
            self._iterator = self._get_iterator()
        else:
            self._iterator._reset(self)
        return self._iterator

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._auto_collation else self.sampler

    def __len__(self) -> int:
        """The number of batches; TypeError where the dataset, or the sampler, has no length.

        That of an IterableDataset is what the dataset says, whatever workers make of it; iterators
        warn if more comes.
        """
        if self._dataset_kind != _DatasetKind.Iterable:
            return len(self._index_sampler)
        length = self._IterableDataset_len_called = len(self.dataset)
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else math.ceil(length / self.batch_size)

    def check_worker_number_rationality(self) -> None:
        """Warns of more workers than there are processors for this process."""
        has_affinity = hasattr(os, "sched_getaffinity")
        processors = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count()
        if not self.num_workers or (processors and self.num_workers <= processors):
            return
        advice = (
            "DataLoader is not able to compute a suggested max number of worker in current system."
            if processors is None
            else f"Our suggested max number of worker in current system is {processors}"
            f"{'' if has_affinity else ' (`cpuset` is not taken into account)'}, which is smaller "
            "than what this DataLoader is going to create."
        )
        warnings.warn(
            f"This DataLoader will create {self.num_workers} worker processes in total. {advice} "
            "Please be aware that excessive worker creation might get DataLoader running slow or "
            "even freeze, lower the worker number to avoid potential slowness/freeze if necessary.",
            stacklevel=2,
        )


def _check_workers(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent: bool
) -> None:
    if num_workers < 0:
        raise ValueError(
            "num_workers option should be non-negative; "
            "use num_workers=0 to disable multiprocessing."
        )
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing."
            "let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None."
        )
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


def _check_iterable(shuffle: Any, sampler: Any, batch_sampler: Any) -> None:
    options = {"shuffle": shuffle or None, "sampler": sampler, "batch_sampler": batch_sampler}
    for name, value in options.items():
        if value is not None:
            raise ValueError(
                f"DataLoader with IterableDataset: expected unspecified {name} option, but got "
                f"{name}={value}"
            )


def _check_sampling(
    batch_size: int | None, shuffle: bool, sampler: Any, batch_sampler: Any, drop_last: bool
) -> None:
    if sampler is not None and shuffle:
        raise ValueError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None:
        if batch_size != 1 or shuffle or sampler is not None or drop_last:
            raise ValueError(
                "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, "
                "and drop_last"
            )
    elif batch_size is None and drop_last:
        raise ValueError(
            "batch_size=None option disables auto-batching and is mutually exclusive with drop_last"
        )


def _checked_context(context: Any, num_workers: int) -> Any:
    if num_workers <= 0:
        raise ValueError(
            "multiprocessing_context can only be used with multi-process loading "
            f"(num_workers > 0), but got num_workers={num_workers}"
        )
    if isinstance(context, str):
        methods = multiprocessing.get_all_start_methods()
        if context not in methods:
            raise ValueError(
                "multiprocessing_context option should specify a valid start method in "
                f"{methods!r}, but got multiprocessing_context={context!r}"
            )
        context = multiprocessing.get_context(context)
    if not isinstance(context, multiprocessing.context.BaseContext):
        raise TypeError(
            "multiprocessing_context option should be a valid context object or a string "
            f"specifying the start method, but got multiprocessing_context={context}"
        )
    return context


explain(__name__)
