"""Tables whose elements are functions of their places, each as one kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ...traced.arrays import Traced
from ..arrays import form_of, new_array
from .elements import code_of, raw_kernel
from .expressions import STORED
from .source import THREADS, headers_of

__all__ = ["table_function"]

Array = Any  # cupy.ndarray
MOST_BLOCKS = 4096  # the kernel strides over what one launch does not cover
WIDE = 1 << 30  # elements from which on their numbers are of 64 bits


def table_function(name: str, element: Traced, shape: Sequence[int]) -> Callable[[], Array]:
    """What makes new tables of a shape that is not empty: `element` is computed of its place, whose
    coordinates are the inputs, in float64. Untraceable where no kernel can.
    """
    size, dims = prod(shape), range(len(shape))
    code = code_of(element, {k: f"c{k}" for k in dims})
    index = ("int", np.int32) if size < WIDE else ("long long", np.int64)
    text = _text(name, element.dtype.name, len(shape), index[0], code)
    kernel, form = raw_kernel(text, name), form_of(tuple(shape), element.dtype)
    told = (index[1](size), *[index[1](n) for n in shape[1:]], *code.numbers)
    grid = (min(-(-size // THREADS), MOST_BLOCKS),)

    def make() -> Array:
        table = new_array(form)
        kernel(grid, (THREADS,), (table, *told))
        return table

    return make


def _text(name: str, dtype: str, dims: int, index: str, code: Any) -> str:
    sizes = "".join(f", {index} size{k}" for k in range(1, dims))
    places: list[str] = []
    for k in range(dims - 1, 0, -1):
        places += [f"const double c{k} = rest % size{k};", f"rest /= size{k};"]
    body = [f"{index} rest = at;", *places, "const double c0 = rest;", *code.lines]
    lines = "".join(f"        {line}\n" for line in body)
    return f"""{headers_of([dtype])}{code.head}
extern "C" __global__ void {name}({STORED[dtype]}* out, {index} n{sizes}{code.told})
{{
    const {index} stride = ({index})gridDim.x * blockDim.x;
    for ({index} at = ({index})blockIdx.x * blockDim.x + threadIdx.x; at < n; at += stride) {{
{lines}        out[at] = {code.value};
    }}
}}
"""
