"""Takes back the step of a few parameters that did not come to its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...autograd.recording.views import were_changed, will_be_changed
from ...backends import backend_of
from ...backends.batched.arrays import plain
from ...tensor import Tensor
from ..geometry import BYTE, memory_of, root_of, span_of
from .home import Home
from .placed import FIELD, HOMES, tensors_in

__all__ = ["Before", "Remembered"]


class Before:
    """What parameters, and what an optimizer keeps of them, are before a step.

    What the host or a disk has as it is now need not be copied: its span is held. The rest is
    copied where it is, that of a device in one piece.
    """

    def __init__(self, optimizer: Any, params: list[Tensor], on_host: bool = False) -> None:
        self.optimizer = optimizer
        states = [(param, optimizer.state.get(param)) for param in params]
        self.states = [
            (param, state, dict(state) if isinstance(state, dict) else None)
            for param, state in states
        ]
        self.elsewhere: list[tuple[Home, Any, Any]] = []
        copied: dict[Any, list[Tensor]] = {}
        for tensor in self._tensors(params):
            home = HOMES.get(id(tensor))
            if home is not None and not on_host and home.is_up_to_date:
                self.elsewhere.append((home, home.span, home.pending))
            else:
                copied.setdefault(backend_of(_array_of(tensor)), []).append(tensor)
        self.copies = [(xp, several, _copy(xp, several)) for xp, several in copied.items()]

    def _tensors(self, params: list[Tensor]) -> Iterator[Tensor]:
        """The tensors that the step may change, each once; gradients that have been sent, too."""
        seen: set[int] = set()
        for param, _, state in self.states:
            for tensor in (param, *tensors_in(state)):
                if id(tensor) not in seen and tensor.numel():
                    seen.add(id(tensor))
                    yield tensor
            gradient = HOMES.get(id(param._grad))
            if gradient is not None and gradient.is_up_to_date:
                yield gradient.ref()

    def put_back(self) -> None:
        """Makes all as it was. May be called again, should an interrupt come meanwhile."""
        for param, state, values in self.states:
            if values is None:
                self.optimizer.state.pop(param, None)
            else:
                self.optimizer.state[param] = state
                state.update(values)
                for name in state.keys() - values.keys():
                    del state[name]
        for home, span, pending in self.elsewhere:
            home.revert(span, pending)
        for backend, tensors, copy in self.copies:
            shown = will_be_changed(tensors)
            at = 0
            for tensor in tensors:
                memory = _bytes(backend, tensor)
                memory[...] = copy[at : at + memory.nbytes]
                at += memory.nbytes
            were_changed(shown)


class Remembered(Before):
    """Of that what an optimizer keeps, but for the elements of tensors that are placed."""

    def _tensors(self, params: list[Tensor]) -> Iterator[Tensor]:
        return (tensor for tensor in super()._tensors(params) if id(tensor) not in HOMES)


def _bytes(backend: Any, tensor: Tensor) -> Any:
    """The bytes of a tensor; of one with gaps those between, too, which its storage has."""
    array = _array_of(tensor)
    root, size, _, low, high = span_of(array, root_of(array))
    memory = memory_of(backend.xp, root)
    return memory if high - low == size else memory[low:high]


def _array_of(tensor: Tensor) -> Any:
    """The array of a tensor; of one that is here it is not noted as a use."""
    home = HOMES.get(id(tensor))
    here = home is not None and home.is_here and not home.is_outdated
    return plain(FIELD.__get__(tensor) if here else tensor._array)


def _copy(backend: Any, tensors: list[Tensor]) -> Any:
    with backend.use_device(backend.device_index(_array_of(tensors[0]))), backend.quiet():
        return backend.xp.concatenate([_bytes(backend, t).view(BYTE) for t in tensors])
