"""What a program does to its model and its optimizer between any two calls of a step."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import product
from random import Random
from typing import Any

import pytest

import cugrad
from cugrad import memory
from cugrad.nn import Identity, Linear, Module, Parameter, Sequential
from tests.memory.states.training import PLACES, arrays_of, same

WIDTH, DEVICE = 16, "simulated"
DURING = {"step": "during backward"}
EACH: dict[str, dict[str, str]] = {
    **PLACES,
    "states on disk": {"states": "disk"},
    "all on the host, during": {**PLACES["all on the host"], **DURING},
    "all streamed, during": {**PLACES["all streamed"], **DURING},
    "states streamed, during": {"states": "stream", **DURING},
    "all on the device, during": DURING,
}
WHEN = ("before forward", "before backward", "before the step")
DRAWN = 2  # of each change, but with CUGRAD_ALL_STATES=1


class Program:
    """A loop over a net with two groups of parameters, which is changed in one of its steps."""

    def __init__(self) -> None:
        cugrad.manual_seed(0)
        self.net = Sequential(*[Linear(WIDTH, WIDTH) for _ in range(3)]).to(DEVICE)
        groups: list[Any] = [{"params": list(part.parameters()), "lr": lr}
                  for part, lr in ((self.net[:2], 0.01), (self.net[2:], 0.02))]  # fmt: skip
        self.optimizer: Any = cugrad.optim.Adam(groups)
        self.x = cugrad.randn(4, WIDTH).to(DEVICE)
        self.losses: list[float] = []

    def step(self, change: Callable[[Program], Any] | None, when: str) -> None:
        self.optimizer.zero_grad()
        if change is not None and when == WHEN[0]:
            change(self)
        loss = self.net(self.x).square().mean()
        if change is not None and when == WHEN[1]:
            change(self)
        loss.backward()
        if change is not None and when == WHEN[2]:
            change(self)
        self.optimizer.step()
        self.losses.append(loss.item())

    def run(self, change: Callable[[Program], Any], when: str) -> list[Any]:
        for k in range(4):
            self.step(change if k == 2 else None, when)
        state, params = self.optimizer.state, list(self.net.parameters())
        place = {id(param): k for k, param in enumerate(params)}
        order = [place.get(id(param), -1) for param in state]
        return [self.losses, arrays_of([params, [state.get(p) for p in params]]), order]


def other_values(module: Module) -> dict[str, Any]:
    return {name: 0.5 * value for name, value in module.state_dict().items()}


def new_weight() -> Any:
    return Parameter(cugrad.full((WIDTH, WIDTH), 0.03, device=DEVICE))


def to_the_host_and_back(p: Program) -> None:
    p.net.cpu()
    p.net.to(DEVICE)


def a_part_to_the_host_and_back(p: Program) -> None:
    p.net[1].cpu()
    p.net[1].to(DEVICE)


def all_to_the_host(p: Program) -> None:
    p.net.cpu()
    p.x = p.x.cpu()
    for kept in p.optimizer.state.values():
        kept.update({name: value.cpu() for name, value in kept.items()})


def to_half_and_back(p: Program) -> None:
    p.net.half()
    p.net.float()


def to_double(p: Program) -> None:
    p.net.double()
    p.x = p.x.double()


def to_bfloat16(p: Program) -> None:
    p.net.to(cugrad.bfloat16)
    p.x = p.x.bfloat16()


def values_are_loaded(p: Program) -> None:
    p.net.load_state_dict(other_values(p.net))


def values_are_assigned(p: Program) -> None:
    p.net.load_state_dict(other_values(p.net), assign=True)
    for group, part in zip(p.optimizer.param_groups, (p.net[:2], p.net[2:])):
        for param in group["params"]:  # which would be kept by them
            p.optimizer.state.pop(param, None)
        group["params"] = list(part.parameters())


def values_are_assigned_to_the_net_alone(p: Program) -> None:
    p.net.load_state_dict(other_values(p.net), assign=True)


def a_parameter_is_replaced(p: Program) -> None:
    p.optimizer.state.pop(p.net[1].weight)
    p.net[1].weight = p.optimizer.param_groups[0]["params"][2] = new_weight()


def elements_are_replaced(p: Program) -> None:
    p.net[1].weight.data = new_weight().data


def elements_are_part_of_others(p: Program) -> None:
    p.net[1].weight.data = cugrad.full((2 * WIDTH, WIDTH), 0.02, device=DEVICE)[WIDTH:]


def elements_are_transposed(p: Program) -> None:
    p.net[1].weight.data = new_weight().data.cumsum(0).T


def a_gradient_is_replaced(p: Program) -> None:
    p.net[1].weight.grad = new_weight().data


def a_weight_is_tied(p: Program) -> None:
    p.net[2].weight = p.net[1].weight


def a_layer_is_deleted(p: Program) -> None:
    p.net[1] = Identity()
    del p.optimizer.param_groups[0]["params"][2:]


def a_layer_is_deleted_from_the_net_alone(p: Program) -> None:
    p.net[1] = Identity()


def a_group_is_added(p: Program) -> None:
    p.net.append(Linear(WIDTH, WIDTH).to(DEVICE))
    p.optimizer.add_param_group({"params": list(p.net[-1].parameters()), "lr": 0.03})


def a_group_is_dropped(p: Program) -> None:
    del p.optimizer.param_groups[1]


def a_parameter_changes_its_group(p: Program) -> None:
    first, second = p.optimizer.param_groups
    second["params"].append(first["params"].pop(0))


def groups_are_other_dicts(p: Program) -> None:
    p.optimizer.param_groups[:] = [dict(group, lr=0.05) for group in p.optimizer.param_groups]


def states_are_loaded(p: Program) -> None:
    p.optimizer.load_state_dict(p.optimizer.state_dict())


def states_are_dropped(p: Program) -> None:
    p.optimizer.state.clear()


def states_of_one_are_dropped(p: Program) -> None:
    p.optimizer.state.pop(p.net[1].weight, None)


def another_optimizer_steps(p: Program) -> None:
    p.optimizer = cugrad.optim.Adam(p.net.parameters(), lr=0.02)


def a_layer_is_frozen(p: Program) -> None:
    p.net[1].requires_grad_(False)


def a_rate_is_changed(p: Program) -> None:
    p.optimizer.param_groups[0]["lr"] = 0.5


CHANGES: list[Callable[[Program], None]] = [
    to_the_host_and_back, a_part_to_the_host_and_back, all_to_the_host, to_half_and_back,
    to_double, to_bfloat16, values_are_loaded, values_are_assigned,
    values_are_assigned_to_the_net_alone, a_parameter_is_replaced, elements_are_replaced,
    elements_are_part_of_others, elements_are_transposed, a_gradient_is_replaced,
    a_weight_is_tied, a_layer_is_deleted, a_layer_is_deleted_from_the_net_alone, a_group_is_added,
    a_group_is_dropped, a_parameter_changes_its_group, groups_are_other_dicts, states_are_loaded,
    states_are_dropped, states_of_one_are_dropped, another_optimizer_steps, a_layer_is_frozen,
    a_rate_is_changed,
]  # fmt: skip


def outcome(change: Callable[[Program], Any], when: str, places: Any) -> Any:
    """What comes of a program, or the type of the error in which it ends."""
    program = Program()
    try:
        if places is None:
            return program.run(change, when)
        options: Any = {"min_bytes": 512, "window": "3KiB", **places}
        with memory.offload_states(program.net, program.optimizer, **options):
            return program.run(change, when)
    except (TypeError, ValueError, RuntimeError) as error:
        if "this gradient is gone" in str(error) or "gradients are" in str(error):
            return "refused"
        return type(error)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_program_is_trained_as_without(change: Callable[[Program], Any]) -> None:
    """Where steps are taken within backward, what is changed behind that is too late."""
    cases = list(product(EACH, WHEN))
    if not os.environ.get("CUGRAD_ALL_STATES"):
        cases = Random(change.__name__).sample(cases, DRAWN)
    plain = {when: outcome(change, when, None) for when in {when for _, when in cases}}
    for place, when in cases:
        result = outcome(change, when, EACH[place])
        if EACH[place].get("step") is None or when != WHEN[2]:
            refused = change is another_optimizer_steps and result == "refused"
            assert refused or same(result, plain[when]), (place, when)


@pytest.mark.parametrize("place", ["all on the host", "all streamed", "all on disk"])
@pytest.mark.parametrize(
    "change",
    [to_the_host_and_back, values_are_assigned, a_parameter_is_replaced, a_group_is_added,
     elements_are_replaced],
    ids=lambda change: change.__name__,
)  # fmt: skip
def test_what_is_there_behind_a_change_is_placed(place: str, change: Any) -> None:
    program = Program()
    options: Any = {"min_bytes": 512, "window": "3KiB", **PLACES[place]}
    with memory.offload_states(program.net, program.optimizer, **options) as placed:
        for k in range(6):
            program.step(change if k == 3 else None, WHEN[0])
        report = placed.report()
    matrices = sum([p.nbytes for p in program.net.parameters() if p.ndim == 2])
    sizes = [report[kind]["bytes"] for kind in ("weights", "gradients", "states")]
    assert sizes == [matrices, matrices, 2 * matrices]


def test_a_layer_that_is_trained_later_has_its_gradients_leave() -> None:
    program = Program()
    program.net[0].requires_grad_(False)
    options: Any = {"min_bytes": 512, "window": "3KiB", **PLACES["all streamed"]}
    with memory.offload_states(program.net, program.optimizer, **options) as placed:
        for k in range(5):
            program.step(None, "")
            if k == 1:
                program.net[0].requires_grad_(True)
        sizes = [placed.report()[kind]["bytes"] for kind in ("weights", "gradients", "states")]
    assert sizes == [3072, 3072, 6144]


def test_what_is_deleted_takes_no_memory_of_the_host() -> None:
    program = Program()
    options: Any = {"min_bytes": 512, "window": "3KiB", **PLACES["all on the host"]}
    with memory.offload_states(program.net, program.optimizer, **options) as placed:
        for k in range(5):
            program.step(None, "")
            if k == 1:
                for param in program.optimizer.param_groups[0]["params"][2:]:
                    del program.optimizer.state[param], param
                a_layer_is_deleted(program)
        assert placed.report()["weights"]["bytes"] == 2 * 1024


@pytest.mark.parametrize("place", ["weights on the host", "all on the host", "all on disk"])
def test_an_optimizer_that_no_context_knows_steps_weights_that_are_elsewhere(place: str) -> None:
    """It says of all that it will write to them; one may leave and come again until it does."""

    def run(places: Any) -> Any:
        program = Program()
        other = cugrad.optim.SGD(program.net.parameters(), lr=0.1, momentum=0.9)
        options: Any = {"min_bytes": 512, "window": "3KiB", **places}
        with memory.offload_states(program.net, program.optimizer, **options):
            for _ in range(3):
                program.step(None, "")
                other.step()
        return [program.losses, arrays_of(list(program.net.parameters()))]

    assert same(run(PLACES[place]), run({}))


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_another_context_goes_on_with_a_changed_program(change: Callable[[Program], Any]) -> None:
    """Also with what is the model's no more, of which the gradient is there, and is stepped."""

    def run(several: tuple[str, str]) -> Any:
        program = Program()
        program.optimizer.zero_grad = lambda: program.net.zero_grad()
        try:
            for k, place in enumerate(several):
                options: Any = {"min_bytes": 512, "window": "3KiB", "bring_back": bool(k)}
                with memory.offload_states(
                    program.net, program.optimizer, **options, **PLACES.get(place, {})
                ):
                    for step in range(3):
                        program.step(change if (k, step) == (0, 1) else None, WHEN[2])
        except (TypeError, ValueError, RuntimeError) as error:
            return type(error)
        return [program.losses, arrays_of(list(program.net.parameters()))]

    cases = [("all on the host", "all on the host"), *product(PLACES, PLACES)]
    if not os.environ.get("CUGRAD_ALL_STATES"):
        cases = [cases[0], *Random(change.__name__).sample(cases, DRAWN)]
    plain = run(("", ""))
    for several in cases:
        assert same(run(several), plain), several
