"""A small network, trained in every way that training states may be placed."""

from __future__ import annotations

import copy
from typing import Any
from unittest.mock import patch

import numpy as np

import cugrad
from cugrad.nn.functional import cross_entropy
from cugrad.nn.utils import clip_grad

__all__ = ["FEATURES", "PLACES", "arrays_of", "clip_one_by_one", "deep", "norms_one_by_one", "same",
           "train", "values_of"]  # fmt: skip

PLACES: dict[str, dict[str, str]] = {
    "states on the host": {"states": "host"},
    "states streamed": {"states": "stream"},
    "gradients on the host": {"gradients": "host"},
    "weights on the host": {"weights": "host"},
    "all on the host": {"weights": "host", "gradients": "host", "states": "host"},
    "all streamed": {"weights": "host", "gradients": "host", "states": "stream"},
    "all on disk": {"weights": "disk", "gradients": "host", "states": "disk"},
    "weights on disk": {"weights": "disk", "states": "host"},
}
FEATURES = ("clip", "accumulate", "scaler", "tied", "frozen", "closure", "groups", "zeros",
            "clip values")  # fmt: skip
WORDS = 16
PLAIN: dict[Any, list[Any]] = {}  # what came of programs where nothing is placed


def deep(width: int, depth: int) -> Any:
    """Layers of one width."""
    layers: list[Any] = []
    for _ in range(depth):
        layers += [cugrad.nn.Linear(width, width), cugrad.nn.Tanh()]
    return cugrad.nn.Sequential(*layers)


def norms_one_by_one() -> Any:
    """Within it a norm is that of norms, of tensors one by one, as it is where they are elsewhere:
    a launch for all of them sums in another order.
    """
    return patch.object(clip_grad, "norm_together", lambda *args: None)


def clip_one_by_one(params: Any, most: float) -> Any:
    with norms_one_by_one():
        return clip_grad.clip_grad_norm_(params, most)


class Net(cugrad.nn.Module):
    """Square layers between an embedding and a projection, which may share their weight."""

    def __init__(self, tied: bool, frozen: bool) -> None:
        super().__init__()
        self.embedding = cugrad.nn.Embedding(WORDS, WORDS)
        self.layers = cugrad.nn.ModuleList([cugrad.nn.Linear(WORDS, WORDS) for _ in range(3)])
        self.out = cugrad.nn.Linear(WORDS, WORDS, bias=False)
        if tied:
            self.out.weight = self.embedding.weight
        self.layers[1].weight.requires_grad_(not frozen)

    def forward(self, words: Any) -> Any:
        x = self.embedding(words)
        for layer in self.layers:
            x = x + layer(x).tanh()
        return self.out(x)


class Training:
    """A loop as programs write it, with some of FEATURES."""

    def __init__(self, name: str, settings: Any, features: Any, device: str) -> None:
        self.features, self.device = features, device
        cugrad.manual_seed(0)
        self.net = Net("tied" in features, "frozen" in features).to(device)
        params = list(self.net.parameters())
        self.params = [p for p in params if p.ndim == 2] if name == "Muon" else params
        groups: list[Any] = self.params
        if "groups" in features:
            groups = [{"params": self.params[:1]}, {"params": self.params[1:], "lr": 0.02}]
        self.optimizer = getattr(cugrad.optim, name)(groups, **settings)
        self.schedule = cugrad.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        self.scaler = cugrad.amp.GradScaler(device, 64.0, enabled="scaler" in features)
        self.losses: list[float] = []

    def loss(self, step: int) -> Any:
        self.optimizer.zero_grad(set_to_none="zeros" not in self.features)
        total = 0.0
        for k in range(1 + ("accumulate" in self.features)):
            generator = cugrad.Generator().manual_seed(2 * step + k)
            words = cugrad.randint(0, WORDS, (12,), generator=generator).to(self.device)
            loss = cross_entropy(self.net(words), words.flip(0))
            self.scaler.scale(loss).backward()
            total += loss.item()
        return total

    def gradients(self, step: int) -> None:
        """Forward, backward, and what is done to gradients before the step."""
        features, utils = self.features, cugrad.nn.utils
        self.losses.append(self.loss(step))
        if "scaler" in features:
            if step == 1:
                self.net.layers[0].weight.grad[0, 0] = float("inf")
            self.scaler.unscale_(self.optimizer)
        if "clip" in features:
            self.losses.append(clip_one_by_one(self.params, 0.1).item())
        if "clip values" in features:
            utils.clip_grad_value_(self.params, 0.01)

    def step(self, step: int) -> None:
        features = self.features
        if "closure" in features:
            self.losses.append(self.optimizer.step(lambda: self.loss(step)))
            return
        self.gradients(step)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()


def train(
    name: str, settings: Any, features: Any, places: Any, device: str = "simulated", steps: int = 3,
    **options: Any,
) -> list[Any]:  # fmt: skip
    """Losses, parameters and states behind a few steps; `places` None: where they are, which of one
    program is the same each time.
    """
    called = (name, repr(settings), tuple(features), device, steps)
    if places is None and called in PLAIN:
        return PLAIN[called]
    training = Training(name, settings, features, device)
    if places is None:
        for step in range(steps):
            training.step(step)
    else:
        options = {"min_bytes": 512, "window": "3KiB", **options}
        with cugrad.memory.offload_states(training.net, training.optimizer, **places, **options):
            for step in range(steps):
                training.step(step)
    values = [
        np.array(training.losses),
        *[arrays_of(p) for p in training.net.parameters()],
        *[arrays_of(training.optimizer.state.get(p)) for p in training.params],
    ]
    if places is None:
        PLAIN[called] = values
    return values


def arrays_of(value: Any) -> Any:
    """The elements of tensors, in whatever they are."""
    if isinstance(value, cugrad.Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype.itemsize < 4 else value).numpy()
    if isinstance(value, dict):
        return [(key, arrays_of(value[key])) for key in sorted(value)]
    return [arrays_of(each) for each in value] if isinstance(value, (list, tuple)) else value


def values_of(training: Training) -> list[Any]:
    """Of each parameter: itself, and what the optimizer keeps of it."""
    state = training.optimizer.state
    return [copy.deepcopy(arrays_of([param, state.get(param)])) for param in training.params]


def same(a: Any, b: Any) -> bool:
    """Whether two results are the same, bit for bit."""
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)
