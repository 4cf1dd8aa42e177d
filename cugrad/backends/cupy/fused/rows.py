"""The rows as kernels: traced once for each kind of operands, and left to CuPy where none can be.

A row is declined, and runs as its chain of CuPy's functions, where tracing it says that it is no
expression of its elements, where numbers are complex or whole, and where operands lie in more dims
than a kernel knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import cupy
import numpy as np

from ... import BY_ARRAY_TYPE
from ...traced.arrays import NUMBERS, Trace, Traced, Untraceable, reached_from
from ...traced.namespace import TracedBackend
from ...wanted import wanted
from ..arrays import alloc, blank
from .expressions import checked, name_of
from .launch import KernelPlan, New, dense_strides, graph_of
from .layouts import Operand, layout_of, strides_in_order
from .reductions import ReductionPlan, reduction_to
from .source import THREADS

__all__ = ["backward_of", "column_sum", "forward_of", "graph_plan", "mean_of"]

Array = Any  # cupy.ndarray

BY_ARRAY_TYPE[Traced] = TracedBackend()  # type: ignore[assignment]

FLOATS = ("float32", "float16", "bfloat16", "float64")
MOST_PLANS = 4096  # of one row; then it begins anew
ndarray, frombuffer = cupy.ndarray, np.frombuffer
BLOCK = (THREADS,)


class Declined:
    """Where a plan would be: why there is no kernel."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def forward_of(op: Any, xp: Any) -> Callable[..., Any]:
    """A row's forward as a function of arrays, numbers and parameters, by position or name.

    That of an elementwise row may answer with `home`, which then has the result.
    """
    plain = partial(op.forward, xp) if op.ufunc is None else getattr(xp, op.ufunc)
    if op.kind != "elementwise":
        return plain
    plans: dict[Any, Any] = {}

    def forward(*args: Any, home: Array | None = None, **params: Any) -> Any:
        if not wanted.fused:
            return plain(*args, **params)
        if params:
            named = {**op.defaults, **params}
            names = [*op.inputs, *op.params]
            args = (*args, *[named[n] for n in names[len(args) :]])
        key: list[Any] = []
        arrays = []
        for x in args:
            if type(x) is ndarray:
                key += (x.dtype.num, x.shape, x.strides)
                arrays.append(x)
            elif _is_other_array(x):
                return plain(*args)
            else:
                key += (type(x), _name_of(x))
        plan = plans.get(tuple(key))
        if plan is None:
            plan = _kept(plans, tuple(key), lambda: forward_plan(op, args))
        return plan.run(arrays, home)[0] if type(plan) is KernelPlan else plain(*args)

    direct = forward
    if not op.params and len(op.inputs) <= 2 and not op.variadic:
        direct = (_of_one if len(op.inputs) == 1 else _of_two)(plans, forward)
    direct.plans = plans  # type: ignore[attr-defined]
    direct.in_place = forward  # type: ignore[attr-defined]
    return direct


# The same in a straight line, where operands lie in the order of their dims and a plan is there.


def _of_one(plans: dict[Any, Any], forward: Callable[..., Any]) -> Callable[..., Any]:
    """`forward` of one array."""
    launches: dict[Any, Any] = {}

    def of_one(x: Any) -> Any:
        if not wanted.fused:
            return forward(x)
        try:
            shape, kind, size, widest, head, tail, form, kernel, grid = launches[
                x._c_contiguous, x.dtype.num, x.shape
            ]
        except Exception:  # nothing is kept, or it is no array of CuPy
            return _first(launches, plans, forward, x)
        out = blank(ndarray)
        out._init(shape, kind, alloc(size), None, None)
        first, last = x.data.ptr, out.data.ptr
        if (first | last) % widest:
            return forward(x)
        kernel(grid, BLOCK, (frombuffer(head(first, last) + tail, form),))
        return out

    return of_one


def _of_two(plans: dict[Any, Any], forward: Callable[..., Any]) -> Callable[..., Any]:
    """`forward` of two arrays, or of an array and a number."""
    launches: dict[Any, Any] = {}

    def of_two(x: Any, y: Any) -> Any:
        if not wanted.fused:
            return forward(x, y)
        try:
            if type(y) is ndarray:
                shape, kind, size, widest, head, tail, form, kernel, grid = launches[
                    x._c_contiguous, y._c_contiguous, x.dtype.num, x.shape, y.dtype.num, y.shape
                ]
                second = y.data.ptr
            else:
                shape, kind, size, widest, head, tail, form, kernel, grid = launches[
                    x._c_contiguous, x.dtype.num, x.shape, type(y), _name_of(y)
                ]
                second = 0
        except Exception:  # nothing is kept, or it is no array of CuPy
            return _first(launches, plans, forward, x, y)
        out = blank(ndarray)
        out._init(shape, kind, alloc(size), None, None)
        first, last = x.data.ptr, out.data.ptr
        if (first | second | last) % widest:
            return forward(x, y)
        pointers = head(first, second, last) if second else head(first, last)
        kernel(grid, BLOCK, (frombuffer(pointers + tail, form),))
        return out

    return of_two


def _first(
    launches: dict[Any, Any], plans: dict[Any, Any], forward: Callable[..., Any], *args: Any
) -> Any:
    """Runs `forward`, and keeps how it launches."""
    result = forward(*args)
    x, y = args[0], args[-1]
    if type(x) is not ndarray or not x._c_contiguous:
        return result
    key: Any = x.dtype.num, x.shape, x.strides
    short: Any = x._c_contiguous, x.dtype.num, x.shape
    if len(args) > 1 and type(y) is ndarray:
        if not y._c_contiguous:
            return result
        key = *key, y.dtype.num, y.shape, y.strides
        short = True, *short, y.dtype.num, y.shape
    elif len(args) > 1:
        key, short = (*key, type(y), _name_of(y)), (*short, type(y), _name_of(y))
    plan = plans.get(key)
    if type(plan) is KernelPlan and plan.direct is not None:
        if len(launches) >= MOST_PLANS:
            launches.clear()
        launches[short] = plan.direct
    return result


def _name_of(value: Any) -> Any:
    """What a value that is no array is called in a key: itself, unless equals may differ."""
    if isinstance(value, (float, np.generic)):
        value = float(value)
        return value if value and value == value else repr(value)
    return value if value and type(value) in NUMBERS else repr(value)


def backward_of(op: Any, mask: int, raw: Any) -> Callable[..., Any]:
    """`backward(g, saved, meta)`: the gradients of the inputs in `mask`, None for the others; or
    None where there is no kernel.

    A gradient has the shape and dtype of its input, or, where that was broadcast, those of the op.
    """
    plans: dict[Any, Any] = {}

    def backward(g: Array, saved: Sequence[Any], meta: Any) -> Any:
        if not wanted.fused:
            return None
        key: list[Any] = [g.dtype.num, g.shape, g.strides]
        arrays = [g]
        for x in saved:
            if type(x) is ndarray:
                key += (x.dtype.num, x.shape, x.strides)
                arrays.append(x)
            elif _is_other_array(x):
                return None
            else:
                key += (type(x), _name_of(x))
        if meta is not None:
            shapes, params, dtypes, compute, _ = meta
            key += (shapes, repr(params) if params else "", dtypes, compute)
        plan = plans.get(tuple(key))
        if plan is None:
            plan = _kept(plans, tuple(key), lambda: BackwardPlan(op, mask, raw, g, saved, meta))
        return plan.run(arrays) if type(plan) is BackwardPlan else None

    backward.plans = plans  # type: ignore[attr-defined]
    return backward


def _is_other_array(x: Any) -> bool:
    """Whether it is an array of a vmap, or of the host."""
    return hasattr(x, "dtype") and not isinstance(x, np.generic)


def _kept(plans: dict[Any, Any], key: Any, make: Callable[[], Any]) -> Any:
    try:
        plan = make()
    except Untraceable as error:
        plan = Declined(str(error))
    if len(plans) >= MOST_PLANS:
        plans.clear()
    plans[key] = plan
    return plan


def forward_plan(op: Any, args: Sequence[Any]) -> KernelPlan:
    """A kernel of a row's forward for operands like these; Untraceable where there is none."""
    trace = Trace()
    arrays = [x for x in args if type(x) is ndarray]
    elements, told = _given(trace, args), len(arrays) < len(args)
    result = op.forward(TracedBackend.xp, *elements)
    if type(result) is not Traced:
        raise Untraceable("its result is no array")
    _demand_floats(arrays, [result])
    if all(x.function in ("input", "number", "astype") for x in reached_from([result])):
        raise Untraceable("it copies")
    return plan_of(f"{op.name}_forward", trace, [result], arrays, told)


class BackwardPlan:
    """The gradients of a row: which are the incoming gradient as it is, and a kernel for others."""

    __slots__ = ("plan", "places")

    def __init__(
        self, op: Any, mask: int, raw: Any, g: Array, saved: Sequence[Any], meta: Any
    ) -> None:
        shapes, params, dtypes, compute = None, {}, None, None
        if meta is not None:
            shapes, params, dtypes, compute, conjugates = meta
            if conjugates:
                raise Untraceable("its numbers are complex")
        trace = Trace()
        elements = _given(trace, (g, *saved))
        if compute is not None:
            elements[1:] = [
                trace.cast(x, compute) if type(x) is Traced else x for x in elements[1:]
            ]
        grads = op.gradients(mask)(raw, elements[0], elements[1:], shapes or (), params)
        arrays = [x for x in (g, *saved) if type(x) is ndarray]
        results: list[Traced] = []
        targets: list[tuple[int, ...]] = []  # of each result, the shape that it is summed to
        whole: list[Traced] = []  # the results as they are before they are summed
        self.places: list[int | None] = []  # by input: -1 is `g`, others count the results
        for i, x in enumerate(grads):
            if x is None:
                self.places.append(None)
                continue
            if type(x) is not Traced:
                raise Untraceable("a gradient of it is a number")
            target, terms = g.shape if shapes is None else shapes[i], x
            if dtypes is not None and dtypes[i] is not None:
                x = trace.cast(x, dtypes[i])
            if x is elements[0] and target == g.shape:
                self.places.append(-1)
                continue
            same = [k for k, r in enumerate(results) if r is x and targets[k] == target]
            if not same:
                same = [len(results)]
                results.append(x)
                targets.append(target)
                whole.append(x if target == g.shape else terms)
            self.places.append(same[0])
        _demand_floats(arrays, results)
        told = bool(op.params) or len(arrays) <= len(saved)
        self.plan: KernelPlan | ReductionPlan | None = None
        if results:
            name = f"{op.name}_backward"
            self.plan = summing_plan(name, results, targets, arrays, told)
            if self.plan is None:  # sums that no kernel does: in full, and added up behind
                self.plan = plan_of(name, trace, whole, arrays, told)

    def run(self, arrays: list[Array]) -> tuple[Any, ...]:
        results = [] if self.plan is None else self.plan.run(arrays)
        results.append(arrays[0])
        return tuple([None if k is None else results[k] for k in self.places])


def _given(trace: Trace, args: Sequence[Any]) -> list[Any]:
    """Elements for arrays; everything else as it is."""
    elements, count = [], 0
    for x in args:
        if type(x) is ndarray:
            elements.append(trace.input(count, x.dtype))
            count += 1
        else:
            elements.append(x)
    return elements


def _demand_floats(arrays: Sequence[Array], results: Sequence[Traced]) -> None:
    if any(x.dtype.kind == "c" for x in (*arrays, *results)):
        raise Untraceable("its numbers are complex")
    if not any(x.dtype.kind in "fV" for x in arrays):
        raise Untraceable("its numbers are whole")
    if any(x.dtype.kind not in "fVb" for x in results):
        raise Untraceable("its result is whole numbers")


def graph_plan(
    name: str, results: list[Traced], arrays: Sequence[Array],
    targets: Sequence[tuple[int, ...]] | None,
) -> KernelPlan | ReductionPlan:  # fmt: skip
    """A kernel of a graph that a user's function has made; Untraceable where there is none.

    Results are summed to the shapes `targets` where one kernel can do so for all of them.
    """
    _demand_floats(arrays, results)
    if all(x.function in ("input", "number", "astype") for x in reached_from(results)):
        if targets is None:
            raise Untraceable("it copies")
    plan = None if targets is None else summing_plan(name, results, targets, arrays, True)
    return plan or plan_of(name, results[0].trace, results, arrays, True)


def plan_of(
    name: str, trace: Trace, results: list[Traced], arrays: Sequence[Array], told: bool
) -> KernelPlan:
    """A plan for a kernel that is run with all of `arrays`."""
    nodes = reached_from(results)
    checked(nodes)
    shape = np.broadcast_shapes(*[x.shape for x in arrays])
    if 0 in shape:
        raise Untraceable("it has no elements")
    operands = [Operand(x.dtype.itemsize, x.shape, x.strides) for x in arrays]
    itemsize = results[0].dtype.itemsize
    strides = None if trace.in_order else strides_in_order(shape, operands, itemsize)
    new = [New(shape, x.dtype, _scaled(strides, itemsize, x.dtype.itemsize)) for x in results]
    result = Operand(itemsize, shape, strides or dense_strides(shape, itemsize))
    layout = layout_of(shape, [*operands, result])
    if layout is None:
        raise Untraceable("its operands lie in too many dims")
    graph = graph_of(name, results, [x.dtype.name for x in arrays], told)
    return KernelPlan(graph, [*operands, result], new, layout)


def summing_plan(
    name: str, results: list[Traced], targets: Sequence[tuple[int, ...]],
    arrays: Sequence[Array], told: bool, mean: bool = False,
) -> ReductionPlan | None:  # fmt: skip
    """A kernel that sums results to the shapes that are less than those of `arrays` together; None
    where there is nothing to sum, or where the dims to be summed lie among others.
    """
    shape = np.broadcast_shapes(*[x.shape for x in arrays])
    reductions = {reduction_to(shape, target) for target in targets if target != shape}
    reduction = reductions.pop() if len(reductions) == 1 else None
    if reduction is None or 0 in shape:
        return None
    checked(reached_from(results))
    operands = [Operand(x.dtype.itemsize, x.shape, x.strides) for x in arrays]
    layout = layout_of(
        shape, [*operands, Operand(1, shape, dense_strides(shape, 1))], packing=False
    )
    if layout is None:
        return None
    layout = layout._replace(modes="e" * len(layout.modes))
    graph = graph_of(name, results, [x.dtype.name for x in arrays], told)
    new = [New(target, x.dtype, None) for x, target in zip(results, targets, strict=True)]
    return ReductionPlan(graph, layout, reduction, [t != shape for t in targets], new, mean)


_sums: dict[Any, Any] = {}


def column_sum(a: Array, axis: Any, keepdims: bool) -> Array | None:
    """The sum over the first axes; None for other axes, and for numbers that are no floats.

    CuPy's own kernel reads each column with few threads.
    """
    axes = axis if isinstance(axis, tuple) else (axis,)
    count = len(axes)
    if not wanted.fused or name_of(a.dtype) not in FLOATS or not 0 < count < a.ndim:
        return None
    if sorted([x % a.ndim for x in axes]) != list(range(count)):
        return None
    key = a.dtype.num, a.shape, a.strides, count, keepdims
    plan = _sums.get(key)
    if plan is None:
        plan = _kept(_sums, key, lambda: _column_plan(a, count, keepdims))
    return plan.run([a])[0] if type(plan) is ReductionPlan else None


def _column_plan(a: Array, count: int, keepdims: bool) -> ReductionPlan:
    x = Trace().input(0, a.dtype)
    target = (1,) * (count * keepdims) + a.shape[count:]
    plan = summing_plan("column_sum", [x], [target], [a], False)
    if plan is None:
        raise Untraceable("there is nothing to sum")
    return plan


def mean_of(a: Array, axis: Any, keepdims: bool) -> Array | None:
    """The mean over axes that are first, or last; None for others, and for other dtypes.

    CuPy's is a sum and a division.
    """
    axes = range(a.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if type(a) is not ndarray or not wanted.fused or not a.size or not a.ndim:
        return None
    if name_of(a.dtype) not in FLOATS:
        return None
    dims = {x % a.ndim for x in axes if -a.ndim <= x < a.ndim}
    if len(dims) != len(axes) or not dims:
        return None
    key = a.dtype.num, a.shape, a.strides, tuple(axes), keepdims, "mean"
    plan = _sums.get(key)
    if plan is None:
        plan = _kept(_sums, key, lambda: _mean_plan(a, dims, keepdims))
    return plan.run([a])[0] if type(plan) is ReductionPlan else None


def _mean_plan(a: Array, dims: set[int], keepdims: bool) -> ReductionPlan:
    x = Trace().input(0, a.dtype)
    target = tuple([1 if k in dims else n for k, n in enumerate(a.shape)])
    plan = summing_plan("mean", [x], [target], [a], False, mean=True)
    if plan is None:
        raise Untraceable("there is nothing to sum, or its dims lie among others")
    if not keepdims:
        shape = tuple([n for k, n in enumerate(a.shape) if k not in dims])
        plan.new = [New(shape, a.dtype, None)]
    return plan


def _scaled(strides: tuple[int, ...] | None, before: int, now: int) -> tuple[int, ...] | None:
    return None if strides is None else tuple([s // before * now for s in strides])
