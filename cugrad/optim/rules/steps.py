"""Steps: takes parameters, gradients and states one step further by a rule."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np

from ...autograd.recording.views import will_be_changed
from ...backends import backend_of
from ...tensor import Tensor, make
from .blocks import BLOCK, as_reals, computing_dtype, run
from .recorded import follow
from .rule import Rule, is_decisive

__all__ = ["advance"]

States = dict[str, list[Any]]  # by name: a tensor, or None, for each parameter


def advance(
    rule: Rule,
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    states: States,
    settings: dict[str, Any],
    differentiable: bool = False,
) -> None:
    """Changes parameters and states in place by one step of a rule.

    `states` has a list of tensors for each name, [] or None where a parameter has none; those that
    the rule makes take the place of None. Settings are numbers, tensors of one element, or what
    decides the form of the rule.
    """
    columns = [states.get(name) or [None] * len(params) for name in rule.arrays]
    if differentiable or not rule.elementwise:
        settings = {name: _scalar(value) for name, value in settings.items()}
        for at, param in enumerate(params):
            arrays: dict[str, Any] = {"param": param, "grad": grads[at]}
            arrays |= {name: column[at] for name, column in zip(rule.arrays, columns)}
            numbers = {name: states[name][at] for name in rule.numbers}
            created = follow(rule.function, arrays, numbers, settings)
            for name, state in created.items():
                states[name][at] = state
        return
    will_be_changed(params)
    for (backend, index, absent), positions in _alike(params, columns).items():
        with backend.use_device(index), backend.quiet():
            step = _Step(rule, absent, backend, settings)
            inputs = [params, grads, *[c for c, none in zip(columns, absent) if not none]]
            inputs = _at(positions, inputs, len(params))
            for column in inputs[2:]:
                will_be_changed(column)
            step.begin(inputs, [states[name] for name in step.form.created], positions)
            step.take(inputs, _at(positions, [states[name] for name in rule.numbers], len(params)))


def _at(positions: list[int], columns: list[Any], count: int) -> list[Any]:
    """Columns with the entries of some positions, of so many, alone."""
    if len(positions) == count:
        return columns
    return [[column[at] for at in positions] for column in columns]


def _alike(params: Sequence[Tensor], columns: list[Any]) -> dict[Any, list[int]]:
    """The parameters' positions, by device and by which of the states they lack."""
    groups: dict[Any, list[int]] = {}
    if len({type(param._array) for param in params}) == 1:
        kinds = [{type(state) for state in column} for column in columns]
        backend = backend_of(params[0]._array)
        if backend.device_type == "cpu" and all(len(kind) == 1 for kind in kinds):
            return {(backend, None, tuple([type(None) in kind for kind in kinds])):
                    list(range(len(params)))}  # fmt: skip
    for at, param in enumerate(params):
        array = param._array
        backend = backend_of(array)
        absent = tuple([column[at] is None for column in columns])
        groups.setdefault((backend, backend.device_index(array), absent), []).append(at)
    return groups


def _scalar(value: Any) -> Any:
    """A setting as the rule takes it: a tensor without dims, or a float."""
    if isinstance(value, Tensor):
        return value if value.dim() == 0 else value.reshape(())
    return value if is_decisive(value) else float(value)


def _number(value: Any, backend: Any) -> Any:
    """A setting for the parameters of a device: a tensor there is not waited for."""
    if not isinstance(value, Tensor):
        return value if is_decisive(value) else float(value)
    array = value.detach().reshape(())._array
    if backend.device_type != "cpu" and backend_of(array) is backend:
        return array
    return float(array)


class _Step:
    """One step of parameters of one device that have the same states."""

    def __init__(self, rule: Rule, absent: Any, backend: Any, settings: dict[str, Any]) -> None:
        settings = {name: _number(value, backend) for name, value in settings.items()}
        self.form, self.backend = rule.form(absent, settings), backend
        self.bound = self.form.bound(backend.xp)
        self.scratch = self.form.program.scratch
        self.on_host = backend.device_type == "cpu"
        self.settings = [settings[name] for name in self.form.settings]
        self.cached: dict[Any, Any] = {}  # what numbers lead to, by what they are

    def begin(self, inputs: list[Any], created: list[Any], positions: list[int]) -> None:
        """Makes the states that the rule makes: they have no values yet."""
        for column in created:
            for at, param in zip(positions, inputs[0]):
                column[at] = make(self.backend.xp.empty_like(param._array))
            inputs.append([column[at] for at in positions])

    def take(self, inputs: list[Any], counts: list[Any]) -> None:
        """The steps of parameters, in place; of columns of tensors, and of states of one number."""
        update, scratch, on_host = self.bound.update, range(self.scratch), self.on_host
        for tensors, numbers in zip(zip(*inputs), zip(*counts) if counts else repeat(())):
            arrays = [tensor._array for tensor in tensors]
            first = arrays[0]
            new, constants = self._numbers(numbers, first.dtype)
            if on_host and first.nbytes <= BLOCK and first.dtype.char in "fd":
                update(*arrays, *constants, *[np.empty_like(first) for _ in scratch])
            else:
                self._take_large(arrays, constants)
            for tensor, value in zip(numbers, new):
                tensor._array[...] = value

    def _take_large(self, arrays: list[Any], constants: Any) -> None:
        """The step of a parameter that is large, complex, or not in the host's memory."""
        for reals in as_reals(arrays):
            run(self.bound.update, reals, constants, self.scratch, self.form.writes,
                self.backend.xp, self.on_host)  # fmt: skip

    def _numbers(self, counts: Sequence[Tensor], dtype: Any) -> tuple[Any, Any]:
        """The new states that are numbers, and what the update computes with."""
        to = computing_dtype(dtype)
        if not self.on_host:
            read = [self._read(count._array) for count in counts]
            values = self.bound.numbers(*read, *self.settings)
            constants = [self._rounded(c, to) for c in values[len(counts) :]]
            return values[: len(counts)], constants
        key = (dtype, *[count._array.item() for count in counts]) if counts else dtype
        numbers = self.cached.get(key)
        if numbers is None:
            floats = key[1:] if counts else ()
            values = self.bound.numbers(*floats, *self.settings)
            constants = [c if isinstance(c, bool) else np.asarray(c, to)
                         for c in values[len(counts) :]]  # fmt: skip
            numbers = self.cached[key] = values[: len(counts)], constants
        return numbers

    def _read(self, count: Any) -> Any:
        """A number as it is on the device, in double precision; a float from the host's memory."""
        return count.astype(np.float64) if backend_of(count) is self.backend else float(count)

    @staticmethod
    def _rounded(constant: Any, dtype: np.dtype[Any]) -> Any:
        """A constant that is on the device in the dtype of the update, unless it is a truth."""
        is_number = not isinstance(constant, (bool, float)) and constant.dtype.kind == "f"
        return constant.astype(dtype) if is_number else constant
