"""The ways of a step: signatures and saved keys are PyTorch's, recorded steps, hooks, files."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
from typing import Any

import numpy as np
import pytest

import cugrad
from tests.optim.test_optimizers import SETTINGS, every_setting, host, set_gradients, start, torch

__all__ = ["torch"]
NAMES = ("SGD", "Adam", "AdamW")


@pytest.mark.parametrize("name", NAMES)
def test_arguments_and_saved_keys_are_pytorch_s(name: str, torch: Any) -> None:
    ours, theirs = (getattr(lib.optim, name) for lib in (cugrad, torch))
    want = inspect.signature(theirs).parameters
    got = inspect.signature(ours).parameters
    assert [(p.name, p.default, p.kind) for p in got.values()] == [
        (p.name, p.default, p.kind) for p in want.values()
    ]
    groups = [opt([lib.ones(1, requires_grad=True)]).state_dict()["param_groups"]
              for opt, lib in ((ours, cugrad), (theirs, torch))]  # fmt: skip
    assert groups[0] == groups[1] and list(groups[0][0]) == list(groups[1][0])


@pytest.mark.parametrize("way", [{"foreach": True}, {"foreach": False}, {"fused": True},
                                 {"fused": False}, {"foreach": False, "fused": True},
                                 {"lr": "tensor"}])  # fmt: skip
@pytest.mark.parametrize("name", NAMES)
def test_each_way_gives_the_same_bits(name: str, way: dict[str, Any], device: str) -> None:
    results = []
    for settings in ({"lr": 0.125}, {"lr": 0.125, **way}):
        if settings["lr"] == "tensor":
            settings["lr"] = cugrad.tensor([0.125], device=device)
        params = start(cugrad, "float32", device)
        optimizer = getattr(cugrad.optim, name)(params, **settings)
        for step in range(3):
            set_gradients(cugrad, params, step)
            optimizer.step()
        results.append([host(p).tolist() for p in params])
    assert results[0] == results[1]


@every_setting
@pytest.mark.parametrize(("dtype", "device"), [("float64", "simulated"), ("complex128", "cpu")])
def test_a_recorded_step_is_the_step_and_its_derivative(
    name: str, settings: dict[str, Any], dtype: str, device: str
) -> None:
    kind = getattr(cugrad, dtype)
    generator = cugrad.Generator(device=device).manual_seed(3)
    drawn = cugrad.randn(4, 3, dtype=kind, device=device, generator=generator)
    first, *grads = [x.clone().requires_grad_() for x in drawn]
    rate = cugrad.tensor(settings.get("lr", 1e-3), dtype=cugrad.float64, device=device)

    def steps(first: Any, rate: Any, *grads: Any, differentiable: bool = True) -> Any:
        param = first.clone() if differentiable else first.detach().clone().requires_grad_()
        if differentiable:
            param.retain_grad()
        given = {**settings, "lr": rate}
        opt = getattr(cugrad.optim, name)([param], **given, differentiable=differentiable)
        for grad in grads:
            param.grad = grad
            opt.step()
        return param

    plain = steps(first, rate, *grads, differentiable=False)
    recorded = steps(first, rate, *grads)
    np.testing.assert_allclose(host(recorded), host(plain), rtol=1e-12)
    assert cugrad.autograd.gradcheck(steps, (first, rate.requires_grad_(), *grads))


@every_setting
def test_checkpoints_go_both_ways(name: str, settings: dict[str, Any], torch: Any) -> None:
    """Half of the steps in one library, half in the other, through a file."""
    whole = start(cugrad, "float64")
    wanted = getattr(cugrad.optim, name)(whole, **settings)
    for step in range(6):
        set_gradients(cugrad, whole, step)
        wanted.step()
    for a, b in ((cugrad, torch), (torch, cugrad)):
        params = start(a, "float64")
        optimizer = getattr(a.optim, name)(params, **settings)
        for step in range(3):
            set_gradients(a, params, step)
            optimizer.step()
        file = io.BytesIO()
        a.save({"params": params, "optimizer": optimizer.state_dict()}, file)
        loaded = b.load(io.BytesIO(file.getvalue()))
        params = [p.detach().requires_grad_() for p in loaded["params"]]
        optimizer = getattr(b.optim, name)(params)
        optimizer.load_state_dict(loaded["optimizer"])
        for step in range(3, 6):
            set_gradients(b, params, step)
            optimizer.step()
        for got, want in zip(params, whole, strict=True):
            np.testing.assert_allclose(host(got), host(want), rtol=1e-12)


def test_an_old_checkpoint_gets_what_it_lacks() -> None:
    w = cugrad.ones(2, requires_grad=True)
    optimizer = cugrad.optim.Adam([w])
    w.grad = cugrad.ones(2)
    optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    for key in ("maximize", "fused", "differentiable", "decoupled_weight_decay"):
        del saved["param_groups"][0][key]
    saved["state"][0]["step"] = 1
    twin = w.detach().clone().requires_grad_()
    other = cugrad.optim.Adam([twin])
    other.load_state_dict(saved)
    for param, each in ((w, optimizer), (twin, other)):
        param.grad = cugrad.ones(2)
        each.step()
    assert w.tolist() == twin.tolist()


def test_hooks_run_around_steps_saves_and_loads(torch: Any) -> None:
    told = []
    for lib in (cugrad, torch):
        said: list[Any] = []
        w = lib.ones(2, requires_grad=True)
        opt = lib.optim.SGD([w], lr=0.5)

        def note(word: str, said: list[Any] = said) -> Any:
            return lambda *args: said.append((word, len(args)))

        opt.register_step_pre_hook(note("before"))
        handle = opt.register_step_post_hook(note("after"))
        opt.register_state_dict_pre_hook(note("save"))
        opt.register_state_dict_pre_hook(note("save first"), prepend=True)
        opt.register_state_dict_post_hook(lambda opt, saved: {**saved, "more": 1})
        opt.register_load_state_dict_pre_hook(note("load"))
        opt.register_load_state_dict_post_hook(note("loaded"))
        opt.step()
        opt.load_state_dict(opt.state_dict())
        handle.remove()
        opt.step(note("closure"))
        said.append(sorted(opt.state_dict()))
        told.append(said)
    assert told[0] == told[1]


def test_a_hook_may_change_the_arguments_and_an_error_leaves_no_trace() -> None:
    w = cugrad.ones(2, requires_grad=True)
    opt = cugrad.optim.SGD([w], lr=0.5)
    handle = opt.register_step_pre_hook(lambda opt, args, kwargs: ((lambda: 7.0,), {}))
    assert opt.step() == 7.0
    handle.remove()
    opt.register_step_pre_hook(lambda opt, args, kwargs: 3)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="must return None or a tuple"):
            opt.step()


class Twice(cugrad.optim.SGD):
    """A user's step that calls super's: hooks run once."""

    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        return super().step()


def test_a_step_of_a_user_s_class_is_hooked_once_and_pickled() -> None:
    w = cugrad.ones(2, requires_grad=True)
    opt = Twice([w], lr=0.25)
    calls: list[int] = []
    opt.register_step_post_hook(lambda *args: calls.append(1))
    w.grad = cugrad.ones(2)
    opt.step()
    assert calls == [1] and w.tolist() == [0.5, 0.5]
    other = pickle.loads(pickle.dumps(opt))
    other.step()
    assert calls == [1] and other.param_groups[0]["params"][0].tolist() == [0.5, 0.5]


def test_fused_wants_real_floating_point() -> None:
    with pytest.raises(RuntimeError, match="requires all the params to be floating point"):
        cugrad.optim.Adam([cugrad.ones(1, dtype=cugrad.complex64, requires_grad=True)], fused=True)


def test_all_of_pytorch_s_settings_are_tried() -> None:
    assert {name for name, _ in SETTINGS} == set(NAMES)
