"""The rows as kernels: traced once for each kind of operands, and left to CuPy where none can be.

A row is declined, and runs as its chain of CuPy's functions, where tracing it says that it is no
expression of its elements, where numbers are whole, and where operands lie in more dims than a
kernel knows. Of complex numbers there are sums, products, quotients and conjugates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import cupy
import numpy as np

from ... import BY_ARRAY_TYPE
from ...traced.arrays import Trace, Traced, Untraceable, reached_from
from ...traced.rows import demand_floats, demand_work, traced_forward, traced_gradients
from ...wanted import wanted
from ..launches.order import order_of, turned
from ..launches.rows import (
    MOST_PLANS,
    Gradients,
    form_of_array,
    key_of,
    named,
    of_array_or_value,
    straight,
    told_of,
)
from ..launches.straight import launches_of
from .expressions import checked, name_of
from .halves import Halves, halves_like
from .launch import KernelPlan, New, dense_strides, graph_of
from .layouts import Operand, layout_of, strides_in_order
from .reductions import ReductionPlan, reduction_to

__all__ = ["backward_of", "forward_of", "graph_plan", "kept_plan", "mean_of", "sum_of"]

Array = Any  # cupy.ndarray

FLOATS = ("float32", "float16", "bfloat16", "float64")
FEW = 1 << 16  # elements, of which a launch takes longer than their sum
ndarray = cupy.ndarray


class Declined:
    """Where a plan would be: why there is no kernel, and the order of the operands in memory, if
    CuPy's functions shall be told of them in that.
    """

    def __init__(self, reason: str, orders: Any = None) -> None:
        self.reason, self.orders = reason, orders


def forward_of(op: Any, xp: Any) -> Callable[..., Any]:
    """A row's forward as a function of arrays, numbers and parameters, by position or name.

    That of a row of elements, comparisons among them, has another as `in_place`, which may answer
    with its first argument: that then has the result.
    """
    plain = partial(op.forward, xp) if op.ufunc is None else getattr(xp, op.ufunc)
    if op.kind != "elementwise" and not _is_of_elements(op.ufunc):
        return plain
    plans: dict[Any, Any] = {}

    def plan_for(args: Sequence[Any]) -> Any:
        """The plan for arguments; None where arrays are others' among them."""
        key: list[Any] = [wanted.fused]
        for x in args:
            if type(x) is ndarray:
                key += (x.dtype.num, x.shape, x.strides)
            elif _is_other_array(x):
                return None
            else:
                key.append(named(x))
        return kept_plan(
            plans, tuple(key), lambda: forward_plan(op, args), lambda: _order_for(op, args)
        )

    def unfused(plan: Any, args: Sequence[Any]) -> Any:
        orders = None if plan is None else plan.orders
        return plain(*args) if orders is None else turned(plain, args, orders)

    def forward(*args: Any, home: Array | None = None) -> Any:
        plan = plan_for(args)
        if type(plan) is not KernelPlan:
            return unfused(plan, args)
        return plan.run([x for x in args if type(x) is ndarray], home)[0]

    def change(*args: Any) -> Any:
        return forward(*args, home=args[0])

    def begin(*args: Any) -> Any:
        plan = plan_for(args)
        if type(plan) is not KernelPlan:
            return unfused(plan, args), None, None
        arrays = {name: x for name, x in zip(names, args) if type(x) is ndarray}
        result = plan.run(list(arrays.values()))[0]
        return result, plan.straight(names, list(arrays), "y0"), told_of(op, args, result)

    def begin_change(*args: Any) -> Any:
        result, plan = change(*args), plan_for(args)
        if result is not args[0] or type(plan) is not KernelPlan:
            return result, None, None
        arrays = [name for name, x in zip(names, args) if type(x) is ndarray]
        return result, plan.straight_change(names, arrays, names[0]), told_of(op, args, result)

    def part(i: int, name: str) -> str:
        return of_array_or_value(name) if i else form_of_array(name)

    names = [*op.inputs, *op.params]
    key = key_of(op, part, "named({})")
    run = straight(names, key, forward, begin, op.defaults)
    run.plans, run.in_place = plans, straight(names, key, change, begin_change, op.defaults)
    return run


def backward_of(op: Any, mask: int, raw: Any) -> Callable[..., Any]:
    """`backward(g, saved, meta)`: the gradients of the inputs in `mask`, None for the others; or
    None where there is no kernel.
    """
    plans: dict[Any, Any] = {}

    def plan_for(g: Array, saved: Sequence[Any], meta: Any) -> Any:
        key: list[Any] = [g.dtype.num, g.shape, g.strides]
        for x in saved:
            if type(x) is ndarray:
                key += (x.dtype.num, x.shape, x.strides)
            elif _is_other_array(x):
                return None
            else:
                key.append(named(x))
        if meta is not None:
            shapes, params, dtypes, compute, _ = meta
            key += (shapes, repr(params) if params else "", dtypes, compute)
        return kept_plan(plans, tuple(key), lambda: BackwardPlan(op, mask, raw, g, saved, meta))

    def backward(g: Array, saved: Sequence[Any], meta: Any) -> Any:
        plan = plan_for(g, saved, meta) if wanted.fused else None
        if type(plan) is not BackwardPlan:
            return None
        return plan.run([g, *[x for x in saved if type(x) is ndarray]])

    def begin(g: Array, saved: Sequence[Any], meta: Any) -> Any:
        plan = plan_for(g, saved, meta) if wanted.fused else None
        if type(plan) is not BackwardPlan:
            return None, None, None
        arrays = form.arrays(g, saved)
        return plan.run(list(arrays.values())), plan.straight(form, list(arrays)), None

    form = Gradients(op, mask)
    run: Any = form.straight(backward, begin)
    run.plans = plans
    return run


def _is_other_array(x: Any) -> bool:
    """Whether it is an array of a vmap, or of the host."""
    return hasattr(x, "dtype") and not isinstance(x, np.generic)


def _is_of_elements(ufunc: str | None) -> bool:
    """Whether a function by its name of NumPy's is one of elements."""
    function = getattr(np, ufunc or "", None)
    return isinstance(function, np.ufunc) and function.signature is None


def _order_for(op: Any, args: Sequence[Any]) -> Any:
    """The order of operands in memory, if results of the row lie so: those of NumPy's do."""
    orders = order_of(args)
    if orders is None:
        return None
    few = [
        _few(x, orders) if type(x) is ndarray and x.ndim == len(orders[0])
        else np.ones([min(n, 2) for n in x.shape], x.dtype) if type(x) is ndarray else x
        for x in args
    ]  # fmt: skip
    with suppress(Exception), np.errstate(all="ignore"):  # CuPy raises what is wrong
        result = op.forward(BY_ARRAY_TYPE[np.ndarray].xp, *few)
        return orders if result.transpose(orders[0]).flags.c_contiguous else None
    return None


def _few(x: Array, orders: Any) -> Any:
    """A host array of few elements that lies in such an order."""
    axes, back = orders
    return np.ones([min(x.shape[k], 2) for k in axes], x.dtype).transpose(back)


def kept_plan(
    plans: dict[Any, Any], key: Any, make: Callable[[], Any],
    order: Callable[[], Any] = lambda: None,
) -> Any:  # fmt: skip
    """The plan of a key, made when it is first asked for; `order` says in which order functions
    are told of operands where there is none.
    """
    plan = plans.get(key)
    if plan is not None:
        return plan
    try:
        plan = make()
    except Untraceable as error:
        plan = Declined(str(error), order())
    if len(plans) >= MOST_PLANS:
        plans.clear()
    plans[key] = plan
    return plan


def forward_plan(op: Any, args: Sequence[Any]) -> KernelPlan:
    """A kernel of a row's forward for operands like these; Untraceable where there is none."""
    if not wanted.fused:
        raise Untraceable("no kernels are wanted")
    arrays = [x for x in args if type(x) is ndarray]
    trace, result = traced_forward(op, args, ndarray)
    return plan_of(f"{op.name}_forward", trace, [result], arrays,
                   told=len(arrays) < len(args))  # fmt: skip


class BackwardPlan:
    """The gradients of a row: which are the incoming gradient as it is, and a kernel for others."""

    __slots__ = ("plan", "places", "unfit", "_fit")

    def __init__(
        self, op: Any, mask: int, raw: Any, g: Array, saved: Sequence[Any], meta: Any
    ) -> None:
        trace, incoming, grads = traced_gradients(op, mask, raw, g, saved, meta)
        shapes, _, dtypes, _, _ = (None, None, None, None, None) if meta is None else meta
        arrays = [x for x in (g, *saved) if type(x) is ndarray]
        results: list[Traced] = []
        targets: list[tuple[int, ...]] = []  # of each result, the shape that it is summed to
        whole: list[Traced] = []  # the results as they are before they are summed
        self.places: list[int | None] = []  # by input: -1 is `g`, others count the results
        for i, x in enumerate(grads):
            if x is None:
                self.places.append(None)
                continue
            target, terms = g.shape if shapes is None else shapes[i], x
            if dtypes is not None and dtypes[i] is not None:
                x = trace.cast(x, dtypes[i])
            if x is incoming and target == g.shape:
                self.places.append(-1)
                continue
            same = [k for k, r in enumerate(results) if r is x and targets[k] == target]
            if not same:
                same = [len(results)]
                results.append(x)
                targets.append(target)
                whole.append(x if target == g.shape else terms)
            self.places.append(same[0])
        demand_floats(arrays, results, complexes=True)
        told = bool(op.params) or len(arrays) <= len(saved)
        self.plan: KernelPlan | ReductionPlan | None = None
        self.unfit = False  # whether results are in full, and are added up behind the kernel
        if results:
            name = f"{op.name}_backward"
            self.plan = summing_plan(name, results, targets, arrays, told)
            if self.plan is None:
                halves = _halves_for(op, mask, g, saved, results) if whole == results else None
                self.plan = plan_of(name, trace, whole, arrays, told, halves)
                self.unfit = any(target != g.shape for target in targets)
        if self.unfit:
            self._fit = lambda grads: raw.fitted(grads, shapes, dtypes)

    def run(self, arrays: list[Array]) -> tuple[Any, ...]:
        results = [] if self.plan is None else self.plan.run(arrays)
        results.append(arrays[0])
        gradients = tuple([None if k is None else results[k] for k in self.places])
        return self._fit(gradients) if self.unfit else gradients

    def straight(self, form: Gradients, arrays: Sequence[str]) -> Callable[..., Any]:
        """`run` of `g, saved, meta`, of which these are arrays."""
        if self.unfit:
            return lambda g, saved, meta: self.run(list(form.arrays(g, saved).values()))
        parts = ["None" if k is None else "g" if k == -1 else f"y{k}" for k in self.places]
        answer = f"({', '.join(parts)},)"
        if self.plan is None:
            return launches_of(form.names, [], {}, [], answer, 1)
        return self.plan.straight(form.names, arrays, answer, form.opening)


def _halves_for(
    op: Any, mask: int, g: Array, saved: Sequence[Any], results: Sequence[Traced]
) -> Halves | None:
    """The form of the gradients of two inputs that may be halves of one array."""
    kept = dict(zip(op.saves(mask), saved))
    both: list[Any] = [kept.get(name) for i, name in enumerate(op.inputs) if mask >> i & 1]
    if len(both) != 2 or len(results) != 2:
        return None
    first, second = both
    if type(first) is not ndarray or type(second) is not ndarray or first.shape != g.shape:
        return None
    form = first.shape, first.strides, first.dtype
    if form != (second.shape, second.strides, second.dtype):
        return None
    return halves_like(first) if all(x.dtype == first.dtype for x in results) else None


def graph_plan(
    name: str, results: list[Traced], arrays: Sequence[Array],
    targets: Sequence[tuple[int, ...]] | None,
) -> KernelPlan | ReductionPlan:  # fmt: skip
    """A kernel of a graph that a user's function has made; Untraceable where there is none.

    Results are summed to the shapes `targets` where one kernel can do so for all of them.
    """
    demand_floats(arrays, results)
    demand_work(results, targets)
    plan = None if targets is None else summing_plan(name, results, targets, arrays, True)
    return plan or plan_of(name, results[0].trace, results, arrays, True)


def plan_of(
    name: str, trace: Trace, results: list[Traced], arrays: Sequence[Array], told: bool,
    halves: Halves | None = None,
) -> KernelPlan:  # fmt: skip
    """A plan for a kernel that is run with all of `arrays`; its results may lie as halves."""
    nodes = reached_from(results)
    checked(nodes, complexes=True)
    shape = np.broadcast_shapes(*[x.shape for x in arrays])
    if 0 in shape:
        raise Untraceable("it has no elements")
    operands = [Operand(x.dtype.itemsize, x.shape, x.strides) for x in arrays]
    itemsize = results[0].dtype.itemsize
    strides = None if trace.in_order else strides_in_order(shape, operands, itemsize)
    if halves is not None:
        strides = halves.strides
    new = [New(shape, x.dtype, _scaled(strides, itemsize, x.dtype.itemsize)) for x in results]
    result = Operand(itemsize, shape, strides or dense_strides(shape, itemsize))
    layout = layout_of(shape, [*operands, result])
    if layout is None:
        raise Untraceable("its operands lie in too many dims")
    graph = graph_of(name, results, [x.dtype.name for x in arrays], told)
    return KernelPlan(graph, [*operands, result], new, layout, halves)


def summing_plan(
    name: str, results: list[Traced], targets: Sequence[tuple[int, ...]],
    arrays: Sequence[Array], told: bool, mean: bool = False,
) -> ReductionPlan | None:  # fmt: skip
    """A kernel that sums results to the shapes that are less than those of `arrays` together; None
    where there is nothing to sum, or where the dims to be summed lie among others.
    """
    shape = np.broadcast_shapes(*[x.shape for x in arrays])
    reduction = reduction_to(shape, targets)
    if reduction is None or any(x.dtype.kind == "c" for x in results):
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


def sum_of(a: Array, axis: Any, keepdims: bool) -> Array | None:
    """The sum over axes that are first, or last; None for others, and for other dtypes.

    CuPy's own kernel reads columns with few threads. Long rows it adds up as fast, and is left to.
    """
    return _total(a, axis, keepdims, "sum")


def mean_of(a: Array, axis: Any, keepdims: bool) -> Array | None:
    """The mean, as `sum_of`, of rows of any length. CuPy's is a sum and a division."""
    return _total(a, axis, keepdims, "mean")


def _total(a: Array, axis: Any, keepdims: bool, name: str) -> Array | None:
    axes = range(a.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if type(a) is not ndarray or not wanted.fused or not a.size or not a.ndim:
        return None
    if name_of(a.dtype) not in FLOATS:
        return None
    dims = {x % a.ndim for x in axes if -a.ndim <= x < a.ndim}
    if len(dims) != len(axes) or not dims:
        return None
    if name == "sum" and a.size > FEW and (0 not in dims or len(dims) == a.ndim):
        return None
    key = a.dtype.num, a.shape, a.strides, tuple(axes), keepdims, name
    plan = kept_plan(_sums, key, lambda: _total_plan(a, dims, keepdims, name))
    return plan.run([a])[0] if type(plan) is ReductionPlan else None


def _total_plan(a: Array, dims: set[int], keepdims: bool, name: str) -> ReductionPlan:
    x = Trace().input(0, a.dtype)
    target = tuple([1 if k in dims else n for k, n in enumerate(a.shape)])
    plan = summing_plan(name, [x], [target], [a], False, mean=name == "mean")
    if plan is None:
        raise Untraceable("there is nothing to sum, or its dims lie among others")
    if not keepdims:
        shape = tuple([n for k, n in enumerate(a.shape) if k not in dims])
        plan.new = [New(shape, a.dtype, None)]
    return plan


def _scaled(strides: tuple[int, ...] | None, before: int, now: int) -> tuple[int, ...] | None:
    return None if strides is None else tuple([s // before * now for s in strides])
