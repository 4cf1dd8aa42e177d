"""What an optimizer keeps of a parameter, and how fast the host steps: by its own update."""

from __future__ import annotations

import copy
from collections import defaultdict
from time import perf_counter
from typing import Any

from ....autograd.mode import no_grad
from ....autograd.threads import run_to_its_end
from ....functions.creation.factories import ones
from ....tensor import Tensor
from ...recomputing.recorder import unrecorded_here
from ..measuring import BLOCK

__all__ = ["Rehearsals", "host_rate", "in_blocks"]

SAMPLE = 64  # elements of each dim of a parameter by which states are foreseen
TIMED = 1 << 22  # elements of the parameter by whose step the host is timed


def in_blocks(nbytes: int, block: int) -> int:
    """The bytes that a device hands out for so many."""
    return -(-nbytes // block) * block


class Rehearsals:
    """Steps of small parameters in the place of a model's, of which each kind is taken once: they
    show what an optimizer keeps of a parameter, and what its step takes beside that, for a moment.
    """

    def __init__(self, backend: Any, device: Any, has_masters: bool) -> None:
        self.backend, self.device, self.has_masters = backend, device, has_masters
        self.block = 1 if device.type == "cpu" else BLOCK
        self._seen: dict[Any, tuple[list[float], int, float]] = {}

    def of(self, optimizer: Any, group: dict[str, Any], param: Tensor) -> tuple[int, int, int]:
        """Bytes that an optimizer keeps of a parameter, or will keep after its first step, and
        those of a master; of those the bytes of single numbers, which stay on the device; and bytes
        that its step takes beside them.
        """
        state, block = optimizer.state.get(param), self.block
        has_masters = self.has_masters and param.itemsize == 2
        key = (
            id(group), param.dtype, has_masters, *[min(n, SAMPLE) for n in param.shape],
        )  # fmt: skip
        if key not in self._seen:
            try:
                self._seen[key] = self._rehearse(optimizer, group, param, key[3:], has_masters)
            except (RuntimeError, NotImplementedError, AssertionError):  # one with its own step
                self._seen[key] = [param.itemsize, param.itemsize], 0, param.itemsize
        kept, numbers, beside = self._seen[key]
        work, numbers = in_blocks(int(beside * param.numel()), block), numbers * block
        if not state or has_masters and "master" not in state:
            states = sum([in_blocks(int(n * param.numel()), block) for n in kept])
        else:
            states = sum([in_blocks(_bytes(each), block) for each in state.values()])
        return states + numbers, numbers, work

    def _rehearse(
        self, optimizer: Any, group: dict[str, Any], param: Tensor, shape: Any, has_masters: bool
    ) -> tuple[list[float], int, float]:
        """Bytes of each state for each element, how many more are single numbers on the device, and
        bytes that the step takes beside them for each element.
        """
        backend, has_peaks = self.backend, self.device.type != "cpu"
        most = backend.watched_peak()
        sample = param.detach().new_zeros(list(shape), device=self.device)
        sample = sample.float() if has_masters else sample
        sample.requires_grad_()
        sample.grad = sample.detach().clone()
        before = backend.memory_allocated()
        backend.watch_peak()
        try:
            state = _rehearsed(optimizer, group, sample, 2)[0]  # a later one makes numbers anew
            beside = backend.watched_peak() - max(before, backend.memory_allocated())
        finally:
            backend.raise_watched_peak(most)
        kept = [_bytes(each) for each in state.values()] + [has_masters * sample.nbytes]
        n = sample.numel()
        numbers = [v for v in state.values() if isinstance(v, Tensor) and not _bytes(v)]
        there = len([v for v in numbers if v.device == sample.device])
        return [each / n for each in kept], there, beside / n if has_peaks else param.itemsize


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
