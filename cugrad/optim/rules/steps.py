"""Steps: takes parameters, gradients and states one step further by a rule."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count, repeat
from typing import Any

import numpy as np

from ...autograd.mode import state, will_change, writes_watched
from ...autograd.recording.views import were_changed, will_be_changed
from ...backends import backend_of
from ...backends.wanted import wanted
from ...runtime.kept import of_thread
from ...tensor import Tensor, make
from ..scaling import Scaled
from .batches import follow_together
from .blocks import BLOCK, as_reals, computing_dtype, run
from .loops import loop_of
from .recorded import follow
from .rule import Rule, is_decisive
from .together import together_of

__all__ = ["advance", "noting"]

States = dict[str, list[Any]]  # by name: a tensor, or None, for each parameter


class _ThroughOfThread(threading.local):
    """Where this thread's steps note the ids of parameters that are through."""

    through: set[int] | None = None


_noted = of_thread(_ThroughOfThread())


@contextmanager
def noting(through: set[int]) -> Iterator[None]:
    """Within it, steps on the host add to `through` the ids of parameters that are through."""
    before, _noted.through = _noted.through, through
    try:
        yield
    finally:
        _noted.through = before


def advance(
    rule: Rule,
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    states: States,
    settings: dict[str, Any],
    differentiable: bool = False,
    scaled: Scaled | None = None,
) -> None:
    """Changes parameters and states in place by one step of a rule.

    `states` has a list of tensors for each name, [] or None where a parameter has none; those that
    the rule makes take the place of None. Settings are numbers, tensors of one element, or what
    decides the form of the rule. `scaled` says what a GradScaler knows of the gradients.
    """
    recorded = differentiable or not rule.elementwise
    if scaled is not None and (recorded or not all(map(_has_kernels, params))):
        if not scaled.unscale(grads):
            return
        scaled = None
    columns = [states.get(name) or [None] * len(params) for name in rule.arrays]
    if recorded:
        settings = {name: _scalar(value) for name, value in settings.items()}
        every: Sequence[int] = range(len(params))
        if not (differentiable or state.grad_enabled) and all(map(_has_kernels, params)):
            numbers = {name: states[name] for name in rule.numbers}
            whole = {"param": list(params), "grad": list(grads), **dict(zip(rule.arrays, columns))}
            every = follow_together(rule.function, whole, numbers, settings, _note)
        for at in every:
            param = params[at]
            arrays: dict[str, Any] = {"param": param, "grad": grads[at]}
            arrays |= {name: column[at] for name, column in zip(rule.arrays, columns)}
            own = {name: states[name][at] for name in rule.numbers}
            created = follow(rule.function, arrays, own, settings)
            for name, value in created.items():
                states[name][at] = value
            _note([param])
        return
    shown = will_be_changed(params)
    for (backend, index, absent), positions in _alike(params, columns).items():
        with backend.use_device(index), backend.quiet():
            step = _Step(rule, absent, backend, settings)
            inputs = [params, grads, *[c for c, none in zip(columns, absent) if not none]]
            inputs = _at(positions, inputs, len(params))
            counts = _at(positions, [states[name] for name in rule.numbers], len(params))
            if scaled is not None and not step.scale(scaled, inputs[1], counts):
                continue
            for column in inputs[2:]:
                shown += will_be_changed(column)
            new_states = [states[name] for name in step.form.created]
            step.begin(inputs, new_states, positions)
            try:
                if _has_kernels(params[positions[0]]):
                    inputs, counts = step.take_together(inputs, counts)
                if step.scaled and scaled is not None and inputs[0]:  # that no kernel could take
                    if not scaled.unscale(inputs[1]):
                        continue
                backend.xp.one_kernel(step.name, partial(step.take, inputs, counts))
            except BaseException:
                for column in new_states:  # they have no values yet
                    for at in positions[step.through :]:
                        column[at] = None
                raise
            finally:
                were_changed(shown + step.shown)


def _note(params: Sequence[Tensor]) -> None:
    if _noted.through is not None:
        _noted.through.update(map(id, params))


def _has_kernels(param: Tensor) -> bool:
    """A device that stands in takes the step as where there are none, at the cost of one: a part of
    it that is elsewhere meanwhile has the same values, in every bit.
    """
    backend = backend_of(param._array)
    return wanted.fused and backend.makes_kernels and not backend.stands_in


def _at(positions: list[int], columns: list[Any], count: int) -> list[Any]:
    """Columns with the entries of some positions, of so many, alone."""
    return columns if len(positions) == count else _only(positions, columns)


def _only(positions: Sequence[int], columns: list[Any]) -> list[Any]:
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
        self.shown: list[Tensor] = []  # gradients that their kernel divides, see `were_changed`
        self.scaled: list[Any] = []  # the scale of gradients, and whether one is not finite
        self.name = rule.__name__
        self.through = 0  # of the first parameters of `take`, how many are

    def scale(self, scaled: Scaled, grads: Sequence[Tensor], counts: list[Any]) -> bool:
        """Has the gradients divided by their scale, by the kernel that updates where one can;
        False if there shall be no step.
        """
        if self.form.created or self._reads_host(counts):
            return scaled.unscale(grads)
        self.shown = will_be_changed(grads)
        self.scaled = [x._array for x in scaled.numbers(grads[0])]
        return True

    def _reads_host(self, counts: list[Any]) -> bool:
        """Whether states that are numbers are in the host's memory."""
        return any(backend_of(x._array) is not self.backend for column in counts for x in column)

    def _is_told(self) -> bool:
        """Whether all settings are numbers that the host knows."""
        return not self.scaled and all(isinstance(x, (bool, float)) for x in self.settings)

    def take_together(self, inputs: list[Any], counts: list[Any]) -> tuple[list[Any], list[Any]]:
        """The steps of all parameters in few kernels; the columns of those that these leave."""
        together = together_of(self.form, self.backend, self.name, bool(self.scaled))
        on_host = self._reads_host(counts)
        if together is None or (on_host and not self._is_told()):
            return inputs, counts
        arrays = [[x._array for x in column] for column in inputs]
        numbers = [[x._array for x in column] for column in counts]
        groups, left = together.sorted_out(arrays, numbers)
        rest = _only(left, inputs), _only(left, counts)
        if left:
            taken = sorted(set(range(len(inputs[0]))) - set(left))
            inputs, counts, arrays, numbers = (
                _only(taken, columns) for columns in (inputs, counts, arrays, numbers)
            )
            groups, _ = together.sorted_out(arrays, numbers)
        if on_host or (not counts and self._is_told()):
            self._take_told(together, groups, [x.dtype for x in arrays[0]], counts)
        elif arrays[0]:
            wide = any(computing_dtype(x.dtype) == np.float64 for x in arrays[0])
            settings = [*self.settings, *self.scaled]
            constants = together.numbers.run(numbers, settings, "float64" if wide else "float32")
            together.update.run(groups, constants, *self.scaled[1:])
        return rest

    def _take_told(self, together: Any, groups: Any, dtypes: list[Any], counts: list[Any]) -> None:
        """Launches that are told the constants, and the numbers' new values."""
        every = list(zip(*counts)) if counts else [()] * len(dtypes)
        told = []
        for dtype, numbers in zip(dtypes, every):
            to = computing_dtype(dtype)
            key = (to, *[float(count._array) for count in numbers])
            values = self.cached.get(key)
            if values is None:
                results = self.bound.numbers(*key[1:], *self.settings)
                constants = [x if isinstance(x, bool) else to.type(x)
                             for x in results[len(numbers) :]]  # fmt: skip
                values = self.cached[key] = results[: len(numbers)], tuple(constants)
            told.append(values)
        together.update.run(groups, [constants for _, constants in told])
        for numbers, (new, _) in zip(every, told):
            for tensor, value in zip(numbers, new):
                tensor._array[...] = value

    def begin(self, inputs: list[Any], created: list[Any], positions: list[int]) -> None:
        """Makes the states that the rule makes: they have no values yet."""
        for column in created:
            for at, param in zip(positions, inputs[0]):
                column[at] = make(self.backend.xp.empty_like(param._array))
            inputs.append([column[at] for at in positions])

    def take(self, inputs: list[Any], counts: list[Any]) -> None:
        """The steps of parameters, in place; of columns of tensors, and of states of one number."""
        update, scratch, on_host = self.bound.update, range(self.scratch), self.on_host
        rows = zip(count(1), zip(*inputs), zip(*counts) if counts else repeat(()))
        for behind, tensors, numbers in rows:
            arrays = [tensor._array for tensor in tensors]
            first = arrays[0]
            if writes_watched:  # it may have been sent since that was said, and has come again
                for at in self.form.writes:
                    will_change(tensors[at])
            new, constants = self._numbers(numbers, first.dtype)
            alike = all(array.dtype is first.dtype for array in arrays)
            if on_host and alike and first.nbytes <= BLOCK and first.dtype.char in "fd":
                update(*arrays, *constants, *[np.empty_like(first) for _ in scratch])
            else:
                self._take_large(arrays, constants)
            for tensor, value in zip(numbers, new):
                tensor._array[...] = value
            if on_host:
                self.through = behind
                if _noted.through is not None:
                    _noted.through.add(id(tensors[0]))

    def _take_large(self, arrays: list[Any], constants: Any) -> None:
        """The step of a parameter that is large, complex, or not in the host's memory."""
        for reals in as_reals(arrays):
            update, scratch = self.bound.update, self.scratch
            loop = loop_of(self.form, reals, constants) if self.on_host else None
            if loop is not None:
                update, scratch = loop, 0
            run(update, reals, constants, scratch, self.form.writes, self.backend.xp,
                self.on_host)  # fmt: skip

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
        """A constant in the dtype of the update, unless it is a truth."""
        if isinstance(constant, float):
            return dtype.type(constant)
        is_number = not isinstance(constant, bool) and constant.dtype.kind == "f"
        return constant.astype(dtype) if is_number else constant
