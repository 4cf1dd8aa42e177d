"""Operands for rows that have written kernels: sizes around those of vectors, warps and blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = ["CASES", "Case"]


class Case(NamedTuple):
    """A row with operands: `make(rng)` gives them in float64, for any dtype, or in float32
    where they are at least that; whole numbers as they are.

    `gradients` are the sets of inputs whose gradients are asked for together. Sums of `slack`
    roundings are compared.
    """

    name: str
    what: str
    make: Callable[[Any], list[Any]]
    params: dict[str, Any] = {}
    gradients: tuple[tuple[str, ...], ...] = ()
    forward: bool = True
    slack: float = 4.0


CASES: list[Case] = []


def case(name: str, *args: Any, **kwargs: Any) -> None:
    CASES.append(Case(name, *args, **kwargs))


def normal(*shape: int) -> Callable[[Any], Any]:
    return lambda rng: rng.standard_normal(shape) + 0.5


def moments(*shape: int) -> Callable[[Any], Any]:
    """Numbers that kernels keep in the precision of their sums."""
    return lambda rng: (rng.random(shape) + 0.1).astype(np.float32)


def drawn(*makers: Any) -> Callable[[Any], list[Any]]:
    """Arrays that makers draw, and what is none as it is."""
    return lambda rng: [make(rng) if callable(make) else make for make in makers]


# Norms --------------------------------------------------------------------------------------------

# n elements in a row: fewer than a vector, a few more than some; more than 1024 threads' worth
ROWS = [(3, 1), (5, 7), (9, 64), (2, 33), (4, 100), (2, 4100), (300, 40)]

for count, n in ROWS:
    how = {"normalized_shape": (n,), "eps": 1e-5}
    whole = ("input", "weight", "bias"), ("input", "bias")
    case("native_layer_norm", f"{count} x {n}", drawn(normal(count, n), normal(n), normal(n)),
         how, whole if count < 300 else whole[:1])  # fmt: skip
    case("rms_norm", f"{count} x {n}", drawn(normal(count, n), normal(n)), how,
         (("input", "weight"),))  # fmt: skip
for weight, bias in ((None, None), (normal(12), None), (None, normal(12))):
    how = {"normalized_shape": (12,), "eps": 1e-2}
    case("native_layer_norm", f"{weight} {bias}", drawn(normal(2, 3, 12), weight, bias), how,
         (("input",),))  # fmt: skip
case("native_layer_norm", "two dims", drawn(normal(3, 4, 5), normal(4, 5), normal(4, 5)),
     {"normalized_shape": (4, 5)}, (("input", "weight", "bias"),))  # fmt: skip
for name, number in (("native_layer_norm_backward", 2), ("rms_norm_backward", 1)):
    for count, n in ((3, 20), (2, 7)):
        rows = [normal(count, n), normal(count, n), normal(n)]
        case(name, f"{count} x {n}", drawn(*rows, *[moments(count, 1)] * number),
             {"normalized_shape": (n,)}, slack=20)  # fmt: skip
for shape, groups in (((2, 6, 4, 4), 3), ((3, 4, 5), 2), ((2, 8), 4), ((2, 4, 3000), 1)):
    case("native_group_norm", f"{shape}", drawn(normal(*shape), normal(shape[1]), normal(shape[1])),
         {"num_groups": groups}, (("input", "weight", "bias"), ("input", "weight")))  # fmt: skip
for shape in ((4, 3, 8, 8), (2, 3, 5), (70, 40), (300, 3), (3, 2, 1500), (1, 33, 2, 2)):
    vectors = normal(shape[1]), normal(shape[1])
    case("native_batch_norm", f"{shape}", drawn(normal(*shape), *vectors), {},
         (("input", "weight", "bias"), ("input",)))  # fmt: skip
    case(
        "batch_norm_inference",
        f"{shape}",
        drawn(normal(*shape), *vectors, normal(shape[1]), lambda rng, c=shape[1]: rng.random(c)),
    )
case("native_batch_norm", "without weights", drawn(normal(2, 3, 4), None, None), {}, (("input",),))
