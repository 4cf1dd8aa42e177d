"""What gradcheck checks beside numbers: zero gradients, absent gradients, and batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.frames import warn_user
from ...tensor import Tensor
from ..engine.batches import over_batch
from ..engine.differentiate import grad
from ..forward_ad import dual_level, make_dual, unpack_dual
from ..function import Function
from ..gradcheck import GradcheckError
from ..recording.recorded import recorded
from .functional import zeros_like
from .numerical import (
    as_tuple,
    differentiable,
    direction,
    requires_grad,
    tensors,
    to_device,
    to_host,
)

__all__ = [
    "batches_in_backward", "batches_in_forward_mode", "multiplies_by_grad_output",
    "takes_absent_gradients", "takes_absent_tangents",
]  # fmt: skip

ABSENT_TEXT = 'Please look at "Notes about undefined output gradients"'
ABSENT_WARNING = (
    "Backwards compatibility: New undefined gradient support checking feature is enabled by "
    "default, but it may break existing callers of this function. If this is true for you, you can "
    'call this function with "check_undefined_grad=False" to disable the feature'
)
BATCH_TEXT = (
    "gradcheck or gradgradcheck failed while testing batched gradient computation. Where backward "
    "cannot run under vmap, call gradcheck with `check_batched_grad=False`."
)
BATCH_FORWARD_TEXT = (
    "gradcheck failed while testing batched gradient computation with forward-mode AD. Where the "
    "function cannot run under vmap, call gradcheck with `check_batched_forward_grad=False`."
)


def multiplies_by_grad_output(
    outputs: Sequence[Tensor], leaves: Sequence[Tensor], masked: bool
) -> None:
    """Zero output gradients give zero gradients, of the right dtype, device and shape."""
    if not outputs:
        return
    zeros = [zeros_like(o) for o in outputs]
    gradients = grad(outputs, leaves, zeros, retain_graph=True, allow_unused=True)
    for g, leaf in zip(gradients, leaves, strict=True):
        if g is None:
            continue
        value = to_host(g)
        if not (np.allclose(value, 0) if masked else (value == 0).all()):
            raise GradcheckError("backward not multiplied by grad_output")
        for what, word in (("dtype", "type"), ("device", "device"), ("shape", "size")):
            if getattr(g, what) != getattr(leaf, what):
                raise GradcheckError(f"grad is incorrect {word}")


class NoGradient(Function):
    """The identity, with no gradient at all."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Any) -> None:
        return None


def takes_absent_gradients(func: Any, inputs: Sequence[Any], leaves: Sequence[Tensor]) -> None:
    """All outputs, then each in turn, get no gradient and the others zeros: gradients are zero."""
    count = len(differentiable(func(*inputs)))
    absences = [set(range(count))] + [{i} for i in range(count) if count > 1]
    for absent in absences if count else ():
        outputs = [
            NoGradient.apply(o) if i in absent else o
            for i, o in enumerate(differentiable(func(*inputs)))
        ]
        zeros = [zeros_like(o) for o in outputs]
        told = f"outputs {sorted(absent)} of {count} got no gradient, the others zeros"
        try:
            gradients = grad(outputs, leaves, zeros, allow_unused=True)
        except RuntimeError as error:
            warn_user(ABSENT_WARNING)
            raise GradcheckError(
                "Expected backward function to handle undefined output grads. "
                f"{ABSENT_TEXT}: {told}, and it raised {error}"
            ) from error
        if any(g is not None and not (to_host(g) == 0).all() for g in gradients):
            warn_user(ABSENT_WARNING)
            raise GradcheckError(
                "Expected all input grads to be undefined or zero when all output grads are "
                f"undefined or zero. {ABSENT_TEXT}: {told}"
            )


def takes_absent_tangents(func: Any, inputs: Sequence[Any]) -> None:
    """An input without a tangent counts as one whose tangent is zero."""
    rng = np.random.default_rng(0)
    vectors = [direction(x, rng) if requires_grad(x) else None for x in inputs]
    for index, absent in enumerate(inputs):
        if vectors[index] is None:
            continue
        with dual_level():
            duals = [
                x if v is None else make_dual(x.detach(), to_device(v, x))
                for x, v in zip(inputs, vectors, strict=True)
            ]
            duals[index] = make_dual(absent.detach(), zeros_like(absent))
            zero = [unpack_dual(o).tangent for o in tensors(func(*duals))]
            duals[index] = absent.detach()
            none = [unpack_dual(o).tangent for o in tensors(func(*duals))]
        for i, (a, b) in enumerate(zip(zero, none, strict=True)):
            if a is not None and b is not None and not _close(a, b):
                raise GradcheckError(
                    f"Mismatch in tangent values for output with index: {i} when input: {absent} "
                    f"has an undefined tangent value.  Got: {a} but expected: {b}"
                )


# Batches ------------------------------------------------------------------------------------------


def batches_in_backward(output: Tensor, number: int, leaves: Sequence[Tensor]) -> None:
    """Two vector-Jacobian products, computed as one batch, are what they are one by one."""

    def pull(v: Tensor) -> list[Tensor]:
        gradients = grad(output, leaves, v, retain_graph=True, allow_unused=True)
        return [zeros_like(x) if g is None else g for g, x in zip(gradients, leaves, strict=True)]

    rng = np.random.default_rng(0)
    _compare(pull, output, rng, number, None, BATCH_TEXT)


def batches_in_forward_mode(func: Any, inputs: Sequence[Any]) -> None:
    """Two Jacobian-vector products, computed as one batch, are what they are one by one."""
    rng = np.random.default_rng(0)
    for index, leaf in enumerate(inputs):
        if not requires_grad(leaf):
            continue

        def push(v: Tensor, index: int = index, leaf: Tensor = leaf) -> list[Tensor]:
            with dual_level():
                arguments = [x.detach() if isinstance(x, Tensor) else x for x in inputs]
                arguments[index] = make_dual(leaf.detach(), v)
                duals = [unpack_dual(o) for o in as_tuple(func(*arguments)) if o is not None]
                return [zeros_like(p) if t is None else t for p, t in duals]

        _compare(push, leaf, rng, None, index, BATCH_FORWARD_TEXT)


def _compare(
    product: Any, like: Tensor, rng: Any, output: int | None, leaf: int | None, text: str
) -> None:
    """`product` of two random vectors, one by one and as a batch."""
    shape = (2, *like._array.shape)
    values = rng.standard_normal(shape)
    if like.is_complex():
        values = values + 1j * rng.standard_normal(shape)
    vectors = [to_device(v, like) for v in values]
    expected = [np.stack(products) for products in zip(*[
        [to_host(x) for x in product(v)] for v in vectors
    ], strict=True)]  # fmt: skip
    try:
        result = over_batch(product, [recorded.stack(vectors, 0)])
    except RuntimeError as error:
        raise GradcheckError(
            f"While computing batched gradients, got: {error}\n\n{text}"
        ) from error
    for i, (got, want) in enumerate(zip(result, expected, strict=True)):
        assert got is not None
        if not np.allclose(to_host(got), want):
            where = f"For output {i if output is None else output} and input "
            where += f"{i if leaf is None else leaf}"
            raise GradcheckError(
                f"{where}:\n\n{text}\n\nGot:\n{got}\n\nExpected:\n{to_device(want, got)}"
            )


def _close(a: Tensor, b: Tensor) -> bool:
    return bool(np.allclose(to_host(a), to_host(b)))
