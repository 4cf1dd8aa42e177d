"""Wherever saved tensors live, gradients are bitwise the same, under every schedule; none leaks."""

from __future__ import annotations

import functools
import gc
import importlib
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import backends, memory
from cugrad.autograd.graph import saved_tensors_hooks
from cugrad.backends import simulated
from cugrad.memory.offloading.engine import CopyEngine, engine_of
from tests.memory.offload import cases_of_life as offload_cases_of_life
from tests.memory.offload import cases_of_steps as offload_cases_of_steps
from tests.memory.offload import cases_of_transforms as offload_cases_of_transforms
from tests.memory.offload.cases import CASES, OWN, Run
from tests.support import fake_cuda

# they register their cases
assert offload_cases_of_life and offload_cases_of_steps and offload_cases_of_transforms

Host = np.ndarray[Any, Any]

# Placements ---------------------------------------------------------------------------------------


@dataclass
class Placement:
    """A way to keep saved tensors. `shares`: aliases come back as aliases. `copies`: what is saved
    is copied, so that it does not change, on a device and on the host; None: some of it is.
    """

    make: Callable[[], Any]
    shares: bool = True
    hooked: bool = True
    moves: bool = False
    copies: bool | None = None
    copies_on_host: bool | None = None


class Exact:
    """A codec that loses nothing: what is encoded takes the path of codecs, bitwise."""

    name = "exact"

    def applies(self, dtype: Any) -> bool:
        return np.dtype(dtype).kind in "fc"

    def encode(self, xp: Any, array: Any) -> Any:
        return xp.ascontiguousarray(array).reshape(-1).view(np.uint8)[::-1].copy()

    def decode(self, xp: Any, payload: Any, dtype: Any, shape: Any) -> Any:
        return payload[::-1].copy().view(dtype).reshape(shape)


def on_host(t: Any) -> Any:
    return t.detach().cpu().numpy().copy(), t.device


def from_host(packed: Any) -> Any:
    return cugrad.tensor(packed[0], device=packed[1])


def offload(**options: Any) -> Placement:
    options = {"min_bytes": 0, "keep_last": 0, **options}
    return Placement(
        lambda: memory.offload(**options), moves=True, copies=True, copies_on_host=True
    )


PLACEMENTS = {
    "identity": Placement(
        lambda: saved_tensors_hooks(lambda t: t, lambda t: t), copies=False, copies_on_host=False
    ),
    "to numpy": Placement(
        lambda: saved_tensors_hooks(on_host, from_host),
        shares=False,
        copies=True,
        copies_on_host=True,
    ),
    "save_on_cpu": Placement(
        lambda: memory.save_on_cpu(), moves=True, copies=True, copies_on_host=True
    ),
    "save_on_cpu pinned": Placement(
        lambda: memory.save_on_cpu(pin_memory=True), moves=True, copies=True, copies_on_host=True
    ),
    "offload": offload(),
    "offload learns": offload(keep_last=None),
    "offload keeps some": offload(min_bytes=100, keep_last=600),
    "offload as it comes": Placement(lambda: memory.offload(), copies=True, copies_on_host=True),
    "offload lookahead 0": offload(lookahead=0),
    "offload lookahead huge": offload(lookahead=1 << 40),
    "offload backlog 0": offload(backlog=0, lookahead=300),
    "offload backlog huge": offload(backlog=1 << 40, lookahead=1),
    "offload host 0": offload(host_limit=0),
    "offload host limit": offload(host_limit=1536),
    "offload untimed": offload(timing=False),
    "offload filter": offload(filter=lambda t: t.dim() != 1 and t.numel() % 5 != 0),
    "offload exact codec": offload(compress=Exact()),
    "offload spills to disk": offload(host_limit=1536, spill=tempfile.gettempdir()),
    "save_on_disk": Placement(
        lambda: memory.save_on_disk(min_bytes=0),
        moves=True,
        copies=True,
        copies_on_host=True,
    ),
    "save_on_disk exact codec": Placement(
        lambda: memory.save_on_disk(min_bytes=0, compress=Exact(), lookahead=0, backlog=0),
        moves=True,
        copies=True,
        copies_on_host=True,
    ),
}
MAIN = ("save_on_cpu pinned", "offload", "offload learns")

# Runs ---------------------------------------------------------------------------------------------


def on_numpy(found: Any) -> Host:
    if isinstance(found, (bool, int, float)):
        return np.asarray(found)
    t = found.detach()
    array = t.cpu()
    return np.array(array.float() if "bfloat16" in str(t.dtype) else array)


def run(name: str, device: str, place: Placement | None, lib: Any = cugrad) -> list[Host]:
    """What a case returns, on the host."""
    if place is None:
        made = Run(lib, device, nullcontext, copies=False)
    else:
        copies = place.copies_on_host if device == "cpu" else place.copies
        made = Run(
            lib, device, place.make, place.shares, place.hooked, place.moves, copies,
            place is PLACEMENTS["to numpy"],
        )  # fmt: skip
    return [on_numpy(t) for t in CASES[name](made)]


@functools.cache
def plain(name: str) -> tuple[Host, ...]:
    """What a case returns without hooks, on the CPU."""
    return tuple(run(name, "cpu", None))


def assert_same(found: list[Host], name: str, what: str) -> None:
    wanted = plain(name)
    assert len(found) == len(wanted)
    for k, (a, b) in enumerate(zip(found, wanted, strict=True)):
        assert a.shape == b.shape and a.dtype == b.dtype, f"{what}: result {k}"
        assert a.tobytes() == b.tobytes(), f"{what}: result {k} is {a}, want {b}"


def the_engine() -> CopyEngine:
    return engine_of(backends.get("simulated"), 0)


def held() -> dict[str, int]:
    """What the engine and the device hold when nothing is under way."""
    engine = the_engine()
    engine.drain()
    return {
        "bytes leaving": engine.out.leaving_bytes, "bytes ahead": engine.ledger.ahead,
        "bytes away": engine.ledger.away, "dropped": len(engine.ledger.dropped),
        "queue": len(engine.out._leaving), "pinned bytes": engine.out.slab.used_bytes,
        "device bytes": backends.get("simulated").memory_allocated(),
    }  # fmt: skip


@contextmanager
def nothing_leaks() -> Iterator[None]:
    """Afterwards the engine and the device hold what they held, without the garbage collector."""
    before = held()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        after = held()
        if after != before:
            gc.collect()
            cycle = " until the garbage collector runs" if held() == before else ""
            changed = {k: v - before[k] for k, v in after.items() if v != before[k]}
            pytest.fail(f"held{cycle}: {changed}")
    finally:
        if enabled:
            gc.enable()


def forget() -> None:
    """Makes the engine one that has learned nothing."""
    engine = the_engine()
    engine.drain()
    engine._plans.clear()
    engine._thread.current = None


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    forget()
    yield
    simulated.reset()


# The suite ----------------------------------------------------------------------------------------

# By default each case runs at the earliest, at the latest and under another schedule, in which
# three placements take turns, so that the cases have fifty together; and under one schedule in
# every fifth of the other placements. CUGRAD_SCHEDULES=50 runs all 50 in every placement.
SCHEDULES = int(os.environ.get("CUGRAD_SCHEDULES", "1"))
# Where nothing is asynchronous sizes make no difference.
WITHOUT_STREAMS = ("to numpy", "save_on_cpu", "save_on_cpu pinned", "offload learns",
                   "offload host limit", "offload exact codec", "save_on_disk")  # fmt: skip


def schedule(seed: int) -> dict[str, Any]:
    policy = simulated.POLICIES[seed] if seed < len(simulated.POLICIES) else "random"
    return {"policy": policy, "seed": seed}


def fits(name: str, place: str) -> bool:
    """NumPy cannot have the tensors of a vmap."""
    return place != "to numpy" or not CASES[name].__module__.endswith("transforms")


def its_turn(number: int, place: str) -> bool:
    """Whether a case runs in this placement, as its neighbours do in the next ones."""
    turn = list(PLACEMENTS).index(place)
    return SCHEDULES > 1 or (number + turn) % 5 == 0


def schedules_of(number: int) -> list[int]:
    """The seeds of a case: the extremes, and one that its neighbours do not have."""
    return list(range(50)) if SCHEDULES >= 50 else [0, 1, 2 + number % 48]


def on_the_device(name: str, place: str, seed: int) -> None:
    how = schedule(seed)
    with nothing_leaks(), simulated.configured(**how):
        found = run(name, "simulated", PLACEMENTS[place])
        assert_same(found, name, f"{name} in {place!r}, {how}")


def test_there_are_sixty() -> None:
    assert len(CASES) >= 60


@pytest.mark.parametrize("name", [name for name in CASES if name not in OWN])
def test_pytorch_says_the_same(name: str) -> None:
    pytest.importorskip("torch")
    torch = importlib.import_module("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = run(name, "cpu", None, torch)
    for a, b in zip(plain(name), wanted, strict=True):
        half = a.dtype.itemsize == 2 or "bfloat16" in name
        np.testing.assert_allclose(a, b, rtol=2e-2 if half else 2e-4, atol=1e-5)


@pytest.mark.parametrize("place", PLACEMENTS)
def test_on_the_host(place: str) -> None:
    for number, name in enumerate(CASES):
        if fits(name, place) and its_turn(number, place):
            assert_same(run(name, "cpu", PLACEMENTS[place]), name, name)


@pytest.mark.cuda
@pytest.mark.parametrize("place", PLACEMENTS)
def test_on_cuda(place: str) -> None:
    """Near to what the CPU finds: some kernels there add in an order of their own."""
    turn = list(PLACEMENTS).index(place)
    for number, name in enumerate(CASES):
        if name == "dropout" or not fits(name, place):  # other random numbers
            continue
        if fake_cuda.REAL is not None and (number + turn) % 5:
            continue
        for found, wanted in zip(run(name, "cuda", PLACEMENTS[place]), plain(name), strict=True):
            half = "bfloat16" in name or "mixed" in name
            np.testing.assert_allclose(
                found, wanted, rtol=2e-2 if half else 1e-3, atol=1e-4, err_msg=name
            )


@pytest.mark.skipif(backends.is_usable("cuda"), reason="the test above has run")
def test_over_the_fake_cuda() -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    tests = [f"{__file__}::test_on_cuda[{place}]" for place in WITHOUT_STREAMS]
    assert f"{len(tests)} passed" in fake_cuda.passed(*tests)


@pytest.mark.parametrize("place", [p for p in PLACEMENTS if p not in MAIN])
def test_in_every_placement(place: str) -> None:
    """Each case under schedules of its own."""
    for number, name in enumerate(CASES):
        for k in range(SCHEDULES if fits(name, place) and its_turn(number, place) else 0):
            on_the_device(name, place, k if SCHEDULES >= 50 else (number * SCHEDULES + k) % 50)


@pytest.mark.parametrize("name", CASES)
def test_under_schedules(name: str) -> None:
    number = list(CASES).index(name)
    for seed in schedules_of(number):
        for place in MAIN if SCHEDULES >= 50 else (MAIN[(seed + number) % len(MAIN)],):
            on_the_device(name, place, seed)
