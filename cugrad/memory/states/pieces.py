"""The step of a parameter whose states are more than a bucket: they pass the device in pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from ...autograd.recording.views import were_changed, will_be_changed
from ...tensor import Tensor, make
from ..geometry import BYTE, memory_of
from .home import Home
from .placed import HOMES
from .window import Window

__all__ = ["PARTS", "Pieces", "can_pass_in_pieces"]

PARTS = 3  # of a window: one arrives, one is computed with, one leaves
ALIGNED = 64  # elements: pieces begin at multiples of what a processor reads at once


def can_pass_in_pieces(optimizer: Any, param: Tensor, group: Any) -> bool:
    """Whether a parameter steps element by element, and has its states elsewhere, or none yet."""
    grad, state = param._grad, optimizer.state.get(param)
    if not optimizer._by_element or grad is None or grad.is_sparse:
        return False
    if not state:
        arrays = []
        if not optimizer._remembers(group):
            return False
    else:
        arrays = _arrays_of(state)
    if any(not x.is_contiguous() or x.numel() != param.numel() for x in (param, grad, *arrays)):
        return False
    return all(_is_away(HOMES.get(id(each))) for each in arrays)


def _arrays_of(state: dict[str, Any]) -> list[Tensor]:
    return [value for value in state.values() if isinstance(value, Tensor) and value.ndim]


def _is_away(home: Home | None) -> bool:
    """Whether the bytes are elsewhere alone; what is here, or is coming, leaves if it can."""
    if home is None:
        return False
    if home.is_here or home.is_coming:
        home.window.leave(home)
    return home.is_away and not home.is_coming


class _Passing:
    """One state on its way through the device: from the span of before to one of what becomes of
    it. Where there is no page-locked memory for that it is in ordinary memory, or goes to a file.
    """

    def __init__(self, pieces: Pieces, home: Home | None, dtype: Any) -> None:
        self.engine, self.backend, self.lane = pieces.engine, pieces.backend, pieces.lane
        self.options, self.dtype, self.home = pieces.window.options, np.dtype(dtype), home
        self.before: Any = None if home is None else home.span
        self.changes = [] if home is None else home.pending
        nbytes = self.dtype.itemsize * pieces.param.numel()
        self.span = self.engine.host_state([0], nbytes, self.options, self.engine.out.stream)
        self.host = None if self.span is not None else np.empty(nbytes, BYTE)
        # the bytes of before, where they are in ordinary memory
        self.source = None if self.before is None else self.engine.read_state(self.before)

    def come(self, low: int, high: int) -> tuple[Any, Any]:
        """Starts to bring elements: their bytes, and the event of their arrival."""
        low, high = low * self.dtype.itemsize, high * self.dtype.itemsize
        if self.source is None:
            return self.engine.bring_part(self.before, low, high, self.lane)
        return self.backend.asarray(self.source[low:high]), None

    def here(self, flat: Any, arrived: Any) -> Tensor:
        """The elements as a tensor, for which compute waits."""
        if arrived is not None:
            meter: Any = self.options.counts.meter  # of the clock of steps, which there is always
            meter.wait(self.backend.current_stream(), arrived, ("unpack", 0))
        tensor = make(flat.view(self.dtype))
        for change in self.changes:
            change(tensor)
        return tensor

    def leave(self, low: int, flat: Any) -> Any:
        """Starts to send elements; the event of the end of that, if the host has not waited."""
        low *= self.dtype.itemsize
        if self.span is not None:
            return self.engine.send_part(self.span, low, flat)
        assert self.host is not None
        self.host[low : low + flat.nbytes] = self.backend.to_host(flat)
        return None

    def has_left(self) -> Any:
        """The span of what has become of it."""
        if self.span is None:
            self.span = self.engine.kept_state([0], self.host, self.options)
        return self.span


class Pieces:
    """The step of one parameter, which is on the device with its gradient. Of its states no more
    than `most` bytes are there at a time.

    What was before is held where it is until the last piece has left. So a step that fails in the
    middle has changed no state, and its caller puts back the parameter.
    """

    def __init__(
        self, optimizer: Any, param: Tensor, window: Window, nbytes: int, most: int,
        update: Callable[[list[Tensor]], None],
    ) -> None:  # fmt: skip
        home = HOMES[id(param)]
        self.optimizer, self.param, self.window, self.update = optimizer, param, window, update
        self.engine, self.backend = home.engine, home.backend
        self.lane = window.lane_of(self.engine)
        total = param.numel()
        length = total * most // (PARTS * nbytes)  # elements of a piece; `nbytes` of states in all
        self.length = max(length // ALIGNED, 1) * ALIGNED
        self.nbytes = min(PARTS * self.length, total) * nbytes // total
        self.leaving: deque[tuple[Any, bool, list[Any]]] = deque()
        self.passing: dict[str, _Passing] = {}
        self.numbers: dict[str, Any] = {}  # behind the step
        self.names: list[str] = []  # of all states, in the order that the optimizer gives them

    def run(self) -> None:
        """Takes the step."""
        state = self.optimizer.state.get(self.param) or {}
        for name, value in state.items():
            if isinstance(value, Tensor) and value.ndim:
                home = HOMES[id(value)]
                self.passing[name] = _Passing(self, home, home.form.dtype)
        with self.window.reserved(self.nbytes):
            try:
                self._pass(state)
                while self.leaving:
                    self._let_go()
            except BaseException:
                self.backend.synchronize()  # copies that have begun end before memory is freed
                raise
        self._renew(state)

    def _pass(self, state: dict[str, Any]) -> None:
        """Each piece comes while the one before it is computed with."""
        grad: Any = self.param._grad
        values, grads = self.param._array.reshape(-1), grad._array.reshape(-1)
        numbers = {name: v for name, v in state.items() if name not in self.passing}
        ahead = self._come(0)
        shown = will_be_changed([self.param])
        for low in range(0, len(values), self.length):
            high = low + self.length
            now, ahead = ahead, self._come(high)
            part = make(values[low:high])
            part._grad = make(grads[low:high])
            self._step(part, now, numbers, low)
        were_changed(shown)

    def _come(self, low: int) -> dict[str, tuple[Any, Any]]:
        """Starts to bring the piece that begins there."""
        while len(self.leaving) > 1:
            self._let_go()
        high = min(low + self.length, self.param.numel())
        if low >= high:
            return {}
        there = {name: each for name, each in self.passing.items() if each.home is not None}
        return {name: each.come(low, high) for name, each in there.items()}

    def _step(self, part: Tensor, now: dict[str, Any], numbers: dict[str, Any], low: int) -> None:
        """Computes with a piece, and sends it."""
        states = self.optimizer.state
        kept = {
            name: value.clone() if isinstance(value, Tensor) else value
            for name, value in numbers.items()
        }
        kept |= {name: self.passing[name].here(*each) for name, each in now.items()}
        if kept:
            states[part] = dict(kept)
        try:
            self.update([part])
        finally:
            behind = states.pop(part, {})
        arrays = {n: v for n, v in behind.items() if isinstance(v, Tensor) and v.ndim}
        self.numbers = {name: v for name, v in behind.items() if name not in arrays}
        self.names = list(behind)
        left, held = None, [flat for flat, _ in now.values()]
        for name, value in arrays.items():
            if name not in self.passing:
                self.passing[name] = _Passing(self, None, value._array.dtype)
            flat = memory_of(self.backend.xp, value._array)
            left = self.passing[name].leave(low, flat) or left
            held.append(flat)
        is_computes = any(n not in now or now[n][1] is None or arrays[n] is not kept[n]
                          for n in arrays)  # fmt: skip
        if left is None:
            left = self.backend.current_stream().record_event()
        self.leaving.append((left, is_computes, held))

    def _let_go(self) -> None:
        """Frees the memory of the piece that was sent first, once it has left."""
        left, is_computes, _ = self.leaving[0]
        self.lane.stream.wait_event(left)
        if is_computes:  # some of its memory is compute's
            self.backend.current_stream().wait_event(left)
        self.leaving.popleft()

    def _renew(self, state: dict[str, Any]) -> None:
        """The states are those behind the step."""
        spans = {name: each.has_left() for name, each in self.passing.items()}
        behind = dict(state)
        for name, span in spans.items():
            home = self.passing[name].home
            if home is None:
                behind[name] = self._made(span, self.passing[name].dtype)
            else:
                home.has_become(span)
        for name, value in self.numbers.items():
            before = state.get(name)
            if isinstance(before, Tensor) and isinstance(value, Tensor):
                before.copy_(value)
            else:
                behind[name] = value
        names = dict.fromkeys([*(state or self.names), *behind])
        self.optimizer.state[self.param] = {name: behind[name] for name in names}

    def _made(self, span: Any, dtype: Any) -> Tensor:
        """A state that was made in pieces, and lies where a span has it."""
        form = HOMES[id(self.param)].form
        strides = [each // form.itemsize * dtype.itemsize for each in form.strides]
        first = np.empty(1, dtype)
        tensor = make(np.lib.stride_tricks.as_strided(first, form.shape, strides))
        Home(tensor, self.window, self.engine, span)
        return tensor
