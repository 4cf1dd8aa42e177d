"""What a budget that was given a model tells, and does about a step that has failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..states.unfinished import UnfinishedStep

if TYPE_CHECKING:
    from .known_steps import SeenStep

__all__ = ["OfModel"]


class OfModel:
    """The part of a budget that is about weights, gradients and states."""

    _states: Any = None

    @property
    def last(self) -> SeenStep | None:
        """What the last step followed, or taught."""
        raise NotImplementedError

    def _take_model(
        self, model: Any, optimizer: Any, disk: Any, masters: str | None, step: str,
        bring_back: bool,
    ) -> None:  # fmt: skip
        """Places the training states of a model, if there is one."""
        if not isinstance(bring_back, bool):
            raise TypeError(f"budget: bring_back: got {bring_back!r}, want True or False")
        if model is not None:
            from .model_states.states import StatesOfBudget

            owner: Any = self
            self._states = StatesOfBudget(owner, model, optimizer, disk, masters, step, bring_back)
        elif (optimizer, disk, masters, step, bring_back) != (
            None, None, None, "behind backward", False,
        ):  # fmt: skip
            raise ValueError(
                "budget: optimizer, disk, masters, step and bring_back: want the model as well: "
                "model=net"
            )

    def _empty(self) -> None:
        """Has all leave that is placed: a step is measured that takes as little as any."""
        if self._states is not None:
            self._states.empty()

    def op_may_train(self, args: tuple[Any, ...]) -> None:
        """An op begins that may be the first of a pass which reads what is trained."""
        if self._states is not None:
            self._states.adding.sees(args)

    def between_passes(self) -> None:
        """An op begins that is of no pass, behind one."""
        if self._states is not None:
            self._states.between.makes_room()

    def report(self, tokens: int | None = None) -> Any:
        """What the step does to memory, and why; a dict that prints as a page and can be drawn.

        With a model it says what its last step moved, what it took and what it takes at least, as
        that of `offload_states`; with the `tokens` of a step, tokens a second, too.

        Where no step of its own is known, as there was no backward, or one that went otherwise than
        it began, it is of the last one that is, of a budget with the same arguments, and says so.
        RuntimeError before there was any.
        """
        from .report import report_of

        owner: Any = self
        if owner._thread is None:  # it has been left
            return report_of(owner, tokens)
        with owner._within.aside():
            return report_of(owner, tokens)

    def unfinished(self) -> list[UnfinishedStep]:
        """The steps that an error or an interrupt has ended early; see that of `offload_states`."""
        context = None if self._states is None else self._states.context
        return [] if context is None else list(context.unfinished())

    def finish_step(self) -> None:
        """Takes the step of the parameters that an early end has left before it; see that of
        `offload_states`.
        """
        if not self.unfinished():
            raise RuntimeError("finish_step: no step has ended early since the last one began")
        self._states.context.finish_step()
