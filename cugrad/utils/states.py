"""The states of random generators, as they were when a checkpointed function ran."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ..random import Generator, default_generators, fork_rng
from ..tensor import Tensor

__all__ = ["RandomStates", "tensors_in"]


def tensors_in(values: Any) -> Iterator[Tensor]:
    """All tensors in nested lists, tuples and dicts."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from tensors_in(value)
    elif isinstance(values, dict):
        for value in values.values():
            yield from tensors_in(value)


class RandomStates:
    """The states of the host's generator, and of the devices that tensors among `values` are on."""

    def __init__(self, values: Iterable[Any]) -> None:
        devices = {str(t.device): t.device for t in tensors_in(values) if t.device.type != "cpu"}
        self.devices = list(devices.values())
        generators = default_generators(self.devices)
        self.states: list[tuple[Generator, Tensor]] = [(g, g.get_state()) for g in generators]

    @staticmethod
    @contextmanager
    def again(states: RandomStates | None) -> Iterator[None]:
        """What is drawn inside is what was drawn then, and leaves no trace; None: as it comes."""
        if states is None:
            yield
            return
        with fork_rng(states.devices):
            for generator, state in states.states:
                generator.set_state(state)
            yield
