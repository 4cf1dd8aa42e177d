"""Rows of products of matrices and vectors."""

from __future__ import annotations

from math import prod
from typing import Any

from ...dtypes import is_half
from ..dims import broadcast_shapes
from ..flops import linear_weight_flops, product_flops
from ..precision import narrow, wide
from ..table import LINEAR, NONE, PRODUCT, SAME, row

Shape = tuple[int, ...]

row(
    "mm", "self mat2",
    lambda xp, self, mat2: xp.matmul(self, mat2),
    LINEAR, promote=SAME,
    self=lambda m, g, mat2: m.mm(g, m.t(mat2)),
    mat2=lambda m, g, self: m.mm(m.t(self), g),
    cost=PRODUCT, flops=product_flops, also="matmul",
)  # fmt: skip

row(
    "bmm", "self mat2",
    lambda xp, self, mat2: xp.matmul(self, mat2),
    LINEAR, promote=SAME,
    self=lambda m, g, mat2: m.bmm(g, m.mT(mat2)),
    mat2=lambda m, g, self: m.bmm(m.mT(self), g),
    cost=PRODUCT, flops=product_flops, also="matmul",
)  # fmt: skip

row(
    "mv", "self vec",
    lambda xp, self, vec: xp.matmul(self, vec),
    LINEAR, promote=SAME,
    self=lambda m, g, vec: m.outer(g, vec),
    vec=lambda m, g, self: m.mv(m.t(self), g),
    cost=PRODUCT, also="matmul",
)  # fmt: skip

row(
    "dot", "self tensor",
    lambda xp, self, tensor: xp.matmul(self, tensor),
    LINEAR, promote=SAME,
    self=lambda g, tensor: g * tensor,
    tensor=lambda g, self: g * self,
    cost=PRODUCT, flops=product_flops, also="matmul",
)  # fmt: skip

row(
    "outer", "self vec2",
    lambda xp, self, vec2: xp.multiply(self[:, None], vec2),
    LINEAR, promote="common", node="MulBackward0",
    self=lambda m, g, vec2: m.mv(g, vec2),
    vec2=lambda m, g, self: m.mv(m.t(g), self),
    cost=PRODUCT,
)  # fmt: skip


# Batches of any shape -----------------------------------------------------------------------------


def _rows(m: Any, x: Any, shape: Shape) -> Any:
    """`x` of `shape` as a matrix: its last dim stays, the others fold into one."""
    return x if len(shape) == 2 else m.reshape(x, (prod(shape[:-1]), shape[-1]))


def _matmul(xp: Any, self: Any, other: Any) -> Any:
    if other.ndim == 2 and self.ndim > 2:  # one large product instead of a batch of small ones
        folded = xp.matmul(self.reshape(prod(self.shape[:-1]), self.shape[-1]), other)
        return folded.reshape(*self.shape[:-1], other.shape[-1])
    return xp.matmul(self, other)


def _matmul_self(m: Any, g: Any, other: Any, self_shape: Shape, other_shape: Shape) -> Any:
    if len(other_shape) == 1:
        column = g if len(self_shape) == 1 else m.unsqueeze(g, len(self_shape) - 1)
        return column * other
    if len(self_shape) == 1:  # g is (..., n), other (..., k, n)
        product = m.matmul(other, m.unsqueeze(g, len(other_shape) - 1))
        return m.sum_to_shape(m.squeeze(product, (len(other_shape) - 1,)), self_shape)
    product = m.matmul(g, m.mT(other))
    broadcast = _is_broadcast(self_shape, other_shape)
    return m.sum_to_shape(product, self_shape) if broadcast else product


def _matmul_other(m: Any, g: Any, self: Any, self_shape: Shape, other_shape: Shape) -> Any:
    if len(self_shape) == 1:
        if len(other_shape) == 1:
            return g * self
        return m.unsqueeze(self, 1) * m.unsqueeze(g, len(other_shape) - 2)
    if len(other_shape) == 1:  # self is (..., n, k), g (..., n)
        rows = _rows(m, self, self_shape)
        return m.mv(m.t(rows), m.reshape(g, (prod(self_shape[:-1]),)))
    if len(other_shape) == 2 and len(self_shape) > 2:
        grad_shape = (*self_shape[:-1], other_shape[-1])
        return m.mm(m.t(_rows(m, self, self_shape)), _rows(m, g, grad_shape))
    product = m.matmul(m.mT(self), g)
    broadcast = _is_broadcast(other_shape, self_shape)
    return m.sum_to_shape(product, other_shape) if broadcast else product


def _is_broadcast(shape: Shape, other: Shape) -> bool:
    """Whether a product has batches that its operand of the first shape has not."""
    batch, others = shape[:-2], other[:-2]
    return batch != others and broadcast_shapes(batch, others) != batch


row(
    "matmul", "self other", _matmul, LINEAR, promote=SAME, self=_matmul_self, other=_matmul_other,
    doc="1-d, 2-d and broadcast batches; the public matmul uses mm, bmm, mv, dot where they do",
    cost=PRODUCT, flops=product_flops, dense=True,
)  # fmt: skip


# Affine maps --------------------------------------------------------------------------------------


def _linear(xp: Any, input: Any, weight: Any, bias: Any = None) -> Any:
    shape = input.shape
    if not shape or shape[-1] != weight.shape[-1]:
        raise RuntimeError(
            f"linear: mat1 and mat2 shapes cannot be multiplied ({prod(shape[:-1])}x"
            f"{shape[-1] if shape else 1} and {'x'.join(map(str, reversed(weight.shape)))}): got "
            f"input {tuple(shape)} and weight {tuple(weight.shape)}, want input.shape[-1] == "
            "weight.shape[-1]"
        )
    x = input if len(shape) == 2 else input.reshape(prod(shape[:-1]), shape[-1])
    if bias is not None and xp.cast is not None and is_half(x.dtype):
        out = xp.matmul(wide(xp, x), wide(xp, weight).T)  # a host's is float32 in any case
        out += wide(xp, bias)
        out = narrow(xp, out, x)
    else:
        out = xp.matmul(x, weight.T)
        if bias is not None:
            out += bias
    return out if len(shape) == 2 else out.reshape(*shape[:-1], weight.shape[0])


def _linear_weight(xp: Any, grad_output: Any, input: Any) -> Any:
    rows = [x if x.ndim == 2 else x.reshape(prod(x.shape[:-1]), x.shape[-1])
            for x in (grad_output, input)]  # fmt: skip
    return xp.matmul(rows[0].T, rows[1])


def _linear_jvp(
    m: Any, input: Any, weight: Any, input_t: Any, weight_t: Any, bias_t: Any, result: Any
) -> Any:
    tangent = None if input_t is None else m.linear(input_t, weight, None)
    if weight_t is not None:
        term = m.linear(input, weight_t, None)
        tangent = term if tangent is None else tangent + term
    if bias_t is not None:
        tangent = m.expand(bias_t, result.shape) if tangent is None else tangent + bias_t
    return tangent


row(
    "linear", "input weight bias?", _linear, NONE, promote=SAME, node="AddmmBackward0",
    input=lambda m, g, weight: m.matmul(g, weight),
    weight=lambda m, g, input: m.linear_weight(g, input),
    bias=lambda m, g, bias_shape: m.sum_to_shape(g, bias_shape),
    jvp=_linear_jvp,
    doc="input @ weight.T + bias; all dims of input but the last are batch",
    cost=PRODUCT, flops=product_flops,
)  # fmt: skip


# A row, as its transposed operand would be a view that double backward records for each layer.
row(
    "linear_weight", "grad_output input", _linear_weight, LINEAR, promote=SAME, node="MmBackward0",
    grad_output=lambda m, g, input: m.linear(input, g, None),
    input=lambda m, g, grad_output: m.matmul(grad_output, g),
    doc="the adjoint of linear in its weight: the sum of outer products over the batch",
    cost=PRODUCT, flops=linear_weight_flops, public=False,
)  # fmt: skip


def _cross(xp: Any, self: Any, other: Any, dim: int = -1) -> Any:
    a, b = xp.moveaxis(self, dim, 0), xp.moveaxis(other, dim, 0)
    parts = [a[i - 2] * b[i - 1] - a[i - 1] * b[i - 2] for i in range(3)]
    return xp.stack(parts, dim)


row(
    "linalg_cross", "self other", _cross, LINEAR, promote=SAME, dense=True,
    self=lambda m, g, other, dim: m.linalg_cross(other, g, dim),
    other=lambda m, g, self, dim: m.linalg_cross(g, self, dim), kernels=(1, 0),
    doc="(a x b) . g = a . (b x g)",
)  # fmt: skip
