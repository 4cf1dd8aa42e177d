"""Distances between vectors, bilinear forms and factorisations by random projection."""

from __future__ import annotations

from typing import Any

from ..autograd.autocast import autocasts
from ..autograd.recording.operands import number
from ..autograd.recording.record import recorded
from ..functions.calls.arguments import array_of, of_reals
from ..functions.creation import random
from ..functions.creation.grids import triu_indices
from ..functions.maths.products import matmul
from ..functions.maths.reduce import vector_norm
from ..functions.shapes.views import reshape
from ..ops.dims import broadcast_shapes
from ..tensor import Tensor
from .checks import float_matrix
from .decompositions import qr, svd

__all__ = ["bilinear", "cdist", "pca_lowrank", "pdist", "svd_lowrank"]

MODES = {
    "use_mm_for_euclid_dist_if_necessary": None, "use_mm_for_euclid_dist": True,
    "donot_use_mm_for_euclid_dist": False,
}  # fmt: skip


@autocasts
@of_reals
def cdist(
    x1: Tensor,
    x2: Tensor,
    p: float = 2.0,
    compute_mode: str | None = "use_mm_for_euclid_dist_if_necessary",
) -> Tensor:
    """The distances in the norm `p` of each row of x1 from each of x2, in batches.

    `compute_mode` says whether Euclidean distances come from |x|^2 - 2 x y + |y|^2, which is faster
    and less exact; by default they do for more than 25 rows. The gradient at distance zero is zero.

    >>> import cugrad as torch
    >>> torch.cdist(torch.tensor([[0.0, 0.0], [3.0, 0.0]]), torch.tensor([[0.0, 4.0]]))
    tensor([[4.],
            [5.]])
    """
    a, b = array_of(x1, "cdist", "x1"), array_of(x2, "cdist", "x2", 2)
    p = number(p, "cdist", "p")
    for name, x in (("X1", a), ("X2", b)):
        if x.ndim < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, {name} got: {x.ndim}D")
        if x.dtype.kind in "biu":
            raise RuntimeError(
                f"cdist only supports floating-point dtypes, {name} got: {x.dtype}; convert it "
                "first, for example x.float()"
            )
    if a.shape[-1] != b.shape[-1]:
        raise RuntimeError(
            f"X1 and X2 must have the same number of columns. X1: {a.shape[-1]} X2: {b.shape[-1]}"
        )
    if p < 0:
        raise RuntimeError(f"cdist only supports non-negative p values, got {p}")
    if compute_mode is not None and compute_mode not in MODES:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    mode = None if compute_mode is None else MODES[compute_mode]
    if p == 2 and (mode or (mode is None and max(a.shape[-2], b.shape[-2]) > 25)):
        return _by_products(x1, x2)
    broadcast_shapes(a.shape[:-2], b.shape[:-2])
    gap = recorded.unsqueeze(x1, a.ndim - 1) - recorded.unsqueeze(x2, b.ndim - 2)
    last = gap._array.ndim - 1
    return _norm(gap, p, last) if gap.shape[-1] else recorded.sum(gap, (last,))


def _norm(gap: Tensor, p: float, dim: int) -> Tensor:
    """The norm; that of order 0, a count, has here a gradient of zeros."""
    if p == 0:
        return recorded.sum(recorded.abs(recorded.sgn(gap)), (dim,))
    return vector_norm(gap, p, dim)


def _by_products(x1: Tensor, x2: Tensor) -> Tensor:
    squares = [recorded.sum(x * x, (x._array.ndim - 1,), True) for x in (x1, x2)]
    both = squares[0] + recorded.mT(squares[1]) - 2 * matmul(x1, recorded.mT(x2))
    same = recorded.le(both, 0)  # the slope of a root at zero is infinite; here it is zero
    return recorded.masked_fill(recorded.sqrt(recorded.masked_fill(both, same, 1)), same, 0)


@autocasts
@of_reals
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The distances in the norm `p` of each row from each later one, as one vector.

    >>> import cugrad as torch
    >>> torch.pdist(torch.tensor([[0.0], [1.0], [4.0]]))
    tensor([1., 4., 3.])
    """
    array = array_of(input, "pdist")
    if array.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {array.ndim}D")
    if array.dtype.kind in "biu":
        raise RuntimeError(f"pdist only supports floating-point dtypes, got {input.dtype}")
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    n = array.shape[0]
    first, second = triu_indices(n, n, 1, device=input.device).unbind(0)
    gap = input[first] - input[second]
    if not array.size or not gap._array.size:
        return recorded.sum(gap, (1,))
    return _norm(gap, p, 1)


@autocasts
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x1 W x2 for each of the matrices of `weight`, plus `bias`.

    Shapes (..., in1), (..., in2), (out, in1, in2) and (out,) give (..., out).
    """
    a, b = array_of(input1, "bilinear", "input1"), array_of(input2, "bilinear", "input2", 2)
    w = array_of(weight, "bilinear", "weight", 3)
    if a.ndim != b.ndim or a.shape[:-1] != b.shape[:-1]:
        raise RuntimeError(
            "bilinear(): input batch dimensions do not match: got "
            f"{tuple(a.shape)} and {tuple(b.shape)}"
        )
    if w.ndim != 3 or a.shape[-1] != w.shape[1] or b.shape[-1] != w.shape[2]:
        raise RuntimeError(
            f"bilinear(): got inputs of {a.shape[-1]} and {b.shape[-1]} features and weight of "
            f"shape {tuple(w.shape)}, want (out, in1, in2)"
        )
    if bias is not None and tuple(bias.shape) != w.shape[:1]:
        raise RuntimeError(
            f"bilinear(): bias size does not match weight size: got bias of shape "
            f"{tuple(bias.shape)} and weight of shape {tuple(w.shape)}"
        )
    out, n, k = w.shape
    columns = reshape(weight.permute(1, 0, 2), (n, out * k))
    half = reshape(matmul(input1, columns), (*a.shape[:-1], out, k))
    product = matmul(half, recorded.unsqueeze(input2, b.ndim))
    product = recorded.squeeze(product, (product._array.ndim - 1,))
    return product if bias is None else product + bias


# Low rank -----------------------------------------------------------------------------------------


def _basis(A: Tensor, q: int, niter: int) -> Tensor:
    """N. Halko et al., "Finding structure with randomness" (2009), algorithm 4.4."""
    R = random.randn(A.shape[-1], q, dtype=A.dtype, device=A.device)
    Q = qr(matmul(A, R)).Q
    for _ in range(niter):
        Q = qr(matmul(A.mH, Q)).Q
        Q = qr(matmul(A, Q)).Q
    return Q


def svd_lowrank(A: Tensor, q: int | None = 6, niter: int = 2, M: Tensor | None = None) -> Any:
    """U, S and V of about the `q` largest singular values of A - M, by random projection.

    `niter` products with A sharpen it.
    """
    float_matrix(A, "svd_lowrank")
    q = 6 if q is None else q
    if M is not None:
        A = A - M
    wide = A.shape[-2] < A.shape[-1]
    if wide:
        A = A.mH
    Q = _basis(A, q, niter)
    U, S, Vh = svd(matmul(Q.mH, A), full_matrices=False)
    U, V = matmul(Q, U), Vh.mH
    return (V, S, U) if wide else (U, S, V)


def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> Any:
    """The principal components of the rows of A: `svd_lowrank` of A without its columns' means."""
    float_matrix(A, "pca_lowrank")
    rows, columns = A.shape[-2:]
    if q is None:
        q = min(6, rows, columns)
    elif not 0 <= q <= min(rows, columns):
        raise ValueError(
            f"q(={q}) must be non-negative integer and not greater than min(m, n)="
            f"{min(rows, columns)}"
        )
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    if center:
        A = A - A.mean(dim=-2, keepdim=True)
    return svd_lowrank(A, q, niter=niter)
