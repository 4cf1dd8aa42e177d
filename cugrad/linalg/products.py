"""Products and rearrangements of matrices: cross, Kronecker and tensor products, chains."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..autograd.autocast import autocasts
from ..autograd.recording.record import recorded
from ..dtypes import promote_types, type_name
from ..functions.calls.arguments import array_of, cast, fresh
from ..functions.maths.products import dot, matmul, mm, vdot
from ..functions.shapes import views
from ..functions.shapes.views import permute, reshape
from ..ops.dims import broadcast_shapes, canonical_dim, int_tuple
from ..tensor import Tensor

__all__ = ["cross", "diagonal", "matmul", "multi_dot", "vecdot"]
OF_TORCH = ("kron", "tensordot")


@autocasts
def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The cross products of the vectors of length 3 along `dim`; the other dims broadcast.

    >>> import cugrad as torch
    >>> torch.linalg.cross(torch.tensor([1, 0, 0]), torch.tensor([0, 1, 0]))
    tensor([0, 0, 1])
    """
    a = array_of(input, "linalg.cross").shape
    b = array_of(other, "linalg.cross", "other", 2).shape
    if len(a) != len(b):
        raise RuntimeError(
            "linalg.cross: inputs must have the same number of dimensions, got shapes "
            f"{tuple(a)} and {tuple(b)}"
        )
    named_dim, dim = dim, canonical_dim(dim, len(a))
    if not a or a[dim] != 3 or b[dim] != 3:
        sizes = [shape[dim] if shape else 0 for shape in (a, b)]
        raise RuntimeError(
            f"linalg.cross: inputs dimension {named_dim} must have length 3. "
            f"Got {sizes[0]} and {sizes[1]}"
        )
    shape = broadcast_shapes(a, b)
    dtype = promote_types(input.dtype, other.dtype)
    x, y = (
        x if x._array.shape == shape else recorded.expand(x, shape)
        for x in (cast(input, dtype), cast(other, dtype))
    )
    return recorded.linalg_cross(x, y, dim)


def cross_of_first(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """As linalg.cross; without `dim`, along the first dim of `input` that has size 3."""
    if dim is None:
        shape = tuple(array_of(input, "cross").shape)
        if 3 not in shape:
            raise RuntimeError(f"no dimension of size 3 in input, got shape {shape} in cross")
        dim = shape.index(3)
    return cross(input, other, dim=dim)


cross_of_first.__name__ = cross_of_first.__qualname__ = "cross"


@autocasts
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The sums of conj(x) y along `dim`; two vectors have one size, other operands broadcast."""
    if array_of(x, "linalg.vecdot", "x").dtype != array_of(y, "linalg.vecdot", "y", 2).dtype:
        raise RuntimeError(
            "linalg.vecdot: Expected x and y to have the same dtype, but found x of type "
            f"{type_name(x.dtype)} and y of type {type_name(y.dtype)} instead"
        )
    if x._array.ndim == y._array.ndim == 1:  # no sizes broadcast
        canonical_dim(dim, 1)
        return vdot(x, y)
    if x._array.dtype.kind == "c":
        x = recorded.conj(x)
    product = x * y
    dim = canonical_dim(dim, product._array.ndim)
    return recorded.sum(product, (dim,) if product._array.ndim else ())


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """A view of the diagonals of a batch of matrices."""
    return views.diagonal(A, offset, dim1, dim2)


@fresh
def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product: each element of `input` times the whole of `other`.

    >>> import cugrad as torch
    >>> torch.kron(torch.tensor([1, 10]), torch.tensor([1, 2]))
    tensor([ 1,  2, 10, 20])
    """
    a = array_of(input, "kron").shape
    b = array_of(other, "kron", "other", 2).shape
    ndim = max(len(a), len(b))
    a, b = (1,) * (ndim - len(a)) + a, (1,) * (ndim - len(b)) + b
    blocks = reshape(input, tuple([n for m in a for n in (m, 1)]))
    within = reshape(other, tuple([n for m in b for n in (1, m)]))
    return reshape(blocks * within, tuple([m * n for m, n in zip(a, b, strict=True)]))


@autocasts
def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """The sums of products over dims of both: the last of `a` and the first of `b`, or two lists.

    >>> import cugrad as torch
    >>> torch.tensordot(torch.ones(2, 3, 4), torch.ones(3, 4, 5)).shape
    torch.Size([2, 5])
    """
    n, m = array_of(a, "tensordot", "a").ndim, array_of(b, "tensordot", "b", 2).ndim
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, Sequence):
        over_a, over_b = (int_tuple(d, "dims") for d in dims)
    else:
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(n, m):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        over_a, over_b = tuple(range(-dims, 0)), tuple(range(dims))
    if len(over_a) != len(over_b):
        raise RuntimeError("both dimension lists should have same length")
    first, second = [canonical_dim(d, n) for d in over_a], [canonical_dim(d, m) for d in over_b]
    for i, (d, e) in enumerate(zip(first, second, strict=True)):
        p, q = a._array.shape[d], b._array.shape[e]
        if q == 1:  # of one element, too: what is read is then no part of `a`
            a = cast(recorded.sum(a, (d,), True), a.dtype)
        elif p == 1:
            b = cast(recorded.sum(b, (e,), True), b.dtype)
        elif p != q:
            raise RuntimeError(
                f"contracted dimensions need to match, but first has size {p} in dim {over_a[i]} "
                f"and second has size {q} in dim {over_b[i]}"
            )
    shape_a, shape_b = a._array.shape, b._array.shape
    rest_a = [d for d in range(n) if d not in first]
    rest_b = [d for d in range(m) if d not in second]
    out = [shape_a[d] for d in rest_a] + [shape_b[d] for d in rest_b]
    inner = prod(shape_a[d] for d in first)
    a, b = permute(a, (*rest_a, *first)), permute(b, (*second, *rest_b))
    if prod(out) == 1:  # one number, which autocast leaves in the dtype of its factors
        return reshape(dot(reshape(a, (inner,)), reshape(b, (inner,))), tuple(out))
    left = reshape(a, (prod(shape_a[d] for d in rest_a), inner))
    right = reshape(b, (inner, prod(shape_b[d] for d in rest_b)))
    return reshape(mm(left, right), tuple(out))


@autocasts
def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of two or more matrices in the order that costs least.

    The first and the last may be vectors, a row and a column.
    """
    count = len(tensors)
    if count < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {count}")
    chain = list(tensors)
    for i, x in enumerate(chain):
        ndim = array_of(x, "multi_dot", f"tensors[{i}]").ndim
        if 0 < i < count - 1:
            if ndim != 2:
                raise RuntimeError(f"multi_dot(): tensor {i} must be 2D but got {ndim}D")
        elif ndim not in (1, 2):
            which = "last" if i else "first"
            raise RuntimeError(f"multi_dot(): the {which} tensor must be 1D or 2D but got {ndim}D")
    row, column = chain[0]._array.ndim == 1, chain[-1]._array.ndim == 1
    if row:
        chain[0] = recorded.unsqueeze(chain[0], 0)
    if column:
        chain[-1] = recorded.unsqueeze(chain[-1], 1)
    shapes = [x._array.shape for x in chain]
    for i, (p, q) in enumerate(zip(shapes, shapes[1:], strict=False)):
        if p[1] != q[0]:
            raise RuntimeError(
                f"multi_dot(): tensors {i} and {i + 1} with shapes {list(p)} and {list(q)} "
                "cannot be multiplied"
            )
    out = _chain(chain, [shapes[0][0], *[s[1] for s in shapes]])
    gone = tuple([d for d, is_vector in ((0, row), (1, column)) if is_vector])
    return recorded.squeeze(out, gone) if gone else out


def _chain(chain: list[Tensor], sizes: list[int]) -> Tensor:
    """T. Cormen et al., "Introduction to Algorithms", 15.2: the cheapest order, by its parts."""
    count = len(chain)
    cost = {(i, i): 0 for i in range(count)}
    cut = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            cost[i, j], cut[i, j] = min(
                (cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )
    products = {(i, i): x for i, x in enumerate(chain)}
    todo = [(0, count - 1)]
    while todo:
        i, j = todo[-1]
        k = cut.get((i, j), i)
        missing = [part for part in ((i, k), (k + 1, j)) if part not in products]
        if missing:
            todo += missing
            continue
        products[i, j] = mm(products[i, k], products[k + 1, j])
        todo.pop()
    return products[0, count - 1]
