"""Hooks of modules: those of state_dict, of all modules at once, and PyTorch's older ones."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def no_garbage() -> Iterator[None]:
    """A hook that a test forgot would be there for all that follow."""
    yield
    from cugrad.nn.base.global_hooks import everywhere

    left = list(everywhere)
    everywhere.clear()
    assert not left


def of_all(lib: Any) -> Any:
    return lib.nn.modules.module


# Of state_dict


def test_pre_hooks_of_state_dict(lib: Any) -> None:
    seen = []
    net = lib.nn.Sequential(lib.nn.Linear(2, 2), lib.nn.ReLU())
    for part in (net, net[0]):
        part.register_state_dict_pre_hook(
            lambda module, prefix, keep: seen.append((type(module).__name__, prefix, keep))
        )
    net.state_dict(prefix="foo.", keep_vars=True)
    assert seen == [("Sequential", "foo.", True), ("Linear", "foo.0.", True)]


def test_post_hooks_of_state_dict(lib: Any) -> None:
    net = lib.nn.Sequential(lib.nn.Linear(2, 2))

    def double(module: Any, state: Any, prefix: str, local: Any) -> None:
        state[f"{prefix}twice"] = module.bias.detach() * 2

    handle = net[0].register_state_dict_post_hook(double)
    assert lib.equal(net.state_dict()["0.twice"], 2 * net[0].bias)
    handle.remove()
    assert list(net.state_dict()) == ["0.weight", "0.bias"]
    net.register_state_dict_post_hook(lambda *args: {})
    with pytest.raises(RuntimeError, match="state_dict post-hook must return None"):
        net.state_dict()
    layer = lib.nn.Linear(2, 2)
    layer._register_state_dict_hook(lambda *args: OrderedDict(x=1))
    assert layer.state_dict() == {"x": 1}


def test_pre_hooks_of_load_state_dict(lib: Any) -> None:
    net = lib.nn.Sequential(lib.nn.Linear(2, 2))
    seen: list[Any] = []

    def renamed(module: Any, state: Any, prefix: str, *rest: Any) -> None:
        assert rest[1:] == (True, [], [], [])
        seen.append(sorted(state))
        state[f"{prefix}weight"] = state.pop(f"{prefix}old")

    net[0].register_load_state_dict_pre_hook(renamed)
    net[0]._register_load_state_dict_pre_hook(lambda state, *rest: seen.append(len(rest)))
    given = {"0.old": lib.ones(2, 2), "0.bias": lib.zeros(2)}
    found = net.load_state_dict(given, strict=False)
    assert found.missing_keys == [] and lib.equal(net[0].weight, lib.ones(2, 2))
    assert seen == [["0.bias", "0.old"], 6] and "0.old" in given


def test_post_hooks_of_load_state_dict(lib: Any) -> None:
    nested = lib.nn.Linear(2, 2)
    net = lib.nn.ModuleList([nested])

    def found_fault(module: Any, keys: Any) -> None:
        assert module is nested
        keys.missing_keys.append("foo")
        keys.unexpected_keys.append("bar")

    handle = nested.register_load_state_dict_post_hook(found_fault)
    found = net.load_state_dict(net.state_dict(), strict=False)
    assert (found.missing_keys, found.unexpected_keys) == (["foo"], ["bar"])
    with pytest.raises(RuntimeError, match=r"Error\(s\) in loading state_dict for ModuleList"):
        net.load_state_dict(net.state_dict())
    handle.remove()
    handle = nested.register_load_state_dict_post_hook(lambda module, keys: 3)
    with pytest.raises(AssertionError, match="are not expected to return new values"):
        net.load_state_dict(net.state_dict())
    handle.remove()
    net.register_load_state_dict_post_hook(lambda module, keys: keys.unexpected_keys.clear())
    net.load_state_dict({**net.state_dict(), "extra": lib.ones(1)})


def forgets(*args: Any) -> None:
    """A hook that can be pickled."""


def test_hooks_keep_no_module_and_are_pickled_with_it(lib: Any) -> None:
    gc.disable()
    try:
        layer = lib.nn.Linear(2, 2)
        layer.register_load_state_dict_pre_hook(forgets)
        layer.register_state_dict_pre_hook(forgets)
        layer.register_backward_hook(forgets)
        for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            assert len(other._load_state_dict_pre_hooks) == len(other._backward_hooks) == 1
            other.load_state_dict(layer.state_dict())
        gone = weakref.ref(layer)
        del layer
        assert gone() is None
    finally:
        gc.enable()


def test_hooks_of_one_module_are_no_other_s(lib: Any) -> None:
    one, other = lib.nn.Linear(2, 2), lib.nn.Linear(2, 2)
    one.register_state_dict_pre_hook(lambda *args: pytest.fail("of the other"))
    other.state_dict()
    assert not other._state_dict_pre_hooks


def test_extra_state(lib: Any) -> None:
    class Counted(lib.nn.Module):
        def __init__(self, count: int) -> None:
            super().__init__()
            self.count = count

        def get_extra_state(self) -> Any:
            return {"count": self.count}

        def set_extra_state(self, state: Any) -> None:
            self.count = state["count"]

    net = lib.nn.Sequential(Counted(3))
    state = net.state_dict()
    assert state["0._extra_state"] == {"count": 3}
    other = lib.nn.Sequential(Counted(0))
    other.load_state_dict(state)
    assert other[0].count == 3
    with pytest.raises(RuntimeError, match='Missing key.*"0._extra_state"'):
        other.load_state_dict({})
    with pytest.raises(RuntimeError, match='Unexpected key.*"0._extra_state"'):
        lib.nn.Sequential(lib.nn.ReLU()).load_state_dict(state)
    with pytest.raises(RuntimeError, match="get_extra_state"):
        lib.nn.ReLU().get_extra_state()


# Of all modules


def test_common_hooks_run_first(lib: Any) -> None:
    layer, calls = lib.nn.Sigmoid(), []
    everywhere = of_all(lib)

    def noted(name: str) -> Any:
        return lambda *args: calls.append(name)

    handles = [
        everywhere.register_module_forward_pre_hook(noted("pre")),
        everywhere.register_module_forward_hook(noted("forward")),
        everywhere.register_module_full_backward_pre_hook(noted("back pre")),
        everywhere.register_module_full_backward_hook(noted("back")),
        layer.register_forward_pre_hook(noted("own pre")),
        layer.register_forward_hook(noted("own forward")),
        layer.register_full_backward_pre_hook(noted("own back pre")),
        layer.register_full_backward_hook(noted("own back")),
    ]
    layer(lib.ones(3, requires_grad=True)).sum().backward()
    assert calls == [
        "pre", "own pre", "forward", "own forward", "back pre", "own back pre", "back", "own back",
    ]  # fmt: skip
    for handle in handles:
        handle.remove()
    layer(lib.ones(3))
    assert len(calls) == 8


def test_common_hooks_may_answer(lib: Any) -> None:
    x = lib.tensor([0.5, -1.0], requires_grad=True)
    everywhere = of_all(lib)
    with everywhere.register_module_forward_pre_hook(lambda m, args: args[0] * 3):
        assert lib.equal(lib.nn.Identity()(x), x * 3)
    with everywhere.register_module_forward_hook(lambda m, args, out: -out):
        assert lib.equal(lib.nn.Identity()(x), -x)
    with everywhere.register_module_full_backward_hook(lambda m, inputs, outs: (inputs[0] * 5,)):
        (g,) = lib.autograd.grad(lib.nn.Sigmoid()(x).sum(), x)
    s = lib.sigmoid(x)
    assert lib.allclose(g, 5 * s * (1 - s))
    handle = everywhere.register_module_full_backward_hook(lambda m, inputs, outs: inputs[:-1])
    with handle, pytest.raises(RuntimeError, match="got 0, but expected 1"):
        lib.nn.Sigmoid()(x).sum().backward()


def test_common_hooks_with_keywords_and_after_failures(lib: Any) -> None:
    class Shift(lib.nn.Module):
        def forward(self, x: Any, by: Any = None) -> Any:
            if by is None:
                raise ValueError("by what")
            return x + by

    calls: list[Any] = []
    everywhere = of_all(lib)
    with everywhere.register_module_forward_hook(
        lambda m, args, kwargs, out: calls.append(sorted(kwargs)), with_kwargs=True
    ):
        Shift()(lib.ones(1), by=1)
    with everywhere.register_module_forward_hook(
        lambda m, args, out: calls.append(out), always_call=True
    ), pytest.raises(ValueError, match="by what"):  # fmt: skip
        Shift()(lib.ones(1))
    assert calls == [["by"], None]

    def fails(*args: Any) -> None:
        raise RuntimeError("failing in hook")

    layer = Shift()
    layer.register_forward_hook(fails, always_call=True)
    silenced = pytest.warns(UserWarning, match="that was silenced as another error was raised in")
    with silenced, pytest.raises(ValueError, match="by what"):
        layer(lib.ones(1))


def test_registration_hooks(lib: Any) -> None:
    seen: list[tuple[str, str]] = []
    everywhere, net = of_all(lib), lib.nn.Module()

    def noted(kind: str) -> Any:
        return lambda module, name, value: seen.append((kind, name))

    handles = [
        everywhere.register_module_buffer_registration_hook(noted("buffer")),
        everywhere.register_module_module_registration_hook(noted("module")),
        everywhere.register_module_parameter_registration_hook(noted("parameter")),
    ]
    net.register_buffer("a", lib.ones(1))
    net.b = lib.nn.ReLU()
    net.add_module("c", None)
    net.d = lib.nn.Parameter(lib.ones(1))
    net.register_parameter("e", None)
    for handle in handles:
        handle.remove()
    assert seen == [
        ("buffer", "a"), ("module", "b"), ("module", "c"), ("parameter", "d"),
    ]  # fmt: skip
    with everywhere.register_module_buffer_registration_hook(lambda m, name, b: b * 2):
        net.register_buffer("f", lib.ones(1))
    assert float(net.f) == 2


# The older hooks of gradients


def test_older_backward_hooks(lib: Any) -> None:
    layer, calls = lib.nn.Sigmoid(), []
    x = lib.tensor([0.5, -1.0], requires_grad=True)
    s = lib.sigmoid(x)

    def doubled(module: Any, inputs: Any, outputs: Any) -> Any:
        assert module is layer and lib.equal(outputs[0], lib.ones(2))
        calls.append(1)
        return tuple(g * 2 for g in inputs)

    layer.register_backward_hook(doubled)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (g,) = lib.autograd.grad(layer(x).sum(), x, lib.ones(()))
    assert calls == [1] and lib.allclose(g, 2 * s * (1 - s))


def test_hooks_of_two_kinds_do_not_mix(lib: Any) -> None:
    words = "Cannot use both regular backward hooks and full backward hooks on a single Module"
    layer = lib.nn.ReLU()
    layer.register_backward_hook(forgets)
    with pytest.raises(RuntimeError, match=words):
        layer.register_full_backward_hook(forgets)
    layer = lib.nn.ReLU()
    layer.register_full_backward_hook(forgets)
    with pytest.raises(RuntimeError, match=words):
        layer.register_backward_hook(forgets)


def test_older_hooks_say_what_they_miss(lib: Any) -> None:
    a, b = lib.ones(2, requires_grad=True), lib.ones(2, requires_grad=True)
    calls = [
        (lambda l: (l[0].clone(), l[1].clone()), ([a, b],), "does not take as input a single"),
        (lambda a, b: [a.clone(), b.clone()], (a, b), "does not return a single Tensor or a tup"),
        (lambda a, b: (a.clone(), b.clone()), (a, b), "are generated by different autograd Nodes"),
        (lambda a: a.clone().clone(), (a,), "the forward contains multiple autograd Nodes"),
    ]
    for forward, args, words in calls:
        layer = lib.nn.Module()
        layer.forward = forward
        layer.register_backward_hook(forgets)
        with pytest.warns(FutureWarning, match=words):
            layer(*args)


def test_a_module_keeps_its_hooks_as_they_are(lib: Any) -> None:
    """Programs look for their own among them, and whole modules in files bring them along."""
    module, hook = lib.nn.Linear(2, 2), print
    for register, options in (
        ("forward_pre_hook", {"with_kwargs": True}), ("forward_pre_hook", {}),
        ("forward_hook", {"with_kwargs": True, "always_call": True}), ("forward_hook", {}),
        ("full_backward_pre_hook", {}), ("full_backward_hook", {}),
    ):  # fmt: skip
        getattr(module, f"register_{register}")(hook, **options)
    for name, count in (
        ("forward_pre", 2), ("forward", 2), ("backward_pre", 1), ("backward", 1)
    ):  # fmt: skip
        assert [*getattr(module, f"_{name}_hooks").values()] == [hook] * count
    first = next(iter(module._forward_hooks))
    assert [*module._forward_hooks_with_kwargs] == [*module._forward_hooks_always_called] == [first]
    assert [*module._forward_pre_hooks_with_kwargs] == [next(iter(module._forward_pre_hooks))]
    assert module._is_full_backward_hook is True and lib.nn.ReLU()._is_full_backward_hook is None


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # PyTorch's own use of it
def test_backward_hooks_are_not_asked_for_tangents(lib: Any) -> None:
    """Nothing requires a gradient within `jvp` and `vmap`, so no node of theirs is made."""
    layer, seen = lib.nn.Linear(2, 2), []
    layer.register_full_backward_hook(lambda module, inputs, outputs: seen.append(inputs))
    layer.register_full_backward_pre_hook(lambda module, outputs: seen.append(outputs))
    x = lib.ones(3, 2)
    with lib.no_grad():
        want = x @ layer.weight.T
    for call in (lib.func.jvp(layer, (x,), (x,))[1], lib.func.vmap(layer)(x) - layer.bias):
        assert lib.allclose(call, want, atol=1e-5)
    assert lib.func.jacfwd(layer)(x).shape == (3, 2, 3, 2) and not seen
