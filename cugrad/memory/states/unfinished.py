"""A step that has not come to its end: which parameters are behind it, and which before."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...tensor import Tensor

__all__ = ["OpenStep", "UnfinishedStep", "tell"]


class UnfinishedStep(NamedTuple):
    """The parameters of a step that was interrupted, by name, or by number where they have none.

    Those that are `behind` it have their new values and states, those `before` it the old ones.
    """

    optimizer: str
    behind: list[str]
    before: list[str]


class OpenStep:
    """A step of an optimizer that has begun and not ended."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer
        self.kept = len(optimizer.state)  # of how many parameters there were states before
        self.through: set[int] = set()  # the ids of parameters that are behind it
        self.goes_on = False  # whether it is being finished
        self.is_early = False  # whether backward has taken a part of it
        self.gradients: dict[
            int, tuple[int, int]
        ] = {}  # of the others, as they were when it failed
        self.scaled: dict[str, Any] = {}  # what a GradScaler has told the optimizer

    def rest(self) -> list[Tensor]:
        """The parameters that are before it."""
        return [p for p in self._trained() if id(p) not in self.through]

    def behind(self) -> list[Tensor]:
        """The parameters that are behind it."""
        return [p for p in self._trained() if id(p) in self.through]

    def _trained(self) -> list[Tensor]:
        return [param for group in self.optimizer.param_groups for param in group["params"]
                if param._grad is not None]  # fmt: skip

    def fail(self) -> None:
        """It has not come to its end. What the rest of it needs is noted."""
        self.gradients = {id(p): _mark(p) for p in self.rest()}
        fields = vars(self.optimizer)
        self.scaled = {name: fields[name] for name in ("grad_scale", "found_inf") if name in fields}

    def finish(self) -> None:
        """Takes the step of the parameters that are before it."""
        name = type(self.optimizer).__name__
        rest = {id(p): _mark(p) for p in self.rest()}
        if self.gradients and rest != self.gradients:
            raise RuntimeError(
                f"finish_step: gradients have changed since this step of {name} has failed; want "
                "them as they were then"
            )
        self.goes_on = True
        try:
            vars(self.optimizer).update(self.scaled)
            self.optimizer.step()
        finally:
            self.goes_on = False
            for each in self.scaled:
                vars(self.optimizer).pop(each, None)

    def told(self, names: dict[int, str]) -> UnfinishedStep:
        """What is where, by name."""
        params = [p for group in self.optimizer.param_groups for p in group["params"]]
        named = {id(p): names.get(id(p), str(k)) for k, p in enumerate(params)}
        return UnfinishedStep(
            type(self.optimizer).__name__,
            [named[id(p)] for p in self.behind()], [named[id(p)] for p in self.rest()],
        )  # fmt: skip


def _mark(param: Tensor) -> tuple[int, int]:
    """What tells a gradient from another one, or from what it becomes."""
    grad = param._grad
    return id(grad), 0 if grad is None else grad.counter[0]


def tell(error: BaseException, step: OpenStep) -> None:
    """Adds to an error which parameters are as before the step that it has ended."""
    step.fail()
    behind, rest = len(step.behind()), len(step.rest())
    name = type(step.optimizer).__name__
    if not rest:
        text = f"this step of {name} is through: all parameters and states are as behind it"
    elif not behind:
        text = f"this step of {name} has changed nothing: all parameters and states are as before"
    else:
        text = (
            f"of this step of {name}, {behind} of {behind + rest} parameters are through, with "
            f"their states; the other {rest} are as before it. `unfinished()` of the context names "
            "them, and its `finish_step()` takes their step, too"
        )
    if hasattr(error, "add_note"):  # from Python 3.11 on
        error.add_note(f"offload_states: {text}")
