"""Schedulers beside PyTorch's: fifty epochs, states that go both ways, warnings, errors."""

from __future__ import annotations

import copy
import inspect
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cugrad

Make = Callable[[Any, Any], Any]  # of the module lr_scheduler, and an optimizer


def third(epoch: int) -> float:
    return 1 / (3 + epoch % 4)


class Falling:
    """A callable with attributes, which state dicts keep."""

    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, epoch: float) -> float:
        return float(self.by**epoch)


CASES: dict[str, Make] = {
    "LambdaLR": lambda s, o: s.LambdaLR(o, third),
    "LambdaLR objects": lambda s, o: s.LambdaLR(o, [Falling(0.9), Falling(0.8)]),
    "MultiplicativeLR": lambda s, o: s.MultiplicativeLR(o, [lambda e: 0.95, Falling(0.99)]),
    "StepLR": lambda s, o: s.StepLR(o, 7, gamma=0.5),
    "MultiStepLR": lambda s, o: s.MultiStepLR(o, [3, 3, 20, 41], gamma=0.5),
    "ConstantLR": lambda s, o: s.ConstantLR(o, 0.25, total_iters=9),
    "LinearLR": lambda s, o: s.LinearLR(o, 0.25, 0.75, total_iters=12),
    "ExponentialLR": lambda s, o: s.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda s, o: s.PolynomialLR(o, 30, power=1.7),
    "CosineAnnealingLR": lambda s, o: s.CosineAnnealingLR(o, 8, eta_min=0.01),
    "CosineAnnealingWarmRestarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 4, 2, 0.01),
    "ReduceLROnPlateau": lambda s, o: s.ReduceLROnPlateau(o, factor=0.5, patience=2, cooldown=3),
    "ReduceLROnPlateau max": lambda s, o: s.ReduceLROnPlateau(
        o, "max", 0.7, 1, 0.1, "abs", min_lr=[0.01, 0.2]
    ),
    "CyclicLR": lambda s, o: s.CyclicLR(o, 0.1, [0.5, 1.0], 5, 3),
    "CyclicLR triangular2": lambda s, o: s.CyclicLR(o, 0.1, 0.5, 4, mode="triangular2"),
    "CyclicLR exp_range": lambda s, o: s.CyclicLR(o, 0.1, 0.5, 4, mode="exp_range", gamma=0.9),
    "CyclicLR own": lambda s, o: s.CyclicLR(
        o, 0.1, 0.5, 4, scale_fn=Falling(0.8), scale_mode="iterations", cycle_momentum=False
    ),
    "OneCycleLR": lambda s, o: s.OneCycleLR(o, [0.5, 1.0], total_steps=60),
    "OneCycleLR linear": lambda s, o: s.OneCycleLR(
        o, 0.5, epochs=6, steps_per_epoch=10, anneal_strategy="linear", three_phase=True
    ),
    "SequentialLR": lambda s, o: s.SequentialLR(
        o, [s.ConstantLR(o, 0.1, 4), s.ExponentialLR(o, 0.9), s.StepLR(o, 3)], [5, 20]
    ),
    "SequentialLR nested": lambda s, o: s.SequentialLR(
        o, [s.ChainedScheduler([s.LinearLR(o), s.ExponentialLR(o, 0.9)]), s.StepLR(o, 3)], [6]
    ),
    "ChainedScheduler": lambda s, o: s.ChainedScheduler(
        [s.ConstantLR(o, 0.1, 4), s.ExponentialLR(o, 0.9), s.CosineAnnealingLR(o, 10)]
    ),
    "SWALR": lambda s, o: __import__(
        s.__name__.replace("lr_scheduler", "swa_utils"), fromlist=["SWALR"]
    ).SWALR(o, [0.05, 0.1], anneal_epochs=5),
}  # fmt: skip
every_case = pytest.mark.parametrize("name", CASES)


def begin(lib: Any, name: str, tensors: bool = False, optimizer: str = "SGD") -> tuple[Any, Any]:
    """An optimizer of two groups and its scheduler."""
    rates = [0.5, 0.25]
    given = [lib.tensor(lr, dtype=lib.float64) if tensors else lr for lr in rates]
    groups = [{"params": [lib.ones(1, requires_grad=True)], "lr": lr} for lr in given]
    more = {"momentum": 0.9} if optimizer == "SGD" else {}
    opt = getattr(lib.optim, optimizer)(groups, lr=0.5, **more)
    with warnings.catch_warnings():
        if "nested" in name:  # both libraries find that its schedulers step first
            warnings.simplefilter("ignore")
        return opt, CASES[name](lib.optim.lr_scheduler, opt)


def epochs(opt: Any, scheduler: Any, numbers: Any, momentum: str = "momentum") -> list[Any]:
    """The rates and momentums of some epochs, as the scheduler and the groups know them."""
    seen = []
    for epoch in numbers:
        opt.step()
        metric = (abs(np.sin(epoch * 1.7)) + 5 / (1 + epoch),)
        scheduler.step(*metric if "Plateau" in type(scheduler).__name__ else ())
        seen.append([
            *map(float, scheduler.get_last_lr()),
            *[float(group["lr"]) for group in opt.param_groups],
            *[float(np.ravel(group[momentum])[0]) for group in opt.param_groups],
        ])  # fmt: skip
    return seen


def test_all_begin_at_the_same_epoch(torch: Any) -> None:
    theirs, ours = ({name: getattr(begin(lib, name)[1], "last_epoch", None) for name in CASES}
                    for lib in (torch, cugrad))  # fmt: skip
    assert ours == theirs


@every_case
@pytest.mark.parametrize("tensors", [False, True], ids=["floats", "tensors"])
def test_fifty_epochs_equal_pytorch(name: str, tensors: bool, torch: Any) -> None:
    runs = [epochs(*begin(lib, name, tensors), range(50)) for lib in (torch, cugrad)]
    np.testing.assert_allclose(runs[1], runs[0], rtol=1e-12)


@pytest.mark.parametrize("name", [name for name in CASES if "Cycl" in name])
def test_the_first_beta_is_cycled_as_momentum(name: str, torch: Any) -> None:
    runs = []
    for lib in (torch, cugrad):
        runs.append(epochs(*begin(lib, name, optimizer="Adam"), range(12), "betas"))
    np.testing.assert_allclose(runs[1], runs[0], rtol=1e-12)


@every_case
def test_states_go_both_ways(name: str, torch: Any) -> None:
    """The keys are PyTorch's, and either goes on from the other's."""
    opt, scheduler = begin(torch, name)
    first = epochs(opt, scheduler, range(13))
    wanted = first + epochs(opt, scheduler, range(13, 26))
    for a, b in ((torch, cugrad), (cugrad, torch)):
        opt, scheduler = begin(a, name)
        epochs(opt, scheduler, range(13))
        saved, groups = scheduler.state_dict(), opt.state_dict()
        other, resumed = begin(b, name)
        assert resumed.state_dict().keys() == saved.keys()
        assert "_schedulers" not in saved or all(
            s.state_dict().keys() == t.keys()
            for s, t in zip(resumed._schedulers, saved["_schedulers"], strict=True)
        )
        resumed.load_state_dict(saved)
        for group, known in zip(other.param_groups, groups["param_groups"]):
            group.update({k: v for k, v in known.items() if k not in ("params", "foreach")})
        np.testing.assert_allclose(epochs(other, resumed, range(13, 26)), wanted[13:], rtol=1e-12)


@pytest.mark.parametrize("name", [name for name in CASES if name != "MultiplicativeLR"])
@pytest.mark.parametrize("way", ["pickle", "deepcopy"])
def test_a_copy_goes_on_as_its_original(name: str, way: str) -> None:
    opt, scheduler = begin(cugrad, name)
    epochs(opt, scheduler, range(5))
    pair = (opt, scheduler)
    twin = copy.deepcopy(pair) if way == "deepcopy" else pickle.loads(pickle.dumps(pair))
    assert twin[1].optimizer is twin[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the copy's optimizer has not been seen to step
        assert epochs(*twin, range(5, 20)) == epochs(opt, scheduler, range(5, 20))


CLOSED = ["StepLR", "MultiStepLR", "ConstantLR", "LinearLR", "ExponentialLR", "PolynomialLR",
          "CosineAnnealingLR", "LambdaLR"]  # fmt: skip


@pytest.mark.parametrize("name", CLOSED)
def test_an_epoch_is_the_closed_form_and_warns(name: str, torch: Any) -> None:
    found = []
    for lib in (torch, cugrad):
        opt, scheduler = begin(lib, name)
        opt.step()
        rates = []
        for epoch in (1, 5, 17, 2):
            with pytest.warns(UserWarning, match="epoch parameter in `scheduler.step"):
                scheduler.step(epoch)
            rates.append([float(lr) for lr in scheduler.get_last_lr()])
        found.append(rates)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12)
    opt, scheduler = begin(cugrad, name)
    step_by_step = [row[:2] for row in epochs(opt, scheduler, range(17))]
    np.testing.assert_allclose(found[1][2], step_by_step[16], rtol=1e-9, atol=1e-12)


def test_restarts_take_parts_of_epochs(torch: Any) -> None:
    found = []
    for lib in (torch, cugrad):
        _, scheduler = begin(lib, "CosineAnnealingWarmRestarts")
        rates = []
        for epoch in (0.25, 3.5, 4, 11.75, 13, None):
            scheduler.step(epoch)
            rates.append(scheduler.get_last_lr())
        found.append(rates)
        with pytest.raises(ValueError, match="non-negative epoch"):
            scheduler.step(-1)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12)


def test_training_goes_on_at_an_epoch(torch: Any) -> None:
    found = []
    for lib in (torch, cugrad):
        opt = lib.optim.SGD([lib.ones(1, requires_grad=True)], lr=0.5)
        with pytest.raises(KeyError, match="param 'initial_lr' is not specified"):
            lib.optim.lr_scheduler.ExponentialLR(opt, 0.9, last_epoch=3)
        opt.param_groups[0]["initial_lr"] = 0.5
        scheduler = lib.optim.lr_scheduler.CosineAnnealingLR(opt, 10, last_epoch=3)
        found.append([scheduler.get_last_lr(), *epochs(opt, scheduler, range(5))])
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-12)
    np.testing.assert_allclose(found[1][1:], found[0][1:], rtol=1e-12)


def test_the_order_of_steps_is_watched() -> None:
    opt, scheduler = begin(cugrad, "StepLR")
    with pytest.warns(UserWarning, match="how-to-adjust-learning-rate"):
        scheduler.step()
    opt, scheduler = begin(cugrad, "StepLR")
    opt.step = lambda: None
    with pytest.warns(UserWarning, match="has been overridden after learning rate scheduler"):
        scheduler.step()
    opt, scheduler = begin(cugrad, "StepLR")
    opt.step()
    scheduler.step()
    with pytest.warns(UserWarning, match=r"please use `get_last_lr\(\)`"):
        scheduler.get_lr()


def test_a_tensor_stays_the_groups_rate() -> None:
    rate = cugrad.tensor(0.5, dtype=cugrad.float64)
    opt = cugrad.optim.SGD([cugrad.ones(1, requires_grad=True)], lr=rate)
    scheduler = cugrad.optim.lr_scheduler.ExponentialLR(opt, 0.5)
    opt.step()
    scheduler.step()
    assert opt.param_groups[0]["lr"] is rate and rate.item() == 0.25
    assert scheduler.base_lrs[0].item() == 0.5


def test_groups_that_come_later_want_rates_of_their_own() -> None:
    opt, scheduler = begin(cugrad, "ReduceLROnPlateau max")
    opt.add_param_group({"params": [cugrad.ones(1, requires_grad=True)]})
    with pytest.raises(RuntimeError, match="number of param groups in the `optimizer`"):
        for _ in range(4):
            scheduler.step(0.0)
    opt, scheduler = begin(cugrad, "ReduceLROnPlateau")
    opt.add_param_group({"params": [cugrad.ones(1, requires_grad=True)]})
    for _ in range(5):
        scheduler.step(1.0)
    assert [group["lr"] for group in opt.param_groups] == [0.25, 0.125, 0.25]


WRONG: dict[str, Make] = {
    "no optimizer": lambda s, o: s.StepLR(3, 1),
    "no optimizer of a plateau": lambda s, o: s.ReduceLROnPlateau(3),
    "lambdas": lambda s, o: s.LambdaLR(o, [third]),
    "no function": lambda s, o: s.MultiplicativeLR(o, [0.5, 0.5]),
    "factor": lambda s, o: s.ConstantLR(o, 1.1),
    "start": lambda s, o: s.LinearLR(o, 0.0),
    "end": lambda s, o: s.LinearLR(o, 0.5, 1.1),
    "T_0": lambda s, o: s.CosineAnnealingWarmRestarts(o, 0),
    "T_0 a float": lambda s, o: s.CosineAnnealingWarmRestarts(o, 1.5),
    "T_mult": lambda s, o: s.CosineAnnealingWarmRestarts(o, 1, 0),
    "plateau factor": lambda s, o: s.ReduceLROnPlateau(o, factor=1.0),
    "plateau mode": lambda s, o: s.ReduceLROnPlateau(o, "best"),
    "plateau threshold": lambda s, o: s.ReduceLROnPlateau(o, threshold_mode="best"),
    "plateau min_lr": lambda s, o: s.ReduceLROnPlateau(o, min_lr=[0.1]),
    "cyclic mode": lambda s, o: s.CyclicLR(o, 0.1, 0.5, mode="square"),
    "cyclic rates": lambda s, o: s.CyclicLR(o, [0.1], 0.5),
    "one cycle": lambda s, o: s.OneCycleLR(o, 0.5),
    "one cycle steps": lambda s, o: s.OneCycleLR(o, 0.5, total_steps=0),
    "one cycle epochs": lambda s, o: s.OneCycleLR(o, 0.5, epochs=1.5, steps_per_epoch=3),
    "one cycle share": lambda s, o: s.OneCycleLR(o, 0.5, total_steps=5, pct_start=1.1),
    "one cycle way": lambda s, o: s.OneCycleLR(o, 0.5, total_steps=5, anneal_strategy="cubic"),
    "none in a row": lambda s, o: s.SequentialLR(o, [], []),
    "milestones": lambda s, o: s.SequentialLR(o, [s.StepLR(o, 1), s.StepLR(o, 1)], []),
    "a plateau in a row": lambda s, o: s.SequentialLR(o, [s.ReduceLROnPlateau(o)], []),
    "none in a chain": lambda s, o: s.ChainedScheduler([]),
    "no scheduler": lambda s, o: s.ChainedScheduler([s.StepLR(o, 1), 3]),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_settings_raise_pytorch_s_errors(name: str, torch: Any) -> None:
    told = []
    for lib in (torch, cugrad):
        opt, _ = begin(lib, "StepLR")
        with pytest.raises((ValueError, TypeError)) as error:
            WRONG[name](lib.optim.lr_scheduler, opt)
        told.append((error.type, str(error.value)))
    assert told[0] == told[1]


def test_momentum_is_wanted_to_be_cycled(torch: Any) -> None:
    for lib in (torch, cugrad):
        opt = lib.optim.Adagrad([lib.ones(1, requires_grad=True)])
        for make in (lib.optim.lr_scheduler.CyclicLR, lib.optim.lr_scheduler.OneCycleLR):
            settings = {"base_lr": 0.1} if "Cyclic" in make.__name__ else {"total_steps": 3}
            with pytest.raises(ValueError, match="must support momentum or beta1"):
                make(opt, max_lr=0.5, **settings)


def test_a_step_too_many_of_one_cycle() -> None:
    opt = cugrad.optim.SGD([cugrad.ones(1, requires_grad=True)], lr=0.5, momentum=0.9)
    scheduler = cugrad.optim.lr_scheduler.OneCycleLR(opt, 0.5, total_steps=2)
    for _ in range(2):
        opt.step()
        scheduler.step()
    with pytest.raises(ValueError, match="Tried to step 3 times"):
        scheduler.step()


def test_schedulers_of_another_optimizer_are_refused() -> None:
    (a, _), (_, scheduler) = begin(cugrad, "StepLR"), begin(cugrad, "StepLR")
    with pytest.raises(ValueError, match="expects all schedulers to belong to the same optimizer"):
        cugrad.optim.lr_scheduler.SequentialLR(a, [scheduler], [])


def test_arguments_and_names_are_pytorch_s(torch: Any) -> None:
    ours, theirs = cugrad.optim.lr_scheduler, torch.optim.lr_scheduler
    assert sorted(ours.__all__) == sorted(theirs.__all__)
    assert issubclass(ours._LRScheduler, ours.LRScheduler)
    for name in [*ours.__all__, "SWALR"]:
        spaces = (
            (ours, theirs) if name != "SWALR" else (cugrad.optim.swa_utils, torch.optim.swa_utils)
        )
        got, want = (inspect.signature(getattr(space, name)).parameters for space in spaces)
        assert [(p.name, p.default) for p in got.values()] == [
            (p.name, p.default) for p in want.values()
        ]
