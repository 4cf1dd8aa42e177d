"""One sample line per row of the op table, or a few; tests/sampling.py says what a line may hold.

    sample("mul", (3, 4), (4,))                  a tuple: a float64 normal input of that shape
    sample("log", positive((3,)))                or unit away distinct integers boolean exactly
    sample("cat", [(2, 3), (2, 1)], dim=1)       a list for a row with `tensors*`; params by keyword
    sample("conv2d", (2, 3, 5, 5), (4, 3, 3, 3), None, stride=(2, 2))    None for an absent `bias?`
    sample("silly", (3,), reference=lambda np, self: np.sin(self) ** 2)  where NumPy has no `silly`

The constructor avoids a kink or pole of the row: `away((3, 4), 0)`, `distinct((3, 4))`. A reference
is said once per row; without it the reference is NumPy's function of the row's name. Strided,
complex, float32 and half variants are made from each line, and for elementwise rows also 0-d, empty
and broadcast ones; other rows say their empty or 0-d shapes as further lines.
"""

# ruff: noqa: F401 -- the constructors are here for every line to come

from __future__ import annotations

import math
import operator

import numpy as np

import cugrad
from cugrad.ops.table import TABLE
from tests.sampling import (
    REFERENCE,
    away,
    boolean,
    distinct,
    exactly,
    integers,
    normal,
    positive,
    sample,
    unit,
)

# Rows that have no complex meaning, as in PyTorch.
REAL_ONLY: set[str] = {"tie_share"}

# Rows that compute in no half precision. Row -> reason.
NO_HALF: dict[str, str] = {}

# Rows that have no reference, and why. Row -> reason.
NO_REFERENCE: dict[str, str] = {}

# Rows that PyTorch has no equivalent of, and why. Row -> reason.
NO_TORCH: dict[str, str] = {}

# Rows that cannot be differentiated twice, and why. Row -> reason.
ONCE: dict[str, str] = {}

# elementwise -------------------------------------------------------------------------------------


def _is(function):
    """NumPy's function of another name as a reference."""
    return lambda np, *inputs, **params: getattr(np, function)(*inputs, **params)


sample("add", (3, 4), (4,))
sample("sub", (3, 4), (4,), reference=_is("subtract"))
sample("mul", (3, 4), (4,), reference=_is("multiply"))
sample("div", (3, 4), positive((4,)), reference=_is("divide"))
for _name, _sign in (("add", "add"), ("sub", "sub"), ("mul", "mul"), ("div", "truediv")):
    _apply = getattr(operator, _sign)
    sample(_name, (3,), 1.5)
    sample(_name, 1.5, positive((3,)), torch=lambda torch, x, y, _apply=_apply: _apply(x, y))
sample("neg", (3, 4), reference=_is("negative"))
sample("square", (3, 4))
sample("reciprocal", positive((3, 4)))
sample("pow", positive((3, 4)), (4,), reference=_is("power"))
sample("pow", positive((3, 4)), exactly([0.0, 1.0, 2.0, 3.0]))
sample("pow", (3, 4), 3)
sample("pow", away((3, 4)), -2)
sample("pow", positive((3, 4)), 0.5)
sample("pow", (3, 4), 0)
sample("pow", 2.0, (3, 4))
sample("floor_divide", away((3, 4)), positive((4,)))
sample("remainder", away((3, 4)), positive((4,)))
sample("fmod", away((3, 4)), positive((4,)))

for _name in ("exp", "exp2", "expm1", "sin", "cos", "sinh", "cosh", "tanh"):
    sample(_name, (3, 4))
for _name in ("log", "log2", "log10", "log1p", "sqrt"):
    sample(_name, positive((3, 4)))
sample("rsqrt", positive((3, 4)), reference=lambda np, x: 1 / np.sqrt(x))
sample("tan", unit((3, 4)))
sample("asin", unit((3, 4)), reference=_is("arcsin"))
sample("acos", unit((3, 4)), reference=_is("arccos"))
sample("atan", (3, 4), reference=_is("arctan"))
sample("atan2", away((3, 4)), away((4,)), reference=_is("arctan2"))
sample("asinh", (3, 4), reference=_is("arcsinh"))
sample("acosh", positive((3, 4), 1.2, 3.0), reference=_is("arccosh"))
sample("atanh", unit((3, 4)), reference=_is("arctanh"))
sample("sigmoid", (3, 4), reference=lambda np, x: 1 / (1 + np.exp(-x)))
sample("relu", away((3, 4)), reference=lambda np, x: np.maximum(x, 0))
sample("erf", (3, 4), reference=lambda np, x: np.vectorize(math.erf, "d")(x))

sample("abs", away((3, 4)), reference=_is("absolute"))
sample("sgn", away((3, 4)), reference=_is("sign"))
for _name in ("sign", "floor", "ceil", "round", "trunc"):
    sample(_name, away((3, 4), -2.5, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 2.5, gap=0.01))

sample("where", boolean((3, 4)), (3, 4), (4,))
sample("where", boolean((3, 4)), (3, 4), 0)
for _name in ("maximum", "minimum"):
    sample(_name, distinct((3, 4)), unit((4,), 0.05))
    sample(_name, exactly([1.0, 2.0, 3.0]), exactly([2.0, 2.5, -1.0]))
sample("clamp", away((3, 4), -0.7, 0.9), min=-0.7, max=0.9, reference=_is("clip"))
sample("clamp", away((3, 4), 0.3), min=0.3)
sample("clamp", away((3, 4), 0.3), max=0.3)

for _name, _numpys in (
    ("eq", "equal"), ("ne", "not_equal"), ("lt", "less"), ("le", "less_equal"),
    ("gt", "greater"), ("ge", "greater_equal"),
):  # fmt: skip
    sample(_name, (3, 4), (4,), reference=_is(_numpys))
    sample(_name, exactly([1.0, 2.0, 3.0]), exactly([3.0, 2.0, 1.0]))
for _name in ("logical_and", "logical_or", "logical_xor"):
    sample(_name, exactly([0.0, 1.0, 0.0, 2.0]), exactly([0.0, 0.0, 3.0, 1.0]))
    sample(_name, boolean((3, 4)), boolean((4,)))
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    sample(_name, integers((3, 4)), integers((4,)))
    sample(_name, boolean((3, 4)), boolean((4,)))
sample("logical_not", exactly([0.0, 1.0, 0.0, 2.0]))
sample("bitwise_not", integers((3, 4)), reference=_is("invert"))
sample("bitwise_not", boolean((3, 4)))
for _name in ("isnan", "isinf", "isfinite"):
    sample(_name, exactly([0.0, float("nan"), float("inf"), -float("inf")]))

sample("real", (3, 4))
sample("imag", (3, 4), torch=lambda torch, x: x.imag if x.is_complex() else x * 0)
sample("conj", (3, 4))
sample("angle", away((3, 4)))
sample(
    "to_dtype", (3, 4), dtype=np.dtype("complex128"),
    reference=lambda np, x, dtype: x.astype(dtype),
    torch=lambda torch, x, dtype: x.to(torch.complex128),
)  # fmt: skip
sample(
    "to_device", (3, 4), device_type=lambda backend: backend.device_type, index=None,
    home=lambda backend: (backend.device_type, None),
    reference=lambda np, x, **params: x.copy(),
)  # fmt: skip

_middle = ((TABLE["slice_view"], {"index": (slice(1, 3), slice(0, 4, 2))}),)


def _with_part(np, x, src):
    x = x.copy()
    x[1:3, 0:4:2] = src
    return x


sample("part", (4, 4), steps=_middle, reference=lambda np, x, steps: x[1:3, 0:4:2])
sample("zero_part", (4, 4), steps=_middle, reference=lambda np, x, steps: _with_part(np, x, 0))
sample(
    "embed_part", (2, 2), shape=(4, 4), steps=_middle,
    reference=lambda np, x, shape, steps: _with_part(np, np.zeros(shape, x.dtype), x),
)  # fmt: skip
sample(
    "copy_slices", (4, 4), (2, 2), steps=_middle,
    reference=lambda np, x, src, steps: _with_part(np, x, src),
)  # fmt: skip

REAL_ONLY |= {
    "floor_divide", "remainder", "fmod", "atan2", "relu", "erf", "sign", "floor", "ceil", "round",
    "trunc", "maximum", "minimum", "clamp", "lt", "le", "gt", "ge", "bitwise_and", "bitwise_or",
    "bitwise_xor", "bitwise_not", "to_dtype",
}  # fmt: skip
NO_TORCH |= dict.fromkeys(
    ("part", "zero_part", "embed_part", "copy_slices", "to_device"),
    "the engine's own: in-place changes of views and copies between devices are tested as such",
)

# reduce ------------------------------------------------------------------------------------------


def _over(function, *names):
    """NumPy's reduction as a reference: dim and keepdim under NumPy's names."""
    return lambda np, x, dim=None, keepdim=False: getattr(np, function)(
        x, axis=dim, keepdims=keepdim
    )


def _like(function, **fixed):
    """PyTorch's reduction, which has no overload for dim=None and keepdim together."""

    def call(torch, x, dim=None, keepdim=False, **params):
        if dim is None and keepdim:
            dim = tuple(range(x.ndim))
        if dim is None:
            return getattr(torch, function)(x, **params)
        return getattr(torch, function)(x, dim, keepdim=keepdim, **params)

    return call


sample("sum", (3, 4), reference=_over("sum"), torch=_like("sum"))
sample("sum", (2, 3, 4), dim=(0, 2))
sample("sum", (2, 3, 4), dim=(1,), keepdim=True)
sample("sum", ())
sample("sum", (0, 3), dim=(0,))
sample("mean", (3, 4), reference=_over("mean"), torch=_like("mean"))
sample("mean", (2, 3, 4), dim=(0, 2), keepdim=True)
sample("mean", ())
sample(
    "sum_to_shape", (2, 3, 4), shape=(3, 1),
    reference=lambda np, x, shape: x.sum((0, 2)).reshape(shape) if x.ndim == 3 else x.sum(0),
    torch=lambda torch, x, shape: x.sum_to_size(shape),
)  # fmt: skip
sample("sum_to_shape", (2, 3), shape=(3,))
sample("prod", (3, 4), reference=_over("prod"), torch=_like("prod"))
sample("prod", exactly([[1.5, 0.0, -2.0, 0.5, 3.0], [0.0, 0.0, 2.0, 1.0, -1.0]]), dim=1)
sample("prod", (2, 1, 3), dim=1, keepdim=True)
sample("prod", (2, 7), dim=1, keepdim=True)
sample("prod", ())
sample(
    "cumsum", (3, 4), dim=1,
    reference=lambda np, x, dim: np.cumsum(x, dim),
)  # fmt: skip
for _name in ("amax", "amin"):
    sample(_name, distinct((3, 4)), reference=_over(_name), torch=_like(_name))
    sample(_name, distinct((2, 3, 4)), dim=(0, 2))
    sample(_name, distinct((2, 3)), dim=(1,), keepdim=True)
    sample(_name, distinct(()))
for _name in ("max", "min"):
    sample(_name + "_all", distinct((3, 4)), reference=_over("a" + _name), torch=_like("a" + _name))
    sample(
        _name, distinct((3, 4)), dim=1, torch=_like(_name),
        reference=lambda np, x, dim, keepdim=False, _name=_name: (
            getattr(np, _name)(x, axis=dim, keepdims=keepdim),
            getattr(np, "arg" + _name)(x, axis=dim, keepdims=keepdim),
        ),
    )  # fmt: skip
    sample(_name, distinct((2, 3, 2)), dim=0, keepdim=True)
    sample("arg" + _name, distinct((3, 4)), reference=_over("arg" + _name))
    sample("arg" + _name, distinct((3, 4)), dim=1, keepdim=True)
    sample("arg" + _name, distinct((3, 4)), keepdim=True)
sample(
    "tie_share", exactly([[1.0, 3.0, 3.0], [2.0, 0.0, -1.0]]), exactly([[3.0], [2.0]]), dim=(1,),
    reference=lambda np, x, top, dim: (x == top) / (x == top).sum(dim, keepdims=True),
    torch=lambda torch, x, top, dim: (x == top) / (x == top).sum(dim, keepdim=True),
)  # fmt: skip
sample(
    "var", (3, 4), torch=_like("var"),
    reference=lambda np, x, dim=None, correction=1, keepdim=False: np.var(
        x, axis=dim, ddof=correction, keepdims=keepdim
    ),
)  # fmt: skip
sample("var", (2, 3, 4), dim=(0, 2), correction=0, keepdim=True)
sample(
    "std", (3, 4), torch=_like("std"),
    reference=lambda np, x, dim=None, correction=1, keepdim=False: np.std(
        x, axis=dim, ddof=correction, keepdims=keepdim
    ),
)  # fmt: skip
sample("std", (2, 3, 4), dim=(0, 2), correction=0, keepdim=True)
sample("std", (2, 3), dim=(1,))
sample(
    "logsumexp", (3, 4), dim=(1,),
    reference=lambda np, x, dim=None, keepdim=False: np.log(
        np.sum(np.exp(x), axis=dim, keepdims=keepdim)
    ),
)  # fmt: skip
sample("logsumexp", (2, 3, 4), dim=(0, 2), keepdim=True)
sample(
    "linalg_vector_norm", (3, 4),
    reference=lambda np, x, ord=2, dim=None, keepdim=False: np.linalg.vector_norm(
        x, ord=ord, axis=dim, keepdims=keepdim
    ),
)  # fmt: skip
sample("linalg_vector_norm", away((3, 4)), ord=1, dim=(1,))
sample("linalg_vector_norm", away((3, 4)), ord=3, dim=(0,), keepdim=True)
sample("linalg_vector_norm", distinct((2, 3, 4)), ord=float("inf"), dim=(1, 2))
sample("linalg_vector_norm", distinct((2, 3)), ord=-float("inf"), dim=(1,))
sample("linalg_vector_norm", (2, 3), ord=0, dim=(1,))
for _name in ("any", "all"):
    sample(_name, boolean((3, 4)), reference=_over(_name), torch=_like(_name))
    sample(_name, integers((3, 4), 2), dim=(1,), keepdim=True)
sample(
    "count_nonzero", integers((3, 4), 3),
    reference=lambda np, x, dim=None: np.count_nonzero(x, axis=dim),
)  # fmt: skip
sample("count_nonzero", integers((3, 4), 3), dim=(0,))


# shape -------------------------------------------------------------------------------------------

sample("view", (2, 6), shape=(3, 4), strided=False, reference=lambda np, x, shape: x.reshape(shape),
       torch=lambda torch, x, shape: x.view(shape))  # fmt: skip
sample("view", (), shape=(1, 1))
sample("view", (0, 3), shape=(3, 0, 2))
sample("reshape", (2, 6), shape=(3, 4), strided=False)  # what it cannot view it copies
sample("reshape", (4,), shape=(2, 1, 2))
sample("permute", (2, 3, 4), dims=(2, 0, 1), reference=lambda np, x, dims: x.transpose(dims))
sample("permute", (), dims=())
sample("transpose", (2, 3, 4), dim0=0, dim1=2,
       reference=lambda np, x, dim0, dim1: x.swapaxes(dim0, dim1) if x.ndim else x)  # fmt: skip
sample("transpose", (), dim0=0, dim1=0)
sample("t", (2, 3), reference=lambda np, x: x.T)
sample("t", (3,))
sample("mT", (2, 3, 4), reference=lambda np, x: x.swapaxes(-1, -2), torch=lambda torch, x: x.mT)
sample("expand", (3, 1), size=(2, 3, 4), reference=lambda np, x, size: np.broadcast_to(x, size),
       torch=lambda torch, x, size: x.expand(size))  # fmt: skip
sample("expand", (3,), size=(1, 3))
sample("expand", (), size=(2,))
sample("expand", (1, 3), size=(0, 3))
sample("squeeze", (1, 3, 1, 2), dim=(0, 2))
REFERENCE["squeeze"] = lambda np, x, dim: np.squeeze(x, dim)
sample("squeeze", (2, 1), dim=())
sample("unsqueeze", (2, 3), dim=1, reference=lambda np, x, dim: np.expand_dims(x, dim))
sample("unsqueeze", (), dim=0)
sample("select", (3, 4), dim=1, index=2, reference=lambda np, x, dim, index: np.take(x, index, dim))
sample("select", (3,), dim=0, index=-1)
sample("slice_view", (4, 5), index=(slice(1, 4, 2), None, 2),
       reference=lambda np, x, index: x[index], torch=lambda torch, x, index: x[index])  # fmt: skip
sample("slice_view", (3, 2), index=(0, 1))
sample("slice_view", (3, 2), index=(slice(2, 2),))


def _put(np, grad, shape, index):
    out = np.zeros(shape, grad.dtype)
    out[index] = grad
    return out


sample("slice_backward", (2, 1), shape=(4, 5), index=(slice(1, 4, 2), None, 2), reference=_put)
sample("slice_backward", (2,), shape=(5,), index=(slice(1, 3),))
sample("diagonal", (3, 4), offset=1, reference=lambda np, x, offset=0, dim1=0, dim2=1: np.diagonal(
    x, offset, dim1, dim2))  # fmt: skip
sample("diagonal", (4, 2, 3), offset=-1, dim1=0, dim2=2)
sample("diagonal", (2, 3), offset=5)


def _put_diagonal(np, grad, shape, offset=0, dim1=0, dim2=1):
    out = np.zeros(shape, grad.dtype)
    diagonal = np.diagonal(out, offset, dim1, dim2)
    diagonal.flags.writeable = True
    diagonal[...] = grad
    return out


sample("diagonal_backward", (3,), shape=(3, 4), offset=1, reference=_put_diagonal,
       torch=lambda torch, g, shape, offset=0, dim1=0, dim2=1: torch.diagonal_scatter(
           torch.zeros(shape, dtype=g.dtype), g, offset, dim1, dim2))  # fmt: skip
sample("diagonal_backward", (2, 3), shape=(4, 2, 3), offset=-1, dim1=0, dim2=2)
sample("clone", (2, 3), reference=lambda np, x, order="K": x.copy(),
       torch=lambda torch, x, order="K": x.clone())  # fmt: skip
sample("clone", (2, 3), order="C")
sample("clone", ())
sample("flip", (2, 3, 4), dims=(0, 2), reference=lambda np, x, dims: np.flip(x, dims))
sample("flip", (3,), dims=())
sample("roll", (3, 4), shifts=(1, -2), dims=(0, 1),
       reference=lambda np, x, shifts, dims=(): np.roll(x, shifts, dims or None))  # fmt: skip
sample("roll", (2, 3), shifts=(2,))
sample("tril", (3, 4), reference=lambda np, x, diagonal=0: np.tril(x, diagonal))
sample("tril", (2, 3, 3), diagonal=-1)
sample("triu", (3, 4), reference=lambda np, x, diagonal=0: np.triu(x, diagonal))
sample("triu", (2, 3, 3), diagonal=1)
sample("repeat", (2, 3), repeats=(2, 1, 3), reference=lambda np, x, repeats: np.tile(x, repeats),
       torch=lambda torch, x, repeats: x.repeat(repeats))  # fmt: skip
sample("repeat", (2,), repeats=(0,))
sample("repeat", (), repeats=())
sample("cat", [(2, 3), (2, 1), (2, 0)], dim=1,
       reference=lambda np, tensors, dim=0: np.concatenate(tensors, dim))  # fmt: skip
sample("cat", [(3,)])
sample("stack", [(2, 3), (2, 3)], dim=1, reference=lambda np, ts, dim=0: np.stack(ts, dim))
sample("stack", [(), (), ()])


# index -------------------------------------------------------------------------------------------

sample("index", (4, 5), indices=([0, 2, 2], slice(1, 3)), torch=lambda torch, x, indices: x[indices],
       reference=lambda np, x, indices: x[indices])  # fmt: skip
sample("index", (4, 5), indices=([[0], [2]], [1, 1]))
sample("index", (4, 5, 2), indices=(None, [0, 2], slice(None), [1, 1]))


def _add_at(np, grad, shape, indices):
    out = np.zeros(shape, grad.dtype)
    np.add.at(out, indices, grad)
    return out


sample("index_backward", (3, 2), shape=(4, 5), indices=([0, 2, 2], slice(1, 3)), reference=_add_at,
       torch=lambda torch, g, shape, indices: torch.zeros(shape, dtype=g.dtype).index_put(
           (torch.tensor(indices[0])[:, None], torch.arange(*indices[1].indices(shape[1]))), g,
           accumulate=True))  # fmt: skip


def _index_put(np, x, values, indices, accumulate=False):
    out = x + 0 * values.sum()
    if accumulate:
        np.add.at(out, indices, values)
    else:
        out[indices] = values
    return out


sample("index_put", (4, 5), (3, 5), indices=([0, 2, 1],), reference=_index_put,
       torch=lambda torch, x, values, indices, accumulate=False: torch.index_put(
           x, tuple(map(torch.tensor, indices)), values, accumulate))  # fmt: skip
sample("index_put", (4, 5), (5,), indices=([0, 2, 2],), accumulate=True)
sample("index_put", (4, 5), (), indices=([0, 2], [1, 3]))


def _zeroed(np, x, indices):
    out = x.copy()
    out[indices] = 0
    return out


sample("index_zero", (4, 5), indices=([0, 2],), reference=_zeroed,
       torch=lambda torch, x, indices: torch.index_put(
           x, tuple(map(torch.tensor, indices)), torch.zeros((), dtype=x.dtype)))  # fmt: skip
sample("zero_like", (2, 3), reference=lambda np, x: np.zeros_like(x),
       torch=lambda torch, x: torch.zeros_like(x))  # fmt: skip


def _by_index(name):
    """aten has dim before the index."""
    return lambda torch, x, index, dim, **rest: getattr(torch, name)(x, dim, index, **rest)


def _loop(update):
    """A reference for gather and its kin that visits the elements of index one by one."""

    def reference(np, first, index, *rest, **params):
        dim = params["dim"]
        out = update(np, first, index, *rest, **params, at=None, here=None, out=None)
        for at in np.ndindex(index.shape):
            here = (*at[:dim], index[at], *at[dim + 1 :])
            update(np, first, index, *rest, **params, at=at, here=here, out=out)
        return out

    return reference


def _gather(np, x, index, dim, at, here, out):
    if out is None:
        return np.zeros(index.shape, x.dtype)
    out[at] = x[here]


def _gather_backward(np, grad, index, dim, shape, at, here, out):
    if out is None:
        return np.zeros(shape, grad.dtype)
    out[here] += grad[at]


def _scatter(np, x, index, src, dim, at, here, out):
    if out is None:
        return x.astype(np.result_type(x, src))
    out[here] = src[at]


def _scatter_add(np, x, index, src, dim, at, here, out):
    if out is None:
        return x.astype(np.result_type(x, src))
    out[here] += src[at]


def _scatter_zero(np, x, index, dim, at, here, out):
    if out is None:
        return x.copy()
    out[here] = 0


sample("gather", (3, 4), integers((3, 2), 4), dim=1, reference=_loop(_gather),
       torch=_by_index("gather"))  # fmt: skip
sample("gather", (3, 4), integers((2, 3), 3), dim=0)
sample("gather_backward", (2, 3), integers((2, 3), 3), shape=(3, 4), dim=0,
       reference=_loop(_gather_backward),
       torch=lambda torch, g, index, shape, dim: torch.zeros(shape, dtype=g.dtype).scatter_add(
           dim, index, g))  # fmt: skip
sample("scatter", (3, 4), exactly([[0, 2, 1], [2, 1, 0]]), (2, 3), dim=0, reference=_loop(_scatter),
       torch=lambda torch, x, index, src, dim: x.scatter(dim, index, src))  # fmt: skip
sample("scatter", (3, 4), exactly([[3], [1]]), (2, 3), dim=1)
sample("scatter_add", (3, 4), integers((2, 3), 3), (2, 3), dim=0, reference=_loop(_scatter_add),
       torch=lambda torch, x, index, src, dim: x.scatter_add(dim, index, src))  # fmt: skip
sample("scatter_add", (3, 4), integers((2, 2), 4), (3, 3), dim=1)
sample("scatter_zero", (3, 4), integers((2, 3), 3), dim=0, reference=_loop(_scatter_zero),
       torch=lambda torch, x, index, dim: x.scatter(dim, index, 0))  # fmt: skip
sample("index_select", (3, 4), integers((5,), 4), dim=1, torch=_by_index("index_select"),
       reference=lambda np, x, index, dim: np.take(x, index, dim))  # fmt: skip


def _select_backward(np, grad, index, shape, dim):
    out = np.zeros(shape, grad.dtype)
    np.add.at(out, (*(slice(None),) * dim, index), grad)
    return out


sample("index_select_backward", (3, 5), integers((5,), 4), shape=(3, 4), dim=1,
       reference=_select_backward,
       torch=lambda torch, g, index, shape, dim: torch.zeros(shape, dtype=g.dtype).index_add(
           dim, index, g))  # fmt: skip


def _index_add(np, x, index, source, dim, alpha=1):
    return x + alpha * _select_backward(np, source, index, x.shape, dim)


sample("index_add", (3, 4), integers((5,), 4), (3, 5), dim=1, reference=_index_add,
       torch=lambda torch, x, index, source, dim, alpha=1: torch.index_add(
           x, dim, index, source, alpha=alpha))  # fmt: skip
sample("index_add", (3,), integers((2,), 3), (2,), dim=0, alpha=2)
sample("nonzero", integers((3, 4), 2), reference=lambda np, x: np.argwhere(x))


def _sorted(np, x, dim, descending):
    order = np.argsort(-x if descending else x, dim, kind="stable")
    return np.take_along_axis(x, order, dim), order


sample(
    "sort",
    distinct((3, 4)),
    dim=0,
    reference=lambda np, x, dim=-1, descending=False: _sorted(np, x, dim, descending),
)
sample("sort", distinct((3, 4)), dim=1, descending=True)
sample("argsort", distinct((3, 4)), dim=0, reference=lambda np, x, dim, descending=False: _sorted(
    np, x, dim, descending)[1])  # fmt: skip
sample("argsort", exactly([1, 0, 1, 0, 1]), dim=0, descending=True)
sample("topk", distinct((3, 5)), k=2, dim=1,
       reference=lambda np, x, k, dim=-1, largest=True: tuple(
           np.take(r, range(k), dim) for r in _sorted(np, x, dim, largest)))  # fmt: skip
sample("topk", distinct((3, 5)), k=3, dim=0, largest=False)
sample("masked_fill", (3, 4), boolean((3, 4)), value=2,
       reference=lambda np, x, mask, value: np.where(mask, value, x))  # fmt: skip


# linalg ------------------------------------------------------------------------------------------

sample("mm", (2, 3), (3, 4), reference=lambda np, a, b: a @ b)
sample("mm", (2, 0), (0, 3))
sample("bmm", (2, 3, 4), (2, 4, 5), reference=lambda np, a, b: a @ b)
sample("mv", (3, 4), (4,), reference=lambda np, a, b: a @ b)
sample("dot", (4,), (4,))
sample("outer", (3,), (4,))
sample("matmul", (2, 3), (3, 4))
sample("matmul", (3,), (3,))
sample("matmul", (2, 3), (3,))
sample("matmul", (3,), (3, 2))
sample("matmul", (2, 4, 3), (3, 5))
sample("matmul", (2, 4, 3), (3,))
sample("matmul", (3,), (2, 3, 4))
sample("matmul", (2, 1, 3, 4), (5, 4, 2))
sample("linear", (4, 3), (2, 3), (2,),
       reference=lambda np, x, w, b=None: x @ w.T + (0 if b is None else b),
       torch=lambda torch, x, w, b=None: torch.nn.functional.linear(x, w, b))  # fmt: skip
sample("linear", (2, 4, 3), (2, 3), None)
sample("linear", (3,), (2, 3), (2,))
sample("linear", (0, 3), (2, 3), (2,))


# nn ----------------------------------------------------------------------------------------------


# conv --------------------------------------------------------------------------------------------


# random ------------------------------------------------------------------------------------------
