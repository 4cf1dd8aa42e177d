"""Drawn graphs with drawn hooks and drawn passes: what happens, in order, on either library."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Log = list[tuple[Any, ...]]


def _values(g: Any) -> Any:
    """A gradient as numbers, rounded; a tuple of them as a tuple."""
    if isinstance(g, (tuple, list)):
        return tuple(_values(x) for x in g)
    if g is None:
        return None
    flat = g.detach().reshape(-1).tolist()
    return tuple(float(f"{v:.6g}") for v in flat)


def doubled(gradients: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([None if g is None else g * 2 for g in gradients])


def two_outputs(lib: Any) -> Any:
    """x * 2 and y * 3 from one node."""

    class Two(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return x * 2, y * 3

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            return g * 2, h * 3

    return Two


class Program:
    """One drawn program: a graph, its hooks, and the passes through it; `log` is what happened."""

    def __init__(self, lib: Any, seed: int) -> None:
        self.lib, self.draw, self.log = lib, random.Random(seed), []  # type: Any, Any, Log
        self.handles: list[Any] = []
        self.changing = self.draw.random() < 0.3  # in place, where nothing is saved
        self.leaves = [self.leaf() for _ in range(self.draw.randint(1, 3))]
        self.tensors = list(self.leaves)
        self.two = two_outputs(lib)
        for _ in range(self.draw.randint(2, 9)):
            self.grow()
        self.inner = self.tensors[len(self.leaves) :]
        for _ in range(self.draw.randint(1, 8)):
            self.hook()
            if self.changing and self.draw.random() < 0.3:
                self.change()

    def leaf(self) -> Any:
        values = [round(self.draw.uniform(0.5, 1.5), 2) for _ in range(2)]
        return self.lib.tensor(values, dtype=self.lib.float64, requires_grad=True)

    def pick(self, among: list[Any]) -> tuple[int, Any]:
        """A tensor and the number by which the log calls it."""
        t = self.draw.choice(among)
        return next(i for i, other in enumerate(self.tensors) if other is t), t

    def grow(self) -> None:
        """One more op on tensors that are there."""
        _, a = self.pick(self.tensors)
        _, b = self.pick(self.tensors)
        saving = [] if self.changing else ["mul", "sin"]
        kind = self.draw.choice(["add", "neg", "view", "two", "unbind", "clone", *saving])
        one: dict[str, Callable[[], Any]] = {
            "mul": lambda: a * b, "add": lambda: a + b, "sin": a.sin, "neg": lambda: -a,
            "view": lambda: a.view(2), "clone": a.clone,
        }  # fmt: skip
        if kind in one:
            self.tensors.append(one[kind]())
        elif kind == "two":
            self.tensors += self.two.apply(a, b)
        else:
            first, second = self.lib.stack([a, b]).unbind(0)
            self.tensors += [first, second]

    def change(self) -> None:
        """A change in place of what is no leaf and shares no memory; hooks stay where they are."""
        _, t = self.pick(self.inner)
        if t._base is None and all(other._base is not t for other in self.tensors):
            t.mul_(2)

    # ------------------------------------------------------------------ hooks

    def hook(self) -> None:
        kinds = ["tensor"] * 3 + ["retain", "pre", "post", "accumulated", "accumulator", "several"]
        kind = self.draw.choice(kinds)
        leafy = kind in ("accumulated", "accumulator")
        nr, t = self.pick(self.leaves if leafy else self.tensors)
        serial, answer = len(self.handles), self.draw.choice(["none", "none", "double", "removed"])
        label = f"{kind} {nr} #{serial}"
        if kind == "tensor":
            self.handles.append(t.register_hook(self.observe(label, serial, answer)))
        elif kind == "retain":
            t.retain_grad()
            self.handles.append(None)
        elif kind == "accumulated":
            self.handles.append(t.register_post_accumulate_grad_hook(
                lambda leaf: self.log.append((label, _values(leaf.grad)))))  # fmt: skip
        elif kind == "several":
            some = [self.pick(self.inner)[1] for _ in range(self.draw.randint(1, 3))]
            mode = self.draw.choice(["all", "any"])
            self.handles.append(self.lib.autograd.graph.register_multi_grad_hook(
                some, lambda gs: self.log.append((label, mode, _values(gs))), mode=mode
            ))  # fmt: skip
        else:
            self.node_hook(kind, label, serial, answer, t)

    def observe(self, label: str, serial: int, answer: str) -> Callable[[Any], Any]:
        def run(g: Any) -> Any:
            self.log.append((label, _values(g), self.lib.is_grad_enabled()))
            if answer == "removed" and self.handles[serial] is not None:
                self.handles[serial].remove()
            return g * 2 if answer == "double" and g is not None else None

        return run

    def node_hook(self, kind: str, label: str, serial: int, answer: str, t: Any) -> None:
        node = t.grad_fn
        if kind == "accumulator" or node is None:
            node = t.view_as(t).grad_fn.next_functions[0][0]
            self.log.append((label, node.name()))
        if kind == "post":

            def post(gi: Any, go: Any) -> Any:
                self.log.append((label, _values(gi), _values(go)))
                if answer == "removed":
                    self.handles[serial].remove()
                return doubled(gi) if answer == "double" else None

            self.handles.append((node.register_hook(post), node)[0])
        else:

            def pre(go: Any) -> Any:
                self.log.append((label, _values(go)))
                if answer == "removed":
                    self.handles[serial].remove()
                return doubled(go) if answer == "double" else None

            self.handles.append((node.register_prehook(pre), node)[0])

    # ------------------------------------------------------------------ passes

    def run(self) -> Log:
        for _ in range(self.draw.randint(1, 3)):
            self.one_pass()
            for nr, t in enumerate(self.tensors):
                if t.is_leaf or t.retains_grad:
                    self.log.append((f"grad {nr}", _values(t.grad)))
            if self.draw.random() < 0.3 and self.handles:
                handle = self.draw.choice(self.handles)
                if handle is not None:
                    handle.remove()
        return self.log

    def one_pass(self) -> None:
        # two roots always: in a pass from one PyTorch runs it though it leads nowhere, and does not
        # count it where hooks of several tensors ask what will run
        roots = [self.pick(self.inner)[1] for _ in range(2)]
        kind = self.draw.choice(["backward", "backward", "inputs", "grad", "create"])
        self.log.append(("pass", kind))
        vectors = [self.lib.ones(2, dtype=self.lib.float64) for _ in roots]
        # `grad` of several gives what hooks had not seen yet in PyTorch, where the pass goes on
        one = kind != "inputs" and self.draw.random() < 0.5
        among = self.tensors if one or kind == "inputs" else self.leaves
        some = [self.pick(among)[1] for _ in range(1 if one else 2)]
        ways: dict[str, Callable[[], Any]] = {
            "backward": lambda: self.lib.autograd.backward(roots, vectors, retain_graph=True),
            "inputs": lambda: self.lib.autograd.backward(
                roots, vectors, retain_graph=True, inputs=some),
            "grad": lambda: self.lib.autograd.grad(
                roots, some, vectors, retain_graph=True, allow_unused=True),
            "create": lambda: self.lib.autograd.grad(
                roots, some, vectors, create_graph=True, allow_unused=True),
        }  # fmt: skip
        try:
            self.log.append(("result", _values(ways[kind]())))
        except RuntimeError as error:
            self.log.append(("error", str(error).partition(":")[0].partition(".")[0]))
