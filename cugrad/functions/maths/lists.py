"""What is done to many tensors at once, in few CUDA launches: their norm, a factor for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from math import inf
from typing import Any

import numpy as np

from ...autograd.recording.views import is_mirrored, will_be_changed
from ...backends import backend_of
from ...backends.traced.arrays import Trace, Traced
from ...backends.traced.lists import Folding, ListGraph, NumbersGraph
from ...backends.wanted import wanted
from ...dtypes import is_floating, of, promote_types
from ...tensor import Tensor, make

__all__ = [
    "as_one_kernel", "clip_factor", "largest_together", "next_scale", "norm_together",
    "norms_together", "scale_together", "unscale_together",
]  # fmt: skip

SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)

_kernels: dict[Any, Any] = {}


def _backend_of(tensors: Sequence[Tensor]) -> Any:
    """The backend that has kernels for all tensors, which are on one device; None without one."""
    if not tensors or not wanted.fused or any(t._may_be_away for t in tensors):
        return None  # those that are away come one by one
    if any(map(is_mirrored, tensors)):
        return None
    backend = backend_of(tensors[0]._array)
    if not backend.makes_kernels:
        return None
    kind = type(tensors[0]._array)
    if any(type(t._array) is not kind for t in tensors):
        return None
    return backend if len({backend.device_index(t._array) for t in tensors}) == 1 else None


def _computing(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return DOUBLE if dtype == DOUBLE else SINGLE


def _kept(key: Any, make_kernels: Any) -> Any:
    kernels = _kernels.get(key)
    if kernels is None:
        kernels = _kernels[key] = make_kernels()
    return kernels


def norm_together(
    tensors: Sequence[Tensor], p: float, max_norm: float | None = None
) -> tuple[Tensor, Tensor | None] | None:
    """The p-norm of all elements, and the factor that makes it `max_norm` at most, in one launch
    for each dtype; None where there is no kernel for it, and on a device that stands in: see
    `as_one_kernel`.
    """
    backend = _backend_of(tensors)
    if (
        backend is None
        or backend.stands_in
        or not 0 < p <= inf
        or not sum(t.numel() for t in tensors)
    ):
        return None
    dtype = _dtype_of_norm(tensors, p)
    if dtype is None:
        return None
    total = _computing(dtype)
    key = id(backend), "norm", p, dtype, max_norm is None

    def graph(dtypes: tuple[np.dtype[Any], ...]) -> ListGraph:
        trace = Trace()
        x = trace.cast(trace.input(0, dtypes[0]), total)
        return ListGraph("norm_of_lists", {}, (), _folding(x, p, dtype, max_norm is not None))

    kernels = _kept(key, lambda: backend.list_kernels(graph))
    with backend.use_device(backend.device_index(tensors[0]._array)):
        arrays = [t._array for t in tensors]
        groups, left = kernels.sorted_out([arrays], [])
        if left:
            arrays = [backend.xp.ascontiguousarray(a) for a in arrays]
            groups, left = kernels.sorted_out([arrays], [])
        results = [backend.xp.empty((), d) for d in (dtype, *[total] * (max_norm is not None))]
        kernels.fold(groups, results, [] if max_norm is None else [max_norm])
    return make(results[0]), None if max_norm is None else make(results[1])


def norms_together(tensors: Sequence[Tensor], p: float) -> list[Tensor | None]:
    """The p-norm of each tensor, in few launches for each dtype; None for those that are left."""

    def end(xp: Any, totals: Any) -> Any:
        return totals if p in (1, inf) else xp.sqrt(totals) if p == 2 else totals ** (1 / p)

    if not 0 < p <= inf:
        return [None] * len(tensors)
    dtypes = [_dtype_of_norm([t], p) if t.numel() else None for t in tensors]
    return _folded_each(tensors, dtypes, ("norms", p), partial(_terms, p), end)


def largest_together(tensors: Sequence[Tensor]) -> list[Tensor | None]:
    """The largest element of each tensor of real numbers, as `norms_together`."""
    kinds = [t._array.dtype if t.numel() else None for t in tensors]
    dtypes = [kind if kind is not None and is_floating(kind) else None for kind in kinds]
    return _folded_each(tensors, dtypes, ("largest",), _elements, lambda xp, totals: totals)


def _folded_each(
    tensors: Sequence[Tensor], dtypes: Sequence[np.dtype[Any] | None], key: tuple[Any, ...],
    terms: Callable[..., ListGraph], end: Callable[[Any, Any], Any],
) -> list[Tensor | None]:  # fmt: skip
    """What `end` makes of the fold of each tensor, in a dtype; None for those that are left."""
    results: list[Tensor | None] = [None] * len(tensors)
    backend = _backend_of(tensors)
    if backend is None:
        return results
    places: dict[np.dtype[Any], list[int]] = {}
    for at, dtype in enumerate(dtypes):
        if dtype is not None:
            places.setdefault(dtype, []).append(at)
    with backend.use_device(backend.device_index(tensors[0]._array)):
        for dtype, some in places.items():
            arrays = [backend.xp.ascontiguousarray(tensors[at]._array) for at in some]
            graph = partial(terms, _computing(dtype))
            kernels = _kept((id(backend), *key, dtype), partial(backend.list_kernels, graph))
            groups, left = kernels.sorted_out([arrays], [])
            if left:
                continue
            totals = backend.xp.empty(len(some), _computing(dtype))
            kernels.fold_each(groups, totals)
            totals = end(backend.xp, totals).astype(dtype, copy=False)
            for k, at in enumerate(some):
                results[at] = make(totals[k])
    return results


def _terms(p: float, to: np.dtype[Any], dtypes: tuple[np.dtype[Any], ...]) -> ListGraph:
    """What a norm of each array is made of."""
    trace = Trace()
    fold = _folding(trace.cast(trace.input(0, dtypes[0]), to), p, to, False)
    return ListGraph("norms_of_lists", {}, (), fold._replace(results=()))


def _elements(to: np.dtype[Any], dtypes: tuple[np.dtype[Any], ...]) -> ListGraph:
    trace = Trace()
    fold = Folding(trace.cast(trace.input(0, dtypes[0]), to), "maximum")
    return ListGraph("largest_of_lists", {}, (), fold)


def as_one_kernel(name: str, tensors: Sequence[Tensor], run: Callable[[], Any]) -> Any:
    """What `run()` answers, at the cost of one kernel where tensors lie on a device that stands in
    for one that has it. It computes as for tensors that are elsewhere: where they are changes no
    bit of the values.
    """
    backend = _backend_of(tensors)
    return run() if backend is None else backend.xp.one_kernel(name, run)


def _dtype_of_norm(tensors: Sequence[Tensor], p: float) -> np.dtype[Any] | None:
    """That in which tensors meet, if they are real; None where no kernel computes their norm."""
    kinds = [t._array.dtype for t in tensors]
    if all(kind.kind == "c" for kind in kinds) and p == 2:
        return max(np.dtype(f"f{kind.itemsize // 2}") for kind in kinds)
    if not all(is_floating(kind) for kind in kinds):
        return None
    return reduce(promote_types, map(of, kinds)).numpy


def _folding(x: Traced, p: float, dtype: np.dtype[Any], clips: bool) -> Folding:
    """The norm as a fold of terms, and the factor that clips to a norm that is told."""
    apply, end = x.trace.apply, Trace()
    total = end.input(0, x.dtype)
    if p == inf:
        term, norm = apply("absolute", x), total
    elif p == 2:
        term, norm = apply("multiply", x, x), end.apply("sqrt", total)
    elif p == 1:
        term, norm = apply("absolute", x), total
    else:
        term = apply("power", apply("absolute", x), p)
        norm = end.apply("power", total, 1 / p)
    how = "maximum" if p == inf else "add"
    results = (end.cast(norm, dtype),)
    if not clips:
        return Folding(term, how, results)
    most = end.number(0, x.dtype)
    return Folding(term, how, (*results, _clipping(most, norm)), (most,))


def _clipping(most: Traced, norm: Traced) -> Traced:
    """What makes a norm `most` at most."""
    apply = norm.trace.apply
    return apply("minimum", apply("true_divide", most, apply("add", norm, 1e-6)), 1.0)


def clip_factor(most: float, norm: Tensor) -> Tensor | None:
    """What vectors of a norm that is on a device are multiplied by, so that it is `most` at most,
    in one launch; None where there is no kernel for it.
    """
    backend = _backend_of([norm])
    if backend is None or norm.numel() != 1 or norm._array.dtype not in (SINGLE, DOUBLE):
        return None
    array = norm.detach()._array

    def graph() -> NumbersGraph:
        trace = Trace()
        told, x = (trace.cast(trace.input(k, DOUBLE), array.dtype) for k in range(2))
        return NumbersGraph("clip_factor", (_clipping(told, x),))

    kernels = _kept((id(backend), "clip", array.dtype), lambda: backend.number_kernels(graph()))
    with backend.use_device(backend.device_index(array)):
        return make(kernels.run([], [most, array], array.dtype.name).reshape(norm._array.shape))


def _times(dtypes: tuple[np.dtype[Any], ...], checks: bool) -> ListGraph:
    """Elements times a constant, and whether they were all finite."""
    trace, to = Trace(), _computing(dtypes[0])
    before = trace.cast(trace.input(0, dtypes[0]), to)
    factor = trace.number(0, to)
    results = {0: trace.cast(trace.apply("multiply", before, factor), dtypes[0])}
    if not checks:
        return ListGraph("scale_lists", results, (factor,))
    one, none = trace.number(1, SINGLE), trace.number(0.0, SINGLE)
    term = trace.apply("where", trace.apply("isfinite", before), none, one)
    end = Trace()
    return ListGraph("unscale_lists", results, (factor,),
                     Folding(term, "maximum", (end.input(0, SINGLE),)))  # fmt: skip


def scale_together(tensors: Sequence[Tensor], factor: Tensor) -> list[Tensor]:
    """Multiplies tensors by a number that is on their device, in place; those that are left."""
    backend = _backend_of(tensors)
    if backend is None or backend_of(factor._array) is not backend or factor.numel() != 1:
        return list(tensors)
    kernels = _kept((id(backend), "scale"),
                    lambda: backend.list_kernels(lambda dtypes: _times(dtypes, False)))  # fmt: skip
    with backend.use_device(backend.device_index(tensors[0]._array)):
        constant = factor.detach()._array
        if constant.dtype not in (SINGLE, DOUBLE):
            constant = constant.astype(SINGLE)
        groups, left = kernels.sorted_out([[t._array for t in tensors]], [0])
        taken = set(left)
        will_be_changed([t for k, t in enumerate(tensors) if k not in taken])
        kernels.run(groups, constant.reshape(1, 1))
    return [tensors[k] for k in left]


def unscale_together(tensors: Sequence[Tensor], scale: Tensor) -> Tensor | None:
    """Divides tensors by a number that is on their device, in place: 1 if an element was not
    finite, else 0. None, and nothing is changed, where there is no kernel for all of them.
    """
    backend = _backend_of(tensors)
    if backend is None or backend_of(scale._array) is not backend:
        return None
    kernels = _kept((id(backend), "unscale"),
                    lambda: backend.list_kernels(lambda dtypes: _times(dtypes, True)))  # fmt: skip
    with backend.use_device(backend.device_index(tensors[0]._array)):
        groups, left = kernels.sorted_out([[t._array for t in tensors]], [0])
        if left or not groups:
            return None
        inverse = _kept((id(backend), "inverse"), lambda: backend.number_kernels(_inverse()))
        constant = inverse.run([], [scale.detach()._array], "float32")
        will_be_changed(tensors)
        flag = backend.xp.empty((), SINGLE)
        kernels.fold(groups, [flag], [], constant)
    return make(flag)


def _inverse() -> NumbersGraph:
    x = Trace().input(0, DOUBLE)
    return NumbersGraph("inverse_of_scale", (x.trace.apply("reciprocal", x),))


def next_scale(
    scale: Tensor, tracker: Tensor, bad: Tensor, growth: float, backoff: float, interval: int
) -> bool:
    """Changes a GradScaler's scale, and its count of finite steps, in place and without waiting;
    False where there is no kernel for it.
    """
    backend = _backend_of([scale, tracker, bad])
    if backend is None:
        return False
    kernels = _kept((id(backend), "next"), lambda: backend.number_kernels(_next_scale()))
    will_be_changed([scale, tracker])
    with backend.use_device(backend.device_index(scale._array)):
        settings = [bad._array, growth, backoff, interval]
        kernels.run([[scale._array], [tracker._array]], settings, "float32")
    return True


def _next_scale() -> NumbersGraph:
    """By PyTorch's rule: a scale grows after so many finite steps, unless beyond float32."""
    trace = Trace()
    scale, count, bad, growth, backoff, interval = (trace.input(k, DOUBLE) for k in range(6))
    apply = trace.apply
    grown = trace.cast(trace.cast(apply("multiply", scale, growth), SINGLE), DOUBLE)
    count = apply("add", count, 1.0)
    due = apply("equal", count, interval)
    larger = apply("where", apply("isfinite", grown), grown, scale)
    failed = apply("not_equal", bad, 0.0)
    scale = apply("where", failed, apply("multiply", scale, backoff),
                  apply("where", due, larger, scale))  # fmt: skip
    count = apply("where", apply("logical_or", failed, due), 0.0, count)
    return NumbersGraph("next_scale", (scale, count))
