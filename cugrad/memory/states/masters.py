"""Steps of weights in 16 bits, on a copy in float32 of each: its master."""

from __future__ import annotations

from typing import Any

from ...dtypes import bfloat16, float16, float32
from ...tensor import Tensor
from .placed import HOMES

__all__ = ["Masters", "check_masters", "steps_by_buckets"]

NARROW = (bfloat16, float16)
MASTER = "master"  # its name in an optimizer's state


class Masters:
    """Takes the steps of narrow parameters on their masters, by the optimizer's own update.

    A master is one of the states of its parameter, with the others, which are in float32, too: so
    it is placed, saved and put back as they are. Behind the step the parameter is what the master
    rounds to. What others have written to a parameter since is what its master is, where they
    differ: `marks` has what tells whether there may be such elements.
    """

    def __init__(self) -> None:
        self.marks: dict[int, tuple[int, int]] = {}  # by the id of the parameter

    def widen(self, optimizer: Any) -> None:
        """Has the states of narrow parameters that have no master yet be in float32."""
        for param, state in list(optimizer.state.items()):
            if param.dtype in NARROW and isinstance(state, dict) and MASTER not in state:
                for name, value in state.items():
                    if isinstance(value, Tensor) and value.ndim and value.dtype == param.dtype:
                        state[name] = value.to(float32)

    def update(self, optimizer: Any, params: list[Tensor], group: dict[str, Any]) -> None:
        """One step of parameters that have gradients."""
        others = [param for param in params if param.dtype not in NARROW]
        if others:
            optimizer._update(others, group)
        narrow = [param for param in params if param.dtype in NARROW]
        if not narrow:
            return
        states = [optimizer.state.get(param) or {} for param in narrow]
        masters = [self._master(param, state) for param, state in zip(narrow, states)]
        try:
            for param, state, master in zip(narrow, states, masters):
                grad: Any = param._grad
                master._grad = grad.to(float32)
                rest = {name: value for name, value in state.items() if name != MASTER}
                if rest:
                    optimizer.state[master] = rest
            optimizer._update(masters, group)
            for param, master in zip(narrow, masters):
                optimizer.state[param] = {**optimizer.state.get(master, {}), MASTER: master}
                param.copy_(master)
        finally:
            for master in masters:
                master._grad = None
                optimizer.state.pop(master, None)
        for param in narrow:
            mark = _mark(param)
            if mark is not None:
                self.marks[id(param)] = mark

    def _master(self, param: Tensor, state: dict[str, Any]) -> Tensor:
        master = state.get(MASTER)
        if master is None:
            return param.detach().to(float32, copy=True)
        if self.marks.get(id(param), ()) != _mark(param):
            now = param.detach()
            master.copy_(now.to(float32).where(now != master.to(param.dtype), master))
        return master


def _mark(param: Tensor) -> tuple[int, int] | None:
    """What differs when a parameter has been written to; None where that is not known."""
    home = HOMES.get(id(param))
    return None if home is None else (param.counter[0], home.writes)


def steps_by_buckets(optimizer: Any) -> bool:
    """Whether an optimizer leaves it to others which parameters step when: its step is its
    `_update`.
    """
    owner = next(cls for cls in type(optimizer).__mro__ if "step" in vars(cls))
    return "_update_groups" in vars(owner)


def check_masters(optimizers: list[Any]) -> None:
    """ValueError for an optimizer that does not leave its step to others."""
    for each in optimizers:
        if not steps_by_buckets(each):
            raise ValueError(
                f"offload_states: masters: got {type(each).__name__}, which has a `step` of its "
                "own; want an optimizer whose step is its `_update`"
            )
