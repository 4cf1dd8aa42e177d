"""Training steps drawn by chance, for budgets: models, and ways to train them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import cugrad as torch
from cugrad.nn import functional as F

__all__ = ["WAYS", "Drawn", "Model"]

WAYS = (
    "plain", "accumulation", "autocast", "vmap", "evaluation", "batches", "error", "twice",
    "optimizer", "double", "checkpoint", "several in one",
)  # fmt: skip


class Model:
    """A network of drawn ops: views, ops in place, several outputs, skips, norms, dropouts."""

    def __init__(self, draw: random.Random, width: int, depth: int) -> None:
        rng = np.random.default_rng(draw.randrange(1 << 30))
        self.width = width
        self.ops = [draw.choice(OPS) for _ in range(depth)]
        self.weights = [
            torch.tensor(rng.normal(0, 0.3 / width**0.5, (width, width)).astype("f"),
                         device="simulated").requires_grad_()
            for _ in range(depth)
        ]  # fmt: skip
        self.skips = [draw.random() < 0.3 for _ in range(depth)]

    def __call__(self, x: Any) -> Any:
        before = h = x
        total = None
        for op, w, skip in zip(self.ops, self.weights, self.skips):
            new = op(h, w)
            if skip:
                new = new + before
                before = h
            h = new
            if total is None or skip:
                part = h.mean()
                total = part if total is None else total + part
        return h.square().mean() + total


def _linear(h: Any, w: Any) -> Any:
    return h @ w


def _gelu(h: Any, w: Any) -> Any:
    return F.gelu(h @ w)


def _norm(h: Any, w: Any) -> Any:
    return F.layer_norm(h, h.shape[-1:]) @ w


def _in_place(h: Any, w: Any) -> Any:
    return (h @ w).mul_(0.5).add_(0.1).sigmoid_()


def _views(h: Any, w: Any) -> Any:
    a, b = (h @ w).chunk(2, -1)
    return torch.cat([b.tanh(), a.exp()], -1).view(h.shape)


def _transposed(h: Any, w: Any) -> Any:
    return (w.mT @ h.mT).mT.relu()


def _sorted(h: Any, w: Any) -> Any:
    values, _ = (h @ w).topk(4, -1)
    return h + values.sum(-1, keepdim=True).tanh()


def _softmax(h: Any, w: Any) -> Any:
    return F.softmax(h @ w, -1) * h


def _held(h: Any, w: Any) -> Any:
    kept = h.sin()  # a variable of the program holds it until the function ends
    y = (h @ w).cos()
    y = y.exp()
    return y + kept


def _many(h: Any, w: Any) -> Any:
    for _ in range(3):
        h = (h * 1.1).tanh()
    return h @ w


def _dropout(h: Any, w: Any) -> Any:
    return F.dropout(h @ w, 0.2)


OPS: tuple[Callable[[Any, Any], Any], ...] = (
    _linear, _gelu, _norm, _in_place, _views, _transposed, _sorted, _softmax, _held, _many,
    _dropout,
)  # fmt: skip


class Drawn(NamedTuple):
    """A model, its batches, and a way to train it."""

    model: Model
    x: Any
    way: str

    @classmethod
    def of(cls, seed: str, way: str) -> Drawn:
        draw = random.Random(seed)
        width, batch = draw.choice([16, 64, 96]), draw.choice([32, 128, 500])
        model = Model(draw, width, draw.randint(3, 9))
        rng = np.random.default_rng(draw.randrange(1 << 30))
        return cls(model, torch.tensor(rng.normal(0, 1, (batch, width)).astype("f"),
                                       device="simulated"), way)  # fmt: skip

    def train(self, steps: int, saving: Callable[[], Any], seen: Callable[[], None]) -> list[Any]:
        """Trains so many steps, each within what `saving` makes; the gradients of all.

        `seen` is called as each of those contexts ends.
        """
        torch.manual_seed(0)
        optimizer = torch.optim.Adam(self.model.weights, lr=1e-3)
        found: list[Any] = []
        for k in range(steps):
            optimizer.zero_grad()
            getattr(self, "_" + self.way.replace(" ", "_"))(k, saving, seen)
            for w in self.model.weights:
                grad = w.grad
                found.append(None if grad is None else grad.cpu().numpy().copy())
                del grad
            if self.way == "optimizer":
                optimizer.step()
        return found

    def _plain(self, k: int, saving: Any, seen: Any) -> None:
        with saving():
            self.model(self.x).backward()
        seen()

    _optimizer = _plain

    def _accumulation(self, k: int, saving: Any, seen: Any) -> None:
        for part in self.x.chunk(2):
            with saving():
                self.model(part).backward()
            seen()

    def _autocast(self, k: int, saving: Any, seen: Any) -> None:
        with saving():
            with torch.autocast("simulated", dtype=torch.float16):
                loss = self.model(self.x)
            loss.backward()
            del loss
        seen()

    def _vmap(self, k: int, saving: Any, seen: Any) -> None:
        with saving():
            parts = self.x[: len(self.x) // 4 * 4].reshape(4, -1, self.model.width)
            h = parts * 1.5
            scaled = torch.vmap(lambda p: (p.sin() * p).exp().tanh())(h)
            loss = self.model(scaled.reshape(-1, self.model.width))
            loss.backward()
            del loss, scaled, h
        seen()

    def _evaluation(self, k: int, saving: Any, seen: Any) -> None:
        with saving():
            self.model(self.x).backward()
        seen()
        with torch.no_grad():
            self.model(self.x[:10])

    def _batches(self, k: int, saving: Any, seen: Any) -> None:
        n = len(self.x)
        with saving():
            self.model(self.x[: (n, n // 2, n // 3 * 2)[k % 3]]).backward()
        seen()

    def _error(self, k: int, saving: Any, seen: Any) -> None:
        if k % 4 == 1:
            try:
                with saving():
                    loss = self.model(self.x)
                    if k % 8 == 1:
                        loss.register_hook(_fails)
                        loss.backward()
                    raise KeyError("mine")
            except KeyError:
                loss = None
            seen()
            for w in self.model.weights:
                w.grad = None
        self._plain(k, saving, seen)

    def _twice(self, k: int, saving: Any, seen: Any) -> None:
        with saving():
            loss = self.model(self.x)
            loss.backward(retain_graph=True)
            loss.backward()
            del loss
        seen()

    def _double(self, k: int, saving: Any, seen: Any) -> None:
        x = self.x.detach().requires_grad_()
        with saving():
            loss = self.model(x)
            (g,) = torch.autograd.grad(loss, x, create_graph=True)
            (g.square().sum() + loss).backward()
            del loss, g
        seen()

    def _checkpoint(self, k: int, saving: Any, seen: Any) -> None:
        from cugrad.utils.checkpoint import checkpoint

        with saving():
            h = checkpoint(lambda x: (x.sin() * x).exp().tanh(), self.x * 1.5, use_reentrant=False)
            self.model(h).backward()
            del h
        seen()

    def _several_in_one(self, k: int, saving: Any, seen: Any) -> None:
        with saving():
            for part in (self.x, self.x[: len(self.x) // 2]):
                self.model(part).backward()
        seen()


def _fails(grad: Any) -> None:
    raise KeyError("mine")
