"""What the functions of torch.linalg ask of their arguments, with PyTorch's errors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..autograd.mode import no_grad, state
from ..autograd.recording.record import recorded
from ..functions.calls.arguments import array_of
from ..ops.dims import broadcast_shapes
from ..ops.linalg import matrices
from ..tensor import Tensor

__all__ = [
    "batches_of", "float_matrix", "hermitian", "mH", "matrix", "square", "tolerances",
]  # fmt: skip


def check_float(A: Any, function: str) -> Any:
    """The array of a floating-point or complex Tensor that LAPACK has routines for."""
    array = array_of(A, function, "A")
    if array.dtype.kind in "biu":
        raise RuntimeError(
            f"{function}: Expected a floating point or complex tensor as input. Got {A.dtype}; "
            "convert it first, for example x.float()"
        )
    if array.dtype.itemsize == 2:
        raise NotImplementedError(  # which is a RuntimeError
            f"{function}: Low precision dtypes not supported. Got {A.dtype}; convert it to float32"
        )
    return array


def matrix(A: Any, function: str, name: str = "A") -> Any:
    """The array of a Tensor of at least two dims."""
    array = array_of(A, function, name)
    if array.ndim < 2:
        raise RuntimeError(
            f"{function}: The input tensor {name} must have at least 2 dimensions. "
            f"Got shape {tuple(array.shape)}"
        )
    return array


def float_matrix(A: Any, function: str) -> Any:
    """The array of a floating-point Tensor of at least two dims."""
    check_float(A, function)
    return matrix(A, function)


def square(A: Any, function: str) -> Any:
    """The array of a batch of square matrices."""
    array = matrix(A, function)
    if array.shape[-1] != array.shape[-2]:
        raise RuntimeError(
            f"{function}: A must be batches of square matrices, but they are "
            f"{array.shape[-2]} by {array.shape[-1]} matrices"
        )
    return array


def batches_of(A: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
    """Both with the batch dims in which they meet."""
    a, b = A._array.shape, B._array.shape
    if a[:-2] == b[:-2]:
        return A, B
    batch = broadcast_shapes(a[:-2], b[:-2])
    if a[:-2] != batch:
        A = recorded.expand(A, (*batch, *a[-2:]))
    return A, B if b[:-2] == batch else recorded.expand(B, (*batch, *b[-2:]))


def hermitian(A: Tensor, upper: bool) -> Tensor:
    """The Hermitian matrix of which A holds a triangle; what the other one holds is not looked at.

    PyTorch reads one triangle, and gives the Hermitian gradient to both; a tangent counts as it is.
    """
    with no_grad():
        if upper:
            mirrored = recorded.triu(A, 0) + mH(recorded.triu(A, 1))
        else:
            mirrored = recorded.tril(A, 0) + mH(recorded.tril(A, -1))
        if not (A._requires_grad or state.levels):
            return mirrored
    whole = A.clone()  # which has the history of A, and its tangents
    whole.data.copy_(mirrored.data)
    return whole


def tolerances(array: Any, atol: Any, rtol: Any) -> tuple[Any, Any]:
    """What singular values of these matrices count as zero: numbers, or tensors of batch dims.

    The relative one is max(m, n) times the dtype's epsilon where neither is given.
    """
    least = max(array.shape[-2:]) * float(np.finfo(array.dtype).eps)
    if rtol is None and isinstance(atol, Tensor):
        rtol = recorded.where(recorded.gt(atol, 0), 0.0, least)
    elif rtol is None:
        rtol = 0.0 if atol else least
    both = 0.0 if atol is None else atol, rtol
    if any(isinstance(x, Tensor) and x.is_complex() for x in both):
        raise RuntimeError("linalg: atol and rtol have to be real")
    return tuple([x.detach() if isinstance(x, Tensor) else float(x) for x in both])  # type: ignore[return-value]


def mH(x: Tensor) -> Tensor:
    """The adjoint of matrices."""
    return matrices.mH(recorded, x)
