"""Checks the optimizers: PyTorch's numbers, and a step that changes what it should and no more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.optim.rules.blocks import BLOCK
from tests.optim.settings import EACH, IDS, NAMES, REAL, ROUGH, SETTINGS
from tests.optim.starts import host, set_gradients, start, worst

every_setting = pytest.mark.parametrize(("name", "settings"), SETTINGS, ids=IDS)
every_name = pytest.mark.parametrize("name", NAMES)
EVERY = [pytest.param(name, settings, dtype, id=f"{i}-{dtype}")
         for i, (name, settings) in zip(IDS, SETTINGS, strict=True)
         for dtype in ("float32", "float64", "complex128")
         if not (name in REAL and dtype == "complex128")]  # fmt: skip
TIGHT = {"float32": 1e-6, "float64": 1e-12, "complex128": 1e-12, "float16": 2e-2, "bfloat16": 8e-2}


def compared(torch: Any, name: str, settings: Any, dtype: str, steps: int, device: str) -> Any:
    """Both optimizers after some steps, whose parameters and states are alike."""
    ours, theirs = start(cugrad, name, dtype, device), start(torch, name, dtype)
    mine = getattr(cugrad.optim, name)(ours, **settings)
    other = getattr(torch.optim, name)(theirs, **settings)
    tight = max(TIGHT[dtype], 2e-3 if name in ROUGH else 0.0)
    for step in range(steps):
        set_gradients(cugrad, ours, step)
        set_gradients(torch, theirs, step)
        mine.step()
        other.step()
        differences = [worst(a, b) for a, b in zip(ours, theirs, strict=True)]
        assert max(differences) < tight, (step, differences)
    return mine, other, tight


@pytest.mark.parametrize(("name", "settings", "dtype"), EVERY)
def test_steps_equal_pytorch(name: str, settings: dict[str, Any], dtype: str, torch: Any) -> None:
    steps = 8 if dtype == "complex128" else 20
    mine, other, tight = compared(torch, name, settings, dtype, steps, "cpu")
    mine_state, other_state = mine.state_dict(), other.state_dict()
    assert list(mine_state["state"]) == list(other_state["state"])
    for number, entries in mine_state["state"].items():
        wanted = other_state["state"][number]
        assert list(entries) == list(wanted)
        for key, value in entries.items():
            assert str(value.dtype) == str(wanted[key].dtype)
            assert tuple(value.shape) == tuple(wanted[key].shape)
            assert worst(value, wanted[key]) < tight, key
    assert mine_state["param_groups"] == other_state["param_groups"]
    assert [list(g) for g in mine.param_groups] == [list(g) for g in other.param_groups]


@every_setting
def test_steps_on_a_device_equal_those_on_the_host(
    name: str, settings: dict[str, Any], torch: Any
) -> None:
    compared(torch, name, settings, "float32", 4, "simulated")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "Rprop"])  # steps by signs
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_as_near_as_its_rounding(name: str, dtype: str, torch: Any) -> None:
    settings = {} if name == "Adafactor" else {**EACH[name][0], "lr": 0.05}
    compared(torch, name, settings, dtype, 5, "cpu")


@every_name
def test_large_parameters_are_updated_as_small_ones(name: str, torch: Any) -> None:
    """By blocks, the last of which is shorter; and where memory has gaps or another order."""
    side = int((BLOCK / 4 * 2.3) ** 0.5)
    values = np.random.default_rng(0).standard_normal((side, side)).astype("float32")
    slow = name in (*REAL, "LBFGS")
    values = values[:9, :5] if slow else values
    results = []
    for lib in (torch, cugrad):
        params = [lib.tensor(values), lib.tensor(values).T, lib.tensor(values)[::2, ::2]]
        params = [param.detach().requires_grad_() for param in params]
        optimizer = getattr(lib.optim, name)(params)
        for _ in range(2):
            for param in params:
                param.grad = lib.tensor(np.cos(host(param)))
            optimizer.step()
        results.append([host(param) for param in params])
    for wanted, got in zip(*results, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-3 if name in ROUGH else 1e-5, atol=1e-6)


@every_setting
def test_gradients_are_left_as_they_were(name: str, settings: dict[str, Any], device: str) -> None:
    params = start(cugrad, name, "float32", device)
    optimizer = getattr(cugrad.optim, name)(params, **settings)
    for step in (0, 1):
        set_gradients(cugrad, params, step)
        before = [host(p.grad).copy() for p in params]
        optimizer.step()
        for param, wanted in zip(params, before, strict=True):
            np.testing.assert_array_equal(host(param.grad), wanted)


@every_name
def test_a_step_raises_versions(name: str, device: str) -> None:
    w = cugrad.ones(3, 3, device=device, requires_grad=True)
    optimizer = getattr(cugrad.optim, name)([w])
    loss = (w * w).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    states = [t for t in optimizer.state[w].values() if t.dim()]
    before = [w._version, *(state._version for state in states)]
    optimizer.step()
    after = [w._version, *(state._version for state in states)]
    assert all(b > a for a, b in zip(before, after, strict=True))
    with pytest.raises(RuntimeError, match="inplace operation"):
        loss.backward()


@every_name
def test_all_groups_have_their_settings_and_device(name: str) -> None:
    """Parameters of two devices in one optimizer, as in one for each."""
    results = []
    for together in (True, False):
        params = [start(cugrad, name, "float64", device)[0] for device in ("cpu", "simulated")]
        groups = [{"params": [params[0]]}, {"params": [params[1]], "lr": 0.5}]
        make = getattr(cugrad.optim, name)
        optimizers = [make(groups)] if together else [make([group]) for group in groups]
        for param in params:
            param.grad = param.detach().cos()
        for optimizer in optimizers:
            optimizer.step()
        results.append([host(param) for param in params])
    np.testing.assert_array_equal(results[0], results[1])


@every_name
def test_scaled_losses_train_as_others(name: str) -> None:
    """GradScaler: the same steps, none for a gradient that overflowed."""
    results = []
    for scaled in (True, False):
        (w, *_) = start(cugrad, name, "float32")
        optimizer = getattr(cugrad.optim, name)([w], lr=0.125)
        scaler = cugrad.amp.GradScaler("cpu", init_scale=1024.0, enabled=scaled)
        for factor in (1.0, float("inf"), 2.0):
            if factor == float("inf") and not scaled:
                continue
            optimizer.zero_grad()
            scaler.scale((w * w).sum() * factor).backward()
            scaler.step(optimizer)
            scaler.update()
        results.append(host(w))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)


@pytest.mark.parametrize("name", ["Adagrad", "Adam", "AdamW", "SGD"])
def test_a_fused_step_unscales_and_may_not_take_place(name: str) -> None:
    plain, fused = (cugrad.ones(3, requires_grad=True) for _ in range(2))
    optimizer = getattr(cugrad.optim, name)([fused], lr=0.1, fused=True)
    optimizer.grad_scale, optimizer.found_inf = cugrad.tensor(8.0), cugrad.tensor(1.0)
    fused.grad = cugrad.ones(3) * 16
    optimizer.step()
    assert fused.tolist() == [1.0, 1.0, 1.0]
    assert all(s["step"].item() == 0 for s in optimizer.state.values() if "step" in s)
    optimizer.found_inf = cugrad.tensor(0.0)
    optimizer.step()
    plain.grad = cugrad.ones(3) * 2
    getattr(cugrad.optim, name)([plain], lr=0.1).step()
    assert fused.tolist() == plain.tolist() and fused.grad.tolist() == plain.grad.tolist()


def test_sparse_adam_says_that_gradients_are_dense() -> None:
    w = cugrad.ones(2, requires_grad=True)
    optimizer = cugrad.optim.SparseAdam([w])
    assert optimizer.step(lambda: 7) == 7
    w.grad = cugrad.ones(2)
    with pytest.raises(RuntimeError, match="does not support dense gradients, please consider Ad"):
        optimizer.step()


@every_name
def test_settings_of_other_optimizers_are_left_alone(lib: Any, name: str) -> None:
    """A loop may write the settings of one into the groups of all."""
    others = {"betas": (0.5, 0.6), "etas": (0.5, 1.2), "step_sizes": (0.1, 1.0), "momentum": 0.5}
    results = []
    for extra in (False, True):
        params = start(lib, name, "float32")
        optimizer = getattr(lib.optim, name)(params)
        if extra:
            for group in optimizer.param_groups:
                group.update({k: v for k, v in others.items() if k not in optimizer.defaults})
        for step in range(2):
            set_gradients(lib, params, step)
            optimizer.step()
        results.append([host(p).tolist() for p in params])
    assert results[0] == results[1]


LATER = [("Adam", "amsgrad", True), ("AdamW", "amsgrad", True), ("RMSprop", "momentum", 0.5),
         ("RMSprop", "centered", True)]  # fmt: skip


@pytest.mark.parametrize("name, setting, value", LATER, ids=str)
def test_a_state_that_a_setting_asks_for_later_is_named(
    lib: Any, name: str, setting: str, value: Any
) -> None:
    w = lib.ones(2, requires_grad=True)
    optimizer = getattr(lib.optim, name)([w], lr=0.25)
    w.grad = lib.ones(2)
    optimizer.step()
    optimizer.param_groups[0][setting] = value
    before = w.tolist()
    with pytest.raises(KeyError, match="max_exp_avg_sq|momentum_buffer|grad_avg"):
        optimizer.step()
    assert w.tolist() == before
    optimizer.state.clear()  # each begins anew
    optimizer.step()


def test_closure_is_run_with_gradients_and_its_loss_returned() -> None:
    w = cugrad.ones(2, requires_grad=True)
    optimizer = cugrad.optim.SGD([w], lr=0.25)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    with cugrad.no_grad():
        assert optimizer.step(closure).item() == 2.0
    assert w.tolist() == [0.5, 0.5]
