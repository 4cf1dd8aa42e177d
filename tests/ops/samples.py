"""One sample line per row of the op table, or a few; sampling.py says what a line may hold.

    sample("mul", (3, 4), (4,))                  a tuple: a float64 normal input of that shape
    sample("log", positive((3,)))                or unit away distinct integers boolean exactly
    sample("cat", [(2, 3), (2, 1)], dim=1)       a list for a row with `tensors*`; params by keyword
    sample("conv2d", (2, 3, 5, 5), (4, 3, 3, 3), None, stride=(2, 2))    None for an absent `bias?`
    sample("silly", (3,), reference=lambda np, self: np.sin(self) ** 2)  where NumPy has no `silly`

The constructor avoids a kink or pole of the row: `away((3, 4), 0)`, `distinct((3, 4))`. A reference
is said once per row; without it the reference is NumPy's function of the row's name. Strided,
complex, float32 and half variants are made from each line, and for elementwise rows also 0-d, empty
and broadcast ones; other rows say their empty or 0-d shapes as further lines. Large
families stand in tests/ops/samples_<family>.py.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import math
import operator
import pathlib

import numpy as np

from cugrad.ops.table import TABLE
from cugrad.ops.views.regions import Region
from tests.ops.sampling import (
    LINES,
    REFERENCE,
    Input,
    away,
    boolean,
    distinct,
    exactly,
    integers,
    positive,
    sample,
    unit,
)

# Rows that have no complex meaning, as in PyTorch.
REAL_ONLY: set[str] = {"tie_share"}

# Rows that compute in no half precision. Row -> reason.
NO_HALF: dict[str, str] = {}

# Outputs that stay in float32 where the inputs are half, as on PyTorch's GPU. Row -> names.
FLOAT32_OUTPUTS: dict[str, str] = {
    "cross_entropy": "top log_sum",
    "native_batch_norm": "mean invstd",
    "native_group_norm": "mean rstd",
    "native_layer_norm": "mean rstd",
    "rms_norm": "rstd",
}

# Rows whose arrays only vmap makes: tests/func/test_vmap.py runs them with every other row.
NO_SAMPLE = dict.fromkeys(("vmap_wrap", "vmap_unwrap", "vmap_lift", "vmap_total"), "of vmap") | (
    dict.fromkeys(("differentiable_unless", "demand_none"), "of formulas, which may refuse")
)

# Rows that have no reference, and why. Row -> reason.
NO_REFERENCE: dict[str, str] = {**NO_SAMPLE}

# Rows that PyTorch has no equivalent of, and why. Row -> reason.
NO_TORCH: dict[str, str] = {
    **NO_SAMPLE,
    "slice_backward": "an adjoint that formulas call; the forward row's gradient is compared",
}

# Rows that cannot be differentiated twice, and why. Row -> reason.
ONCE: dict[str, str] = {}

# elementwise -------------------------------------------------------------------------------------


def _is(function):
    """NumPy's function of another name as a reference."""
    return lambda np, *inputs, **params: getattr(np, function)(*inputs, **params)


def _torchs(function):
    """PyTorch's function, with the inputs by position."""
    return lambda torch, *inputs, **params: getattr(torch, function)(*inputs, **params)


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
sample("pow", positive((3, 4)), (4,), reference=_is("power"), torch=_torchs("pow"))
sample("pow", positive((3, 4)), exactly([-0.5, 1.0, 2.0, 3.0]))
sample("pow", (3, 4), 3)
sample("pow", away((3, 4)), -2)
sample("pow", positive((3, 4)), 0.5)
sample("pow", (3, 4), 0)
sample("pow", 2.0, (3, 4))
sample("floor_divide", away((3, 4)), positive((4,)))
sample(
    "div_trunc", away((3, 4)), positive((4,)), reference=lambda np, x, y: np.trunc(x / y),
    torch=lambda torch, x, y: torch.div(x, y, rounding_mode="trunc"), integer=False,
)  # fmt: skip
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
sample(
    "clamp", away((3, 4), -0.7, 0.9), min=-0.7, max=0.9, integer=False, reference=_is("clip")
)  # fmt: skip
sample("clamp", away((3, 4), 0.3), min=0.3, integer=False)
sample("clamp", away((3, 4), 0.3), max=0.3, integer=False)

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
for _shape in ((3, 4), ()):
    sample("complex", _shape, _shape, integer=False, reference=lambda np, a, b: a + 1j * b)
    sample("polar", positive(_shape), _shape, integer=False,
           reference=lambda np, a, b: a * np.exp(1j * b))  # fmt: skip
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

sample("copy", (3, 4), (4,), reference=lambda np, x, src: np.broadcast_to(src, x.shape).copy())
sample("copy", (2, 3), ())

_middle = Region(
    ((TABLE["slice_view"], {"index": (slice(1, 3), slice(0, 4, 2))}),), (4, 4), (1, 5)
)  # of a tensor whose memory has a gap in each column


def _with_part(np, x, src):
    x = x.copy()
    x[1:3, 0:4:2] = src
    return x


sample("part", (4, 4), region=_middle, reference=lambda np, x, region: x[1:3, 0:4:2])
sample("zero_part", (4, 4), region=_middle, reference=lambda np, x, region: _with_part(np, x, 0))
sample(
    "embed_part", (2, 2), region=_middle,
    reference=lambda np, x, region: _with_part(np, np.zeros(region.shape, x.dtype), x),
)  # fmt: skip
sample(
    "copy_slices", (4, 4), (2, 2), region=_middle,
    reference=lambda np, x, src, region: _with_part(np, x, src),
)  # fmt: skip

NO_HALF |= dict.fromkeys(("complex", "polar"), "NumPy has no complex number of halves")
REAL_ONLY |= {
    "floor_divide", "div_trunc", "remainder", "fmod", "atan2", "relu", "erf", "sign", "floor",
    "ceil", "round", "trunc", "maximum", "minimum", "clamp", "lt", "le", "gt", "ge", "bitwise_and",
    "bitwise_or", "bitwise_xor", "bitwise_not", "to_dtype", "complex", "polar",
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
sample(
    "aminmax", distinct((3, 4)),
    torch=lambda torch, x, dim=None, keepdim=False: torch.aminmax(
        x, dim=dim if dim is None else dim[0], keepdim=keepdim
    ),
    reference=lambda np, x, dim=None, keepdim=False: tuple([
        extreme(x, axis=dim, keepdims=keepdim) for extreme in (np.amin, np.amax)
    ]),
)  # fmt: skip
sample("aminmax", distinct((2, 3, 4)), dim=(1,), keepdim=True)
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
    integer=False,
    reference=lambda np, x, top, dim: (x == top) / (x == top).sum(dim, keepdims=True),
    torch=lambda torch, x, top, dim: (x == top).to(x.dtype) / (x == top).sum(dim, keepdim=True),
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
for _name in ("var", "std"):
    sample(
        f"{_name}_mean", (3, 4), torch=_like(f"{_name}_mean"),
        reference=lambda np, x, dim=None, correction=1, keepdim=False, _name=_name: (
            getattr(np, _name)(x, axis=dim, ddof=correction, keepdims=keepdim),
            np.mean(x, axis=dim, keepdims=keepdim),
        ),
    )  # fmt: skip
    sample(f"{_name}_mean", (2, 3, 4), dim=(0, 2), correction=0, keepdim=True)
    sample(f"{_name}_mean", (2, 3), dim=(1,))
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
for _mean in (False, True):
    sample("square_total", (3, 4), mean=_mean, integer=False,
           torch=lambda torch, x, mean=False: (x * x).mean() if mean else (x * x).sum(),
           reference=lambda np, x, mean=False: (np.mean if mean else np.sum)(x * x))  # fmt: skip
sample("square_total", (3, 0), integer=False)
sample("weighted_sum", (3, 4), (4,), alpha=0.7, beta=-1.5, integer=False,
       torch=lambda torch, x, y, alpha=1.0, beta=1.0: x * alpha + y * beta,
       reference=lambda np, x, y, alpha=1.0, beta=1.0: x * alpha + y * beta)  # fmt: skip
for _sum in ("add", "sub"):
    for _alpha in (0.7, -2):
        sample(f"{_sum}_scaled", (3, 4), (4,), alpha=_alpha, integer=False,
               torch=lambda torch, x, y, alpha, name=_sum: getattr(torch, name)(x, y, alpha=alpha),
               reference=lambda np, x, y, alpha, sign=1 - 2 * (_sum == "sub"): x + sign * alpha * y,
               )  # fmt: skip
sample("scaled_product", (3, 4), (4,), factor=0.7, integer=False,
       torch=lambda torch, x, y, factor=1.0: x * y * factor,
       reference=lambda np, x, y, factor=1.0: x * y * factor)  # fmt: skip
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
sample("unsafe_view", (2, 6), shape=(3, 4), reference=lambda np, x, shape: x.reshape(shape),
       torch=lambda torch, x, shape: x.reshape(shape))  # fmt: skip
sample("permute", (2, 3, 4), dims=(2, 0, 1), reference=lambda np, x, dims: x.transpose(dims))
sample("permute", (), dims=())
sample("transpose", (2, 3, 4), dim0=0, dim1=2,
       reference=lambda np, x, dim0, dim1: x.swapaxes(dim0, dim1) if x.ndim else x)  # fmt: skip
sample("transpose", (), dim0=0, dim1=0)
sample("alias", (2, 3), reference=lambda np, x: x, torch=lambda torch, x: torch.ops.aten.alias(x))
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
for _k in range(4):
    sample("rot90", (2, 3, 4), k=_k, dims=(2, 0),
           reference=lambda np, x, k, dims: np.rot90(x, k, dims))  # fmt: skip
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

sample(
    "index", (4, 5), indices=([0, 2, 2], slice(1, 3)),
    reference=lambda np, x, indices: x[indices], torch=lambda torch, x, indices: x[indices],
)  # fmt: skip
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


sample("named_by", integers((4,), 6), size=6,
       reference=lambda np, index, size: np.isin(np.arange(size), index),
       torch=lambda torch, index, size: torch.zeros(size, dtype=torch.bool).index_fill(
           0, index, True))  # fmt: skip
sample(
    "one_hot",
    integers((2, 3), 6),
    num_classes=6,
    reference=lambda np, x, num_classes: np.eye(num_classes, dtype=np.int64)[x],
    torch=lambda torch, x, num_classes: torch.nn.functional.one_hot(x, num_classes),
)
sample("index_zero", (4, 5), indices=([0, 2],), reference=_zeroed,
       torch=lambda torch, x, indices: torch.index_put(
           x, tuple(map(torch.tensor, indices)), torch.zeros((), dtype=x.dtype)))  # fmt: skip
sample(
    "not_implemented",
    (2, 3),
    integers((2, 3)),
    function="f",
    integer=False,
    reference=lambda np, x, of, function: x,
    torch=lambda torch, x, of, function: x * 1,
)
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
# complex: the engine conjugates, which PyTorch's does itself
sample("tanh_backward", (3, 4), unit((3, 4)), reference=lambda np, g, y: g * (1 - y * y),
       torch=lambda torch, g, y: torch.ops.aten.tanh_backward(g, y.conj()))  # fmt: skip
sample("linear", (4, 3), (2, 3), (2,),
       reference=lambda np, x, w, b=None: x @ w.T + (0 if b is None else b),
       torch=lambda torch, x, w, b=None: torch.nn.functional.linear(x, w, b))  # fmt: skip
sample("linear", (2, 4, 3), (2, 3), None)
sample("linear", (3,), (2, 3), (2,))
sample("linear", (0, 3), (2, 3), (2,))
sample("linear_weight", (4, 2), (4, 3),
       reference=lambda np, g, x: g.reshape(-1, g.shape[-1]).T @ x.reshape(-1, x.shape[-1]),
       torch=lambda torch, g, x: torch.einsum("...i,...j->ij", g, x))  # fmt: skip
sample("linear_weight", (2, 4, 2), (2, 4, 3))
sample("linear_weight", (2,), (3,))
sample("linear_weight", (0, 2), (0, 3))


# conv --------------------------------------------------------------------------------------------


def _windows(np, x, kernel, stride, padding, dilation):
    """For each output position: its index and the slices of padded x that it reads."""
    n = len(kernel)
    as_tuple = lambda v: (v,) * n if isinstance(v, int) else tuple(v)
    stride, padding, dilation = map(as_tuple, (stride, padding, dilation))
    padded = np.pad(x, ((0, 0), (0, 0), *[(p, p) for p in padding]))
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation)]
    counts = [(s - r) // t + 1 for s, r, t in zip(padded.shape[2:], reach, stride)]
    slices = {
        at: tuple(slice(i * t, i * t + r, d) for i, t, r, d in zip(at, stride, reach, dilation))
        for at in np.ndindex(*counts)
    }
    inner = tuple(slice(p, p + s) for p, s in zip(padding, x.shape[2:]))
    return padded, counts, slices, inner


def _convolution(np, x, w, b=None, stride=1, padding=0, dilation=1, groups=1):
    padded, counts, slices, _ = _windows(np, x, w.shape[2:], stride, padding, dilation)
    out = np.zeros((len(x), len(w), *counts), np.result_type(x, w))
    for group in range(groups):
        i, o = (slice(group * n // groups, (group + 1) * n // groups) for n in (x.shape[1], len(w)))
        for at, window in slices.items():
            patch = padded[(slice(None), i, *window)]
            axes = range(1, patch.ndim)
            out[(slice(None), o, *at)] = np.tensordot(patch, w[o], (axes, axes))
    return out if b is None else out + b.reshape((-1,) + (1,) * (x.ndim - 2))


def _convolution_input(np, g, w, input_size, stride=1, padding=0, dilation=1, groups=1):
    x = np.zeros((len(g), w.shape[1] * groups, *input_size), np.result_type(g, w))
    padded, _, slices, inner = _windows(np, x, w.shape[2:], stride, padding, dilation)
    for group in range(groups):
        i, o = (slice(group * n // groups, (group + 1) * n // groups) for n in (x.shape[1], len(w)))
        for at, window in slices.items():
            padded[(slice(None), i, *window)] += np.tensordot(g[(slice(None), o, *at)], w[o], 1)
    return padded[(..., *inner)]


def _convolution_weight(np, g, x, kernel_size, stride=1, padding=0, dilation=1, groups=1):
    padded, _, slices, _ = _windows(np, x, kernel_size, stride, padding, dilation)
    w = np.zeros((g.shape[1], x.shape[1] // groups, *kernel_size), np.result_type(g, x))
    for group in range(groups):
        i, o = (slice(group * n // groups, (group + 1) * n // groups) for n in (x.shape[1], len(w)))
        for at, window in slices.items():
            patch = padded[(slice(None), i, *window)]
            w[o] += np.tensordot(g[(slice(None), o, *at)], patch, ((0,), (0,)))
    return w


def _torch_convolution(torch, x, w, b=None, **how):
    return getattr(torch, f"conv{x.ndim - 2}d")(x, w, b, **how)


def _torch_convolution_input(torch, g, w, input_size, **how):
    x = torch.zeros((len(g), w.shape[1] * how.get("groups", 1), *input_size), dtype=g.dtype)
    x.requires_grad_(True)
    y = _torch_convolution(torch, x, w.conj(), **how)
    return torch.autograd.grad(y, x, g, create_graph=True)[0]


def _torch_convolution_weight(torch, g, x, kernel_size, **how):
    shape = (g.shape[1], x.shape[1] // how.get("groups", 1), *kernel_size)
    w = torch.zeros(shape, dtype=g.dtype, requires_grad=True)
    y = _torch_convolution(torch, x.conj(), w, **how)
    return torch.autograd.grad(y, w, g, create_graph=True)[0]


for _size, _kernel, _out, _how in (
    ((7,), (3,), (5,), {}),
    ((7,), (2,), (4,), {"stride": (2,), "padding": (1,), "groups": 2}),
    ((5, 4), (3, 2), (5, 3), {"padding": (1, 0)}),
    ((5, 4), (1, 1), (5, 4), {}),
    ((5, 4), (1, 1), (3, 2), {"stride": (2, 2)}),
    ((6, 5), (2, 3), (3, 3), {"stride": (2, 1), "dilation": (1, 2), "padding": (0, 1)}),
    ((2, 3), (1, 2), (6, 4), {"padding": (2, 1)}),
    ((3, 4, 3), (2, 2, 2), (2, 3, 2), {}),
    ((3, 4, 3), (2, 1, 3), (2, 2, 3), {"stride": (1, 2, 1), "padding": (0, 0, 1), "groups": 2}),
):  # fmt: skip
    _w, _y = (6, 4 // _how.get("groups", 1), *_kernel), (2, 6, *_out)
    sample("convolution", (2, 4, *_size), _w, (6,), **_how, reference=_convolution,
           torch=_torch_convolution)  # fmt: skip
    sample("convolution_input", _y, _w, input_size=_size, **_how, reference=_convolution_input,
           torch=_torch_convolution_input)  # fmt: skip
    sample("convolution_weight", _y, (2, 4, *_size), kernel_size=_kernel, **_how,
           reference=_convolution_weight, torch=_torch_convolution_weight)  # fmt: skip
sample("convolution", (2, 4, 5, 5), (6, 4, 3, 3), None)
sample("convolution", (2, 3, 5, 5), (6, 1, 2, 2), None, groups=3)
sample("convolution", (0, 2, 4, 4), (3, 2, 2, 2), (3,))


def _max_pool(np, x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
    """The windows as PyTorch lays them; ties and NaN are tested against PyTorch itself."""
    n = x.ndim - 2
    stride = kernel_size if stride is None else stride
    size, reach = x.shape[2:], dilation * (kernel_size - 1) + 1
    rounding = -1 if ceil_mode else 1
    counts = [rounding * ((rounding * (s + 2 * padding - reach)) // stride) + 1 for s in size]
    counts = [c - (ceil_mode and (c - 1) * stride >= s + padding) for c, s in zip(counts, size)]
    values = np.zeros((*x.shape[:2], *counts))
    numbers = np.zeros(values.shape, np.uint8)
    for at in np.ndindex(values.shape):
        best = (-np.inf, 0)
        for k in np.ndindex((kernel_size,) * n):
            here = [a * stride - padding + i * dilation for a, i in zip(at[2:], k)]
            if all(0 <= h < s for h, s in zip(here, size)) and x[(*at[:2], *here)] > best[0]:
                best = (x[(*at[:2], *here)], np.ravel_multi_index(k, (kernel_size,) * n))
        values[at], numbers[at] = best
    return values, numbers


def _torch_max_pool(torch, x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
    n = x.ndim - 2
    how = (kernel_size, stride, padding, dilation, ceil_mode)
    pool = getattr(torch.nn.functional, f"max_pool{n}d")
    values, indices = pool(x, *how, return_indices=True)
    numbers = 0
    for axis, at in enumerate(torch.unravel_index(indices, x.shape[2:])):
        window = torch.arange(values.shape[2 + axis]).reshape((-1,) + (1,) * (n - 1 - axis))
        cell = (at - window * (kernel_size if stride is None else stride) + padding) // dilation
        numbers = numbers * kernel_size + cell
    return values, numbers.to(torch.uint8)


def _max_pool_indices(np, offsets, input_size, kernel_size, stride=None, padding=0, dilation=1):
    stride, n = kernel_size if stride is None else stride, len(input_size)
    found = np.zeros(offsets.shape, np.int64)
    for at in np.ndindex(offsets.shape):
        cell = np.unravel_index(offsets[at], (kernel_size,) * n)
        here = [a * stride - padding + i * dilation for a, i in zip(at[-n:], cell)]
        found[at] = np.ravel_multi_index(here, input_size)
    return found


def _average(np, x, kernel_size, **how):
    """By the gradient of the sum of each window, one output at a time."""
    n = x.ndim - 2
    override, inside = how.get("divisor_override"), how.get("count_include_pad", True)
    stride, padding = how.get("stride") or kernel_size, how.get("padding", 0)
    count = lambda s: (s + 2 * padding - kernel_size) // stride + 1
    if how.get("ceil_mode"):
        full = lambda s: -((kernel_size - s - 2 * padding) // stride) + 1
        count = lambda s: full(s) - ((full(s) - 1) * stride >= s + padding)
    out = np.zeros((*x.shape[:2], *map(count, x.shape[2:])), x.dtype)
    for at in np.ndindex(out.shape[2:]):
        ends = [(a * stride - padding, min(a * stride - padding + kernel_size, s + padding))
                for a, s in zip(at, x.shape[2:])]  # fmt: skip
        real = [(max(low, 0), min(high, s)) for (low, high), s in zip(ends, x.shape[2:])]
        divisor = np.prod([high - low for low, high in (ends if inside else real)])
        window = x[(..., *[slice(low, high) for low, high in real])]
        out[(..., *at)] = window.sum(tuple(range(-n, 0))) / (override or divisor)
    return out


def _average_backward(np, g, input_size, kernel_size, **how):
    out = np.zeros((*g.shape[:2], *input_size), g.dtype)
    for at in np.ndindex(*input_size):
        one = np.zeros((1, 1, *input_size))
        one[(0, 0, *at)] = 1
        out[(..., *at)] = (g * _average(np, one, kernel_size, **how)).sum(tuple(range(2, g.ndim)))
    return out


def _torch_average_backward(torch, g, input_size, kernel_size, **how):
    x = torch.zeros((*g.shape[:2], *input_size), dtype=g.dtype, requires_grad=True)
    y = getattr(torch.nn.functional, f"avg_pool{len(input_size)}d")(x, kernel_size, **how)
    return torch.autograd.grad(y, x, g, create_graph=True)[0]


for _n, _size in ((1, (7,)), (2, (6, 5)), (3, (4, 5, 4))):
    for _how in (
        {"kernel_size": 2},
        {"kernel_size": 3, "stride": 1, "padding": 1},
        {"kernel_size": 2, "stride": 2, "dilation": 2, "ceil_mode": True},
    ):
        sample(f"max_pool{_n}d_with_indices", distinct((2, 3, *_size)), **_how, reference=_max_pool,
               torch=_torch_max_pool)  # fmt: skip
    for _how in (
        {"kernel_size": 2},
        {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
        {"kernel_size": 3, "stride": 1, "padding": 1, "count_include_pad": False},
    ):
        sample(f"avg_pool{_n}d", (2, 3, *_size), **_how, reference=_average,
               torch=lambda torch, x, _n=_n, **how: getattr(torch.nn.functional, f"avg_pool{_n}d")(
                   x, **how))  # fmt: skip
sample("avg_pool2d", (2, 3, 4, 4), kernel_size=3, divisor_override=5)
sample("avg_pool_backward", (2, 3, 3), input_size=(7,), kernel_size=2, reference=_average_backward,
       torch=_torch_average_backward)  # fmt: skip
sample("avg_pool_backward", (2, 3, 4, 3), input_size=(6, 5), kernel_size=3, stride=2, padding=1,
       ceil_mode=True)  # fmt: skip


def _nearest(np, x, sizes, steps, half):
    for axis, (out, step) in enumerate(zip(sizes, steps), x.ndim - len(sizes)):
        places = (np.arange(out) + half).astype("float32") * np.float32(step)
        x = x.take(np.minimum(np.floor(places), x.shape[axis] - 1).astype(int), axis)
    return x


def _nearest_backward(np, g, sizes, steps, half):
    out = np.zeros((*g.shape[: g.ndim - len(sizes)], *sizes), g.dtype)
    for at in np.ndindex(*sizes):
        one = np.zeros((*out.shape[: -len(sizes)], *sizes))
        one[(..., *at)] = 1
        read = _nearest(np, one, g.shape[-len(sizes) :], steps, half)
        out[(..., *at)] = (g * read).sum(tuple(range(-len(sizes), 0)))
    return out


def _torch_nearest(torch, x, sizes, steps, half):
    mode = "nearest-exact" if half else "nearest"
    return torch.nn.functional.interpolate(x, sizes, mode=mode)


def _torch_nearest_backward(torch, g, sizes, steps, half):
    x = torch.zeros((*g.shape[:2], *sizes), dtype=g.dtype, requires_grad=True)
    y = _torch_nearest(torch, x, tuple(g.shape[2:]), steps, half)
    return torch.autograd.grad(y, x, g, create_graph=True)[0]


for _size, _sizes, _half in (((5,), (7,), 0.0), ((4, 3), (8, 7), 0.5), ((4, 5), (2, 10), 0.0),
                             ((2, 3, 3), (4, 3, 2), 0.5)):  # fmt: skip
    _steps = tuple(n / m for n, m in zip(_size, _sizes))
    sample("upsample_nearest", (2, 3, *_size), sizes=_sizes, steps=_steps, half=_half,
           reference=_nearest, torch=_torch_nearest)  # fmt: skip
    sample("upsample_nearest_backward", (2, 3, *_sizes), sizes=_size, steps=_steps, half=_half,
           reference=_nearest_backward, torch=_torch_nearest_backward)  # fmt: skip
REAL_ONLY |= {"upsample_nearest", "upsample_nearest_backward"}


def _unpool(np, g, indices, input_size, overlap=True):
    out = np.zeros((*g.shape[:2], *input_size), g.dtype)
    for at in np.ndindex(g.shape):
        out[(*at[:2], *np.unravel_index(indices[at], input_size))] += g[at]
    return out


def _torch_unpool(torch, g, indices, input_size, overlap=True):
    planes = torch.zeros((*g.shape[:2], math.prod(input_size)), dtype=g.dtype)
    added = planes.scatter_add(2, indices.flatten(2), g.flatten(2))
    return added.unflatten(2, input_size)


sample("max_pool_indices", exactly(np.array([[[0, 3, 1], [2, 2, 0]]], np.uint8)),
       input_size=(4, 6), kernel_size=2, reference=_max_pool_indices,
       torch=lambda torch, x, *args, **how: torch.from_numpy(
           _max_pool_indices(np, x.numpy(), *args, **how)))  # fmt: skip
sample("max_pool_indices", exactly(np.array([[[8, 4, 3]]], np.uint8)), input_size=(3, 7),
       kernel_size=3, stride=2, padding=1)  # fmt: skip
sample("max_pool_backward", (2, 3, 2, 2), integers((2, 3, 2, 2), 20), input_size=(4, 5),
       reference=_unpool, torch=_torch_unpool)  # fmt: skip
sample("max_pool_backward", (2, 1, 3), exactly([[[1, 0, 4]], [[2, 3, 0]]]), input_size=(5,),
       overlap=False)  # fmt: skip
sample("max_pool_gather", (2, 3, 4, 5), integers((2, 3, 2, 2), 20), n=2,
       reference=lambda np, x, indices, n: np.take_along_axis(
           x.reshape(2, 3, 20), indices.reshape(2, 3, 4), 2).reshape(indices.shape),
       torch=lambda torch, x, indices, n: torch.gather(
           x.flatten(2), 2, indices.flatten(2)).view_as(indices))  # fmt: skip


def _adaptive_maxima(np, x, sizes):
    """Windows from floor(i size / n) on, to ceil((i + 1) size / n)."""
    extents = x.shape[2:]
    values = np.zeros((*x.shape[:2], *sizes))
    indices = np.zeros(values.shape, np.uint8)
    for at in np.ndindex(values.shape):
        spans = [range(i * s // n, -(-(i + 1) * s // n)) for i, s, n in zip(at[2:], extents, sizes)]
        places = [np.ravel_multi_index(p, extents) for p in itertools.product(*spans)]
        plane = x[at[:2]].reshape(-1)
        best = max(places, key=lambda p: plane[p])
        values[at], indices[at] = plane[best], best
    return values, indices


def _torch_adaptive_maxima(torch, x, sizes):
    pool = getattr(torch.nn.functional, f"adaptive_max_pool{len(sizes)}d")
    values, indices = pool(x, sizes, return_indices=True)
    return values, indices.to(torch.uint8)


for _n, _size, _sizes in ((1, (7,), (3,)), (2, (6, 5), (4, 7)), (3, (4, 5, 4), (3, 2, 4))):
    sample(f"adaptive_max_pool{_n}d_with_indices", distinct((2, 3, *_size)), sizes=_sizes,
           reference=_adaptive_maxima, torch=_torch_adaptive_maxima)  # fmt: skip


def _fractional_maxima(np, x, samples, kernel_size, sizes):
    """Windows from floor((i + u) step) - floor(u step) on, and the last where the plane ends."""
    extents, n = x.shape[2:], len(sizes)
    values = np.zeros((*x.shape[:2], *sizes))
    indices = np.zeros(values.shape, np.uint8)
    for at in np.ndindex(values.shape):
        spans = []
        for d, (i, size, k, out) in enumerate(zip(at[2:], extents, kernel_size, sizes)):
            u = samples[at[:2]][n - 1 - d if n == 2 else d]
            step = (size - k) / (out - 1) if out > 1 else 0.0
            begin = size - k if i == out - 1 else int((i + u) * step) - int(u * step)
            spans.append(range(begin, begin + k))
        places = [np.ravel_multi_index(p, extents) for p in itertools.product(*spans)]
        plane = x[at[:2]].reshape(-1)
        best = max(places, key=lambda p: plane[p])
        values[at], indices[at] = plane[best], best
    return values, indices


def _torch_fractional_maxima(torch, x, samples, kernel_size, sizes):
    pool = getattr(torch.nn.functional, f"fractional_max_pool{len(sizes)}d")
    values, indices = pool(x, kernel_size, sizes, return_indices=True,
                           _random_samples=samples.to(x.dtype))  # fmt: skip
    return values, indices.to(torch.uint8)


for _n, _size, _sizes in ((2, (6, 5), (4, 2)), (3, (4, 5, 4), (2, 2, 1))):
    _drawn = np.random.default_rng(_n).random((2, 3, _n))
    sample(f"fractional_max_pool{_n}d_with_indices", distinct((2, 3, *_size)), exactly(_drawn),
           kernel_size=(2, 3, 2)[:_n], sizes=_sizes, reference=_fractional_maxima,
           torch=_torch_fractional_maxima)  # fmt: skip
REAL_ONLY |= {f"fractional_max_pool{_n}d_with_indices" for _n in (2, 3)}
REAL_ONLY |= {f"{_how}max_pool{_n}d_with_indices" for _n in (1, 2, 3) for _how in ("", "adaptive_")}


# activations and special functions ---------------------------------------------------------------


def _nn(function, **fixed):
    """A function of torch.nn.functional, with the inputs by position."""
    return lambda torch, *inputs, **params: getattr(torch.nn.functional, function)(
        *inputs, **params, **fixed)  # fmt: skip


def _sigmoid(np, x):
    return 1 / (1 + np.exp(-x))


def _gelu(np, x, approximate="none"):
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * np.vectorize(math.erfc, "d")(-x / math.sqrt(2))


def _celu(np, x, alpha=1.0):
    return np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha))


sample("gelu", (3, 4), reference=_gelu)
sample("gelu", (3, 4), approximate="tanh")
sample("silu", (3, 4), reference=lambda np, x: x * _sigmoid(np, x))
sample("silu", exactly([-1000.0, 1000.0, 0.0]))
sample("softplus", (3, 4), torch=_nn("softplus"), reference=lambda np, x, beta=1, threshold=20: (
    np.where(x * beta > threshold, x, np.log1p(np.exp(x * beta)) / beta)))  # fmt: skip
sample("softplus", away((3, 4), 0.25), beta=2.0, threshold=0.5)
sample("softplus", exactly([-1000.0, 1000.0, 0.0]))
sample("mish", (3, 4), reference=lambda np, x: x * np.tanh(np.log1p(np.exp(x))))
sample("mish", exactly([-700.0, 700.0, 0.0, 25.0]))


def _loss_of(name):
    return lambda torch, x, y, **how: getattr(torch.nn.functional, name)(
        x, y, reduction="none", **how)  # fmt: skip


_near = exactly([-3.0, -0.2, 0.4, 1.7]), exactly([0.25, 0.25, -0.125, 0.5])
sample("huber", *_near, delta=0.7, torch=_loss_of("huber_loss"),
       reference=lambda np, x, y, delta=1.0: np.where(
           np.abs(x - y) <= delta, (x - y) ** 2 / 2, (np.abs(x - y) - delta / 2) * delta)
       )  # fmt: skip
sample("smooth_l1", *_near, beta=0.7, torch=_loss_of("smooth_l1_loss"),
       reference=lambda np, x, y, beta=1.0: np.where(
           np.abs(x - y) < beta, (x - y) ** 2 / 2 / beta, np.abs(x - y) - beta / 2))  # fmt: skip
sample("along", (3, 4), (3, 4), positive((3, 1)), integer=False,
       reference=lambda np, g, x, norm: g * (x / norm),
       torch=lambda torch, g, x, norm: g * (x / norm))  # fmt: skip
sample("log_sigmoid", (3, 4), torch=_nn("logsigmoid"),
       reference=lambda np, x: -np.logaddexp(0, -x))  # fmt: skip
sample("log_sigmoid", exactly([-1000.0, 1000.0, 0.0]))
sample("elu", away((3, 4)), reference=lambda np, x, alpha=1, scale=1, input_scale=1: scale * (
    np.where(x > 0, x, alpha * np.expm1(x * input_scale))))  # fmt: skip
sample("elu", away((3, 4)), alpha=1.7, scale=1.1, input_scale=0.6)
sample("elu", exactly([-1000.0, 1000.0]))
sample("celu", away((3, 4)), reference=_celu)
sample("celu", (3, 4), alpha=0.5)
sample("leaky_relu", away((3, 4)), integer=False,
       reference=lambda np, x, negative_slope=0.01: np.where(x > 0, x, x * negative_slope)
       )  # fmt: skip
sample("leaky_relu", away((3, 4)), negative_slope=0.3, integer=False)
sample("prelu_kernel", away((3, 4)), (4,), integer=False,
       reference=lambda np, x, w: np.where(x > 0, x, w * x),
       torch=lambda torch, x, w: torch._prelu_kernel(x, w))  # fmt: skip
sample("hardtanh", away((3, 4), -1, 1), integer=False,
       reference=lambda np, x, min_val=-1, max_val=1: np.clip(x, min_val, max_val))  # fmt: skip
sample("hardtanh", away((3, 4), 0.2, 0.7), min_val=0.2, max_val=0.7, integer=False)
sample("hardsigmoid", away((3, 4), -3, 3), reference=lambda np, x: np.clip(x / 6 + 0.5, 0, 1),
       torch=lambda torch, x: (x / 6 + 0.5).clamp(0, 1))  # fmt: skip  # its own has a float32 1/6
sample("hardswish", away((3, 4), -3, 3), reference=lambda np, x: x * np.clip(x / 6 + 0.5, 0, 1))
sample("hardswish", exactly([-4.0, -3.5, 3.5, 1.0]))
sample("hardshrink", away((3, 4), -0.5, 0.5), integer=False,
       reference=lambda np, x, lambd=0.5: np.where(abs(x) > lambd, x, 0))  # fmt: skip
sample("softshrink", away((3, 4), -0.5, 0.5), integer=False,
       reference=lambda np, x, lambd=0.5: np.sign(x) * np.maximum(abs(x) - lambd, 0))  # fmt: skip
sample("threshold", away((3, 4), 0.3), threshold=0.3, value=-2.0, integer=False,
       reference=lambda np, x, threshold, value: np.where(x > threshold, x, value))  # fmt: skip

sample("xlogy", (3, 4), positive((4,)), reference=lambda np, x, y: np.where(
    x == 0, 0, x * np.log(y)), torch=_torchs("xlogy"))  # fmt: skip
sample("xlogy", exactly([0.0, 0.0, 2.0]), exactly([1.0, 3.0, 2.0]))
sample("xlogy", (3,), 2.0)
sample("xlogy", 2.0, positive((3,)))
sample("logaddexp", (3, 4), (4,))
sample("logaddexp", exactly([1000.0, -1000.0]), exactly([1001.0, -999.0]))
sample("logaddexp2", (3, 4), (4,))
sample("logit", positive((3, 4), 0.1, 0.9), integer=False,
       reference=lambda np, x, eps=None: (lambda p: np.log(p / (1 - p)))(
           x if eps is None else np.clip(x, eps, 1 - eps)))  # fmt: skip
sample("logit", exactly([-0.5, 0.1, 0.3, 0.6, 0.85, 1.5]), eps=0.2)
# NumPy's log1p of an array with strides differs in the last bit.
sample("special_xlog1py", (3, 4), positive((4,)), strided=False,
       reference=lambda np, x, y: x * np.log1p(y),
       torch=lambda torch, x, y: torch.special.xlog1py(x, y))  # fmt: skip
sample("special_xlog1py", (3,), 2.0)
sample("special_entr", positive((3, 4)), reference=lambda np, x: -x * np.log(x))
sample("erfc", (3, 4), reference=lambda np, x: np.vectorize(math.erfc, "d")(x))
sample("erfc", exactly([6.0, -6.0, 0.0]))
sample("sinc", away((3, 4)))
sample("deg2rad", (3, 4))
sample("rad2deg", (3, 4))
sample("hypot", away((3, 4)), away((4,)))
sample("lerp", (3, 4), (4,), unit((3, 1)), integer=False,
       reference=lambda np, x, end, weight: x + weight * (end - x))  # fmt: skip
sample("lerp", (3, 4), (4,), 0.3, integer=False, torch=_torchs("lerp"))
sample("lerp", (3, 4), (4,), 0.7, integer=False, torch=_torchs("lerp"))
sample("addcmul", (3, 4), (4,), (3, 1),
       reference=lambda np, x, t1, t2, value=1: x + value * t1 * t2)  # fmt: skip
sample("addcmul", (3, 4), (4,), (3, 1), value=-3)
sample("addcmul", (3, 4), (4,), (3, 1), value=0.5, integer=False)
sample("addcdiv", (3, 4), (4,), positive((3, 1)),
       reference=lambda np, x, t1, t2, value=1: x + value * t1 / t2)  # fmt: skip
sample("addcdiv", (3, 4), (4,), positive((3, 1)), value=0.5)
sample("copysign", away((3, 4)), away((4,)), torch=_torchs("copysign"))
sample("copysign", away((3, 4)), -2.0)
for _name in ("fmax", "fmin"):
    sample(_name, distinct((3, 4)), unit((4,), 0.05))
    sample(_name, exactly([1.0, 2.0, 3.0]), exactly([2.0, 2.5, -1.0]))
for _name, _function in (("clamp_min", "maximum"), ("clamp_max", "minimum")):
    sample(_name, distinct((3, 4)), unit((4,), 0.05), reference=_is(_function),
           torch=_torchs(_name))  # fmt: skip
    sample(_name, away((3, 4), 0.3), 0.3)
sample("frac", away((3, 4), -2, -1, 0, 1, 2, gap=0.01), integer=False,
       reference=lambda np, x: x - np.trunc(x))  # fmt: skip
sample("nan_to_num", (3, 4), reference=lambda np, x, **to: np.nan_to_num(x, **to))
sample("heaviside", away((3, 4)), (4,))
sample("heaviside", exactly([-1.0, 0.0, 2.0]), exactly([0.3, 0.5, 0.7]))
sample("signbit", exactly([-1.0, 0.0, -0.0, 2.0, -float("inf")]))
for _name in ("isposinf", "isneginf"):
    sample(_name, exactly([0.0, float("nan"), float("inf"), -float("inf")]))
for _name in ("left_shift", "right_shift"):
    sample("bitwise_" + _name, integers((3, 4)), integers((4,), 5), reference=_is(_name))
for _name in ("gcd", "lcm"):
    sample(_name, integers((3, 4)), integers((4,)))
sample("binary_cross_entropy_each", positive((3, 4), 0.1, 0.9), positive((4,), 0.1, 0.9),
       integer=False, reference=lambda np, x, t: -(t * np.log(x) + (1 - t) * np.log(1 - x)),
       torch=lambda torch, x, t: torch.nn.functional.binary_cross_entropy(
           *torch.broadcast_tensors(x, t), reduction="none"))  # fmt: skip
sample("binary_cross_entropy_each", exactly([0.3, 0.9]), exactly([0.0, 1.0]))
sample("binary_cross_entropy_with_logits_each", (3, 4), positive((4,), 0.1, 0.9), integer=False,
       reference=lambda np, x, t: np.logaddexp(0, -x) + (1 - t) * x,
       torch=lambda torch, x, t: torch.nn.functional.binary_cross_entropy_with_logits(
           *torch.broadcast_tensors(x, t), reduction="none"))  # fmt: skip
sample("binary_cross_entropy_with_logits_each", exactly([-1000.0, 1000.0, 0.0]),
       exactly([0.0, 1.0, 0.5]))  # fmt: skip
sample("cumprod", (3, 4), dim=1, reference=lambda np, x, dim: np.cumprod(x, dim))
sample("cumprod", exactly([[1.5, 0.0, -2.0, 0.5, 3.0], [0.0, 0.0, 2.0, 1.0, -1.0]]), dim=1)
sample("cumprod", (7, 2), dim=0)
sample("cumprod", (2, 1), dim=1)
sample("cumprod", (2, 0), dim=1)

REAL_ONLY |= {
    "gelu", "silu", "softplus", "mish", "log_sigmoid", "elu", "celu", "leaky_relu", "prelu_kernel",
    "huber", "smooth_l1", "along", "binary_cross_entropy_with_logits_each",
    "hardtanh", "hardsigmoid", "hardswish", "hardshrink", "softshrink", "threshold", "xlogy",
    "logaddexp", "logaddexp2", "logit", "erfc", "deg2rad", "rad2deg", "hypot", "copysign", "fmax",
    "fmin", "clamp_min", "clamp_max", "frac", "nan_to_num", "heaviside", "signbit", "isposinf",
    "isneginf", "binary_cross_entropy_each", "bitwise_left_shift", "bitwise_right_shift", "gcd",
    "lcm", "special_entr", "special_xlog1py",
}  # fmt: skip


# decompose ---------------------------------------------------------------------------------------


def regular(shape):
    """Matrices far from singular, with singular values well apart."""

    def draw(rng, s):
        n = min(s[-2:])
        steps = np.zeros(s[-2:])
        steps[np.arange(n), np.arange(n)] = np.arange(2, n + 2) * 1.5
        return rng.standard_normal(s) * 0.5 + steps

    return Input(shape, draw, "regular")


def definite(shape):
    """Matrices with a positive-definite Hermitian part, its eigenvalues well apart."""
    return Input(
        shape, lambda rng, s: rng.standard_normal(s) * 0.2 + np.diag(np.arange(1, s[-1] + 1.0)),
        "definite",
    )  # fmt: skip


def _mH(x):
    return x.conj().swapaxes(-1, -2)


def _half(x):
    return (x + _mH(x)) / 2


def _torch_svd(torch, A, full_matrices):
    """With the signs that LAPACK gives NumPy."""
    U, S, Vh = torch.linalg.svd(A, full_matrices)
    theirs = torch.linalg.vecdot(torch.from_numpy(np.linalg.svd(A.detach().numpy(), False)[0]), U,
                                 dim=-2).sign()  # fmt: skip
    return U * theirs[..., None, :], S, Vh * theirs[..., None]


def _triangle(np, A, upper, unitriangular):
    A = (np.triu if upper else np.tril)(A)
    if unitriangular:
        eye = np.eye(A.shape[-1])
        A = A * (1 - eye) + eye
    return A


def _solved(np, A, B, left=True):
    inverse = np.linalg.inv(A)
    return inverse @ B if left else B @ inverse


for _shape in ((3, 3), (2, 1, 2, 2), (2, 0, 0)):
    sample("linalg_inv", regular(_shape), reference=lambda np, A: np.linalg.inv(A),
           torch=lambda torch, A: torch.linalg.inv(A))  # fmt: skip
for _left in (True, False):
    sample("linalg_solve", regular((2, 3, 3)), (2, 3, 3), left=_left, reference=_solved)
sample("linalg_solve", regular((2, 2)), (2, 4))
for _upper, _left, _unit in ((True, True, False), (False, True, True), (True, False, True),
                             (False, False, False)):  # fmt: skip
    sample(
        "linalg_solve_triangular", regular((2, 3, 3)), (2, 3, 3), upper=_upper, left=_left,
        unitriangular=_unit,
        reference=lambda np, A, B, upper, left=True, unitriangular=False: _solved(
            np, _triangle(np, A, upper, unitriangular), B, left),
    )  # fmt: skip
sample("linalg_solve_triangular", regular((2, 2)), (2, 4), upper=False)
for _shape in ((3, 3), (2, 2, 2), (1, 1)):
    sample("linalg_det", regular(_shape), reference=lambda np, A: np.linalg.det(A))
    sample("linalg_slogdet", regular(_shape), reference=lambda np, A: tuple(np.linalg.slogdet(A)))
    sample(
        "linalg_cofactor", regular(_shape),
        reference=lambda np, A: (
            np.linalg.det(A)[..., None, None] * np.linalg.inv(A).swapaxes(-1, -2)),
        torch=lambda torch, A: torch.linalg.det(A)[..., None, None] * torch.linalg.inv(A).mT,
    )  # fmt: skip
    sample("linalg_cholesky", definite(_shape), upper=_shape == (2, 2, 2), integer=False,
           reference=lambda np, A, upper=False: (
               _mH(np.linalg.cholesky(_half(A))) if upper else np.linalg.cholesky(_half(A))),
           torch=lambda torch, A, upper: torch.linalg.cholesky(_half(A), upper=upper))  # fmt: skip
    sample("linalg_eigvalsh", definite(_shape), integer=False,
           reference=lambda np, A: np.linalg.eigvalsh(_half(A)),
           torch=lambda torch, A: torch.linalg.eigvalsh(_half(A)))  # fmt: skip
    sample("linalg_eigh", definite(_shape), integer=False,
           reference=lambda np, A: tuple(np.linalg.eigh(_half(A))),
           torch=lambda torch, A: torch.linalg.eigh(_half(A)))  # fmt: skip
for _shape in ((3, 3), (2, 3, 2), (2, 4)):
    sample("linalg_svdvals", regular(_shape),
           reference=lambda np, A: np.linalg.svd(A, compute_uv=False))  # fmt: skip
    sample("linalg_svd", regular(_shape), full_matrices=False,
           reference=lambda np, A, full_matrices: tuple(np.linalg.svd(A, full_matrices)),
           torch=_torch_svd)  # fmt: skip
    sample("linalg_qr", regular(_shape), mode="reduced",
           reference=lambda np, A, mode: tuple(np.linalg.qr(A, mode)))  # fmt: skip
    sample("linalg_pinv", regular(_shape), atol=0.1,
           reference=lambda np, A, atol, hermitian=False: np.linalg.pinv(
               _half(A) if hermitian else A),
           torch=lambda torch, A, atol, hermitian=False: torch.linalg.pinv(
               _half(A) if hermitian else A, atol=atol, hermitian=hermitian))  # fmt: skip
sample("linalg_qr", regular((2, 4)), mode="complete")
for _shapes in (((2, 3), (2, 3)), ((4, 2, 3), (4, 2, 3))):
    sample("linalg_cross", *_shapes, reference=lambda np, x, y: np.cross(x, y))
sample("linalg_cross", (3, 2), (3, 2), dim=-2,
       reference=lambda np, x, y, dim=-1: np.cross(x, y, axis=dim))  # fmt: skip


def _expm(np, A):
    """The series at a small part of A, squared."""
    term = out = np.broadcast_to(np.eye(A.shape[-1]), A.shape)
    for k in range(1, 20):
        term = term @ (A / 256) / k
        out = out + term
    for _ in range(8):
        out = out @ out
    return out


sample("linalg_matrix_exp", (3, 3), reference=_expm)
sample("linalg_matrix_exp", regular((2, 2, 2)))
sample("linalg_matrix_exp", (1, 1))

REAL_ONLY |= {"linalg_eigh", "linalg_svd"}  # complex vectors have a phase: functions/test_linalg.py

# Rows whose vectors have signs that differ between devices, and between a matrix and a stack: which
# outputs hold them, and the dim that they lie along.
SIGNS: dict[str, dict[int, int]] = {"linalg_eigh": {1: -2}, "linalg_svd": {0: -2, 2: -1}}


def with_signs(row, outputs):
    """The outputs, arrays of NumPy's, with vectors whose largest element is positive."""
    if row not in SIGNS:
        return outputs
    vectors = outputs[min(SIGNS[row])]
    largest = np.abs(vectors).argmax(-2, keepdims=True)
    signs = np.sign(np.take_along_axis(vectors, largest, -2))
    by_dim = {None: 1, -2: signs, -1: signs.swapaxes(-1, -2)}
    return [x * by_dim[SIGNS[row].get(i)] for i, x in enumerate(outputs)]


NO_HALF |= dict.fromkeys(
    [name for name in TABLE if name.startswith("linalg_") and name != "linalg_vector_norm"
     and name != "linalg_cross"],
    "neither LAPACK nor PyTorch has it",
)  # fmt: skip

# fft ---------------------------------------------------------------------------------------------

_NORMS = (("backward", "ortho", "forward"), ("forward", "ortho", "backward"))


def _c2c(np, x, dim, normalization, forward):
    transform = np.fft.fftn if forward else np.fft.ifftn
    return transform(x, axes=dim, norm=_NORMS[not forward][normalization])


def _r2c(np, x, dim, normalization, onesided):
    out = np.fft.fftn(x, axes=dim, norm=_NORMS[0][normalization])
    return np.take(out, range(x.shape[dim[-1]] // 2 + 1), dim[-1]) if onesided else out


def _c2r(np, x, dim, normalization, last_dim_size):
    sizes = [x.shape[d] for d in dim[:-1]] + [last_dim_size]
    return np.fft.irfftn(x, sizes, dim, _NORMS[1][normalization])


def _torch_c2r(torch, x, dim, normalization, last_dim_size):
    x = x if x.is_complex() else x.to(torch.promote_types(x.dtype, torch.complex64))
    return torch.ops.aten._fft_c2r(x, dim, normalization, last_dim_size)


for _shape, _dim in (((6,), (0,)), ((2, 5), (1,)), ((3, 4, 2), (2, 0, 1)), ((1, 3), (0,))):
    for _norm, _yes in enumerate((True, False, True)):
        sample("fft_c2c", _shape, integer=False, dim=_dim, normalization=_norm, forward=_yes,
               reference=_c2c, torch=lambda torch, x, **how: torch.ops.aten._fft_c2c(
                   x if x.is_complex() else x * (1 + 0j), *how.values()))  # fmt: skip
        sample("fft_r2c", _shape, integer=False, dim=_dim, normalization=_norm, onesided=_yes,
               reference=_r2c,
               torch=lambda torch, x, **how: torch.ops.aten._fft_r2c(x, *how.values()))  # fmt: skip
    for _norm, _odd in enumerate((1, 2, 2)):
        _size = 2 * _shape[_dim[-1]] - min(_odd, _shape[_dim[-1]])
        sample("fft_c2r", _shape, integer=False, dim=_dim, normalization=_norm,
               last_dim_size=_size, reference=_c2r, torch=_torch_c2r)  # fmt: skip
REAL_ONLY |= {"fft_r2c"}
NO_HALF |= dict.fromkeys(("fft_c2c", "fft_r2c", "fft_c2r"), "PyTorch's is for powers of 2, on GPUs")

# further families --------------------------------------------------------------------------------
# tests/ops/samples_<family>.py: `from tests import samples`, then `samples.REAL_ONLY |= {...}`

_NEEDS_SCIPY = importlib.util.find_spec("scipy") is None and "samples_special"

for _path in sorted(pathlib.Path(__file__).parent.glob("samples_*.py")):
    if _path.stem != _NEEDS_SCIPY:
        importlib.import_module(f"tests.ops.{_path.stem}")

if _NEEDS_SCIPY:  # the rows that it has lines for
    for _name in TABLE.keys() - LINES.keys() - NO_SAMPLE.keys():
        for _reasons in (NO_SAMPLE, NO_REFERENCE, NO_TORCH):
            _reasons[_name] = "SciPy is not installed"
