"""A step that fails leaves each parameter, with its states, before it or behind, and says which."""

from __future__ import annotations

import contextlib
import errno
import gc
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import pytest

import cugrad
from cugrad import memory
from cugrad.backends.lending.slab import PinnedSlab
from cugrad.memory.disk.files import DiskFullError, ScratchFile
from cugrad.memory.offloading import engine
from cugrad.memory.sizes import size
from cugrad.memory.states.placed import HOMES
from cugrad.memory.states.room import check_disk
from cugrad.memory.states.within_backward.beforehand import Beforehand
from cugrad.optim.rules.steps import _Step
from tests.memory.states.training import PLACES, Training, same, values_of

SETTINGS = {"Adam": {"lr": 0.1}, "SGD": {"lr": 0.1, "momentum": 0.9}, "Adafactor": {"lr": 0.1}}
STAGES: dict[str, tuple[type, str]] = {
    "the way out": (engine.CopyEngine, "send_state"),
    "the way back": (engine.CopyEngine, "bring_state"),
    "the way back, ahead": (engine.CopyEngine, "expect_state"),
    "the host reads": (engine.CopyEngine, "state_on_host"),
    "the host makes": (engine.CopyEngine, "host_state"),
    "the update": (_Step, "_numbers"),
    "a thread": (threading.Thread, "start"),
    "the file is read": (ScratchFile, "read"),
}
WHERE = ("all on the host", "states on the host", "all streamed", "all on disk")
# Each stage in two places, in one of them at its first call, and in the other at a later one.
CASES = [(WHERE[k % 2 + 2 * later], stage, (0, 6)[(k // 2 + later) % 2])
         for k, stage in enumerate(STAGES) for later in (0, 1)]  # fmt: skip


pytestmark = pytest.mark.usefixtures("nothing_stays_placed")


def options(place: str, **others: Any) -> Any:
    return {**PLACES[place], "min_bytes": 512, "window": "3KiB", **others}


@cache
def plainly(name: str, steps: int) -> list[Any]:
    training = Training(name, SETTINGS[name], ("clip",), "simulated")
    for step in range(steps):
        training.step(step)
    return values_of(training)


def failing(real: Callable[..., Any], nth: int, error: BaseException) -> Callable[..., Any]:
    """A function whose call of this number fails."""
    calls = iter(range(nth))

    def run(*args: Any, **kwargs: Any) -> Any:
        if next(calls, None) is None:
            raise error
        return real(*args, **kwargs)

    return run


@pytest.mark.parametrize(("place", "stage", "nth"), CASES)
def test_it_says_what_is_behind_the_step(
    place: str, stage: str, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "Adafactor" if stage == "the way back" else "SGD" if "ahead" in stage else "Adam"
    holder, method = STAGES[stage]
    before, after = plainly(name, 1), plainly(name, 2)
    error = RuntimeError if stage == "a thread" else OSError
    training = Training(name, SETTINGS[name], ("clip",), "simulated")
    names = [n for n, _ in training.net.named_parameters()]
    with memory.offload_states(training.net, training.optimizer, **options(place)) as context:
        training.step(0)
        training.gradients(1)
        said = ""
        with monkeypatch.context() as patch:
            patch.setattr(holder, method, failing(getattr(holder, method), nth, error(stage)))
            try:
                training.optimizer.step()
            except error as raised:
                said = "".join(getattr(raised, "__notes__", ["this step"]))
        left, told = values_of(training), context.unfinished()
        behind = [n for n, now, new in zip(names, left, after) if same(now, new)]
        for now, old, new in zip(left, before, after):
            assert same(now, old) or same(now, new)
        assert bool(told) == bool(said) and (told or len(behind) == len(names))
        if told:
            (step,) = told
            assert (step.optimizer, step.behind) == (name, behind)
            assert sorted([*step.behind, *step.before]) == sorted(names)
            assert "this step" in said
            context.finish_step()
            assert same(values_of(training), after) and not context.unfinished()
        training.schedule.step()
        training.step(2)
        assert all(bool(p.isfinite().all()) for p in training.params)


@pytest.mark.parametrize("full", ["the host", "the disk", "the disk, from the second byte on"])
@pytest.mark.parametrize("place", ["all on the host", "all on disk"])
def test_a_place_that_becomes_full_loses_nothing(
    place: str, full: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training("Adam", SETTINGS["Adam"], ("clip",), "simulated")
    with memory.offload_states(training.net, training.optimizer, **options(place)):
        training.step(0)
        with monkeypatch.context() as patch:
            if full == "the host":
                patch.setattr(PinnedSlab, "taken", lambda *args: None)
            elif full == "the disk":
                error = OSError(errno.ENOSPC, "full")
                patch.setattr(ScratchFile, "grow", failing(ScratchFile.grow, 0, error))
            else:
                error = OSError(errno.ENOSPC, "full")
                patch.setattr(ScratchFile, "write", failing(ScratchFile.write, 2, error))
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*full.*")
                training.step(1)
        training.step(2)
    assert same(values_of(training), plainly("Adam", 3))


def test_a_large_update_needs_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks for which no thread can be had are computed by who asks."""
    cugrad.manual_seed(0)
    values, grads = cugrad.randn(2, 1 << 20)

    def stepped() -> Any:
        param = values.clone().requires_grad_()
        param.grad = grads.clone()
        cugrad.optim.Adam([param]).step()
        return param.detach()

    before = cugrad.get_num_threads()
    cugrad.set_num_threads(2)
    try:
        expected = stepped()
        error = RuntimeError("can't start new thread")
        monkeypatch.setattr(ThreadPoolExecutor, "submit", failing(None, 0, error))  # type: ignore
        assert same(stepped().numpy(), expected.numpy())
    finally:
        cugrad.set_num_threads(before)


def test_what_cannot_be_finished_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Beforehand, "takes", lambda *args: False)  # but behind backward
    training = Training("Adam", SETTINGS["Adam"], (), "simulated")
    with memory.offload_states(training.net, training.optimizer, **options("all streamed")) as c:
        training.step(0)
        with pytest.raises(RuntimeError, match="no step has ended early"):
            c.finish_step()
        training.loss(1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_Step, "_numbers", failing(_Step._numbers, 3, OSError("it")))
            with pytest.raises(OSError, match="it"):
                training.optimizer.step()
        training.loss(2)
        with pytest.raises(RuntimeError, match="gradients have changed"):
            c.finish_step()
        training.optimizer.step()
        assert not c.unfinished()


@pytest.mark.parametrize("stage", ["the update", "the host reads", "the way out"])
@pytest.mark.parametrize("place", ["all on the host", "all streamed"])
def test_within_backward_too_each_parameter_is_before_or_behind(
    place: str, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Training("Adam", SETTINGS["Adam"], (), "simulated")
    plain.step(0)
    before = values_of(plain)
    plain.step(1)
    after = values_of(plain)
    holder, method = STAGES[stage]
    for nth in (0, 4):
        training = Training("Adam", SETTINGS["Adam"], (), "simulated")
        where = {**options(place), "step": "during backward", "window": "9KiB"}
        with memory.offload_states(training.net, training.optimizer, **where):
            training.step(0)
            with monkeypatch.context() as patch:
                patch.setattr(holder, method, failing(getattr(holder, method), nth, OSError(stage)))
                with contextlib.suppress(OSError):
                    training.step(1)
            for now, old, new in zip(values_of(training), before, after):
                assert same(now, old) or same(now, new)
            training.optimizer.zero_grad()
            training.optimizer.step()  # ends the one that was left
            training.step(2)
            assert all(bool(p.isfinite().all()) for p in training.params)


def test_a_disk_that_is_too_small_is_said_before_the_first_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the least that would do, and what holds it; and no parameter is touched."""
    matrix = 16 * 16 * 4
    least = {"Adam": 5 * 3 * matrix, "SGD": 5 * 2 * matrix}
    for name, needed in least.items():
        training = Training(name, SETTINGS[name], (), "simulated")
        for free, fits in ((needed, True), (needed - 1, False)):
            status = SimpleNamespace(f_bavail=free, f_frsize=1)
            with monkeypatch.context() as patch:
                patch.setattr("os.statvfs", lambda path, status=status: status)
                placed = memory.offload_states(
                    training.net, training.optimizer, **options("all on disk")
                )
                if fits:
                    with placed:
                        pass
                    continue
                words = (
                    rf"{size(needed)} are needed at least: 5 KiB of weights and "
                    rf"{size(needed - 5 * matrix)} of states, of which embedding.weight with 1 KiB"
                )
                with pytest.raises(DiskFullError, match=words), placed:
                    pass
        training.step(0)
    assert not HOMES


def test_a_disk_that_becomes_full_is_told_in_words_of_who_uses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    training = Training("Adam", SETTINGS["Adam"], (), "simulated")
    words = "offload_states: .* is full.*let weights or states live on the host; what finds no room"
    with memory.offload_states(training.net, training.optimizer, **options("all on disk")):
        monkeypatch.setattr(ScratchFile, "free_bytes", lambda file: 0)
        with pytest.warns(UserWarning, match=words):
            training.step(0)


def test_states_that_there_are_count_as_what_a_disk_needs() -> None:
    """And those that are in files already do not: another context takes them over."""
    training = Training("Adam", SETTINGS["Adam"], (), "simulated")
    training.step(0)
    places = {"weights": "device", "states": "disk"}
    check = partial(check_disk, training.params, [training.optimizer], {}, places, 512, False, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.statvfs", lambda path: SimpleNamespace(f_bavail=10, f_frsize=1 << 10))
        check()
        patch.setattr("os.statvfs", lambda path: SimpleNamespace(f_bavail=10, f_frsize=1000))
        with pytest.raises(DiskFullError, match="10 KiB of states"):
            check()
        with memory.offload_states(
            training.net, training.optimizer, **options("states on the host", bring_back=False)
        ):
            pass
    with memory.offload_states(
        training.net, training.optimizer, **options("all on disk", bring_back=False)
    ):
        training.step(1)
        gc.collect()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("os.statvfs", lambda path: SimpleNamespace(f_bavail=4, f_frsize=1 << 10))
            check()  # what is in the window may have to be written
    with memory.offload_states(training.net, training.optimizer):
        pass
