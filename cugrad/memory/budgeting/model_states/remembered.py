"""What budgets remember of a model: its places, which the next one need not find out again."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

from ..known_steps import StepBook
from .choosing import Candidate

__all__ = ["Known", "forget", "recall", "remember"]


class Known(NamedTuple):
    """What a budget has chosen for a model, and for which parameters."""

    params: list[tuple[int, int, bool]]
    chosen: Candidate
    tried: list[Candidate]
    measured: dict[int, float]
    settled: bool
    is_least: bool  # whether there are no places with less of the device
    between: tuple[int, int]  # bytes that what is done between passes takes, and has beside it
    book: StepBook  # its steps, of which each depends on the places


Optimizers = list[weakref.ref[Any]]

# by model, and by the arguments of the budget
_known: weakref.WeakKeyDictionary[Any, dict[Any, tuple[Optimizers, Known]]] = (
    weakref.WeakKeyDictionary()
)


def recall(model: Any, key: Any, optimizers: list[Any], params: Any) -> Known | None:
    """What a budget of such arguments has chosen for these optimizers and parameters."""
    refs, choice = _known.get(model, {}).get(key, ([], None))
    if choice is None or choice.params != params or [ref() for ref in refs] != optimizers:
        return None
    return choice


def remember(model: Any, key: Any, optimizers: list[Any], choice: Known) -> None:
    refs = [weakref.ref(each) for each in optimizers]
    _known.setdefault(model, {})[key] = refs, choice


def forget(model: Any, key: Any) -> None:
    _known.get(model, {}).pop(key, None)
