"""Steps that are taken within backward, and count when the optimizer's own step comes to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import cugrad
from cugrad import backends, memory
from cugrad.backends import simulated
from cugrad.memory.states.steps import StatesElsewhere
from cugrad.memory.states.within_backward import beforehand
from cugrad.memory.states.within_backward.beforehand import Beforehand, Taken
from tests.memory.states.training import PLACES, Training, deep, same, train, values_of

DEVICE: Any = backends.get("simulated")
STREAMED = PLACES["all streamed"]
OPTIONS: Any = {**STREAMED, "min_bytes": 512, "window": "9KiB"}
Program = Callable[[Training, int], None]


pytestmark = pytest.mark.usefixtures("nothing_stays_placed")


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many steps of parameters were counted, and how many taken back."""
    numbers = {"count": 0, "take_back": 0}
    for name in numbers:
        before = getattr(Taken, name)

        def counted(self: Any, name: str = name, before: Any = before) -> None:
            numbers[name] += 1
            before(self)

        monkeypatch.setattr(Taken, name, counted)
    return numbers


KNOWN: dict[Any, Any] = {}  # values behind programs without placements, by what they are called


def programs(
    step: Program, steps: int = 5, called: Any = None, **options: Any
) -> tuple[Any, Any]:  # fmt: skip
    """Values behind a program without placements, and with all streamed. Programs of one name do
    the same where nothing is placed: the first of them runs there.
    """
    for places in (None, {**OPTIONS, **options}):
        if places is None and called in KNOWN:
            continue
        training = Training("Adam", {"lr": 0.1}, (), "simulated")
        if places is None:
            for k in range(steps):
                step(training, k)
        else:
            with memory.offload_states(training.net, training.optimizer, **places):
                for k in range(steps):
                    step(training, k)
        values = [training.losses, *values_of(training)]
        if places is None:
            KNOWN[called] = values
    plain = KNOWN[called] if called is not None else KNOWN.pop(None)
    return plain, values


@pytest.mark.parametrize(
    ("name", "features", "policy"),
    [("Adam", (), "latest"), ("Adam", ("tied", "frozen", "groups"), "random"),
     ("Adam", ("accumulate",), "latest"), ("Adam", ("zeros",), "random"), ("SGD", (), "random"),
     ("NAdam", (), "latest"), ("RMSprop", (), "random"), ("Adagrad", (), "latest")],
)  # fmt: skip
def test_training_is_the_same(name: str, features: Any, policy: str, count: dict[str, int]) -> None:
    settings = {"lr": 0.1, "momentum": 0.9} if name == "SGD" else {"lr": 0.1}
    plain = train(name, settings, features, None, steps=5)
    with simulated.configured(policy=policy, seed=len(name)):
        result = train(name, settings, features, STREAMED, steps=5, window="9KiB")
    assert same(result, plain)
    assert count["count"] > 8 and not count["take_back"]


@pytest.mark.skipif(not backends.is_usable("cuda"), reason="no usable GPU, and no fake one")
@pytest.mark.parametrize("features", [(), ("tied", "frozen", "groups")])
def test_training_on_cuda_is_the_same(features: Any, count: dict[str, int]) -> None:
    plain = train("Adam", {"lr": 0.1}, features, None, "cuda", 5)
    result = train("Adam", {"lr": 0.1}, features, STREAMED, "cuda", 5, window="9KiB")
    assert same(result, plain)
    assert count["count"] > 8 and not count["take_back"]


@pytest.mark.parametrize("feature", ["clip", "clip values", "scaler", "closure"])
def test_a_loop_that_changes_gradients_first_is_seen_to(
    feature: str, count: dict[str, int]
) -> None:
    plain = train("Adam", {"lr": 0.1}, (feature,), None, steps=5)
    result = train("Adam", {"lr": 0.1}, (feature,), STREAMED, steps=5)
    assert same(result, plain)
    assert count["count"] == 0


def test_a_weight_and_its_gradient_come_once_less() -> None:
    """And the gradients that were whole last need not leave."""
    layers, weight = 24, 64 * 64 * 4

    def moved(takes: bool) -> dict[str, tuple[int, int]]:
        cugrad.manual_seed(0)
        several = [cugrad.nn.Linear(64, 64, bias=False) for _ in range(layers)]
        net = cugrad.nn.Sequential(*several).to("simulated")
        optimizer = cugrad.optim.Adam(net.parameters())
        x = cugrad.ones(4, 64, device="simulated")
        options: Any = {"window": 8 * weight, "min_bytes": 512, **STREAMED}
        reports = []
        with pytest.MonkeyPatch.context() as patch:
            if not takes:
                patch.setattr(Beforehand, "can_follow", lambda *args: False)
            with memory.offload_states(net, optimizer, **options) as placed:
                for _ in range(4):
                    net(x).square().mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    reports.append(placed.report())
        before, now = reports[-2:]
        ways = "moved_back", "moved_out"
        return {
            kind: tuple([(now[kind][way] - before[kind][way]) // weight for way in ways])
            for kind in now
        }

    ahead, behind = moved(True), moved(False)
    assert behind["gradients"][0] >= layers - 8 and ahead["gradients"] == (0, layers - 4)
    assert ahead["weights"][0] <= behind["weights"][0] - layers + 12
    assert ahead["states"] == behind["states"] == (2 * layers, 2 * layers)


def _reads_weights(t: Training) -> None:
    t.losses.append(float(t.params[0].sum().item()))


def _reads_states(t: Training) -> None:
    t.losses.append([float(v.sum()) for p in t.params for v in t.optimizer.state[p].values()])


def _writes_a_weight(t: Training) -> None:
    with cugrad.no_grad():
        t.params[1].mul_(0.5)
        t.params[2].data = t.params[2].data * 0.5


def _writes_states(t: Training) -> None:
    for value in t.optimizer.state[t.params[1]].values():
        value.mul_(0.5)


def _writes_gradients(t: Training) -> None:
    for p in t.params[:3]:
        p.grad.mul_(0.5)


def _drops_gradients(t: Training) -> None:
    t.params[1].grad = None
    t.params[2].grad = t.params[2].grad * 2


def _changes_a_setting(t: Training) -> None:
    t.optimizer.param_groups[0]["lr"] *= 0.5


def _counts_a_step_more(t: Training) -> None:
    state = t.optimizer.state[t.params[1]]
    state["step"] += 1


def _loads_states(t: Training) -> None:
    t.optimizer.load_state_dict(t.optimizer.state_dict())


def _goes_back_again(t: Training) -> None:
    t.loss(9)


def _skips(t: Training) -> None:
    t.optimizer.zero_grad()


def _sees_versions(t: Training) -> None:
    t.losses.append([p._version for p in t.params])


LOOKS = [_reads_weights, _reads_states, _writes_a_weight, _writes_states, _writes_gradients,
         _drops_gradients, _changes_a_setting, _counts_a_step_more, _loads_states,
         _goes_back_again, _skips]  # fmt: skip


@pytest.mark.parametrize("look", LOOKS)
def test_whoever_looks_before_the_step_finds_what_is_there_without(
    look: Any, count: dict[str, int]
) -> None:
    policy = ("random", "latest")[LOOKS.index(look) % 2]

    def step(t: Training, k: int) -> None:
        t.optimizer.zero_grad()
        t.loss(k)
        if k == 3:
            look(t)
        t.optimizer.step()

    with simulated.configured(policy=policy, seed=3):
        plain, streamed = programs(step, 5, look)
    assert same(plain, streamed)
    assert count["count"] and count["take_back"]


def test_a_graph_that_is_kept_has_the_weights_of_before(count: dict[str, int]) -> None:
    def step(t: Training, k: int) -> None:
        x = cugrad.ones(4, 16, device="simulated")
        layers = t.net.layers
        y = layers[2](layers[1](layers[0](x)).tanh()).square().mean()
        t.optimizer.zero_grad()
        y.backward(retain_graph=k == 3)
        if k == 3:
            y.backward()
        t.optimizer.step()

    plain, streamed = programs(step, 6)
    assert same(plain, streamed)
    assert count["count"] and count["take_back"]


def test_versions_are_those_of_a_step_behind_backward(count: dict[str, int]) -> None:
    def step(t: Training, k: int) -> None:
        t.optimizer.zero_grad()
        t.loss(k)
        _sees_versions(t)
        t.optimizer.step()
        _sees_versions(t)

    plain, streamed = programs(step)
    assert same(plain, streamed)
    assert count["count"] and not count["take_back"]


@pytest.mark.parametrize("nth", range(4))
def test_what_fails_within_backward_is_tried_again_behind_it(
    nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = OSError if nth % 2 else MemoryError
    before, calls = StatesElsewhere._take, [0]

    def failing(self: Any, *args: Any) -> None:
        calls[0] += 1
        before(self, *args)
        if calls[0] == failed:
            raise error  # whose frames no one keeps

    def step(t: Training, k: int) -> None:
        nonlocal failed
        t.optimizer.zero_grad()
        failed = calls[0] + 1 + nth if k == 2 else 0
        t.loss(k)
        failed = 0
        t.optimizer.step()

    failed = 0
    monkeypatch.setattr(StatesElsewhere, "_take", failing)
    plain, streamed = programs(step, called="one that fails elsewhere")
    assert same(plain, streamed) and calls[0]


@pytest.mark.parametrize("nth", range(4))
@pytest.mark.parametrize("where", ["_take", "put_aside", "_bring_next", "_count_as"])
def test_an_interrupt_leaves_all_as_before(
    where: str, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within backward; and the loop may go on."""
    holder: Any = {"_take": StatesElsewhere, "put_aside": Taken, "_bring_next": Beforehand}.get(
        where, beforehand
    )
    before, left = getattr(holder, where), [0]

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return before(*args, **kwargs)

    monkeypatch.setattr(holder, where, interrupted)

    def step(t: Training, k: int) -> None:
        t.optimizer.zero_grad()
        if k == 3:
            now = values_of(t)
            left[0] = nth + 1 if t.optimizer._elsewhere is not None else 0
            try:
                t.loss(k)
            except KeyboardInterrupt:
                pass
            left[0] = 0
            assert same(values_of(t), now)
            t.losses.clear()
            return
        t.loss(k)
        t.optimizer.step()

    plain, streamed = programs(step, called="one that is interrupted elsewhere")
    assert same(plain[1:], streamed[1:])


def test_a_host_without_room_for_both_versions_has_one(count: dict[str, int]) -> None:
    def step(t: Training, k: int) -> None:
        t.optimizer.zero_grad()
        t.loss(k)
        t.optimizer.step()

    plain, streamed = programs(step, host_limit="24KiB")
    assert same(plain, streamed) and not count["count"]
    plain, streamed = programs(step, host_limit="400KiB")
    assert same(plain, streamed) and count["count"]


def test_a_context_that_ends_before_the_step_leaves_what_was_there(count: dict[str, int]) -> None:
    values = []
    for placed in (False, True):
        t = Training("Adam", {"lr": 0.1}, (), "simulated")
        context = memory.offload_states(t.net, t.optimizer, **OPTIONS if placed else {})
        with context:
            for k in range(4):
                t.optimizer.zero_grad()
                t.loss(k)
                if k < 3:
                    t.optimizer.step()
        values.append(values_of(t))
        t.optimizer.step()
        values.append(values_of(t))
    assert same(values[:2], values[2:])
    assert count["count"] and count["take_back"]


def test_what_is_seen_once_is_stepped_behind_backward_from_then_on(count: dict[str, int]) -> None:
    def step(t: Training, k: int) -> None:
        t.optimizer.zero_grad()
        t.loss(k)
        if k > 1:
            _reads_weights(t)
        t.optimizer.step()

    plain, streamed = programs(step, 6)
    assert same(plain, streamed)
    assert count["take_back"] == 1 and count["count"]


@pytest.mark.parametrize("policy", ["latest", "timed"])
def test_a_step_is_taken_back_while_what_it_made_is_leaving(
    policy: str, count: dict[str, int]
) -> None:
    """Another optimizer's step has all weights sent that stay in their window."""

    def weights(**places: str) -> list[Any]:
        cugrad.manual_seed(0)
        nets = [deep(64, 2) for _ in range(2)]
        both = cugrad.nn.Sequential(*nets).to("simulated")
        optimizers = [cugrad.optim.Adam(net.parameters()) for net in nets]
        average = [cugrad.zeros_like(p) for p in both.parameters()]
        x = cugrad.randn(8, 64, device="simulated")
        with memory.offload_states(both, optimizers, min_bytes=512, **places):
            for k in range(5):
                both.zero_grad()
                both(x).square().mean().backward()
                for optimizer in optimizers[: 1 if k == 3 else 2]:
                    optimizer.step()
                with cugrad.no_grad():
                    for mean, param in zip(average, both.parameters()):
                        mean.lerp_(param, 0.1)
        return [tensor.detach().cpu().numpy() for tensor in [*average, *both.parameters()]]

    plain = weights()
    with simulated.configured(policy=policy):
        assert same(weights(**STREAMED), plain)
    assert count["count"] and count["take_back"]
