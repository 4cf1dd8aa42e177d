"""Weights in 16 bits with masters in float32 train as in a loop that is written out."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import pytest

import cugrad
from cugrad import memory
from cugrad.backends import simulated
from cugrad.memory.states.within_backward.beforehand import Beforehand
from cugrad.nn.functional import cross_entropy
from cugrad.optim.rules.steps import _Step
from tests.memory.states.test_failures import failing
from tests.memory.states.training import PLACES, Net, arrays_of, clip_one_by_one, same
from tests.optim.settings import EACH

DURING = {"step": "during backward"}
NAMES = [name for name in EACH if name not in ("LBFGS", "SparseAdam")]
OPTIONS: Any = {"masters": "float32", "min_bytes": 256, "window": "9KiB"}


pytestmark = pytest.mark.usefixtures("nothing_stays_placed")


class Loop:
    """Mixed precision: the network in bfloat16, and, written out, masters that the step is of."""

    def __init__(self, name: str, settings: Any, features: Any = (), written: bool = False) -> None:
        self.features = features
        cugrad.manual_seed(0)
        self.net = Net("tied" in features, False).to("simulated", cugrad.bfloat16)
        self.params = list(self.net.parameters())
        if name == "Muon":
            self.params = [p for p in self.params if p.ndim == 2]
        self.masters = [p.detach().float() for p in self.params] if written else []
        self.optimizer = getattr(cugrad.optim, name)(self.masters or self.params, **settings)
        self.scaler = cugrad.amp.GradScaler("simulated", 64.0, enabled="scaler" in features)
        self.losses: list[float] = []

    def step(self, k: int) -> None:
        self.net.zero_grad()
        for j in range(1 + ("accumulate" in self.features)):
            generator = cugrad.Generator().manual_seed(2 * k + j)
            words = cugrad.randint(0, 16, (12,), generator=generator).to("simulated")
            loss = cross_entropy(self.net(words), words.flip(0))
            self.scaler.scale(loss).backward()
            self.losses.append(loss.item())
        if "scaler" in self.features and k == 1:
            self.params[0].grad[0, 0] = float("inf")
        if "clip" in self.features:
            clip_one_by_one(self.params, 0.1)
        for param, master in zip(self.params, self.masters):
            master.grad = param.grad.float()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        with cugrad.no_grad():
            for param, master in zip(self.params, self.masters):
                param.copy_(master)

    def values(self) -> list[Any]:
        """Losses, weights, masters and other states."""
        state = self.optimizer.state
        rests = [dict(state[p]) for p in self.masters or self.params]
        masters = self.masters or [rest.pop("master") for rest in rests]
        return [self.losses, arrays_of(self.params), arrays_of(masters), arrays_of(rests)]


def settings_of(name: str) -> Any:
    return EACH[name][1]


@cache
def written_out(name: str, features: Any = (), steps: int = 3) -> list[Any]:
    loop = Loop(name, settings_of(name), features, True)
    for k in range(steps):
        loop.step(k)
    return loop.values()


def placed(name: str, places: Any, features: Any = (), steps: int = 3) -> list[Any]:
    loop = Loop(name, settings_of(name), features)
    with memory.offload_states(loop.net, loop.optimizer, **places, **OPTIONS):
        for k in range(steps):
            loop.step(k)
    return loop.values()


@pytest.mark.parametrize("name", NAMES)
def test_training_is_that_of_a_loop_that_is_written_out(name: str) -> None:
    place = list(PLACES)[len(name) % len(PLACES)]
    with simulated.configured(policy="random", seed=len(name)):
        assert same(placed(name, PLACES[place]), written_out(name))


@pytest.mark.parametrize("place", ["on the device", *PLACES, "host, during", "stream, during"])
def test_wherever_they_are(place: str) -> None:
    places: dict[str, Any] = {
        "on the device": {}, **PLACES, "host, during": {**PLACES["all on the host"], **DURING},
        "stream, during": {**PLACES["all streamed"], **DURING},
    }  # fmt: skip
    features = ("tied",) if "during" in place else ("tied", "clip", "accumulate", "scaler")
    with simulated.configured(policy="random", seed=len(place)):
        assert same(placed("AdamW", places[place], features), written_out("AdamW", features))


@pytest.mark.parametrize("place", ["all on the host", "states streamed"])
def test_what_others_write_to_a_weight_is_its_master(place: str) -> None:
    loop, other = (Loop("SGD", {"lr": 0.1, "momentum": 0.9}, (), k) for k in (False, True))
    with memory.offload_states(loop.net, loop.optimizer, **PLACES[place], **OPTIONS):
        for each in (loop, other):
            each.step(0)
            with cugrad.no_grad():
                each.params[0][1] = 0.5
                each.params[1].data[1] = 0.25
                for param, master in list(zip(each.params, each.masters))[:2]:
                    master[1] = param[1].float()
            each.step(1)
    assert same(loop.values(), other.values())


def test_a_checkpoint_has_them() -> None:
    """A training that goes on from one is as if it had never ended; one without them gets them."""
    straight = placed("Adam", PLACES["all on the host"], steps=4)
    first = Loop("Adam", settings_of("Adam"))
    with memory.offload_states(first.net, first.optimizer, **PLACES["all streamed"], **OPTIONS):
        first.step(0)
        first.step(1)
    saved = first.net.state_dict(), first.optimizer.state_dict()
    again = Loop("Adam", settings_of("Adam"))
    with memory.offload_states(again.net, again.optimizer, **PLACES["all on disk"], **OPTIONS):
        again.net.load_state_dict(saved[0])
        again.optimizer.load_state_dict(saved[1])
        again.step(2)
        again.step(3)
    assert same(again.values()[1:], straight[1:])
    plain = Loop("Adam", settings_of("Adam"))
    plain.step(0)
    with memory.offload_states(plain.net, plain.optimizer, **PLACES["all streamed"], **OPTIONS):
        plain.step(1)
        states = [plain.optimizer.state[p] for p in plain.params]
        assert {s["exp_avg"].dtype for s in states} == {cugrad.float32}


@pytest.mark.parametrize("place", ["all on the host", "all streamed"])
def test_a_step_that_fails_leaves_them_before_or_behind(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def values(loop: Loop) -> Any:
        state = loop.optimizer.state
        return [copy.deepcopy(arrays_of([p, state.get(p)])) for p in loop.params]

    loops = [Loop("Adam", settings_of("Adam")) for _ in range(2)]
    for count, loop in enumerate(loops, 1):
        with memory.offload_states(loop.net, loop.optimizer, **PLACES[place], **OPTIONS):
            for k in range(count):
                loop.step(k)
    before, after = map(values, loops)
    monkeypatch.setattr(Beforehand, "takes", lambda *args: False)  # but behind backward
    for nth in (0, 2):
        loop = Loop("Adam", settings_of("Adam"))
        with memory.offload_states(loop.net, loop.optimizer, **PLACES[place], **OPTIONS) as context:
            loop.step(0)
            with monkeypatch.context() as patch:
                patch.setattr(_Step, "_numbers", failing(_Step._numbers, nth, OSError("no")))
                with pytest.raises(OSError, match="no"):
                    loop.step(1)
            for now, old, new in zip(values(loop), before, after):
                assert same(now, old) or same(now, new)
            context.finish_step()
        assert same(values(loop), after)


def test_what_cannot_have_them_says_so() -> None:
    net = cugrad.nn.Linear(2, 2)
    with pytest.raises(ValueError, match="masters: got LBFGS"):
        memory.offload_states(net, cugrad.optim.LBFGS(net.parameters()), masters="float32")
    with pytest.raises(ValueError, match="masters: got 'float64', want 'float32' or None"):
        memory.offload_states(net, cugrad.optim.SGD(net.parameters()), masters="float64")
