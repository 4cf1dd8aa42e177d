"""`DataLoader(device=)`: batches come to a device on a side stream, one batch ahead of the loop."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import cugrad as torch
from cugrad import backends
from cugrad.backends import simulated
from cugrad.backends.lending.ahead import CopiesAhead
from cugrad.backends.lending.pinned import PinnedMemory, pinned_memory
from cugrad.backends.lending.streams import lent_memory
from cugrad.backends.simulated.streams import SimulatedStream
from cugrad.errors import RaceError
from cugrad.nn.utils.rnn import PackedSequence, pack_sequence
from cugrad.tensor import make
from cugrad.utils import data
from tests.conftest import usable_devices
from tests.data import samples
from tests.data.test_datasets import plain

PLACES = [("simulated", policy) for policy in simulated.POLICIES] + [("cuda", None)]
PLACES = [place for place in PLACES if place[0] in usable_devices()]
PINNED = [False, True] if ("cuda", None) in PLACES else [False]  # others would pin nothing
WORKERS = pytest.mark.parametrize("workers", [0, 2])


@pytest.fixture(params=PLACES or [None], ids=str)
def place(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param is None:
        pytest.skip("the CPU has no streams")
    device, policy = request.param
    with simulated.configured(policy=policy, seed=2) if policy else nullcontext():
        yield device


def in_use(device: str) -> tuple[int, int]:
    """Bytes of the device, and copies that hold page-locked memory."""
    backend = backends.get(device)
    gc.collect()
    backend.memory_allocated()
    backend.synchronize()
    memory = pinned_memory(backend)
    memory._let_go()
    used = backend.memory_allocated()
    assert not lent_memory(backend)._loans
    return used, len(memory._under_way)


def images(count: int = 12, size: int = 500) -> Any:
    x = torch.arange(float(count), device="cpu")[:, None].expand(count, size).contiguous()
    return data.TensorDataset(x, torch.arange(count, device="cpu"))


# What comes ---------------------------------------------------------------------------------------


@WORKERS
@pytest.mark.parametrize("pin", PINNED)
def test_batches_are_those_of_a_plain_loader(place: str, workers: int, pin: bool) -> None:
    options: dict[str, Any] = {"batch_size": 2, "num_workers": workers}
    loader = data.DataLoader(samples.Structures(), pin_memory=pin, device=place, **options)
    before, found = in_use(place), []
    for _ in range(2):
        for batch in loader:
            point, words, tensor, empty, strided = batch.values()
            for x in (*point, tensor, empty, strided):
                assert x.device.type == place and x.to(place, non_blocking=True) is x
            assert isinstance(point, samples.Point) and isinstance(words[0][0], str)
            found.append(plain({k: v * 1 if k == "tensor" else v for k, v in batch.items()}))
            del point, words, tensor, empty, strided, x, batch
        assert in_use(place) == before
    with torch.device("cpu"):
        wanted = [plain(batch) for batch in data.DataLoader(samples.Structures(), **options)] * 2
    assert str(found) == str(wanted)


@pytest.mark.parametrize("pin", PINNED)
def test_batches_keep_their_order_in_memory(place: str, pin: bool) -> None:
    image = torch.arange(120.0, device="cpu").reshape(2, 3, 4, 5)
    image = image.to(memory_format=torch.channels_last)
    [moved] = data.DataLoader([image], batch_size=None, pin_memory=pin, device=place)
    assert moved.stride() == image.stride() and moved.tolist() == image.tolist()


def test_what_has_a_method_of_its_own_is_moved_by_it(place: str) -> None:
    class Parts:
        def __init__(self, x: Any) -> None:
            self.x = x

        def to(self, device: Any, non_blocking: bool) -> Any:
            return Parts(self.x.to(device, non_blocking=non_blocking))

    weight = torch.ones(3, device="cpu", requires_grad=True)
    packed = pack_sequence([torch.ones(3, 2, device="cpu"), torch.zeros(1, 2, device="cpu")])
    there = torch.ones(2, device=place)
    values = [Parts(torch.ones(2, device="cpu")), weight, packed, there,
              torch.eye(2, device="cpu").to_sparse(), None, "text"]  # fmt: skip
    [(parts, moved, sequence, same, sparse, nothing, text)] = data.DataLoader(
        [tuple(values)], batch_size=None, device=place
    )
    assert parts.x.device.type == sparse.device.type == place and same is there
    assert isinstance(sequence, PackedSequence) and sequence.batch_sizes.device.type == "cpu"
    assert sequence.data.device.type == place and sequence.data.sum().item() == 6
    moved.sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [1, 1, 1]
    assert nothing is None and text == "text"


def test_on_the_host_batches_pass_through() -> None:
    asked: list[int] = []

    class Asked(data.Dataset[Any]):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, i: int) -> Any:
            asked.append(i)
            return values[i]

    values = [torch.ones(2, device="cpu") for _ in range(3)]
    loader = iter(data.DataLoader(Asked(), batch_size=None, device="cpu"))
    assert next(loader) is values[0] and asked == [0]  # nothing is got ahead
    assert list(loader)[1] is values[2]


@pytest.mark.skipif("cuda" in usable_devices(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_refused_at_once() -> None:
    with pytest.raises(RuntimeError, match="device 'cuda' cannot be used"):
        data.DataLoader([1], device="cuda")


@WORKERS
def test_an_error_is_raised_in_its_turn(place: str, workers: int) -> None:
    loader = iter(data.DataLoader(Faulty(), batch_size=None, num_workers=workers, device=place))
    found: list[Any] = []
    while True:
        try:
            found.append(int(next(loader)))
        except StopIteration:
            break
        except KeyError:
            found.append("error")
    assert found == [0, 1, "error", 3]
    with pytest.raises(StopIteration):
        next(loader)


class Faulty(data.Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> Any:
        if i == 2:
            raise KeyError("no such sample")
        return torch.tensor(i, device="cpu")


@pytest.mark.parametrize("persistent", [False, True])
def test_a_loop_that_ends_early_leaves_nothing(place: str, persistent: bool) -> None:
    loader = data.DataLoader(
        samples.Images(), 2, num_workers=persistent, persistent_workers=persistent, device=place
    )
    torch.zeros(2, 3, 64, 64, device=place).sum().item()  # a sum keeps room for the next one
    before = in_use(place)
    for _ in range(3):
        for x, number in loader:
            assert (x.sum() / x[0].numel()).item() == number.sum().item() == 1
            break
        with pytest.raises(ZeroDivisionError):
            for _x, _number in loader:
                raise ZeroDivisionError
        del x, number, _x, _number
    if persistent:
        assert [y.tolist() for _, y in loader] == [[0, 1], [2, 3], [4, 5], [6]]
    del loader
    assert in_use(place) == before


def test_an_interrupt_loses_no_batch(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = in_use(place)
    loader = iter(data.DataLoader(images(), 2, device=place))
    assert next(loader)[1].tolist() == [0, 1]

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PinnedMemory, "copy", interrupt)
        with pytest.raises(KeyboardInterrupt):
            next(loader)
    assert next(loader)[1].tolist() == [2, 3]
    del loader
    assert in_use(place) == before


# Streams ------------------------------------------------------------------------------------------


def trained(device: str, **options: Any) -> list[float]:
    """What a loop makes of batches; each step queues work that is slow to come."""
    found = []
    w = torch.ones(500, 500, device=device)
    for x, y in data.DataLoader(images(), 2, device=device, **options):
        scratch = torch.full((2, 500), 7.0, device=device)  # its memory is the next batch's
        z = (x @ w + scratch).sum() + y.sum()
        del scratch
        found.append(z)
    return [z.item() for z in found]


WANTED = [500 * 500 * (4 * k + 1.0) + 7000 + 4 * k + 1 for k in range(6)]


def test_copies_race_with_nothing(place: str) -> None:
    assert trained(place) == WANTED


@pytest.mark.skipif("simulated" not in usable_devices(), reason="only it finds races")
@pytest.mark.parametrize("missing", ["of the loop for the copy", "of the copy for the loop"])
def test_a_missing_wait_is_a_race(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing == "of the loop for the copy":
        monkeypatch.setattr(CopiesAhead, "wait", lambda self: None)
    else:
        default = backends.get("simulated").current_stream()
        wait = SimulatedStream.wait_event

        def waits(self: Any, event: Any) -> None:
            if self is default:
                wait(self, event)

        monkeypatch.setattr(SimulatedStream, "wait_event", waits)
    with simulated.configured(policy="latest"), pytest.raises(RaceError):
        trained("simulated")
    simulated.reset()


def test_batches_may_be_used_on_another_stream_each(place: str) -> None:
    """A batch that was copied for one stream is asked for on another, and dropped there at once."""
    backend = backends.get(place)
    streams, sums = [backend.stream(), backend.stream()], list[Any]()
    before = in_use(place)
    loader = iter(data.DataLoader(images(), 2, device=place))
    for k in range(6):
        with backend.use_stream(streams[k % 2]):
            x, y = next(loader)
            sums.append((x * 2).sum())
            del x, y
        torch.full((2, 500), 7.0, device=place)
    backend.synchronize()
    assert [z.item() for z in sums] == [1000 * (4 * k + 1) for k in range(6)]
    del sums, loader
    assert in_use(place) == before


@WORKERS
def test_a_dataset_may_write_to_its_buffer_again(place: str, workers: int) -> None:
    loader = data.DataLoader(Reusing(place), None, num_workers=workers, device=place)
    assert [float(x.sum()) for x in loader] == [0, 1000, 2000, 3000]


class Reusing(data.IterableDataset[Any]):
    """Yields one buffer again and again; in this process it is page-locked."""

    def __init__(self, device: str) -> None:
        self.device = device

    def __iter__(self) -> Any:
        info = data.get_worker_info()
        if info is None:
            memory = pinned_memory(backends.get(self.device))
            buffer = make(memory.empty((1000,), np.dtype("float32")))
        else:
            buffer = torch.empty(1000, device="cpu")
        for k in range(4)[slice(None) if info is None else slice(info.id, None, 2)]:
            buffer.fill_(k)
            yield buffer


def test_memory_is_that_of_three_batches(place: str) -> None:
    """And none is asked for anew, nor page-locked, once there is that much."""
    backend = backends.get(place)
    memory, held = pinned_memory(backend), list[Any]()
    before = in_use(place)[0]
    backend.reset_peak_memory_stats()
    for x, y in data.DataLoader(images(40, 1 << 16), 2, device=place):
        assert x.sum().item() == (1 << 16) * y.sum().item()
        held.append((backend.memory_reserved(), memory._slab.allocated_bytes))
    assert len(set(held[3:])) == 1
    assert backend.max_memory_allocated() - before < 3.1 * x.nbytes


@pytest.mark.skipif("simulated" not in usable_devices(), reason="of its virtual time")
def test_copies_are_hidden_behind_the_work_on_the_batch_before() -> None:
    """In virtual time: a step takes what its kernels take; copies in the loop's stream add up."""
    rows = torch.randn(64 * 8, 1024, device="cpu")
    labels = torch.arange(64 * 8, device="cpu")
    into = torch.randn(1024, 8192, device="simulated")
    out = torch.randn(8192, 1024, device="simulated")
    seconds, kernels, copies, waits = {}, {}, {}, {}
    for place in (None, "simulated"):
        loader = data.DataLoader(Locked(rows, labels), batch_size=None, device=place)
        model = simulated.configured("H200", policy="timed", scale=4000)
        with model, simulated.record() as timeline:
            for x, y in loader:
                x = x.to("simulated", non_blocking=True)
                y = y.to("simulated", non_blocking=True)
                ((x @ into) @ out).sum() + y.sum()
        seconds[place], kernels[place] = timeline.step_time, timeline.busy("kernel")
        copies[place] = timeline.busy("h2d")
        waits[place] = [r for r in timeline.stalls if r.kind == "host" and r.end < timeline.ended]
    assert copies["simulated"] == pytest.approx(copies[None]) and copies[None] > 0.1 * kernels[None]
    assert seconds[None] > 0.99 * (kernels[None] + copies[None])
    first = copies["simulated"] / 8  # before the first step there is nothing to hide it behind
    assert seconds["simulated"] < 1.02 * (kernels["simulated"] + first)
    assert not waits["simulated"]


class Locked(data.IterableDataset[Any]):
    """Batches in page-locked memory."""

    def __init__(self, *tensors: Any) -> None:
        self.tensors = tensors

    def __iter__(self) -> Any:
        memory = pinned_memory(backends.get("simulated"))
        for k in range(8):
            batch = []
            for tensor in self.tensors:
                part = tensor[64 * k : 64 * k + 64]
                array = memory.empty(tuple(part.shape), part.dtype.numpy)
                array[...] = part.numpy()
                batch.append(make(array))
            yield batch
