"""Whether the passes of a loop begin with gradients, and add to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....tensor import Tensor

if TYPE_CHECKING:
    from .states import StatesOfBudget

__all__ = ["Adding"]


class Adding:
    """Whether passes begin with gradients: with those of others of one step, or such as the loop
    has set to zero, by whatever means.

    That is seen as a pass begins: in its first op that reads what is trained, or where none was
    seen, as in a reentrant checkpoint, with backward. An op before that, as for what a loop
    prints of its last pass, finds gradients that are about to go. Before the first pass there are
    none to be seen; that they will stay may have been said to an optimizer, or a module.
    """

    def __init__(self, states: StatesOfBudget) -> None:
        self.states = states
        self.has_looked = False  # since a backward pass began
        self.from_start = False  # whether the first pass has begun with gradients
        self._is_news = False  # whether places are yet to be chosen for that

    @property
    def is_foreseen(self) -> bool:
        """Whether steps will begin with gradients, as far as is known before they do."""
        several = [*self.states.optimizers, *self.states.model.modules()]
        return self.from_start or any(getattr(x, "_fills_gradients", False) for x in several)

    def sees(self, args: tuple[Any, ...]) -> None:
        """An op begins with gradients switched on."""
        if self.has_looked:
            return
        if any(isinstance(x, Tensor) and x._requires_grad and x.is_leaf for x in args):
            self.looks()
            self._takes_places()
            self.has_looked = True

    def turns(self) -> None:
        """A backward pass begins."""
        self.looks()
        self.has_looked = False

    def begins(self) -> None:
        """A step begins: perhaps with other places, for what the last one has shown."""
        self._takes_places()

    def looks(self) -> None:
        """Sees whether a pass begins with gradients."""
        states, lessons = self.states, self.states.owner._lessons
        trained = [p._grad is not None for p in states.model.parameters() if p.requires_grad]
        has_gradients, seen = any(trained), states._seen
        if not has_gradients:
            states.passes = 0  # those before have been given up, if there were any
        is_first = seen is None and not states.tried
        if is_first and not states.passes:
            self.from_start = has_gradients
            lessons.will_add = self.is_foreseen
        adds = is_first and has_gradients and len(states.optimizers) == 1
        lessons.adds_to_all = adds and all(trained)
        if seen is not None and has_gradients and not states.passes and not seen.adds:
            seen.zeroed = self._is_news = True

    def _takes_places(self) -> None:
        is_news, self._is_news = self._is_news, False
        if is_news and self.states._seen is not None:
            self.states._go_on(self.states._chosen_anew())
