"""Checks the optimizers: PyTorch's numbers, state that survives, and bad input named."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.optim import SGD, AdamW, Optimizer

SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.05}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.05}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05, "maximize": True}),
    ("Adam", {}),
    ("Adam", {"lr": 0.05, "betas": (0.8, 0.95), "weight_decay": 0.1, "amsgrad": True}),
    ("Adam", {"lr": 0.05, "weight_decay": 0.1, "maximize": True}),
    ("AdamW", {}),
    ("AdamW", {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}),
    ("AdamW", {"lr": 0.05, "amsgrad": True}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.0, "maximize": True}),
]
every_setting = pytest.mark.parametrize(
    "name, settings", SETTINGS, ids=[f"{n}-{'-'.join(s) or 'defaults'}" for n, s in SETTINGS]
)
SHAPES = [(3, 4), (5,), ()]


@pytest.fixture(scope="module")
def torch() -> Any:
    """PyTorch, past its first optimizer, which sets an environment variable for itself."""
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1).step()
    return torch


def start(lib: Any, dtype: str, device: str = "cpu") -> list[Any]:
    """The same parameters in cugrad and in torch."""
    rng = np.random.default_rng(1)
    params = []
    for shape in SHAPES:
        values = np.asarray(rng.standard_normal(shape) + 0.5j * rng.standard_normal(shape))
        values = (values if dtype.startswith("complex") else values.real).astype(dtype)
        params.append(lib.tensor(values, device=device).requires_grad_())
    return params


def set_gradients(lib: Any, params: list[Any], step: int) -> None:
    """A gradient for every parameter; now and then one has none, as an unused layer has."""
    rng = np.random.default_rng(100 + step)
    for position, param in enumerate(params):
        dtype = str(param.dtype).rpartition(".")[2]
        values = np.asarray(rng.standard_normal(param.shape)) * (1 + step % 3)
        if dtype.startswith("complex"):
            values = values + 1j * rng.standard_normal(param.shape)
        absent = position == 1 and step % 4 == 2
        value = lib.tensor(np.asarray(values).astype(dtype), device=param.device)
        param.grad = None if absent else value


def host(tensor: Any) -> Any:
    return tensor.detach().cpu().numpy()


@every_setting
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_ten_steps_equal_pytorch(
    name: str, settings: dict[str, Any], dtype: str, device: str, torch: Any
) -> None:
    ours, theirs = start(cugrad, dtype, device), start(torch, dtype)
    mine = getattr(cugrad.optim, name)(ours, **settings)
    other = getattr(torch.optim, name)(theirs, **settings)
    tight = 1e-6 if dtype == "float32" else 1e-13
    for step in range(10):
        set_gradients(cugrad, ours, step)
        set_gradients(torch, theirs, step)
        mine.step()
        other.step()
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(host(a), host(b), rtol=tight, atol=tight)
    mine_state, other_state = mine.state_dict(), other.state_dict()
    assert mine_state["state"].keys() == other_state["state"].keys()
    for number, entries in mine_state["state"].items():
        assert entries.keys() == other_state["state"][number].keys()
        for key, value in entries.items():
            wanted = host(other_state["state"][number][key])
            np.testing.assert_allclose(host(value), wanted, rtol=tight, atol=tight)


@every_setting
def test_gradients_are_left_as_they_were(name: str, settings: dict[str, Any], device: str) -> None:
    params = start(cugrad, "float32", device)
    optimizer = getattr(cugrad.optim, name)(params, **settings)
    for step in (0, 1):
        set_gradients(cugrad, params, step)
        before = [host(p.grad).copy() for p in params]
        optimizer.step()
        for param, wanted in zip(params, before, strict=True):
            np.testing.assert_array_equal(host(param.grad), wanted)


@every_setting
def test_a_step_raises_the_version(name: str, settings: dict[str, Any], device: str) -> None:
    w = cugrad.ones(3, device=device, requires_grad=True)
    optimizer = getattr(cugrad.optim, name)([w], **settings)
    loss = (w * w).sum()
    loss.backward(retain_graph=True)
    version = w._version
    optimizer.step()
    assert w._version > version
    with pytest.raises(RuntimeError, match="inplace operation"):
        loss.backward()


@every_setting
def test_state_dict_round_trip_goes_on_alike(
    name: str, settings: dict[str, Any], device: str
) -> None:
    ours = start(cugrad, "float64", device)
    first = getattr(cugrad.optim, name)(ours, **settings)
    for step in range(3):
        set_gradients(cugrad, ours, step)
        first.step()
    twins = [p.detach().clone().requires_grad_() for p in ours]
    second = getattr(cugrad.optim, name)(twins, lr=123.0)
    second.load_state_dict(first.state_dict())
    assert second.param_groups[0]["lr"] == first.param_groups[0]["lr"]
    for step in range(3, 6):
        for params, optimizer in ((ours, first), (twins, second)):
            set_gradients(cugrad, params, step)
            optimizer.step()
    for a, b in zip(ours, twins, strict=True):
        np.testing.assert_array_equal(host(a), host(b))


def test_loaded_state_takes_the_parameters_dtype_and_is_a_copy() -> None:
    source = [cugrad.ones(3, dtype=cugrad.float64, requires_grad=True)]
    optimizer = AdamW(source)
    source[0].sum().backward()
    optimizer.step()
    other = AdamW([cugrad.ones(3, requires_grad=True)])
    other.load_state_dict(optimizer.state_dict())
    (state,) = other.state.values()
    assert state["exp_avg"].dtype is cugrad.float32
    assert state["step"].item() == 1
    optimizer.step()
    assert state["step"].item() == 1


def test_groups_have_their_own_settings() -> None:
    a, b = (cugrad.ones(2, requires_grad=True) for _ in range(2))
    optimizer = SGD([{"params": [a]}, {"params": b, "lr": 0.5}], lr=0.1)
    (a.sum() + b.sum()).backward()
    optimizer.step()
    assert a[0].item() == pytest.approx(0.9) and b[0].item() == pytest.approx(0.5)


def test_named_parameters_keep_their_names() -> None:
    layer = cugrad.nn.Linear(2, 1)
    optimizer = SGD(layer.named_parameters(), lr=0.1)
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]
    with pytest.raises(ValueError, match="with/without names"):
        optimizer.add_param_group({"params": [cugrad.ones(1, requires_grad=True)]})


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad(set_to_none: bool) -> None:
    w = cugrad.ones(2, requires_grad=True)
    optimizer = SGD([w], lr=0.1)
    optimizer.zero_grad(set_to_none)
    assert w.grad is None
    (w * w).sum().backward(create_graph=True)
    optimizer.zero_grad(set_to_none)
    if set_to_none:
        assert w.grad is None
    else:
        assert w.grad.tolist() == [0.0, 0.0] and not w.grad.requires_grad


def test_closure_is_run_with_gradients_and_its_loss_returned() -> None:
    w = cugrad.ones(2, requires_grad=True)
    optimizer = SGD([w], lr=0.25)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    with cugrad.no_grad():
        assert optimizer.step(closure).item() == 2.0
    assert w.tolist() == [0.5, 0.5]


def test_repr_is_pytorchs(torch: Any) -> None:
    ours = repr(SGD([cugrad.ones(1, requires_grad=True)], lr=0.5))
    theirs = repr(torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.5))
    assert ours == theirs


BAD: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    (SGD, {"lr": -1.0}, ValueError, "Invalid learning rate: -1.0"),
    (SGD, {"momentum": -0.5}, ValueError, "Invalid momentum value: -0.5"),
    (SGD, {"weight_decay": -0.5}, ValueError, "Invalid weight_decay value: -0.5"),
    (SGD, {"nesterov": True}, ValueError, "Nesterov momentum requires a momentum and zero"),
    (SGD, {"lr": cugrad.tensor([0.1, 0.2])}, ValueError, "Tensor lr must be 1-element"),
    (SGD, {"momentum": cugrad.tensor(0.1)}, TypeError, "got a Tensor, want a Python number"),
    (SGD, {"fused": True, "foreach": True}, RuntimeError, "cannot be `True` together"),
    (SGD, {"fused": True, "differentiable": True}, RuntimeError, "does not support `differen"),
    (SGD, {"fused": 1}, TypeError, "fused must be a bool or None, not int"),
    (AdamW, {"capturable": True}, NotImplementedError, "CUDA graphs are not captured yet"),
    (AdamW, {"lr": -1.0}, ValueError, "Invalid learning rate: -1.0"),
    (AdamW, {"lr": float("nan")}, ValueError, "Invalid learning rate: nan"),
    (AdamW, {"eps": -1.0}, ValueError, "Invalid epsilon value: -1.0"),
    (AdamW, {"betas": (1.0, 0.9)}, ValueError, "Invalid beta parameter at index 0: 1.0"),
    (AdamW, {"betas": (0.9, -0.1)}, ValueError, "Invalid beta parameter at index 1: -0.1"),
    (AdamW, {"weight_decay": -0.5}, ValueError, "Invalid weight_decay value: -0.5"),
]


@pytest.mark.parametrize("cls, settings, error, message", BAD)
def test_bad_settings(cls: Any, settings: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        cls([cugrad.ones(1, requires_grad=True)], **settings)


def test_bad_parameters() -> None:
    w = cugrad.ones(1, requires_grad=True)
    for params, error, message in [
        (w, TypeError, "iterable of Tensors or dicts, but got"),
        ([], ValueError, "optimizer got an empty parameter list"),
        ([1.0], TypeError, "optimizer can only optimize Tensors, but one of the params is float"),
        ([w * 2], ValueError, "can't optimize a non-leaf Tensor"),
        ([{"params": {w}}], TypeError, "ordered collections"),
        ([{"params": [w]}, {"params": [w]}], ValueError, "more than one parameter group"),
        ([("w", w), w], ValueError, "Some param names are missing"),
    ]:
        with pytest.raises(error, match=re.escape(message)):
            SGD(params, lr=0.1)
    with pytest.raises(TypeError, match="param_group must be a dict"):
        SGD([w], lr=0.1).add_param_group([w])  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="duplicate parameters"):
        SGD([w, w], lr=0.1)


def test_loading_a_state_that_does_not_fit() -> None:
    a, b = (cugrad.ones(2, requires_grad=True) for _ in range(2))
    saved = SGD([a], lr=0.1).state_dict()
    with pytest.raises(ValueError, match="different number of parameter groups"):
        SGD([{"params": [a]}, {"params": [b]}], lr=0.1).load_state_dict(saved)
    with pytest.raises(ValueError, match="doesn't match the size of optimizer's group"):
        SGD([a, b], lr=0.1).load_state_dict(saved)


def test_a_subclass_writes_update_only() -> None:
    class Sign(Optimizer):
        def _update(self, params: list[Any], group: dict[str, Any]) -> None:
            for param in params:
                param.sub_(param.grad.sign() * group["lr"])

    w = cugrad.ones(2, requires_grad=True)
    optimizer = Sign([w], {"lr": 0.5})
    (w * 3).sum().backward()
    optimizer.step()
    assert w.tolist() == [0.5, 0.5]
