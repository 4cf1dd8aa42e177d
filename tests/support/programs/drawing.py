"""Draws programs: runs each statement beside PyTorch as it is drawn, to know shapes and values."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from . import table
from .running import GUARDS, Unfit, compiled, tame
from .text import HELPERS, Program, Statement, helper_code

# What a program computes in, and how often.
FAMILIES = {
    "float64": (10, ("float64",)),
    "complex128": (5, ("complex128", "complex128", "float64")),
    "mixed": (4, ("float64", "float32", "complex128", "complex64", "int64", "bool", "float32")),
    "half": (1, ("float16", "bfloat16", "float32")),
}
SHAPES = [
    (2,),
    (3,),
    (4,),
    (2, 3),
    (3, 2),
    (3, 3),
    (2, 2),
    (4, 1),
    (1, 3),
    (1,),
    (),
    (2, 2, 2),
    (2, 3, 3),
    (0,),
    (2, 0),
    (5,),
]
LARGEST = 80  # elements


class Spoiled(Exception):
    """The statement that was tried has changed something: the program is run anew without it."""


class Ended(Exception):
    """The program ends with the error that it has now."""


def same_storage(x: Any, y: Any) -> bool:
    try:
        return bool(x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr() and x.numel())
    except RuntimeError:  # one that a transform has left behind has no memory
        return True


def usable(x: Any) -> bool:
    """Whether a view has not been made useless by a change of its base, and lines may take it."""
    try:
        return readable(x) and not x.is_sparse
    except RuntimeError:
        return False


def readable(x: Any) -> bool:
    """Whether PyTorch says where it comes from, as not of a view that a change made useless."""
    try:
        return getattr(x, "is_leaf", True) is not None
    except RuntimeError:
        return False


class Draw:
    """One program being drawn: what is there, and the lines so far."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        weights = [FAMILIES[name][0] for name in FAMILIES]
        self.family = self.random.choices(list(FAMILIES), weights)[0]
        self.dtypes = FAMILIES[self.family][1]
        self.statements: list[Statement] = []
        self.numbers = 0
        self.scope: list[str] | None = None  # names that may be used; None: all
        self.pure = False  # within a function that runs again: nothing from outside may change
        self.captured: list[Any] = []  # what it knows from there
        self.unguarded = False  # within a transform, where values cannot be looked at
        # in-place ops make a saved tensor useless: some programs have none, some do as they like
        self.wild = self.random.random() < 0.15
        self.env: dict[str, Any] = {}
        # How often a hook is called in a derivative's derivative depends on whether formulas are
        # written with an op's result or its input: a program has hooks of tensors that are no
        # leaves, or derivatives of derivatives.
        self.hooked = self.random.random() < 0.25
        self.renew()

    # What there is --------------------------------------------------------------------------------

    def renew(self) -> None:
        self.env = {"t": torch, "log": [], **GUARDS}
        for name in HELPERS:
            exec(helper_code(name), self.env)
        for number, statement in enumerate(self.statements):
            try:
                self.execute(statement)
            except Exception:  # what was left out has changed what it needs
                del self.statements[number:]
                break

    def execute(self, statement: Statement) -> None:
        text = "\n".join(statement.lines(checked=True)) + "\n"
        exec(compiled(text), self.env)

    def fresh(self, letter: str = "v") -> str:
        self.numbers += 1
        return f"{letter}{self.numbers}"

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def names(self) -> list[str]:
        if self.scope is not None:
            return [n for n in self.scope if n in self.env and readable(self.env[n])]
        return [
            n
            for n in self.env
            if n[0] == "v"
            and n[1:].isdigit()
            and isinstance(self.env[n], torch.Tensor)
            and usable(self.env[n])
        ]

    def pick(self, fits: Callable[[Any], bool] = lambda x: True) -> str | None:
        """A tensor; late ones more often."""
        names = [n for n in self.names() if fits(self.env[n])]
        if not names:
            return None
        if self.chance(0.5):
            names = names[-4:]
        return self.random.choice(names)

    def pick_float(self, fits: Callable[[Any], bool] = lambda x: True) -> str | None:
        return self.pick(lambda x: (x.is_floating_point() or x.is_complex()) and fits(x))

    # Statements -----------------------------------------------------------------------------------

    def try_(self, statement: Statement, made: str | None = None, changes: bool = False) -> bool:
        """Runs a statement; False where it says nothing. It is the caller's to keep it."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                # a base that has views, and a history, in another shape
                warnings.filterwarnings("error", "An output with one or more elements was resized")
                self.execute(statement)
        except Unfit:
            if changes:
                raise Spoiled from None
            return False
        except Exception:
            if self.scope is None and self.chance(0.15 if changes else 0.01):
                raise Ended(statement) from None
            if changes:
                raise Spoiled from None
            return False
        if made is not None and made in self.env and not self.good(self.env[made]):
            self.env.pop(made, None)
            if changes:
                raise Spoiled
            return False
        return True

    def good(self, x: Any) -> bool:
        if isinstance(x, (tuple, list)):
            return all(self.good(y) for y in x)
        if not isinstance(x, torch.Tensor):
            return x is None
        if x.numel() > LARGEST or x.dim() > 5 or x.dtype is torch.complex32:
            return False
        try:
            tame(x)
        except Unfit:
            return False
        except ValueError:  # a shape that PyTorch has from anywhere
            return False
        except RuntimeError:  # within a transform
            return True
        return True

    # Literals -------------------------------------------------------------------------------------

    def number(self, dtype: str) -> str:
        r = self.random
        if dtype == "bool":
            return r.choice(["True", "False"])
        if dtype == "int64":
            return str(r.randint(-3, 5))
        digits = 2 if dtype in ("float16", "bfloat16") else 3
        real = r.choice((-1, 1)) * round(r.uniform(0.2, 1.8), digits)
        if "complex" in dtype:
            return f"{real}{r.choice((-1, 1)) * round(r.uniform(0.2, 1.5), digits):+}j"
        return str(real)

    def literal(self, shape: tuple[int, ...], dtype: str) -> str:
        if not shape:
            return self.number(dtype)
        return "[" + ", ".join(self.literal(shape[1:], dtype) for _ in range(shape[0])) + "]"

    def tensor(self, shape: tuple[int, ...], dtype: str, grad: bool = False) -> str:
        wants = ", requires_grad=True" if grad else ""
        if 0 in shape:
            return f"t.zeros({shape}, dtype=t.{dtype}{wants})"
        return f"t.tensor({self.literal(shape, dtype)}, dtype=t.{dtype}{wants})"

    def filled(self, row: table.Row, x: str) -> tuple[str, tuple[str, ...]] | None:
        """A row's text with operands, and its needs."""
        tensor, r = self.env[x], self.random
        shape = tuple(tensor.shape)
        values: dict[str, str] = {"x": x, "s": str(shape)}
        text = row.text
        wanted = set(re.findall(r"\{(\w+)\}", text + " ".join(row.needs)))
        d = r.randrange(len(shape)) if shape else 0
        size = shape[d] if shape else 1
        last = f"{shape[-1] if shape else 0}, dtype={tensor.dtype}".replace("torch.", "t.")
        values |= {"I": f"t.eye({last})", "A": f"t.diag(t.arange({last}) * 9 + 2)"}
        values["d"] = str(d - len(shape) if self.chance(0.5) and shape else d)
        values["e"] = str(r.randrange(len(shape)) if shape else 0)
        values["i"] = str(r.randrange(size) if size else 0)
        if "{x}[{i}" in text and shape:
            values["i"] = str(r.randrange(shape[0]) if shape[0] else 0)
        values["i0"] = str(r.randrange(shape[-1]) if shape and shape[-1] else 0)
        values["i1"] = str(r.randrange(shape[1]) if len(shape) > 1 and shape[1] else 0)
        values["k"] = str(r.randint(1, 3))
        values["n"] = str(shape[0] if shape else 1)
        values["c"] = r.choice(["0.5", "1.5", "-0.7", "2", "0.3"])
        values["b"] = r.choice(["True", "False"])
        if "m" in wanted:
            values["m"] = self.tensor(shape if self.chance(0.8) else shape[-1:], "bool")
        if {"j", "j1", "j0"} & wanted:
            along = shape[0] if "[{j" in text or "({j}," in text else size
            along = shape[-1] if "{j0}" in text and shape else along
            if "{x}.take" in text or ".put_" in text:
                along = tensor.numel()
            if not along:
                return None
            places = [r.randrange(along) for _ in range(r.randint(1, 3))]
            values["j"] = values["j0"] = f"t.tensor({places})"
            values["j1"] = f"t.tensor({sorted(set(places))})"
        if {"J", "J1"} & wanted:
            if not tensor.numel() or not shape:
                return None
            values["J"] = f"t.tensor({self.places(shape, size)})"
            along_one = [-1 if n == d else 1 for n in range(len(shape))]
            # no place twice: which of the values written to one place stays is open
            values["J1"] = f"t.arange({size}).view({along_one}).expand({shape})"
        for letter in "yz":
            if letter in wanted:
                other = self.other(tensor)
                if other is None:
                    return None
                values[letter] = other
        try:
            return text.format(**values), tuple(need.format(**values) for need in row.needs)
        except (KeyError, IndexError):
            raise AssertionError(f"a row that cannot be filled: {row}") from None

    def places(self, shape: tuple[int, ...], size: int) -> Any:
        if not shape:
            return self.random.randrange(size)
        return [self.places(shape[1:], size) for _ in range(shape[0])]

    def other(self, x: Any) -> str | None:
        """A second operand: of the shape and dtype for the most part, else what may broadcast."""
        dice = self.random.random()
        if dice < 0.5:
            name = self.pick(lambda y: y.shape == x.shape and y.dtype == x.dtype)
        elif dice < 0.8:
            name = self.pick(lambda y: y.dtype == x.dtype)
        else:
            name = self.pick()
        if name is None or self.chance(0.1):
            dtype = str(x.dtype).partition(".")[2]
            if dtype in (
                "float64",
                "float32",
                "complex128",
                "complex64",
                "float16",
                "bfloat16",
                "int64",
                "bool",
            ):
                return self.tensor(tuple(x.shape), dtype)
        return name

    def fits(self, row: table.Row) -> Callable[[Any], bool]:
        def fit(x: Any) -> bool:
            if x.dim() < row.dims or (row.exact and x.dim() != row.dims):
                return False
            if row.full and not x.numel():
                return False
            if row.own and (x._is_view() or not x.is_leaf):
                return False
            if row.square and x.shape[-1] != x.shape[-2]:
                return False
            if row.kind == "any":
                return True
            if row.kind == "complex":
                return bool(x.is_complex())
            if row.kind == "real":
                return bool(x.is_floating_point())
            return bool(x.is_floating_point() or x.is_complex())

        return fit

    def expression(self, rows: tuple[table.Row, ...]) -> Statement | None:
        """`v5 = v3.sin()` of a drawn row; None where nothing fits."""
        row = self.random.choice(rows)
        if row.needs and self.unguarded:
            return None
        x = self.pick(self.fits(row))
        made = x and self.filled(row, x)
        if not made:
            return None
        name = self.fresh()
        statement = Statement(f"{name} = {made[0]}", needs=made[1])
        if not self.try_(statement, name):
            return None
        if isinstance(self.env.get(name), torch.Tensor):
            if self.scope is not None:
                self.scope.append(name)
            return statement
        self.env.pop(name, None)
        return None

    def program(self) -> Program:

        from .whole import draw  # which draws statements, and so is above this

        draw(self)
        return Program(tuple(self.statements), self.seed)

    # Blocks ---------------------------------------------------------------------------------------

    @contextmanager
    def within(
        self, names: list[str] | None, pure: bool, unguarded: bool = False
    ) -> Iterator[None]:
        before = self.scope, self.pure, self.unguarded
        self.scope, self.pure = names, pure
        self.unguarded = self.unguarded or unguarded
        try:
            yield
        finally:
            self.scope, self.pure, self.unguarded = before
