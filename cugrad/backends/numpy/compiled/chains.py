"""Chains of NumPy's calls on blocks of float32, which become loops when they have been used much.

    @chain(rooms=1)
    def _gate_into(x, y, out, room):
        np.tanh(y, room)
        np.multiply(x, room, out)
        out += 1

A chain goes through its arrays once for each call. When a process has put so many elements through
it that the compiler's second is paid, Numba makes a loop of what stands between calls that are
NumPy's own, exp2 and tanh: with the same bits, so it is of no account when that is.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from itertools import count
from threading import Lock
from typing import Any

import numpy as np

from ..half import SINGLE
from .loops import loop_of_text, warn
from .tracing import CallApart, ChainValue, Loop, NoChain, Pattern, pattern_of, steps_of

__all__ = ["Chain", "chain"]

Array = np.ndarray[Any, Any]

MUCH = 1 << 28  # elements after which a chain becomes loops: it has taken some tenths of a second
FORMS = 64  # of shapes that are known
_texts = count(1)


def chain(
    rooms: int = 0, calls: Callable[..., None] | None = None
) -> Callable[[Callable[..., None]], Chain]:
    """Makes a function of arrays a chain: of dense ones of float32, numbers and None.

    It may write to arrays that have the shape which all have together, by NumPy's calls with `out`
    and by operators in place; none of them may share memory with another argument. The last `rooms`
    arguments are scratch, and hold anything afterwards. `calls` is what runs before there are
    loops, if NumPy is quicker so, with the same bits.
    """
    return lambda function: Chain(function, rooms, calls or function)


class Chain:
    """A function of arrays as it stands, or its loops."""

    def __init__(
        self, function: Callable[..., None], rooms: int, calls: Callable[..., None]
    ) -> None:
        self.function, self.rooms, self.calls = function, rooms, calls
        self.__name__, self.__doc__ = function.__name__, function.__doc__
        self.forms: dict[Any, ChainForm] = {}  # by patterns of arguments
        self.of_shapes: dict[Any, ChainForm] = {}

    def __call__(self, *arguments: Any) -> None:
        shapes = tuple([x.shape if type(x) is np.ndarray else x is None for x in arguments])
        form = self.of_shapes.get(shapes)
        if form is None:
            form = self.form(arguments)
            if len(self.of_shapes) >= FORMS:
                self.of_shapes.clear()
            self.of_shapes[shapes] = form
        form.run(*arguments)

    def form(self, arguments: Sequence[Any]) -> ChainForm:
        """What runs for arguments that are broadcast like these."""
        shapes = [x.shape if type(x) is np.ndarray else None for x in arguments]
        whole = np.broadcast_shapes(*[x for x in shapes if x is not None])
        patterns = tuple([None if x is None else pattern_of(x, whole) for x in shapes])
        key = patterns, tuple([x is None for x in arguments])
        form = self.forms.get(key)
        if form is None:
            form = self.forms[key] = ChainForm(self, patterns)
        return form


class ChainForm:
    """A chain for arguments of some patterns: `run` is its function, until that becomes loops."""

    def __init__(self, chain: Chain, patterns: tuple[Pattern | None, ...]) -> None:
        self.chain, self.patterns = chain, patterns
        self.seen = 0  # elements
        self.run: Callable[..., None] = self._counted
        self._making = Lock()

    @property
    def is_compiled(self) -> bool:
        return self.run not in (self._counted, self.chain.calls)

    def _counted(self, *arguments: Any) -> None:
        self.chain.calls(*arguments)
        self.seen += max(x.size for x in arguments if type(x) is np.ndarray)
        if self.seen >= MUCH and self._making.acquire(False):
            try:
                self.run = self.compiled(arguments) or self.chain.calls
            finally:
                self._making.release()

    def compiled(self, arguments: Sequence[Any]) -> Callable[..., None] | None:
        """The chain by loops, for arguments like these; None where there are none."""
        try:
            steps = steps_of(self.chain.function, self.patterns, arguments, self.chain.rooms)
            run = _run_of(steps, self.patterns)
            if run is not None:  # compiles it
                run(*[np.ones_like(x) if type(x) is np.ndarray else x for x in arguments])
        except NoChain:
            return None
        except Exception as error:  # a compiler that fails leaves what there is without it
            warn(f"could not compile them: {type(error).__name__}: {error}")
            return None
        return run


def _run_of(
    steps: Sequence[Loop | CallApart], patterns: Sequence[Pattern | None]
) -> Callable[..., None] | None:
    scope: dict[str, Any] = {"__name__": __name__, "single": SINGLE.type}
    lines = list[str]()
    for number, step in enumerate(steps):
        name = f"step{number}"
        if isinstance(step, CallApart):
            scope[name] = step.function
            lines.append(f"{name}(a{step.source}, a{step.target})")
            continue
        text, constants, called = loop_text(step, patterns)
        scope[name] = loop_of_text(_code(text), called, **constants)
        if scope[name] is None:
            return None
        operands = [
            f"a{at}" if patterns[at] is not None else f"single(a{at})" for at in _uses(step)
        ]
        lines.append(f"{name}({', '.join(operands)})")
    parameters = ", ".join(f"a{at}" for at in range(len(patterns)))
    exec(_code("\n    ".join([f"def run({parameters}):", *lines, ""])), scope)
    run: Callable[..., None] = scope["run"]
    return run


def _code(text: str) -> Any:
    name = f"cugrad chain {next(_texts)}"  # linecache does not look up names in <>
    linecache.cache[name] = (lambda: text,)
    return compile(text, name, "exec")


def _uses(loop: Loop) -> list[int]:
    return sorted({*loop.reads.values(), *loop.writes})


def loop_text(
    loop: Loop, patterns: Sequence[Pattern | None]
) -> tuple[str, dict[str, Any], set[str]]:
    """A function `loop` of the arguments that a loop uses, the constants in it, and what it calls.

    What is the same for all of a row is computed once for it.
    """
    names: dict[ChainValue, str] = {}
    constants: dict[str, Any] = {}
    dims = max(len(p) for p in patterns if p is not None)
    lines: list[list[str]] = [[] for _ in range(dims + 1)]  # by how many indices are known

    def depth_of(value: ChainValue) -> int:
        behind = [d for d, has in enumerate(value.dims) if has]
        return behind[-1] + 1 + dims - len(value.dims) if behind else 0

    for value, at in loop.reads.items():
        names[value] = f"v{len(names)}"
        pattern = patterns[at]
        element = f"a{at}" if pattern is None else f"a{at}[{_index(pattern, dims)}]"
        lines[depth_of(value)].append(f"{names[value]} = {element}")
    for value in loop.values:
        operands = []
        for x in value.operands:
            if x.function == "constant":
                operands.append(f"c{len(constants)}")
                constants[operands[-1]] = SINGLE.type(x.what)
            else:
                operands.append(names[x])
        names[value] = f"v{len(names)}"
        lines[depth_of(value)].append(f"{names[value]} = {value.function}({', '.join(operands)})")
    for at, value in loop.writes.items():
        lines[dims].append(f"a{at}[{_index((True,) * dims, dims)}] = {names[value]}")
    sizes = ", ".join(f"n{d}" for d in range(dims))
    text = [f"def loop({', '.join(f'a{at}' for at in _uses(loop))}):"]
    text.append(f"    {sizes}, = a{next(iter(loop.writes))}.shape")
    for d in range(dims + 1):
        text += ["    " * (d + 1) + line for line in lines[d]]
        if d < dims:
            text.append("    " * (d + 1) + f"for i{d} in range(n{d}):")
    return "\n".join([*text, ""]), constants, {x.function for x in loop.values}


def _index(pattern: Pattern, dims: int) -> str:
    first = dims - len(pattern)
    return ", ".join(f"i{first + d}" if has else "0" for d, has in enumerate(pattern))
