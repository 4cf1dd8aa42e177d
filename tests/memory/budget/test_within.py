"""memory.budget: steps whose backward differs, and what is in use between the passes of a step."""

from __future__ import annotations

import gc
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import cugrad as torch
from cugrad import backends, memory
from cugrad.backends import simulated
from cugrad.memory.budgeting import context as budgeting
from cugrad.memory.budgeting import rates
from cugrad.memory.budgeting.planning import search
from cugrad.nn import functional as F

DEVICE, MIB = "simulated", 1 << 20


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    gc.collect()
    monkeypatch.setattr(search, "WORK", search.WORK // 20)
    budgeting._learned.clear()
    rates._rates.clear()
    simulated.seed(0)
    yield
    budgeting._learned.clear()
    simulated.reset()


class Trained:
    """A network of layers of 64 KiB, whose batch takes 256 KiB in each of them."""

    def __init__(self) -> None:
        layers = [m for _ in range(6) for m in (torch.nn.Linear(128, 128), torch.nn.GELU())]
        self.net = torch.nn.Sequential(*layers, torch.nn.Linear(128, 10)).to(DEVICE)
        self.x = torch.randn(512, 128, device=DEVICE)
        self.y = torch.randint(0, 10, (512,), device=DEVICE)
        self.backend: Any = backends.get(DEVICE)

    def loss(self, rows: int = 512) -> Any:
        return F.cross_entropy(self.net(self.x[:rows]), self.y[:rows])

    def plain(self) -> None:
        self.net.zero_grad()
        self.loss().backward()

    def of_a_function(self) -> None:
        """The same forward; its backward is recorded, and saves as much again."""

        def loss(parameters: Any) -> Any:
            return F.cross_entropy(
                torch.func.functional_call(self.net, parameters, (self.x,)), self.y
            )

        self.net.zero_grad()
        torch.func.grad(loss)({k: v.detach() for k, v in self.net.named_parameters()})

    def penalty(self) -> None:
        """The same forward; a part of its backward is recorded, and more is in use there."""
        self.net.zero_grad()
        loss = self.loss()
        (g,) = torch.autograd.grad(loss, [self.net[6].weight], create_graph=True)
        (loss + g.square().sum()).backward()

    def unequal(self) -> None:
        self.net.zero_grad()
        self.loss().backward()
        self.loss(32).backward()

    def step(self, body: Callable[[], None], limit: int) -> tuple[int, list[str], Any]:
        """What the device took, what was warned, and the report or the error."""
        self.backend.reset_peak_memory_stats()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                with memory.budget(limit, device=DEVICE) as plan:
                    body()
                found: Any = plan.report()
            except memory.BudgetError as error:
                found = str(error)
        return self.backend.max_memory_allocated(), [str(each.message) for each in told], found


def test_a_backward_that_needs_more_is_an_error_behind_one_warning() -> None:
    """Where no plan fits it, also between steps of which one does."""
    trained = Trained()
    for _ in range(3):
        assert trained.step(trained.plain, 5 * MIB)[1] == []
    _, told, _ = trained.step(trained.of_a_function, 5 * MIB)
    assert len(told) == 1 and "it was not like those before; the next one is measured" in told[0]
    for body in (trained.of_a_function, trained.plain, trained.of_a_function):
        took, told, found = trained.step(body, 5 * MIB)
        if body == trained.plain:
            assert took <= 5 * MIB and told == []
        else:
            assert "are too few: this step needs at least 10" in found


def test_a_backward_that_needs_more_is_planned_for() -> None:
    """From the second one on neither takes more than the limit, in whatever order they come."""
    trained, limit = Trained(), 7 * MIB  # with all kept it takes 8
    for _ in range(3):
        assert trained.step(trained.plain, limit)[1] == []
    took, told, _ = trained.step(trained.penalty, limit)
    assert took > limit and len(told) == 1
    for k in range(8):
        body = trained.plain if k % 3 else trained.penalty
        took, told, _ = trained.step(body, limit)
        assert took <= limit and told == [], (k, took, told)


def test_a_strange_step_does_not_have_others_measured_for_ever() -> None:
    """One alone went on otherwise, and never comes again."""
    trained = Trained()
    for body in (*[trained.plain] * 3, trained.of_a_function, *[trained.plain] * 4):
        trained.step(body, 5 * MIB)
    _, _, found = trained.step(trained.plain, 5 * MIB)
    assert found["steps_followed"] > 0


def test_the_peak_is_of_all_passes_and_of_what_is_between_them() -> None:
    trained = Trained()
    for body in (trained.unequal, trained.unequal, trained.plain):
        for _ in range(3):
            took, told, found = trained.step(body, 8 * MIB)
            assert found["peak"] == took and told == []


def test_an_evaluation_over_the_limit_is_not_silent() -> None:
    """Whether it comes behind a pass, or before one, or alone."""
    trained = Trained()
    many = torch.randn(8192, 128, device=DEVICE)

    def evaluated() -> None:
        with torch.no_grad():
            trained.net(many)

    def before() -> None:
        evaluated()
        trained.plain()

    def behind() -> None:
        trained.plain()
        evaluated()

    limit = 10 * MIB
    for _ in range(3):
        assert trained.step(trained.plain, limit)[1] == []
    for body in (before, behind):
        took, told, found = trained.step(body, limit)
        assert took > limit and len(told) == 1 and found["peak"] == took
        assert "were in use within it, over its limit of 10 MiB, but not in a forward" in told[0]
    told_of = pytest.warns(UserWarning, match="over its limit of 10 MiB, but not in a forward")
    with told_of, memory.budget(limit, device=DEVICE):
        evaluated()
    assert trained.step(trained.plain, limit)[1] == []


def test_what_was_there_before_is_no_fault_of_the_step() -> None:
    """As an evaluation's results, which the program lets go of within."""
    trained = Trained()
    many = [torch.zeros(MIB, device=DEVICE) for _ in range(3)]

    def body() -> None:
        many.clear()
        trained.plain()

    took, told, found = trained.step(body, 10 * MIB)
    assert took > 10 * MIB > found["peak"] and told == []


def test_a_report_has_one_peak() -> None:
    """Also where the step began with more in memory than its plan was made for."""
    trained = Trained()
    optimizer = torch.optim.AdamW(trained.net.parameters())
    for _ in range(4):
        _, _, found = trained.step(trained.plain, 40 * MIB)
        optimizer.step()
        shown = re.search(r" of (\S+ \S+) are parameters", found["holders"])
        wanted = re.search(r"forecast (\S+ \S+), with", str(found))
        assert shown is not None and wanted is not None and shown[1] == wanted[1]


@pytest.mark.parametrize("has_model", [False, True])
def test_peaks_that_a_program_watches_are_its_own(has_model: bool) -> None:
    """Wherever it begins to watch: a budget that watches, too, brings no older peak back, and has
    none forgotten, that of what is reserved among them.
    """
    trained, cuda = Trained(), torch.cuda
    optimizer = torch.optim.SGD(trained.net.parameters(), lr=0.1)
    budget: Any = {"model": trained.net, "optimizer": optimizer, "bring_back": True}
    seen: list[tuple[int, int, int]] = []  # bytes in use as it begins to watch, then, and at most

    def watches() -> None:
        cuda.reset_peak_memory_stats(DEVICE)
        here = cuda.memory_allocated(DEVICE)
        few = torch.ones(1024, device=DEVICE)
        few = (few * 2).detach()
        peaks = cuda.memory_stats(DEVICE)
        assert peaks["reserved_bytes.all.peak"] == cuda.max_memory_reserved(DEVICE)
        seen.append((here, peaks["allocated_bytes.all.peak"], cuda.max_memory_allocated(DEVICE)))

    with memory.budget("6MiB", device=DEVICE, **budget if has_model else {}):
        for step in range(6):
            optimizer.zero_grad()
            loss = trained.loss()
            watches() if step % 2 else None
            cuda.reset_peak_memory_stats(DEVICE)
            loss.backward()
            backward = cuda.max_memory_allocated(DEVICE)
            watches() if step % 3 else None
            optimizer.step()
            reserved = cuda.max_memory_reserved(DEVICE)
            cuda.empty_cache()
            loss = loss.detach()
            assert cuda.max_memory_reserved(DEVICE) == reserved
            watches()
            loss = loss * 2
            watches()
            assert backward > MIB
    assert all(now == most <= here + MIB / 4 for here, now, most in seen)


def test_a_report_is_there_from_the_first_step_that_is_known_on() -> None:
    """A loop may print it each time: it says where it is of an earlier step."""
    trained = Trained()

    def evaluates() -> None:
        with torch.no_grad():
            trained.loss()

    def is_given_up() -> None:
        trained.loss()

    def report_of(body: Callable[[], None], limit: str = "5MiB") -> Any:
        with memory.budget(limit, device=DEVICE) as plan:
            body()
        return plan.report()

    with pytest.raises(RuntimeError, match="there is nothing to report"):
        report_of(evaluates)
    assert not report_of(trained.plain)["is_of_earlier_step"]
    last = report_of(trained.plain)
    for body in (evaluates, is_given_up, trained.plain):
        report, is_its_own = report_of(body), body == trained.plain
        assert report["is_of_earlier_step"] is not is_its_own
        assert ("an earlier step" in str(report)) is not is_its_own
        assert is_its_own or report["forward_ops"] == last["forward_ops"]
        assert is_its_own or report["peak"] < last["peak"]
    with pytest.raises(RuntimeError, match="there is nothing to report"):
        report_of(evaluates, "6MiB")
