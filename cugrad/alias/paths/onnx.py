"""torch.onnx: nothing is exported, so that what packages register for an export is not called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...runtime.absent import COMPILED
from ..refusals import refuse_the_rest

__all__ = ["is_in_onnx_export", "parse_args", "register_custom_op_symbolic",
           "unregister_custom_op_symbolic"]  # fmt: skip


def is_in_onnx_export() -> bool:
    """False."""
    return False


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Any, opset_version: int) -> None:
    """Nothing asks for what is registered."""


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Nothing was registered."""


def parse_args(*arg_descriptors: str) -> Callable[[Any], Any]:
    """A decorator that gives the function back."""
    return lambda function: function


refuse_the_rest(__name__, "onnx", COMPILED)
