"""What `update` of ModuleDict and ParameterDict adds: keys and values, of a mapping or of pairs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["pairs_of"]


def pairs_of(name: str, values: Any) -> Iterable[tuple[Any, Any]]:
    """What `update` adds; errors are PyTorch's."""
    if hasattr(values, "items"):
        return values.items()
    if not isinstance(values, Iterable):
        raise TypeError(
            f"{name}.update should be called with an iterable of key/value pairs, but got "
            f"{type(values).__name__}"
        )
    pairs = list(values)
    for number, pair in enumerate(pairs):
        if not isinstance(pair, Iterable):
            raise TypeError(
                f"{name} update sequence element #{number} should be Iterable; is "
                f"{type(pair).__name__}"
            )
        if len(tuple(pair)) != 2:
            raise ValueError(
                f"{name} update sequence element #{number} has length {len(tuple(pair))}; 2 is "
                "required"
            )
    return pairs
