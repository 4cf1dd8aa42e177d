"""Seeds and states of the CUDA devices' random generators, which cugrad.random owns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from .devices import DeviceLike, device_count, index_of

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


class GeneratorProtocol(Protocol):
    """What is asked of a device's generator."""

    def manual_seed(self, seed: int) -> Any: ...
    def initial_seed(self) -> int: ...
    def get_state(self) -> Any: ...
    def set_state(self, state: Any) -> Any: ...


class _Owner:
    generator_of: Callable[[int], GeneratorProtocol] | None = None


def register(generator_of: Callable[[int], GeneratorProtocol]) -> None:
    """Takes the function that answers the default generator of a CUDA device by its index.

    cugrad.random lies above this room and hands it down.
    """
    _Owner.generator_of = generator_of


def _generator(index: int) -> GeneratorProtocol:
    if _Owner.generator_of is None:
        raise RuntimeError("cuda.manual_seed: no generators yet; import cugrad.random first")
    return _Owner.generator_of(index)


def manual_seed(seed: int) -> None:
    """Seeds the current device's generator; does nothing without CUDA."""
    if device_count():
        _generator(index_of(None)).manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all devices; does nothing without CUDA."""
    for index in range(device_count()):
        _generator(index).manual_seed(seed)


def _drawn() -> int:
    """53 bits of the system's."""
    return int.from_bytes(os.urandom(7), "little") >> 3


def seed() -> None:
    """Seeds the current device's generator with a number of the system's; nothing without CUDA."""
    manual_seed(_drawn())


def seed_all() -> None:
    """Seeds the generators of all devices with one number of the system's; nothing without CUDA."""
    manual_seed_all(_drawn())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return _generator(index_of(None)).initial_seed()


def get_rng_state(device: DeviceLike = "cuda") -> Any:
    """The state of a device's generator, a uint8 tensor in host memory."""
    return _generator(index_of(device)).get_state()


def get_rng_state_all() -> list[Any]:
    """The states of all devices' generators; empty without CUDA."""
    return [_generator(index).get_state() for index in range(device_count())]


def set_rng_state(new_state: Any, device: DeviceLike = "cuda") -> None:
    """Puts a device's generator into a state of get_rng_state()."""
    _generator(index_of(device)).set_state(new_state)


def set_rng_state_all(new_states: Iterable[Any]) -> None:
    """Puts all devices' generators into states of get_rng_state_all()."""
    for index, state in enumerate(new_states):
        _generator(index).set_state(state)
