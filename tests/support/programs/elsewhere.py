"""Weights, gradients and states of a program where `memory.offload_states` puts them, by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cugrad as t
from cugrad import memory

# Each places the leaves that are there as it begins, and what is trained within it.
STATES: dict[str, dict[str, Any]] = {
    "weights on the host": {"weights": "host"},
    "gradients on the host": {"gradients": "host"},
    "states on the host": {"states": "host"},
    "states streamed": {"states": "stream"},
    "all on the host": {"weights": "host", "gradients": "host", "states": "host"},
    "all streamed": {"weights": "host", "gradients": "host", "states": "stream"},
    "all on disk": {"weights": "disk", "gradients": "host", "states": "disk"},
    "all stay there": {
        "weights": "host", "gradients": "host", "states": "stream", "bring_back": False},
}  # fmt: skip


@contextmanager
def states(env: dict[str, Any], name: str) -> Iterator[None]:
    """Places what a program has, whose names `env` knows, and has `trained` place what it makes."""
    places = {"min_bytes": 0, "window": 64, **STATES[name]}
    before = env.get("elsewhere")
    env["elsewhere"] = lambda params, optimizer: memory.offload_states(params, optimizer, **places)
    try:
        with memory.offload_states(leaves(env), **{**places, "states": "device"}):
            yield
    finally:
        env["elsewhere"] = before


def leaves(env: dict[str, Any]) -> list[t.Tensor]:
    """What could be a parameter."""
    values = [x for name, x in env.items() if name[0] == "v" and isinstance(x, t.Tensor)]
    return [x for x in values if not x._is_view() and x.requires_grad and x.is_leaf]
