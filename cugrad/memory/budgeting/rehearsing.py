"""What an optimizer keeps of a parameter, and how fast the host steps: by its own update."""

from __future__ import annotations

import copy
from collections import defaultdict
from time import perf_counter
from typing import Any

from ...autograd.mode import no_grad
from ...autograd.threads import run_to_its_end
from ...functions.creation.factories import ones
from ...tensor import Tensor
from ..recomputing.recorder import unrecorded_here

__all__ = ["bytes_of_states", "host_rate", "in_blocks"]

SAMPLE = 64  # elements of each dim of a parameter by which states are foreseen
TIMED = 1 << 22  # elements of the parameter by whose step the host is timed


def in_blocks(nbytes: int, block: int) -> int:
    """The bytes that a device hands out for so many."""
    return -(-nbytes // block) * block


def bytes_of_states(
    optimizer: Any, group: dict[str, Any], param: Tensor, has_masters: bool, block: int = 1
) -> int:
    """Bytes that an optimizer keeps of a parameter, or will keep after its first step, and those
    of a master: in blocks of so many, for each tensor.
    """
    state = optimizer.state.get(param)
    has_masters = has_masters and param.itemsize == 2
    if not state or has_masters and "master" not in state:
        sample = param.detach().new_zeros([min(n, SAMPLE) for n in param.shape], device="cpu")
        sample = sample.float() if has_masters else sample
        sample.requires_grad_()
        sample.grad = sample.detach().clone()
        try:
            state = _rehearsed(optimizer, group, sample)[0]
        except (RuntimeError, NotImplementedError, AssertionError):  # one that has its own step
            return 2 * in_blocks(param.nbytes, block)
        every = [_bytes(each) for each in state.values()] + [has_masters * sample.nbytes]
        times = param.numel() / sample.numel()
        return sum([in_blocks(int(nbytes * times), block) for nbytes in every])
    return sum([in_blocks(_bytes(each), block) for each in state.values()])


def _rehearsed(optimizer: Any, group: Any, sample: Tensor, times: int = 1) -> tuple[Any, float]:
    """The state that an optimizer makes of a parameter that is not its own, which has a gradient,
    and the seconds of the last step.
    """
    rehearsal, seconds = copy.copy(optimizer), 0.0
    vars(rehearsal).update(state=defaultdict(dict), param_groups=[group], _elsewhere=None)
    with no_grad():
        for _ in range(times):
            began = perf_counter()
            rehearsal._update([sample], {**group, "fused": None, "capturable": False})
            seconds = perf_counter() - began
    return rehearsal.state.get(sample) or {}, seconds


def host_rate(optimizer: Any) -> float:
    """Bytes that the host reads and writes in a second, in steps of an optimizer. It is no part of
    a step that a budget records.
    """
    rates: list[float] = []

    def measure() -> None:
        unrecorded_here()
        sample = ones(TIMED, device="cpu").requires_grad_()
        sample.grad = sample.detach().clone()
        state, seconds = _rehearsed(optimizer, optimizer.param_groups[0], sample, 3)
        nbytes = 3 * sample.nbytes + 2 * sum([_bytes(each) for each in state.values()])
        rates.append(nbytes / max(seconds, 1e-9))

    run_to_its_end(measure)
    return rates[0]


def _bytes(value: Any) -> int:
    return value.nbytes if isinstance(value, Tensor) and value.numel() > 1 else 0
