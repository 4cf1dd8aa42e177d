"""torch.utils.checkpoint: the same gradients from less memory, beside PyTorch where it can."""

from __future__ import annotations

import gc
import threading
import tracemalloc
import warnings
import weakref
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.backends import get, simulated
from cugrad.memory import offload
from cugrad.memory.offloading.engine import engine_of
from cugrad.utils.checkpoint import (
    CheckpointError,
    checkpoint,
    checkpoint_sequential,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)


def kit(lib: Any) -> Any:
    if lib is cugrad:
        return cugrad.utils.checkpoint
    from torch.utils import checkpoint as module

    return module


def leaf(lib: Any, *shape: int, seed: int = 0) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape)
    return lib.tensor(values.tolist(), dtype=lib.float64, requires_grad=True)


def layer(lib: Any, x: Any, w: Any) -> Any:
    h = (x @ w).tanh()
    return (h @ w).sin() * h.exp()


def numbers(*tensors: Any) -> list[Any]:
    return [None if t is None else np.array(t.detach().cpu().tolist()) for t in tensors]


def same(found: list[Any], wanted: list[Any]) -> None:
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


# The same gradients -------------------------------------------------------------------------------


@pytest.mark.parametrize("early_stop", [True, False])
@pytest.mark.parametrize("reentrant", [True, False])
def test_gradients_are_bitwise_those_without(reentrant: bool, early_stop: bool) -> None:
    found = []
    for use in (False, True):
        x, w = leaf(cugrad, 4, 4), leaf(cugrad, 4, 4, seed=1)
        h = x
        for _ in range(3):
            h = (
                checkpoint(layer, cugrad, h, w, use_reentrant=reentrant, early_stop=early_stop)
                if use else layer(cugrad, h, w)
            )  # fmt: skip
        h.sum().backward()
        found.append([t.grad.numpy() for t in (x, w)])
    if reentrant:  # adds up the gradients of w in another order
        same(found[1], found[0])
    else:
        assert [a.tobytes() for a in found[0]] == [a.tobytes() for a in found[1]]


def test_every_way_of_backward(lib: Any) -> None:
    make = kit(lib).checkpoint
    results = []
    for run in (lambda *a: layer(lib, *a), lambda *a: make(layer, lib, *a, use_reentrant=False)):
        x, w = leaf(lib, 4, 4), leaf(lib, 4, 4, seed=1)
        out = []
        y = run(x, w).sum()
        out += lib.autograd.grad(y, (x, w), retain_graph=True)
        out += lib.autograd.grad(y, (w,), retain_graph=True)
        y.backward(retain_graph=True)
        y.backward(inputs=[w])
        out += [x.grad, w.grad]
        (g,) = lib.autograd.grad(run(x, w).sin().sum(), x, create_graph=True)
        out += lib.autograd.grad(g.square().sum(), (x, w))
        results.append(numbers(*out))
    same(results[1], results[0])


def test_nested(lib: Any) -> None:
    make = kit(lib).checkpoint
    results = []
    for use in (False, True):
        x, w = leaf(lib, 4, 4), leaf(lib, 4, 4, seed=1)

        def again(f: Any, *args: Any, use: bool = use) -> Any:
            return make(f, *args, use_reentrant=False) if use else f(*args)

        def inner(x: Any, w: Any) -> Any:
            return layer(lib, x, w).cos()

        def middle(x: Any, w: Any) -> Any:
            return again(inner, x.sin(), w) * again(inner, x, w)

        def outer(x: Any, w: Any) -> Any:
            return again(middle, x, w) + again(middle, x.exp(), w).tanh()

        again(outer, x, w).sum().backward()
        results.append(numbers(x.grad, w.grad))
    same(results[1], results[0])


def test_keywords_and_containers(lib: Any) -> None:
    def f(pair: Any, *, scale: float, more: Any) -> Any:
        a, (b, c) = pair["both"]
        return [(a * b * scale).sin(), {"x": (c * more[0]).exp()}], "text", None

    x, y, z = (leaf(lib, 3, seed=k) for k in range(3))
    out = kit(lib).checkpoint(f, {"both": (x, (y, x))}, scale=2.0, more=[z], use_reentrant=False)
    assert out[1:] == ("text", None)
    (out[0][0].sum() + out[0][1]["x"].sum()).backward()
    found = numbers(x.grad, y.grad, z.grad)
    x, y, z = (leaf(lib, 3, seed=k) for k in range(3))
    out = f({"both": (x, (y, x))}, scale=2.0, more=[z])
    (out[0][0].sum() + out[0][1]["x"].sum()).backward()
    same(found, numbers(x.grad, y.grad, z.grad))


def test_inputs_without_gradients(lib: Any) -> None:
    w = leaf(lib, 4, 4)
    x = leaf(lib, 4, 4, seed=1).detach()
    y = kit(lib).checkpoint(lambda x: layer(lib, x, w), x, use_reentrant=False)  # w: a closure
    y.sum().backward()
    assert w.grad is not None and x.grad is None
    with lib.no_grad():
        y = kit(lib).checkpoint(layer, lib, x, w, use_reentrant=False)
    assert not y.requires_grad
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        y = kit(lib).checkpoint(lambda x: x * 2, x, use_reentrant=True)
    assert not y.requires_grad
    text = "None of the inputs have requires_grad=True. Gradients will be None"
    assert text in [str(c.message) for c in caught]


def test_in_place_ops_inside(lib: Any) -> None:
    def f(x: Any) -> Any:
        h = x * 1
        h.mul_(2).exp_()
        h = h + x.sin()
        h.add_(1).sigmoid_()
        return h

    x = leaf(lib, 5)
    kit(lib).checkpoint(f, x, use_reentrant=False).sum().backward()
    z = leaf(lib, 5)
    f(z).sum().backward()
    same(numbers(x.grad), numbers(z.grad))


def test_an_argument_that_was_changed_is_noticed() -> None:
    x = leaf(cugrad, 5) * 1
    y = checkpoint(lambda x: x.exp().sin(), x, use_reentrant=False)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_part_of_the_graph(lib: Any) -> None:
    """One of two outputs is wanted first; and backward runs within the function."""

    def f(x: Any) -> Any:
        a, b = x.exp(), x.sin()
        (g,) = lib.autograd.grad(a.square().sum(), x, retain_graph=True)
        return a.tanh() * g, b.cos()

    x, z = leaf(lib, 4), leaf(lib, 4)
    a, b = kit(lib).checkpoint(f, x, use_reentrant=False)
    b.sum().backward()
    p, q = f(z)
    q.sum().backward()
    same(numbers(x.grad), numbers(z.grad))
    a.sum().backward()
    p.sum().backward()
    same(numbers(x.grad), numbers(z.grad))


def test_in_another_thread() -> None:
    x, z = leaf(cugrad, 4, 4), leaf(cugrad, 4, 4)
    y = checkpoint(lambda x: layer(cugrad, x, x), x, use_reentrant=False).sum()
    failures = []

    def work() -> None:
        try:
            cugrad.autograd.grad(y, x, retain_graph=True)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
    y.backward()
    layer(cugrad, z, z).sum().backward()
    same(numbers(x.grad), numbers(z.grad))


# Random numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "simulated"])
@pytest.mark.parametrize("reentrant", [True, False])
def test_dropout(reentrant: bool, device: str) -> None:
    def f(x: Any) -> Any:
        h = cugrad.nn.functional.dropout(x.exp(), 0.5)
        return cugrad.nn.functional.dropout(h.sin(), 0.3) * cugrad.rand(8, 8, device=device)

    found = []
    for use in (False, True):
        cugrad.manual_seed(3)
        x = cugrad.rand(8, 8, device=device, requires_grad=True)
        for _ in range(2):
            y = checkpoint(f, x, use_reentrant=reentrant) if use else f(x)
            y.sum().backward()
        found.append((x.grad.cpu().numpy().tobytes(), cugrad.rand(3, device=device).tolist()))
    assert found[0] == found[1]  # and what is drawn afterwards is the same


def test_random_states_need_not_be_kept() -> None:
    x = leaf(cugrad, 100)
    y = checkpoint(
        lambda x: x * cugrad.nn.functional.dropout(x.exp(), 0.5), x, use_reentrant=False,
        preserve_rng_state=False,
    )  # fmt: skip
    (g,) = cugrad.autograd.grad(y.sum(), x, retain_graph=True)
    (h,) = cugrad.autograd.grad(y.sum(), x)
    assert g.tolist() != h.tolist()


# How much is run again ----------------------------------------------------------------------------


def test_early_stop(lib: Any) -> None:
    calls = []

    def f(x: Any) -> Any:
        calls.append("begin")
        y = x.exp().sin()
        calls.append("middle")
        y = y * 2
        calls.append("end")
        return y

    module = kit(lib)
    for context, wanted in ((nullcontext(), 2), (module.set_checkpoint_early_stop(False), 3)):
        with context:
            y = module.checkpoint(f, leaf(lib, 3), use_reentrant=False)
        calls.clear()
        y.sum().backward()  # outside of the context
        assert len(calls) in (wanted, wanted - 1) and (len(calls) == 3) == (wanted == 3)


def test_once_in_each_pass() -> None:
    runs = 0

    def f(x: Any) -> Any:
        nonlocal runs
        runs += 1
        return x.exp().sin() * x.cos()

    x = leaf(cugrad, 3)
    y = checkpoint(f, x, use_reentrant=False).sum()
    assert runs == 1
    y.backward(retain_graph=True)
    assert runs == 2
    y.backward(retain_graph=True)
    assert runs == 3
    node = y.grad_fn.next_functions[0][0]
    assert node._saved_self.shape == (3,) and runs == 4
    y.backward()
    assert runs == 5


def test_sequential(lib: Any) -> None:
    steps = [lib.sin, lib.exp, lib.cos, lib.tanh, lib.sigmoid]
    module = kit(lib)
    for segments in (1, 2, 3, 5):
        for reentrant in (True, False):
            x, z = leaf(lib, 4), leaf(lib, 4)
            module.checkpoint_sequential(
                steps, segments, x, use_reentrant=reentrant, preserve_rng_state=False
            ).sum().backward()
            h = z
            for step in steps:
                h = step(h)
            h.sum().backward()
            same(numbers(x.grad), numbers(z.grad))
    net = lib.nn.Sequential(lib.nn.Linear(4, 4), lib.nn.Tanh(), lib.nn.Linear(4, 2)).double()
    module.checkpoint_sequential(net, 2, leaf(lib, 3, 4), use_reentrant=False).sum().backward()
    assert all(p.grad is not None for p in net.parameters())


# Memory -------------------------------------------------------------------------------------------


def deep(x: Any, depth: int = 12) -> Any:
    for _ in range(depth):
        x = x.sin().exp()
    return x


@pytest.mark.parametrize("reentrant", [True, False])
def test_memory_is_really_lower(reentrant: bool) -> None:
    def peak(use: bool) -> int:
        x = cugrad.rand(256, 256, requires_grad=True) * 0.1
        gc.collect()
        tracemalloc.start()
        h = x
        for _ in range(4):
            h = checkpoint(deep, h, use_reentrant=reentrant) if use else deep(h)
        h.sum().backward()
        try:
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    plain, less = peak(False), peak(True)
    assert less < 0.45 * plain, (less, plain)


def test_memory_on_the_device() -> None:
    def peak(use: bool) -> int:
        backend = get("simulated")
        x = cugrad.rand(64, 64, device="simulated", requires_grad=True) * 0.1
        backend.reset_peak_memory_stats()
        h = x
        for _ in range(4):
            h = checkpoint(deep, h, use_reentrant=False) if use else deep(h)
        h.sum().backward()
        return backend.max_memory_allocated()

    assert peak(True) < 0.45 * peak(False)


@pytest.mark.parametrize("backward", [True, False])
def test_no_cycle_keeps_anything(backward: bool) -> None:
    gc.disable()
    try:
        x = leaf(cugrad, 3)
        h = x * 2
        inner = weakref.ref(h._array)
        y = checkpoint(lambda h: deep(h, 2), h, use_reentrant=False)
        node = weakref.ref(y.grad_fn)
        if backward:
            y.sum().backward(retain_graph=True)
        del y, h
        assert node() is None and inner() is None
    finally:
        gc.enable()


# With other hooks ---------------------------------------------------------------------------------


@contextmanager
def counting(log: list[Any]) -> Any:
    def pack(t: Any) -> Any:
        log.append("pack")
        return t

    def unpack(t: Any) -> Any:
        log.append("unpack")
        return t

    with cugrad.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield


def test_hooks_outside_see_the_arguments() -> None:
    log: list[str] = []
    x = leaf(cugrad, 4)
    with counting(log):
        y = checkpoint(lambda h: deep(h, 3), x * 2, use_reentrant=False)
    assert log == ["pack"]  # and x * 2 saves a number
    y.sum().backward()
    assert log == ["pack", "unpack"]
    z = leaf(cugrad, 4)
    deep(z * 2, 3).sum().backward()
    same(numbers(x.grad), numbers(z.grad))


def test_hooks_inside_keep_what_they_see() -> None:
    log: list[str] = []

    def f(x: Any) -> Any:
        h = x.exp()
        with counting(log):
            h = h.sin()
        return h.exp()

    x, z = leaf(cugrad, 4), leaf(cugrad, 4)
    checkpoint(f, x, use_reentrant=False).sum().backward()
    assert "unpack" in log
    z.exp().sin().exp().sum().backward()
    same(numbers(x.grad), numbers(z.grad))


@pytest.mark.parametrize("policy", simulated.POLICIES)
def test_offload_outside_and_inside(policy: str) -> None:
    moving = {"min_bytes": 0, "keep_last": 0, "backlog": 0}

    def gradient(run: Any) -> bytes:
        x = cugrad.tensor(np.linspace(-1, 1, 64), device="simulated", requires_grad=True)
        run(x * 1).sum().backward()
        return x.grad.cpu().numpy().tobytes()

    plain = gradient(deep)

    def inside(x: Any) -> Any:
        with offload(**moving):
            return deep(x, 6)

    engine_of(get("simulated"), 0)._plans.clear()  # nothing was learned from other tests
    with simulated.configured(policy=policy, seed=2):
        outer = offload(**moving)

        def outside(x: Any) -> Any:
            with outer:
                return checkpoint(deep, x, use_reentrant=False)

        assert gradient(outside) == plain
        assert outer.stats.moved_to_host_bytes == outer.stats.moved_back_bytes == 64 * 8
        assert gradient(lambda x: checkpoint(inside, deep(x, 6), use_reentrant=False)) == plain
    simulated.reset()


# What goes wrong ----------------------------------------------------------------------------------


def changing(lib: Any, second: Any) -> Any:
    """A function that does something else when it is run again."""
    runs = 0

    def f(x: Any) -> Any:
        nonlocal runs
        runs += 1
        return x.exp().sin() if runs == 1 else second(x)

    return f


@pytest.mark.parametrize("second, text", [
    (lambda x: x.exp(), "A different number of tensors was saved during the original forward"),
    (lambda x: x[:2].exp().sin(), "have different metadata than during the forward pass"),
    (lambda x: x.float().exp().sin(), "have different metadata than during the forward pass"),
])  # fmt: skip
def test_a_run_that_differs(lib: Any, second: Any, text: str) -> None:
    y = kit(lib).checkpoint(changing(lib, second), leaf(lib, 4), use_reentrant=False)
    with pytest.raises(kit(lib).CheckpointError, match=f"torch.utils.checkpoint: .*{text}"):
        y.sum().backward()


def test_a_run_that_saves_more(lib: Any) -> None:
    f = changing(lib, lambda x: x.exp().sin().exp().sin())
    y = kit(lib).checkpoint(f, leaf(lib, 4), use_reentrant=False, early_stop=False)
    with pytest.raises(kit(lib).CheckpointError, match="trying to save more tensors during recomp"):
        y.sum().backward()


def test_the_error_names_the_op() -> None:
    y = checkpoint(changing(cugrad, lambda x: x.exp()), leaf(cugrad, 4), use_reentrant=False)
    with pytest.raises(CheckpointError, match="before what SinBackward0 had saved, tensor 1"):
        y.sum().backward()
    f = changing(cugrad, lambda x: x[:2].exp().sin())
    y = checkpoint(f, leaf(cugrad, 4), use_reentrant=False)
    with pytest.raises(CheckpointError, match="saved by ExpBackward0\n"):
        y.sum().backward()


def test_no_check() -> None:
    f = changing(cugrad, lambda x: x.double().exp().sin())
    x = cugrad.ones(3, requires_grad=True)
    y = checkpoint(f, x, use_reentrant=False, determinism_check="none")
    y.sum().backward()
    assert x.grad is not None


def test_debug_shows_both_runs() -> None:
    f = changing(cugrad, lambda x: x.exp().cos())
    for debug, switch in ((True, None), (False, True)):
        with set_checkpoint_debug_enabled(switch):
            y = checkpoint(f, leaf(cugrad, 4)[:3], use_reentrant=False, debug=debug,
                           early_stop=False)  # fmt: skip
        f = changing(cugrad, lambda x: x.exp())
        try:
            y.sum().backward()
        except CheckpointError as error:
            assert "sin(torch.float64[3])" in str(error) and __file__ in str(error)
            assert "Operations executed during recomputation" in str(error)


def test_an_exception_in_the_function(lib: Any) -> None:
    fails = [False]

    def f(x: Any) -> Any:
        y = x.exp().sin()
        if fails[0]:
            raise ZeroDivisionError
        return y.exp()

    x = leaf(lib, 3)
    y = kit(lib).checkpoint(f, x, use_reentrant=False)
    fails[0] = True
    with pytest.raises(ZeroDivisionError):
        y.sum().backward(retain_graph=True)
    with pytest.raises(ZeroDivisionError):
        kit(lib).checkpoint(f, x, use_reentrant=False)
    fails[0] = False
    y.sum().backward()
    assert x.grad is not None


def test_arguments_are_checked(lib: Any) -> None:
    module, x = kit(lib), leaf(lib, 3)
    with pytest.raises(ValueError, match="determinism_check should be one of"):
        module.checkpoint(lib.exp, x, use_reentrant=False, determinism_check="x")
    with pytest.raises(ValueError, match="Unexpected keyword arguments: a"):
        module.checkpoint(lib.exp, x, use_reentrant=True, a=1)
    with pytest.raises(ValueError, match="only supported when use_reentrant=False"):
        module.checkpoint(lib.exp, x, use_reentrant=True, debug=True)
    with pytest.raises(ValueError, match="incompatible with non-default context_fn"):
        module.checkpoint(
            lib.exp, x, use_reentrant=False, debug=True,
            context_fn=lambda: (nullcontext(), nullcontext()),
        )  # fmt: skip
    with pytest.raises(ValueError, match="Unexpected keyword arguments: b"):
        module.checkpoint_sequential([lib.exp], 1, x, use_reentrant=False, b=1)
    with pytest.warns(UserWarning, match="the use_reentrant parameter should be passed explicitly"):
        module.checkpoint(lib.exp, x)
    with pytest.raises(RuntimeError, match="Only tuple of tensors is supported"):
        module.detach_variable([x])


def test_reentrant_refuses_grad(lib: Any) -> None:
    module, x = kit(lib), leaf(lib, 3)
    y = module.checkpoint(lib.exp, x, use_reentrant=True).sum()
    with pytest.raises(RuntimeError, match="incompatible with .grad\\(\\) or passing"):
        lib.autograd.grad(y, x)
    y = module.checkpoint(lib.exp, x, use_reentrant=True).sum()
    with pytest.raises(RuntimeError, match="incompatible with .grad\\(\\) or passing"):
        y.backward(inputs=[x])
    y = module.checkpoint(lambda x: x.detach(), x, use_reentrant=True)
    with pytest.raises(RuntimeError, match="none of output has requires_grad=True"):
        y.sum().backward()


def test_a_forward_context_must_not_swallow() -> None:
    class Swallows:
        def __enter__(self) -> None: ...
        def __exit__(self, *exc: object) -> bool:
            return True

    def fail(x: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(RuntimeError, match="suppressed an exception"):
        checkpoint(fail, leaf(cugrad, 3), use_reentrant=False,
                   context_fn=lambda: (Swallows(), nullcontext()))  # fmt: skip


def test_contexts(lib: Any) -> None:
    log = []

    @contextmanager
    def context(name: str) -> Any:
        log.append(name)
        yield

    y = kit(lib).checkpoint(
        lambda x: x.exp().sin(), leaf(lib, 3), use_reentrant=False,
        context_fn=lambda: (context("forward"), context("again")),
    )  # fmt: skip
    assert log == ["forward"]
    y.sum().backward()
    assert log == ["forward", "again"]


def test_sequential_and_switches_in_the_face() -> None:
    assert cugrad.utils.checkpoint.checkpoint_sequential is checkpoint_sequential
    with set_checkpoint_early_stop(True):
        x = leaf(cugrad, 3)
        checkpoint(cugrad.exp, x, use_reentrant=False, early_stop=False).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("early_stop", [True, False])
def test_what_the_function_changes_after_it_was_saved(early_stop: bool) -> None:
    """The gradient is that without a checkpoint, of copies of what is saved."""

    def of_result(x: Any) -> Any:
        return (x.tanh() * 0.9).erfinv().cos_()

    def of_operand(x: Any) -> Any:
        y = x.floor()
        z = cugrad.maximum(y, x)
        y.add_(z)
        return z

    def of_view(x: Any) -> Any:
        y = x.exp()
        y.mul_(y.sin())[1:].mul_(y[:-1].clone())
        return y

    for f in (of_result, of_operand, of_view):
        x = cugrad.tensor([0.8, -1.6, 0.5], dtype=cugrad.float64, requires_grad=True)
        with cugrad.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            (want,) = cugrad.autograd.grad(f(x).sin().sum(), x)
        for inside in (True, False):
            function = f if not inside else lambda x, f=f: f(x).sin()
            y = checkpoint(function, x, use_reentrant=False, early_stop=early_stop)
            y = y if inside else y.sin()
            assert cugrad.allclose(cugrad.autograd.grad(y.sum(), x)[0], want), f
