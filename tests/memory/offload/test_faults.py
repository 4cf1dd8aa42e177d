"""Each wait, event and reference of the offload engine is needed: without it, there is a race."""

from __future__ import annotations

import ast
import gc
import importlib
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import cugrad
from cugrad import backends, memory
from cugrad.autograd import mode
from cugrad.backends import simulated
from cugrad.errors import RaceError
from cugrad.memory.disk import store
from cugrad.memory.disk.span import DiskSpan
from cugrad.memory.disk.transfers import Transfer
from cugrad.memory.offloading import engine
from cugrad.memory.offloading.options import OffloadOptions
from cugrad.memory.states.lane import lane_of
from cugrad.tensor import make
from tests.memory.offload import cases_of_life as offload_cases_of_life
from tests.memory.offload import cases_of_steps as offload_cases_of_steps
from tests.memory.offload import cases_of_transforms as offload_cases_of_transforms
from tests.memory.offload.cases import Run
from tests.memory.offload.test_conformance import PLACEMENTS, run

assert offload_cases_of_life and offload_cases_of_steps and offload_cases_of_transforms

DEVICE: Any = backends.get("simulated")

# Faults: one expression of the engine's source is another --------------------------------------


def call_of(node: ast.AST) -> str:
    """The name of the method, or of the function, that a call is of."""
    if isinstance(node, ast.Call):
        return str(getattr(node.func, "attr", getattr(node.func, "id", "")))
    return ""


class Planted(ast.NodeTransformer):
    """Counts the places where a fault can be planted, and plants one."""

    def __init__(self, wanted: int) -> None:
        self.wanted, self.names = wanted, list[str]()

    def is_it(self, name: str) -> bool:
        self.names.append(name)
        return len(self.names) - 1 == self.wanted

    def visit_Expr(self, node: ast.Expr) -> Any:
        name = call_of(node.value)
        if name in ("wait_event", "wait_for", "synchronize") and self.is_it(f"no {name}"):
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> Any:
        name = call_of(node)
        if name == "record_event" and self.is_it("event not recorded"):
            return node.args[0] if node.args else expression("self.backend.event()")
        if name == "query" and self.is_it("as if it had happened"):
            return expression("True")
        if name == "give_back" and ast.unparse(node.args[1]) != "None":
            if self.is_it("given back at once"):
                node.args[1] = expression("None")
        if getattr(node.func, "id", "") == "SlabBlock" and len(node.args) == 4:
            if self.is_it("a block without events"):
                node.args[3] = expression("()")
        if name == "append" and isinstance(node.args[0], ast.Tuple):
            for k, item in enumerate(node.args[0].elts):
                text = ast.unparse(item)
                if text == "flat" and self.is_it(f"{text} not held"):
                    node.args[0].elts[k] = expression("None")
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> Any:
        if ast.unparse(node) == "block.events = (event,)" and self.is_it("a block without events"):
            node.value = expression("()")
        return self.generic_visit(node)


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


ROOM = "cugrad.memory.offloading."
CLASSES = [
    f"{ROOM}engine.CopyEngine", f"{ROOM}outbound.Outbound", f"{ROOM}inbound.Inbound",
    "cugrad.backends.lending.slab.PinnedSlab",
    f"{ROOM}stats.Meter", f"{ROOM}ledger.Ledger", f"{ROOM}span.Span", f"{ROOM}staging.Staging",
]  # fmt: skip


def method_sources(path: str) -> Iterator[tuple[Any, ast.FunctionDef]]:
    module = importlib.import_module(path.rpartition(".")[0])
    tree = ast.parse(Path(str(module.__file__)).read_text())
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == path.rpartition(".")[2]:
            for item in node.body:
                if isinstance(item, ast.FunctionDef):
                    yield module, item


def faults(classes: list[str]) -> dict[str, tuple[str, str, int]]:
    """Every fault in some classes: its name -> class, method and number in that."""
    found = {}
    for path in classes:
        for _, function in method_sources(path):
            planter = Planted(-1)
            planter.visit(function)
            for number, name in enumerate(planter.names):
                of = f"{path.rpartition('.')[2]}.{function.name}"
                same = sum(1 for n in planter.names[:number] if n == name)
                key = f"{of}: {name}" + (f" ({same + 1})" if same else "")
                found[key] = path, function.name, number
    return found


FAULTS = faults(CLASSES)


@contextmanager
def planted(fault: str, patch: pytest.MonkeyPatch, among: Any = FAULTS) -> Iterator[None]:
    """The engine with one fault."""
    path, name, number = among[fault]
    for module, function in method_sources(path):
        if function.name == name:
            bad = ast.fix_missing_locations(Planted(number).visit(function))
            scope: dict[str, Any] = {}
            exec(compile(ast.Module([bad], []), f"<{fault}>", "exec"), vars(module), scope)
            patch.setattr(getattr(module, path.rpartition(".")[2]), name, scope[name])
    yield
    patch.undo()


# Programs ---------------------------------------------------------------------------------------

PROGRAMS: list[Callable[[], Any]] = []


def program(function: Callable[[], Any]) -> Callable[[], Any]:
    PROGRAMS.append(function)
    return function


def in_placements(case: str, *places: str) -> None:
    for place in places:
        PROGRAMS.append(partial(run, case, "simulated", PLACEMENTS[place]))


in_placements("chain", "save_on_cpu pinned", "offload untimed", "offload", "offload exact codec")
in_placements("the_same_step_again", "offload untimed", "offload", "offload learns")
in_placements("a_small_part_of_a_large_storage", "offload untimed")
in_placements("retained_twice", "offload lookahead 0", "save_on_cpu pinned")
in_placements("forward_between_backwards", "save_on_cpu pinned", "offload")
in_placements("dropped_without_backward", "offload backlog 0", "offload", "offload untimed")
in_placements("half_of_it_dropped", "offload untimed", "offload lookahead huge")
in_placements("large_and_small_by_turns", "save_on_cpu pinned", "offload untimed")
in_placements("changed_where_nothing_was_saved", "save_on_cpu pinned")
in_placements("chain", "save_on_disk", "save_on_disk exact codec", "offload spills to disk")
in_placements("the_same_step_again", "save_on_disk", "offload spills to disk")
in_placements("retained_twice", "save_on_disk exact codec")
in_placements("allowed_mutation", "save_on_cpu pinned", "offload")


def leaf(n: int = 128) -> Any:
    return Run(cugrad, "simulated", lambda: None).leaf(n)


def offload(**options: Any) -> Any:
    return memory.offload(**{"min_bytes": 0, "keep_last": 0, "timing": False, **options})


@program
def what_is_leaving_is_written_to() -> None:
    """Its graph is gone, so that nothing forbids it."""
    x = leaf()
    with offload():
        h = x * 1
        y = h.sin()
    del y
    h.detach().zero_()


@program
def what_leaves_while_one_of_several_streams_waits_serves_another() -> None:
    device, copies = backends.get("simulated"), engine.engine_of(backends.get("simulated"), 0)
    tensor = cugrad.ones(512, device="simulated") * 2
    with device.use_stream(device.stream()):
        copies.in_order()
        span = copies.send_state(tensor, OffloadOptions())
        copies.drop_state(span)
        del tensor
        copies.release_finished(0)
    assert cugrad.ones(512, device="simulated") * 3 is not None


@program
def what_is_leaving_is_dropped() -> None:
    for backlog in (0, 600, 1 << 40):
        x = leaf()
        for _ in range(3):
            with offload(backlog=backlog):
                y = x
                for _ in range(4):
                    y = (y * 2).sin()
            del y


@program
def what_comes_back_ahead_is_dropped() -> None:
    """Half of the graph goes backward, and then all of it dies."""
    for timing in (False, True):
        x = leaf()
        with offload(lookahead=1 << 40, timing=timing) as saving:
            h = (x * 2).sin()
            for _ in range(4):
                h = h.cos()
        assert saving is not None
        DEVICE.synchronize()
        engine.engine_of(DEVICE, 0).release_finished()
        assert h.grad_fn._saved_self is not None
        del h
        for _ in range(3):
            x * 3


def read_elsewhere(side: Any, saving: Any, n: int) -> Any:
    """A tensor comes back to another stream, and its block of the host is free at once."""
    x, main = leaf(n), DEVICE.default_stream()
    with saving:
        y = (x * 2).sin()
    main.synchronize()
    engine.engine_of(DEVICE, 0).drain()
    side.wait_event(main.record_event())
    with DEVICE.use_stream(side):
        return y.grad_fn._saved_self


@program
def blocks_of_the_host_are_reused() -> None:
    """Whole, cut, the rest of what was cut, and joined with their neighbours."""
    side, saving = DEVICE.stream(), offload()
    slab = engine.engine_of(DEVICE, 0).out.slab
    slab.chunk = 2048
    for before, after in (((128,), (128,)), ((512,), (128, 128)), ((128,) * 4, (512,))):
        kept = [read_elsewhere(side, saving, n) for n in before]
        with saving:
            again = [(leaf(n) * 3).sin() for n in after]
        DEVICE.default_stream().wait_event(side.record_event())
        assert kept and again
        del kept, again
        slab.release()


@program
def blocks_that_were_taken_over_are_reused() -> None:
    """A row has left before the matrix: its block comes back with that, and is given to another."""
    side, saving = DEVICE.stream(), offload()
    slab = engine.engine_of(DEVICE, 0).out.slab
    slab.chunk = 2048
    for n in (128, 384):  # of the row, and of the rest
        with saving:
            t = leaf(512).detach()
            packed = [saving.pack_hook(t[:128]), saving.pack_hook(t)]
        del t
        DEVICE.synchronize()
        engine.engine_of(DEVICE, 0).release_finished()
        with DEVICE.use_stream(side):
            back = saving.unpack_hook(packed[1])
        del packed
        with saving:
            again = (leaf(n) * 3).sin()
        DEVICE.default_stream().wait_event(side.record_event())
        assert back is not None and again is not None
        del back, again
        slab.release()


@program
def an_error_comes_when_a_copy_has_begun() -> None:
    """The copy is not known of, and its memory is given to another."""

    def failing(*_: Any) -> Any:
        raise ZeroDivisionError

    found = engine.engine_of(DEVICE, 0)
    for stream in (found.out.stream, found.back.stream):
        saving, t = offload(lookahead=0), leaf(512).detach() * 1
        packed = saving.pack_hook(t) if stream is found.back.stream else None
        if packed is not None:
            t = None
            found.drain()
        stream.record_event = failing
        try:
            saving.pack_hook(t) if packed is None else saving.unpack_hook(packed)
        except ZeroDivisionError:
            pass
        finally:
            del stream.record_event
        t = packed = None
        for _ in range(3):
            assert leaf(512).detach() * 3 is not None


@program
def another_stream_asks_for_what_has_left() -> None:
    """It is ordered behind the op that saved it, and not behind the copy that this led to."""
    side, main = DEVICE.stream(), DEVICE.default_stream()
    x = leaf()
    with offload(backlog=600):
        y = (x * 2).sin()
        done = main.record_event()
        z = (x * 3).sin()  # there is no room for two: the stream waits for the first one's copy
    with DEVICE.use_stream(side):
        side.wait_event(done)
        found = y.grad_fn._saved_self + 1
    main.wait_event(side.record_event())
    assert found is not None and z is not None


@program
def memory_of_another_stream_is_used_while_it_is_left() -> None:
    """As weights and optimizer states are, of `offload_states`."""
    copies, options = engine.engine_of(DEVICE, 0), OffloadOptions()
    lane = lane_of(copies, "states")
    span = copies.host_state([0], 512, options)
    flat = copies.bring_state(span, lane)
    flat[...] = 1
    tensor = make(flat)
    sent = copies.send_state(tensor, options, lane)
    copies.release_finished(0)  # the lane waits, whose memory it is
    tensor.add_(1)
    assert sent is not None


@program
def what_is_encoded_and_found_no_room_is_asked_for_elsewhere() -> None:
    """Its stream waits until the other one has decoded it: the memory is its own again."""

    def full(*_: Any) -> Any:
        raise MemoryError

    side, main = DEVICE.stream(), DEVICE.default_stream()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(DEVICE), "to_host", full)
        with offload(compress="bf16", host_limit=0):
            y = (leaf(512) * 2).sin()
    side.wait_event(main.record_event())
    with DEVICE.use_stream(side):
        found = y.grad_fn._saved_self
    del y
    for _ in range(3):
        assert leaf(256) * 3 is not None
    main.wait_event(side.record_event())
    assert found is not None


@program
def what_is_read_ahead_before_it_is_written() -> None:
    """From its block, which is free when threads have written it; the copy may still be at it."""
    saving = memory.save_on_disk(min_bytes=0, timing=False)
    copies = engine.engine_of(DEVICE, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DiskSpan, "query", lambda span: False)
        with saving:
            y = (leaf() * 2).sin().cos()
        DEVICE.synchronize()
        copies.release_finished()
        found = y.grad_fn._saved_self  # and the one before it comes, which is not waited for
    saving.store.flush()
    copies.release_finished()
    with saving:
        z = (leaf() * 2).sin().cos()
    assert found is not None and z is not None


@program
def page_locked_memory_is_given_back() -> None:
    x = leaf()
    with offload():
        y = (x * 2).sin()
    del y
    engine.engine_of(DEVICE, 0).out.slab.release()


@program
def the_device_is_full() -> None:
    gc.collect()
    DEVICE.empty_cache()
    with simulated.configured(capacity=DEVICE.memory_reserved() + 9 * 4096):
        for _ in range(2):
            x = leaf(1024)
            with offload(backlog=1 << 40, lookahead=1 << 40, keep_last=None):
                y = x
                for _ in range(10):
                    y = (y * 2).sin()
                y = y.sum()
            y.backward()


# The tests --------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """An engine of its own for each test; what was there before is no garbage, nor looked at."""
    gc.collect()
    gc.freeze()  # for good: what is unfrozen, 50,000 tests and PyTorch, is walked each time
    before = dict(engine._engines)
    engine._engines.clear()
    with simulated.configured(simulated.H200):
        simulated.reset()
        yield
        fresh()
    engine._engines.update(before)


def fresh() -> None:
    """No engine: the streams of those that are gone would count for ever. Those that are put aside
    for the test go on watching what is written to.
    """
    gc.collect()
    for gone in engine._engines.values():
        mode.watch_writes(gone.out._before_write, False)
    engine._engines.clear()
    simulated.MACHINE.freed_pinned.clear()
    simulated.reset()


def test_an_engine_that_is_put_aside_goes_on_watching() -> None:
    """Else what it keeps, or sends, would be written to unseen when it is used again."""
    x = cugrad.randn(64, 64, device="simulated", requires_grad=True)
    with (
        simulated.configured(policy="latest"),  # nothing has left when that is first asked
        cugrad.autograd.graph.save_on_cpu(pin_memory=True),
    ):
        kept = x.exp()
    (aside,) = engine._engines.values()
    engine._engines.clear()
    fresh()
    assert aside.out._leaving and aside.out._before_write in mode.writes_watched
    del kept
    aside.drain()
    assert aside.out._before_write not in mode.writes_watched


def schedules() -> Iterator[tuple[str, int]]:
    yield from (("latest", 0), ("earliest", 0), ("random", 1), ("random", 2), ("timed", 0))


def race() -> str | None:
    """The first race that some program finds under some schedule; its missing event."""
    for policy, seed in schedules():
        for function in PROGRAMS:
            with simulated.configured(policy=policy, seed=seed):
                try:
                    function()
                    DEVICE.synchronize()
                    gc.collect()
                    DEVICE.synchronize()
                except RaceError as error:
                    found = error.missing
                    error.__traceback__ = None
                    fresh()
                    PROGRAMS.remove(function)  # a few find most faults: these are asked first
                    PROGRAMS.insert(0, function)
                    return found
            fresh()
    return None


# Faults that no race follows from, and why.
FULL = "a pool that asks for memory back has waited for the device"
TIMES = "nothing but times depends on it"
ENDS = "these programs do not end in the middle; tests/combinations/test_interrupts.py does"
IMPLIED = {
    "CopyEngine.drain: no synchronize": "it is for the host, and for nothing on the device",
    "Inbound._fetch: no synchronize": "an engine that an exception left waits once more",
    "Outbound._copy: no synchronize": "as above",
    "CopyEngine._reclaimed: no synchronize": FULL,
    "Span.mend: as if it had happened": ENDS,
    "PinnedSlab._mend: no synchronize": ENDS,
    "PinnedSlab._sort: no synchronize": ENDS,
    "PinnedSlab._cut: a block without events": "the one stream that copies out has waited for "
    "them when the other part was cut off",
    "Staging.advance: no synchronize": "it is asked for until it has happened",
    "Staging.advance: no synchronize (2)": "as above",
    "Outbound._copy_unpinned: as if it had happened": "what a store still writes is held by it",
    "Staging._has_written: as if it had happened": "what threads do with a file has no clock; the "
    "bytes are compared, below",
    "Meter.late: as if it had happened": TIMES,
    "Meter.late: as if it had happened (2)": TIMES,
    "Meter.end: event not recorded": TIMES,
    "Meter.times: no synchronize": TIMES,
    "Meter.times: no synchronize (2)": TIMES,
}


@pytest.mark.parametrize("fault", [f for f in FAULTS if f not in IMPLIED])
def test_without_it_there_is_a_race(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with planted(fault, monkeypatch):
        if fault.startswith("Staging."):  # which blocks threads have done with is up to them:
            monkeypatch.setattr(store, "submit", Transfer.run)  # so they do all at once
        assert race() is not None


def test_with_all_of_it_there_is_none() -> None:
    assert race() is None


def test_what_is_implied_is_there() -> None:
    assert set(IMPLIED) <= set(FAULTS), textwrap.shorten(str(set(IMPLIED) - set(FAULTS)), 200)
