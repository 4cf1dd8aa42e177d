"""Samplers: the order in which a loader asks a dataset for samples, and batches of such orders."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

from ... import dtypes
from ...functions.creation.factories import as_tensor, empty
from ...functions.creation.random import Generator, multinomial, randint, randperm
from ...tensor import Tensor

__all__ = [
    "BatchSampler", "RandomSampler", "Sampler", "SequentialSampler", "SubsetRandomSampler",
    "WeightedRandomSampler",
]  # fmt: skip

T_co = TypeVar("T_co", covariant=True)
AT_ONCE = 32  # draws with replacement


class Sampler(Generic[T_co]):
    """The keys of samples, or lists of them: a subclass says `__iter__`, and `__len__` if it can.

    >>> from cugrad.utils.data import DataLoader, Sampler
    >>> class Backwards(Sampler):
    ...     def __init__(self, data): self.data = data
    ...     def __iter__(self): return reversed(range(len(self.data)))
    >>> list(DataLoader([1, 2, 3], sampler=Backwards([1, 2, 3]), batch_size=2))
    [tensor([3, 2]), tensor([1])]
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ... up to the length of `data_source`.

    >>> from cugrad.utils.data import SequentialSampler
    >>> list(SequentialSampler("abc"))
    [0, 1, 2]
    """

    data_source: Sized

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


def drawn_seed(generator: Generator | None) -> int:
    """A seed of 63 bits, drawn from a generator; None: from the default one."""
    place = "cpu" if generator is None else generator.device
    seed = empty((), dtype=dtypes.int64, device=place).random_(generator=generator)
    return int(seed.item())


def _permuted(n: int, generator: Generator | None) -> list[int]:
    place = "cpu" if generator is None else generator.device
    order: list[int] = randperm(n, generator=generator, device=place).tolist()
    return order


class RandomSampler(Sampler[int]):
    """The numbers below the length of `data_source` in random order, `num_samples` of them.

    With `replacement` each is drawn from all of them. Without it a number comes again when all have
    come. Where no generator is given, a new one is seeded from the default generator.

    TypeError unless `replacement` is a bool, ValueError unless `num_samples` is positive.

    >>> from cugrad.utils.data import RandomSampler
    >>> sorted(RandomSampler("abc")), len(list(RandomSampler("abc", num_samples=7)))
    ([0, 1, 2], 7)
    """

    data_source: Sized
    replacement: bool

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        self.data_source, self.replacement = data_source, replacement
        self._num_samples, self.generator = num_samples, generator
        if not isinstance(replacement, bool):
            raise TypeError(
                f"replacement should be a boolean value, but got replacement={replacement}"
            )
        if not isinstance(self.num_samples, int) or self.num_samples <= 0:
            raise ValueError(
                "num_samples should be a positive integer value, but got "
                f"num_samples={self.num_samples}"
            )

    @property
    def num_samples(self) -> int:
        """How many are drawn: the length that `data_source` has now, unless one was given."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        generator = self.generator
        if generator is None:
            generator = Generator().manual_seed(drawn_seed(None))
        n, total = len(self.data_source), self.num_samples
        if self.replacement:
            place = generator.device
            for at in range(0, total, AT_ONCE):
                size = (min(AT_ONCE, total - at),)
                yield from randint(n, size, generator=generator, device=place).tolist()
            return
        for at in range(0, total, n):
            yield from _permuted(n, generator)[: total - at]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices, each once, in random order.

    >>> from cugrad.utils.data import SubsetRandomSampler
    >>> sorted(SubsetRandomSampler([7, 2, 5]))
    [2, 5, 7]
    """

    indices: Sequence[int]

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        for i in _permuted(len(self.indices), self.generator):
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """The numbers below the number of `weights`, each with a chance in proportion to its weight.

    ValueError unless `num_samples` is positive, `replacement` a bool, and `weights` has one
    dimension.

    >>> from cugrad.utils.data import WeightedRandomSampler
    >>> sorted(WeightedRandomSampler([0.1, 0.0, 3.0], 2, replacement=False))
    [0, 2]
    """

    weights: Tensor
    num_samples: int
    replacement: bool

    def __init__(
        self,
        weights: Any,
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        _check_positive("num_samples", num_samples)
        if not isinstance(replacement, bool):
            raise ValueError(
                f"replacement should be a boolean value, but got replacement={replacement}"
            )
        place = "cpu" if generator is None else generator.device
        self.weights = as_tensor(weights, dtype=dtypes.float64, device=place)
        if self.weights.ndim != 1:
            raise ValueError(
                "weights should be a 1d sequence but given "
                f"weights have shape {tuple(self.weights.shape)}"
            )
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self) -> Iterator[int]:
        drawn = multinomial(
            self.weights, self.num_samples, self.replacement, generator=self.generator
        )
        yield from drawn.tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` keys of another sampler; the last is shorter, or left out.

    ValueError unless `batch_size` is a positive int and `drop_last` a bool.

    >>> from cugrad.utils.data import BatchSampler
    >>> list(BatchSampler(range(5), 2, False)), list(BatchSampler(range(5), 2, True))
    ([[0, 1], [2, 3], [4]], [[0, 1], [2, 3]])
    """

    def __init__(
        self, sampler: Sampler[int] | Iterable[int], batch_size: int, drop_last: bool
    ) -> None:
        _check_positive("batch_size", batch_size)
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        keys = iter(self.sampler)
        while batch := list(itertools.islice(keys, self.batch_size)):
            if self.drop_last and len(batch) < self.batch_size:
                return
            yield batch

    def __len__(self) -> int:
        n = len(self.sampler)  # type: ignore[arg-type]
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


def _check_positive(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={value}")
