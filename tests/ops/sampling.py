"""How a sample line of tests/ops/samples.py becomes arrays: constructors and generic variants."""

from __future__ import annotations

import types
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

Shape = tuple[int, ...]
Draw = Callable[[np.random.Generator, Shape], np.ndarray]


@dataclass(frozen=True)
class Input:
    """One array argument: a shape, how to draw its values, and whether it is always real."""

    shape: Shape
    draw: Draw
    word: str = ""
    real: bool = False

    def at(self, shape: Shape) -> Input:
        return replace(self, shape=shape)

    def __repr__(self) -> str:
        return self.word + "x".join(map(str, self.shape)) if self.shape else self.word + "()"


def normal(shape: Shape) -> Input:
    """Standard normal; what a bare tuple in a sample line means."""
    return Input(shape, lambda rng, s: rng.standard_normal(s))


def positive(shape: Shape, low: float = 0.3, high: float = 2.3) -> Input:
    """In (low, high): for log, sqrt, the base of a power, a divisor."""
    return Input(shape, lambda rng, s: rng.uniform(low, high, s), "positive")


def unit(shape: Shape, bound: float = 0.9) -> Input:
    """In (-bound, bound), bound < 1: for asin, atanh, probabilities that may be negative."""
    return Input(shape, lambda rng, s: rng.uniform(-bound, bound, s), "unit")


def away(shape: Shape, *points: float, gap: float = 0.1) -> Input:
    """Normal, but at least `gap` from each of `points` (default 0), where the row has a kink."""
    kinks = points or (0.0,)

    def draw(rng: np.random.Generator, s: Shape) -> np.ndarray:
        x = np.asarray(rng.standard_normal(s))
        for p in kinks:
            x = np.where(np.abs(x - p) < gap, p + np.where(x < p, -gap, gap) + x * 1e-3, x)
        return x

    return Input(shape, draw, "away")


def distinct(shape: Shape) -> Input:
    """No two equal, none zero, well apart: for max, sort, median, cumulative extrema."""

    def draw(rng: np.random.Generator, s: Shape) -> np.ndarray:
        n = int(np.prod(s))
        return rng.permutation(np.arange(1, n + 1) * 0.37 - 0.37 * n / 2 - 0.1).reshape(s)

    return Input(shape, draw, "distinct", real=True)


def integers(shape: Shape, high: int = 10, low: int = 0, dtype: str = "int64") -> Input:
    """In [low, high), of an integer dtype: indices, labels."""
    return Input(shape, lambda rng, s: rng.integers(low, high, s, dtype=dtype), "int", real=True)


def boolean(shape: Shape) -> Input:
    """Coin flips."""
    return Input(shape, lambda rng, s: rng.integers(0, 2, s).astype(bool), "bool", real=True)


def exactly(values: Any, dtype: Any = None) -> Input:
    """These values, whatever the seed; variants that change shapes skip the line."""
    array = np.asarray(values, dtype)
    return Input(array.shape, lambda rng, s: array.copy(), "exactly", real=array.dtype.kind != "f")


@dataclass(frozen=True, eq=False)
class Sample:
    """One line: arguments and parameters of a row, and what cannot be said of it.

    It is equal to itself alone: thus what is made of it can be found again by it.
    """

    row: str
    index: int
    args: tuple[Any, ...]
    params: dict[str, Any]
    strided: bool = True  # the row takes any memory layout
    shapes: bool = True  # elementwise rows only: 0-d, empty and broadcast variants make sense
    integer: bool = True  # the row says what it makes of integers
    tolerance: float = 1.0  # factor on every tolerance
    torch: Callable[..., Any] | None = None
    variant: str = "plain"
    dtype: str = "float64"
    seed: int = 0

    @property
    def id(self) -> str:
        words = ["x".join(map(str, a)) if isinstance(a, tuple) else repr(a) for a in self.args]
        words += [f"{k}={v!r}" for k, v in self.params.items() if not callable(v)]
        return f"{self.row}[{self.index}]({','.join(words)})".replace(" ", "")

    @cached_property
    def drawn(self) -> tuple[Any, ...]:
        """The arguments, drawn once for all tests, none of which may change them."""
        rng = np.random.default_rng(self.seed)
        return tuple(_build(a, rng, self.dtype) for a in self.args)

    def host_args(self) -> tuple[Any, ...]:
        """The arguments as contiguous NumPy arrays, scalars as they are, in this dtype."""
        return tuple(_copied(a) for a in self.drawn)

    def params_on(self, backend: Any) -> dict[str, Any]:
        """The parameters, where constructors (of index arrays, say) have become arrays."""
        rng = np.random.default_rng(self.seed + 2) if self.params else None
        return {name: _nested(v, backend, rng) for name, v in self.params.items()}

    def arrays(self, backend: Any) -> tuple[Any, ...]:
        """The arguments as arrays of `backend`, in this variant's memory layout."""
        layout = _strided if self.variant == "strided" else lambda b, a, k: b.asarray(a)
        built, count = [], 0
        for arg in self.host_args():
            if isinstance(arg, list):
                built.append([layout(backend, a, count + i) for i, a in enumerate(arg)])
                count += len(arg)
            elif isinstance(arg, np.ndarray):
                built.append(layout(backend, arg, count))
                count += 1
            else:
                built.append(arg)
        return tuple(built)


LINES: dict[str, list[Sample]] = {}
REFERENCE: dict[str, Callable[..., Any]] = {}


def sample(
    name: str,
    *args: Any,
    reference: Callable[..., Any] | None = None,
    torch: Callable[..., Any] | None = None,
    strided: bool = True,
    shapes: bool = True,
    integer: bool = True,
    tolerance: float = 1.0,
    **params: Any,
) -> None:
    """Declares one call of row `name`: inputs in order (a list for `tensors*`), then parameters.

    An input is a tuple (normal values of that shape), one of the constructors above, None, or a
    Python scalar. A parameter may hold constructors too: `indices=(exactly([0, 2]),)`;
    a function in it is called with the backend.

    `reference(np, *inputs, **params)` is the forward in plain NumPy at float64, said once per row;
    without it NumPy's function of the row's name is the reference. `torch(torch, *inputs,
    **params)` is PyTorch's equivalent where aten's op of that name and signature is not.
    """
    lines = LINES.setdefault(name, [])
    if reference is not None:
        REFERENCE[name] = reference
    if torch is None and lines:
        torch = lines[0].torch
    lines.append(
        Sample(
            name, len(lines), args, params, strided, shapes, integer, tolerance, torch,
            seed=zlib.crc32(f"{name} {len(lines)}".encode()),
        )
    )  # fmt: skip


def _input(arg: Any) -> Any:
    return normal(arg) if isinstance(arg, tuple) else arg


def _build(arg: Any, rng: np.random.Generator, dtype: str) -> Any:
    if isinstance(arg, list):
        return [_build(a, rng, dtype) for a in arg]
    spec = _input(arg)
    if not isinstance(spec, Input):
        return arg
    value: Any = np.asarray(spec.draw(rng, spec.shape))
    if value.dtype != np.float64:
        return value
    if dtype.startswith("int"):
        value = np.trunc(value * 3)
    if dtype.startswith("complex"):
        with np.errstate(invalid="ignore"):
            value = value + 1j * np.asarray(spec.draw(rng, spec.shape))
    return np.asarray(value.astype(_numpy_dtype(dtype)))


def _copied(arg: Any) -> Any:
    if isinstance(arg, list):
        return [*map(_copied, arg)]
    return arg.copy() if isinstance(arg, np.ndarray) else arg


def _nested(value: Any, backend: Any, rng: Any) -> Any:
    if isinstance(value, Input):
        return backend.asarray(np.asarray(value.draw(rng, value.shape)))
    if isinstance(value, (tuple, list)):
        return type(value)(_nested(v, backend, rng) for v in value)
    if isinstance(value, types.FunctionType):
        return value(backend)
    return value


def _numpy_dtype(name: str) -> np.dtype[Any]:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def _strided(backend: Any, array: np.ndarray, turn: int) -> Any:
    """An equal array with another layout: transposed, reversed, or every second of a larger one."""
    kind = turn % 3
    if kind == 0 and array.ndim >= 2:
        return backend.asarray(np.ascontiguousarray(array.T)).T
    if kind == 1 and array.ndim >= 1:
        reverse = (slice(None, None, -1),) * array.ndim
        return backend.asarray(np.ascontiguousarray(array[reverse]))[reverse]
    flat = np.atleast_1d(array)
    wide = np.zeros((*flat.shape[:-1], flat.shape[-1] * 2 + 1), array.dtype)
    wide[..., 1::2] = flat
    stepped = backend.asarray(wide)[..., 1::2]
    return stepped if array.ndim else stepped.reshape(())


def variants(line: Sample, elementwise: bool) -> Iterator[Sample]:
    """The line itself, then the same call strided, and for an elementwise row in other shapes.

    Of a row's further lines each has one of the first two, its neighbour the other.
    """
    if line.index == 0 or not line.strided or line.index % 2:
        yield line
    if line.strided and line.index % 2 == 0:
        yield replace(line, variant="strided")
    specs = [_input(a) for a in line.args]
    inputs = [s for s in specs if isinstance(s, Input)]
    if not (elementwise and line.shapes and line.index == 0) or any(
        s.word == "exactly" for s in inputs
    ):
        return

    def reshaped(variant: str, shapes: list[Shape]) -> Sample:
        left = iter(shapes)
        args = tuple(s.at(next(left)) if isinstance(s, Input) else s for s in specs)
        return replace(line, variant=variant, args=args)

    n = len(inputs)
    yield reshaped("0-d", [()] * n)
    yield reshaped("empty", [(2, 0)] * n)
    if n > 1:
        shapes: list[Shape] = [(3, 1), (1, 4), (2, 1, 1)]
        yield reshaped("broadcast", shapes[:n])
        yield reshaped("scalar-first", [(), *[(2, 3)] * (n - 1)])
        yield reshaped("scalar-last", [*[(2, 3)] * (n - 1), ()])
        yield reshaped("broadcast-empty", [(0, 3), *[(1,)] * (n - 1)])


def as_dtype(line: Sample, dtype: str) -> Sample:
    """The same call with its float64 inputs drawn in another dtype."""
    return replace(line, dtype=dtype, variant=dtype)
