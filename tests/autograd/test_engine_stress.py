"""The engine under stress: threads, depth, size, errors, and what is left behind."""

from __future__ import annotations

import gc
import random
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

import cugrad as torch
from cugrad import backends

# Threads ------------------------------------------------------------------------------------------


def in_threads(work: Callable[[int], Any], count: int = 6) -> list[BaseException]:
    """Runs `work(k)` in threads that start together and switch often; the errors they raised."""
    errors: list[BaseException] = []
    gate = threading.Barrier(count)

    def run(k: int) -> None:
        gate.wait()
        try:
            work(k)
        except BaseException as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    return errors


def test_threads_run_one_graph() -> None:
    """With retain_graph each pass adds its gradient, and hooks run once a pass."""
    x = torch.ones(50, requires_grad=True)
    h = x * 2
    seen: list[int] = []
    h.register_hook(lambda g: seen.append(1))
    x.register_post_accumulate_grad_hook(lambda t: seen.append(2))
    y = h.exp().log() * h
    for part in y.unbind(0)[:5]:
        y = y + part
    loss = y.sum()
    (one,) = torch.autograd.grad(loss, x, retain_graph=True)
    del seen[:]

    def work(k: int) -> None:
        for i in range(20):
            if i % 2:
                loss.backward(retain_graph=True)
            else:
                (g,) = torch.autograd.grad(loss, x, retain_graph=True)
                assert torch.equal(g, one)

    assert in_threads(work) == []
    assert torch.allclose(x.grad, one * 60)
    assert seen.count(1) == 120 and seen.count(2) == 60


def test_threads_race_for_a_graph_that_is_freed() -> None:
    """The pass, or part of one, that comes first has what it needs; others say what happened."""
    for _ in range(20):
        x = torch.ones(4, requires_grad=True)
        y = (x * x).exp().sum()
        errors = in_threads(lambda k, y=y: y.backward(), 4)
        assert len(errors) < 4  # those that overlap may both have read all before it is freed
        assert all("backward through the graph a second time" in str(e) for e in errors)


@pytest.mark.parametrize("hooks", [False, True], ids=["plain", "packed"])
def test_a_freed_node_says_so_wherever_it_is_read(hooks: bool) -> None:
    """Another thread may free a node after this one has looked whether it is freed."""
    pair = torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
    x = torch.ones(2, 2, requires_grad=True) * 1
    x.detach().mul_(2)  # versions are checked
    with pair if hooks else nullcontext():
        results = [x.exp(), x * x, x @ x, x.cumprod(0), torch.linalg.inv(x + torch.eye(2))]
    for y in results:
        y.sum().backward(retain_graph=True)
        node: Any = y.grad_fn
        node.release()
        for read in (node.plan.vjp, node.plan.vjp_recorded):
            g = torch.ones(2, 2)
            with pytest.raises(RuntimeError, match="backward through the graph a second time"):
                read(node, g if read == node.plan.vjp_recorded else g.numpy())


def test_threads_build_on_shared_tensors() -> None:
    """Separate graphs over shared parameters, views of them and saved-tensor hooks."""
    w = torch.ones(3, 3, requires_grad=True)
    column = (w * 1)[:, 0]

    def work(k: int) -> None:
        for _ in range(30):
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                y = (torch.ones(2, 3) @ w).relu() * column.sum()
            torch.autograd.grad(y.sum(), w, retain_graph=True)
            y.sum().backward(retain_graph=True)

    assert in_threads(work) == []
    expected = torch.full((3, 3), 6.0)
    expected[:, 0] += 18
    assert torch.equal(w.grad, expected * 180)


def test_threads_keep_their_modes_apart() -> None:
    def work(k: int) -> None:
        draw = random.Random(k)
        for _ in range(200):
            x = torch.ones(2, requires_grad=True)
            mode = draw.choice(["no_grad", "inference", "on"])
            if mode == "no_grad":
                with torch.no_grad():
                    assert not (x * 2).requires_grad
            elif mode == "inference":
                with torch.inference_mode():
                    assert (x * 2).is_inference()
            else:
                (x * 2).sum().backward()
                assert x.grad is not None

    assert in_threads(work) == []


# Depth --------------------------------------------------------------------------------------------


class Deep(torch.autograd.Function):
    """x, whose backward runs a backward of the same for x - 1, down to 0."""

    @staticmethod
    def forward(ctx: Any, x: Any, bottom: Callable[[], Any] | None = None) -> Any:
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_() - 1
        ctx.bottom = bottom
        return ctx.x.detach()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        if ctx.x < 0:
            if ctx.bottom is not None:
                ctx.bottom()
        else:
            with torch.enable_grad():
                Deep.apply(ctx.x, ctx.bottom).sum().backward()
        return g, None


def test_backward_in_backward_thousands_deep() -> None:
    """As deep as Python's stack, and then on in another thread, of which none is left."""
    before = threading.active_count()
    for depth in (2000, 300):
        x = torch.tensor(float(depth), requires_grad=True)
        Deep.apply(x).sum().backward()
        assert x.grad.item() == 1
    assert threading.active_count() == before


def test_what_is_switched_on_holds_in_the_depth() -> None:
    seen: list[Any] = []

    def bottom() -> None:
        seen.append(
            (
                threading.current_thread() is threading.main_thread(),
                torch.get_default_dtype(),
                torch.is_grad_enabled(),
                torch.is_anomaly_enabled(),
                len(vars(torch.autograd.mode.state)["hooks"]),
            )
        )

    torch.set_default_dtype(torch.float64)
    try:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            x = torch.tensor(400.0, requires_grad=True)
            Deep.apply(x, bottom).sum().backward()
    finally:
        torch.set_default_dtype(torch.float32)
    assert seen == [(False, torch.float64, False, False, 1)]


def test_an_error_comes_up_from_the_depth() -> None:
    def bottom() -> None:
        raise KeyError("deep")

    x = torch.tensor(1000.0, requires_grad=True)
    with pytest.raises(KeyError, match="deep"):
        Deep.apply(x, bottom).sum().backward()
    assert torch.is_grad_enabled()
    (x * 2).sum().backward()
    assert x.grad.item() == 2


# Size ---------------------------------------------------------------------------------------------


def test_a_long_graph_for_some_inputs() -> None:
    """`grad`, `inputs=` and leaves with hooks look at the whole graph first, without recursion."""
    x, w = (torch.ones((), dtype=torch.float64, requires_grad=True) for _ in range(2))
    y = x
    for _ in range(20_000):
        y = y * w + x
    (g,) = torch.autograd.grad(y, x, retain_graph=True)
    assert g.item() == 20_001
    y.backward(inputs=[w], retain_graph=True)
    assert x.grad is None and w.grad.item() == 20_000 * 20_001 / 2
    count: list[float] = []
    x.register_post_accumulate_grad_hook(lambda t: count.append(t.grad.item()))
    y.backward()
    assert count == [20_001]


def test_a_long_graph_dies_in_a_hurry() -> None:
    """Custom Functions, several outputs, views and hooks: dropping them needs no recursion."""

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1, x * 1

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            return g + h

    x = torch.ones(2, requires_grad=True)
    y = x
    for i in range(5_000):
        y, z = Twice.apply(y)
        y = y.view(2, 1).view(2)
        if i % 100 == 0:
            y.register_hook(lambda g: None)
    y.sum().backward(retain_graph=True)
    node = weakref.ref(y.grad_fn)
    gc.disable()
    try:
        del y, z
        assert node() is None
    finally:
        gc.enable()


# Errors -------------------------------------------------------------------------------------------


def test_errors_in_the_middle_leave_everything_usable() -> None:
    """A hook that fails at each point in turn; the next pass over what is left of it is right."""
    x = torch.ones(3, requires_grad=True)
    tensors = [x]
    for i in range(8):
        tensors.append(tensors[-1] * 2 + (tensors[-2] if i else x))
    loss = tensors[-1].sum()
    (expected,) = torch.autograd.grad(loss, x, retain_graph=True)
    passes = [
        lambda: loss.backward(retain_graph=True),
        lambda: torch.autograd.grad(loss, x, create_graph=True),
    ]
    for i, t in enumerate(tensors):
        for register in (t.register_hook, t.grad_fn.register_prehook if i else x.register_hook):
            handle = register(lambda g: 1 / 0)
            for run in passes:
                x.grad = None
                with pytest.raises(ZeroDivisionError):
                    run()
            handle.remove()
            x.grad = None
            loss.backward(retain_graph=True)
            assert torch.equal(x.grad, expected) and torch.is_grad_enabled()
    x.grad = None
    loss.backward()
    assert torch.equal(x.grad, expected)


def test_an_error_frees_no_more_than_what_ran() -> None:
    """The part of the graph that the failed pass did not reach can still run."""
    x = torch.ones(2, requires_grad=True)
    y = x * x
    z = y * y
    handle = y.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        z.sum().backward()
    handle.remove()
    with pytest.raises(RuntimeError, match="second time"):
        z.sum().backward()
    y.sum().backward()
    assert x.grad.tolist() == [2, 2]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_pass(error: type[BaseException]) -> None:
    x = torch.ones(2, requires_grad=True)
    y = x * 2

    def interrupt(g: Any) -> None:
        raise error

    handle = y.register_hook(interrupt)
    with pytest.raises(error):
        y.sum().backward()
    handle.remove()
    y.sum().backward()
    assert x.grad.tolist() == [2, 2] and torch.is_grad_enabled()


# What is left behind ------------------------------------------------------------------------------


@pytest.fixture
def collector_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def plain(x: Any) -> Any:
    return (x * x).exp().sum()


def views(x: Any) -> Any:
    y = x * 1
    a, b = y.view(2, 2).unbind(0)
    y.view(-1)[1:].mul_(2)
    return (y.t() if y.ndim == 2 else y).sum() + y.view(2, 2)[0].sum()


def hooks(x: Any) -> Any:
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 2)
    y.grad_fn.register_hook(lambda gi, go: None)
    torch.autograd.graph.register_multi_grad_hook([x, y], lambda gs: None)
    y.register_hook(lambda g: torch.autograd.Variable._execution_engine.queue_callback(list))
    return y.sum()


def noticed(x: Any) -> Any:
    with torch.autograd.set_detect_anomaly(True):
        y = (x * x).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
    return g.sum()


def inferred(x: Any) -> Any:
    with torch.inference_mode():
        y = x.view(2, 2) * 2
    return (x + y.clone().view(-1)).sum()


def unrecorded_views(x: Any) -> Any:
    with torch.no_grad():
        v = x.view(2, 2)
    return (v * 2).sum() + x.sum()


def failing(x: Any) -> Any:
    y = x * 2
    y.register_hook(lambda g: 1 / 0)
    try:
        y.sum().backward()
    except ZeroDivisionError:
        pass
    return (x * 3).sum()


def deep(x: Any) -> Any:
    Deep.apply(torch.tensor(60.0, requires_grad=True)).sum().backward()
    return x.sum()


def twice(x: Any) -> Any:
    (g,) = torch.autograd.grad((x * x * x).sum(), x, create_graph=True)
    return (g * g).sum()


def packed(x: Any) -> Any:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: [t], lambda p: p[0]):
        return (x.exp() * x).sum()


USES = [plain, views, hooks, noticed, inferred, unrecorded_views, failing, deep, twice, packed]


@pytest.mark.parametrize("backward", [True, False], ids=["backward", "dropped"])
@pytest.mark.parametrize("use", USES, ids=lambda f: f.__name__)
def test_a_graph_dies_with_its_last_user(
    use: Callable[[Any], Any], backward: bool, collector_off: None
) -> None:
    """With the collector off: its nodes and tensors, and the leaf itself."""
    x = torch.ones(4, requires_grad=True)
    y = use(x)
    nodes = [y.grad_fn]
    for node in nodes:
        nodes += [n for n, _ in node.next_functions if n is not None and n not in nodes]
    refs = [weakref.ref(o) for o in (x, y, *nodes)]
    if backward:
        y.backward()
    del x, y, nodes, node
    assert [ref() for ref in refs if ref() is not None] == []


GROWING = [use for use in USES if use not in (deep, hooks)]  # those take long, or add hooks to x


@pytest.mark.parametrize("use", GROWING, ids=lambda f: f.__name__)
def test_memory_does_not_grow(use: Callable[[Any], Any]) -> None:
    """Steps over one leaf leave nothing: no view, node or cache piles up on it or elsewhere."""
    x = torch.ones(4, requires_grad=True)

    def run(count: int) -> None:
        for _ in range(count):
            use(x).backward()
            x.grad = None
        gc.collect()

    run(200)
    before = sys.getallocatedblocks()
    run(300)
    grown = sys.getallocatedblocks() - before
    assert grown < 100, f"{grown} blocks of memory in 300 steps"  # any object is one, or more


CACHES = 24_000  # bytes that NumPy keeps for later


def test_ten_thousand_steps() -> None:
    x, g = torch.ones(4, requires_grad=True), torch.ones(4)

    def run(count: int) -> None:
        for _ in range(count):
            (x * x).backward(g)
            x.grad = None

    run(100)
    tracemalloc.start()
    try:
        run(100)
        before = tracemalloc.get_traced_memory()[0]
        run(10_000)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < CACHES, grown


def test_a_second_backward_holds_no_second_set_of_gradients() -> None:
    device = backends.get("simulated")
    layers = [torch.nn.Linear(256, 256) for _ in range(10)]
    net = torch.nn.Sequential(*layers, layers[0]).to("simulated")  # one has two gradients to add
    x = torch.randn(4, 256, device="simulated")
    nbytes = sum(p.numel() * p.element_size() for p in net.parameters())
    used = []
    for _ in range(3):
        before = device.memory_allocated()
        device.reset_peak_memory_stats()
        net(x).square().mean().backward()
        used.append((device.max_memory_allocated() - before) / nbytes)
    assert 1.0 <= used[0] < 1.3 and max(used[1:]) < 0.35
    first = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    net(x).square().mean().backward()
    for three, once in zip(first, net.parameters(), strict=True):
        assert (three == once.grad + once.grad + once.grad).all()
