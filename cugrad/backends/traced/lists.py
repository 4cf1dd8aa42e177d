"""What a kernel over lists of arrays computes, of the elements at one place of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .arrays import Traced, reached_from

__all__ = ["Folding", "ListGraph", "MakeListGraph", "NumbersGraph"]


class Folding(NamedTuple):
    """One number of all elements of all arrays: their terms added up, or the largest of them.

    `results` are what becomes of the total, the one input of their trace; `constants` are numbers
    of that trace that each launch tells. Without results it is a number of each array.
    """

    term: Traced
    how: str  # "add" or "maximum"
    results: tuple[Traced, ...] = ()
    constants: tuple[Traced, ...] = ()


class ListGraph(NamedTuple):
    """What becomes of lists: the inputs of its trace are elements of the lists, by their number.

    `results` are new elements, by the list that they replace. `constants` are numbers of the trace
    that are one for all elements of an array, and told at each launch.
    """

    name: str
    results: dict[int, Traced]
    constants: tuple[Traced, ...]
    fold: Folding | None = None

    @property
    def outputs(self) -> list[Traced]:
        """All that is computed of the elements."""
        return [*self.results.values(), *([self.fold.term] if self.fold else [])]

    @property
    def folds_each(self) -> bool:
        """Whether it has a number of each array."""
        return self.fold is not None and not self.fold.results

    def lists_read(self) -> set[int]:
        """The lists whose elements are read."""
        return {x.value for x in reached_from(self.outputs) if x.function == "input"}


class NumbersGraph(NamedTuple):
    """What numbers make of numbers: its trace has an input in double precision for each.

    The first of `results` are new values of as many first inputs, the others constants.
    """

    name: str
    results: tuple[Traced, ...]


MakeListGraph = Callable[[tuple[np.dtype[Any], ...]], ListGraph]  # of the dtypes of the lists
