"""What graphs go through: several backward passes, threads, exceptions, steps that differ, death.

More cases of the conformance suite; see `offload_cases`.
"""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

from tests.memory.offload.cases import Run, case, gradients, own, refuses

# Backward, more than once ---------------------------------------------------------------------


def net(r: Run, x: Any, w: Any) -> Any:
    """A graph with views, a diamond and a tensor that is saved twice."""
    h = (x @ w).tanh()
    return ((h * h.t()).exp() * h[:, ::2].sum(1, keepdim=True)).sum()


@case
def retained_twice(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        y = net(r, x, w)
    y.backward(retain_graph=True)
    once = x.grad.clone()
    y.backward()
    return [once, x.grad, w.grad]


@case
def retained_five_times(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        y = net(r, x, w)
    found = [r.lib.autograd.grad(y, (x, w), retain_graph=True) for _ in range(4)]
    return [g for pair in found for g in pair] + gradients(y, x, w)


@case
def freed_after_backward(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        y = net(r, x, w)
    y.backward()
    with refuses("Trying to backward through the graph a second time"):
        y.backward()
    return [x.grad, w.grad]


@case
def two_graphs_in_flight(r: Run) -> list[Any]:
    found = []
    for first in (0, 1):
        x, w = r.inputs()
        with r.saving():
            a = net(r, x, w)
        with r.saving():
            b = (x.sin() * w).exp().sum()
        for y in (a, b) if first == 0 else (b, a):
            y.backward()
        found += [x.grad, w.grad]
    return found


@case
def two_graphs_built_by_turns(r: Run) -> list[Any]:
    x, w = r.inputs()
    a, b = x, w
    for _ in range(4):
        with r.saving():
            a = a.sin() * x
            b = b.cos() * w
    b.sum().backward()
    mid = w.grad.clone()
    a.sum().backward()
    return [mid, x.grad, w.grad]


@case
def forward_between_backwards(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        a = net(r, x, w)
    found = list(r.lib.autograd.grad(a, (x, w), retain_graph=True))
    with r.saving():
        b = net(r, w, x)
    found += r.lib.autograd.grad(a, (x, w))
    return found + list(r.lib.autograd.grad(b, (x, w)))


@case
def a_trunk_and_two_heads(r: Run) -> list[Any]:
    """Partial backward, then the rest."""
    x, w = r.inputs()
    with r.saving():
        h = (x @ w).tanh()
        a, b = (h * h).sum(), h.exp().sum()
    a.backward(retain_graph=True)
    mid = x.grad.clone()
    b.backward()
    return [mid, x.grad, w.grad]


@case
def accumulated_over_micro_batches(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        losses = [net(r, x * k, w) for k in (1, 2, 3)]
    for loss in losses:
        loss.backward()
    return [x.grad, w.grad]


@case
def double_backward(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        y = net(r, x, w)
        gx, gw = r.lib.autograd.grad(y, (x, w), create_graph=True)
        z = (gx * gx).sum() + gw.sin().sum()
    return [gx.detach(), gw.detach(), *gradients(z, x, w)]


@case
def double_backward_outside(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        y = net(r, x, w)
    gx, gw = r.lib.autograd.grad(y, (x, w), create_graph=True)
    return gradients((gx * gx).sum() + gw.sin().sum(), x, w)


@case
def third_derivatives(r: Run) -> list[Any]:
    x, _ = r.inputs()
    with r.saving():
        y = (x.sin() * x.exp()).sum()
        found = []
        for _ in range(3):
            (g,) = r.lib.autograd.grad(y, x, create_graph=True)
            found.append(g.detach().clone())
            y = (g * x).sum()
    return [*found, *gradients(y, x)]


@case
def gradient_penalty(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        y = (x @ w).sigmoid().sum()
        (g,) = r.lib.autograd.grad(y, x, create_graph=True)
        loss = y + ((g * g).sum(1).sqrt() - 1).pow(2).mean()
    return gradients(loss, x, w)


@case
def some_inputs(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        y = net(r, x, w)
    y.backward(inputs=[w], retain_graph=True)
    assert x.grad is None
    (gx,) = r.lib.autograd.grad(y, [x])
    return [w.grad, gx]


@case
def an_intermediate_and_an_unused_input(r: Run) -> list[Any]:
    x, w = r.inputs()
    unused = r.leaf(2)
    with r.saving():
        h = (x @ w).tanh()
        y = (h * h.exp()).sum()
    gh, none = r.lib.autograd.grad(y, (h, unused), retain_graph=True, allow_unused=True)
    assert none is None
    return [gh, *gradients(y, x, w)]


@case
def a_part_of_the_graph_goes_first(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        h = (x @ w).tanh()
        a = (h * h).exp()
        y = (a * a.sin()).sum()
    (ga,) = r.lib.autograd.grad(y, a, retain_graph=True)
    a.backward(ga)
    return [ga, x.grad, w.grad]


@case
def backward_inside(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        for _ in range(3):
            net(r, x, w).backward()
    return [x.grad, w.grad]


@case
def saved_values_are_looked_at(r: Run) -> list[Any]:
    x, _ = r.inputs()
    with r.saving():
        h = x.exp()
        y = h.sin()
    found = [y.grad_fn._saved_self.detach().clone() for _ in range(3)]
    found.append(h.grad_fn._saved_result.detach().clone())
    y.sum().backward()
    with refuses("after they have already been freed"):
        assert y.grad_fn._saved_self is None
    return [*found, x.grad]


@case
def hooks_of_one_saved_tensor(r: Run) -> list[Any]:
    x, _ = r.inputs()
    h = x.exp()
    y = h.sin().sum()
    with r.saving():
        z = h.cos().sum()
    seen: list[int] = []
    raw = y.grad_fn.next_functions[0][0]._raw_saved_self
    raw.register_hooks(lambda t: seen.append(0) or t, lambda t: seen.append(1) or t)
    out = gradients(y + z, x)
    assert seen == [0, 1]
    return out


# Death --------------------------------------------------------------------------------------------


@case
def dropped_without_backward(r: Run) -> list[Any]:
    x, w = r.inputs()
    for _ in range(5):
        with r.saving():
            y = net(r, x, w)
    del y
    with r.saving():
        z = net(r, x, w)
    return gradients(z, x, w)


@case
def half_of_it_dropped(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        a, b = net(r, x, w), (x.exp() * w).sin().sum()
    del a
    return gradients(b, x, w)


@case
def results_die_without_the_collector(r: Run) -> list[Any]:
    x, w = r.inputs()
    enabled = gc.isenabled()
    gc.disable()
    try:
        with r.saving():
            h = x.exp()
            s = (h @ w).sigmoid()
            y = s.sum()
        dead = [weakref.ref(t) for t in (h, s, y)]
        y.backward(retain_graph=True)
        del h, s, y
        assert [ref() for ref in dead] == [None] * 3
    finally:
        if enabled:
            gc.enable()
    return [x.grad, w.grad]


@case
def kept_alive_by_the_user(r: Run) -> list[Any]:
    x, w = r.inputs()
    found = []
    for _ in range(3):
        x.grad = w.grad = None
        with r.saving():
            h = (x @ w).tanh()
            e = h.exp()
            y = (e * h).sum()
        y.backward()
        found += [h.detach().clone(), e.detach().clone(), x.grad, w.grad]
    return found


@case
def parameters_stay_where_they_are(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        y = x @ w
        z = (x.t() @ y) * w
    if r.shares:
        assert y.grad_fn._saved_mat2.data_ptr() == w.data_ptr()
    return gradients(z.sum(), x, w)


# Threads ------------------------------------------------------------------------------------------


def in_threads(*work: Any) -> None:
    """Runs functions in threads of their own, and raises what one of them raised."""
    errors: list[BaseException] = []

    def guarded(function: Any) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(f,)) for f in work]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


@case
def backward_in_another_thread(r: Run) -> list[Any]:
    x, w = r.inputs()
    for _ in range(2):
        with r.saving():
            y = net(r, x, w)
        in_threads(y.backward)
        del y
    return [x.grad, w.grad]


@case
def each_thread_its_graph(r: Run) -> list[Any]:
    leaves = [r.leaf(6, 6, seed=k) for k in range(6)]

    def work(x: Any, w: Any) -> None:
        for _ in range(3):
            with r.saving():
                y = net(r, x, w)
            y.backward()

    r.saving()
    in_threads(*[lambda k=k: work(leaves[k], leaves[k + 1]) for k in (0, 2, 4)])
    return [x.grad for x in leaves]


@case
def forward_in_threads_and_backward_here(r: Run) -> list[Any]:
    leaves = [r.leaf(6, 6, seed=k) for k in range(4)]
    losses: dict[int, Any] = {}

    def work(k: int) -> None:
        with r.saving():
            losses[k] = net(r, leaves[k], leaves[k + 1])

    r.saving()
    in_threads(lambda: work(0), lambda: work(2))
    for k in (0, 2):
        losses[k].backward()
    return [x.grad for x in leaves]


@case
def another_thread_has_no_hooks(r: Run) -> list[Any]:
    x, w = r.inputs()
    found: list[Any] = []

    def work() -> None:
        y = w.exp().sin()
        found.append(y.grad_fn._saved_self.data_ptr())
        y.sum().backward()

    with r.saving():
        y = net(r, x, x.sin())
        in_threads(work)
    y.backward()
    return [x.grad, w.grad]


# Exceptions ---------------------------------------------------------------------------------------


def fail(*args: Any) -> Any:
    raise ZeroDivisionError("on purpose")


@case
def an_exception_in_forward(r: Run) -> list[Any]:
    x, w = r.inputs()
    for _ in range(3):
        with refuses("on purpose", ZeroDivisionError), r.saving():
            y = net(r, x, w)
            fail(y)
    with r.saving():
        y = net(r, x, w)
    return gradients(y, x, w)


@case
def an_exception_in_pack(r: Run) -> list[Any]:
    x, w = r.inputs()
    hooks = r.lib.autograd.graph.saved_tensors_hooks(fail, lambda t: t)
    with r.saving():
        h = (x @ w).tanh()
        with refuses("on purpose", ZeroDivisionError), hooks:
            h.exp()
        y = (h * h.exp()).sum()
    return gradients(y, x, w)


@own
def an_exception_in_pack_of_a_composed_pair(r: Run) -> list[Any]:
    """Composing is cugrad's own. The inner pair gives up after the third tensor."""
    x, w = r.inputs()
    left = [3]

    def pack(t: Any) -> Any:
        left[0] -= 1
        return fail() if left[0] == 0 else t

    hooks = r.lib.autograd.graph.saved_tensors_hooks(pack, lambda t: t, compose=True)
    with r.saving():
        with refuses("on purpose", ZeroDivisionError), hooks:
            net(r, x, w)
        with hooks:
            y = net(r, x, w)
    return gradients(y, x, w)


@case
def an_exception_in_unpack(r: Run) -> list[Any]:
    x, w = r.inputs()
    failing = [True]
    with r.saving():
        h = (x @ w).tanh()
        with r.lib.autograd.graph.saved_tensors_hooks(
            lambda t: t, lambda t: fail() if failing[0] else t
        ):
            y = h.detach().requires_grad_()
            z = (y * y.exp()).sum()
    with refuses("on purpose", ZeroDivisionError):
        z.backward(retain_graph=True)
    failing[0] = False
    y.grad = None
    z.backward()
    h.backward(y.grad)
    return [x.grad, w.grad]


@case
def an_exception_in_a_backward_function(r: Run) -> list[Any]:
    x, w = r.inputs()
    failing = [True]

    class Careful(r.lib.autograd.Function):  # type: ignore[name-defined,misc]
        @staticmethod
        def forward(ctx: Any, t: Any) -> Any:
            ctx.save_for_backward(t)
            return t * t

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (t,) = ctx.saved_tensors
            return fail() if failing[0] else 2 * g * t

    with r.saving():
        h = (x @ w).tanh()
        y = (Careful.apply(h) * h.exp()).sum()
    for _ in range(2):
        with refuses("on purpose", ZeroDivisionError):
            y.backward(retain_graph=True)
    failing[0] = False
    return gradients(y, x, w)


@case
def an_exception_in_a_tensor_hook(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        h = (x @ w).tanh()
        y = (h * h.exp()).sum()
    handle = h.register_hook(fail)
    with refuses("on purpose", ZeroDivisionError):
        y.backward(retain_graph=True)
    handle.remove()
    out = gradients(y, x, w)
    with r.saving():
        z = net(r, x, w)
    return out + list(r.lib.autograd.grad(z, (x, w)))


@case
def an_exception_that_ends_a_graph(r: Run) -> list[Any]:
    x, w = r.inputs()
    for _ in range(3):
        with r.saving():
            h = (x @ w).tanh()
            h.register_hook(fail)
            y = (h * h.exp()).sum()
        with refuses("on purpose", ZeroDivisionError):
            y.backward()
        del h, y
    with r.saving():
        z = net(r, x, w)
    return gradients(z, x, w)


@case
def a_change_in_place_and_then_another_step(r: Run) -> list[Any]:
    x, w = r.inputs()
    for _ in range(3):
        with r.saving():
            h = (x @ w).tanh()
            e = h.exp()
            y = (e * h).sum()
            h.add_(1)
        r.is_unharmed(y, x, lambda x: ((x @ w).tanh().exp() * (x @ w).tanh()).sum())
        del h, e, y
    x.grad = w.grad = None
    with r.saving():
        z = net(r, x, w)
    return gradients(z, x, w)
