"""Compares the derivatives that the engine computes with finite differences, output by input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...backends import backend_of
from ...backends.several import at_home, beside, copy_of
from ...tensor import Tensor, make
from ..engine.differentiate import grad
from ..forward_ad import dual_level, make_dual, unpack_dual
from ..gradcheck import GradcheckError
from .functional import zeros_like

__all__ = [
    "Check", "ComplexPart", "Tolerances", "as_tuple", "differentiable",
    "direction", "requires_grad", "tensors", "to_device", "to_host",
]  # fmt: skip

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]
Vector = Array | tuple[Array, Array]  # a direction of a real input; (real, imaginary) of a complex


class Tolerances(NamedTuple):
    """How exactly to compare."""

    eps: float
    atol: float
    rtol: float
    nondet_tol: float
    check_grad_dtypes: bool
    fast: bool


class ComplexPart(NamedTuple):
    """The part of complex outputs, or inputs, that a function was restricted to, for messages."""

    name: str  # "real" or "imaginary"
    of: str  # "outputs" or "inputs"
    indices: tuple[int, ...]  # which of them are complex


class Check:
    """One function at one point: its Jacobians by differences, by backward and in forward mode.

    A Jacobian has one row per element of the input and one column per element of the output. In
    backward outputs are real, in forward mode inputs are.
    """

    def __init__(
        self, func: Function, inputs: Sequence[Any], setting: Tolerances,
        part: ComplexPart | None = None, forward: bool = False,
    ) -> None:  # fmt: skip
        self.func, self.inputs, self.setting = func, tuple(inputs), setting
        self.part, self.forward = part, forward
        self.leaves: list[Tensor] = [x for x in self.inputs if requires_grad(x)]
        self.all_outputs = tensors(func(*self.inputs))
        self.rows = [i for i, o in enumerate(self.all_outputs) if o.requires_grad]
        self.outputs = [self.all_outputs[i] for i in self.rows]

    def run(self) -> None:
        """GradcheckError unless all Jacobians agree, element by element or in one direction."""
        if not self.outputs:
            self.numerical_is_zero()
        elif self.setting.fast:
            self.compare_projected()
        else:
            self.compare()

    # ------------------------------------------------------------------ Jacobians by differences

    def slopes(self, leaf: Tensor, step: Array, where: Any = None) -> list[Array]:
        """(f(x + step) - f(x - step)) / 2 eps of every output, flat, by changing x in place."""
        array = leaf._array
        original, delta = copy_of(array), beside(array, step.reshape(array.shape))
        try:
            with at_home(array):
                array[...] = original - delta
            low = self.values()
            with at_home(array):
                array[...] = original + delta
            high = self.values()
        finally:
            with at_home(array):
                array[...] = original
        for a, b in zip(low, high, strict=True):
            self.same_kind(a, b, "" if where is None else f"on index {where} ")
        return [
            (to_host(b) - to_host(a)).reshape(-1) / (2 * self.setting.eps)
            if a.is_floating_point() or a.is_complex()
            else np.zeros(a.numel())
            for a, b in zip(low, high, strict=True)
        ]

    def values(self) -> list[Tensor]:
        """Copies of the outputs of one more call."""
        return [make(copy_of(o._array)) for o in tensors(self.func(*self.inputs))]

    def same_kind(self, a: Tensor, b: Tensor, on_index: str) -> None:
        text = f"when inputs are perturbed {on_index}by {self.setting.eps}, but got:"
        if a.shape != b.shape:
            raise AssertionError(
                "Expected `func` to return outputs with the same shape "
                f"{text} shapes {a.shape} and {b.shape}."
            )
        if a.dtype != b.dtype:
            raise AssertionError(
                "Expected `func` to return outputs with the same dtype "
                f"{text} dtypes {a.dtype} and {b.dtype}."
            )

    def along(self, leaf: Tensor, vector: Vector, where: Any = None) -> list[Array]:
        """The derivative of every output along a direction; along both parts of a complex one."""
        re, im = vector if isinstance(vector, tuple) else (vector, None)
        dtype, eps = leaf._array.dtype, self.setting.eps
        slopes = self.slopes(leaf, (eps * re).astype(dtype), where)
        if im is None:
            return slopes
        turned = self.slopes(leaf, (1j * eps * im).astype(dtype), where)
        return [x + 1j * y for x, y in zip(slopes, turned, strict=True)]

    def numerical(self, leaf: Tensor) -> list[Array]:
        """The Jacobian of every output with respect to `leaf`."""
        rows: list[list[Array]] = [[] for _ in self.all_outputs]
        for k in range(leaf.numel()):
            unit = np.zeros(leaf.numel())
            unit[k] = 1
            where = tuple(int(i) for i in np.unravel_index(k, leaf.shape))
            slopes = self.along(leaf, (unit, unit) if leaf.is_complex() else unit, where)
            for jacobian, row in zip(rows, slopes, strict=True):
                jacobian.append(row)
        return [
            np.stack(r) if r else np.zeros((0, o.numel()))
            for r, o in zip(rows, self.all_outputs, strict=True)
        ]  # fmt: skip

    def numerical_is_zero(self) -> None:
        """A function with no differentiable output must not depend on its inputs."""
        tolerance = self.setting.nondet_tol if self.setting.fast else 0
        for leaf in self.leaves:
            fast = self.setting.fast
            for j in self.along(leaf, self.vector(leaf)) if fast else self.numerical(leaf):
                if np.any(np.abs(j) > tolerance):
                    raise GradcheckError("Numerical gradient for function expected to be zero")

    def vector(self, leaf: Tensor, seed: int = 0) -> Vector:
        rng = np.random.default_rng(seed)
        u = direction(leaf, rng)
        return (u, direction(leaf, rng)) if leaf.is_complex() else u

    # ------------------------------------------------------------------ Jacobians by backward

    def pulled(self, output: Tensor, seeds: Array | None = None) -> list[Array]:
        """The Jacobian of `output` with respect to every input, or of its products with seeds.

        GradcheckError where a second run differs.
        """
        seeds = np.eye(output.numel()) if seeds is None else seeds
        first, second = self.columns(output, seeds), self.columns(output, seeds)
        tolerance = self.setting.nondet_tol
        for a, b in zip(first, second, strict=True):
            if (
                a.size
                and not np.abs(a - b).max() <= tolerance
                and not np.array_equal(a, b, equal_nan=True)
            ):
                raise GradcheckError(
                    "Backward is not reentrant, i.e., running backward with same input and "
                    "grad_output multiple times gives different values, although analytical "
                    "gradient matches numerical gradient. The tolerance for nondeterminism was "
                    f"{tolerance}.\n\nNOTE: If your op relies on non-deterministic operations "
                    "this failure might be expected: pass `nondet_tol=<tol>`."
                )
        return first

    def columns(self, output: Tensor, seeds: Array) -> list[Array]:
        jacobians: list[list[Array]] = [[] for _ in self.leaves]
        for seed in seeds:
            vector = to_device(seed, output)
            grads = grad(output, self.leaves, vector, retain_graph=True, allow_unused=True)
            for columns, g, leaf in zip(jacobians, grads, self.leaves, strict=True):
                columns.append(self.column(g, leaf))
        return [
            np.stack(c, axis=1) if c else np.zeros((leaf.numel(), 0))
            for c, leaf in zip(jacobians, self.leaves, strict=True)
        ]

    def column(self, gradient: Tensor | None, leaf: Tensor) -> Array:
        if gradient is None:
            return np.zeros(leaf.numel(), leaf._array.dtype)
        if gradient.shape != leaf.shape:
            raise GradcheckError("Analytical gradient has incorrect size")
        if gradient.dtype is not leaf.dtype and self.setting.check_grad_dtypes:
            raise GradcheckError("Gradient has dtype mismatch")
        return to_host(gradient).reshape(-1)

    # ------------------------------------------------------------------ Jacobians in forward mode

    def pushed(self, leaf: Tensor, vectors: Array | None = None) -> list[Array]:
        """The Jacobian of every output with respect to `leaf`, or of its products with vectors."""
        vectors = np.eye(leaf.numel()) if vectors is None else vectors
        rows: list[list[Array]] = [[] for _ in self.all_outputs]
        for vector in vectors:
            with dual_level():
                duals = [
                    make_dual(x.detach(), to_device(vector, x) if x is leaf else zeros_like(x))
                    if requires_grad(x)
                    else x
                    for x in self.inputs
                ]
                outputs = tensors(self.func(*duals))
                for row, o in zip(rows, outputs, strict=True):
                    row.append(self.tangent(o))
        return [
            np.stack(r) if r else np.zeros((0, o.numel()))
            for r, o in zip(rows, self.all_outputs, strict=True)
        ]

    def tangent(self, output: Tensor) -> Array:
        primal, tangent = unpack_dual(output)
        if tangent is None:
            return np.zeros(primal.numel())
        if self.setting.check_grad_dtypes and primal.is_complex() != tangent.is_complex():
            raise GradcheckError("Forward AD gradient has dtype mismatch.")
        return to_host(tangent).reshape(-1)

    # ------------------------------------------------------------------ comparisons

    def close(self, analytical: Any, numerical: Any, atol: float) -> bool:
        return bool(np.allclose(analytical, numerical, self.setting.rtol, atol))

    def compare(self) -> None:
        """All elements of all Jacobians."""
        numerical = [self.numerical(leaf) for leaf in self.leaves]
        pushed = [self.pushed(leaf) for leaf in self.leaves] if self.forward else []
        for i, (row, output) in enumerate(zip(self.rows, self.outputs, strict=True)):
            analytical = [p[row] for p in pushed] if self.forward else self.pulled(output)
            for j, (a, columns) in enumerate(zip(analytical, numerical, strict=True)):
                n = columns[row]
                if not self.close(a, n, self.setting.atol):
                    raise GradcheckError(self.mismatch(i, j, a, n))

    def compare_projected(self) -> None:
        """The product of each Jacobian and a random vector; in backward of two, so a number.

        The tolerance grows as the sum of what it is for in single elements.
        """
        us = [self.vector(leaf, j) for j, leaf in enumerate(self.leaves)]
        numerical = [self.along(leaf, u) for leaf, u in zip(self.leaves, us, strict=True)]
        vs, analytical = [], []  # analytical: by output, by input
        if self.forward:
            pushed = [
                self.pushed(leaf, np.asarray(u)[None])
                for leaf, u in zip(self.leaves, us, strict=True)
            ]
            analytical = [[p[row][0] for p in pushed] for row in self.rows]
        else:
            rng = np.random.default_rng(len(us))
            vs = [direction(o, rng) for o in self.outputs]
            for output, v in zip(self.outputs, vs, strict=True):
                pulled = self.pulled(output, v[None])
                analytical.append([_dot(p[:, 0], u) for p, u in zip(pulled, us, strict=True)])
        for j, u in enumerate(us):
            for i, row in enumerate(self.rows):
                a, n = analytical[i][j], numerical[j][row]
                n = n if self.forward else np.sum(vs[i] * n)
                weight = float(np.sum(u)) * (1.0 if self.forward else float(vs[i].sum()))
                if not self.close(a, n, self.setting.atol * weight):
                    raise GradcheckError(
                        self.mismatch(i, j, np.asarray(a), np.asarray(n)) + self.in_slow_mode(i, j)
                    )

    def mismatch(self, i: int, j: int, analytical: Array, numerical: Array) -> str:
        part, prefix = self.part, ""
        if part is not None and (i if part.of == "outputs" else j) in part.indices:
            prefix = f"While considering the {part.name} part of complex {part.of} only, "
        mode = "computed with forward mode " if self.forward else ""
        return (
            f"{prefix}Jacobian {mode}mismatch for output {i:d} with respect to input {j:d},\n"
            f"numerical:{make(numerical)}\nanalytical:{make(analytical)}\n"
        )

    def in_slow_mode(self, i: int, j: int) -> str:
        """What the full Jacobians say about a failure in fast mode."""
        row, leaf = self.rows[i], self.leaves[j]
        numerical = self.numerical(leaf)[row]
        analytical = self.pushed(leaf)[row] if self.forward else self.pulled(self.outputs[i])[j]
        text = (
            "\nThe above quantities relating the numerical and analytical jacobians are computed "
            "\nin fast mode. Below, we recompute numerical and analytical jacobians in slow mode:"
            f"\n\nNumerical:\n {make(numerical)}\nAnalytical:\n{make(analytical)}\n\n"
            "The max per-element difference (slow mode) is: "
            f"{np.abs(numerical - analytical).max()}.\n"
        )
        if self.close(analytical, numerical, self.setting.atol):
            text += (
                "Fast gradcheck failed but element-wise differences are small. This means that "
                "the test might've passed in slow_mode: pass `fast_mode=False`."
            )
        return text


# Inputs and outputs -------------------------------------------------------------------------------


def as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def tensors(value: Any) -> list[Tensor]:
    return [x for x in as_tuple(value) if isinstance(x, Tensor)]


def requires_grad(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def differentiable(outputs: Any) -> tuple[Tensor, ...]:
    """Those that require gradients; AttributeError, as PyTorch's, where one is no tensor."""
    for o in as_tuple(outputs):
        if not isinstance(o, Tensor):
            name = type(o).__name__
            raise AttributeError(
                f"'{name}' object has no attribute 'requires_grad': the function returned it, want "
                "a Tensor or a tuple of Tensors"
            )
    return tuple(o for o in as_tuple(outputs) if requires_grad(o))


def to_host(x: Tensor) -> Array:
    """A copy of the elements on the host, in double precision where they are inexact."""
    value = np.array(backend_of(x._array).to_host(x._array))
    if x.is_complex():
        return value.astype(np.complex128)
    return value.astype(np.float64) if x.is_floating_point() else value


def to_device(value: Array, like: Tensor) -> Tensor:
    """The values as a Tensor of the shape, dtype and device of another."""
    array = value.reshape(like._array.shape).astype(like._array.dtype)
    return make(beside(like._array, array))


def direction(x: Tensor, rng: np.random.Generator) -> Array:
    """A random unit vector with no negative component, as long as `x` has elements."""
    v = rng.random(x.numel())
    return v / max(float(np.linalg.norm(v)), 1e-300)


def _dot(gradient: Array, u: Vector) -> complex:
    if isinstance(u, tuple):
        return complex(gradient.real @ u[0], gradient.imag @ u[1])
    return float(gradient @ u)
