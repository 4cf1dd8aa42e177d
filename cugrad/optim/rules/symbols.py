"""The formulas of an update rule as symbols: a rule is run once, on these."""

from __future__ import annotations

from typing import Any

__all__ = ["NUMBER", "Reading", "Symbol", "SymbolicForm"]

ARRAY, NUMBER, MASK = "array", "number", "mask"


class Symbol:
    """A value of a rule: an input, a constant, or an op of other symbols.

    `kind` is "array", "number" (one for all elements) or "mask" (an array of truth values). Equal
    symbols of a reading are one object, so what a rule writes twice is computed once.
    """

    __slots__ = ("reading", "op", "operands", "kind", "name")

    def __init__(self, reading: Reading, op: str, operands: tuple[Any, ...], kind: str) -> None:
        self.reading, self.op, self.operands, self.kind = reading, op, operands, kind
        self.name = ""

    def __repr__(self) -> str:
        return self.name or f"{self.op}{self.operands}"

    def __add__(self, other: Any) -> Symbol:
        return self.reading.apply("add", self, other)

    def __radd__(self, other: Any) -> Symbol:
        return self.reading.apply("add", other, self)

    def __sub__(self, other: Any) -> Symbol:
        return self.reading.apply("subtract", self, other)

    def __rsub__(self, other: Any) -> Symbol:
        return self.reading.apply("subtract", other, self)

    def __mul__(self, other: Any) -> Symbol:
        return self.reading.apply("multiply", self, other)

    def __rmul__(self, other: Any) -> Symbol:
        return self.reading.apply("multiply", other, self)

    def __truediv__(self, other: Any) -> Symbol:
        return self.reading.apply("divide", self, other)

    def __rtruediv__(self, other: Any) -> Symbol:
        return self.reading.apply("divide", other, self)

    def __pow__(self, other: Any) -> Symbol:
        return self.reading.apply("power", self, other)

    def __rpow__(self, other: Any) -> Symbol:
        return self.reading.apply("power", other, self)

    def __neg__(self) -> Symbol:
        return self.reading.apply("negative", self)

    def __gt__(self, other: Any) -> Symbol:
        return self.reading.apply("greater", self, other, kind=MASK)

    def __lt__(self, other: Any) -> Symbol:
        return self.reading.apply("less", self, other, kind=MASK)

    def __bool__(self) -> bool:
        raise TypeError(
            "an update rule asked for the truth of a value: want m.where(condition, a, b), since a "
            "rule is read once for all values; settings that are None, True or False may decide"
        )


class Reading:
    """All symbols of one reading of a rule, in the order in which they were made."""

    def __init__(self) -> None:
        self.symbols: list[Symbol] = []
        self._known: dict[Any, Symbol] = {}

    def input(self, name: str, kind: str) -> Symbol:
        """The symbol of what the rule is given."""
        symbol = self._intern("input", (name,), kind)
        symbol.name = name
        return symbol

    def apply(self, op: str, *operands: Any, kind: str = ARRAY) -> Symbol:
        """The symbol of an op, whose kind is said for arrays; Python's numbers become constants."""
        symbols = tuple(
            x if isinstance(x, Symbol) else self._intern("constant", (float(x),), NUMBER)
            for x in operands
        )
        of_numbers = all(symbol.kind == NUMBER for symbol in symbols)
        return self._intern(op, symbols, NUMBER if of_numbers else kind)

    def _intern(self, op: str, operands: tuple[Any, ...], kind: str) -> Symbol:
        key = (op, *(id(x) if isinstance(x, Symbol) else x for x in operands))
        symbol = self._known.get(key)
        if symbol is None:
            symbol = self._known[key] = Symbol(self, op, operands, kind)
            self.symbols.append(symbol)
        return symbol


class SymbolicForm:
    """The functions of a rule, on symbols; `recorded.py` has them on tensors."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def sqrt(self, x: Any) -> Symbol:
        return self._reading.apply("sqrt", x)

    def sign(self, x: Any) -> Symbol:
        # 0 of what is no number, as that of tensors; NumPy's and CuPy's are nan
        return self.where(x > 0, 1.0, self.where(x < 0, -1.0, 0.0))

    def abs(self, x: Any) -> Symbol:
        return self._reading.apply("absolute", x)

    def maximum(self, a: Any, b: Any) -> Symbol:
        return self._reading.apply("maximum", a, b)

    def minimum(self, a: Any, b: Any) -> Symbol:
        return self._reading.apply("minimum", a, b)

    def equal(self, a: Any, b: Any) -> Symbol:
        return self._reading.apply("equal", a, b, kind=MASK)

    def single(self, x: Any) -> Symbol:
        return self._reading.apply("single", x)

    def where(self, condition: Any, a: Any, b: Any) -> Symbol:
        sides = (x() if callable(x) else x for x in (a, b))
        return self._reading.apply("where", condition, *sides)
