"""What an optimizer remembers: groups, state dicts that go to PyTorch and back, copies, hooks."""

from __future__ import annotations

import copy
import importlib
import io
import pickle
import re
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.optim import SGD, Adam, Optimizer
from cugrad.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
    required,
)
from tests.optim.settings import EACH, IDS, NAMES, ROUGH, SETTINGS
from tests.optim.starts import host, set_gradients, start

every_setting = pytest.mark.parametrize(("name", "settings"), SETTINGS, ids=IDS)
every_name = pytest.mark.parametrize("name", NAMES)


def run(lib: Any, params: list[Any], optimizer: Any, steps: Any) -> None:
    for step in steps:
        set_gradients(lib, params, step)
        optimizer.step()


@every_setting
def test_checkpoints_go_both_ways(name: str, settings: dict[str, Any], torch: Any) -> None:
    """Half of the steps in one library, half in the other, through a file."""
    whole = start(cugrad, name, "float64")
    run(cugrad, whole, getattr(cugrad.optim, name)(whole, **settings), range(6))
    for a, b in ((cugrad, torch), (torch, cugrad)):
        params = start(a, name, "float64")
        optimizer = getattr(a.optim, name)(params, **settings)
        run(a, params, optimizer, range(3))
        file = io.BytesIO()
        a.save({"params": params, "optimizer": optimizer.state_dict()}, file)
        loaded = b.load(io.BytesIO(file.getvalue()))
        params = [p.detach().requires_grad_() for p in loaded["params"]]
        optimizer = getattr(b.optim, name)(params)
        optimizer.load_state_dict(loaded["optimizer"])
        run(b, params, optimizer, range(3, 6))
        tight = 1e-3 if name in ROUGH else 1e-6 if name in ("ASGD", "NAdam") else 1e-12
        for got, want in zip(params, whole, strict=True):
            np.testing.assert_allclose(host(got), host(want), rtol=tight)


@every_name
@pytest.mark.parametrize("way", ["state_dict", "pickle", "deepcopy"])
def test_a_copy_goes_on_as_its_original(name: str, way: str, device: str) -> None:
    settings = EACH[name][-1]
    ours = start(cugrad, name, "float32", device)
    first = getattr(cugrad.optim, name)(ours, **settings)
    run(cugrad, ours, first, range(3))
    if way == "state_dict":
        twins = [p.detach().clone().requires_grad_() for p in ours]
        second = getattr(cugrad.optim, name)(twins, lr=123.0)
        second.load_state_dict(first.state_dict())
    else:
        second = copy.deepcopy(first) if way == "deepcopy" else pickle.loads(pickle.dumps(first))
        twins = second.param_groups[0]["params"]
    assert second.param_groups[0].get("lr") == first.param_groups[0].get("lr")
    run(cugrad, ours, first, range(3, 6))
    run(cugrad, twins, second, range(3, 6))
    for a, b in zip(ours, twins, strict=True):
        np.testing.assert_array_equal(host(a), host(b))


@every_name
def test_an_old_checkpoint_gets_what_it_lacks(name: str) -> None:
    params = start(cugrad, name, "float32")
    optimizer = getattr(cugrad.optim, name)(params)
    run(cugrad, params, optimizer, range(2))
    saved = copy.deepcopy(optimizer.state_dict())
    for key in ("maximize", "fused", "foreach", "differentiable", "capturable",
                "decoupled_weight_decay"):  # fmt: skip
        saved["param_groups"][0].pop(key, None)
    for state in saved["state"].values():
        for key in ("step", "eta", "mu", "mu_product"):
            if key in state:
                state[key] = state[key].item()
    twins = [p.detach().clone().requires_grad_() for p in params]
    other = getattr(cugrad.optim, name)(twins)
    other.load_state_dict(saved)
    assert other.param_groups[0].keys() == optimizer.param_groups[0].keys()
    run(cugrad, params, optimizer, range(2, 4))
    run(cugrad, twins, other, range(2, 4))
    for a, b in zip(params, twins, strict=True):
        np.testing.assert_allclose(host(a), host(b), rtol=1e-6)


def test_loaded_state_takes_the_parameters_dtype_and_is_a_copy() -> None:
    source = [cugrad.ones(3, dtype=cugrad.float64, requires_grad=True)]
    optimizer = Adam(source)
    source[0].sum().backward()
    optimizer.step()
    other = Adam([cugrad.ones(3, requires_grad=True)])
    other.load_state_dict(optimizer.state_dict())
    (state,) = other.state.values()
    assert state["exp_avg"].dtype is cugrad.float32
    assert state["step"].item() == 1
    optimizer.step()
    assert state["step"].item() == 1


def test_the_count_of_steps_is_where_it_is_read() -> None:
    """On the device for fused steps, when it is made and when it is loaded."""
    w = cugrad.ones(2, device="simulated", requires_grad=True)
    w.grad = w.detach().clone()
    plain, fused = Adam([w]), Adam([w], fused=True)
    plain.step()
    fused.step()
    places = [optimizer.state[w]["step"].device.type for optimizer in (plain, fused)]
    assert places == ["cpu", "simulated"]
    saved = plain.state_dict()
    saved["param_groups"][0]["fused"] = True
    plain.load_state_dict(saved)
    assert plain.state[w]["step"].device.type == "simulated"
    plain.step()
    assert plain.state[w]["step"].item() == 2


def test_steps_in_double_precision_count_in_it(request: pytest.FixtureRequest) -> None:
    request.addfinalizer(lambda: cugrad.set_default_dtype(cugrad.float32))
    cugrad.set_default_dtype(cugrad.float64)
    w = cugrad.ones(2, requires_grad=True)
    w.grad = cugrad.ones(2)
    optimizer = Adam([w])
    optimizer.step()
    assert optimizer.state[w]["step"].dtype is cugrad.float64


def test_named_parameters_keep_their_names() -> None:
    layer = cugrad.nn.Linear(2, 1)
    optimizer = SGD(layer.named_parameters(), lr=0.1)
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    saved = optimizer.state_dict()
    assert saved["param_groups"][0]["param_names"] == ["weight", "bias"]
    with pytest.raises(ValueError, match="cannot add param group without names"):
        optimizer.add_param_group({"params": [cugrad.ones(1, requires_grad=True)]})
    saved["param_groups"][0]["param_names"] = ["a", "b"]
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["param_names"] == ["a", "b"]
    del saved["param_groups"][0]["param_names"]
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["param_names"] == ["a", "b"]


def test_groups_may_be_added_and_want_what_is_required() -> None:
    a, b = (cugrad.ones(2, requires_grad=True) for _ in range(2))
    optimizer = Optimizer([{"params": a, "rate": 0.5}], {"rate": required, "other": 1})
    assert repr(required) == "<required parameter>"
    with pytest.raises(ValueError, match="didn't specify a value of required optimization paramet"):
        optimizer.add_param_group({"params": b})
    optimizer.add_param_group({"params": [b], "rate": 0.25, "extra": 2})
    assert [group["rate"] for group in optimizer.param_groups] == [0.5, 0.25]
    assert optimizer.param_groups[1] == {"params": [b], "rate": 0.25, "extra": 2, "other": 1}
    a.grad = cugrad.ones(2)
    with pytest.raises(NotImplementedError):
        optimizer.step()


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


def test_repr_is_pytorchs(torch: Any) -> None:
    ours = repr(SGD([cugrad.ones(1, requires_grad=True)], lr=0.5))
    theirs = repr(torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.5))
    assert ours == theirs


WRONG: list[tuple[str, dict[str, Any]]] = [
    *[(name, {"lr": -1.0}) for name in (*NAMES, "LBFGS", "SparseAdam")],
    *[(name, {"lr": [0.1, 0.2]}) for name in (*NAMES, "LBFGS", "SparseAdam")],
    *[(name, {"weight_decay": -0.5}) for name in NAMES if name != "Rprop"],
    *[
        (name, {"eps": -1.0})
        for name in ("Adadelta", "Adagrad", "Adam", "Adamax", "NAdam", "RAdam")
    ],
    *[(name, {"betas": (1.0, 0.9)}) for name in ("Adam", "AdamW", "Adamax", "NAdam", "RAdam")],
    *[(name, {"betas": (0.9, -0.1)}) for name in ("Adam", "Adamax", "NAdam", "SparseAdam")],
    *[(name, {"momentum": -0.5}) for name in ("SGD", "RMSprop", "Muon")],
    ("Adadelta", {"rho": 1.1}),
    ("Adafactor", {"beta2_decay": 0.1}),
    ("Adafactor", {"eps": (-1e-30, 1e-3)}),
    ("Adafactor", {"eps": (None, -1e-3)}),
    ("Adafactor", {"d": 0.5}),
    ("Adagrad", {"lr_decay": -0.5}),
    ("Adagrad", {"initial_accumulator_value": -1}),
    ("Adam", {"betas": (0.9, [0.9])}),
    ("Adam", {"betas": ([0.9], [0.9]), "foreach": True}),
    ("Adam", {"betas": ([0.9, 0.9], [0.9])}),
    ("Adam", {"lr": [0.1], "foreach": True}),
    ("AdamW", {"fused": True, "foreach": True}),
    ("Adagrad", {"fused": True, "differentiable": True}),
    ("Muon", {"adjust_lr_fn": "arbitrary"}),
    ("NAdam", {"momentum_decay": -0.2}),
    ("Rprop", {"etas": (1.0, 0.5)}),
    ("SGD", {"nesterov": True}),
    ("SGD", {"nesterov": True, "momentum": 0.5, "dampening": 0.1}),
    ("SparseAdam", {"eps": 0.0}),
]


def in_tensors(lib: Any, value: Any) -> Any:
    """Settings whose lists are tensors."""
    if isinstance(value, tuple):
        return tuple(in_tensors(lib, each) for each in value)
    return lib.tensor(value) if isinstance(value, list) else value


@pytest.mark.parametrize(("name", "settings"), WRONG)
def test_wrong_settings_raise_pytorch_s_errors(
    name: str, settings: dict[str, Any], torch: Any
) -> None:
    told = []
    for lib in (torch, cugrad):
        given = {key: in_tensors(lib, value) for key, value in settings.items()}
        with pytest.raises((ValueError, RuntimeError)) as error:
            getattr(lib.optim, name)([lib.ones(1, 1, requires_grad=True)], **given)
        told.append((error.type, str(error.value)))
    assert told[0] == told[1]


def test_a_setting_of_no_kind() -> None:
    w = cugrad.ones(1, requires_grad=True)
    with pytest.raises(ValueError, match="Invalid learning rate: nan"):
        SGD([w], lr=float("nan"))
    with pytest.raises(TypeError, match="fused must be a bool or None, not int"):
        SGD([w], fused=1)  # type: ignore[arg-type]


def test_bad_parameters() -> None:
    w = cugrad.ones(1, requires_grad=True)
    for params, error, message in [
        ([], ValueError, "optimizer got an empty parameter list"),
        ([1.0], TypeError, "optimizer can only optimize Tensors, but one of the params is float"),
        (w, TypeError, "iterable of Tensors or dicts, but got"),
        ([{"params": [w]}, {"params": [w]}], ValueError, "more than one parameter group"),
        ([("w", w), w], ValueError, "Some param names are missing"),
        ([w * 2], ValueError, "can't optimize a non-leaf Tensor"),
        ([{"params": {w}}], TypeError, "ordered collections"),
    ]:
        with pytest.raises(error, match=re.escape(message)):
            SGD(params, lr=0.1)
    with pytest.warns(UserWarning, match="duplicate parameters"):
        SGD([w, w], lr=0.1)
    with pytest.raises(TypeError, match="param_group must be a dict"):
        SGD([w], lr=0.1).add_param_group([w])  # type: ignore[arg-type]
    complex_one = cugrad.ones(1, dtype=cugrad.complex64, requires_grad=True)
    complex_one.grad = complex_one.detach().clone()
    with pytest.raises(RuntimeError, match="requires all the params to be floating point"):
        Adam([complex_one], fused=True).step()
    for name in ("Adafactor", "Muon"):
        matrix = cugrad.ones(1, 1, dtype=cugrad.complex64, requires_grad=True)
        matrix.grad = matrix.detach().clone()
        with pytest.raises(RuntimeError, match="does not support complex parameters"):
            getattr(cugrad.optim, name)([matrix]).step()


def test_loading_a_state_that_does_not_fit() -> None:
    a, b = (cugrad.ones(2, requires_grad=True) for _ in range(2))
    saved = SGD([a], lr=0.1).state_dict()
    with pytest.raises(ValueError, match="different number of parameter groups"):
        SGD([{"params": [a]}, {"params": [b]}], lr=0.1).load_state_dict(saved)
    with pytest.raises(ValueError, match="doesn't match the size of optimizer's group"):
        SGD([a, b], lr=0.1).load_state_dict(saved)


def test_hooks_run_around_steps_saves_and_loads(torch: Any) -> None:
    told = []
    for lib in (cugrad, torch):
        said: list[Any] = []
        w = lib.ones(2, requires_grad=True)
        opt = lib.optim.SGD([w], lr=0.5)

        def note(word: str, said: list[Any] = said) -> Any:
            return lambda *args: said.append((word, *[len(a) for a in args if type(a) is tuple]))

        opt.register_step_pre_hook(note("before"))
        handle = opt.register_step_post_hook(note("after"))
        for_all = importlib.import_module(f"{lib.__name__}.optim.optimizer")
        everywhere = [
            for_all.register_optimizer_step_pre_hook(note("before all")),
            for_all.register_optimizer_step_post_hook(note("after all")),
        ]
        opt.register_state_dict_pre_hook(note("save"))
        opt.register_state_dict_pre_hook(note("save first"), prepend=True)
        opt.register_state_dict_post_hook(lambda opt, saved: {**saved, "more": 1})
        opt.register_load_state_dict_pre_hook(note("load"))
        opt.register_load_state_dict_post_hook(note("loaded"))
        opt.step()
        opt.load_state_dict(opt.state_dict())
        handle.remove()
        opt.step(note("closure"))
        for other in everywhere:
            other.remove()
        opt.step()
        said.append(sorted(opt.state_dict()))
        told.append(said)
    assert told[0] == told[1]


def test_hooks_of_all_optimizers_are_public_names() -> None:
    calls: list[str] = []
    handles = [register_optimizer_step_pre_hook(lambda *a: calls.append("pre")),
               register_optimizer_step_post_hook(lambda *a: calls.append("post"))]  # fmt: skip
    for handle in (None, *handles):
        Adam([cugrad.ones(1, requires_grad=True)]).step()
        if handle is not None:
            handle.remove()
    assert calls == ["pre", "post", "pre", "post", "post"]


def test_a_hook_may_change_the_arguments_and_an_error_leaves_no_trace() -> None:
    w = cugrad.ones(2, requires_grad=True)
    opt = SGD([w], lr=0.5)
    handle = opt.register_step_pre_hook(lambda opt, args, kwargs: ((opt, lambda: 7.0), {}))
    assert opt.step() == 7.0
    handle.remove()
    opt.register_step_pre_hook(lambda opt, args, kwargs: 3)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="must return None or a tuple"):
            opt.step()


class Twice(SGD):
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


@pytest.mark.pinned_torch
def test_another_model_is_swapped_in_for_a_while(torch: Any) -> None:
    found = []
    for lib in (torch, cugrad):
        params = start(lib, "Adam", "float64")
        optimizer = lib.optim.Adam(params, lr=0.1)
        run(lib, params, optimizer, range(2))
        others = [param.detach().clone().requires_grad_() for param in params]
        saved = copy.deepcopy(optimizer.state_dict())
        saved["param_groups"][0]["lr"] = 0.5
        swap = lib.optim.swap_in_optimizer_params_and_state
        with swap(optimizer, {str(i): p for i, p in enumerate(others)}, saved):
            run(lib, others, optimizer, range(2, 4))
        run(lib, params, optimizer, range(2, 4))
        found.append([host(p) for p in (*params, *others)])
        texts = []
        for given in (3, {}, {"state": {}}, {"state": {7: {}}, "param_groups": [{"params": [0]}]}):
            with pytest.raises(RuntimeError) as error, swap(optimizer, {}, given):
                pass
            texts.append(str(error.value))
        found.append(texts)
    assert found[1] == found[3]
    for wanted, got in zip(found[0], found[2], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_names_that_other_libraries_import() -> None:
    from cugrad.optim import _functional, optimizer

    class Halving(Optimizer):
        @optimizer._use_grad_for_differentiable
        def step(self) -> Any:
            assert not cugrad.is_grad_enabled()
            for param in self.param_groups[0]["params"]:
                param.mul_(0.5)

    w = cugrad.ones(2, requires_grad=True)
    Halving([w], {"differentiable": False}).step()
    assert w.tolist() == [0.5, 0.5] and cugrad.is_grad_enabled()
    assert optimizer._get_value(cugrad.tensor([2.0])) == optimizer._get_value(2.0) == 2.0
    assert optimizer._to_scalar(cugrad.tensor([2.0])).dim() == 0
    assert optimizer._default_to_fused_or_foreach([w], False) == (False, False)
    assert {name.lower() for name in NAMES} <= set(vars(_functional))
