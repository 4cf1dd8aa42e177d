"""What is computed for each element of a new array, as lines of CUDA C, and the kernels of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import cupy
import numpy as np

from ...traced.arrays import Traced, reached_from
from .expressions import checked, device_functions, number_format, statements, value_of
from .launch import OPTIONS
from .source import C_NUMBERS, stored

__all__ = ["ElementCode", "code_of", "raw_kernel"]

TOLD = {"f": np.float32, "d": np.float64, "?": np.bool_, "i": np.int32, "q": np.int64}

_kernels: dict[str, Any] = {}  # by their text, in which no number is that they are told


class ElementCode(NamedTuple):
    """`value` is what is stored, behind `lines`, which call what stands in `head`. `told` are the
    parameters of the kernel for `numbers`.
    """

    head: str
    lines: list[str]
    value: str
    told: str
    numbers: tuple[np.generic, ...]


def code_of(result: Traced, inputs: dict[int, str]) -> ElementCode:
    """The lines for a result, of elements that `inputs` name; Untraceable where there are none."""
    nodes = reached_from([result])
    checked(nodes)
    told = [node for node in nodes if node.function == "number"]
    letters = [number_format(node) for node in told]
    parameters = "".join(f", {C_NUMBERS[letter]} number{k}" for k, letter in enumerate(letters))
    names = {node.name: f"number{k}" for k, node in enumerate(told)}
    lines, called = statements(nodes, inputs, names)
    value = stored(called[result.name], result, result.dtype.name)
    with np.errstate(over="ignore"):
        numbers = [TOLD[c](value_of(node)) for c, node in zip(letters, told, strict=True)]
    return ElementCode(device_functions(lines), lines, value, parameters, tuple(numbers))


def raw_kernel(code: str, name: str) -> Any:
    """The kernel of a text, which is compiled when it is first started."""
    kernel = _kernels.get(code)
    if kernel is None:
        kernel = _kernels[code] = cupy.RawKernel(code, name, OPTIONS)
    return kernel
