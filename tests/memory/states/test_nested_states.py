"""States that an optimizer keeps in lists, tuples and dicts are placed as those beside them are."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import cugrad
from cugrad import memory
from tests.memory.states.training import PLACES, Training, arrays_of, same


class Remembering(cugrad.optim.Optimizer):
    """Keeps its states in a list, which grows and shrinks, and in a dict."""

    @cugrad.no_grad()
    def step(self, closure: Any = None) -> None:
        for param in self.param_groups[0]["params"]:
            kept = self.state[param]
            last = kept.setdefault("last", [cugrad.zeros_like(param) for _ in range(2)])
            mean = kept.setdefault("more", {"mean": (cugrad.zeros_like(param), 1)})["mean"][0]
            last.append(param.grad.clone())
            mean.lerp_(last.pop(0) + last[-1], 0.1)
            param -= self.param_groups[0]["lr"] * mean


@pytest.mark.parametrize("place", ["states on the host", "all streamed", "all on disk"])
def test_states_in_lists_and_dicts_are_placed(place: str) -> None:
    def run(places: Any) -> Any:
        training = Training("SGD", {"lr": 0.1}, (), "simulated")
        optimizer = training.optimizer = Remembering(training.params, {"lr": 0.5})
        options: Any = {"min_bytes": 512, "window": "3KiB", **places}
        with memory.offload_states(training.net, optimizer, **options) as placed:
            for step in range(4):
                training.loss(step)
                optimizer.step()
            kept = copy.deepcopy(optimizer.state_dict())
        matrices = sum([p.nbytes for p in training.params if p.ndim == 2])
        assert placed.report()["states"]["bytes"] == (3 * matrices if places else 0)
        return arrays_of([training.params, kept["state"]])

    assert same(run(PLACES[place]), run({}))


def test_the_history_of_lbfgs_is_placed() -> None:
    def run(places: Any) -> Any:
        cugrad.manual_seed(0)
        layers = [cugrad.nn.Linear(32, 32, bias=False) for _ in range(4)]
        net = cugrad.nn.Sequential(*layers).to("simulated")
        optimizer = cugrad.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3, history_size=3)
        x = cugrad.ones(4, 32, device="simulated")

        def closure() -> Any:
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            return loss

        with memory.offload_states(net, optimizer, window="32KiB", **places) as placed:
            for _ in range(3):
                optimizer.step(closure)
        sizes = placed.report()["states"]["bytes"]
        assert sizes == (8 * 4 * 32 * 32 * 4 if places["states"] != "device" else 0)
        return arrays_of(list(net.parameters()))

    assert same(run({"min_bytes": 0, **PLACES["all on the host"]}), run({"states": "device"}))
