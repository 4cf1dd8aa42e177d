"""The symbols of a rule as traced elements, of which a device makes kernels for many parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends.traced.arrays import Trace, Traced, Untraceable
from ...backends.traced.lists import ListGraph, NumbersGraph
from .blocks import computing_dtype
from .rule import Form
from .symbols import NUMBER, Symbol

__all__ = ["Together", "together_of"]

NAMES = {"divide": "true_divide"}  # NumPy's of ours, where they differ
TRUTHS = ("greater", "less", "equal")
DOUBLE, SINGLE, TRUTH = np.dtype(np.float64), np.dtype(np.float32), np.dtype(bool)


def together_of(form: Form, backend: Any, name: str, scaled: bool) -> Together | None:
    """The kernels of a form on a device; None where there are none."""
    key = id(backend), scaled
    if key not in form.together:
        try:
            form.together[key] = Together(form, backend, name, scaled)
        except Untraceable:
            form.together[key] = None
    return form.together[key]


class Together:
    """A form as a kernel over lists of arrays, and its numbers as one that reads the device's.

    With `scaled` gradients are divided by a scale first, in place, and the numbers are told whether
    there shall be a step at all: where there shall be none, they stay.
    """

    def __init__(self, form: Form, backend: Any, name: str, scaled: bool) -> None:
        self.form, self.name, self.scaled = form, name, scaled
        outputs = form.outputs.values()
        if any(x.kind == NUMBER for x in outputs):
            raise Untraceable("a state becomes a number")
        self.update = backend.list_kernels(self.graph)
        self._written = sorted({*form.writes, *[1] * scaled})
        self._backend = backend
        self._numbers: Any = None

    def sorted_out(self, arrays: list[Any], numbers: list[Any]) -> Any:
        """What the kernels take of arrays and numbers in lists, and the places of the others."""
        if any(len({id(x) for x in column}) < len(column) for column in numbers):
            return {}, list(range(len(arrays[0])))
        return self.update.sorted_out(arrays, self._written)

    @property
    def numbers(self) -> Any:
        if self._numbers is None:
            self._numbers = self._backend.number_kernels(self.numbers_graph())
        return self._numbers

    def graph(self, dtypes: tuple[np.dtype[Any], ...]) -> ListGraph:
        """What becomes of lists of arrays of these dtypes: parameters, gradients, states."""
        trace, form = Trace(), self.form
        dtype = computing_dtype(dtypes[0])
        values: dict[Symbol, Traced] = {}
        constants = []
        for k, symbol in enumerate(form.program.constants):
            kind = TRUTH if symbol.op in TRUTHS else dtype
            values[symbol] = trace.number(k, kind)
            constants.append(values[symbol])
        results: dict[int, Traced] = {}
        for k, name in enumerate(form.arrays):
            element = trace.cast(trace.input(k, dtypes[k]), dtype)
            if name == "grad" and self.scaled:
                constants.append(trace.number(len(constants), dtype))
                element = trace.apply("true_divide", element, constants[-1])
                results[k] = trace.cast(element, dtypes[k])
            if name in form.inputs:
                values[form.inputs[name]] = element
        _follow(trace, values, form.outputs.values())
        for name, symbol in form.outputs.items():
            at = form.arrays.index(name)
            results[at] = trace.cast(values[symbol], dtypes[at])
        return ListGraph(self.name, results, tuple(constants))

    def numbers_graph(self) -> NumbersGraph:
        """The rule's numbers, of the states that are numbers, of settings, and, where scaled, of
        the scale and whether a gradient was not finite.
        """
        trace, form = Trace(), self.form
        inputs = [trace.input(k, DOUBLE) for k in range(len(form.number_inputs) + 2 * self.scaled)]
        values = dict(zip(form.number_inputs, inputs))
        _follow(trace, values, form.numbers)
        results = [trace.cast(values[x], DOUBLE) for x in form.numbers]
        if self.scaled:
            scale, bad = inputs[-2:]
            none = trace.apply("not_equal", bad, 0.0)
            for k in range(form.counts):
                results[k] = trace.apply("where", none, inputs[k], results[k])
            results.append(scale)
        return NumbersGraph(f"{self.name}_numbers", tuple(results))


def _follow(trace: Trace, values: dict[Symbol, Traced], ends: Any) -> None:
    """Puts the values of symbols, and of what they are made of, behind those that are known."""
    waiting = [(x, False) for x in ends]
    while waiting:
        symbol, ready = waiting.pop()
        if symbol in values:
            continue
        if symbol.op == "constant":
            values[symbol] = trace.number(symbol.operands[0], DOUBLE)
        elif ready:
            values[symbol] = _applied(trace, symbol, [values[x] for x in symbol.operands])
        else:
            waiting.append((symbol, True))
            waiting += [(x, False) for x in symbol.operands]


def _applied(trace: Trace, symbol: Symbol, operands: list[Traced]) -> Traced:
    if symbol.op == "single":
        x = operands[0]
        if x.function == "number":
            return trace.number(float(np.float32(x.value)), DOUBLE)
        return trace.cast(trace.cast(x, SINGLE), DOUBLE)
    if symbol.op == "where" and operands[0].dtype != TRUTH:
        operands[0] = trace.apply("not_equal", operands[0], 0.0)
    return trace.apply(NAMES.get(symbol.op, symbol.op), *operands)
