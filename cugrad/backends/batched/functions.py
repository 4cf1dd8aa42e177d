"""How single array functions compute on arrays with a hidden first dimension, for `vmap`."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..moments import track_moment
from .arrays import BatchedBackend, ValueDependent, raise_if_read
from .index import getitem, padded, placed, whole_index
from .rules import closed, flat, is_of, opened, rule, shifted


@rule("zeros", "empty", "ones")
def _made(backend: BatchedBackend, inner: Any, shape: Any, *args: Any, **kwargs: Any) -> Any:
    shape = shape if isinstance(shape, (tuple, list)) else (shape,)
    return closed(backend, inner((backend.level.size, *shape), *args, **kwargs))


@rule("full")
def _full(
    backend: BatchedBackend, inner: Any, shape: Any, value: Any, *args: Any, **kw: Any
) -> Any:
    shape = shape if isinstance(shape, (tuple, list)) else (shape,)
    if is_of(backend, value):
        value = padded(value.values, len(shape))
    return closed(backend, inner((backend.level.size, *shape), value, *args, **kw))


@rule("zeros_like", "empty_like", "ones_like", "full_like")
def _like(backend: BatchedBackend, inner: Any, a: Any, *args: Any, **kwargs: Any) -> Any:
    shape = kwargs.pop("shape", None)
    if shape is not None:
        kwargs["shape"] = (backend.level.size, *shape)
    return closed(backend, inner(opened(backend, a), *args, **kwargs))


@rule("array", "ascontiguousarray", "asfortranarray", "copy", "asarray")
def _copied(backend: BatchedBackend, inner: Any, a: Any, *args: Any, **kwargs: Any) -> Any:
    if not is_of(backend, a):
        return inner(a, *args, **kwargs)
    return closed(backend, inner(a.values, *args, **kwargs))


@rule("reshape")
def _reshape(backend: BatchedBackend, inner: Any, a: Any, shape: Any) -> Any:
    values = opened(backend, a)
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if -1 in shape:
        rest, total = prod(n for n in shape if n != -1), prod(values.shape[1:])
        shape = tuple([total // rest if n == -1 and rest else n for n in shape])
    return closed(backend, values.reshape((values.shape[0], *shape)))


@rule("ravel")
def _ravel(backend: BatchedBackend, inner: Any, a: Any) -> Any:
    return _reshape(backend, None, a, (-1,))


@rule("transpose")
def _transpose(backend: BatchedBackend, inner: Any, a: Any, axes: Any = None) -> Any:
    values = opened(backend, a)
    axes = tuple(range(values.ndim - 1))[::-1] if axes is None else axes
    moved = (0, *[x + 1 for x in (x % max(values.ndim - 1, 1) for x in axes)])
    return closed(backend, inner(values, moved))


@rule("swapaxes", "diagonal")
def _two_axes(backend: BatchedBackend, inner: Any, a: Any, *args: Any, **kwargs: Any) -> Any:
    values = opened(backend, a)
    ndim = values.ndim - 1
    if inner.__name__ == "swapaxes":
        return closed(backend, inner(values, *[shifted(x, ndim) for x in args]))
    options = {"offset": 0, "axis1": 0, "axis2": 1, **kwargs}
    options.update(zip(("offset", "axis1", "axis2"), args, strict=False))
    options.update({k: shifted(options[k], ndim) for k in ("axis1", "axis2")})
    return closed(backend, inner(values, **options))


@rule("moveaxis")
def _moveaxis(backend: BatchedBackend, inner: Any, a: Any, source: Any, destination: Any) -> Any:
    values = opened(backend, a)
    ndim = values.ndim - 1
    return closed(backend, inner(values, shifted(source, ndim), shifted(destination, ndim)))


@rule("expand_dims")
def _expand_dims(backend: BatchedBackend, inner: Any, a: Any, axis: Any) -> Any:
    values = opened(backend, a)
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    return closed(backend, inner(values, shifted(axis, values.ndim - 1 + count)))


@rule("squeeze")
def _squeeze(backend: BatchedBackend, inner: Any, a: Any, axis: Any = None) -> Any:
    values = opened(backend, a)
    if axis is None:
        axis = tuple(i for i, n in enumerate(values.shape[1:]) if n == 1)
    return closed(backend, inner(values, shifted(axis, values.ndim - 1)))


@rule("broadcast_to")
def _broadcast_to(backend: BatchedBackend, inner: Any, a: Any, shape: Any) -> Any:
    shape = tuple(shape)
    values = padded(opened(backend, a), len(shape))
    return closed(backend, inner(values, (values.shape[0], *shape)))


@rule("broadcast_arrays")
def _broadcast_arrays(backend: BatchedBackend, inner: Any, *arrays: Any) -> Any:
    shape = np.broadcast_shapes(*[a.shape for a in arrays])
    to = backend.parent.xp.broadcast_to
    return [_broadcast_to(backend, to, a, shape) for a in arrays]


@rule("concatenate")
def _concatenate(backend: BatchedBackend, inner: Any, arrays: Any, axis: int = 0, **kw: Any) -> Any:
    values = [opened(backend, a) for a in arrays]
    return closed(backend, inner(values, shifted(axis, values[0].ndim - 1), **kw))


@rule("stack")
def _stack(backend: BatchedBackend, inner: Any, arrays: Any, axis: int = 0) -> Any:
    values = [opened(backend, a) for a in arrays]
    return closed(backend, inner(values, shifted(axis, values[0].ndim)))


@rule("tile")
def _tile(backend: BatchedBackend, inner: Any, a: Any, reps: Any) -> Any:
    reps = tuple(reps) if isinstance(reps, (tuple, list)) else (reps,)
    values = padded(opened(backend, a), len(reps))
    reps = (1,) * (values.ndim - 1 - len(reps)) + reps
    return closed(backend, inner(values, (1, *reps)))


@rule("repeat")
def _repeat(backend: BatchedBackend, inner: Any, a: Any, repeats: Any, axis: Any = None) -> Any:
    if is_of(backend, repeats):
        raise_if_read("repeat_interleave: the shape would differ by example")
    values = opened(backend, a)
    if axis is None:
        values, axis = flat(values), 0
    return closed(backend, inner(values, repeats, shifted(axis, values.ndim - 1)))


@rule("track_moment")
def _track_moment(backend: BatchedBackend, inner: Any, *args: Any) -> None:
    track_moment(*args)


@rule("packbits")
def _packbits(backend: BatchedBackend, inner: Any, a: Any) -> Any:
    values = opened(backend, a)
    rows = flat(values)
    short = -rows.shape[1] % 8  # every example ends with a byte of its own
    if short:
        xp = backend.parent.xp
        rows = xp.concatenate([rows, xp.zeros((rows.shape[0], short), rows.dtype)], 1)
    return closed(backend, inner(rows.reshape(-1)).reshape((rows.shape[0], rows.shape[1] // 8)))


@rule("unpackbits")
def _unpackbits(backend: BatchedBackend, inner: Any, a: Any) -> Any:
    values = opened(backend, a)
    rows = flat(values)
    bits = inner(rows.reshape(-1))
    return closed(backend, bits.reshape((rows.shape[0], rows.shape[1] * 8)))


@rule("take")
def _take(
    backend: BatchedBackend, inner: Any, a: Any, indices: Any, axis: Any = None, **kw: Any
) -> Any:
    if axis is None:
        a, axis = _reshape(backend, None, a, (-1,)), 0
    if is_of(backend, indices):
        ndim = a.ndim
        return getitem(_as(backend, a), (*(slice(None),) * (axis % ndim), indices))
    values = opened(backend, a)
    return closed(backend, inner(values, indices, shifted(axis, values.ndim - 1), **kw))


@rule("take_along_axis")
def _take_along(backend: BatchedBackend, inner: Any, a: Any, indices: Any, axis: Any) -> Any:
    values, where = opened(backend, a), opened(backend, indices)
    return closed(backend, inner(values, where, shifted(axis, values.ndim - 1)))


@rule("put_along_axis")
def _put_along(backend: BatchedBackend, inner: Any, a: Any, i: Any, v: Any, axis: Any) -> None:
    v = padded(opened(backend, v), a.ndim) if hasattr(v, "dtype") else v
    inner(a.values, opened(backend, i), v, shifted(axis, a.ndim))


@rule("sliding_window_view")
def _windows(
    backend: BatchedBackend, inner: Any, a: Any, shape: Any, axis: Any = None, **kw: Any
) -> Any:
    values = opened(backend, a)
    if axis is None:
        axis = tuple(range(values.ndim - 1))
    return closed(backend, inner(values, shape, shifted(axis, values.ndim - 1), **kw))


@rule("lib.stride_tricks.as_strided")
def _as_strided(
    backend: BatchedBackend, inner: Any, a: Any, shape: Any, strides: Any, **kw: Any
) -> Any:
    values = opened(backend, a)
    return closed(
        backend, inner(values, (values.shape[0], *shape), (values.strides[0], *strides), **kw)
    )


@rule("copyto")
def _copyto(backend: BatchedBackend, inner: Any, dst: Any, src: Any, **kwargs: Any) -> None:
    if not is_of(backend, dst):
        refuse_write()
    if is_of(backend, src):
        src = padded(src.values, dst.ndim)
    if is_of(backend, kwargs.get("where")):
        kwargs["where"] = padded(kwargs["where"].values, dst.ndim)
    inner(dst.values, src, **kwargs)


@rule("may_share_memory", "shares_memory")
def _share(backend: BatchedBackend, inner: Any, a: Any, b: Any) -> bool:
    return inner(*[x.values if is_of(backend, x) else x for x in (a, b)])


@rule("matmul")
def _matmul(backend: BatchedBackend, inner: Any, a: Any, b: Any) -> Any:
    vectors = (a.ndim == 1, b.ndim == 1)
    x, y = opened(backend, a), opened(backend, b)
    x = x[:, None, :] if vectors[0] else x
    y = y[..., None] if vectors[1] else y
    ndim = max(x.ndim, y.ndim) - 1
    result = inner(padded(x, ndim), padded(y, ndim))
    if vectors[1]:
        result = result[..., 0]
    if vectors[0]:
        result = result[..., 0] if vectors[1] else result[..., 0, :]
    return closed(backend, result)


@rule("dot", "inner", "vdot")
def _dot(backend: BatchedBackend, inner: Any, a: Any, b: Any) -> Any:
    if inner.__name__ == "vdot":
        a = a.conj()
    if a.ndim == 0 or b.ndim == 0:
        return a * b
    if a.ndim > 1 or b.ndim > 1:
        b = _two_axes(backend, np.swapaxes, b, -1, -2) if inner.__name__ == "inner" else b
    return _matmul(backend, backend.parent.xp.matmul, a, b)


@rule("outer")
def _outer(backend: BatchedBackend, inner: Any, a: Any, b: Any) -> Any:
    x, y = opened(backend, a), opened(backend, b)
    return closed(backend, flat(x)[:, :, None] * flat(y)[:, None])


@rule("tensordot")
def _tensordot(backend: BatchedBackend, inner: Any, a: Any, b: Any, axes: Any = 2) -> Any:
    if isinstance(axes, int):
        first, second = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        first, second = [list(x) if isinstance(x, (list, tuple)) else [x] for x in axes]
        first, second = [x % a.ndim for x in first], [x % b.ndim for x in second]
    x, y = opened(backend, a), opened(backend, b)
    kept = [d for d in range(a.ndim) if d not in first]
    rest = [d for d in range(b.ndim) if d not in second]
    xp, n = backend.parent.xp, x.shape[0]
    k = prod(a.shape[d] for d in first)
    x = xp.transpose(x, [0, *[d + 1 for d in (*kept, *first)]]).reshape((n, -1, k)) if (
        x.size) else x.reshape((n, prod(a.shape[d] for d in kept), k))  # fmt: skip
    y = xp.transpose(y, [0, *[d + 1 for d in (*second, *rest)]]).reshape(
        (n, k, prod(b.shape[d] for d in rest))
    )
    shape = [*[a.shape[d] for d in kept], *[b.shape[d] for d in rest]]
    return closed(backend, xp.matmul(x, y).reshape((n, *shape)))


@rule("einsum")
def _einsum(backend: BatchedBackend, inner: Any, equation: str, *arrays: Any, **kw: Any) -> Any:
    free = next(c for c in "ZYXWVUTSRQ" if c not in equation)
    inputs, output = equation.replace(" ", "").split("->")
    terms = [
        free + term if is_of(backend, a) else term
        for term, a in zip(inputs.split(","), arrays, strict=True)
    ]
    values = [a.values if is_of(backend, a) else a for a in arrays]
    return closed(backend, inner(f"{','.join(terms)}->{free}{output}", *values, **kw))


@rule("linalg.solve", "linalg.unchecked_solve", "linalg.solve_triangular")
def _solve(backend: BatchedBackend, inner: Any, a: Any, b: Any, *how: bool) -> Any:
    x, y = opened(backend, a), opened(backend, b)
    if b.ndim == 1:
        return closed(backend, inner(x, padded(y[..., None], x.ndim - 1), *how)[..., 0])
    ndim = max(x.ndim, y.ndim) - 1
    return closed(backend, inner(padded(x, ndim), padded(y, ndim), *how))


@rule("trace")
def _trace(backend: BatchedBackend, inner: Any, a: Any) -> Any:
    return closed(backend, inner(opened(backend, a), 0, 1, 2))


@rule("index_add")
def _index_add(backend: BatchedBackend, inner: Any, array: Any, index: Any, values: Any) -> None:
    if not is_of(backend, array):
        refuse_write()
    place = whole_index(array, index if isinstance(index, tuple) else (index,))
    inner(array.values, place.index, placed(array, place, values))


@rule("index_reduce")
def _index_reduce(
    backend: BatchedBackend, inner: Any, array: Any, index: Any, values: Any, how: str
) -> None:
    if not is_of(backend, array):
        refuse_write()
    place = whole_index(array, index if isinstance(index, tuple) else (index,))
    inner(array.values, place.index, placed(array, place, values), how)


@rule("accumulate")
def _accumulate(backend: BatchedBackend, inner: Any, function: str, a: Any, axis: int) -> Any:
    values = opened(backend, a)
    return closed(backend, inner(function, values, shifted(axis, values.ndim - 1)))


@rule("partition", "argpartition")
def _partition(
    backend: BatchedBackend, inner: Any, a: Any, kth: Any, axis: Any = -1, **kw: Any
) -> Any:
    values = opened(backend, a)
    if axis is None:
        values, axis = flat(values), -1
    return closed(backend, inner(values, kth, shifted(axis, values.ndim - 1), **kw))


@rule("nonzero", "argwhere", "flatnonzero", "unique", "bincount", "extract", "histogram")
def _dynamic(backend: BatchedBackend, inner: Any, *args: Any, **kwargs: Any) -> Any:
    if any(is_of(backend, a) for a in args):
        raise ValueDependent(
            f"vmap: the shape that {inner.__name__} returns depends on the values, and so differs "
            "by example: vmap cannot batch it. Use torch.where, or take it out of the vmap."
        )
    return inner(*args, **kwargs)


@rule("counts")
def _counts(backend: BatchedBackend, inner: Any, x: Any, weights: Any, size: int) -> Any:
    values = opened(backend, x)
    count = len(values)
    first = backend.parent.xp.arange(count).reshape((-1,) + (1,) * (values.ndim - 1)) * size
    own = None if weights is None else flat(opened(backend, weights)).reshape(-1)
    counts = inner((values + first).reshape(-1), own, count * size)
    return closed(backend, counts.reshape(count, size))


@rule("array_equal", "allclose")
def _verdict(backend: BatchedBackend, inner: Any, *args: Any, **kwargs: Any) -> Any:
    raise_if_read(inner.__name__)


def _as(backend: BatchedBackend, a: Any) -> Any:
    return a if is_of(backend, a) else backend.level.lift(a)


def refuse_write() -> None:
    raise RuntimeError(
        "vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a Tensor "
        "`other` in extra_args that has more elements than `self`. This happened due to `other` "
        "being vmapped over but `self` not being vmapped over in a vmap. Please use the "
        "out-of-place op, or make the tensor inside the vmap from one that is mapped over."
    )
