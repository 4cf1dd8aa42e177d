"""Steps of rules that are no formulas by element, of parameters of one shape together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...backends import backend_of
from ...backends.traced.arrays import Trace
from ...backends.traced.lists import NumbersGraph
from ...func.fusing import fuse
from ...functions.maths.together import copied_together
from ...tensor import Tensor, make
from .blocks import computing_dtype
from .recorded import RecordedForm

__all__ = ["Columns", "follow_together"]

MOST_BYTES = 1 << 26  # of the parameters that are stacked at once: launches cost less than these
DOUBLE = np.dtype(np.float64)

Columns = dict[str, list[Any]]  # by name: a tensor, or None, for each parameter

_fused: dict[Callable[..., Any], Callable[..., Any]] = {}
_identities: dict[Any, Any] = {}  # by device and count: kernels that write numbers down


class BatchForm(RecordedForm):
    """The functions of a rule on stacks, whose first dim counts tensors of one shape."""

    def __init__(self) -> None:
        self._told: dict[Any, list[Any]] = {}

    @staticmethod
    def rank(x: Tensor) -> int:
        return x.dim() - 1

    @staticmethod
    def rms(x: Tensor, times: float = 1.0) -> Tensor:
        dims = tuple(range(1, x.dim()))
        size: Tensor = x.square().mean(dims, keepdim=True).sqrt() if dims else x.abs()
        return size if times == 1.0 else size / times

    @staticmethod
    def norm(x: Tensor) -> Tensor:
        norm: Tensor = x.norm(2, dim=tuple(range(1, x.dim())), keepdim=True)
        return norm

    @staticmethod
    def fused(function: Callable[..., Any], *args: Any) -> Any:
        if function not in _fused:
            _fused[function] = fuse(function)
        return _fused[function](*args)

    def told(self, like: Tensor, *numbers: Any) -> list[Any]:
        """Numbers as tensors on the device, so that others make no other kernel."""
        floats = tuple([x for x in numbers if isinstance(x, float)])
        if not floats:
            return list(numbers)
        array = like._array
        key = floats, array.dtype
        if key not in self._told:
            backend = backend_of(array)
            kernels = _identities.get((id(backend), len(floats)))
            if kernels is None:
                trace = Trace()
                inputs = tuple([trace.input(k, DOUBLE) for k in range(len(floats))])
                kernels = backend.number_kernels(NumbersGraph("numbers_told", inputs))
                _identities[id(backend), len(floats)] = kernels
            row = kernels.run([], floats, array.dtype.name)[0]
            self._told[key] = [make(row[k]) for k in range(len(floats))]
        tensors = iter(self._told[key])
        return [next(tensors) if isinstance(x, float) else x for x in numbers]


def follow_together(
    function: Callable[..., dict[str, Any]], arrays: Columns, numbers: Columns,
    settings: dict[str, Any], through: Callable[[Sequence[Tensor]], None],
) -> list[int]:  # fmt: skip
    """One step of a rule for parameters on one device, and their states, in place; the places of
    parameters that are left. `through` is told of those that are through, a stack at a time.
    """
    groups: dict[Any, list[int]] = {}
    left, form = [], BatchForm()
    for at, param in enumerate(arrays["param"]):
        if not param.numel() or any(_is_on_device(column[at]) for column in numbers.values()):
            left.append(at)
            continue
        kinds = tuple([x if x is None else x.dtype for x in (c[at] for c in arrays.values())])
        values = tuple([column[at].item() for column in numbers.values()])
        groups.setdefault((tuple(param.shape), kinds, values), []).append(at)
    for (_, _, values), places in groups.items():
        first = arrays["param"][places[0]]
        count = max(1, MOST_BYTES // first.nbytes)
        for begin in range(0, len(places), count):
            some = places[begin : begin + count]
            columns = {name: [column[at] for at in some] for name, column in arrays.items()}
            _step(form, function, columns, dict(zip(numbers, values)), settings)
            for name, value in columns.pop("new numbers")[0].items():
                for at in some:
                    numbers[name][at].fill_(value)
            through(columns["param"])
    return left


def _part(stack: Any, k: int) -> Tensor:
    """A tensor of a stack: a view of its memory, also where it has no dims."""
    return make(stack[k : k + 1].reshape(stack.shape[1:]))


def _is_on_device(number: Tensor) -> bool:
    return number.device.type != "cpu"


def _step(
    form: BatchForm, function: Callable[..., dict[str, Any]], columns: Columns,
    numbers: dict[str, float], settings: dict[str, Any],
) -> None:  # fmt: skip
    """The step of one stack; `columns` gets "new numbers", those that the rule makes of numbers."""
    dtype = computing_dtype(columns["param"][0]._array.dtype)
    stacks = _stacked(columns, dtype)
    results = function(form, **stacks, **numbers, **settings)
    columns["new numbers"] = [{name: results[name] for name in numbers}]
    targets, sources = list[Any](), list[Any]()
    for name, value in results.items():
        if name in numbers or value is None or value is stacks[name]:
            continue
        targets += columns[name]
        sources += [_part(value._array, k) for k in range(len(columns[name]))]
    for at in copied_together(targets, sources):
        targets[at].copy_(sources[at])


def _stacked(columns: Columns, dtype: np.dtype[Any]) -> dict[str, Any]:
    """A stack of each list, in a dtype; of one tensor that has it a view."""
    stacks: dict[str, Any] = {}
    targets, sources = list[Any](), list[Any]()
    for name, tensors in columns.items():
        first = tensors[0]
        if first is None:
            stacks[name] = None
        elif len(tensors) == 1 and first._array.dtype == dtype:
            stacks[name] = make(first._array[None])
        else:
            array = first._array
            stack = backend_of(array).xp.empty((len(tensors), *array.shape), dtype)
            stacks[name] = make(stack)
            targets += [_part(stack, k) for k in range(len(tensors))]
            sources += tensors
    for at in copied_together(targets, sources):
        targets[at].copy_(sources[at])
    return stacks
