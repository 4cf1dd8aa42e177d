"""Training with weights, gradients and optimizer states elsewhere is training, bit for bit."""

from __future__ import annotations

import copy
import gc
import io
import os
import pickle
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from typing import Any

import pytest

import cugrad
from cugrad import backends, memory
from cugrad.backends import simulated
from cugrad.memory.offloading import engine
from cugrad.memory.states.placed import HOMES
from cugrad.memory.states.roots import ROOTS
from tests.memory.states.training import FEATURES, PLACES, Training, arrays_of, same, train
from tests.optim.settings import EACH, SETTINGS

DEVICE: Any = backends.get("simulated")
SCHEDULES = [("latest", 0), ("earliest", 0), ("timed", 0), *[("random", k) for k in range(47)]]


@pytest.fixture(autouse=True)
def nothing_stays_placed() -> Iterator[None]:
    yield
    gc.collect()
    assert not HOMES and not ROOTS


def drawn_cases() -> Iterator[tuple[str, Any, str, tuple[str, ...]]]:
    """Each optimizer, and each place with each feature, in few runs."""
    places = list(PLACES)
    settings = [*SETTINGS[::2], ("LBFGS", {"lr": 0.1, "max_iter": 2})]
    for k, (name, values) in enumerate(settings):
        place, first = places[k % len(places)], 3 * (k // len(places))
        chosen = {FEATURES[(first + i) % len(FEATURES)] for i in range(3)}
        if name == "LBFGS":
            chosen = {"closure"}
        if "closure" in chosen:
            chosen -= {"scaler", "clip"}
        if name == "Muon":
            chosen -= {"groups"}
        yield name, values, place, tuple(sorted(chosen))


def every_case() -> Iterator[tuple[str, Any, str, tuple[str, ...]]]:
    """Each optimizer with all that may be combined, where states are on the host, pass through the
    device, or are in files: some 2,000, of which `CUGRAD_ALL_STATES=1` runs all by hand.
    """
    chosen = ("clip", "accumulate", "scaler", "tied", "frozen", "closure")
    sets = [set(c) for n in range(len(chosen) + 1) for c in combinations(chosen, n)]
    sets = [c for c in sets if "closure" not in c or not c & {"clip", "scaler"}]
    last = [(name, several[-1]) for name, several in EACH.items()]
    for name, values in [*last, ("LBFGS", {"lr": 0.1, "max_iter": 2})]:
        for place in ("all on the host", "all streamed", "all on disk"):
            for features in sets:
                if name != "LBFGS" or "closure" in features:
                    yield name, values, place, tuple(sorted(features))


CASES = list(every_case() if os.environ.get("CUGRAD_ALL_STATES") else drawn_cases())


def test_each_place_meets_each_feature() -> None:
    drawn = list(drawn_cases())
    met = {(place, feature) for _, _, place, features in drawn for feature in features}
    assert len(met) > 0.8 * len(PLACES) * len(FEATURES)
    assert {place for _, _, place, _ in drawn} == set(PLACES)


@pytest.mark.parametrize(("name", "settings", "place", "features"), CASES)
def test_training_is_the_same(name: str, settings: Any, place: str, features: Any) -> None:
    policy, seed = SCHEDULES[len(repr((name, place, features))) % len(SCHEDULES)]
    plain = train(name, settings, features, None)
    with simulated.configured(policy=policy, seed=seed):
        assert same(train(name, settings, features, PLACES[place]), plain)


def test_on_the_host_s_own_device_states_are_on_disk() -> None:
    features = ("clip", "tied")
    plain = train("AdamW", {}, features, None, "cpu")
    places = {"weights": "disk", "states": "disk"}
    assert same(train("AdamW", {}, features, places, "cpu"), plain)
    assert same(train("AdamW", {}, features, {"states": "host"}, "cpu"), plain)  # they are there


# Whoever looks ----------------------------------------------------------------------------------


def look_at_everything() -> list[Any]:
    """What programs do to parameters, gradients and states between steps."""
    training = Training("Adam", {"lr": 0.1}, (), "simulated")
    net, optimizer = training.net, training.optimizer
    a, b, c = [layer.weight for layer in net.layers]
    kinds = [isinstance(a, cugrad.nn.Parameter), a.shape, a.stride(), str(a.device), a.numel()]
    assert type(a * 2) is type(a.detach() + 1) is cugrad.Tensor
    training.step(0)
    seen: list[Any] = [kinds, arrays_of(a.data), repr(b)]
    a.data.mul_(0.5)
    a.data -= 0.1 * b.grad
    training.step(1)
    view = c.detach().view(-1)
    with cugrad.no_grad():
        a.add_(1.0)
        b[0].zero_()
        view[:5] = 3.0
    training.step(2)
    view.add_(1)
    seen += [arrays_of(view), arrays_of(c)]
    training.step(3)
    assert same(arrays_of(view), arrays_of(c).reshape(-1))
    with cugrad.no_grad():
        seen.append(arrays_of(net(cugrad.arange(4, device="simulated"))))
    file = io.BytesIO()
    cugrad.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
    other = copy.deepcopy(net)
    assert type(other.layers[0].weight) is cugrad.nn.Parameter
    training.step(4)
    file.seek(0)
    state = cugrad.load(file)
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    assert same(arrays_of(list(net.parameters())), arrays_of(list(other.parameters())))
    training.step(5)
    a.grad = cugrad.ones(16, 16, device="simulated")
    b.grad.zero_()
    optimizer.step()
    a.data = cugrad.full((16, 16), 0.01, device="simulated")
    training.step(6)
    copied = pickle.loads(pickle.dumps(c.cpu()))
    for group in optimizer.param_groups:
        for param in group["params"]:
            optimizer.state[param]["exp_avg"].mul_(0.5)
    training.step(7)
    return [*seen, arrays_of([copied, *net.parameters()]), training.losses, net]


@cache
def looked_at_plainly() -> list[Any]:
    return look_at_everything()


@pytest.mark.parametrize("place", ["states on the host", "all on the host", "all on disk"])
def test_who_looks_or_writes_sees_the_right_values(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = looked_at_plainly()
    usual, contexts = Training.__init__, []

    def placed(self: Any, *args: Any) -> None:
        usual(self, *args)
        options: Any = {**PLACES[place], "min_bytes": 512, "window": "3KiB"}
        contexts.append(memory.offload_states(self.net, self.optimizer, **options))
        contexts[0].__enter__()

    monkeypatch.setattr(Training, "__init__", placed)
    with simulated.configured(policy="random", seed=4):
        looked = look_at_everything()
        contexts[0].__exit__()
    assert same(looked[:-1], plain[:-1])
    assert same(arrays_of(list(looked[-1].parameters())), arrays_of(list(plain[-1].parameters())))


def test_a_user_s_own_optimizer_works() -> None:
    class Sign(cugrad.optim.Optimizer):
        @cugrad.no_grad()
        def step(self, closure: Any = None) -> None:
            for param in self.param_groups[0]["params"]:
                mean = self.state[param].setdefault("mean", cugrad.zeros_like(param))
                mean.lerp_(param.grad, 0.1)
                param -= self.param_groups[0]["lr"] * mean.sign()

    def run(**places: Any) -> Any:
        training = Training("SGD", {"lr": 0.1}, (), "simulated")
        optimizer = training.optimizer = Sign(training.params, {"lr": 0.01})
        context = memory.offload_states(
            training.net, optimizer, min_bytes=512, window="3KiB", **places
        )
        with context:
            for step in range(3):
                training.loss(step)
                optimizer.step()
        matrices = sum([p.nbytes for p in training.params if p.ndim == 2])
        assert context.report()["states"]["bytes"] == (matrices if places else 0)
        return arrays_of([training.params, [optimizer.state[p]["mean"] for p in training.params]])

    plain = run()
    for places in ({"states": "host"}, {"weights": "host", "states": "stream"}):
        assert same(run(**places), plain)


# What is promised of memory ---------------------------------------------------------------------


class Peak:
    """The most memory of the device in a block, beyond what there was before."""

    def __enter__(self) -> Peak:
        gc.collect()
        DEVICE.synchronize()
        self.before = DEVICE.memory_allocated()
        DEVICE.reset_peak_memory_stats()
        return self

    def __exit__(self, *exc: object) -> None:
        self.bytes = DEVICE.max_memory_allocated() - self.before


def stack(width: int = 64, depth: int = 12) -> Any:
    cugrad.manual_seed(0)
    layers = [cugrad.nn.Linear(width, width, bias=False) for _ in range(depth)]
    return cugrad.nn.Sequential(*layers).to("simulated")


@pytest.mark.parametrize("place", [name for name in PLACES if name != "weights on the host"])
def test_the_device_has_what_the_windows_allow(place: str) -> None:
    """With a batch of one row what an op needs is small beside a weight of 16 KiB."""
    weight, count, kept = 64 * 64 * 4, 12, 0
    places = PLACES[place]
    net = stack()
    optimizer = cugrad.optim.Adam(net.parameters())
    x = cugrad.ones(1, 64, device="simulated")
    placed = memory.offload_states(net, optimizer, window=4 * weight, **places, min_bytes=512)
    for kind, copies in (("weights", 1), ("gradients", 1), ("states", 2)):
        if kind not in places:
            kept += copies * count * weight  # all of them are on the device
        elif places[kind] != "host" or kind != "states":
            kept += 4 * weight
    with placed:
        for step in range(3):
            if step:
                DEVICE.reset_peak_memory_stats()
            net(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            del step
        peak = DEVICE.max_memory_allocated()
        report = placed.report()
    here = [report[kind]["most_on_device"] for kind in places]
    assert all(nbytes <= 5 * weight for nbytes in here), report
    assert peak - DEVICE.memory_allocated() < kept + 5 * weight
    del net, optimizer


def test_what_does_not_fit_is_trained() -> None:
    """The device has room for a third of weights, gradients and states."""
    net = stack(64, 24)
    optimizer = cugrad.optim.Adam(net.parameters())
    x = cugrad.ones(1, 64, device="simulated")
    plain = copy.deepcopy(net)
    twin = cugrad.optim.Adam(plain.parameters())
    weight = 64 * 64 * 4

    def train(net: Any, optimizer: Any) -> None:
        for _ in range(2):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()

    train(plain, twin)
    weights = arrays_of(list(plain.parameters()))
    del plain, twin
    places, file = PLACES["all streamed"], io.BytesIO()
    with memory.offload_states(
        net, optimizer, window=4 * weight, **places, min_bytes=512, bring_back=False
    ):
        DEVICE.synchronize()
        gc.collect()
        DEVICE.empty_cache()
        room = DEVICE.memory_reserved() + 16 * weight
        with simulated.configured(capacity=room, policy="timed"):
            train(net, optimizer)
            kept = net.state_dict()
            cugrad.save({"net": kept, "optimizer": optimizer.state_dict()}, file)
    assert same(arrays_of(list(net.parameters())), weights)  # one by one
    file.seek(0)
    assert same(arrays_of(list(cugrad.load(file)["net"].values())), weights)
    with memory.offload_states(net, optimizer):
        pass  # and what was left elsewhere is on the device
    assert same(arrays_of(list(net.parameters())), weights)
    with cugrad.no_grad():
        for param, alias in zip(net.parameters(), kept.values()):
            assert type(alias) is cugrad.Tensor
            param.add_(1.0)
            assert same(arrays_of(alias), arrays_of(param))
            param.data = param.data * 2
            assert not same(arrays_of(alias), arrays_of(param))


@pytest.mark.parametrize("place", ["states streamed", "all on the host", "all on disk"])
def test_what_stays_elsewhere_is_trained_without_the_context(place: str) -> None:
    def run(places: Any) -> list[Any]:
        training = Training("Adam", {"lr": 0.1}, ("clip",), "simulated")
        options: Any = {**places, "min_bytes": 512, "window": "3KiB", "bring_back": False}
        for step in range(6):
            if step % 3 == 0:
                with memory.offload_states(training.net, training.optimizer, **options):
                    training.step(step)
            else:
                training.step(step)
        with memory.offload_states(training.net, training.optimizer):
            pass
        return [training.losses, arrays_of(training.params)]

    assert same(run(PLACES[place]), run({}))


def test_nothing_is_held_behind_it() -> None:
    copies = engine.engine_of(DEVICE, 0)
    gc.collect()
    copies.drain()
    held, away = [], copies.states.away  # of who is held by an error of another test, say
    for _ in range(2):
        for places in PLACES.values():
            train("Adam", {}, ("tied",), places, steps=2)
        gc.collect()
        copies.drain()
        held.append([DEVICE.memory_allocated(), copies.out.slab.used_bytes])
        assert not copies.ledger.coming and not copies.states.ahead
        assert copies.states.away == away
    assert held[0] == held[1]


@pytest.mark.parametrize("place", ["states streamed", "all streamed", "all on the host"])
def test_a_loop_remembers_nothing_of_steps_that_were(place: str) -> None:
    """Of a storage whose id many others had before, nothing is looked through but what is there."""
    net = cugrad.nn.Linear(16, 16).to("simulated")
    optimizer = cugrad.optim.Adam(net.parameters())
    x = cugrad.ones(4, 16, device="simulated")
    options: Any = {"window": "3KiB", "min_bytes": 0, **PLACES[place]}
    with memory.offload_states(net, optimizer, **options) as placed:
        for _ in range(50):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        (engine,) = placed._followed.engines  # type: ignore[union-attr]
        assert max(map(len, engine.storages._live.values())) < 20


def test_bytes_move_once() -> None:
    """A gradient goes out once a step; a weight comes in as often as the window makes it."""
    weight, count, steps = 64 * 64 * 4, 12, 4
    net = stack()
    optimizer = cugrad.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    x = cugrad.ones(1, 64, device="simulated")
    places: Any = PLACES["all on the host"]
    placed = memory.offload_states(
        net, optimizer, window=4 * weight, min_bytes=512, bring_back=False, **places
    )
    with placed:
        before = None
        for step in range(steps):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
            before = before or placed.report()
            assert step < steps
        after = placed.report()

    def moved(kind: str, way: str) -> float:
        assert before is not None
        return (after[kind][way] - before[kind][way]) / (steps - 1) / weight

    assert moved("gradients", "moved_out") == count and moved("gradients", "moved_back") == 0
    assert moved("weights", "moved_out") == 0 and moved("states", "moved_out") == 0
    assert (
        moved("weights", "moved_back") <= 2 * count - 3
    )  # the last of forward are backward's first
    with memory.offload_states(net, optimizer):
        pass


def test_what_is_asked_for_wrongly_is_said() -> None:
    net = cugrad.nn.Linear(2, 2)
    with pytest.raises(ValueError, match="weights: got 'stream', want one of 'device'"):
        memory.offload_states(net, weights="stream")
    with pytest.raises(ValueError, match="want the optimizer that has them"):
        memory.offload_states(net, states="host")
    with pytest.raises(TypeError, match="want an Optimizer"):
        memory.offload_states(net, net, states="host")
    with pytest.raises(TypeError, match="want a Module or Tensors"):
        memory.offload_states([1.0])
    optimizer = cugrad.optim.SGD(net.parameters(), lr=0.1)
    with memory.offload_states(net, optimizer, states="host") as placed:
        with pytest.raises(RuntimeError, match="entered already"):
            placed.__enter__()
        with pytest.raises(RuntimeError, match="another context"):
            memory.offload_states(net, optimizer, states="host").__enter__()


@pytest.mark.parametrize("inner", ["offload", "budget", "recompute"])
def test_saved_tensors_are_placed_as_well(inner: str) -> None:
    def saving() -> Any:
        if inner == "budget":
            return memory.budget("1GiB", device="simulated")
        return memory.offload(min_bytes=0) if inner == "offload" else memory.recompute()

    def run(places: Any) -> Any:
        net = stack(32, 6)
        optimizer = cugrad.optim.Adam(net.parameters())
        x = cugrad.ones(24, 32, device="simulated")
        options: Any = {"window": "16KiB", "min_bytes": 512, **places}
        with memory.offload_states(net, optimizer, **options):
            for _ in range(3):
                with saving():
                    optimizer.zero_grad()
                    net(x).tanh().square().mean().backward()
                optimizer.step()
        return arrays_of(list(net.parameters()))

    assert same(run(PLACES["all on the host"]), run({}))


@pytest.mark.parametrize("place", ["all on the host", "all streamed"])
def test_a_parameter_of_a_subclass_gives_instances_of_it(place: str) -> None:
    class Marked(cugrad.Tensor):
        pass

    def trained(places: Any) -> list[Any]:
        cugrad.manual_seed(0)
        net = cugrad.nn.Linear(8, 8, device="simulated")
        net.weight = cugrad.nn.Parameter(net.weight.detach().as_subclass(Marked))
        optimizer = cugrad.optim.Adam(net.parameters(), lr=0.1)
        x = cugrad.ones(2, 8, device="simulated")

        def steps() -> None:
            for _ in range(3):
                optimizer.zero_grad()
                y = net(x)
                assert type(y) is type(net.weight * 2) is type(net.weight.detach()) is Marked
                y.square().sum().backward()
                optimizer.step()

        if places is None:
            steps()
        else:
            with memory.offload_states(net, optimizer, min_bytes=0, **places):
                steps()
        assert type(net.weight) is Marked
        return [p.detach().cpu().tolist() for p in net.parameters()]

    assert trained(PLACES[place]) == trained(None)


@pytest.mark.parametrize("place", ["weights on the host", "all on disk"])
def test_a_change_of_a_weight_that_a_hook_has_packed_is_noticed(place: str) -> None:
    """Its memory has gone meanwhile: the version tells."""
    x, y = [cugrad.rand(8, device="simulated", requires_grad=True) for _ in range(2)]
    places = {name: where for name, where in PLACES[place].items() if name != "states"}
    with memory.offload_states([x, y], min_bytes=0, window=32, **places):
        for unpack in (lambda t: t, lambda t: t.clone()):
            with cugrad.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
                z = (x.erfc() * y).sum()
            with cugrad.no_grad():
                x.floor_()
            y.exp()
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                z.backward()


@pytest.mark.parametrize("place", ["states on the host", "all on the host", "all on disk"])
def test_states_of_one_element_are_on_the_device_again(place: str) -> None:
    params = [cugrad.nn.Parameter(cugrad.ones(*shape, device="simulated")) for shape in [(), (1,)]]
    optimizer = cugrad.optim.Adam(params, lr=0.1)
    with memory.offload_states(params, optimizer, min_bytes=0, **PLACES[place]):
        sum([p.sum() for p in params]).backward()
        optimizer.step()
    for p in params:
        state = optimizer.state[p]
        assert state["exp_avg"].device == state["exp_avg_sq"].device == p.device
        assert str(state["step"].device) == "cpu" and type(p.detach()).__name__ == "Tensor"
        p.grad = None
    sum([p.sum() for p in params]).backward()
    optimizer.step()
