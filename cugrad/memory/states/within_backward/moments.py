"""When a gradient is whole: from then on its parameter may be stepped, whatever backward does."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ....autograd.mode import state
from ....tensor import Tensor
from ..home import Home
from ..placed import HOMES
from ..window import Window

__all__ = ["Moments"]


class Moment(NamedTuple):
    """Where compute was, and what tells whether anyone has used the parameter since."""

    event: Any
    stream: Any
    gradient: weakref.ref[Home]
    marks: tuple[int, ...]


class Moments:
    """Where compute is when it has made the gradient of a parameter, and reads that no more.

    A loop is ahead of the device: when it calls `step`, the device may be in backward still. What
    steps a parameter need not wait for the end of that, but for this moment, unless someone has
    used the parameter since, or changed its gradient. How many passes add to a gradient is known
    from the step before; so there are no moments in the first one.
    """

    def __init__(
        self, weights: Window, gradients: Window, states: Window,
        place: Callable[[Tensor, Window, Any], Home | None],
    ) -> None:  # fmt: skip
        self.weights, self.gradients, self.states, self.place = weights, gradients, states, place
        self.began = -1  # how often states had been used before the first one
        self.passes: dict[int, int] = {}  # by the id of a parameter: in this step
        self.expected: dict[int, int] = {}  # in the step before
        self.known: dict[int, Moment] = {}

    def note(self, param: Tensor) -> Home | None:
        """A pass has ended the gradient of a parameter: its home, if that is expected to be the
        last one that adds to it.
        """
        key = id(param)
        self.known.pop(key, None)
        self.passes[key] = count = self.passes.get(key, 0) + 1
        home, grad = HOMES.get(key), param._grad
        if count != self.expected.get(key) or state.grad_mode or home is None or grad is None:
            return None
        gradient = HOMES.get(id(grad)) or self.place(grad, self.gradients, home.engine)
        if gradient is not None and home.is_free:  # else others may read it, and no one is told
            if not self.known:
                self.began, self.states.latest = self.states.now, None
            self.weights.latest = None  # the next use of it is noted
            stream = home.backend.current_stream()
            self.known[key] = Moment(
                stream.record_event(), stream, weakref.ref(gradient), _marks(home, gradient)
            )
        return gradient

    def of(self, param: Tensor) -> Any:
        """The event of the moment of a parameter; None where all that compute has been given may
        have to do with it.
        """
        moment, home = self.known.get(id(param)), HOMES.get(id(param))
        gradient = HOMES.get(id(param._grad))
        if moment is None or home is None or gradient is None or moment.gradient() is not gradient:
            return None
        if moment.stream != home.backend.current_stream():
            return None
        return moment.event if moment.marks == _marks(home, gradient) else None

    @property
    def are_known(self) -> bool:
        """Whether there are any, and no one has used a state since the first."""
        return bool(self.known) and self.states.now == self.began

    def turn(self, params: Iterable[Tensor]) -> None:
        """The step of parameters has ended."""
        for param in params:
            self.known.pop(id(param), None)
            self.expected[id(param)] = self.passes.pop(id(param), 0)


def _marks(home: Home, gradient: Home) -> tuple[int, ...]:
    """What changes when a weight is used, or a gradient is written to."""
    there, tensor = home.ref(), gradient.ref()
    versions = [0 if each is None else each.counter[0] for each in (there, tensor)]
    return home.used, home.writes, gradient.writes, *versions
