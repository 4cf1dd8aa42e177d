"""Saved tensors on disk: the same gradients to the bit, less memory, and no file left."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import backends
from cugrad.autograd.graph import allow_mutation_on_saved_tensors
from cugrad.memory import DiskStore, save_on_disk
from cugrad.memory.disk.files import DiskFullError, ScratchFile
from cugrad.memory.offloading.engine import engine_of
from tests.memory.offload.cases import CASES
from tests.memory.offload.test_conformance import Placement, assert_same, run
from tests.support import ROOT

MIB = 1 << 20
CALM = pytest.mark.filterwarnings("ignore:save_on_disk.* is full:UserWarning")


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Files go to the test's directory, and are gone at its end."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for name in ("cpu", "simulated"):
        engine = engine_of(backends.get(name), 0 if name == "simulated" else None)
        engine._plans.clear()
        engine._thread.current = None
    yield
    assert os.listdir(tmp_path) == []


def everything(**options: Any) -> save_on_disk:
    return save_on_disk(**{"min_bytes": 0, **options})


def leaf(*shape: int, device: str = "cpu", seed: int = 0) -> Any:
    values = np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)
    return cugrad.tensor(values, device=device, requires_grad=True)


def used(saving: save_on_disk) -> int:
    """The bytes on disk, once what was under way has arrived."""
    engine_of(backends.get("cpu"), None).drain()
    saving.store.flush()
    return saving.store._extents.used


def layers(x: Any, count: int = 6) -> Any:
    for _ in range(count):
        x = (x * 1.01).tanh().exp() - 1
    return x.sum()


def gradient(x: Any, loss: Callable[[Any], Any] = layers) -> Any:
    found = cugrad.autograd.grad(loss(x), x)[0]
    return found.cpu().numpy()


# The same numbers ---------------------------------------------------------------------------------

PLACES = {
    "disk": Placement(everything, moves=True),
    "direct": Placement(lambda: everything(direct=True), moves=True),
    "full": Placement(lambda: everything(limit=8192)),
    "without room": Placement(lambda: everything(limit=0)),
    "nothing ahead": Placement(lambda: everything(lookahead=0, backlog=0), moves=True),
}


# Each case in one of the ways, and every second one as it is by default on a device, too.
PAIRS = [(name, list(PLACES)[i % len(PLACES)]) for i, name in enumerate(CASES)]


@CALM
@pytest.mark.parametrize(("name", "place"), PAIRS)
def test_gradients_are_the_same_to_the_bit(name: str, place: str) -> None:
    assert_same(run(name, "cpu", PLACES[place]), name, f"{name} on disk")


@pytest.mark.parametrize("name", list(CASES)[::2])
def test_gradients_of_a_device_are_the_same_to_the_bit(name: str) -> None:
    assert_same(run(name, "simulated", PLACES["disk"]), name, f"{name} on disk")


def test_steps_that_repeat_use_the_same_space(device: str) -> None:
    x = leaf(64, 64, device=device)
    wanted, saving = gradient(x), everything()
    for _ in range(4):
        with saving:
            loss = layers(x)
        loss.backward()
        assert np.array_equal(x.grad.cpu().numpy(), wanted)
        x.grad = None
        del loss
    assert used(saving) == 0
    assert saving.store._extents.end == saving.store.stats.peak_bytes
    assert saving.stats.copied_ratio == 1.0


def test_modules_each_with_a_context_of_its_own() -> None:
    class SaveToDisk(cugrad.nn.Module):
        def __init__(self, module: Any) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Any) -> Any:
            with everything():
                return self.module(x)

    class SumOfSquares(cugrad.nn.Module):
        def forward(self, x: Any) -> Any:
            return (x * x).sum()

    nn = cugrad.nn
    cugrad.manual_seed(0)
    plain = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4), SumOfSquares())
    saved = nn.Sequential(*[SaveToDisk(m) for m in plain])
    x = leaf(5, 8)
    assert np.array_equal(gradient(x, plain), gradient(x, saved))


# Memory -------------------------------------------------------------------------------------------


def test_host_memory_falls() -> None:
    def peak(saving: Any) -> int:
        gc.collect()
        tracemalloc.start()
        with saving:
            loss = layers(x, 24)
        loss.backward()
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        x.grad = None
        return found

    x = leaf(512, 512)  # 1 MiB; the graph saves 48 of them
    kept = peak(cugrad.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t))
    away = peak(everything(backlog=4 * MIB, lookahead=4 * MIB))
    assert kept > 48 * MIB
    assert away < 20 * MIB


def test_what_another_keeps_is_not_read_again() -> None:
    x = leaf(64, 64)
    saving = everything()
    with saving:
        y = x.exp()
        z = y.tanh().sum()
    saving.store.flush()
    z.backward()
    assert saving.store.stats.read_bytes == y.numel() * 4  # of tanh's result alone


def test_parameters_stay() -> None:
    model = cugrad.nn.Linear(64, 64)
    saving = everything()
    with saving:
        loss = model(leaf(10, 64) * 2).relu().sum()
    assert saving.stats.kept["leaf"] >= 64 * 64 * 4
    assert saving.store.stats.spans == 2
    loss.backward()


def test_backward_reads_ahead() -> None:
    saving = everything()
    x = leaf(256, 256)
    for _ in range(2):
        with saving:
            loss = layers(x, 12)
        saving.store.flush()
        loss.backward()
        del loss
    stats = saving.store.stats
    assert stats.read_bytes - stats.ahead_bytes <= 2 * x.numel() * 4  # the first of each step


# In-place changes ---------------------------------------------------------------------------------


@CALM
@pytest.mark.parametrize("limit", [None, 0, 64])
def test_a_change_after_saving_does_no_harm(limit: int | None) -> None:
    """On a full disk what stays in memory is copied when the program writes to it."""
    x = leaf(10)
    with everything(limit=limit):
        y = x * 2
        z = (y * y).sum() + y.sin().sum()
    wanted = gradient(x, lambda x: ((x * 2) * (x * 2)).sum() + (x * 2).sin().sum())
    y.add_(1)
    assert np.allclose(cugrad.autograd.grad(z, x)[0].numpy(), wanted)


@pytest.mark.parametrize("synchronously", [False, True])
def test_a_change_while_it_is_written_waits(
    synchronously: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if synchronously:  # only the thread that waits writes
        monkeypatch.setattr("cugrad.memory.disk.store.submit", lambda transfer: None)
    x = leaf(256, 256)
    wanted = gradient(x, lambda t: (t * 1).pow(2).sum())
    with allow_mutation_on_saved_tensors(), everything():
        y = x * 1
        z = y.pow(2).sum()
        with cugrad.no_grad():
            y.zero_()
    assert np.array_equal(cugrad.autograd.grad(z, x)[0].numpy(), wanted)


# A full disk --------------------------------------------------------------------------------------


def test_what_finds_no_room_stays_with_one_warning() -> None:
    x = leaf(64, 64)
    wanted, saving = gradient(x), everything(limit=3 * 64 * 64 * 4)
    with pytest.warns(UserWarning, match="is full: wanted 16384 bytes") as warned:
        for _ in range(2):
            with saving:
                loss = layers(x)
            loss.backward()
            assert np.array_equal(x.grad.numpy(), wanted)
            x.grad = None
    assert len(warned) == 1 and saving.store.stats.host_bytes > 0


def test_an_error_reaches_the_op_and_leaves_nothing_behind() -> None:
    saving = everything(limit=64 * 64 * 4, when_full="error")
    x = leaf(64, 64)
    with pytest.raises(DiskFullError, match=r"save_on_disk: .* is full"), saving:
        layers(x)
    assert used(saving) == 0
    assert np.array_equal(gradient(x), gradient(x))


def test_a_disk_that_fails_to_read_is_an_error_in_backward() -> None:
    saving = everything()
    x = leaf(64, 64)
    with saving:
        loss = layers(x)
    saving.store.flush()
    file = saving.store._file
    assert isinstance(file, ScratchFile)
    os.ftruncate(file.fd, 0)
    with pytest.raises(OSError, match="has lost what was written"):
        loss.backward()


# Life ---------------------------------------------------------------------------------------------


def test_a_graph_that_is_dropped_frees_its_space_without_the_collector() -> None:
    saving = everything()
    gc.disable()
    try:
        with saving:
            loss = layers(leaf(64, 64))
        del loss
        assert used(saving) == 0
    finally:
        gc.enable()


def test_an_exception_in_forward_or_backward_frees_it_too() -> None:
    saving = everything()

    def fail(grad: Any) -> None:
        raise KeyError("mine")

    for _ in range(2):
        with pytest.raises(ZeroDivisionError), saving:
            layers(leaf(64, 64))
            _ = 1 / 0
        with saving:
            y = leaf(64, 64).exp()
            y.register_hook(fail)
            loss = layers(y)
        with pytest.raises(KeyError):
            loss.backward()
        del y, loss
    assert used(saving) == 0


def test_a_graph_outlives_its_context() -> None:
    x = leaf(64, 64)
    wanted, saving = gradient(x), everything()
    with saving:
        loss = layers(x)
    del saving
    gc.collect()
    for _ in range(2):
        found = cugrad.autograd.grad(loss, x, retain_graph=True)[0]
        assert np.array_equal(found.numpy(), wanted)


def test_threads_share_a_context() -> None:
    saving, wrong = everything(), list[int]()

    def work(seed: int) -> None:
        x = leaf(64, 64, seed=seed)
        wanted = gradient(x)
        for _ in range(5):
            with saving:
                loss = layers(x)
            if not np.array_equal(cugrad.autograd.grad(loss, x)[0].numpy(), wanted):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_that_is_forked_between_forward_and_backward_does_no_harm() -> None:
    x = leaf(64, 64)
    wanted, saving = gradient(x), everything()
    with saving:
        loss = layers(x)
    child = os.fork()
    if child == 0:
        del loss, saving
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert np.array_equal(cugrad.autograd.grad(loss, x)[0].numpy(), wanted)


# Arguments ----------------------------------------------------------------------------------------


def test_it_stands_beside_save_on_cpu() -> None:
    assert cugrad.autograd.graph.save_on_disk is save_on_disk


def test_a_directory_is_an_argument(tmp_path: Path) -> None:
    assert save_on_disk(tmp_path).store.directory == str(tmp_path.resolve())
    assert save_on_disk(str(tmp_path)).store.directory == str(tmp_path.resolve())
    with pytest.raises(FileNotFoundError, match="does not exist"):
        save_on_disk(tmp_path / "absent")


@pytest.mark.parametrize(
    "arguments",
    [{"min_bytes": -1}, {"limit": "1 parsec"}, {"when_full": "wait"}, {"device_type": 3}],
)
def test_arguments_that_mean_nothing(arguments: Any) -> None:
    with pytest.raises(ValueError, match=f"save_on_disk: {next(iter(arguments))}: got"):
        save_on_disk(**arguments)


def test_small_tensors_and_those_of_another_device_stay() -> None:
    for saving in (save_on_disk(), everything(device_type="cuda"), everything(filter=lambda t: 0)):
        x = leaf(8, 8)
        with saving:
            loss = layers(x)
        loss.backward()
        assert isinstance(saving.store, DiskStore) and saving.store.stats.spans == 0


def test_the_report_names_the_disk() -> None:
    saving = everything()
    with saving:
        loss = layers(leaf(64, 64))
    loss.backward()
    assert "on disk" in str(saving.report())


def test_the_benchmark_runs(tmp_path: Path) -> None:
    words = ["--child", "cugrad", "mlp", "disk", str(tmp_path), "64", "2"]
    found = subprocess.run(
        [sys.executable, "benchmarks/disk.py", *words], cwd=ROOT, capture_output=True, check=True
    )
    assert json.loads(found.stdout)["ms"] > 0
