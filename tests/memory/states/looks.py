"""What programs do to parameters, gradients and states between steps, each as one function."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import cugrad
from cugrad import nn
from tests.memory.states.training import arrays_of

__all__ = ["BEFORE_STEP", "BEHIND_STEP", "Sight"]

Look = Callable[["Sight"], Any]


class Sight:
    """A training as those who look at it see it; `seen` has what they have found."""

    def __init__(self, training: Any, step: int) -> None:
        self.training, self.number = training, step
        self.net, self.optimizer = training.net, training.optimizer
        self.kept: dict[str, Any] = training.kept

    @property
    def params(self) -> list[Any]:
        return list(self.net.parameters())

    def matrix(self, k: int = 0) -> Any:
        """One of the parameters with two dims."""
        several = [p for p in self.params if p.ndim == 2]
        return several[(self.number + k) % len(several)]

    def gradients(self) -> list[Any]:
        return [p for p in self.params if p.grad is not None]


# Before the step, on gradients -------------------------------------------------------------------


def reads_gradients(s: Sight) -> Any:
    return [p.grad for p in s.gradients()[:2]]


def scales_gradients(s: Sight) -> None:
    for p in s.gradients()[:3]:
        p.grad.mul_(0.5)


def replaces_a_gradient(s: Sight) -> None:
    for p in s.gradients()[:1]:
        p.grad = p.grad.clone() * 2


def drops_a_gradient(s: Sight) -> None:
    s.matrix().grad = None


def clips(s: Sight) -> Any:
    return nn.utils.clip_grad_norm_(s.params, 0.1)


def clips_values(s: Sight) -> None:
    nn.utils.clip_grad_value_(s.params, 0.01)


def adds_another_pass(s: Sight) -> None:
    s.training.loss_of(90).mul(0.1).backward()


# Behind the step ---------------------------------------------------------------------------------


def evaluates(s: Sight) -> Any:
    s.net.eval()
    with cugrad.no_grad():
        loss = s.training.loss_of(50)
    s.net.train()
    return loss


def generates(s: Sight) -> Any:
    with cugrad.inference_mode():
        words = s.training.words(51)
        for _ in range(2):
            words = cugrad.cat([words[:, 1:], s.net(words)[:, -1:].argmax(-1)], 1)
    return words


def asks_for_other_gradients(s: Sight) -> Any:
    trained = [p for p in s.params if p.requires_grad][:3]
    return cugrad.autograd.grad(s.training.loss_of(52), trained, allow_unused=True)


def copies_state_dicts(s: Sight) -> Any:
    s.kept["net"] = copy.deepcopy(s.net.state_dict())
    s.kept["optimizer"] = copy.deepcopy(s.optimizer.state_dict())
    return list(s.kept["net"].values())


def loads_state_dicts(s: Sight) -> None:
    if "net" in s.kept:
        s.net.load_state_dict(s.kept["net"])
        s.optimizer.load_state_dict(s.kept["optimizer"])


def saves(s: Sight) -> Any:
    file = io.BytesIO()
    cugrad.save({"net": s.net.state_dict(), "optimizer": s.optimizer.state_dict()}, file)
    file.seek(0)
    return list(cugrad.load(file)["net"].values())


def copies_all(s: Sight) -> Any:
    with cugrad.no_grad():
        return copy.deepcopy(s.net)(s.training.words(53)), copy.deepcopy(s.optimizer) is not None


def pickles(s: Sight) -> Any:
    return pickle.loads(pickle.dumps(s.matrix()))


def reads_data(s: Sight) -> Any:
    return s.matrix().data


def writes_data(s: Sight) -> None:
    s.matrix().data.mul_(0.9)
    s.matrix(1).data[0] = 0.1


def replaces_data(s: Sight) -> None:
    s.matrix().data = s.matrix().data * 0.5


def writes_in_place(s: Sight) -> None:
    with cugrad.no_grad():
        s.matrix().add_(0.01)
        s.matrix(1)[0].zero_()
        s.matrix(2).copy_(s.matrix(2).flip(0))


def writes_through_a_view(s: Sight) -> None:
    view = s.matrix().detach().view(-1)
    view[:3] = 0.2
    s.kept.get("view", view).add_(0.01)
    s.kept["view"] = view


def keeps_a_view(s: Sight) -> None:
    s.kept["view"] = s.matrix().detach().view(-1)


def makes_one_vector_of_all(s: Sight) -> None:
    """They are views of its memory then."""
    vector = nn.utils.parameters_to_vector(s.params) * 0.9
    nn.utils.vector_to_parameters(vector, s.params)


def replaces_a_parameter(s: Sight) -> None:
    s.net.norm.weight = nn.Parameter(s.net.norm.weight.detach() * 0.9)


def averages(s: Sight) -> Any:
    average = cugrad.optim.swa_utils.AveragedModel(s.net)
    average.update_parameters(s.net)
    return list(average.module.parameters())[:2]


def reads_states(s: Sight) -> Any:
    return [s.optimizer.state.get(p) for p in s.params[:2]]


def writes_states(s: Sight) -> None:
    for p in s.params[:2]:
        for value in (s.optimizer.state.get(p) or {}).values():
            if isinstance(value, cugrad.Tensor) and value.ndim and value.is_floating_point():
                value.mul_(0.5)


def freezes(s: Sight) -> None:
    s.matrix().requires_grad_(False)


def thaws(s: Sight) -> None:
    for p in s.params:
        p.requires_grad_(True)


def changes_settings(s: Sight) -> None:
    for group in s.optimizer.param_groups:
        group["lr"] = 0.03


def adds_a_group(s: Sight) -> None:
    if type(s.optimizer).__name__ != "LBFGS":  # which takes no groups
        new = nn.Parameter(cugrad.ones(16, 16, device=s.training.device))
        new.grad = cugrad.ones(16, 16, device=s.training.device)
        s.optimizer.add_param_group({"params": [new]})
        s.kept["added"] = new.detach().view(-1)


def backward_without_a_step(s: Sight) -> None:
    s.training.loss_of(60).backward()


def writes_buffers(s: Sight) -> None:
    s.net.scale.mul_(0.9)


BEFORE_STEP: list[Look] = [
    reads_gradients, scales_gradients, replaces_a_gradient, drops_a_gradient, clips, clips_values,
    adds_another_pass,
]  # fmt: skip
BEHIND_STEP: list[Look] = [
    evaluates, generates, asks_for_other_gradients, copies_state_dicts, loads_state_dicts, saves,
    copies_all, pickles, reads_data, writes_data, replaces_data, writes_in_place,
    writes_through_a_view, keeps_a_view, makes_one_vector_of_all, replaces_a_parameter, averages,
    reads_states, writes_states, freezes, thaws, changes_settings, adds_a_group,
    backward_without_a_step, writes_buffers,
]  # fmt: skip


def _before(look: Look) -> Look:
    """The same look, between backward and the step."""

    def before(s: Sight) -> Any:
        return look(s)

    before.__name__ = f"{look.__name__}_before_the_step"
    return before


BEFORE_STEP += [_before(look) for look in BEHIND_STEP]


def told(value: Any) -> Any:
    """What a look has found, as arrays of their own."""
    return copy.deepcopy(arrays_of(value))
