"""torch.nn.modules.utils: one value for all dims, and prefixes of state dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

__all__ = ["consume_prefix_in_state_dict_if_present"]


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    """A function that makes `n` of one value, and a tuple of several."""

    def parse(x: Any) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, Iterable) else tuple(repeat(x, n))

    parse.__name__ = name
    return parse


_single, _pair = _ntuple(1, "_single"), _ntuple(2, "_pair")
_triple, _quadruple = _ntuple(3, "_triple"), _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: tuple[Any, ...], n: int) -> tuple[Any, ...]:
    """The entries from the last to the first, each `n` times."""
    return tuple(x for x in reversed(t) for _ in range(n))


def _list_with_default(out_size: list[int], defaults: list[int]) -> list[int]:
    """Sizes, with those of the input, the last of `defaults`, where None stands."""
    if isinstance(out_size, int):
        return out_size
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    own = defaults[-len(out_size) :]
    return [size if size is not None else d for size, d in zip(out_size, own)]


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Takes a prefix, such as "module.", off the names of a state dict, in place.

    >>> weights = {"module.weight": 1, "bias": 2}
    >>> consume_prefix_in_state_dict_if_present(weights, "module.")
    >>> weights
    {'bias': 2, 'weight': 1}
    """
    for key in list(state_dict):
        if key.startswith(prefix):
            state_dict[key.removeprefix(prefix)] = state_dict.pop(key)
    for key in list(getattr(state_dict, "_metadata", None) or ()):
        if key == prefix.rstrip(".") or key.startswith(prefix):
            metadata = state_dict._metadata  # type: ignore[attr-defined]
            metadata[key.removeprefix(prefix) if len(key) >= len(prefix) else ""] = metadata.pop(
                key
            )
