"""Sample lines of rows that view, cut, pad and scatter."""

from __future__ import annotations

import itertools

import numpy as np

from tests.ops import samples
from tests.ops.sampling import distinct, exactly, integers, sample

# Several views at once ----------------------------------------------------------------------------


def _unbind(np, x, dim=0):
    return tuple(np.moveaxis(x, dim, 0))


def _split(np, x, split_sizes, dim=0, even=False):
    return tuple(np.split(x, list(itertools.accumulate(split_sizes))[:-1], dim))


def _torch_split(torch, x, split_sizes, dim=0, even=False):
    return torch.split(x, list(split_sizes), dim)


sample("unbind", (3, 2), dim=0, reference=_unbind)
sample("unbind", (2, 3, 2), dim=1)
sample("unbind", (1, 2), dim=0)
sample("split_with_sizes", (4, 5), split_sizes=(2, 0, 3), dim=1, reference=_split,
       torch=_torch_split)  # fmt: skip
sample("split_with_sizes", (4, 2), split_sizes=(3, 1), dim=0, even=True, torch=_torch_split)
sample("split_with_sizes", (4,), split_sizes=(4,), dim=0, torch=_torch_split)

sample("new_zeros", (2, 3), shape=(4,), reference=lambda np, x, shape: np.zeros(shape, x.dtype),
       torch=lambda torch, x, shape: x.new_zeros(shape))  # fmt: skip
sample("new_ones", (2, 3), shape=(4,), reference=lambda np, x, shape: np.ones(shape, x.dtype),
       torch=lambda torch, x, shape: x.new_ones(shape))  # fmt: skip

# Strides ------------------------------------------------------------------------------------------


def _as_strided(np, x, size, stride, offset, layout):
    steps = [s * x.itemsize for s in stride]
    return np.lib.stride_tricks.as_strided(x.reshape(-1)[offset:], size, steps).copy()


def _as_strided_backward(np, grad, shape, size, stride, offset, layout):
    flat = np.zeros(np.prod(shape, dtype=int), grad.dtype)
    for at in itertools.product(*map(range, size)):
        flat[offset + sum(i * s for i, s in zip(at, stride))] += grad[at]
    return flat.reshape(shape)


for _size, _stride, _offset in (((2, 2), (4, 1), 1), ((3, 3), (1, 1), 2), ((2, 4), (0, 1), 0),
                                ((), (), 5), ((2, 0), (1, 1), 0)):  # fmt: skip
    sample("as_strided", (3, 4), size=_size, stride=_stride, offset=_offset, layout=(4, 1),
           reference=_as_strided, strided=False,
           torch=lambda torch, x, size, stride, offset, layout: torch.as_strided(
               x, size, stride, offset))  # fmt: skip
    sample("as_strided_backward", _size, shape=(3, 4), size=_size, stride=_stride, offset=_offset,
           layout=(4, 1), reference=_as_strided_backward)  # fmt: skip


def _unfold(np, x, dimension, size, step):
    windows = np.lib.stride_tricks.sliding_window_view(x, size, dimension)
    return windows[(slice(None),) * dimension + (slice(None, None, step),)]


def _unfold_backward(np, grad, shape, dimension, size, step):
    out = np.zeros(shape, grad.dtype)
    for i in range(grad.shape[dimension]):
        at = (slice(None),) * dimension
        out[(*at, slice(i * step, i * step + size))] += np.moveaxis(grad[(*at, i)], -1, dimension)
    return out


for _shape, _dim, _size, _step in (((7,), 0, 3, 2), ((2, 5), 1, 2, 1), ((6, 2), 0, 2, 3),
                                   ((4, 3), 0, 4, 1), ((2, 9), 1, 2, 1)):  # fmt: skip
    sample("unfold", _shape, dimension=_dim, size=_size, step=_step, reference=_unfold)
    _count = (_shape[_dim] - _size) // _step + 1
    sample("unfold_backward", (*_shape[:_dim], _count, *_shape[_dim + 1 :], _size), shape=_shape,
           dimension=_dim, size=_size, step=_step, reference=_unfold_backward,
           torch=lambda torch, g, shape, dimension, size, step: torch.ops.aten.unfold_backward(
               g, shape, dimension, size, step))  # fmt: skip

samples.NO_TORCH["as_strided_backward"] = "an adjoint that formulas call"

# Other dtypes -------------------------------------------------------------------------------------


def _complex(rng, shape):
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


_z = exactly(_complex(np.random.default_rng(0), (2, 3)))
sample("_conj", (3, 4), reference=lambda np, x: x.conj(), torch=lambda torch, x: x.conj())
sample("_neg_view", (3, 4), reference=lambda np, x: -x)
sample("view_as_real", _z, integer=False)
samples.NO_REFERENCE["view_as_real"] = "a complex sample is complex128 in every variant"
sample("view_as_complex", (2, 3, 2), integer=False, strided=False,
       reference=lambda np, x: x[..., 0] + 1j * x[..., 1])  # fmt: skip
sample("view_dtype", (2, 8), dtype=np.dtype("int64"), strided=False, integer=False,
       torch=lambda torch, x, dtype: x.view(torch.int64))  # fmt: skip
samples.NO_REFERENCE["view_dtype"] = "bytes differ from those of the float64 of a reference"
samples.REAL_ONLY |= {"view_as_complex", "view_dtype"}
samples.NO_HALF["view_as_complex"] = "there is no complex half"

# Padding ------------------------------------------------------------------------------------------

_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _constant(np, x, pad, value=0):
    x = x[tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(pad, x.shape))]
    return np.pad(x, [(max(a, 0), max(b, 0)) for a, b in pad], constant_values=value)


def _flat(pad):
    return [n for pair in reversed(pad) for n in pair]


def _edges(np, x, pad, mode):
    return np.pad(x, pad, _MODES[mode])


def _edges_backward(np, grad, pad, mode):
    shape = tuple(n - a - b for (a, b), n in zip(pad, grad.shape))
    where = np.pad(np.arange(np.prod(shape)).reshape(shape), pad, _MODES[mode])
    out = np.zeros(np.prod(shape), grad.dtype)
    np.add.at(out, where.ravel(), grad.ravel())
    return out.reshape(shape)


def _torch_edges(torch, x, pad, mode):
    flat = _flat(pad)
    while flat[-2:] == [0, 0]:
        flat = flat[:-2]
    return torch.nn.functional.pad(x[None, None], flat, mode)[0, 0]


for _pad in (((1, 2), (0, 3)), ((-1, 1), (2, -2)), ((0, 0), (0, -3))):
    sample("constant_pad_nd", (3, 4), pad=_pad, reference=_constant,
           torch=lambda torch, x, pad: torch.constant_pad_nd(x, _flat(pad)))  # fmt: skip
sample("constant_pad_nd", (3,), pad=((1, 1),), value=2.5, integer=False,
       torch=lambda torch, x, pad, value: torch.constant_pad_nd(x, _flat(pad), value))  # fmt: skip
for _mode in _MODES:
    for _pad, _shape in ((((2, 1),), (4,)), (((1, 2), (3, 1)), (3, 4)),
                         (((0, 0), (3, 3)), (2, 4))):  # fmt: skip
        sample(
            "pad_edges",
            _shape,
            pad=_pad,
            mode=_mode,
            reference=_edges,
            integer=False,
            torch=_torch_edges
            if len(_shape) == sum(p != (0, 0) for p in _pad)
            else lambda torch, x, pad, mode: torch.nn.functional.pad(x[None], pad[-1], mode)[0],
        )
        _grown = tuple(n + a + b for n, (a, b) in zip(_shape, _pad))
        sample("pad_edges_backward", _grown, pad=_pad, mode=_mode, reference=_edges_backward)
samples.NO_TORCH["pad_edges_backward"] = "an adjoint that formulas call"

# Scattering ---------------------------------------------------------------------------------------


def _scatter_reduce(np, x, index, src, dim, reduce, include_self=True):
    out, seen = x.copy(), np.zeros(x.shape, bool)
    meet = {"prod": np.multiply, "amax": np.maximum, "amin": np.minimum}[reduce]
    for at in np.ndindex(index.shape):
        to = (*at[:dim], index[at], *at[dim + 1 :])
        fresh = not include_self and not seen[to]
        out[to] = src[at] if fresh else meet(out[to], src[at])
        seen[to] = True
    return out


def _torch_scatter_reduce(torch, x, index, src, dim, reduce, include_self=True):
    src = src[tuple(slice(0, n) for n in index.shape)]  # PyTorch's gradient wants equal shapes
    return torch.scatter_reduce(x, dim, index, src, reduce, include_self=include_self)


for _reduce in ("prod", "amax", "amin"):
    for _self in (True, False):
        sample("scatter_reduce", distinct((3, 4)), exactly([[0, 1, 1], [0, 0, 2]]),
               exactly([[1.03, -2.41, 3.3, 0.0], [0.77, -1.9, 4.2, 0.0], [2.0, 1.0, 3.0, 0.0]]),
               dim=0, reduce=_reduce, include_self=_self, reference=_scatter_reduce,
               torch=_torch_scatter_reduce)  # fmt: skip
    sample("scatter_reduce", distinct((2, 3)), integers((2, 4), 3), distinct((2, 5)), dim=1,
           reduce=_reduce, torch=_torch_scatter_reduce)  # fmt: skip
samples.REAL_ONLY |= {"scatter_reduce"}
