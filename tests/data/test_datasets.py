"""Datasets, samplers, collation: what they answer and what they refuse, beside PyTorch."""

from __future__ import annotations

import collections
import types
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.utils import data
from tests.data.samples import Point

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")


def plain(value: Any) -> Any:
    """A value without tensors: each is its dtype, shape and elements."""
    if hasattr(value, "dtype") and hasattr(value, "tolist") and hasattr(value, "stride"):
        return str(value.dtype), tuple(value.shape), value.tolist()
    if isinstance(value, Mapping):
        return type(value), {k: plain(v) for k, v in value.items()}
    if isinstance(value, (tuple, list, collections.UserList)):
        return type(value), [plain(v) for v in value]
    return value


def outcome(call: Any, lib: Any) -> Any:
    """What a call returns, or the type and the text of what it raises; and what it warns of."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            result = plain(call(lib, lib.utils.data))
        except Exception as error:
            result = type(error), str(error)
    return result, [(w.category, str(w.message)) for w in warned]


def numbers(d: Any, n: int = 4) -> Any:
    return type("Numbers", (d.IterableDataset,), {"__iter__": lambda s: iter(range(n)),
                                                  "__len__": lambda s: n})()  # fmt: skip


def batched(d: Any, items: Any) -> Any:
    """A dataset that answers `__getitems__` with `items`."""
    return type("Batched", (d.Dataset,), {
        "__getitem__": lambda s, i: i * 10, "__len__": lambda s: 4,
        "__getitems__": lambda s, keys: items(keys)})()  # fmt: skip


def subset_class(d: Any, **methods: Any) -> Any:
    return type("Own", (d.Subset,), methods)


DATASETS = {
    "abstract": lambda t, d: d.Dataset()[0],
    "tensors": lambda t, d: [len(d.TensorDataset(t.arange(6).reshape(3, 2), t.ones(3))),
                             d.TensorDataset(t.arange(6).reshape(3, 2), t.ones(3))[1:]],
    "tensors, by a subclass": lambda t, d: list(d.DataLoader(type("Own", (d.TensorDataset,), {
        "__getitem__": lambda s, i: s.tensors[0][i] * 2})(t.arange(5)), batch_size=2)),
    "tensors, in part": lambda t, d: list(d.DataLoader(d.Subset(
        d.TensorDataset(t.arange(5), t.ones(5, 2)), [4, 0, 2, -1]), batch_size=3)),
    "tensors, keys too far": lambda t, d: list(d.DataLoader(d.TensorDataset(t.arange(5)),
                                                            batch_sampler=[[5]])),
    "tensors differ": lambda t, d: d.TensorDataset(t.ones(3), t.ones(4)),
    "concat": lambda t, d: [list(range(5))[i] for i in range(2)] + [
        d.ConcatDataset([[1, 2], [], [3]])[i] for i in (0, 1, 2, -1, -3)],
    "concat sizes": lambda t, d: d.ConcatDataset([[1, 2], [], [3]]).cumulative_sizes,
    "concat old name": lambda t, d: d.ConcatDataset([[1]]).cummulative_sizes,
    "concat below": lambda t, d: d.ConcatDataset([[1]])[-2],
    "concat none": lambda t, d: d.ConcatDataset([]),
    "concat iterable": lambda t, d: d.ConcatDataset([numbers(d)]),
    "add": lambda t, d: len(d.TensorDataset(t.ones(1)) + d.TensorDataset(t.zeros(2))),
    "chain": lambda t, d: [list(numbers(d) + numbers(d)), len(numbers(d) + numbers(d, 2))],
    "chain of maps": lambda t, d: list(d.ChainDataset([[1, 2]])),
    "chain of maps, length": lambda t, d: len(d.ChainDataset([[1, 2]])),
    "stack": lambda t, d: [d.StackDataset([1, 2], "ab")[1], len(d.StackDataset([1, 2], "ab"))],
    "stack named": lambda t, d: d.StackDataset(n=[1, 2], c="ab")[0],
    "stack at once": lambda t, d: [
        d.StackDataset(batched(d, lambda k: [i + 5 for i in k]), range(4)).__getitems__([0, 2]),
        d.StackDataset(a=batched(d, lambda k: k), b=range(4)).__getitems__([3])],
    "stack short": lambda t, d: d.StackDataset(batched(d, lambda k: [1])).__getitems__([0, 2]),
    "stack differ": lambda t, d: d.StackDataset([1, 2], [1]),
    "stack differ, named": lambda t, d: d.StackDataset(a=[1, 2], b=[1]),
    "stack none": lambda t, d: d.StackDataset(),
    "stack both": lambda t, d: d.StackDataset([1], a=[1]),
    "subset": lambda t, d: [d.Subset("abcd", [3, 0])[0], len(d.Subset("abcd", [3, 0])),
                            d.Subset(np.arange(4), [3, 0])[[1, 0]].tolist(),
                            d.Subset(batched(d, lambda k: k), [3, 0]).__getitems__([1])],
    "subset own": lambda t, d: subset_class(d, __getitem__=lambda s, i: 0)([1], [0]),
    "subset own, whole": lambda t, d: subset_class(
        d, __getitem__=lambda s, i: 0, __getitems__=lambda s, i: [0])([1], [0])[0],
    "split": lambda t, d: [sorted(i for part in d.random_split(range(10), [3, 7]) for i in part),
                           [len(part) for part in d.random_split(range(10), [3, 7])]],
    "split by shares": lambda t, d: [len(p) for p in d.random_split(range(30), [0.33, 0.33, 0.34])],
    "split rest": lambda t, d: [len(p) for p in d.random_split(range(11), [0.25] * 4)],
    "split alike": lambda t, d: len({tuple(d.random_split(
        range(30), [0.5, 0.5], t.Generator().manual_seed(3))[0].indices) for _ in range(3)}),
    "split, empty part": lambda t, d: [len(p) for p in d.random_split(range(1), [0.5, 0.5])],
    "split none": lambda t, d: len(d.random_split([], [0, 0])[0]),
    "split wrong": lambda t, d: d.random_split(range(10), [3, 8]),
    "split wrong share": lambda t, d: d.random_split(range(10), [-0.5, 1.5]),
}  # fmt: skip

SAMPLERS = {
    "sequential": lambda t, d: [list(d.SequentialSampler("abc")), len(d.SequentialSampler("abc"))],
    "random": lambda t, d: sorted(d.RandomSampler(range(9))),
    "random, more": lambda t, d: [sorted(list(d.RandomSampler(range(3), num_samples=7))[:6]),
                                  len(list(d.RandomSampler(range(3), num_samples=7)))],
    "random, fewer": lambda t, d: len(set(d.RandomSampler(range(30), num_samples=20))),
    "random, replaced": lambda t, d: [
        len(list(d.RandomSampler(range(3), replacement=True, num_samples=n))) for n in (1, 32, 70)],
    "random, below": lambda t, d: max(d.RandomSampler(range(3), True, 500)),
    "random, alike": lambda t, d: len({tuple(d.RandomSampler(
        range(30), generator=t.Generator().manual_seed(1))) for _ in range(3)}),
    "random, anew": lambda t, d: len(set(map(tuple, [d.RandomSampler(range(30))] * 3))),
    "random, by the default": lambda t, d: len(
        {(t.manual_seed(4), tuple(d.RandomSampler(range(30))))[1] for _ in range(3)}),
    "random, of none": lambda t, d: d.RandomSampler([]),
    "random, no bool": lambda t, d: d.RandomSampler([1], replacement=1),
    "random, no number": lambda t, d: d.RandomSampler([1], num_samples=0),
    "random, half a number": lambda t, d: d.RandomSampler([1], num_samples=2.5),
    "of a subset": lambda t, d: [sorted(d.SubsetRandomSampler([5, 3, 9])),
                                 len(d.SubsetRandomSampler([5, 3, 9]))],
    "weighted": lambda t, d: [set(d.WeightedRandomSampler([0.0, 1.0, 0.0], 9)),
                              sorted(d.WeightedRandomSampler([1, 0.0, 5], 2, replacement=False))],
    "weighted, of a tensor": lambda t, d: set(d.WeightedRandomSampler(t.tensor([0, 2]), 5)),
    "weighted, number": lambda t, d: d.WeightedRandomSampler([1.0], True),
    "weighted, bool": lambda t, d: d.WeightedRandomSampler([1.0], 1, 1),
    "weighted, dims": lambda t, d: d.WeightedRandomSampler([[1.0]], 1),
    "batches": lambda t, d: [list(d.BatchSampler(range(7), 3, False)),
                             list(d.BatchSampler(iter(range(7)), 3, True)),
                             list(d.BatchSampler([], 3, False))],
    "batches, lengths": lambda t, d: [len(d.BatchSampler(range(7), n, last))
                                      for n in (1, 3, 7, 8) for last in (True, False)],
    "batches, size": lambda t, d: d.BatchSampler(range(7), 0, False),
    "batches, bool": lambda t, d: d.BatchSampler(range(7), True, False),
    "batches, last": lambda t, d: d.BatchSampler(range(7), 2, 1),
    "shares": lambda t, d: [list(d.DistributedSampler(range(n), 3, r, False, drop_last=last))
                            for n in (1, 2, 6, 7, 8) for r in range(3) for last in (True, False)],
    "shares, lengths": lambda t, d: [len(d.DistributedSampler(range(n), 3, 0, drop_last=last))
                                     for n in range(1, 9) for last in (True, False)],
    "shares, shuffled": lambda t, d: sorted(
        i for r in range(3) for i in d.DistributedSampler(range(9), 3, r)),
    "shares, by epoch": lambda t, d: _epochs(d.DistributedSampler(range(99), 3, 1)),
    "shares, rank": lambda t, d: d.DistributedSampler(range(9), 3, 3),
}  # fmt: skip


def _epochs(sampler: Any) -> Any:
    first, again = list(sampler), list(sampler)
    sampler.set_epoch(1)
    return first == again, first == list(sampler)


class Own(dict):  # type: ignore[type-arg]
    """A mapping with more than its items."""


def own(**items: Any) -> Own:
    made = Own(items)
    made.name = "kept"  # type: ignore[attr-defined]
    return made


COLLATIONS = {
    "ints": lambda t: [1, 2],
    "bools": lambda t: [True, False],
    "floats": lambda t: [1.5, 2],
    "strings": lambda t: ["a", "b"],
    "bytes": lambda t: [b"a", b"b"],
    "tensors": lambda t: [t.ones(2), t.zeros(2)],
    "tensors of other shapes": lambda t: [t.ones(2), t.zeros(3)],
    "arrays": lambda t: [np.ones((2, 1), "f4"), np.zeros((2, 1), "f4")],
    "arrays of words": lambda t: [np.array(["a"])],
    "arrays of objects": lambda t: [np.array([None])],
    "numpy numbers": lambda t: [np.float32(1), np.float32(2)],
    "numpy bools": lambda t: [np.bool_(True)],
    "0-d arrays": lambda t: [np.array(1), np.array(2)],
    "dicts": lambda t: [{"a": 0, "b": [1.0]}, {"a": 1, "b": [2.0]}],
    "own dicts": lambda t: [own(a=1), own(a=2)],
    "ordered dicts": lambda t: [collections.OrderedDict(a=1)] * 2,
    "default dicts": lambda t: [collections.defaultdict(int, a=1)] * 2,
    "frozen mappings": lambda t: [types.MappingProxyType({"a": 1})] * 2,
    "missing keys": lambda t: [{"a": 1}, {"b": 1}],
    "named tuples": lambda t: [Point(1, (2.0, "x")), Point(3, (4.0, "y"))],
    "tuples": lambda t: [(1, "a"), (2, "b")],
    "lists": lambda t: [[1, t.ones(1)], [2, t.ones(1)]],
    "user lists": lambda t: [collections.UserList([1, 2])] * 2,
    "ranges": lambda t: [range(2), range(2)],
    "other lengths": lambda t: [[1, 2], [1]],
    "nothing": lambda t: [None, None],
    "empty sequences": lambda t: [[], []],
    "empty": lambda t: [],
}  # fmt: skip


@pytest.mark.parametrize("name", [*DATASETS, *SAMPLERS])
def test_datasets_and_samplers(name: str) -> None:
    call = {**DATASETS, **SAMPLERS}[name]
    assert outcome(call, cugrad) == outcome(call, torch)


@pytest.mark.parametrize("name", COLLATIONS)
@pytest.mark.parametrize("how", ["default_collate", "default_convert"])
def test_collation(how: str, name: str) -> None:
    def call(lib: Any, d: Any) -> Any:
        result = getattr(d, how)(COLLATIONS[name](lib))
        return result, getattr(result, "name", None)

    assert outcome(call, cugrad) == outcome(call, torch)


def test_a_table_of_functions_goes_before_the_forms(lib: Any) -> None:
    collate = lib.utils.data._utils.collate
    table = {**collate.default_collate_fn_map, int: lambda batch, *, collate_fn_map: sum(batch)}
    found = collate.collate([{"a": True, "b": 2.0}] * 3, collate_fn_map=table)
    assert found["a"] == 3 and found["b"].tolist() == [2.0] * 3
    assert set(collate.default_collate_fn_map) >= {lib.Tensor, np.ndarray, float, int, str, bytes}


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        data.DistributedSampler([1])
    with pytest.raises(AttributeError, match=r"IterDataPipe.*: .*write an IterableDataset"):
        data.IterDataPipe  # noqa: B018
    with pytest.raises(ModuleNotFoundError, match=r"datapipes.*: .*write an IterableDataset"):
        import cugrad.utils.data.datapipes  # noqa: F401


class Doubled(data.TensorDataset):
    def __getitem__(self, index: Any) -> Any:
        return tuple([x * 2 for x in super().__getitem__(index)])


def test_a_batch_at_once_is_that_of_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = cugrad.arange(12.0).view(4, 3), cugrad.arange(4)
    whole, leaf = data.TensorDataset(x, y), data.TensorDataset(x.clone().requires_grad_())
    several = [whole, leaf, Doubled(x, y), data.Subset(whole, [2, 0, 1]),
               data.Subset(data.Subset(Doubled(x), [3, 1, 0]), [2, 1, 0])]  # fmt: skip
    keys = [2, 0, -1]
    for table in ({}, {cugrad.Tensor: lambda batch, *, collate_fn_map: len(batch)}):
        for kind, function in table.items():
            monkeypatch.setitem(data._utils.collate.default_collate_fn_map, kind, function)
        for dataset in several:
            (batch,) = data.DataLoader(dataset, batch_sampler=[keys])
            want = data.default_collate([dataset[key] for key in keys])
            assert plain(batch) == plain(want), (dataset, table)
            for got, other in zip(batch, want, strict=True):
                assert getattr(got, "requires_grad", None) == getattr(other, "requires_grad", None)
