"""Whoever looks at a training, or has a hand in it, finds what is there without placements."""

from __future__ import annotations

import copy
import gc
import os
import random
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import cugrad
from cugrad import memory, nn
from cugrad.backends import simulated
from cugrad.memory.states.placed import HOMES
from cugrad.nn.functional import cross_entropy
from tests.memory.states import looks
from tests.memory.states.looks import BEFORE_STEP, BEHIND_STEP, Sight, told
from tests.memory.states.training import same
from tests.optim.settings import SETTINGS

COUNT, STEPS, W = int(os.environ.get("CUGRAD_DRAWN_STATES", "8")), 4, 16
LEFT_OUT = ("SparseAdam", "Muon")  # which take no parameters of this kind


class Sign(cugrad.optim.Optimizer):
    """A user's own, with a step of its own."""

    def __init__(self, params: Any, lr: float = 0.01) -> None:
        super().__init__(params, {"lr": lr})

    @cugrad.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for param in [p for p in group["params"] if p.grad is not None]:
                state = self.state[param]
                if "mean" not in state:
                    state["mean"] = cugrad.zeros_like(param)
                state["mean"].mul_(0.9).add_(param.grad, alpha=0.1)
                param.add_(state["mean"].sign(), alpha=-group["lr"])


class Adapted(nn.Module):
    """A frozen layer with an adapter of low rank."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = nn.Linear(W, W).requires_grad_(False)
        self.a, self.b = [nn.Parameter(cugrad.randn(*shape) * 0.1) for shape in ((2, W), (W, 2))]

    def forward(self, x: Any) -> Any:
        return self.whole(x) + x @ self.a.T @ self.b.T


class Net(nn.Module):
    """Layers of one kind between an embedding and a projection, with a buffer."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.embedding = kind, nn.Embedding(W, W)
        bodies = {
            "lstm": lambda: nn.LSTM(W, W, 2, batch_first=True),
            "convolution": lambda: nn.Sequential(nn.Conv1d(W, W, 3, padding=1), nn.BatchNorm1d(W)),
            "attention": lambda: nn.MultiheadAttention(W, 2, batch_first=True),
            "adapted": lambda: nn.Sequential(Adapted(), Adapted()),
        }
        linear = lambda: nn.Sequential(nn.Linear(W, W), nn.Linear(W, W))
        self.body: Any = bodies.get(kind, linear)()
        self.norm, self.out = nn.LayerNorm(W), nn.Linear(W, W)
        if kind == "tied":
            self.out.weight = self.embedding.weight
        self.register_buffer("scale", cugrad.ones(W) * 1.5)

    def forward(self, words: Any) -> Any:
        x, body = self.embedding(words), self.body
        if self.kind == "lstm":
            y = body(x)[0]
        elif self.kind == "convolution":
            y = body(x.mT).mT
        elif self.kind == "attention":
            y = body(x, x, x)[0]
        else:
            y = body[0](body(x)) if self.kind == "used twice" else body(x)
        return self.out(self.norm(x + y) * self.scale)


KINDS = ("linear", "tied", "used twice", "lstm", "convolution", "attention", "adapted")


class Watched:
    """A training with those who look at it."""

    def __init__(self, kind: str, name: str, settings: Any, device: str) -> None:
        cugrad.manual_seed(0)
        self.device, self.kept = device, dict[str, Any]()
        self.net = Net(kind).to(device)
        params = [p for p in self.net.parameters() if p.requires_grad]
        maker = Sign if name == "Sign" else getattr(cugrad.optim, name)
        groups = [{"params": params[:2]}, {"params": params[2:], "lr": 0.02}]
        self.optimizer = maker(params if name == "LBFGS" else groups, **settings)

    def words(self, seed: int) -> Any:
        generator = cugrad.Generator().manual_seed(seed)
        return cugrad.randint(0, W, (2, 6), generator=generator).to(self.device)

    def loss_of(self, seed: int) -> Any:
        words = self.words(seed)
        return cross_entropy(self.net(words).flatten(0, 1), words.flip(0).flatten())

    def run(self, program: list[Any]) -> Iterator[Any]:
        for step, names in enumerate(program):
            sight = Sight(self, step)

            def closure(step: int = step) -> Any:
                self.optimizer.zero_grad()
                loss = self.loss_of(step)
                loss.backward()
                return loss

            if type(self.optimizer).__name__ == "LBFGS":
                yield told(self.optimizer.step(closure))
            else:
                yield told(closure())
                yield from [told(look(sight)) for look in BEFORE_STEP if look.__name__ in names]
                self.optimizer.step()
            yield from [
                told(getattr(looks, name)(sight)) for name in names
                if name in [look.__name__ for look in BEHIND_STEP]
            ]  # fmt: skip


def drawn(seed: int) -> tuple[str, str, Any, list[Any], Any]:
    """A kind of network, an optimizer and its settings, looks at each step, and places."""
    draw = random.Random(seed)
    optimizers = [(n, s) for n, s in SETTINGS if n not in LEFT_OUT]
    name, settings = draw.choice([*optimizers, ("Sign", {}), ("LBFGS", {"max_iter": 2})])
    names = [look.__name__ for look in [*BEFORE_STEP, *BEHIND_STEP, *BEHIND_STEP]]
    program = [draw.sample(names, draw.randint(0, 3)) for _ in range(STEPS)]
    places = {
        "weights": draw.choice(["device", "host", "host", "disk"]),
        "gradients": draw.choice(["device", "host"]),
        "states": draw.choice(["device", "host", "stream", "disk"]),
        "window": draw.choice(["2KiB", "3KiB", "8KiB", "1MiB"]),
        "min_bytes": draw.choice([0, 64, 512]), "bring_back": draw.random() < 0.8,
        "host_limit": draw.choice([None, None, None, 0, "8KiB"]),
    }  # fmt: skip
    return draw.choice(KINDS), name, settings, program, places


# What drawn ones have found
FOUND: list[tuple[str, str, Any, list[Any], Any]] = [
    ("linear", "SGD", {}, [[], ["makes_one_vector_of_all"], ["writes_data"], []],
     {"states": "host", "window": "2KiB", "min_bytes": 64}),
    ("attention", "Adamax", {}, [["freezes"], ["thaws"], []],
     {"weights": "disk", "gradients": "host", "states": "disk", "window": "2KiB", "min_bytes": 0}),
    ("tied", "Adamax", {}, [[], ["adds_another_pass"], [], ["drops_a_gradient"], []],
     {"weights": "host", "gradients": "host", "states": "stream", "window": "8KiB",
      "min_bytes": 0}),
]  # fmt: skip


def outcome(kind: str, name: str, settings: Any, program: list[Any], places: Any) -> Any:
    """What is seen, and what there is in the end; or the error."""
    watched = Watched(kind, name, settings, "simulated")
    net, optimizer = watched.net, watched.optimizer
    try:
        with memory.offload_states(net, optimizer, **places):
            seen = list(watched.run(program))
    except Exception as error:
        return type(error)
    with memory.offload_states(net, optimizer):
        pass  # what was left elsewhere
    states = [optimizer.state.get(p) for p in net.parameters()]
    return [seen, told([list(net.parameters()), states, list(watched.kept.get("view", []))])]


@pytest.mark.parametrize("case", [*FOUND, *range(COUNT)])
def test_all_see_the_same(case: Any) -> None:
    kind, name, settings, program, places = drawn(case) if isinstance(case, int) else case
    seed = case if isinstance(case, int) else 25
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a place is full
        plain = outcome(kind, name, copy.deepcopy(settings), program, {})
        with simulated.configured(policy=["random", "latest", "earliest"][seed % 3], seed=seed):
            placed = outcome(kind, name, settings, program, places)
    assert plain is placed if isinstance(plain, type) else same(plain, placed)
    gc.collect()
    assert not HOMES
