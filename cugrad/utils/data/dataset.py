"""Datasets: samples by their key or one after another, and datasets made of others."""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

import numpy as np

from ...functions.creation.random import Generator, default_generator, randperm
from ...tensor import Tensor, make

__all__ = [
    "ChainDataset", "ConcatDataset", "Dataset", "IterableDataset", "StackDataset", "Subset",
    "TensorDataset", "random_split",
]  # fmt: skip

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """Samples by key: a subclass says `__getitem__`, and `__len__` for samplers and loaders.

    A subclass with `__getitems__(keys)`, the list of their samples, is asked for a batch at once.

    >>> from cugrad.utils.data import DataLoader, Dataset
    >>> class Squares(Dataset):
    ...     def __getitem__(self, i): return float(i * i)
    ...     def __len__(self): return 3
    >>> list(DataLoader(Squares(), batch_size=2))
    [tensor([0., 1.], dtype=torch.float64), tensor([4.], dtype=torch.float64)]
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[Any]) -> Dataset[Any]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co], Iterable[T_co]):
    """Samples one after another: a subclass says `__iter__`.

    Each worker process of a loader has a copy of its own, and yields all of it unless the dataset,
    or a `worker_init_fn`, asks `get_worker_info` which part is the worker's.

    >>> from cugrad.utils.data import DataLoader, IterableDataset
    >>> class Numbers(IterableDataset):
    ...     def __iter__(self): return iter(range(3))
    >>> list(DataLoader(Numbers(), batch_size=2))
    [tensor([0, 1]), tensor([2])]
    """

    def __add__(self, other: Dataset[Any]) -> Dataset[Any]:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """The i-th sample has the i-th element of each tensor, along the first dimension.

    AssertionError unless all tensors have the same number of them.

    >>> import cugrad as torch
    >>> from cugrad.utils.data import TensorDataset
    >>> data = TensorDataset(torch.tensor([[1., 2.], [3., 4.]]), torch.tensor([0, 1]))
    >>> len(data), data[1]
    (2, (tensor([3., 4.]), tensor(1)))
    """

    tensors: tuple[Tensor, ...]

    def __init__(self, *tensors: Tensor) -> None:
        if any(tensors[0].size(0) != tensor.size(0) for tensor in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple([tensor[index] for tensor in self.tensors])

    @property
    def __getitems__(self) -> Any:
        """The samples of a list of keys, with one look into each tensor; None in a subclass that
        makes samples otherwise.
        """
        return self._rows if type(self).__getitem__ is TensorDataset.__getitem__ else None

    def _rows(self, keys: list[Any]) -> list[Any]:
        return list(zip(*[_elements(tensor[keys]) for tensor in self.tensors], strict=True))

    def _batch(self, keys: list[Any]) -> list[Tensor] | None:
        """What `default_collate` makes of the samples, which need not be taken apart for it; None
        where they have a history, or a subclass makes samples otherwise.
        """
        own = type(self)
        if (
            own.__getitem__ is not TensorDataset.__getitem__
            or own.__getitems__ is not TensorDataset.__getitems__
            or not keys
            or any(type(x) is not Tensor or x.requires_grad for x in self.tensors)
        ):
            return None
        return [tensor[keys] for tensor in self.tensors]

    def __len__(self) -> int:
        return cast(int, self.tensors[0].size(0))


def _elements(copy: Tensor) -> Sequence[Tensor]:
    """New tensors with those of a tensor: without a history they are no views of it."""
    array = copy._array
    if copy.requires_grad or not isinstance(array, np.ndarray) or copy._rare is not None:
        return cast("Sequence[Tensor]", copy.unbind(0))
    return [make(element) for element in array]


def _len(dataset: Any) -> int:
    return len(dataset)


def _items(dataset: Any, keys: Sequence[Any]) -> list[Any]:
    """The samples of several keys, at once if the dataset can."""
    if callable(getattr(dataset, "__getitems__", None)):
        return cast("list[Any]", dataset.__getitems__(keys))
    return [dataset[key] for key in keys]


class StackDataset(Dataset[Any]):
    """Samples of several datasets side by side: tuples, or dicts of datasets given by name.

    ValueError for none, for both ways at once, or unless all have the same length.

    >>> from cugrad.utils.data import StackDataset
    >>> StackDataset([1, 2], "ab")[1], StackDataset(number=[1, 2], letter="ab")[1]
    ((2, 'b'), {'number': 2, 'letter': 'b'})
    """

    datasets: tuple[Any, ...] | dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ValueError(
                "Supported either ``tuple``- (via ``args``) or"
                "``dict``- (via ``kwargs``) like input/output, but both types are given."
            )
        several = list(args or kwargs.values())
        if not several:
            raise ValueError("At least one dataset should be passed")
        self._length = _len(several[0])
        if any(self._length != _len(dataset) for dataset in several):
            raise ValueError("Size mismatch between datasets")
        self.datasets = args or kwargs

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple([dataset[index] for dataset in self.datasets])

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        is_dict = isinstance(self.datasets, dict)
        several = self.datasets.values() if isinstance(self.datasets, dict) else self.datasets
        columns = [_items(dataset, indices) for dataset in several]
        for column in columns:
            if len(column) != len(indices):
                raise ValueError(
                    "Nested dataset's output size mismatch."
                    f" Expected {len(indices)}, got {len(column)}"
                )
        rows = list(zip(*columns, strict=True))
        return [dict(zip(self.datasets, row, strict=True)) for row in rows] if is_dict else rows

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[T_co]):
    """The samples of several datasets, one dataset behind the other.

    AssertionError for none, or for an IterableDataset among them.

    >>> from cugrad.utils.data import ConcatDataset
    >>> both = ConcatDataset(["ab", "cde"])
    >>> len(both), both[2], both[-1]
    (5, 'c', 'e')
    """

    datasets: list[Dataset[T_co]]
    cumulative_sizes: list[int]

    @staticmethod
    def cumsum(sequence: Iterable[Any]) -> list[int]:
        """The lengths of datasets, each with those before it."""
        return list(itertools.accumulate(map(_len, sequence)))

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        super().__init__()
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx: int) -> T_co:
        if idx < 0:
            if -idx > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            idx += len(self)
        which = bisect.bisect_right(self.cumulative_sizes, idx)
        return self.datasets[which][idx - self.cumulative_sizes[which - 1] if which else idx]

    @property
    def cummulative_sizes(self) -> list[int]:
        """The old name of `cumulative_sizes`; warns."""
        warnings.warn(
            "`cummulative_sizes` attribute is renamed to `cumulative_sizes`", FutureWarning,
            stacklevel=2,
        )  # fmt: skip
        return self.cumulative_sizes


class ChainDataset(IterableDataset[Any]):
    """The samples of several IterableDatasets, one dataset behind the other.

    AssertionError for another kind of dataset, when it is come to.

    >>> from cugrad.utils.data import ChainDataset, IterableDataset
    >>> class Letters(IterableDataset):
    ...     def __iter__(self): return iter("ab")
    >>> list(ChainDataset([Letters(), Letters()]))
    ['a', 'b', 'a', 'b']
    """

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        super().__init__()
        self.datasets = datasets

    def _checked(self) -> Iterator[IterableDataset[Any]]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield dataset

    def __iter__(self) -> Iterator[Any]:
        for dataset in self._checked():
            yield from dataset

    def __len__(self) -> int:
        return sum([_len(dataset) for dataset in self._checked()])


class Subset(Dataset[T_co]):
    """The samples of a dataset at some indices.

    NotImplementedError for a subclass that overrides `__getitem__` and not `__getitems__`, which a
    loader would go by.

    >>> from cugrad.utils.data import Subset
    >>> part = Subset("abcd", [3, 0])
    >>> len(part), part[0]
    (2, 'd')
    """

    dataset: Dataset[T_co]
    indices: Sequence[int]

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices
        own = type(self)
        if own.__getitem__ is not Subset.__getitem__ and own.__getitems__ is Subset.__getitems__:
            raise NotImplementedError(
                f"{own.__name__} overrides __getitem__ but not __getitems__. "
                "When subclassing Subset and overriding __getitem__, you must also override "
                "__getitems__ to ensure DataLoader works correctly with your custom logic. "
                "A simple implementation:\n\n"
                "def __getitems__(self, indices):\n"
                "    return [self.__getitem__(idx) for idx in indices]"
            )

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, list):
            return self.dataset[[self.indices[i] for i in idx]]
        return self.dataset[self.indices[idx]]

    def __getitems__(self, indices: list[int]) -> list[T_co]:
        return _items(self.dataset, [self.indices[i] for i in indices])

    def _batch(self, keys: list[Any]) -> list[Tensor] | None:
        """As that of the dataset, if it has one, and a subclass takes no samples otherwise."""
        batch = getattr(self.dataset, "_batch", None)
        if batch is None or type(self).__getitems__ is not Subset.__getitems__:
            return None
        return cast("list[Tensor] | None", batch([self.indices[i] for i in keys]))

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Any, lengths: Sequence[int | float], generator: Generator | None = default_generator
) -> list[Subset[Any]]:
    """Subsets of these lengths, in which each sample is once, in random order.

    `lengths` may be fractions that add up to 1: each length is then rounded down, and what remains
    goes to the first ones, one each. ValueError unless the lengths add up to that of the dataset;
    a warning for an empty part.

    >>> import cugrad as torch
    >>> from cugrad.utils.data import random_split
    >>> parts = random_split(range(10), [0.7, 0.3], torch.Generator().manual_seed(42))
    >>> [len(part) for part in parts]
    [7, 3]
    """
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        lengths = _shares(_len(dataset), lengths)
    if sum(lengths) != _len(dataset):
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    lengths = cast("Sequence[int]", lengths)
    place = "cpu" if generator is None else generator.device
    indices = randperm(sum(lengths), generator=generator, device=place).tolist()
    ends = itertools.accumulate(lengths)
    return [
        Subset(dataset, indices[end - length : end])
        for end, length in zip(ends, lengths, strict=True)
    ]


def _shares(total: int, fractions: Sequence[float]) -> list[int]:
    """The lengths that fractions of a total come to."""
    shares = []
    for i, fraction in enumerate(fractions):
        if not 0 <= fraction <= 1:
            raise ValueError(f"Fraction at index {i} is not between 0 and 1")
        shares.append(math.floor(total * fraction))
    for i in range(total - sum(shares)):
        shares[i % len(shares)] += 1
    for i, share in enumerate(shares):
        if share == 0:
            warnings.warn(
                f"Length of split at index {i} is 0. This might result in an empty dataset.",
                stacklevel=3,
            )
    return shares
