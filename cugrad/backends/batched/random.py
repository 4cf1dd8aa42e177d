"""Random numbers inside vmap: refused, the same for all examples, or different."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from .arrays import Array, BatchedArray, BatchLevel, levels_of, owner, unify

__all__ = ["BatchedRng", "open_levels"]

open_levels: Callable[[], list[BatchLevel]] = list  # set by cugrad.autograd.transforms


class BatchedRng:
    """A stream of random numbers as the running vmaps let code inside see it."""

    made_of: Any = None  # what is drawn has dims that a function need not know of

    def __init__(self, rng: Any) -> None:
        self._rng = rng

    def uniform(self, shape: tuple[int, ...], dtype: Any) -> Array:
        return _drawn(lambda s: self._rng.uniform(s, dtype), shape)

    def normal(self, shape: tuple[int, ...], dtype: Any) -> Array:
        return _drawn(lambda s: self._rng.normal(s, dtype), shape)

    def integers(self, low: int, high: int, shape: tuple[int, ...], dtype: Any) -> Array:
        return _drawn(lambda s: self._rng.integers(low, high, s, dtype), shape)

    def bits(self, p: float, shape: tuple[int, ...]) -> Array:
        drawn = self.uniform(shape, np.dtype("float32")) < p
        return owner(drawn).xp.packbits(drawn.reshape(-1))

    def permutation(self, n: int, dtype: Any) -> Array:
        def draw(shape: tuple[int, ...]) -> Array:
            rows = [self._rng.permutation(n, dtype) for _ in range(prod(shape[:-1]))]
            return owner(rows[0]).xp.stack(rows).reshape(shape)

        return _drawn(draw, (n,))

    def poisson(self, rate: Array) -> Array:
        return _counted(self._rng.poisson, rate)

    def binomial(self, count: Array, chance: Array) -> Array:
        return _counted(self._rng.binomial, count, chance)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rng, name)


def _allow_draw(level: BatchLevel) -> None:
    if level.randomness == "error":
        raise RuntimeError(
            "vmap: called random operation while in randomness error mode. Please either use the "
            "'same' or 'different' randomness flags on vmap or perform the randomness operation "
            "out of vmap"
        )


def _counted(draw: Callable[..., Array], *parameters: Array) -> Array:
    """Counts drawn element by element, of parameters that may differ by example."""
    for level in open_levels():
        _allow_draw(level)
        if level.randomness == "different":
            parameters = tuple([level.lift(x) for x in parameters])
        elif any(level in levels_of(x) for x in parameters):
            raise RuntimeError(
                "Vmap does not currently support same randomness with a batched tensor input: use "
                "randomness='different'"
            )
    unified = unify(parameters)
    plain = list(unified)
    while type(plain[0]) is BatchedArray:
        plain = [x.values for x in plain]

    def like(array: Array, values: Array) -> Array:
        if type(array) is not BatchedArray:
            return values
        return array.backend.made(like(array.values, values))

    return like(unified[0], draw(*plain))


def _drawn(draw: Callable[[tuple[int, ...]], Array], shape: tuple[int, ...]) -> Array:
    """Refused, one draw for all examples, or one for each."""
    different = []
    for level in open_levels():
        _allow_draw(level)
        if level.randomness == "different":
            different.append(level)
    array = draw((*[level.size for level in reversed(different)], *shape))
    for place, level in enumerate(different):  # the innermost stands first, and is put on last
        array = level.wrap(array, len(different) - 1 - place)
    return array
