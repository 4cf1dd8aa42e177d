"""Products of matrices and vectors as PyTorch spells them."""

from __future__ import annotations

from math import prod
from typing import Any

from ...autograd.autocast import autocasts
from ...autograd.recording.operands import number
from ...autograd.recording.record import recorded
from ...dtypes import as_dtype, bfloat16, check_number, float16, float32
from ...ops.dims import broadcast_shapes, mismatch
from ...tensor import Tensor
from ..calls.arguments import array_of, cast
from ..calls.old_order import numbers_first
from ..shapes.views import reshape

__all__ = [
    "addbmm", "addmm", "addmv", "baddbmm", "bmm", "dot", "ger", "inner", "matmul", "mm", "mv",
    "outer", "vdot",
]  # fmt: skip
TAKES_OUT = frozenset(__all__)


def _inner_mismatch(function: str, a: Any, b: Any) -> RuntimeError:
    return RuntimeError(
        f"{function}: mat1 and mat2 shapes cannot be multiplied "
        f"({'x'.join(map(str, a))} and {'x'.join(map(str, b))}); "
        f"got {tuple(a)} and {tuple(b)}, want x.shape[-1] == y.shape[-2]"
        + ("; did you mean x @ y.mT?" if len(b) > 1 and a[-1] == b[-1] else "")
    )


def _widened(function: str, out_dtype: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The operands in the dtype of the result: their own, or float32 for those of half precision.

    PyTorch has `out_dtype` on a GPU alone.
    """
    target, kind = as_dtype(out_dtype), tensors[0].dtype
    if target is not kind and not (target is float32 and kind in (float16, bfloat16)):
        raise RuntimeError(
            f"{function}: out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs, "
            f"got {target} for {kind}"
        )
    return tuple([cast(t, target) for t in tensors])


def mm(input: Tensor, mat2: Tensor, out_dtype: Any = None) -> Tensor:
    """The product of two matrices; `out_dtype=float32` is that of half precision, not rounded."""
    if out_dtype is not None:
        input, mat2 = _widened("mm", out_dtype, input, mat2)
    a, b = array_of(input, "mm").shape, array_of(mat2, "mm", "mat2", 2).shape
    for name, shape in (("self", a), ("mat2", b)):
        if len(shape) != 2:
            raise RuntimeError(f"{name} must be a matrix, got shape {tuple(shape)} in mm")
    if a[1] != b[0]:
        raise _inner_mismatch("mm", a, b)
    return recorded.mm(input, mat2)


def bmm(input: Tensor, mat2: Tensor, out_dtype: Any = None) -> Tensor:
    """The products of two batches of matrices, (b, n, m) and (b, m, p); `out_dtype` as of `mm`."""
    if out_dtype is not None:
        input, mat2 = _widened("bmm", out_dtype, input, mat2)
    a, b = array_of(input, "bmm").shape, array_of(mat2, "bmm", "mat2", 2).shape
    for name, shape in (("batch1", a), ("batch2", b)):
        if len(shape) != 3:
            raise RuntimeError(f"{name} must be a 3D tensor, got shape {tuple(shape)} in bmm")
    if a[0] != b[0] or a[2] != b[1]:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{a[0]}, {a[2]}] "
            f"but got: [{b[0]}, {b[1]}]."
        )
    return recorded.bmm(input, mat2)


def mv(input: Tensor, vec: Tensor) -> Tensor:
    """The product of a matrix and a vector."""
    a, b = array_of(input, "mv").shape, array_of(vec, "mv", "vec", 2).shape
    if len(a) != 2 or len(b) != 1:
        raise RuntimeError(
            f"vector + matrix @ vector expected, got shapes {tuple(a)} and {tuple(b)} in mv"
        )
    if a[1] != b[0]:
        raise RuntimeError(f"size mismatch, got input ({a[0]}), mat ({a[0]}x{a[1]}), vec ({b[0]})")
    return recorded.mv(input, vec)


def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The sum of the products of two vectors' elements.

    >>> import cugrad as torch
    >>> torch.dot(torch.tensor([2.0, 3.0]), torch.tensor([2.0, 1.0]))
    tensor(7.)
    """
    a, b = array_of(input, "dot").shape, array_of(tensor, "dot", "tensor", 2).shape
    if len(a) != 1 or len(b) != 1:
        raise RuntimeError(f"1D tensors expected, but got {len(a)}D and {len(b)}D tensors")
    if a != b:
        raise RuntimeError(
            "inconsistent tensor size, expected tensor "
            f"[{a[0]}] and src [{b[0]}] to have the same number of elements, but got {a[0]} and "
            f"{b[0]} elements respectively"
        )
    return recorded.dot(input, tensor)


@autocasts
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """As `dot`, with the first vector conjugated where it is complex."""
    complex_ = array_of(input, "vdot").dtype.kind == "c"
    return dot(recorded.conj(input) if complex_ else input, other)


def inner(input: Tensor, other: Tensor) -> Tensor:
    """Sums of products along the last dims of two tensors."""
    if not array_of(input, "inner").ndim or not array_of(other, "inner", "other", 2).ndim:
        return recorded.mul(input, other)
    a, b = input._array.shape, other._array.shape
    if a[-1] != b[-1]:
        raise RuntimeError(
            "inner() the last dimension must match on both input tensors but got shapes "
            f"{list(a)} and {list(b)}"
        )
    if len(b) == 1:
        return recorded.dot(input, other) if len(a) == 1 else matmul(input, other)
    columns = recorded.t(reshape(other, (prod(b[:-1]), b[-1])))
    return reshape(matmul(input, columns), (*a[:-1], *b[:-1]))


def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """The product of each element of one vector with each of another.

    >>> import cugrad as torch
    >>> torch.outer(torch.tensor([1, 2]), torch.tensor([3, 4]))
    tensor([[3, 4],
            [6, 8]])
    """
    for name, x in (("self", input), ("vec2", vec2)):
        ndim = array_of(x, "outer", name).ndim
        if ndim != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {name}, but got {ndim}-D")
    return recorded.outer(input, vec2)


ger = outer


def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The product of vectors, matrices, or batches of matrices whose batch dims broadcast.

    >>> import cugrad as torch
    >>> torch.matmul(torch.ones(5, 2, 3), torch.ones(3)).shape
    torch.Size([5, 2])
    """
    a, b = array_of(input, "matmul").shape, array_of(other, "matmul", "other", 2).shape
    n, m = len(a), len(b)
    if not n or not m:
        raise RuntimeError(
            f"both arguments to matmul need to be at least 1D, but they are {n}D and {m}D"
        )
    if a[-1] != b[-2 if m > 1 else -1]:
        if n == m == 1:
            dot(input, other)
        if m == 1 and n == 2:
            mv(input, other)
        raise _inner_mismatch("matmul", a, b)
    if n == 2:
        if m == 2:
            return recorded.mm(input, other)
        if m == 1:
            return _matmul_mv(input, other)
    elif n == 1 and m == 1:
        return _matmul_dot(input, other)
    elif n == 3 and m == 3 and a[0] == b[0]:
        return recorded.bmm(input, other)
    if n > 2 and m > 2:
        _check_batches(a, b)
    return recorded.matmul(input, other)


# Of matmul autocast says something else than of these ops.
_matmul_mv = autocasts(lambda input, vec: recorded.mv(input, vec), "matmul")
_matmul_dot = autocasts(lambda input, vec: recorded.dot(input, vec), "matmul")


def _check_batches(a: Any, b: Any) -> None:
    if clash := mismatch(a[:-2], b[:-2]):
        raise RuntimeError(f"{clash} (matmul: the batch dims of {tuple(a)} and {tuple(b)})")


def affine(function: str, input: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    """beta * input + alpha * product, in the shape and dtype of the product."""
    array = array_of(input, function)
    kind, shape = product._array.dtype.kind, product._array.shape
    if array.shape != shape and broadcast_shapes(array.shape, shape) != shape:
        raise RuntimeError(
            f"{function}: The expanded size of the tensor must match: got input of shape "
            f"{tuple(array.shape)}, which does not broadcast to {tuple(shape)}"
        )
    beta, alpha = number(beta, function, "beta"), number(alpha, function, "alpha")
    for factor in (beta, alpha):
        check_number(factor, product.dtype)
    if kind in "biu":  # PyTorch reads both as numbers of the tensors' dtype
        beta, alpha = (bool(n) if kind == "b" else int(n) for n in (beta, alpha))
    if beta != 0 and (alpha != 1 or beta != 1) and kind not in "biu":
        return recorded.weighted_sum(product, input, alpha, beta)
    if alpha != 1:
        product = recorded.mul(product, alpha)
    if beta == 0:  # input is not read: nan in it does not spread
        return product
    if beta != 1:
        input = recorded.mul(input, beta)
    return recorded.add(product, input)


def _affine(function: str, input: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    if array_of(input, function).dtype != product._array.dtype:
        raise RuntimeError(
            f"{function}: expected input and the matrices to have the same dtype, but got "
            f"{input.dtype} and {product.dtype}"
        )
    return affine(function, input, product, beta, alpha)


@autocasts
@numbers_first("beta", "alpha")
def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, out_dtype: Any = None, *, beta: float = 1,
    alpha: float = 1,
) -> Tensor:  # fmt: skip
    """beta * input + alpha * (mat1 @ mat2); `out_dtype` as of `mm`."""
    if out_dtype is not None:
        input, mat1, mat2 = _widened("addmm", out_dtype, input, mat1, mat2)
    return _affine("addmm", input, mm(mat1, mat2), beta, alpha)


@autocasts
@numbers_first("beta", "alpha")
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * (mat @ vec)."""
    return _affine("addmv", input, mv(mat, vec), beta, alpha)


@autocasts
@numbers_first("beta", "alpha")
def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, out_dtype: Any = None, *, beta: float = 1,
    alpha: float = 1,
) -> Tensor:  # fmt: skip
    """beta * input + alpha * (batch1 @ batch2); `out_dtype` as of `mm`."""
    if out_dtype is not None:
        input, batch1, batch2 = _widened("baddbmm", out_dtype, input, batch1, batch2)
    return _affine("baddbmm", input, bmm(batch1, batch2), beta, alpha)


@autocasts
@numbers_first("beta", "alpha")
def addbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """beta * input + alpha * (the sum over the batch of batch1 @ batch2)."""
    products = bmm(batch1, batch2)
    total = cast(recorded.sum(products, (0,)), products.dtype)  # integers stay what they are
    return _affine("addbmm", input, total, beta, alpha)


METHODS: dict[str, Any] = {name: globals()[name] for name in __all__}
