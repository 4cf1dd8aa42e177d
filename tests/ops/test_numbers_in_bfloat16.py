"""Gradients in bfloat16 are bfloat16, whatever Python numbers the formulas of a row are given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import cugrad
from cugrad import backends
from cugrad.ops.table import TABLE
from cugrad.tensor import make
from tests.conftest import usable_devices
from tests.ops import samples
from tests.ops.row_cases import Call, differentiable, is_array, ways
from tests.ops.sampling import LINES, Sample

PLACE = backends.get(usable_devices()[0])  # the CPU, or the device that the run is for
ROWS = [
    name
    for name, op in TABLE.items()
    if name in LINES and differentiable(op) and name not in samples.NO_HALF
]


def cases(line: Sample) -> Iterator[Sample]:
    """The line, and it with each of its numbers no integer."""
    line = replace(line, dtype="bfloat16")
    yield line
    for name, value in {**TABLE[line.row].defaults, **line.params}.items():
        if type(value) in (int, float):
            yield replace(line, params={**line.params, name: value + 0.3})


def pairs(case: Sample) -> Iterator[tuple[Any, Any]]:
    """Each differentiable input, and its gradient: of a backward, and of a recorded one."""
    call = Call(case, PLACE)
    arrays = enumerate(call.inputs)
    tensors = [make(x, i in call.differentiable) if is_array(x) else x for i, x in arrays]
    # no leaves, whose gradients are cast in any case
    given = [x * 1 if getattr(x, "requires_grad", False) else x for x in tensors]
    found = ways(call.op)[1](*([given] if call.op.variadic else given), **call.given)
    found = found if isinstance(found, tuple) else (found,)
    outputs = [y for y in found if getattr(y, "requires_grad", False)]
    inputs = [given[i] for i in call.differentiable]
    ones = [cugrad.ones_like(y) for y in outputs]
    for recorded in (False, True) if outputs else ():
        grads = cugrad.autograd.grad(
            outputs, inputs, ones, retain_graph=True, create_graph=recorded, allow_unused=True
        )
        yield from zip(inputs, grads, strict=True)


@pytest.mark.parametrize("name", ROWS)
def test_gradients_are_of_the_dtype_of_what_they_are_for(name: str) -> None:
    for line in LINES[name]:
        for number, case in enumerate(cases(line)):
            try:
                found = list(pairs(case))
            except Exception:  # of a size, or an index
                if number == 0:
                    raise
                continue
            for x, g in found:
                assert g is None or g.dtype == x.dtype, f"{case.id}: {g.dtype}"
