"""Checkpoints in the manner of PyTorch's own tests: one body, both libraries."""

from __future__ import annotations

import contextlib
import gc
import warnings
import weakref
from typing import Any

import pytest

from tests.memory.recompute.checkpoint_cases import kit


def leaf(lib: Any, *shape: int) -> Any:
    return lib.rand(*shape, dtype=lib.float64).requires_grad_()


# How often a module runs -------------------------------------------------------------------------


def test_a_module_runs_once_more(lib: Any) -> None:
    class Net(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.counter = 0
            self.net = lib.nn.Sequential(lib.nn.Linear(8, 4), lib.nn.ReLU(), lib.nn.Linear(4, 2))

        def forward(self, x: Any) -> Any:
            self.counter += 1
            return self.net(x)

    for reentrant in (True, False):
        modules = [Net() for _ in range(3)]
        found = [
            kit(lib).checkpoint(m, lib.rand(2, 8, requires_grad=True), use_reentrant=reentrant)
            for m in modules
        ]
        assert [m.counter for m in modules] == [1, 1, 1]
        for y in found:
            y.sum().backward()
        assert [m.counter for m in modules] == [2, 2, 2]


def test_saved_tensors_outside_of_backward_are_not_kept(lib: Any) -> None:
    count = [0]

    def f(a: Any) -> Any:
        count[0] += 1
        b = a * a
        _ = a * b
        return lib.exp(a)

    d = kit(lib).checkpoint(f, leaf(lib, 5), use_reentrant=False)
    assert count[0] == 1
    _ = d.grad_fn._saved_result
    assert count[0] == 2
    _ = d.grad_fn._saved_result
    assert count[0] == 3
    d.sum().backward()
    assert count[0] == 4
    with pytest.raises(RuntimeError, match="or directly access saved tensors after they have alr"):
        _ = d.grad_fn._saved_result


def test_once_though_two_regions_nest(lib: Any) -> None:
    """As many runs as PyTorch makes: each level once for itself, and once for what is in it."""
    counts = {"inner": 0, "outer": 0}

    def inner(x: Any) -> Any:
        counts["inner"] += 1
        return x.sin().exp()

    def outer(x: Any) -> Any:
        counts["outer"] += 1
        y = kit(lib).checkpoint(inner, x.cos(), use_reentrant=False)
        return y.sin().exp()

    kit(lib).checkpoint(outer, leaf(lib, 3), use_reentrant=False).sum().backward()
    assert counts == {"inner": 3, "outer": 2}


def test_the_last_op_does_not_run_again(lib: Any) -> None:
    """Its inputs are all it saves: the second run ends before it."""
    ran = []

    class Sin(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ran.append("sin")
            return x.sin()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

    def f(x: Any) -> Any:
        return Sin.apply(x.exp()).sin()

    with kit(lib).set_checkpoint_early_stop(False):
        kit(lib).checkpoint(f, leaf(lib, 3), use_reentrant=False).sum().backward()
    kit(lib).checkpoint(f, leaf(lib, 3), use_reentrant=False).sum().backward()
    assert ran == ["sin"] * 4

    x = leaf(lib, 3)
    calls = [0]

    def g(x: Any) -> Any:
        calls[0] += 1
        return x.sin()

    kit(lib).checkpoint(g, x, use_reentrant=False).sum().backward()
    assert calls == [2]


# What is the same object, and what is let go of --------------------------------------------------


def test_a_saved_tensor_is_the_very_object(lib: Any) -> None:
    seen: list[Any] = []

    class Test(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(y)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            seen.extend(ctx.saved_tensors)
            return g, None

    a, b = lib.tensor(1.0, requires_grad=True), lib.tensor(1.0)
    Test.apply(a, b).backward()
    kit(lib).checkpoint(Test.apply, a, b, use_reentrant=False).backward()
    assert len(seen) == 2 and all(t is b for t in seen)


@pytest.mark.parametrize("early_stop", [True, False])
def test_tensors_are_freed_as_backward_goes(lib: Any, early_stop: bool) -> None:
    """What was computed again goes with the node that asked for it; nothing waits for the end."""
    alive: list[int] = []
    watched: list[Any] = []

    class Probe(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            held = x.clone()
            watched.append(weakref.ref(held))
            ctx.save_for_backward(held)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (_,) = ctx.saved_tensors
            alive.append(sum(ref() is not None for ref in watched))
            return g

    def f(x: Any) -> Any:
        for _ in range(4):
            x = Probe.apply(x.sin())
        return x * x

    gc.disable()
    try:
        y = kit(lib).checkpoint(f, leaf(lib, 3), use_reentrant=False, early_stop=early_stop)
        assert not any(ref() is not None for ref in watched)
        y.sum().backward()
        assert alive == sorted(alive, reverse=True) and alive[-1] <= 1
        assert not any(ref() is not None for ref in watched)
    finally:
        gc.enable()


@pytest.mark.parametrize("reentrant", [True, False])
def test_an_exception_leaves_nothing(lib: Any, reentrant: bool) -> None:
    runs, watched = [0], []

    def f(x: Any) -> Any:
        runs[0] += 1
        y = x.exp()
        watched.append(weakref.ref(y))
        if runs[0] % 2 == 0:
            raise ValueError("again")
        return y.sin()

    gc.disable()
    try:
        x = leaf(lib, 3)
        y = kit(lib).checkpoint(f, x, use_reentrant=reentrant)
        with contextlib.suppress(ValueError):
            y.sum().backward()
        del y
        assert [ref() for ref in watched] == [None, None]
    finally:
        gc.enable()


# Inputs and outputs ------------------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", [True, False])
def test_inputs_and_outputs_that_are_no_tensors(lib: Any, reentrant: bool) -> None:
    def f(number: Any, none: Any, x: Any, words: Any) -> Any:
        assert none is None and words == ["a"]
        return x * number, "text", None, x + 1

    x = leaf(lib, 3)
    found = kit(lib).checkpoint(f, 3, None, x, ["a"], use_reentrant=reentrant)
    assert found[1:3] == ("text", None)
    (found[0].sum() + found[3].sum()).backward()
    assert x.grad.tolist() == [4.0, 4.0, 4.0]


@pytest.mark.parametrize("reentrant", [True, False])
def test_some_outputs_need_no_gradient(lib: Any, reentrant: bool) -> None:
    def f(x: Any) -> Any:
        return x.detach() if not reentrant else lib.tensor([1.0]), x * 2, x.round().long()

    x = leaf(lib, 3)
    a, b, c = kit(lib).checkpoint(f, x, use_reentrant=reentrant)
    assert b.requires_grad and not c.requires_grad and c.dtype is lib.int64
    b.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
    assert a.requires_grad == reentrant  # all outputs of the one are its node's


@pytest.mark.parametrize("reentrant", [True, False])
def test_tensors_in_containers(lib: Any, reentrant: bool) -> None:
    """The reentrant one does not see them: they have no gradient."""
    x, y = leaf(lib, 3), leaf(lib, 3)

    def f(x: Any, more: Any) -> Any:
        return x * more["y"][0]

    kit(lib).checkpoint(f, x, {"y": [y]}, use_reentrant=reentrant).sum().backward()
    assert x.grad is not None
    if reentrant:
        x = leaf(lib, 3)
        with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
            z = kit(lib).checkpoint(lambda t: t["x"] * 2, {"x": x}, use_reentrant=True)
        assert not z.requires_grad
    else:
        assert y.grad.tolist() == x.tolist() or y.grad is not None


def test_the_first_input_needs_no_gradient(lib: Any) -> None:
    x, w = leaf(lib, 3).detach(), leaf(lib, 3)
    for reentrant in (True, False):
        y = kit(lib).checkpoint(lambda x, w: (x * w).exp(), x, w, use_reentrant=reentrant)
        y.sum().backward()
        assert w.grad is not None and x.grad is None
        w.grad = None


def test_a_parameter_inside_and_outside(lib: Any) -> None:
    w, found = leaf(lib, 10, 10), []
    for use in (False, True):

        def f(x: Any) -> Any:
            return (w @ x).relu().mm(w)

        x = lib.ones(10, 10, dtype=lib.float64)
        y = kit(lib).checkpoint(f, w @ x, use_reentrant=False) if use else f(w @ x)
        (y @ w).sum().backward()
        found.append(w.grad.clone())
        w.grad = None
    assert lib.equal(*found)


def test_an_argument_changed_in_the_function(lib: Any) -> None:
    def f(x: Any) -> Any:
        x.mul_(2)
        return x.exp().sin()

    x = leaf(lib, 3) * 1
    y = kit(lib).checkpoint(f, x, use_reentrant=False)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_an_output_changed_afterwards(lib: Any) -> None:
    x = leaf(lib, 3)
    y = kit(lib).checkpoint(lambda x: (x.exp() * 2).sin() * 3, x, use_reentrant=False)
    y.mul_(2)
    y.sum().backward()
    z = x.detach().clone().requires_grad_()
    ((z.exp() * 2).sin() * 6).sum().backward()
    assert lib.allclose(x.grad, z.grad)


def test_detached_within(lib: Any) -> None:
    net = lib.nn.Linear(4, 4)

    def f(x: Any) -> Any:
        h = net(x)
        with lib.no_grad():
            shift = h.mean()
        return h.detach() * 2, (h - shift).tanh()

    x = lib.rand(2, 4)
    a, b = kit(lib).checkpoint(f, x, use_reentrant=False)
    assert not a.requires_grad
    b.sum().backward()
    assert net.weight.grad is not None
    net.weight.grad = None
    y = kit(lib).checkpoint(lambda x: net(x).detach(), lib.rand(2, 4, requires_grad=True),
                            use_reentrant=True)  # fmt: skip
    with pytest.raises(RuntimeError, match="none of output has requires_grad=True, this checkp"):
        y.sum().backward()


# Warnings and errors -----------------------------------------------------------------------------


def test_valid_again_after_an_error(lib: Any) -> None:
    a = leaf(lib, 2, 2)
    b = kit(lib).checkpoint(lib.exp, a, use_reentrant=True).sum()
    with pytest.raises(RuntimeError, match="torch.utils.checkpoint is incompatible"):
        lib.autograd.grad(b, (a,))
    kit(lib).checkpoint(lib.exp, a, use_reentrant=True).sum().backward()
    assert a.grad is not None


def said(run: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return [str(c.message) for c in caught]


def test_the_warnings_are_pytorchs() -> None:
    """To the letter."""
    torch, cugrad = pytest.importorskip("torch"), pytest.importorskip("cugrad")

    def warned(lib: Any) -> list[list[str]]:
        x, module = leaf(lib, 2), kit(lib)
        return [
            said(lambda: module.checkpoint(lib.exp, x)),
            said(lambda: module.checkpoint(lib.exp, x, use_reentrant=True)),
            said(lambda: module.checkpoint_sequential([lib.exp], 1, x)),
            said(lambda: module.checkpoint(lib.exp, x.detach(), use_reentrant=True)),
            said(lambda: module.checkpoint(lib.exp, x.detach(), use_reentrant=False)),
        ]

    assert warned(cugrad) == warned(torch)


@pytest.mark.pinned_torch
def test_the_errors_are_pytorchs() -> None:
    """To the letter."""
    torch, cugrad = pytest.importorskip("torch"), pytest.importorskip("cugrad")

    def raised(lib: Any) -> list[tuple[str, str]]:
        x, module, found = leaf(lib, 2), kit(lib), []
        reentrant = module.checkpoint(lib.exp, x, use_reentrant=True).sum()
        for run in (
            lambda: module.checkpoint(lib.exp, x, use_reentrant=True, a=1, b=2),
            lambda: module.checkpoint(lib.exp, x, use_reentrant=True, debug=True),
            lambda: module.checkpoint(lib.exp, x, use_reentrant=True, context_fn=lambda: (1, 2)),
            lambda: module.checkpoint(lib.exp, x, use_reentrant=False, debug=True,
                                      context_fn=lambda: (1, 2)),
            lambda: module.checkpoint_sequential([lib.exp], 1, x, use_reentrant=False, a=1, b=2),
            lambda: module.detach_variable([x]),
            lambda: lib.autograd.grad(reentrant, x),
            lambda: reentrant.backward(inputs=[x]),
            lambda: module.create_selective_checkpoint_contexts(3),
        ):  # fmt: skip
            with pytest.raises(Exception) as error:
                run()
            found.append((error.type.__name__, str(error.value)))
        return found

    assert raised(cugrad) == raised(torch)


@pytest.mark.parametrize("second, early_stop, text", [
    (lambda x: x.sin().exp(), True, "A different number of tensors was saved"),
    (lambda x: x.sin().exp().sin().exp().sin(), False, "trying to save more tensors during recomp"),
    (lambda x: x[:1].sin().exp().sin(), True, "Recomputed values for the following tensors have d"),
])  # fmt: skip
def test_a_second_run_that_differs(lib: Any, second: Any, early_stop: bool, text: str) -> None:
    runs = [0]

    def f(x: Any) -> Any:
        runs[0] += 1
        return x.sin().exp().sin() if runs[0] == 1 else second(x)

    with kit(lib).set_checkpoint_early_stop(early_stop):
        y = kit(lib).checkpoint(f, leaf(lib, 2), use_reentrant=False)
    with pytest.raises(kit(lib).CheckpointError, match=text):
        y.sum().backward()
    if lib.__name__ == "torch":  # its logs and pytest's do not get on
        return
    runs[0] = 0
    y = kit(lib).checkpoint(f, leaf(lib, 2), use_reentrant=False, debug=True, early_stop=early_stop)
    with pytest.raises(RuntimeError, match="You are seeing this error because you passed `debug=T"):
        y.sum().backward()


def test_differences_that_are_no_error(lib: Any) -> None:
    """More at the end, where it stops early; the same shapes from other ops; or no check at all."""
    for second, check in (
        (lambda x: x.sin().exp().sin().sin(), "default"),
        (lambda x: x.cos().exp().cos(), "default"),
        (lambda x: x.float().sin().exp().sin(), "none"),
    ):
        runs = [0]

        def f(x: Any, runs: Any = runs, second: Any = second) -> Any:
            runs[0] += 1
            return x.sin().exp().sin() if runs[0] == 1 else second(x)

        x = leaf(lib, 2)
        kit(lib).checkpoint(f, x, use_reentrant=False, determinism_check=check).sum().backward()
        assert x.grad is not None


# Groups of passes --------------------------------------------------------------------------------


@pytest.mark.parametrize("grouped", [True, False])
def test_a_group_runs_a_region_once(lib: Any, grouped: bool) -> None:
    counts = [0]

    def f(x: Any, y: Any) -> Any:
        counts[0] += 1
        return x.sin().exp(), y.cos().exp()

    def group() -> Any:
        return kit(lib).GraphExecGroup() if grouped else contextlib.nullcontext()

    x, y = leaf(lib, 3), leaf(lib, 3)
    a, b = kit(lib).checkpoint(f, x, y, use_reentrant=False)
    with group():
        a.sum().backward()
        b.sum().backward()
    assert counts[0] == (2 if grouped else 3)
    wanted = [x.grad, y.grad]
    x.grad = y.grad = None
    a, b = f(x, y)
    (a.sum() + b.sum()).backward()
    assert lib.equal(wanted[0], x.grad) and lib.equal(wanted[1], y.grad)


def test_passes_of_a_group_may_not_overlap(lib: Any) -> None:
    y = kit(lib).checkpoint(lambda x: x.sin().exp(), leaf(lib, 3), use_reentrant=False).sum()
    with kit(lib).GraphExecGroup() as group:
        assert isinstance(group, kit(lib).GraphExecGroup)
        y.backward(retain_graph=True)
        with pytest.raises(kit(lib).CheckpointError, match="Performing two backward calls that o"):
            y.backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="GraphExecGroup contexts cannot be nested"):
            kit(lib).GraphExecGroup().__enter__()
    y.backward()


def test_a_group_of_nested_regions(lib: Any) -> None:
    counts = {"inner": 0, "outer": 0}

    def inner(x: Any, y: Any) -> Any:
        counts["inner"] += 1
        return x.sin().exp(), y.cos().exp()

    def outer(x: Any, y: Any) -> Any:
        counts["outer"] += 1
        return kit(lib).checkpoint(inner, x.exp(), y.exp(), use_reentrant=False)

    x, y = leaf(lib, 3), leaf(lib, 3)
    a, b = kit(lib).checkpoint(outer, x, y, use_reentrant=False)
    with kit(lib).GraphExecGroup():
        a.sum().backward()
        b.sum().backward()
    assert counts == {"inner": 2, "outer": 2}
    assert x.grad is not None and y.grad is not None


# States of devices -------------------------------------------------------------------------------


def test_device_states_and_types(lib: Any) -> None:
    module, x = kit(lib), lib.rand(2, device="cpu")
    assert module.get_device_states(x, [x], {"a": x}, 3) == ([], [])
    before = module.DefaultDeviceType.get_device_type()
    assert before == ("cuda" if lib.cuda.is_available() else "cpu")
    module.DefaultDeviceType.set_device_type("cuda")
    assert module.DefaultDeviceType.get_device_type() == "cuda"
    module.DefaultDeviceType.set_device_type(before)
    module.set_device_states([], [])


def test_the_default_device_is_what_it_was(lib: Any) -> None:
    """What the function makes lands where it did, though backward runs elsewhere."""

    def f(x: Any) -> Any:
        made.append(lib.ones(2).device.type)
        return (x * 2).exp().sin()

    made: list[str] = []
    with lib.device("cpu"):
        y = kit(lib).checkpoint(f, leaf(lib, 2), use_reentrant=False)
    with lib.device("cpu" if lib.__name__ == "torch" else "simulated"):
        y.sum().backward()
    assert made == ["cpu", "cpu"]


# Sequences ---------------------------------------------------------------------------------------


def test_sequences_take_one_input(lib: Any) -> None:
    class Two(lib.nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return a, b

    model = lib.nn.Sequential(Two())
    a, b = leaf(lib, 1, 2), leaf(lib, 1, 2)
    for reentrant in (True, False):
        with pytest.raises(TypeError):
            kit(lib).checkpoint_sequential(model, 1, a, b, use_reentrant=reentrant)
        with pytest.raises(TypeError):
            kit(lib).checkpoint_sequential(model, 1, use_reentrant=reentrant)


def test_modules_and_parameters_of_sequences(lib: Any) -> None:
    model = lib.nn.Sequential(
        lib.nn.Linear(10, 5), lib.nn.ReLU(), lib.nn.Linear(5, 5), lib.nn.Sigmoid(),
        lib.nn.Linear(5, 3),
    ).double()  # fmt: skip
    x = leaf(lib, 4, 10)
    model(x).sum().backward()
    wanted = [x.grad, *[p.grad for p in model.parameters()]]
    for segments in (1, 2, 3, 5):
        for reentrant in (True, False):
            for t in (x, *model.parameters()):
                t.grad = None
            y = kit(lib).checkpoint_sequential(model, segments, x, use_reentrant=reentrant)
            y.sum().backward()
            for t, g in zip((x, *model.parameters()), wanted, strict=True):
                assert lib.allclose(t.grad, g)
