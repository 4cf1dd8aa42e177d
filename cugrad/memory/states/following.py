"""Which parameters, gradients and states of a model and its optimizers are placed, at any time."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from ... import backends
from ...backends import backend_of
from ...backends.lending.queues import switched
from ...device import device as Device
from ...tensor import Tensor
from ..offloading.engine import CopyEngine, engine_of
from .home import Home
from .placed import can_be_placed
from .steps import StatesElsewhere, home_of
from .window import Window
from .within_backward.early import DuringBackward

__all__ = ["FollowedModel", "params_of", "place_there"]


def params_of(model: Any) -> list[Tensor]:
    """The parameters of a Module as they are now, or of a list."""
    params = model.parameters() if hasattr(model, "parameters") else model
    return list(dict.fromkeys(params))


def place_there(tensor: Tensor, window: Window, engine: CopyEngine) -> Home | None:
    """Places a tensor, where it is; None if that cannot be. What another context has left elsewhere
    is this one's from now on.
    """
    home = home_of(tensor)
    if home is not None:
        home.move(window)
        return home
    return Home(tensor, window, engine) if can_be_placed(tensor) else None


class FollowedModel:
    """Places what a model and its optimizers have, and hooks into passes and steps.

    A program may change what there is at any time: move the model to another device and back,
    convert it, replace parameters, add groups of them, freeze some. What has got another array is
    an ordinary tensor then, and trained as one. Behind each step of an optimizer all are looked at
    again: what is there now is placed, and watched.
    """

    def __init__(
        self, model: Any, optimizers: list[Any], steps: StatesElsewhere,
        early: DuringBackward | None, places: dict[str, str], least: int, moves: bool,
        device: Device | None, stay: frozenset[int],
    ) -> None:  # fmt: skip
        self.model, self.optimizers, self.steps, self.early = model, optimizers, steps, early
        self.places, self.least, self.moves, self.device = places, least, moves, device
        self.stay = stay  # ids of parameters that do, whatever their size
        self.engines: dict[CopyEngine, None] = {}
        self.handles: list[Any] = []
        self.watched: dict[int, weakref.ref[Tensor]] = {}  # that have hooks, by id
        self.weights = 0  # how many there were behind the last look

    def place_all(self) -> None:
        """Places what there is."""
        weights = self.steps.weights
        if self.device is not None:
            self._move_buffers(self.device)
        for param in params_of(self.model):
            self._take_over(param)
            self.place(param)
        self.device = None  # what is on the CPU from now on was moved there
        self.weights = len(weights.members)

    def follow_all(self, clock: Any) -> None:
        """Has states leave, now and after each step."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for param in group["params"]:  # those that are the model's no more, too
                    self._take_over(param)
                for home in self.steps.homes_of_states(optimizer, group["params"]):
                    home.move(self.steps.states)
            if self.moves:
                self._follow(optimizer, clock)

    def _take_over(self, param: Tensor) -> None:
        """Takes what another context has placed of a parameter, and has left there."""
        for tensor, window in ((param, self.steps.weights), (param._grad, self.steps.gradients)):
            home = home_of(tensor)
            if home is not None:
                home.move(window)

    def end(self) -> None:
        """Follows nothing any more."""
        while self.handles:
            self.handles.pop().remove()

    def _look_again(self, optimizer: Any) -> None:
        """Places what a program has put in the place of something else, or has added."""
        window = self.steps.weights
        if window.count() != self.weights:
            for param in params_of(self.model):
                self.place(param, True)
        for group in optimizer.param_groups:
            for param in group["params"]:
                if home_of(param) is None or param.requires_grad and not self._is_watched(param):
                    self.place(param, True)
        self.weights = window.count()

    # ------------------------------------------------------------------ parameters

    def place(self, param: Tensor, again: bool = False) -> None:
        """Places a parameter, and has its gradients leave."""
        weights, gradients, _ = self.steps.windows
        places = self.places
        if param.is_meta:
            return
        target = self.device
        small = not param.ndim or param.nbytes < self.least or id(param) in self.stay
        if target is not None and (small or param._grad is not None):
            self._move(param, target, small)
        if small or not can_be_placed(param):
            return
        array = param._array
        backend = backend_of(array)
        if target is not None and backend.device_type == "cpu":
            backend = backends.get(target.type)
            engine = engine_of(backend, backend.current_device() if target.index is None else
                               target.index)  # fmt: skip
            self._moves_by(engine)
            del array
            if place_there(param, weights, engine) is not None and places["gradients"] == "host":
                self._watch_gradient(param, gradients)
            return
        if backend.device_type == "cpu" and "disk" not in places.values():
            return  # it is on the host
        engine = engine_of(backend, backend.device_index(array))
        if again and engine not in self.engines:
            return  # a program has moved it to where nothing was placed
        self._moves_by(engine)
        del array
        if self.moves:
            home = place_there(param, weights, engine)
            if home is not None and places["weights"] != "device":
                weights.leave(home)
        if places["gradients"] == "host" and backend.device_type != "cpu":
            self._watch_gradient(param, gradients)
        elif self.moves and backend.device_type != "cpu":
            self._note_moments(param)

    def _moves_by(self, engine: Any) -> None:
        """Notes an engine; what is here for later leaves its device when that is full."""
        if engine not in self.engines:
            self.engines[engine] = None
            for window in self.steps.windows:
                engine.backend.on_out_of_memory(window.reclaim)

    def _move(self, param: Tensor, target: Device, small: bool) -> None:
        """Moves a small parameter of a model on the CPU to the device, and a gradient."""
        if param._grad is not None and param._grad.device != target:
            param._grad = param._grad.to(target)
        if small and param.device.type == "cpu":
            param.data = param.detach().to(target)
            for state in [each.state.get(param) or {} for each in self.optimizers]:
                for name, value in state.items():
                    if isinstance(value, Tensor) and value.ndim:
                        state[name] = value.to(target)

    def _move_buffers(self, target: Device) -> None:
        modules = self.model.modules() if hasattr(self.model, "modules") else ()
        for module in modules:
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = buffer.to(target)

    # ------------------------------------------------------------------ gradients

    def _is_watched(self, param: Tensor) -> bool:
        ref = self.watched.get(id(param))
        return ref is not None and ref() is param

    def _watch(self, param: Tensor, hook: Callable[[Tensor], None]) -> None:
        if param.requires_grad and not self._is_watched(param):
            self.handles.append(param.register_post_accumulate_grad_hook(hook))
            self.watched[id(param)] = weakref.ref(param)

    def _watch_gradient(self, param: Tensor, gradients: Window) -> None:
        """Sends the gradient of a parameter away as it is whole, in each backward pass."""

        def leave(param: Tensor) -> None:
            grad, early, owner = param._grad, self.early, home_of(param)
            if grad is None or owner is None or early is not None and early.takes(param):
                return
            home = place_there(grad, gradients, owner.engine)
            if home is not None:
                for name, compute in gradients.tells.items():
                    home.tell(name, compute)
                self.steps.moments.note(param)
                self.steps.gradient_leaves(grad, owner.engine)

        if not self._is_watched(param):
            leave(param)
        self._watch(param, leave)

    def _note_moments(self, param: Tensor) -> None:
        """Notes when the gradient of a parameter is whole, and sends it if the host wants it."""
        steps, early = self.steps, self.early

        def note(param: Tensor) -> None:
            if early is not None and early.takes(param):
                return
            gradient = steps.moments.note(param)
            if gradient is not None and steps.on_host:
                gradient.send()

        self._watch(param, note)

    # ------------------------------------------------------------------ optimizers

    def _follow(self, optimizer: Any, clock: Any) -> None:
        """Has an optimizer's states leave, now and after each of its steps."""
        steps, early = self.steps, self.early
        steps.settle(optimizer)
        if early is not None:
            self.handles += early.follow(optimizer)

        def begin_step(_: Any, args: Any, kwargs: Any) -> None:
            for engine in self.engines if switched[0] else ():
                engine.in_order()
            if clock is not None:
                clock.begin_step()
            if early is not None:
                early.begin_step(
                    optimizer, any(x is not None for x in (*args[1:], *kwargs.values()))
                )
            steps.begin_step(optimizer)

        def end_step(*args: Any) -> None:
            self._look_again(optimizer)
            steps.end_step(optimizer)
            if early is not None:
                early.end_step(optimizer)
                self.handles += early.follow(optimizer)
            if clock is not None and optimizer is self.optimizers[-1]:
                clock.end_step()

        optimizer._elsewhere = steps
        self.handles += [
            optimizer.register_load_state_dict_post_hook(steps.settle),
            optimizer.register_step_pre_hook(begin_step),
            optimizer.register_step_post_hook(end_step),
        ]
