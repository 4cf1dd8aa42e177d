"""Rule: the formulas of an optimizer, written once, and the functions made of them.

    @rule(numbers="step")
    def decaying(m, param, grad, average, step, *, lr, maximize):
        if maximize:
            grad = -grad
        average = average + 0.1 * (grad - average)
        return dict(param=param - lr / m.sqrt(step + 1) * average, average=average, step=step + 1)

A rule is a pure function of `m` (the functions), a parameter, its gradient, states and settings. It
returns new values by name. States named in `numbers` are one number for a parameter, all others
arrays of its shape. Each begins as zeros, unless `begins` says a number or the name of a setting;
None: the rule makes it in the first step. What `only` names is there if a setting is above 0.

Settings that are None, True, False or a text decide the form of the rule, and
so does a state that is None, which is to be made; numbers are inputs. Arrays are used by element:
operators, and `m.sqrt`, `sign`, `abs`, `maximum`, `minimum`, `where` and `equal`; `m.single` rounds
a number to float32. The sides of `where` may be functions, of which a number chooses one to call.
With `elementwise=False` arrays are tensors, on which all is allowed.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...autograd.recording.templates import compiled
from ...tensor import Tensor
from .program import numbers_text, update_text
from .symbols import ARRAY, NUMBER, Reading, SymbolicForm

__all__ = ["Form", "Rule", "is_decisive", "nonzero", "rule"]


class Rule:
    """An update rule: its function, its states, and the forms that were asked for.

    `states` has the names of the states in the order of the function, `numbers` those that are one
    number each, and `arrays` the others.
    """

    def __init__(
        self, function: Callable[..., Any], numbers: str, begins: dict[str, Any],
        only: dict[str, str], elementwise: bool,
    ) -> None:  # fmt: skip
        self.function, self.elementwise = function, elementwise
        self.__name__, self.__doc__ = function.__name__, function.__doc__
        self.states = tuple(inspect.getfullargspec(function).args[3:])
        self.numbers = numbers.split()
        self.arrays = [name for name in self.states if name not in self.numbers]
        self._begins, self._only = begins, only
        self._forms: dict[Any, Form] = {}
        unknown = {*self.numbers, *begins, *only} - {*self.states}
        if unknown:
            raise TypeError(f"{self.__name__}: got {sorted(unknown)}, want states {self.states}")

    def first_values(self, settings: dict[str, Any]) -> dict[str, Any]:
        """What the states begin as for these settings: a number each, those that there are.

        >>> @rule(numbers="step", begins={"size": "lr"}, only={"mean": "centered"})
        ... def sized(m, param, grad, size, mean, step, *, lr, centered): ...
        >>> sized.first_values({"lr": 0.5, "centered": False})
        {'step': 0.0, 'size': 0.5}
        """
        always = [name for name in (*self.numbers, *self.arrays) if name not in self._only]
        values = {name: self._begins.get(name, 0.0) for name in always}
        values |= {name: 0.0 for name, setting in self._only.items() if settings[setting] > 0}
        values = {name: settings[value] if isinstance(value, str) else value
                  for name, value in values.items() if value is not None}  # fmt: skip
        return {name: value.item() if isinstance(value, Tensor) else value
                for name, value in values.items()}  # fmt: skip

    def arrays_of(self, settings: dict[str, Any]) -> list[str]:
        """The names of the states that are arrays which there are for these settings."""
        return [name for name in self.arrays
                if name not in self._only or settings[self._only[name]] > 0]  # fmt: skip

    def check(self, states: list[dict[str, Any]], settings: dict[str, Any]) -> None:
        """KeyError where parameters began without a state that the settings of now ask for."""
        for name, setting in self._only.items():
            if settings[setting] > 0 and any(name not in state for state in states):
                raise KeyError(
                    f"{name}: the state began without {setting}; make a new optimizer, or put a "
                    f"tensor of zeros into optimizer.state[parameter][{name!r}] for each parameter"
                )

    def form(self, absent: tuple[bool, ...], settings: dict[str, Any]) -> Form:
        """The rule for settings of this kind, while these of its states are absent."""
        decisive = tuple(v if is_decisive(v) else NUMBER for v in settings.values())
        key = (absent, decisive)
        form = self._forms.get(key)
        if form is None:
            form = self._forms[key] = Form(self, absent, settings)
        return form


class Form:
    """A rule as text: a function of its numbers, and one that updates arrays in place."""

    def __init__(self, rule: Rule, absent: tuple[bool, ...], settings: dict[str, Any]) -> None:
        reading = Reading()
        tensors = {name: reading.input(name, ARRAY) for name in ("param", "grad")}
        states = {name: None if none else reading.input(name, ARRAY)
                  for name, none in zip(rule.arrays, absent)}  # fmt: skip
        numbers = {name: reading.input(name, NUMBER) for name in rule.numbers}
        self.settings = [name for name, value in settings.items() if not is_decisive(value)]
        chosen = {name: value for name, value in settings.items() if is_decisive(value)}
        chosen |= {name: reading.input(name, NUMBER) for name in self.settings}
        results = rule.function(SymbolicForm(reading), **tensors, **states, **numbers, **chosen)
        outputs = {k: v for k, v in results.items() if v is not None and k not in numbers}
        self.created = [name for name in outputs if states.get(name, 0) is None]
        present = [name for name, state in states.items() if state is not None]
        self.arrays = ["param", "grad", *present, *self.created]
        self.writes = [at for at, name in enumerate(self.arrays) if name in outputs]
        self.outputs = outputs
        self.inputs = tensors | {name: state for name, state in states.items()
                                 if state is not None}  # fmt: skip
        self.program = update_text(self.arrays, outputs, reading.symbols)
        self.counts = len(numbers)
        self.numbers = [results[name] for name in rule.numbers] + self.program.constants
        self.number_inputs = [*numbers.values(), *[chosen[name] for name in self.settings]]
        names = [*rule.numbers, *self.settings]
        text = numbers_text(names, self.numbers, reading.symbols)
        self.text = text + "\n" + self.program.text
        self.together: dict[Any, Any] = {}  # its kernels, by device: see `together.py`
        self.loops: dict[Any, Any] = {}  # compiled for the host, by dtype: see `loops.py`
        self._bound: dict[int, Bound] = {}

    def bound(self, xp: Any) -> Bound:
        """The functions of the text, with the array functions of a device."""
        bound = self._bound.get(id(xp))
        if bound is None:
            bound = self._bound[id(xp)] = Bound(self, xp)
        return bound


class Bound:
    """The two functions of a form for one device: `numbers` and `update`."""

    def __init__(self, form: Form, xp: Any) -> None:
        self.xp = xp
        code = compiled(form.text)
        functions: dict[str, Any] = {name: getattr(xp, name) for name in form.program.functions}
        functions["__name__"] = __name__
        functions["choose"] = lambda c, a, b: xp.where(c, a, b) if _is_array(c) else a if c else b
        exec(code, functions)
        self.update: Callable[..., None] = functions["update"]
        of_numbers = _functions_of_numbers(xp)
        exec(code, of_numbers)
        self.numbers: Callable[..., tuple[Any, ...]] = of_numbers["numbers"]


def _functions_of_numbers(xp: Any) -> dict[str, Any]:
    """What `numbers` calls: for Python's floats, and for numbers that are on a device."""

    def either(of_floats: Callable[..., Any], of_arrays: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *x: of_arrays(*x) if any(map(_is_array, x)) else of_floats(*x)

    def choose(c: Any, a: Callable[[], Any], b: Callable[[], Any]) -> Any:
        return xp.where(c, a(), b()) if _is_array(c) else a() if c else b()

    def single(x: Any) -> Any:
        return x.astype(np.float32).astype(x.dtype) if _is_array(x) else float(np.float32(x))

    of_floats: list[tuple[str, Any]] = [
        ("sqrt", math.sqrt),
        ("maximum", max),
        ("minimum", min),
    ]
    functions = {name: either(function, getattr(xp, name)) for name, function in of_floats}
    functions |= {"choose": choose, "absolute": abs, "single": single}
    return {**functions, "__name__": __name__}


def _is_array(x: Any) -> bool:
    return not isinstance(x, (bool, float))


def is_decisive(value: Any) -> bool:
    """Whether a setting decides the form of a rule, rather than being an input of it."""
    return value is None or isinstance(value, (bool, str))


def nonzero(value: Any) -> Any:
    """None for the number 0: what a rule leaves out. A tensor may be anything."""
    return None if not isinstance(value, Tensor) and value == 0 else value


def rule(
    numbers: str = "",
    begins: dict[str, float | str | None] | None = None,
    only: dict[str, str] | None = None,
    elementwise: bool = True,
) -> Callable[[Callable[..., Any]], Rule]:
    """Makes a function an update rule.

    Args:
        numbers: the states that are one number each, in the order in which a parameter gets them.
        begins: what states begin as that do not begin as 0: a number, or the name of a setting;
            None: the state is not there before the rule makes it.
        only: states that a parameter has only if a setting is above 0, with that setting.
        elementwise: whether the rule is one of elements; else it is run on tensors.
    """
    return lambda function: Rule(function, numbers, begins or {}, only or {}, elementwise)
