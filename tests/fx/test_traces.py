"""Symbolic traces are PyTorch's: the text of the code, the nodes, and what they compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch as pytorch

import cugrad
from tests.fx.traced import of, same_weights

pytestmark = pytest.mark.host_only

OURS, THEIRS = of(cugrad), of(pytorch)


def both(name: str) -> list[tuple[Any, Any, tuple[Any, ...]]]:
    """The library, the trace and its arguments, for this library and for PyTorch."""
    return [
        (torch, torch.fx.symbolic_trace(same_weights(torch, cases[name][0])), cases[name][1])
        for torch, cases in ((cugrad, OURS), (pytorch, THEIRS))
    ]


def lines(torch: Any, graph: Any) -> list[Any]:
    return [
        (n.op, n.name, n.target if isinstance(n.target, str) else n.target.__name__,
         str(n.args), str(n.kwargs), [u.name for u in n.users])
        for n in graph.nodes
    ]  # fmt: skip


def flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)) and not hasattr(value, "numel"):
        return [leaf for part in value for leaf in flat(part)]
    return [np.asarray(value.detach()) if hasattr(value, "detach") else str(value)]


@pytest.mark.parametrize("name", OURS)
def test_code_nodes_and_results_are_those_of_pytorch(name: str) -> None:
    (ours, mine, args), (theirs, other, their_args) = both(name)
    assert mine.code == other.code
    assert lines(ours, mine.graph) == lines(theirs, other.graph)
    assert str(mine.graph) == str(other.graph)
    plain = OURS[name][0]
    if name == "starred":
        args, expected = (args[0], *args[1]), plain(args[0], *args[1])
    else:
        expected = plain(*args)
    if name not in ("attributes", "starred"):
        mine.graph.lint()
        for a, b in zip(flat(mine(*args)), flat(expected), strict=True):
            np.testing.assert_array_equal(a, b)
        for a, b in zip(flat(mine(*args)), flat(other(*their_args)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6) if not isinstance(
                a, str
            ) else None
