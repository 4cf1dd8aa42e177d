"""Kernels of `cugrad.fuse` on the host: their graphs of elements, computed by NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from cugrad.backends import BY_ARRAY_TYPE, get
from cugrad.backends.traced.arrays import Traced, reached_from
from cugrad.backends.traced.namespace import TracedBackend
from cugrad.func import fusing


def graph_function(
    name: str, results: list[Traced], arrays: Sequence[Any], targets: Any = None
) -> Callable[[Sequence[Any]], list[Any]]:
    """What a kernel of these elements computes; each in the shape of all, or of its target."""
    nodes = reached_from(results)

    def run(arrays: Sequence[Any]) -> list[Any]:
        shape = np.broadcast_shapes(*[x.shape for x in arrays])
        values: dict[int, Any] = {}
        with np.errstate(all="ignore"):
            for node in nodes:
                values[node.name] = value_of(node, arrays, values)
        wide = [np.broadcast_to(values[x.name], shape).astype(x.dtype) for x in results]
        if targets is None:
            return wide
        return [summed(x, tuple(target)) for x, target in zip(wide, targets, strict=True)]

    return run


def value_of(node: Traced, arrays: Sequence[Any], values: dict[int, Any]) -> Any:
    if node.function == "input":
        return arrays[node.value].astype(node.dtype, copy=False)
    if node.function == "number":
        return node.dtype.type(node.value)
    operands = [values[x.name] for x in node.operands]
    if node.function == "astype":
        return operands[0].astype(node.dtype)
    special = get("cpu").xp
    function = getattr(np, node.function, None) or getattr(special, node.function, None)
    return (function or getattr(special.special, node.function))(*operands).astype(node.dtype)


def summed(x: Any, shape: tuple[int, ...]) -> Any:
    x = x.sum(tuple(range(x.ndim - len(shape))))
    ones = tuple(d for d, size in enumerate(shape) if size != x.shape[d])
    return np.asarray(x.sum(ones, keepdims=True) if ones else x)


@contextmanager
def fused_on_host() -> Iterator[None]:
    """What is fused runs as kernels would, on tensors in host memory."""
    backend, are_read = get("cpu"), fusing._are_read

    def are_read_here(tensors: Sequence[Any]) -> bool:
        return all(type(x._array) is np.ndarray for x in tensors)

    BY_ARRAY_TYPE.setdefault(Traced, TracedBackend())
    fusing._are_read = are_read_here
    backend.graph_function = graph_function
    try:
        yield
    finally:
        fusing._are_read = are_read
        del backend.graph_function
