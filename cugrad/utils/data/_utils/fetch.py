"""Gets the samples of a batch from a dataset, in the main process or in a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..dataset import Subset, TensorDataset
from .collate import stacks_tensors

__all__: list[str] = []


class _BaseDatasetFetcher:
    def __init__(
        self,
        dataset: Any,
        auto_collation: bool,
        collate_fn: Callable[[Any], Any],
        drop_last: bool,
    ) -> None:
        self.dataset, self.auto_collation = dataset, auto_collation
        self.collate_fn, self.drop_last = collate_fn, drop_last

    def fetch(self, possibly_batched_index: Any) -> Any:
        raise NotImplementedError


class _IterableDatasetFetcher(_BaseDatasetFetcher):
    """Takes the next samples, as many as there are indices; StopIteration where there are none."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.dataset_iter = iter(self.dataset)
        self.ended = False

    def fetch(self, possibly_batched_index: Any) -> Any:
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.dataset_iter))
        samples = []
        for _ in possibly_batched_index:
            try:
                samples.append(next(self.dataset_iter))
            except StopIteration:
                self.ended = True
                break
        if not samples or (self.drop_last and len(samples) < len(possibly_batched_index)):
            raise StopIteration
        return self.collate_fn(samples)


class _MapDatasetFetcher(_BaseDatasetFetcher):
    """Asks for the samples of the indices, at once if the dataset can, or for the batch itself."""

    def fetch(self, possibly_batched_index: Any) -> Any:
        if not self.auto_collation:
            samples = self.dataset[possibly_batched_index]
            return self.collate_fn(samples)
        if isinstance(self.dataset, (TensorDataset, Subset)) and stacks_tensors(self.collate_fn):
            batch = self.dataset._batch(possibly_batched_index)
            if batch is not None:
                return batch
        if hasattr(self.dataset, "__getitems__") and self.dataset.__getitems__:
            samples = self.dataset.__getitems__(possibly_batched_index)
        else:
            samples = [self.dataset[index] for index in possibly_batched_index]
        return self.collate_fn(samples)


class _DatasetKind:
    Map = 0
    Iterable = 1

    @staticmethod
    def create_fetcher(
        kind: int, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool
    ) -> _BaseDatasetFetcher:
        fetcher = _IterableDatasetFetcher if kind else _MapDatasetFetcher
        return fetcher(dataset, auto_collation, collate_fn, drop_last)
