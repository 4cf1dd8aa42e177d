"""Traced graphs of elements computed by NumPy, as their kernels compute them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .arrays import Traced, reached_from

__all__ = ["evaluated"]

Host = np.ndarray[Any, Any]
SINGLE = np.dtype(np.float32)


def evaluated(
    namespace: Any, results: Sequence[Traced], inputs: Sequence[Any],
    numbers: Mapping[int, Any] | None = None,
) -> list[Any]:  # fmt: skip
    """What results are where the inputs have these values, by a namespace of NumPy's names; of
    half precision in float32, rounded by nothing on the way. `numbers` are values of nodes that a
    launch tells, by their names.
    """
    values: dict[int, Any] = {}
    numbers = numbers or {}
    for node in reached_from(results):
        kind = _computed(node.dtype)
        if node.function == "input":
            value = np.asarray(inputs[node.value]).astype(kind, copy=False)
        elif node.function == "number":
            value = kind.type(numbers.get(node.name, node.value))
        elif node.function == "astype":
            before = values[node.operands[0].name]
            value = before != 0 if kind.kind == "b" else before.astype(kind, copy=False)
        else:
            value = _function(namespace, node.function)(*[values[x.name] for x in node.operands])
        values[node.name] = value
    return [values[x.name] for x in results]


def _computed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return SINGLE if dtype.kind in "fV" and dtype.itemsize == 2 else dtype


def _function(namespace: Any, name: str) -> Any:
    return namespace.special.gammaln if name == "gammaln" else getattr(namespace, name)
