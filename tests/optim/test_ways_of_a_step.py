"""The ways of a step: PyTorch's signatures, equal ways, recorded steps, steps that read nothing."""

from __future__ import annotations

import importlib
import inspect
from functools import partial
from typing import Any

import numpy as np
import pytest

import cugrad
from tests.optim.settings import EACH, IDS, NAMES, REAL, SETTINGS
from tests.optim.starts import host, set_gradients, start, worst

every_name = pytest.mark.parametrize("name", NAMES)
RECORDED = [
    pytest.param(name, settings, "float64", id=i)
    for i, (name, settings) in zip(IDS, SETTINGS, strict=True)
    if name not in REAL
]
RECORDED += [pytest.param(name, EACH[name][1], "complex128", id=f"complex-{name}")
             for name in NAMES if name not in REAL]  # fmt: skip
FILES = {"Adafactor": "_adafactor", "Muon": "_muon"}
CAPTURABLE = ["ASGD", "Adadelta", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop"]


@pytest.mark.parametrize("name", [*NAMES, "LBFGS", "SparseAdam"])
def test_arguments_and_saved_keys_are_pytorch_s(name: str, torch: Any) -> None:
    want, got = (inspect.signature(getattr(lib.optim, name)).parameters for lib in (torch, cugrad))
    assert [(p.name, p.default, p.kind) for p in got.values()] == [
        (p.name, p.default, p.kind) for p in want.values()
    ]
    groups = []
    for lib in (cugrad, torch):
        optimizer = getattr(lib.optim, name)([lib.ones(1, 1, requires_grad=True)])
        groups.append(optimizer.state_dict()["param_groups"])
    assert groups[0] == groups[1] and list(groups[0][0]) == list(groups[1][0])


@every_name
def test_functions_take_pytorch_s_arguments(name: str) -> None:
    file = FILES.get(name, name.lower())
    theirs = pytest.importorskip(f"torch.optim.{file}", reason="PyTorch is not installed")
    ours = importlib.import_module(f"cugrad.optim.{file}")
    want, got = (inspect.signature(getattr(lib, name.lower())).parameters for lib in (theirs, ours))
    assert [(p.name, p.kind) for p in got.values()] == [(p.name, p.kind) for p in want.values()]


@every_name
def test_each_way_gives_the_same_bits(name: str, device: str) -> None:
    names = inspect.signature(getattr(cugrad.optim, name)).parameters
    ways: list[dict[str, Any]] = [{}, {"lr": cugrad.tensor([0.125], device=device)}]
    if "foreach" in names:
        ways += [{"foreach": True}, {"foreach": False}]
    if "fused" in names:
        ways += [{"fused": True}, {"fused": False}, {"foreach": False, "fused": True}]
    results = []
    for way in ways:
        params = start(cugrad, name, "float32", device)
        optimizer = getattr(cugrad.optim, name)(params, **{"lr": 0.125, **way})
        for step in range(3):
            set_gradients(cugrad, params, step)
            optimizer.step()
        results.append([host(p).tolist() for p in params])
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize("name", CAPTURABLE)
def test_a_capturable_step_keeps_its_count_on_the_device(name: str) -> None:
    """And reads nothing from there; on the host it is PyTorch's error."""
    results = []
    for capturable in (False, True):
        params = start(cugrad, name, "float32", "simulated")
        lr = cugrad.tensor(0.0625, device="simulated") if capturable else 0.0625
        optimizer = getattr(cugrad.optim, name)(params, lr=lr, capturable=capturable)
        for step in range(8):
            set_gradients(cugrad, params, step)
            optimizer.step()
        results.append(params)
    devices = {state["step"].device.type for state in optimizer.state.values()}
    assert devices == {"simulated"}
    for a, b in zip(*results, strict=True):
        assert worst(a, b) < 1e-6
    w = cugrad.ones(2, requires_grad=True)
    w.grad = cugrad.ones(2)
    with pytest.raises(AssertionError, match="must be on supported devices"):
        getattr(cugrad.optim, name)([w], capturable=True).step()


def taken(lib: Any, name: str, settings: Any, first: Any, rate: Any, grads: Any, **way: Any) -> Any:
    """A parameter after a step for each gradient, in which all may require gradients."""
    param = first.clone() if way.get("differentiable") else first.detach().clone().requires_grad_()
    optimizer = getattr(lib.optim, name)([param], **{**settings, "lr": rate}, **way)
    for grad in grads:
        param.grad = grad
        optimizer.step()
    return param


def recorded(name: str, settings: dict[str, Any], dtype: str, device: str) -> tuple[Any, Any]:
    """Two steps as a function, the same as those of no record, and what it takes."""
    generator = cugrad.Generator(device="cpu").manual_seed(3)
    drawn = cugrad.randn(3, 2, dtype=getattr(cugrad, dtype), device="cpu", generator=generator)
    first, *grads = [x.clone().requires_grad_() for x in drawn.to(device)]
    rate = cugrad.tensor(settings.get("lr", 1e-3), dtype=cugrad.float64, device=device)
    begins = name in ("ASGD", "Rprop")  # a number begins the state
    lr = rate.item() if begins else rate.requires_grad_()

    def steps(first: Any, *rest: Any) -> Any:
        rate, grads = (lr, rest) if begins else (rest[0], rest[1:])
        return taken(cugrad, name, settings, first, rate, grads, differentiable=True)

    inputs = (first, *grads) if begins else (first, lr, *grads)
    plain = taken(cugrad, name, settings, first, rate.item(), grads)
    np.testing.assert_allclose(host(steps(*inputs)), host(plain), rtol=1e-6, atol=1e-9)
    return steps, inputs


@pytest.mark.parametrize(("name", "settings", "dtype"), RECORDED)
def test_a_recorded_step_is_the_step_and_its_derivative(
    name: str, settings: dict[str, Any], dtype: str
) -> None:
    """On the host; on a device it is the same, and its derivative is."""
    steps, inputs = recorded(name, settings, dtype, "cpu")
    assert cugrad.autograd.gradcheck(steps, inputs)
    found = []
    for device in ("cpu", "simulated"):
        steps, inputs = recorded(name, settings, dtype, device)
        grads = cugrad.autograd.grad(steps(*inputs).abs().sum(), inputs)
        assert {g.device.type for g in grads} == {device}
        found.append([host(g) for g in grads])
    for got, want in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in REAL])
def test_derivatives_of_a_recorded_step_are_pytorch_s(
    name: str, torch: Any, request: pytest.FixtureRequest
) -> None:
    """Of parameters, gradients and states, from the sixth step on."""
    settings = EACH[name][1 if name == "ASGD" else -1]  # whose average PyTorch cannot follow
    found = []
    for lib in (torch, cugrad):
        request.addfinalizer(partial(lib.set_default_dtype, lib.get_default_dtype()))
        lib.set_default_dtype(lib.float64)  # that of the counts of steps
        rng = np.random.default_rng(5)
        leaf, first, grad = [lib.tensor(rng.standard_normal(3)).requires_grad_() for _ in range(3)]
        plain = getattr(lib.optim, name)([leaf], **settings)
        for _ in range(6):
            leaf.grad = lib.cos(leaf.detach())
            plain.step()
        states = {key: value.clone() for key, value in plain.state[leaf].items()}
        inputs = [t.requires_grad_() for t in states.values() if t.dim()]
        param = first.clone()
        optimizer = getattr(lib.optim, name)([param], differentiable=True, **settings)
        optimizer.state[param].update({key: t.clone() for key, t in states.items()})
        param.grad = grad
        optimizer.step()
        outputs = [param, *[t for t in optimizer.state[param].values() if t.requires_grad]]
        loss = sum((t * lib.arange(1.0, 4.0)).sum() for t in outputs)
        found.append([host(g) for g in lib.autograd.grad(loss, [first, grad, *inputs])])
    for wanted, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-12)


def test_settings_that_are_tensors_have_derivatives() -> None:
    x, y = (cugrad.tensor([1.0, -2.0, 3.0], dtype=cugrad.float64) * s for s in (1.0, 0.3))

    def steps(lr: Any, decay: Any, beta1: Any, beta2: Any) -> Any:
        param = x.clone()
        optimizer = cugrad.optim.Adam([param], lr=lr, weight_decay=decay, betas=(beta1, beta2),
                                      differentiable=True)  # fmt: skip
        for _ in range(2):
            param.grad = y
            optimizer.step()
        return param

    values = [
        cugrad.tensor(v, dtype=cugrad.float64, requires_grad=True) for v in (0.1, 0.2, 0.9, 0.99)
    ]
    assert cugrad.autograd.gradcheck(steps, values)


def test_a_recorded_step_changes_the_tensors_of_its_state() -> None:
    param = cugrad.ones(2, requires_grad=True).clone()
    optimizer = cugrad.optim.Adam([param], amsgrad=True, differentiable=True)
    param.grad = cugrad.ones(2, requires_grad=True)
    optimizer.step()
    before = dict(optimizer.state[param])
    optimizer.step()
    assert all(before[key] is value for key, value in optimizer.state[param].items())
    optimizer.state[param]["step"] = cugrad.tensor(1.0, requires_grad=True)
    with pytest.raises(RuntimeError, match="`requires_grad` is not supported for `step`"):
        optimizer.step()


def test_a_leaf_is_not_changed_by_a_recorded_step() -> None:
    w = cugrad.ones(2, requires_grad=True)
    w.grad = cugrad.ones(2)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        cugrad.optim.SGD([w], differentiable=True).step()


def test_an_update_is_text_with_few_temporaries() -> None:
    """Of most rules one scratch array is all that a step needs."""
    from cugrad.optim.adam import adam_rule

    settings = {"lr": 0.1, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": None,
                "decoupled": False, "amsgrad": False, "maximize": False}  # fmt: skip
    form = adam_rule.form((False, False, True), settings)
    assert form.program.scratch == 1
    assert form.arrays == ["param", "grad", "exp_avg", "exp_avg_sq"]
    assert form is adam_rule.form((False, False, True), {**settings, "lr": 0.2})


def test_a_rule_may_not_ask_for_a_value() -> None:
    from cugrad.optim.rules import advance, rule

    @rule()
    def asking(m: Any, param: Any, grad: Any, *, lr: Any) -> dict[str, Any]:
        return {"param": param - lr * grad if lr > 0.1 else param}

    w = cugrad.ones(2)
    with pytest.raises(TypeError, match=r"m\.where"):
        advance(asking, [w], [w.clone()], {}, {"lr": 0.5})
