"""Loaders: the batches that come, from this process or from workers, beside PyTorch's."""

from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import random
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.utils import data
from cugrad.utils.data._utils import parcels
from tests.data import samples
from tests.data.test_datasets import numbers, outcome, plain

WORKERS = pytest.mark.parametrize("workers", [0, 2])


def loaded(t: Any, d: Any, dataset: Any, workers: int, **options: Any) -> Any:
    """An epoch of a loader, and what it says of its length."""
    loader = d.DataLoader(dataset, num_workers=workers, **options)
    return [plain(batch) for batch in loader], len(loader)


def array_set() -> Any:
    return [(np.full((2, 3), i, np.float32), i, f"{i}") for i in range(7)]


LOADERS = {
    "one by one": lambda t, d, w: loaded(t, d, array_set(), w),
    "batches": lambda t, d, w: loaded(t, d, array_set(), w, batch_size=3),
    "whole batches": lambda t, d, w: loaded(t, d, array_set(), w, batch_size=3, drop_last=True),
    "no batches": lambda t, d, w: loaded(t, d, array_set(), w, batch_size=None),
    "a sampler": lambda t, d, w: loaded(t, d, array_set(), w, batch_size=2, sampler=[3, 1, 5]),
    "lists of keys": lambda t, d, w: loaded(t, d, array_set(), w, batch_sampler=[[1], [2, 0], [3]]),
    "own collation": lambda t, d, w: loaded(t, d, range(5), w, batch_size=2, collate_fn=sum),
    "tensors": lambda t, d, w: loaded(
        t, d, d.TensorDataset(t.arange(10.0).reshape(5, 2), t.arange(5)), w, batch_size=2),
    "shuffled": lambda t, d, w: sorted(
        i for b in d.DataLoader(range(9), 2, shuffle=True, num_workers=w) for i in b.tolist()),
    "keys of a dict": lambda t, d, w: loaded(t, d, {"a": 1, "b": 2}, w, sampler=["b", "a"]),
    "a stream": lambda t, d, w: loaded(t, d, numbers(d), w, batch_size=3),
    "a stream, whole batches": lambda t, d, w: loaded(
        t, d, numbers(d, 5), w, batch_size=2, drop_last=True),
    "a stream, no batches": lambda t, d, w: loaded(t, d, numbers(d), w, batch_size=None),
    "nothing": lambda t, d, w: loaded(t, d, [], w),
    "a key too far": lambda t, d, w: list(d.DataLoader([1], sampler=[0, 1])),
}  # fmt: skip

REFUSED: dict[str, dict[str, Any]] = {
    "workers": {"num_workers": -1},
    "timeout": {"timeout": -1},
    "prefetch of none": {"prefetch_factor": 2},
    "prefetch": {"num_workers": 1, "prefetch_factor": -2},
    "persistent": {"persistent_workers": True},
    "order twice": {"sampler": [0], "shuffle": True},
    "keys and size": {"batch_sampler": [[0]], "batch_size": 2},
    "keys and order": {"batch_sampler": [[0]], "shuffle": True},
    "keys and last": {"batch_sampler": [[0]], "drop_last": True},
    "no batches, last": {"batch_size": None, "drop_last": True},
    "batch of none": {"batch_size": 0},
    "context alone": {"multiprocessing_context": "fork"},
    "context unknown": {"multiprocessing_context": "bad", "num_workers": 1},
    "context of no kind": {"multiprocessing_context": 3, "num_workers": 1},
    "no generator of random numbers": {"shuffle": True, "dataset": []},
}
STREAM_REFUSED: dict[str, dict[str, Any]] = {
    "order": {"shuffle": True}, "sampler": {"sampler": [0]}, "keys": {"batch_sampler": [[0]]},
}  # fmt: skip


@WORKERS
@pytest.mark.parametrize("name", LOADERS)
def test_batches_are_those_of_pytorch(name: str, workers: int) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

    def call(lib: Any, d: Any) -> Any:
        return LOADERS[name](lib, d, workers)

    assert outcome(call, cugrad) == outcome(call, torch)


@pytest.mark.parametrize("name", [*REFUSED, *STREAM_REFUSED])
def test_arguments_are_refused_as_pytorch_does(name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

    def call(lib: Any, d: Any) -> Any:
        options = {"dataset": numbers(d) if name in STREAM_REFUSED else [1, 2]}
        d.DataLoader(**{**options, **{**REFUSED, **STREAM_REFUSED}[name]})

    mine, theirs = outcome(call, cugrad), outcome(call, torch)
    assert mine == theirs and mine[0] is not None


def test_attributes_are_fixed_and_iterators_not_pickled(lib: Any) -> None:
    d = lib.utils.data
    loader = d.DataLoader([1, 2], batch_size=2, generator=lib.Generator())
    assert isinstance(loader.sampler, d.SequentialSampler) and loader.batch_size == 2
    assert loader.batch_sampler.sampler is loader.sampler and not loader.drop_last
    for name in ("batch_size", "sampler", "drop_last", "batch_sampler", "dataset"):
        with pytest.raises(ValueError, match=f"{name} attribute should not be set after"):
            setattr(loader, name, None)
    loader.timeout = 0  # the others are free
    with pytest.raises(NotImplementedError, match="cannot be pickled"):
        iter(loader).__reduce_ex__(2)


@WORKERS
def test_more_samples_than_were_said_warn(lib: Any, workers: int) -> None:
    d = lib.utils.data
    loader = d.DataLoader(numbers(d, 3), num_workers=workers, batch_size=None)
    assert len(loader) == 3
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("ignore")  # of forks beside threads, which a GPU's process has
        warnings.simplefilter("always", UserWarning)
        assert len(list(loader)) == (6 if workers else 3)
    texts = [str(w.message) for w in warned]
    assert all(text.startswith("Length of IterableDataset") for text in texts)
    assert len(texts) == (3 if workers else 0)
    assert {w.filename for w in warned} <= {__file__}


def test_more_workers_than_processors_warn(lib: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0}, raising=False)
    with pytest.warns(UserWarning, match="will create 2 worker processes .* system is 1, which"):
        lib.utils.data.DataLoader([1], num_workers=2)


def test_the_worker_knows_itself(lib: Any) -> None:
    assert lib.utils.data.get_worker_info() is None


def same(a: Any, b: Any) -> None:
    if isinstance(a, cugrad.Tensor):
        assert (a.dtype, a.shape, a.device) == (b.dtype, b.shape, b.device)
        assert cugrad.equal(a, b)
    elif isinstance(a, dict):
        assert type(a) is type(b) and a.keys() == b.keys()
        [same(a[key], b[key]) for key in a]
    elif isinstance(a, (list, tuple)):
        assert type(a) is type(b) and len(a) == len(b)
        [same(x, y) for x, y in zip(a, b, strict=True)]
    else:
        assert a == b


@pytest.mark.parametrize("dataset, options", [
    (samples.Images(), {}),
    (samples.Images(), {"prefetch_factor": 1}),
    (samples.Images(), {"prefetch_factor": 9}),
    (samples.Structures(), {"persistent_workers": True}),
    (samples.Structures(), {"in_order": False}),
    (samples.Counting(), {"num_workers": 1}),
    (samples.Counting(), {"persistent_workers": True, "multiprocessing_context": "fork"}),
    (samples.Counting(), {"in_order": False}),
], ids=lambda v: str(v) if isinstance(v, dict) else type(v).__name__)  # fmt: skip
def test_workers_make_what_one_process_makes(dataset: Any, options: dict[str, Any]) -> None:
    """However far they are ahead; over again; after an epoch of which a part was thrown away."""
    loader = data.DataLoader(dataset, **{"num_workers": 2, **options})
    wanted = list(data.DataLoader(dataset))
    for part in (True, False, *[False] * loader.persistent_workers):
        if part:
            next(iter(loader))
            continue
        batches = list(loader)
        if not loader.in_order or isinstance(dataset, samples.Counting):
            batches.sort(key=str)
            wanted.sort(key=str)
        same(batches, wanted)


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_workers_of_any_start_method(context: str) -> None:
    loader = data.DataLoader(
        samples.Images(3), num_workers=1, multiprocessing_context=context, batch_size=2,
        worker_init_fn=samples.shifted,
    )  # fmt: skip
    same(list(loader), list(data.DataLoader(samples.Images(3), batch_size=2)))
    if context == "spawn":
        broken = data.DataLoader(
            [1], num_workers=1, multiprocessing_context=context, collate_fn=lambda x: x
        )
        warned = pytest.warns(UserWarning, match="Got pickle error when attempting to start")
        with warned, pytest.raises(Exception, match="ickle"):
            iter(broken)


def test_batches_can_be_written_to_and_kept() -> None:
    kept = [images for images, _ in data.DataLoader(samples.Images(), num_workers=2, batch_size=2)]
    gc.collect()
    for i, images in enumerate(kept):
        images += 1
        assert images.requires_grad_().exp().sum().isfinite() and images[0, 0, 0, 0] == 2 * i + 1
    view = kept[0][0, 1]
    del kept, images
    gc.collect()
    assert view.sum() == 64 * 64


def test_each_worker_has_its_seed() -> None:
    def drawn(seed: int) -> Any:
        generator = cugrad.Generator().manual_seed(seed)
        loader = data.DataLoader(
            samples.Draws(), num_workers=2, batch_size=None, generator=generator
        )
        return list(loader)

    first, second = drawn(3)
    assert (first[0], second[0], second[1]) == (0, 1, first[1] + 1)
    assert all(x != y for x, y in zip(first[1:5], second[1:5], strict=True))
    assert drawn(3) == [first, second] and drawn(4)[0] != first
    assert first[5] == "cpu"
    cugrad.manual_seed(first[1])
    random.seed(first[1])
    np.random.seed(data._utils.worker._generate_state(first[1], 0))
    assert tuple(first[2:5]) == (random.random(), float(np.random.rand()), float(cugrad.rand(())))


def test_the_grad_mode_goes_along_and_nothing_else_does() -> None:
    def collate(batch: Any) -> Any:
        x = cugrad.ones(2, requires_grad=True)
        with cugrad.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            pass
        return cugrad.is_grad_enabled(), str((x * 1).device), cugrad.is_autocast_enabled("cpu")

    loader = data.DataLoader([1], num_workers=1, collate_fn=collate)
    boom = partial(pytest.fail, "a hook of the parent's runs in a worker")
    with cugrad.no_grad(), cugrad.device("simulated"), cugrad.autocast("cpu"):
        assert list(loader) == [(False, "cpu", False)]
    with cugrad.autograd.graph.saved_tensors_hooks(boom, boom):
        assert list(loader) == [(True, "cpu", False)]


def test_an_epoch_is_a_range_of_the_profile(lib: Any) -> None:
    loader = lib.utils.data.DataLoader([1, 2])
    with lib.autograd.profiler.profile() as prof:
        list(loader)
    names = [event.name for event in prof.function_events]
    wanted = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    assert names.count(wanted) == 3  # the last finds nothing


# Page-locked memory -------------------------------------------------------------------------------


def test_pinning_without_a_device_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cugrad.utils.data.iterators.is_usable", lambda device: False)
    with pytest.warns(UserWarning, match="no accelerator is found") as warned:
        batches = list(data.DataLoader([1.0], pin_memory=True))
    assert not batches[0].is_pinned() and warned[0].filename == __file__


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The simulated device as CUDA."""
    monkeypatch.setenv("CUGRAD_SIMULATE_CUDA", "1")
    monkeypatch.setattr("cugrad.backends.simulated._Warned.once", True)
    monkeypatch.setattr("cugrad.cuda.devices._Started.now", False)
    tables = cugrad.backends._by_device_type, cugrad.backends.BY_ARRAY_TYPE
    known = [dict(table) for table in tables]
    yield
    for table, before in zip(tables, known, strict=True):
        table.clear()
        table.update(before)


@WORKERS
def test_batches_are_pinned(workers: int, cuda: None) -> None:
    loader = data.DataLoader(samples.Structures(), 2, num_workers=workers, pin_memory=True)
    for batch in loader:
        point, words, tensor, empty, strided = batch.values()
        assert all(x.is_pinned() for x in (*point, tensor, strided)), type(point)
        assert isinstance(point, samples.Point) and words[0][0] in "024"
        assert tensor.dtype is cugrad.bfloat16 and empty.shape == (len(tensor), 0, 3)
    same([b["tensor"] for b in loader],
         [b["tensor"] for b in data.DataLoader(samples.Structures(), 2)])  # fmt: skip
    with pytest.warns(UserWarning, match="pin_memory_device is deprecated"):
        list(data.DataLoader([1.0], pin_memory=True, pin_memory_device="cuda"))


def test_batches_are_pinned_where_new_tensors_are_on_the_gpu(cuda: None) -> None:
    """What is collated is on the host; a dataset of tensors on the GPU stays there."""
    with cugrad.device("cuda"):
        [batch] = data.DataLoader([(np.ones(3), 1.0)] * 2, 2, pin_memory=True)
        assert all(x.is_pinned() for x in batch)
        [[x]] = data.DataLoader(data.TensorDataset(cugrad.ones(2)), 2, pin_memory=True)
        assert x.is_cuda
        [[x]] = data.DataLoader([(np.ones(3),)], pin_memory=True, device="cuda")
        assert x.is_cuda


# Shared memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [
    np.arange(20_000), np.arange(5), [np.arange(20_000)] * 2, np.zeros((0, 4)), b"x" * 50_000,
    np.arange(40_000).reshape(200, 200).T, np.arange(80_000)[::2], {"a": [np.float32(1)]},
    np.array(["a" * 9_000]), np.arange(np.datetime64("2000-01-01"), np.datetime64("2020-01-01")),
], ids=lambda v: f"{type(v).__name__}-{getattr(v, 'shape', '')}")  # fmt: skip
def test_a_parcel_is_what_was_packed(value: Any) -> None:
    sending, receiving = multiprocessing.Pipe()
    parcels.send(sending, parcels.pack(value))
    found = parcels.unpack(parcels.receive(receiving))
    np.testing.assert_equal(found, value)
    if isinstance(found, np.ndarray):
        assert found.dtype == value.dtype and (found.flags.writeable or found.dtype.kind in "MU")


@pytest.mark.parametrize("error", ["fallocate", "open"])
def test_without_room_in_shared_memory_a_pipe_does(
    error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **more: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(*{"fallocate": (os, "posix_fallocate"),
                          "open": (os, "memfd_create")}[error], full)  # fmt: skip
    parcel = parcels.pack(np.arange(20_000))
    assert parcel[1] is None
    np.testing.assert_equal(parcels.unpack(parcel), np.arange(20_000))


@pytest.mark.parametrize("free", [0, 1])
def test_too_many_open_files_are_named(free: int) -> None:
    """However many descriptors are free, and none stays open."""
    resource = pytest.importorskip("resource")
    sending, receiving = multiprocessing.Pipe()
    parcels.send(sending, parcels.pack(np.arange(20_000)))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    first = os.dup(0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (first + 1 + free, hard))  # `first` was the lowest
    try:
        others = [os.dup(0) for _ in range(free)]
        with pytest.raises(OSError, match="Too many open files"):
            os.dup(0)
        for descriptor in others:
            os.close(descriptor)
        with pytest.raises(RuntimeError, match=r"Too many open files.*ulimit -n"):
            parcels.receive(receiving)
        for descriptor in [os.dup(0) for _ in range(free)]:  # they are free again
            os.close(descriptor)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(first)
