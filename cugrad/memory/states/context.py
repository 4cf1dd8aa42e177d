"""`offload_states`: a model's weights, gradients and optimizer states on the host, or on a disk."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from ... import backends
from ...autograd.mode import watch_writes
from ...device import device as Device
from ...tensor import Tensor
from ..offloading.context import checked_sizes
from ..offloading.options import OffloadOptions
from ..sizes import size
from .following import FollowedModel, params_of, place_there
from .masters import Masters, check_masters
from .placed import HOMES
from .reporting.report import StatesReport, StepClock, report_of
from .room import check_disk
from .roots import before_write
from .steps import StatesElsewhere
from .unfinished import OpenStep, UnfinishedStep
from .window import Window
from .within_backward.beforehand import Beforehand
from .within_backward.early import DuringBackward

__all__ = ["offload_states"]

PLACES = {
    "weights": ("device", "host", "disk"),
    "gradients": ("device", "host"),
    "states": ("device", "host", "disk", "stream"),
}
ALL_STREAM = {"weights": "host", "gradients": "host", "states": "stream"}
BEHIND, DURING = "behind backward", "during backward"
LEAST = 1 << 26  # bytes of a kind on the device at least, where the user names no number
# In a step within backward a parameter and two states leave for each that come, all by one queue:
WINDOW = 4  # of the largest tensors: one is used, one comes, two leave
WINDOW_OF_PAIRS = 6  # of states, of which a parameter has two
# If weights are elsewhere and states pass the device within backward, three times their bytes
# leave from when backward begins on: a weight and two states. Where computing takes just as long as
# that, backward has two thirds of the time; so as many bytes as all weights have are still there
# when it ends, for the next forward: the windows of weights and of states share that. If gradients
# leave, too, as many have to of theirs. Of other places backward moves what its time allows.
PART = 2  # of all weights one, in each of these windows
DEVICE = 6  # of the device's memory one, at most, for that


class offload_states:
    """Within it, what training keeps of a model lives where it is told, and comes when it is used.

    Model, optimizer and loop are as without. A tensor that is elsewhere keeps its shape, dtype and
    device; whoever reads it, or writes to it, has it brought in first. Copies run on the streams of
    `offload`. Weights come ahead of use, in the order in which the step before has used them, and
    leave when others are needed sooner. Gradients leave as soon as they are whole. The step of an
    optimizer of the library runs by buckets: with states on the "host" it computes there; "stream"
    and "disk" take states through the device: where all is on the host, within backward already, so
    that no one can tell. Another optimizer's states come when it reads them.

    Where arithmetic is done on the same device as without, results are the same, bit for bit. A
    step on the host rounds as the host does. Streams that use what is placed
    take turns: each waits for all that the one before was given until then.

    Args:
        model: a Module, or parameters.
        optimizer: one, or several; None: weights and gradients alone.
        weights: "device", "host" or "disk".
        gradients: "device" or "host".
        states: "device", "host" (the step computes there), "stream" (they live on the host, the
            step computes on the device) or "disk" (the same, from files).
        step: "during backward": the steps of parameters run within backward, on the device or, with
            states="host", on the host beside it, as soon as gradients are whole, which are gone
            then; `optimizer.step()` takes what is left. Not with clipping, GradScaler, closures or
            gradients that are added up: RuntimeError in the first step, which changes nothing.
        masters: "float32": steps of weights in bfloat16 or float16 are taken on copies in float32,
            with states in float32. They are states of the optimizer, as "master", and are where
            those are; behind a step a weight is its master, rounded.
        window: bytes on the device of each kind that is elsewhere; None: four of the largest
            tensors, at least 64 MiB, and all weights, if they are no more than that and a tensor.
            Where weights are elsewhere and states pass the device within backward: half of all
            weights, if that is more, up to a sixth of the device's memory.
        min_bytes: parameters smaller than this stay, and those without dims, with their gradients
            and states.
        host_limit: bytes of page-locked memory to use; None: what the host can give.
        directory: where files are made; None: $TMPDIR, or /var/tmp. DiskFullError, an OSError, if
            it has no room for weights and states, before anything is computed.
        bring_back: whether all is on the device again behind the context; else it stays where it
            is, and comes when it is used.
        device: of a model on the CPU that is to train there, which it need not fit: what is placed
            goes to its place, and the rest, with all buffers, to the device.

    >>> import cugrad as torch
    >>> net = torch.nn.Linear(256, 256).to("simulated")
    >>> optimizer = torch.optim.Adam(net.parameters())
    >>> x = torch.ones(4, 256, device="simulated")
    >>> with torch.memory.offload_states(net, optimizer, states="host") as placed:
    ...     for step in range(3):
    ...         optimizer.zero_grad()
    ...         net(x).square().mean().backward()
    ...         optimizer.step()
    >>> placed.report()["states"]["bytes"] == 2 * net.weight.nbytes
    True
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any = None,
        *,
        weights: str = "device",
        gradients: str = "device",
        states: str = "device",
        step: str = BEHIND,
        masters: str | None = None,
        window: int | str | None = None,
        min_bytes: int | str = 1 << 16,
        host_limit: int | str | None = None,
        directory: str | os.PathLike[str] | None = None,
        bring_back: bool = True,
        device: Device | str | None = None,
    ) -> None:
        self._asked = {"weights": weights, "gradients": gradients, "states": states}
        for name, place in self._asked.items():
            if place not in PLACES[name]:
                raise ValueError(
                    f"offload_states: {name}: got {place!r}, want one of "
                    f"{', '.join(map(repr, PLACES[name]))}"
                )
        if step not in (BEHIND, DURING):
            raise ValueError(f"offload_states: step: got {step!r}, want {BEHIND!r} or {DURING!r}")
        if masters not in (None, "float32"):
            raise ValueError(f"offload_states: masters: got {masters!r}, want 'float32' or None")
        self._during, self._masters = step == DURING, None if masters is None else Masters()
        self._is_ahead = not self._during and self._asked == ALL_STREAM
        self._moves = (
            self._during
            or masters is not None
            or any(place != "device" for place in self._asked.values())
        )
        self._limit, self._least, self._host_limit = checked_sizes(
            "offload_states", window=window, min_bytes=min_bytes, host_limit=host_limit
        )
        self._directory, self.bring_back = directory, bool(bring_back)
        self._model = model if hasattr(model, "parameters") else list(_tensors(model))
        named = model.named_parameters() if hasattr(model, "named_parameters") else ()
        self._names = {id(param): name for name, param in named}
        self._optimizers = _several(optimizer)
        if states != "device" and not self._optimizers:
            raise ValueError(f"offload_states: states={states!r}: want the optimizer that has them")
        if masters is not None:
            check_masters(self._optimizers)
        self._device = None if device is None else Device(device)
        self._store: Any = None
        self._windows: dict[str, Window] = {}
        self._windows_of_before: dict[str, Window] = {}
        self._steps: StatesElsewhere | None = None
        self._early: DuringBackward | None = None
        self._followed: FollowedModel | None = None
        self._clock: StepClock | None = None
        self.stay: frozenset[int] = frozenset()  # ids of parameters that stay, whatever their size

    # ------------------------------------------------------------------ begin and end

    def __enter__(self) -> offload_states:
        if self._steps is not None:
            raise RuntimeError("offload_states: this context has been entered already")
        for optimizer in self._optimizers:
            if getattr(optimizer, "_elsewhere", None) is not None:
                raise RuntimeError(
                    "offload_states: another context has placed this optimizer's states"
                )
            if any(group.get("differentiable") for group in optimizer.param_groups):
                raise ValueError(
                    "offload_states: got a differentiable optimizer, whose steps are recorded and "
                    "keep all states; want differentiable=False"
                )
        check_disk(
            params_of(self._model), self._optimizers, self._names, self._asked, self._least,
            self._masters is not None, self._directory,
        )  # fmt: skip
        self._windows = {name: self._window(name) for name in PLACES}
        watch_writes(before_write, True)
        try:
            self._place_all()
        except BaseException:
            self._end(True)
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._end(self.bring_back)

    def _end(self, brings_back: bool) -> None:
        if self._followed is not None:
            self._followed.end()
        for optimizer in self._optimizers:
            vars(optimizer).pop("_elsewhere", None)
        if self._early is not None:
            self._early.close()
        self._steps = self._early = None
        if brings_back:
            self._bring_all_back()
        else:
            for window in self._windows.values():  # who writes to what is there says so once
                window.begin_step()

    def _bring_all_back(self) -> None:
        for window in self._windows.values():
            window.close()
        self._windows_of_before, self._windows = self._windows, {}
        if self._store is not None:
            for engine in self._followed.engines if self._followed is not None else ():
                engine.drain()  # a stream may be at work for it still
            self._store.close()
            self._store = None
        watch_writes(before_write, bool(HOMES))

    # ------------------------------------------------------------------ what goes where

    def _window(self, name: str) -> Window:
        """The window of a kind of tensors."""
        place, limit = self._asked[name], None
        if place != "device":
            limit = self._usual_window(name) if self._limit is None else self._limit
        backlog = limit
        if limit is not None and limit >= sum([param.nbytes for param in params_of(self._model)]):
            backlog = len(PLACES) * limit  # what is sent of it stays there, and is not waited for
        options = OffloadOptions(host_limit=self._host_limit, backlog=backlog)
        if place == "disk":
            options = OffloadOptions(pinned=False, spill=self._disk())
        return Window(name, limit, options)

    def _usual_window(self, name: str) -> int:
        """Bytes of a window where the user names none. Where it lacks less than one tensor of all
        it is for all of them: each pass would move whole tensors in both directions, and computing
        wait for them, to spare a part of one.
        """
        sizes = [param.nbytes for param in params_of(self._model)]
        largest, total = max(sizes, default=0), sum(sizes)
        limit = max(LEAST, WINDOW * largest)
        through = self._asked["states"] in ("stream", "disk") and self._during
        if name == "states" and (through or self._is_ahead):
            limit = max(limit, WINDOW_OF_PAIRS * largest)
        from_host = through and self._asked["weights"] != "device" and name != "gradients"
        if from_host or self._is_ahead:
            limit = max(limit, min(total // PART, self._device_memory() // DEVICE))
        return total if name != "states" and limit < total <= limit + largest else limit

    def _device_memory(self) -> int:
        """Bytes that the program may have of the device where it trains; 0 on the host."""
        devices = {param.device.type for param in params_of(self._model)} | {
            "cpu" if self._device is None else self._device.type
        }
        kinds = [kind for kind in devices if kind not in ("cpu", "meta")]
        return min([backends.get(kind).memory_limit() for kind in kinds], default=0)

    def _disk(self) -> Any:
        if self._store is None:
            from ..disk.store import DiskStore

            self._store = DiskStore(self._directory, owner="offload_states")
        return self._store

    def _place_all(self) -> None:
        weights, gradients, states = windows = list(self._windows.values())
        place = self._asked["states"]
        weights.beside = states
        nbytes = sum([param.nbytes for param in params_of(self._model)])
        self._steps = steps = StatesElsewhere(
            windows, place != "device", place == "host", place_there, nbytes, self._masters
        )
        early: DuringBackward | None = DuringBackward(steps) if self._during else None
        if self._is_ahead:
            early = Beforehand(steps)
        self._early, self._clock = early, None
        self._followed = followed = FollowedModel(
            self._model, self._optimizers, steps, early, self._asked, self._least,
            self._moves, self._device, self.stay,
        )  # fmt: skip
        followed.place_all()
        for engine in list(followed.engines)[:1]:
            self._clock = StepClock(engine.backend, windows, steps)
        followed.follow_all(self._clock)
        for window in windows:
            window.begin()
        if place == "host" and states.limit is not None:  # who steps there wants none of them here
            states.make_room(states.limit)

    def take_over(self, param: Tensor) -> None:
        """Places one more parameter, which no optimizer has yet."""
        assert self._followed is not None
        self._model.append(param)
        self._followed.place(param)
        self._windows["weights"].make_room(0)

    # ------------------------------------------------------------------ a step that has failed

    def unfinished(self) -> list[UnfinishedStep]:
        """The steps that an error or an interrupt has ended early, one for each optimizer at most:
        the names of the parameters behind it, and of those before it, each with its states.
        """
        return [step.told(self._names) for step in self._open_steps()]

    def finish_step(self) -> None:
        """Takes the step of the parameters that an early end has left before it.

        Hooks of the optimizer's step run again. RuntimeError where no step has ended early, or
        where gradients have changed since.
        """
        steps = self._open_steps()
        if not steps:
            raise RuntimeError("finish_step: no step has ended early since the last one began")
        for step in steps:
            step.finish()

    def _open_steps(self) -> list[OpenStep]:
        return [] if self._steps is None else list(self._steps.steps_open.values())

    # ------------------------------------------------------------------ what it tells

    @property
    def waits_for_backward(self) -> bool:
        """Whether the loop has shown that its step needs all gradients first."""
        return self._early is not None and bool(self._early.problem)

    def report(self, tokens: int | None = None) -> StatesReport:
        """For weights, gradients and states: bytes that are placed, the most of them that were on
        the device at a time, bytes that went out and came back, and those that came too late to be
        there when they were asked for.

        It prints as a page, with the time of the last step and the least that it may take; with
        the `tokens` of a step, that of computing, too. Its `plot` draws them.
        """
        windows = self._windows or self._windows_of_before
        kinds = {name: window.report(self._asked[name]) for name, window in windows.items()}
        return report_of(
            kinds, sum([p.numel() for p in params_of(self._model)]), self._clock, tokens
        )

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={place!r}" for name, place in self._asked.items())
        bytes_of = sum([param.nbytes for param in params_of(self._model)])
        return (
            f"<offload_states({said}): {len(params_of(self._model))} parameters, {size(bytes_of)}>"
        )


def _tensors(params: Any) -> Iterable[Tensor]:
    if not isinstance(params, Iterable):
        raise TypeError(
            f"offload_states: model: got {type(params).__name__}, want a Module or Tensors"
        )
    for param in params:
        if not isinstance(param, Tensor):
            raise TypeError(
                f"offload_states: got {type(param).__name__} among the parameters, want a Module "
                "or Tensors"
            )
        yield param


def _several(optimizer: Any) -> list[Any]:
    optimizers = optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]
    optimizers = [each for each in optimizers if each is not None]
    for each in optimizers:
        if not hasattr(each, "param_groups") or not hasattr(each, "_update_groups"):
            raise TypeError(
                f"offload_states: optimizer: got {type(each).__name__}, want an Optimizer, or a "
                "list of them"
            )
    return optimizers
