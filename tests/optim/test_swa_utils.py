"""Averages of models beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cugrad
from tests.optim.starts import host

WAYS: dict[str, Any] = {
    "mean": lambda utils: {},
    "mean, with buffers": lambda utils: {"use_buffers": True},
    "swa": lambda utils: {"avg_fn": utils.get_swa_avg_fn()},
    "swa of lists": lambda utils: {"multi_avg_fn": utils.get_swa_multi_avg_fn()},
    "ema": lambda utils: {"avg_fn": utils.get_ema_avg_fn(0.7)},
    "ema of lists": lambda utils: {"multi_avg_fn": utils.get_ema_multi_avg_fn(0.7)},
    "ema, with buffers": lambda utils: {"multi_avg_fn": utils.get_ema_multi_avg_fn(0.7),
                                        "use_buffers": True},
    "own": lambda utils: {"avg_fn": lambda mean, value, count: mean + value * count},
}  # fmt: skip


def model_of(lib: Any) -> Any:
    model = lib.nn.Sequential(lib.nn.Linear(3, 2), lib.nn.BatchNorm1d(2))
    return model.double()


def show(lib: Any, model: Any, step: int) -> None:
    """Weights and buffers of a step."""
    rng = np.random.default_rng(step)
    with lib.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            values = rng.standard_normal(tuple(tensor.shape)) * 10
            tensor.copy_(lib.tensor(values).to(tensor.dtype))


@pytest.mark.parametrize("way", WAYS)
def test_averages_equal_pytorch(way: str, torch: Any) -> None:
    found = []
    for lib in (torch, cugrad):
        utils, model = lib.optim.swa_utils, model_of(lib)
        averaged = utils.AveragedModel(model, **WAYS[way](utils))
        for step in range(4):
            show(lib, model, step)
            averaged.update_parameters(model)
        found.append({key: host(value) for key, value in averaged.state_dict().items()})
    assert list(found[0]) == list(found[1])
    for key, wanted in found[0].items():
        tight = 1e-6 if way.startswith("mean") else 1e-12  # PyTorch's weight is a float32
        np.testing.assert_allclose(found[1][key], wanted, rtol=tight, err_msg=key)


def test_an_average_runs_and_is_saved() -> None:
    model = model_of(cugrad)
    averaged = cugrad.optim.swa_utils.AveragedModel(model)
    averaged.update_parameters(model)
    x = cugrad.ones(2, 3, dtype=cugrad.float64)
    np.testing.assert_array_equal(host(averaged(x)), host(model(x)))
    other = cugrad.optim.swa_utils.AveragedModel(model_of(cugrad))
    other.load_state_dict(averaged.state_dict())
    assert other.n_averaged.item() == 1
    with pytest.raises(AssertionError, match="Only one of avg_fn and multi_avg_fn"):
        cugrad.optim.swa_utils.AveragedModel(model, avg_fn=max, multi_avg_fn=max)  # type: ignore[arg-type]


@pytest.mark.parametrize("batches", ["tensors", "pairs"])
def test_running_statistics_are_made_anew(batches: str, torch: Any) -> None:
    found = []
    for lib in (torch, cugrad):
        model = model_of(lib)
        show(lib, model, 0)
        model.eval()
        loader = [lib.tensor(np.random.default_rng(i).standard_normal((4, 3))) for i in range(3)]
        lib.optim.swa_utils.update_bn(
            [(x, 1) for x in loader] if batches == "pairs" else loader, model
        )
        assert not model.training and model[1].momentum == 0.1
        found.append({key: host(value) for key, value in model.state_dict().items()})
    for key, wanted in found[0].items():
        np.testing.assert_allclose(found[1][key], wanted, rtol=1e-12, err_msg=key)


@pytest.mark.parametrize("decay", [-0.1, 1.1])
@pytest.mark.parametrize("name", ["get_ema_avg_fn", "get_ema_multi_avg_fn"])
def test_decays_are_shares(name: str, decay: float) -> None:
    with pytest.raises(ValueError, match="Invalid decay value"):
        getattr(cugrad.optim.swa_utils, name)(decay)


@pytest.mark.pinned_torch
def test_wrong_settings_of_swalr(torch: Any) -> None:
    told = []
    for lib in (torch, cugrad):
        opt = lib.optim.SGD([lib.ones(1, requires_grad=True)], lr=0.5)
        said = []
        wrong = [{}, {"anneal_strategy": "cubic"}, {"anneal_epochs": -1}, {"anneal_epochs": 1.5}]
        for at, settings in enumerate(wrong):
            given: dict[str, Any] = {"swa_lr": 1 if at else [1, 2], **settings}
            with pytest.raises(ValueError) as error:
                lib.optim.swa_utils.SWALR(opt, **given)
            said.append(str(error.value))
        told.append(said)
    assert told[0] == told[1]
