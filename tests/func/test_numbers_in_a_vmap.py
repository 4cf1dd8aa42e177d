"""A row that takes Python numbers takes them in a vmap too, and answers what it does outside."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.autograd.recording.record import recorded
from cugrad.backends.wanted import wanted
from cugrad.func import vmap
from cugrad.ops.table import COMMON, ELEMENTWISE, FLOAT, TABLE, WEIGHED
from cugrad.tensor import Tensor, make
from tests.ops.row_cases import HOST, Call, is_array, is_inexact
from tests.ops.sampling import LINES, Sample

OF_TENSORS = {"addcdiv", "addcmul"}  # whose operands are no numbers, as PyTorch's are not
DTYPES = "float64", "float32", "float16", "bfloat16"
Function = Callable[..., list[Tensor]]
ROWS = [
    name
    for name, op in TABLE.items()
    if name in LINES and op.promote in (COMMON, FLOAT, WEIGHED) and len(op.promoted) > 1
]


def calls(line: Sample) -> Iterator[tuple[Function, list[Any]]]:
    """The row with some of its operands numbers, as a function of the others; these, twice."""
    call = Call(line, HOST)
    inputs = list(call.inputs)
    drawn = [i for i, x in enumerate(inputs) if is_array(x) and is_inexact(x.dtype) and x.size]
    for size in range(1, len(drawn)):
        for numbers in combinations(drawn, size):
            rest = [i for i in drawn if i not in numbers]

            def function(*given: Tensor, numbers: Any = numbers, rest: Any = rest) -> list[Tensor]:
                args = [make(x) if is_array(x) else x for x in inputs]
                args = [x.to(given[0].device) if isinstance(x, Tensor) else x for x in args]
                for i in numbers:
                    args[i] = float(inputs[i].ravel()[0])
                for i, x in zip(rest, given, strict=True):
                    args[i] = x
                found = getattr(recorded, call.op.name)(*args, **call.given)
                return list(found) if isinstance(found, tuple) else [found]

            yield function, [np.stack([inputs[i], inputs[i][::-1]] if inputs[i].ndim else
                                      [inputs[i]] * 2) for i in rest]  # fmt: skip


def values_and_gradients(function: Function, given: list[Tensor]) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in given]
    found = function(*leaves)
    roots = [y for y in found if y.requires_grad]
    grads = cugrad.autograd.grad(
        [y.sum() for y in roots], leaves, create_graph=True, allow_unused=True
    ) if roots else ()  # fmt: skip
    return [x.detach() for x in (*found, *grads) if x is not None]


def facts(tensors: list[Tensor]) -> list[Any]:
    return [(str(x.dtype), x.cpu().double().numpy()) for x in tensors]


def same(want: list[Any], got: list[Any]) -> bool:
    return len(want) == len(got) and all(
        a == b and np.array_equal(x, y, equal_nan=True) for (a, x), (b, y) in zip(want, got)
    )


@pytest.mark.parametrize("name", ROWS)
def test_values_and_gradients_are_those_of_each_example(
    name: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wanted, "fused", False)  # a kernel of the whole row rounds otherwise
    compared, op = 0, TABLE[name]
    for dtype in DTYPES:
        for function, arrays in calls(replace(LINES[name][0], dtype=dtype)):
            stacked = [make(HOST.asarray(x)).to(device) for x in arrays]
            try:
                want = [values_and_gradients(function, [x[i] for x in stacked]) for i in (0, 1)]
            except (AttributeError, IndexError, TypeError, RuntimeError):
                continue  # it takes no number there
            run = vmap(lambda *given, f=function: tuple(values_and_gradients(f, list(given))))
            compared += 1
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # loops
                got = run(*stacked)
            for number in (0, 1):
                assert same(facts(want[number]), facts([x[number] for x in got])), dtype
    takes_numbers = op.public and op.kind == ELEMENTWISE and name not in OF_TENSORS
    assert compared >= len(DTYPES) if takes_numbers else compared == 0 or name not in OF_TENSORS
