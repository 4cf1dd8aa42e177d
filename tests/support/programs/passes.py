"""Statements that go backward, in the middle of a program and at its end."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .drawing import Draw, Spoiled
from .running import value_of
from .text import Statement

# Backward -----------------------------------------------------------------------------------------


def roots(d: Draw, most: int = 3) -> list[str]:
    names = [n for n in d.names() if differentiable(d.env[n])]
    d.random.shuffle(names)
    return names[: d.random.randint(1, most)] if names else []


def differentiable(x: Any) -> bool:
    if x.is_leaf and x._is_view():
        return False  # made under no_grad: such a view has a gradient in one of the two
    return bool(
        x.requires_grad and not x.is_inference() and (x.is_floating_point() or x.is_complex())
    )


def gradient(d: Draw) -> Statement | None:
    """A gradient in the middle, of leaves or of what lies between, which later lines use."""
    outputs, inputs = roots(d), roots(d, 2)
    if d.scope is not None or not outputs or not inputs or not torch.is_grad_enabled():
        return None
    name = d.fresh()
    if d.hooked:
        return None
    how = d.random.choice(
        ["create_graph=True, allow_unused=True"] * 4
        + [
            "retain_graph=True, allow_unused=True",
            "create_graph=True",
            "allow_unused=True, materialize_grads=True, retain_graph=True",
        ]
    )
    root, needs = f"total({', '.join(outputs)})", ()  # type: str, tuple[str, ...]
    if d.chance(0.2):
        root = f"[{outputs[0]}.sum().abs(), total({', '.join(outputs)})]"
        needs = (f"clear({outputs[0]}.sum().abs(), 0)",)
    text = f"{name} = t.autograd.grad({root}, [{', '.join(inputs)}], {how})[0]"
    statement = Statement(text, needs=needs)
    if not d.try_(statement, name, changes=True):
        raise Spoiled
    return statement


# Two gradients at once, as examples of a batch.
BATCHED = [
    "t.autograd.grad({y}, [{x}], t.stack([t.ones_like({y}), {y}.detach() * .5]), {how})[0]",
    "t.autograd.grad([{y}], [{x}], [t.stack([{y}.detach()] * 2).sin()], {how})[0]",
    "t.autograd.grad({y}, {x}, {y}.detach()[None] * .5, {how})[0]",
    "t.func.vmap(lambda g: t.autograd.grad({y}, {x}, g, retain_graph=True, allow_unused=True)[0])"
    "(t.stack([t.ones_like({y}), {y}.detach()]))",
]


def batched(d: Draw) -> Statement | None:
    """Gradients in one pass of several vectors."""
    # docs/torch-compatibility.md, hooks of what backward begins with: a leaf may have some
    y = d.pick_float(lambda x: differentiable(x) and not x.is_leaf)
    x = d.pick_float(differentiable)
    if d.scope is not None or d.hooked or y is None or x is None or not torch.is_grad_enabled():
        return None
    name, form = d.fresh(), d.random.choice(BATCHED)
    how = d.random.choice(["create_graph=True", "retain_graph=True"])
    how += ", allow_unused=True, is_grads_batched=True"
    statement = Statement(f"{name} = " + form.format(x=x, y=y, how=how))
    if not d.try_(statement, name, changes=True):
        raise Spoiled
    return statement


def accumulate(d: Draw) -> Statement | None:
    outputs = roots(d)
    if d.scope is not None or not outputs:
        return None
    how = d.random.choice(["retain_graph=True"] * 5 + ["create_graph=True"] * (not d.hooked) + [""])
    inputs = [n for n in roots(d) if d.env[n].is_leaf]
    if inputs and d.chance(0.3):
        how = ", ".join(filter(None, [how, f"inputs=[{', '.join(inputs)}]"]))
    statement = Statement(f"total({', '.join(outputs)}).backward({how})")
    if d.chance(0.2):
        statement = Statement(
            f"t.autograd.backward([each(x) for x in ({', '.join(outputs)},)], {how})".replace(
                ", )", ")"
            )
        )
    return statement if d.try_(statement, changes=True) else None


def clear_gradient(d: Draw) -> Statement | None:
    x = d.pick(lambda x: x.is_leaf and x.grad is not None)
    if x is None or d.scope is not None:
        return None
    name = d.fresh()
    form = d.random.choice(
        [f"{x}.grad = None", f"{x}.grad.zero_()", f"{name} = {x}.grad * 1",
         f"{name} = t.nn.utils.clip_grad_norm_([{x}], .5)", f"{x}.grad.mul_(.5)"]
    )  # fmt: skip
    statement = Statement(form)
    return (
        statement
        if d.try_(statement, name if form.startswith(name) else None, changes=True)
        else None
    )


def loss(d: Draw) -> Statement | None:
    if not [n for n in d.names() if differentiable(d.env[n])]:
        return None
    statement = Statement(
        f"v0 = total({', '.join(n for n in d.names() if differentiable(d.env[n]))})"
    )
    return statement if d.try_(statement, changes=True) else None


def leaves(d: Draw) -> str:
    return ", ".join(
        n for n in d.names() if n != "v0" and differentiable(d.env[n]) and d.env[n].is_leaf
    )


def first(d: Draw) -> Statement | None:
    if "v0" not in d.env or not leaves(d):
        return None
    how = "retain_graph=True" if d.hooked else "create_graph=True"
    statement = Statement(f"g1 = t.autograd.grad(v0, [{leaves(d)}], {how}, allow_unused=True)")
    return checked(d, statement, "g1")


def second(d: Draw) -> Statement | None:
    if (
        d.hooked
        or "g1" not in d.env
        or not any(g is not None and g.requires_grad for g in d.env["g1"])
    ):
        return None
    statement = Statement(
        f"g2 = t.autograd.grad(total(*g1), [{leaves(d)}], retain_graph=True, allow_unused=True)"
    )
    return checked(d, statement, "g2")


def checked(d: Draw, statement: Statement, name: str) -> Statement | None:
    """A last statement; where its numbers are too large to be compared, it is left out."""
    try:
        if not d.try_(statement, changes=True):
            return None
    except Spoiled:
        return None
    if all(g is None or not g.numel() or np.abs(value_of(g)).max() < 1e6 for g in d.env[name]):
        return statement
    raise Spoiled


def backward(d: Draw) -> Statement | None:
    if "v0" not in d.env or not leaves(d):
        return None
    statement = Statement("v0.backward()")
    return statement if d.try_(statement, changes=True) else None
