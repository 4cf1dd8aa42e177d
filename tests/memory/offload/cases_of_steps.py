"""Nested contexts, functions of the user's own, modules, and steps that do not repeat themselves.

More cases of the conformance suite; see `offload_cases`.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from tests.memory.offload.cases import Run, case, gradients, own, refuses
from tests.memory.offload.cases_of_life import net

# Contexts -----------------------------------------------------------------------------------------


@case
def the_innermost_context_wins(r: Run) -> list[Any]:
    x, w = r.inputs()
    seen: list[str] = []
    hooks = r.lib.autograd.graph.saved_tensors_hooks
    count = hooks(lambda t: seen.append("pack") or t, lambda t: seen.append("unpack") or t)
    with r.saving():
        a = x.exp()
        with count:
            b = a.sin()
        c = b.tanh()
    with count if r.hooked else nullcontext(), r.saving():
        y = (c * w).sum()
    assert seen == ["pack"]
    out = gradients(y, x, w)
    assert seen == ["pack", "unpack"]
    return out


@own
def contexts_compose(r: Run) -> list[Any]:
    """Composing is cugrad's own."""
    x, w = r.inputs()
    seen: list[str] = []
    hooks = r.lib.autograd.graph.saved_tensors_hooks(
        lambda t: seen.append("pack") or t, lambda t: seen.append("unpack") or t, compose=True
    )
    with r.saving(), hooks:
        y = net(r, x, w)
    out = gradients(y, x, w)
    assert seen.count("pack") == seen.count("unpack") == len(seen) // 2 > 3
    return out


@own
def a_context_within_a_compressing_pair(r: Run) -> list[Any]:
    """Composing is cugrad's own: the pair inside doubles what the context outside keeps."""
    x, w = r.inputs()
    hooks = r.lib.autograd.graph.saved_tensors_hooks(
        lambda t: t * 2 if t.is_floating_point() else t,
        lambda t: t / 2 if t.is_floating_point() else t, compose=True,
    )  # fmt: skip
    with r.saving():
        h = (x @ w).tanh()
        with hooks:
            y = (h * h.exp()).sum()
    return gradients(y, x, w)


@case
def nested_in_itself(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        h = (x @ w).tanh()
        with r.saving():
            e = h.exp()
            with r.another():
                y = e * h
        z = y.sin().sum()
    return gradients(z, x, w)


@case
def hooks_are_disabled(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.lib.autograd.graph.disable_saved_tensors_hooks("none of that"):
        if r.hooked:
            with refuses("none of that"), r.saving():
                pytest.fail("entered")
        y = net(r, x, w)
    with r.saving():
        z = net(r, w, x)
    return gradients(y + z, x, w)


@case
def disabled_within(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        y = net(r, x, w)
        if r.hooked:
            disabled = r.lib.autograd.graph.disable_saved_tensors_hooks("not here")
            with refuses("not here"), disabled:
                pytest.fail("entered")
        z = net(r, w, x)
    return gradients(y + z, x, w)


@case
def without_gradients_inside(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        with r.lib.no_grad():
            c = (x @ w).exp()
            with r.lib.enable_grad():
                h = x.sin()
        y = (h * c).sum() + (h.detach() * w).exp().sum()
    return gradients(y, x, w)


@case
def as_a_decorator_of_a_part(r: Run) -> list[Any]:
    x, w = r.inputs()
    h = (x @ w).tanh()
    with r.saving():
        e = h.exp()
    y = (e * h).sum()
    return gradients(y, x, w)


# Hooks of gradients -------------------------------------------------------------------------------


@case
def gradient_hooks_and_retained_gradients(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        h = (x @ w).tanh()
        h.retain_grad()
        h.register_hook(lambda g: g * 2)
        y = (h * h.exp()).sum()
    return [*gradients(y, x, w), h.grad]


@case
def hooks_of_nodes(r: Run) -> list[Any]:
    x, w = r.inputs()
    seen: list[Any] = []
    with r.saving():
        h = (x @ w).tanh()
        y = (h * h.exp()).sum()
    h.grad_fn.register_prehook(lambda gs: (gs[0] * 3,))
    h.grad_fn.register_hook(lambda gi, go: seen.append(go[0].detach().clone()))
    handle = r.lib.autograd.graph.register_multi_grad_hook((x, w), lambda gs: seen.extend(gs))
    out = gradients(y, x, w)
    handle.remove()
    return out + seen


@case
def a_hook_that_reads_a_saved_tensor(r: Run) -> list[Any]:
    """Backward asks in another order than it otherwise would."""
    x, w = r.inputs()
    found: list[Any] = []
    for _ in range(3):
        with r.saving():
            a = (x @ w).tanh()
            b = a.exp()
            c = b.sin()
            y = (c * b).sum()
        first, last = a.grad_fn, c.grad_fn
        last.register_hook(lambda *_, n=first: found.append(n._saved_result.detach().clone()))
        y.backward()
    return [*found, x.grad, w.grad]


# Functions of one's own ---------------------------------------------------------------------------


def cubing(lib: Any, saves: str) -> Any:
    """x**3, with a backward from inputs, outputs, intermediates, or some of them twice."""

    class Cube(lib.autograd.Function):  # type: ignore[name-defined,misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            square = x * x
            out = square * x
            kept = {"input": (x,), "output": (x, out), "intermediate": (square,),
                    "twice": (x, x, None, x)}[saves]  # fmt: skip
            ctx.save_for_backward(*kept)
            return out

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            saved = ctx.saved_tensors
            if saves == "intermediate":
                return 3 * g * saved[0]
            if saves == "output":
                return 3 * g * saved[1] / saved[0]
            if saves == "twice":
                assert saved[2] is None
                return 3 * g * saved[1] * saved[3]
            return 3 * g * saved[0] * saved[0]

    return Cube


def of_function(r: Run, saves: str) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        h = (x @ w).tanh()
        y = (cubing(r.lib, saves).apply(h) * h).sum()
    y.backward(retain_graph=True)
    y.backward()
    return [x.grad, w.grad]


@case
def a_function_saves_its_input(r: Run) -> list[Any]:
    return of_function(r, "input")


@case
def a_function_saves_its_output(r: Run) -> list[Any]:
    return of_function(r, "output")


@case
def a_function_saves_an_intermediate(r: Run) -> list[Any]:
    return of_function(r, "intermediate")


@case
def a_function_saves_twice(r: Run) -> list[Any]:
    return of_function(r, "twice")


@case
def a_function_differentiated_twice(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        h = (x @ w).tanh()
        y = (cubing(r.lib, "input").apply(h) * h).sum()
        (g,) = r.lib.autograd.grad(y, x, create_graph=True)
        z = (g * g).sum()
    return gradients(z, x, w)


# Modules ------------------------------------------------------------------------------------------


def trained(r: Run, loss_of: Any, parameters: list[Any], steps: int = 4) -> list[Any]:
    """Losses and parameters of some steps of gradient descent."""
    found = []
    for step in range(steps):
        with r.saving():
            loss = loss_of(step)
        for p in parameters:
            p.grad = None
        loss.backward()
        with r.lib.no_grad():
            for p in parameters:
                p.sub_(p.grad * 0.1)
        found.append(loss.detach().clone())
        del loss
    return found + [p.detach() for p in parameters]


@case
def training_a_network(r: Run) -> list[Any]:
    f = r.lib.nn.functional
    w1, w2, gain, bias = r.leaf(8, 6), r.leaf(5, 8), r.leaf(8), r.leaf(8, seed=4)

    def loss(step: int) -> Any:
        h = f.layer_norm(f.linear(r.constant(7, 6, seed=step), w1), (8,), gain, bias)
        target = r.lib.tensor([0, 1, 2, 3, 4, 0, 1], device=r.device)
        return f.cross_entropy(f.linear(f.gelu(h), w2), target)

    return trained(r, loss, [w1, w2, gain, bias])


@case
def training_convolutions(r: Run) -> list[Any]:
    f = r.lib.nn.functional
    k1, k2 = r.leaf(4, 2, 3, 3), r.leaf(3, 4, 3, 3)

    def loss(step: int) -> Any:
        h = f.conv2d(r.constant(2, 2, 8, 8, seed=step), k1, padding=1)
        h = f.batch_norm(h, None, None, training=True).relu()
        h = f.conv2d(f.max_pool2d(h, 2), k2)
        return (f.softmax(h, 1) * h).sum()

    return trained(r, loss, [k1, k2])


@case
def training_attention(r: Run) -> list[Any]:
    f = r.lib.nn.functional
    table, wq, wk = r.leaf(10, 8), r.leaf(8, 8), r.leaf(8, 8, seed=3)
    ids = r.lib.tensor([[1, 2, 3, 1], [4, 9, 0, 4]], device=r.device)

    def loss(step: int) -> Any:
        x = f.embedding(ids, table)
        q, k, v = ((x @ w).view(2, 4, 2, 4).transpose(1, 2) for w in (wq, wk, wq))
        h = f.softmax(q @ k.transpose(-1, -2) / 2, -1) @ v
        return (h.transpose(1, 2).reshape(2, 4, 8) * x).tanh().sum()

    return trained(r, loss, [table, wq, wk])


@own
def dropout(r: Run) -> list[Any]:
    """PyTorch draws other numbers."""
    x, w = r.inputs()
    r.lib.manual_seed(3)
    found = []
    for _ in range(3):
        with r.saving():
            h = r.lib.nn.functional.dropout((x @ w).tanh(), 0.4)
            y = (h * h.exp()).sum()
        found += r.lib.autograd.grad(y, (x, w))
    return found


# Steps --------------------------------------------------------------------------------------------


def steps(r: Run, *functions: Any) -> list[Any]:
    """Gradients of one step after another; each function builds the loss of a step."""
    found: list[Any] = []
    for function in functions:
        x, w = r.inputs()
        with r.saving():
            y = function(x, w)
        found += gradients(y, x, w)
    return found


def layered(x: Any, w: Any) -> Any:
    h = x
    for _ in range(4):
        h = (h @ w).tanh()
        h = h.exp() * h * 0.3
    return h.sum()


@case
def the_same_step_again(r: Run) -> list[Any]:
    return steps(r, *[layered] * 4)


@case
def another_order_in_the_second_step(r: Run) -> list[Any]:
    """The plan of the first step does not hold: backward visits the branches the other way."""

    def first(x: Any, w: Any) -> Any:
        a = (x @ w).tanh()
        b = (w @ x).sin()
        return (a * a.exp()).sum() + (b * b.cos()).sum()

    found = steps(r, first, first)
    x, w = r.inputs()
    with r.saving():
        a = (x @ w).tanh()
        b = (w @ x).sin()
        p, q = (a * a.exp()).sum(), (b * b.cos()).sum()
    p.backward()
    q.backward()
    return found + [x.grad, w.grad] + steps(r, first)


@case
def only_a_part_in_the_second_step(r: Run) -> list[Any]:
    found = steps(r, layered, layered)
    x, w = r.inputs()
    with r.saving():
        a, y = (x @ w).tanh(), layered(x, w)
        z = (a * a).sum()
    z.backward()
    del y
    return found + [x.grad, w.grad] + steps(r, layered)


@case
def shapes_that_change(r: Run) -> list[Any]:
    found: list[Any] = []
    for n in (6, 6, 9, 3, 9, 6, 1):
        x, w = r.leaf(n, 6), r.leaf(6, n)
        with r.saving():
            h = (x @ w).tanh()
            y = (h.exp() * h).sum()
        found += gradients(y, x, w)
    return found


@case
def large_and_small_by_turns(r: Run) -> list[Any]:
    found: list[Any] = []
    for n in (40, 4, 40, 4, 40, 4, 4, 40):
        x = r.leaf(n, n)
        with r.saving():
            y = ((x * 0.1).exp() * x.sin()).sum()
        found += gradients(y, x)
    return found


@case
def branches_that_are_skipped(r: Run) -> list[Any]:
    def with_branches(*taken: int) -> Any:
        def loss(x: Any, w: Any) -> Any:
            h = (x @ w).tanh()
            for k in taken:
                h = h.exp() if k == 0 else h.sin() * h if k == 1 else (h @ w).tanh()
            return (h * h).sum()

        return loss

    orders = ((0, 1, 2), (0, 1, 2), (0, 2), (1, 0, 2), (2,), (2, 2, 2), (0, 1, 2))
    return steps(r, *[with_branches(*taken) for taken in orders])


@case
def a_step_that_saves_nothing(r: Run) -> list[Any]:
    return steps(r, layered, lambda x, w: (x + w).sum(), layered, lambda x, w: (x - w).mean())


@case
def an_evaluation_between_steps(r: Run) -> list[Any]:
    found = steps(r, layered)
    x, w = r.inputs()
    for _ in range(2):
        with r.lib.no_grad(), r.saving():
            found.append(layered(x, w))
        with r.saving():
            layered(x, w)
        found += steps(r, layered)
    return found


@case
def sizes_repeat_with_other_strides(r: Run) -> list[Any]:
    """Steps that look alike in bytes, and are not."""

    def loss(k: int) -> Any:
        def of(x: Any, w: Any) -> Any:
            h = (x @ w).tanh()
            v = (h, h.t(), h[:, ::2].t() @ h[:, 1::2])[k]
            return (v.exp() * v).sum() + (h * h).sum()

        return of

    return steps(r, *[loss(k) for k in (0, 1, 2, 0, 2, 1)])


@case
def small_tensors(r: Run) -> list[Any]:
    ws = [r.leaf(2, seed=k) for k in range(20)]
    with r.saving():
        h = r.constant(2, seed=99)
        for w in ws:
            h = (h * w).sin() + h[:1] * w[0]
        y = h.sum()
    return gradients(y, *ws)


@case
def two_losses_step_by_step(r: Run) -> list[Any]:
    """As a GAN trains: two graphs that share a part, in each step."""
    x, w = r.inputs()
    found = []
    for k in range(3):
        with r.saving():
            fake = (r.constant(6, 6, seed=k) @ w).tanh()
            judged = (fake.detach() @ x).sigmoid().log().mean()
            fooled = (fake @ x).sigmoid().log().mean()
        found += r.lib.autograd.grad(judged, (x,))
        found += r.lib.autograd.grad(fooled, (w,))
    return found


@case
def a_carried_state(r: Run) -> list[Any]:
    """Truncated backward through time: the state of a step is the constant of the next."""
    x, w = r.inputs()
    state = r.constant(6, 6, seed=5)
    for _ in range(4):
        with r.saving():
            h = state
            for _ in range(2):
                h = (h @ w + x).tanh()
            y = (h * state).sum()
        y.backward()
        state = h.detach()
    return [x.grad, w.grad, state]
