"""Compares the derivatives that the engine computes with finite differences, output by input."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..backends import backend_of
from ..tensor import Tensor, make

__all__ = ["Check", "Gradients", "GradcheckError", "as_tuple", "differentiable", "requires_grad"]

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]
Tensors = Tensor | Sequence[Any]
Gradients = tuple[Tensor | None, ...]
Vector = Array | tuple[Array, Array]  # a direction of a real input; (real, imaginary) of a complex


class GradcheckError(RuntimeError):
    """Raised by `gradcheck` and `gradgradcheck` when a gradient is wrong."""


class Check:
    """One function at one point: its Jacobians by differences and by backward, and their tests.

    A Jacobian has one row per element of the input and one column per element of the output.
    """

    def __init__(
        self, func: Function, inputs: Tensors, eps: float, atol: float, rtol: float,
        nondet_tol: float, check_grad_dtypes: bool, masked: bool,
    ) -> None:  # fmt: skip
        self.func, self.inputs = func, as_tuple(inputs)
        self.eps, self.atol, self.rtol, self.nondet_tol = eps, atol, rtol, nondet_tol
        self.check_grad_dtypes, self.masked = check_grad_dtypes, masked
        _check_inputs(self.inputs)
        self.leaves: list[Tensor] = [x for x in self.inputs if requires_grad(x)]
        self.all_outputs = as_tuple(func(*self.inputs))
        self.outputs = differentiable(self.all_outputs)
        self.is_complex = any(o.is_complex() for o in self.all_outputs)

    def run(self, fast: bool) -> None:
        """Compares the Jacobians of every output with respect to every input."""
        if not self.outputs:
            self.numerical_is_zero()
            return
        for part in ("imag", "real") if self.is_complex else ("real",):
            self.compare_projected(part) if fast else self.compare(part)

    # ------------------------------------------------------------------ Jacobians by differences

    def slopes(self, leaf: Tensor, step: Array, part: str, where: Any = None) -> list[Array]:
        """Half of f(x + step) - f(x - step) for every output, flat, by changing x in place."""
        array, backend = leaf._array, backend_of(leaf._array)
        original, delta = array.copy(), backend.asarray(step.reshape(array.shape))
        try:
            array[...] = original - delta
            low = self.values(part)
            array[...] = original + delta
            high = self.values(part)
        finally:
            array[...] = original
        for a, b in zip(low, high):
            self.same_kind(a, b, "" if where is None else f"on index {where} ")
        return [
            (b - a).reshape(-1) / 2 if a.dtype.kind in "fc" else np.zeros(a.size)
            for a, b in zip(low, high)
        ]

    def values(self, part: str) -> list[Array]:
        """The outputs of one more call, copied to the host, the wanted part of complex ones."""
        return [_host(o, part) for o in as_tuple(self.func(*self.inputs))]

    def same_kind(self, a: Array, b: Array, on_index: str) -> None:
        text = f"when inputs are perturbed {on_index}by {self.eps}, but got:"
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

    def numerical(self, leaf: Tensor, part: str) -> list[Array]:
        """The Jacobian of every output with respect to `leaf`."""
        rows: list[list[Array]] = [[] for _ in self.all_outputs]
        for k in range(leaf.numel()):
            step = np.zeros(leaf.numel(), leaf._array.dtype)
            step[k] = self.eps
            where = tuple(int(i) for i in np.unravel_index(k, leaf.shape))
            found = self.slopes(leaf, step, part, where)
            if leaf.is_complex():
                turned = self.slopes(leaf, step * 1j, part, where)
                found = [x + 1j * y for x, y in zip(found, turned)]
            for jacobian, row in zip(rows, found):
                jacobian.append(row / self.eps)
        return [
            np.stack(r) if r else np.zeros((0, o.numel()))
            for r, o in zip(rows, self.all_outputs)
        ]  # fmt: skip

    def numerical_is_zero(self) -> None:
        """A function with no differentiable output must not depend on its inputs."""
        for leaf in self.leaves:
            for jacobian in self.numerical(leaf, "real"):
                if np.any(jacobian != 0):
                    raise GradcheckError("Numerical gradient for function expected to be zero")

    # ------------------------------------------------------------------ Jacobians by backward

    def analytical(self, output: Tensor, part: str) -> list[Array]:
        """The Jacobian of `output` with respect to every input, computed twice and compared."""
        one, numel = 1j if part == "imag" and output.is_complex() else 1.0, output.numel()
        seeds = (one * np.eye(numel)).astype(output._array.dtype)
        return self.backward(output, list(seeds))

    def backward(self, output: Tensor, seeds: list[Array]) -> list[Array]:
        """One column per seed for every input; GradcheckError where two runs differ."""
        first, second = self.columns(output, seeds), self.columns(output, seeds)
        for a, b in zip(first, second):
            if (
                a.size
                and not np.abs(a - b).max() <= self.nondet_tol
                and not np.array_equal(a, b, equal_nan=True)
            ):
                raise GradcheckError(
                    "Backward is not reentrant, i.e., running backward with same input and "
                    "grad_output multiple times gives different values, although analytical "
                    "gradient matches numerical gradient. The tolerance for nondeterminism was "
                    f"{self.nondet_tol}.\n\nNOTE: If your op relies on non-deterministic "
                    "operations this failure might be expected: pass `nondet_tol=<tol>`."
                )
        return first

    def columns(self, output: Tensor, seeds: list[Array]) -> list[Array]:
        backend = backend_of(output._array)
        found: list[list[Array]] = [[] for _ in self.leaves]
        for seed in seeds:
            given = make(backend.asarray(seed.reshape(output.shape)))
            grads = grad(output, self.leaves, given, retain_graph=True, allow_unused=True)
            for columns, g, leaf in zip(found, grads, self.leaves):
                columns.append(self.column(g, leaf))
        return [
            np.stack(c, axis=1) if c else np.zeros((leaf.numel(), 0))
            for c, leaf in zip(found, self.leaves)
        ]

    def column(self, gradient: Tensor | None, leaf: Tensor) -> Array:
        if gradient is None:
            return np.zeros(leaf.numel(), leaf._array.dtype)
        if gradient.shape != leaf.shape:
            raise GradcheckError("Analytical gradient has incorrect size")
        if gradient.dtype is not leaf.dtype and self.check_grad_dtypes:
            raise GradcheckError("Gradient has dtype mismatch")
        return _host(gradient).reshape(-1)

    # ------------------------------------------------------------------ comparisons

    def close(self, analytical: Any, numerical: Any, atol: float) -> bool:
        return bool(np.allclose(analytical, numerical, self.rtol, atol))

    def compare(self, part: str) -> None:
        """All elements of all Jacobians."""
        numerical = [self.numerical(leaf, part) for leaf in self.leaves]
        rows = [n for n, o in enumerate(self.all_outputs) if requires_grad(o)]
        for i, output in enumerate(self.outputs):
            for j, a in enumerate(self.analytical(output, part)):
                n = numerical[j][rows[i]]
                if not self.close(a, n, self.atol):
                    raise GradcheckError(self.mismatch(i, j, a, n, part))

    def compare_projected(self, part: str) -> None:
        """One random projection v'Ju of each Jacobian."""
        rng = np.random.default_rng(0)
        us: list[Vector] = [
            (_direction(x, rng), _direction(x, rng)) if x.is_complex() else _direction(x, rng)
            for x in self.leaves
        ]
        vs = [_direction(o, rng) for o in self.outputs]
        numerical = [self.numerical_projected(x, u, vs, part) for x, u in zip(self.leaves, us)]
        for i, (output, v) in enumerate(zip(self.outputs, vs)):
            one = 1j if part == "imag" and output.is_complex() else 1.0
            seed = (one * v).astype(output._array.dtype)
            for j, (vJ, u) in enumerate(zip(self.backward(output, [seed]), us)):
                a, n = _along(vJ[:, 0], u), numerical[j][i]
                atol = self.atol * float(np.sum(u)) * float(v.sum())
                if not self.close(a, n, atol):
                    text = self.mismatch(i, j, np.asarray(a), np.asarray(n), part)
                    raise GradcheckError(text + self.in_slow_mode(i, j, part))

    def numerical_projected(
        self, leaf: Tensor, u: Vector, vs: list[Array], part: str
    ) -> list[complex]:
        ur, ui = u if isinstance(u, tuple) else (u, None)
        slopes = self.slopes(leaf, (self.eps * ur).astype(leaf._array.dtype), part)
        if ui is not None:
            turned = self.slopes(leaf, (1j * self.eps * ui).astype(leaf._array.dtype), part)
            slopes = [x + 1j * y for x, y in zip(slopes, turned)]
        kept = [s for s, o in zip(slopes, self.all_outputs) if requires_grad(o)]
        return [complex(v @ s) / self.eps if np.iscomplexobj(s) else float(v @ s) / self.eps
                for v, s in zip(vs, kept)]  # fmt: skip

    def mismatch(self, i: int, j: int, analytical: Array, numerical: Array, part: str) -> str:
        of = {"imag": "imaginary", "real": "real"}[part]
        prefix = f"While considering the {of} part of complex outputs only, "
        return (
            (prefix if self.outputs[i].is_complex() else "")
            + f"Jacobian mismatch for output {i:d} with respect to input {j:d},\n"
            f"numerical:{make(numerical)!r}\nanalytical:{make(analytical)!r}\n"
        )

    def in_slow_mode(self, i: int, j: int, part: str) -> str:
        """What the full Jacobians say about a failure in fast mode."""
        row = [n for n, o in enumerate(self.all_outputs) if requires_grad(o)][i]
        numerical = self.numerical(self.leaves[j], part)[row]
        analytical = self.analytical(self.outputs[i], part)[j]
        text = (
            "\nThe above quantities relating the numerical and analytical jacobians are computed "
            "\nin fast mode. Below, we recompute numerical and analytical jacobians in slow mode:"
            f"\n\nNumerical:\n {make(numerical)!r}\nAnalytical:\n{make(analytical)!r}\n\n"
            "The max per-element difference (slow mode) is: "
            f"{np.abs(numerical - analytical).max()}.\n"
        )
        if self.close(analytical, numerical, self.atol):
            text += (
                "Fast gradcheck failed but element-wise differences are small. This means that "
                "the test might've passed in slow_mode: pass `fast_mode=False`."
            )
        return text

    # ------------------------------------------------------------------ backward's manners

    def multiplies_by_grad_output(self) -> None:
        """Zero output gradients give zero gradients, of the right dtype, device and shape."""
        if not self.outputs:
            return
        zeros = [_zeros_like(o) for o in self.outputs]
        found = grad(self.outputs, self.leaves, zeros, retain_graph=True, allow_unused=True)
        for g, leaf in zip(found, self.leaves):
            if g is None:
                continue
            value = _host(g)
            if not (np.allclose(value, 0) if self.masked else (value == 0).all()):
                raise GradcheckError("backward not multiplied by grad_output")
            for what in ("dtype", "device", "shape"):
                if getattr(g, what) != getattr(leaf, what):
                    word = {"dtype": "type", "shape": "size"}.get(what, what)
                    raise GradcheckError(f"grad is incorrect {word}")

    def takes_undefined_gradients(self) -> None:
        """Each output in turn gets no gradient and the others zeros: all gradients are zero."""
        for absent in range(len(self.outputs)) if len(self.outputs) > 1 else ():
            outputs = differentiable(self.func(*self.inputs))
            given = [o for i, o in enumerate(outputs) if i != absent]
            zeros = [_zeros_like(o) for o in given]
            try:
                found = grad(given, self.leaves, zeros, allow_unused=True)
            except RuntimeError as error:
                raise GradcheckError(
                    "Expected backward function to handle undefined output grads: "
                    f"output {absent} got none, the others zeros, and it raised {error}"
                ) from error
            if any(g is not None and not (_host(g) == 0).all() for g in found):
                raise GradcheckError(
                    "Expected all input grads to be undefined or zero when all output grads are "
                    f"undefined or zero: output {absent} got none, the others zeros"
                )


# Inputs and outputs -------------------------------------------------------------------------------


def grad(*args: Any, **options: Any) -> Gradients:
    from . import grad as public  # here, because that package imports this file

    return public(*args, **options)


def as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def requires_grad(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def differentiable(outputs: Any) -> tuple[Tensor, ...]:
    return tuple(o for o in as_tuple(outputs) if requires_grad(o))


def _host(x: Tensor, part: str | None = None) -> Array:
    """A copy of the elements on the host, in double precision where they are inexact."""
    value = np.array(backend_of(x._array).to_host(x._array))
    if x.is_complex():
        value = value.astype(np.complex128)
        return value if part is None else getattr(value, part)
    return value.astype(np.float64) if x.is_floating_point() else value


def _zeros_like(x: Tensor) -> Tensor:
    return make(backend_of(x._array).asarray(np.zeros(x.shape, x._array.dtype)))


def _direction(x: Tensor, rng: np.random.Generator) -> Array:
    """A random unit vector with no negative component, as long as `x` has elements."""
    v = rng.random(x.numel())
    return v / max(float(np.linalg.norm(v)), 1e-300)


def _along(gradient: Array, u: Vector) -> complex:
    if isinstance(u, tuple):
        return complex(gradient.real @ u[0], gradient.imag @ u[1])
    return float(gradient @ u)


def _check_inputs(inputs: Iterable[Any]) -> None:
    found = False
    for index, x in enumerate(inputs):
        if not requires_grad(x):
            continue
        found = True
        if x.dtype.name not in ("float64", "complex128"):
            warnings.warn(
                f"Input #{index} requires gradient and is not a double precision floating point "
                "or complex. This check will likely fail if all the inputs are not of double "
                "precision floating point or complex. ",
                stacklevel=4,
            )
        overlaps = [step == 0 and extent > 1 for step, extent in zip(x.stride(), x.shape)]
        if x.numel() and any(overlaps):
            raise RuntimeError(
                f"The {index}th input has a dimension with stride 0. gradcheck only supports "
                "inputs that are non-overlapping to be able to compute the numerical gradients "
                "correctly. You should call .contiguous on the input before passing it to "
                "gradcheck."
            )
    if not found:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them "
            "have requires_grad=True."
        )
