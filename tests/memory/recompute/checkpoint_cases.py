"""Functions to checkpoint, ways to do it and ways to go backward: every one with every other."""

from __future__ import annotations

import functools
import random
import tempfile
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

Tensors = tuple[Any, ...]


def kit(lib: Any) -> Any:
    """`torch.utils.checkpoint` of either library."""
    if lib.__name__ == "cugrad":
        return lib.utils.checkpoint
    from torch.utils import checkpoint

    return checkpoint


# Functions: of (lib, x, w), 4 by 4; they answer a tensor or several -------------------------------


def chain(lib: Any, x: Any, w: Any) -> Any:
    return ((x @ w).tanh() @ w).sin().exp()


def ends_in_a_product(lib: Any, x: Any, w: Any) -> Any:
    return lib.nn.functional.linear((x @ w).sigmoid(), w, x[0])


def diamond(lib: Any, x: Any, w: Any) -> Any:
    h = x.exp() * w
    return h.sin() * h.cos() + (h * x).tanh() / (h.square() + 1)


def two_outputs(lib: Any, x: Any, w: Any) -> Any:
    h = (x * w).sin()
    return h.exp(), (h @ x).cos()


def views(lib: Any, x: Any, w: Any) -> Any:
    a, b = (x.t() * w).chunk(2)
    h = lib.cat([a.flip(0), b[:, [1, 0, 3, 2]]], 1).reshape(4, 4)
    return h.unsqueeze(0).expand(3, 4, 4).permute(1, 0, 2).exp().sum(1) * x[1:2]


def in_place(lib: Any, x: Any, w: Any) -> Any:
    h = x * w
    h.mul_(2).tanh_()
    h = h.exp()
    h = h * 1
    h[1:3].sin_()
    h[:, 0] = w[0]
    h += x
    return h.sigmoid_()


def without_gradients(lib: Any, x: Any, w: Any) -> Any:
    with lib.no_grad():
        scale = (x @ w).abs().amax()
    return (x / scale).sin() * w.detach().exp() + (w * x.detach()).tanh()


def random_numbers(lib: Any, x: Any, w: Any) -> Any:
    h = lib.nn.functional.dropout((x @ w).exp(), 0.5)
    noise = lib.rand_like(h)
    return (h * noise).sin() * lib.nn.functional.dropout(h, 0.25)


def reductions(lib: Any, x: Any, w: Any) -> Any:
    h = lib.nn.functional.layer_norm(x, (4,), w[0], w[1])
    h = h.softmax(-1) * w.logsumexp(0) + x.std(1, keepdim=True)
    return h.cumsum(0).prod(1), h.max(0).values.sort().values


def of_our_own(lib: Any, x: Any, w: Any) -> Any:
    class Cube(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            y = x * x
            z = y * x
            ctx.save_for_backward(x, y, z, w)
            ctx.mark_non_differentiable(y)
            return z, y

        @staticmethod
        def backward(ctx: Any, g: Any, _: Any) -> Any:
            x, y, z, w = ctx.saved_tensors
            return g * 3 * x * x + 0 * z, g * w

    z, y = Cube.apply(x.sin(), w)
    return z.exp() * y


def grad_within(lib: Any, x: Any, w: Any) -> Any:
    with lib.enable_grad():
        h = (x @ w).sin()
        (g,) = lib.autograd.grad(h.square().sum(), x, retain_graph=True)
    return h.exp() * g + (x * w).tanh()


def nothing_to_keep(lib: Any, x: Any, w: Any) -> Any:
    return (x + w).t() - w


def passed_through(lib: Any, x: Any, w: Any) -> Any:
    return x, (w * 2).exp(), x * w


FUNCTIONS: dict[str, Callable[..., Any]] = {f.__name__: f for f in (
    chain, ends_in_a_product, diamond, two_outputs, views, in_place, without_gradients,
    random_numbers, reductions, of_our_own, grad_within, nothing_to_keep, passed_through,
)}  # fmt: skip

# Ways: each runs function(lib, x, w), with checkpoints or, all else being equal, without ----------


class Direct:
    """In the place of the module: no checkpoint."""

    @staticmethod
    def checkpoint(function: Any, *args: Any, **kwargs: Any) -> Any:
        for name in ("use_reentrant", "early_stop", "determinism_check", "debug", "context_fn"):
            kwargs.pop(name, None)
        return function(*args, **kwargs)


def simply(module: Any, lib: Any, function: Any, x: Any, w: Any, **how: Any) -> Any:
    return module.checkpoint(function, lib, x, w, use_reentrant=False, **how)


def nested(module: Any, lib: Any, function: Any, x: Any, w: Any) -> Any:
    def middle(x: Any, w: Any) -> Any:
        return simply(module, lib, function, x.clone(), w)

    def outer(x: Any, w: Any) -> Any:
        return module.checkpoint(middle, x, w * 1, use_reentrant=False)

    return module.checkpoint(outer, x, w, use_reentrant=False)


def nested_before_more(module: Any, lib: Any, function: Any, x: Any, w: Any) -> Any:
    def outer(x: Any, w: Any) -> Any:
        first = simply(module, lib, function, x.sin(), w)
        first = first[0] if isinstance(first, tuple) else first
        return simply(module, lib, function, x * 1, w), (first * first).tanh()

    (found, more) = module.checkpoint(outer, x, w, use_reentrant=False)
    return (*found, more) if isinstance(found, tuple) else (found, more)


def one_after_another(module: Any, lib: Any, function: Any, x: Any, w: Any) -> Any:
    h = simply(module, lib, function, x, w)
    h = h[-1] if isinstance(h, tuple) else h
    return simply(module, lib, function, h.sum(0) + w, x)


def in_containers(module: Any, lib: Any, function: Any, x: Any, w: Any) -> Any:
    def unpacking(pair: Any, *, deep: Any) -> Any:
        found = function(lib, pair["x"][0], deep[0]["w"])
        return {"found": found, "number": 3}

    return module.checkpoint(
        unpacking, {"x": (x, None)}, deep=[{"w": w}], use_reentrant=False
    )["found"]  # fmt: skip


def as_closure(module: Any, lib: Any, function: Any, x: Any, w: Any) -> Any:
    return module.checkpoint(lambda: function(lib, x, w), use_reentrant=False)


def under_hooks(module: Any, lib: Any, function: Any, x: Any, w: Any) -> Any:
    with lib.autograd.graph.saved_tensors_hooks(lambda t: [t.clone()], lambda t: t[0]):
        return simply(module, lib, function, x, w)


def over_hooks(module: Any, lib: Any, function: Any, x: Any, w: Any) -> Any:
    def inner(lib: Any, x: Any, w: Any) -> Any:
        h = x.sin().exp()
        with lib.autograd.graph.saved_tensors_hooks(lambda t: [t.clone()], lambda t: t[0]):
            return function(lib, h, w)

    return simply(module, lib, inner, x, w)


def with_contexts(module: Any, lib: Any, function: Any, x: Any, w: Any) -> Any:
    return simply(module, lib, function, x, w, context_fn=lambda: (nullcontext(), nullcontext()))


WAYS: dict[str, Callable[..., Any]] = {
    "simply": simply,
    "to the end": functools.partial(simply, early_stop=False),
    "unchecked": functools.partial(simply, determinism_check="none"),
    "debug": functools.partial(simply, debug=True),
} | {f.__name__: f for f in (
    nested, nested_before_more, one_after_another, in_containers, as_closure, under_hooks,
    over_hooks, with_contexts,
)}  # fmt: skip


def selective(module: Any, lib: Any, function: Any, x: Any, w: Any) -> Any:
    """What becomes of each result is drawn: kept, kept in host memory, or made again."""
    draw, policies = random.Random(0), list(kit(lib).CheckpointPolicy)

    def contexts() -> Any:
        return kit(lib).create_selective_checkpoint_contexts(
            lambda ctx, op, *args, **kwargs: draw.choice(policies)
        )

    return simply(module, lib, function, x, w, context_fn=contexts)


def within(context: Any, module: Any, lib: Any, function: Any, x: Any, w: Any) -> Any:
    """A checkpoint inside of this context."""
    with context(lib):
        return simply(module, lib, function, x * 1, w)


def around(context: Any, module: Any, lib: Any, function: Any, x: Any, w: Any) -> Any:
    """This context inside of a checkpoint."""

    def inner(lib: Any, x: Any, w: Any) -> Any:
        h = x.sin().exp()
        with context(lib):
            return function(lib, h * 1, w)

    return simply(module, lib, inner, x, w)


def both(context: Any, module: Any, lib: Any, function: Any, x: Any, w: Any) -> Any:
    """This context inside of a checkpoint inside of it."""
    with context(lib):
        return around(context, module, lib, function, x * 1, w)


CONTEXTS: dict[str, Callable[[Any], Any]] = {
    "offload": lambda lib: lib.memory.offload(min_bytes=0, keep_last=0, backlog=0),
    "save_on_cpu": lambda lib: lib.autograd.graph.save_on_cpu(True, device_type="simulated"),
    "save_on_disk": lambda lib: lib.memory.save_on_disk(tempfile.gettempdir(), min_bytes=0),
}
OURS: dict[str, Callable[..., Any]] = {  # what PyTorch has not
    "ops": functools.partial(simply, determinism_check="ops"),
    "bits": functools.partial(simply, determinism_check="bits"),
    "selective": selective,
} | {f"{how.__name__} {name}": functools.partial(how, context)
     for name, context in CONTEXTS.items() for how in (within, around, both)}  # fmt: skip


# Passes: each gets what ran, x and w, and answers tensors -----------------------------------------


def outputs(found: Any) -> list[Any]:
    return [t for t in (found if isinstance(found, tuple) else (found,)) if t.requires_grad]


def loss(found: Any) -> Any:
    first, *others = [(t * t).sum() * (k + 1) for k, t in enumerate(outputs(found))]
    return sum(others, start=first)


def backward(lib: Any, run: Any, x: Any, w: Any) -> Tensors:
    loss(run()).backward()
    return x.grad, w.grad


def grad(lib: Any, run: Any, x: Any, w: Any) -> Tensors:
    return lib.autograd.grad(loss(run()), (w, x), allow_unused=True)


def grad_of_one(lib: Any, run: Any, x: Any, w: Any) -> Tensors:
    return lib.autograd.grad(loss(run()), w, allow_unused=True)


def inputs(lib: Any, run: Any, x: Any, w: Any) -> Tensors:
    loss(run()).backward(inputs=[w])
    return x.grad, w.grad


def several_times(lib: Any, run: Any, x: Any, w: Any) -> Tensors:
    y = loss(run())
    first = lib.autograd.grad(y, (x,), retain_graph=True, allow_unused=True)
    y.backward(retain_graph=True)
    y.backward()
    return *first, x.grad, w.grad


def output_by_output(lib: Any, run: Any, x: Any, w: Any) -> Tensors:
    found = outputs(run())
    for t in reversed(found):
        t.sum().backward(retain_graph=True)
    for t in found:
        t.square().sum().backward(retain_graph=True)
    return x.grad, w.grad


def one_output_only(lib: Any, run: Any, x: Any, w: Any) -> Tensors:
    found = outputs(run())
    found[-1].sum().backward()
    return x.grad, w.grad


def double(lib: Any, run: Any, x: Any, w: Any) -> Tensors:
    g = lib.autograd.grad(loss(run()), (x, w), create_graph=True, allow_unused=True)
    total = sum((t.sin().sum() for t in g if t is not None and t.requires_grad), x.sum() * 0)
    return *g, *lib.autograd.grad(total, (x, w), allow_unused=True)


def twice_through(lib: Any, run: Any, x: Any, w: Any) -> Tensors:
    (loss(run()) + loss(run()).sin()).backward()
    return x.grad, w.grad


def with_hooks(lib: Any, run: Any, x: Any, w: Any) -> Tensors:
    h = w.register_hook(lambda g: g * 2)
    found = run()
    for t in outputs(found):
        if t is not x:
            t.register_hook(lambda g: g.clone())
            t.retain_grad()
    loss(found).backward()
    h.remove()
    return x.grad, w.grad, *[t.grad for t in outputs(found)]


def elsewhere(lib: Any, run: Any, x: Any, w: Any) -> Tensors:
    y = loss(run())
    thread = threading.Thread(target=y.backward)
    thread.start()
    thread.join()
    return x.grad, w.grad


def as_a_group(lib: Any, run: Any, x: Any, w: Any) -> Tensors:
    with kit(lib).GraphExecGroup():
        loss(run()).backward()
        loss(run()).backward()
    return x.grad, w.grad


PASSES: dict[str, Callable[..., Tensors]] = {f.__name__: f for f in (
    backward, grad, grad_of_one, inputs, several_times, output_by_output, one_output_only, double,
    twice_through, with_hooks, elsewhere, as_a_group,
)}  # fmt: skip

NUMBERS = np.random.default_rng(3).uniform(-1, 1, (2, 4, 4))


def leaves(lib: Any, device: str = "cpu", needed: tuple[bool, bool] = (True, True)) -> list[Any]:
    """x and w, of which some need gradients."""
    return [lib.tensor(values.tolist(), dtype=lib.float64, device=device, requires_grad=need)
            for values, need in zip(NUMBERS, needed)]  # fmt: skip


def result(
    module: Any, lib: Any, function: str, way: str, how: str, device: str = "cpu",
    needed: tuple[bool, bool] = (True, True),
) -> list[Any]:  # fmt: skip
    """What a pass answers, as arrays."""
    lib.manual_seed(5)
    x, w = leaves(lib, device, needed)
    run = functools.partial({**WAYS, **OURS}[way], module, lib, FUNCTIONS[function], x, w)
    found = PASSES[how](lib, run, x, w)
    return [None if t is None else np.array(t.detach().cpu().tolist()) for t in found]
