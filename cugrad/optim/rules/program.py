"""The text of an update: a rule's symbols as calls of array functions, in place, in order."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from .symbols import MASK, NUMBER, Symbol

__all__ = ["ArrayCall", "Program", "numbers_text", "update_text"]

NEVER = 1 << 30
SIGNS = [("add", "+"), ("subtract", "-"), ("multiply", "*"), ("divide", "/"), ("power", "**"),
         ("greater", ">"), ("less", "<"), ("equal", "==")]  # fmt: skip
BETWEEN = dict(SIGNS)


class ArrayCall(NamedTuple):
    """A call of a function of arrays: where its value goes, and the names of what it is given."""

    place: str
    function: str
    operands: list[str]
    in_place: bool = True  # else the value is a new array

    def text(self) -> str:
        operands = ", ".join(self.operands)
        if self.function == "copyto":
            return f"copyto({self.place}, {operands})"
        if not self.in_place:
            return f"{self.place} = {self.function}({operands})"
        # NumPy reads a third as an input
        out = "out=" * (self.function in ("maximum", "minimum"))
        return f"{self.function}({operands}, {out}{self.place})"


class Program(NamedTuple):
    """The text of a function of arrays, numbers and scratch arrays, and what it must be given."""

    text: str
    calls: list[ArrayCall]  # of which the text is made
    constants: list[Symbol]  # numbers, in the order of its arguments
    scratch: int  # how many arrays that it may overwrite
    functions: set[str]  # names of `xp` that it calls


def update_text(arrays: list[str], outputs: dict[str, Symbol], symbols: list[Symbol]) -> Program:
    """A function `update(*arrays, *constants, *scratch)` that writes the outputs to their arrays.

    An array of a state takes its new value as soon as the old one is not needed any more, and
    serves for what leads to it. Whatever else has to wait takes one of few scratch arrays.
    """
    return _Writer(arrays, outputs, symbols).program()


class _Writer:
    """Assigns places to values: arrays of the outputs, scratch arrays, or a new one."""

    def __init__(
        self, arrays: list[str], outputs: dict[str, Symbol], symbols: list[Symbol]
    ) -> None:
        self.arrays, self.outputs = arrays, outputs
        self.ops = [s for s in _needed(outputs.values(), symbols) if s.kind != NUMBER
                    and s.op != "input"]  # fmt: skip
        self.position = {symbol: at for at, symbol in enumerate(self.ops)}
        self.end = self._ends()
        self.place: dict[Symbol, str] = {s: s.name for s in symbols if s.name in arrays}
        self.occupied = {s.name: self.end.get(s, -1) for s in self.place}  # place -> until which op
        self.constants: dict[Symbol, str] = {}
        self.scratch: list[str] = []
        self.calls: list[ArrayCall] = []

    def _ends(self) -> dict[Symbol, int]:
        """Until which op each value is needed; the value of a choice is one of its operands."""
        end: dict[Symbol, int] = dict.fromkeys(self.outputs.values(), NEVER)
        for at in range(len(self.ops) - 1, -1, -1):
            symbol = self.ops[at]
            lends = symbol.op == "where" and symbol.operands[0].kind == NUMBER
            until = end.get(symbol, at) if lends else at
            for operand in symbol.operands:
                end[operand] = max(end.get(operand, -1), until)
        return end

    def program(self) -> Program:
        for at, symbol in enumerate(self.ops):
            self._write(at, symbol)
        self._copy_late({n: s for n, s in self.outputs.items() if self.place.get(s) != n})
        arguments = [*self.arrays, *self.constants.values(), *self.scratch]
        body = "\n    ".join([call.text() for call in self.calls] or ["pass"])
        text = f"def update({', '.join(arguments)}):\n    {body}\n"
        functions = {call.function for call in self.calls} - {"choose"}
        return Program(text, self.calls, list(self.constants), len(self.scratch), functions)

    def _write(self, at: int, symbol: Symbol) -> None:
        operands, function = [self._operand(x) for x in symbol.operands], symbol.op
        in_place = symbol.op != "where" and symbol.kind != MASK
        if not in_place:
            place = self.place[symbol] = f"t{at}"
            if symbol.op == "where" and symbol.operands[0].kind == NUMBER:
                function = "choose"
        else:
            place = self.place[symbol] = self._place_for(at, symbol)
            self.occupied[place] = self.end[symbol]
        self.calls.append(ArrayCall(place, function, operands, in_place))

    def _copy_late(self, copies: dict[str, Symbol]) -> None:
        """Copies outputs that could not be computed where they belong; none before it is read."""
        sources = {n: (self._operand(symbol), self._read(symbol)) for n, symbol in copies.items()}
        while sources:
            read = {name: [n for n, (_, places) in sources.items() if n != name and name in places]
                    for name in sources}  # fmt: skip
            name = next((name for name in sources if not read[name]), "")
            if not name:  # they wait for one another
                name, (place, _) = next(iter(sources.items()))
                self.scratch.append(f"s{len(self.scratch)}")
                self.calls.append(ArrayCall(self.scratch[-1], "copyto", [place]))
                sources[name] = (self.scratch[-1], {self.scratch[-1]})
                continue
            self.calls.append(ArrayCall(name, "copyto", [sources.pop(name)[0]]))

    def _read(self, symbol: Symbol) -> set[str]:
        """The places that a value may be in: that of a choice is one of its sides'."""
        if symbol.kind == NUMBER:
            return set()
        if symbol.op == "where" and symbol.operands[0].kind == NUMBER:
            return set().union(*map(self._read, symbol.operands[1:]))
        return {self.place[symbol]}

    def _operand(self, symbol: Symbol) -> str:
        if symbol.kind == NUMBER:
            return self.constants.setdefault(symbol, f"c{len(self.constants)}")
        return self.place[symbol]

    def _place_for(self, at: int, symbol: Symbol) -> str:
        for name, output in self.outputs.items():
            if output is symbol and self.occupied.get(name, -1) <= at:
                return name
        dying = [self.place.get(operand, "") for operand in symbol.operands]
        for place in (*dying, *self.outputs, *self.scratch):
            if place and self._serves(place, at, symbol):
                return place
        self.scratch.append(f"s{len(self.scratch)}")
        return self.scratch[-1]

    def _serves(self, place: str, at: int, symbol: Symbol) -> bool:
        """Whether a place is free from this op on until the value is needed no more."""
        if self.occupied.get(place, -1) > at:
            return False
        if place in self.outputs:  # its own value is still to come
            return self.end[symbol] <= self.position.get(self.outputs[place], -1)
        return place in self.scratch


def _needed(outputs: Iterable[Symbol], symbols: list[Symbol]) -> list[Symbol]:
    """The symbols that the outputs are made of, in the order of making."""
    needed: set[Symbol] = set()
    waiting = list(outputs)
    while waiting:
        symbol = waiting.pop()
        if symbol not in needed:
            needed.add(symbol)
            waiting += [x for x in symbol.operands if isinstance(x, Symbol)]
    return [symbol for symbol in symbols if symbol in needed]


def numbers_text(inputs: list[str], values: list[Symbol], symbols: list[Symbol]) -> str:
    """A function `numbers(*inputs)` that returns what the rule makes of its numbers.

    The two sides of a choice are computed only if they are chosen.
    """
    names: dict[Symbol, str] = {}

    def text(symbol: Symbol) -> str:
        if symbol in names:
            return names[symbol]
        if symbol.op == "input":
            return symbol.name
        if symbol.op == "constant":
            value = symbol.operands[0]
            return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
        operands = [text(x) for x in symbol.operands]
        if symbol.op in BETWEEN:
            return f"({operands[0]} {BETWEEN[symbol.op]} {operands[1]})"
        if symbol.op == "where":
            return f"choose({operands[0]}, lambda: {operands[1]}, lambda: {operands[2]})"
        return f"{symbol.op}({', '.join(operands)})"

    lines = []
    for symbol in _needed(values, symbols):
        if symbol.op not in ("input", "constant") and _users(symbol, symbols, values) > 1:
            lines.append(f"n{len(names)} = {text(symbol)}")
            names[symbol] = f"n{len(names)}"
    results = "".join(text(symbol) + ", " for symbol in values)
    return "\n    ".join([f"def numbers({', '.join(inputs)}):", *lines, f"return ({results})\n"])


def _users(symbol: Symbol, symbols: list[Symbol], values: list[Any]) -> int:
    """How many read a number outside of the sides of choices."""
    readers = [
        s for s in symbols if s.kind == NUMBER and s.op not in ("input", "constant", "where")
    ]
    return sum(symbol in reader.operands for reader in readers) + values.count(symbol)
