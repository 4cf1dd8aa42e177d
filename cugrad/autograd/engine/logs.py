"""Logs what backward runs, node by node, when the logger `cugrad.autograd.graph` is at DEBUG."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...dtypes import of as dtype_of
from ...tensor import Tensor
from ..recording.node import accumulator

__all__ = ["is_logged", "logged"]

LOGGER = "cugrad.autograd.graph"

SHORT = {
    "bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64", "complex64": "c64",
    "complex128": "c128", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "bool": "b8",
}  # fmt: skip


def is_logged() -> bool:
    """Whether the logger is at DEBUG, which a program can set only after importing logging."""
    logging = sys.modules.get("logging")
    if logging is None:
        return False
    log = logging.root.manager.loggerDict.get(LOGGER)
    if not isinstance(log, logging.Logger):
        log = logging.getLogger(LOGGER)  # which takes a lock
    return bool(log.isEnabledFor(logging.DEBUG))


def described(t: Tensor | None) -> str:
    """A tensor as its dtype and shape: f32[2, 3]."""
    if t is None:
        return "None"
    name = str(dtype_of(t._array.dtype)).removeprefix("torch.")
    return f"{SHORT.get(name, name)}[{', '.join(map(str, t._array.shape))}]"


@contextmanager
def logged(nodes: Any) -> Iterator[None]:
    """Logs each of these nodes and leaves before it runs in a backward pass."""
    import logging

    log = logging.getLogger(LOGGER)

    def prehook_of(node: Any) -> Any:
        def prehook(grads: tuple[Tensor | None, ...]) -> None:
            text = ", ".join(map(described, grads))
            log.debug("Executing: %r with grad_outputs: [%s]", node, text)

        return prehook

    handles = []
    for end in nodes:
        node = accumulator(end) if isinstance(end, Tensor) else end
        handles.append(node.register_prehook(prehook_of(node)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
