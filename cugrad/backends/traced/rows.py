"""A row, and its gradients, as expressions of elements: which rows are one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from .. import BY_ARRAY_TYPE
from .arrays import Trace, Traced, Untraceable, reached_from
from .namespace import TracedBackend

__all__ = ["demand_floats", "demand_work", "summed_together", "traced_forward", "traced_gradients"]

BY_ARRAY_TYPE[Traced] = TracedBackend()  # type: ignore[assignment]


def traced_forward(op: Any, args: Sequence[Any], kind: Any) -> tuple[Trace, Traced]:
    """A row's forward of arguments like these, where arrays are of `kind`; Untraceable where it is
    no expression of elements that has a kernel.
    """
    trace = Trace()
    result = op.forward(TracedBackend.xp, *_given(trace, args, kind))
    if type(result) is not Traced:
        raise Untraceable("its result is no array")
    demand_floats([x for x in args if type(x) is kind], [result], complexes=True)
    if all(x.function in ("input", "number") for x in reached_from([result])):
        raise Untraceable("it copies")
    return trace, result


def traced_gradients(
    op: Any, mask: int, raw: Any, g: Any, saved: Sequence[Any], meta: Any
) -> tuple[Trace, Traced, list[Traced | None]]:
    """The incoming gradient of a row, and the gradients of its inputs before they are summed to
    shapes and cast; Untraceable where they are no expressions of elements.
    """
    shapes: Any = None
    dtypes: Any = None
    params, compute, conjugates, kind = {}, None, False, type(g)
    if meta is not None:
        shapes, params, dtypes, compute, conjugates = meta
    trace = Trace()
    elements = _given(trace, (g, *saved), kind)
    if compute is not None:
        elements[1:] = [trace.cast(x, compute) if type(x) is Traced else x for x in elements[1:]]
    incoming = elements[0]
    if conjugates:  # as `OpPlan` has it
        elements[0] = incoming.conj()
    grads = op.gradients(mask)(raw, elements[0], elements[1:], shapes or (), params)
    if any(x is not None and type(x) is not Traced for x in grads):
        raise Untraceable("a gradient of it is a number")
    if conjugates:
        grads = [None if x is None else x.conj() for x in grads]
    return trace, incoming, list(grads)


def _given(trace: Trace, args: Sequence[Any], kind: Any) -> list[Any]:
    """Elements for arrays; everything else as it is."""
    elements, count = [], 0
    for x in args:
        if type(x) is kind:
            elements.append(trace.input(count, x.dtype))
            count += 1
        else:
            elements.append(x)
    return elements


def demand_floats(
    arrays: Sequence[Any], results: Sequence[Traced], complexes: bool = False
) -> None:
    """Untraceable where numbers are whole, or complex and not to be so."""
    if not complexes and any(x.dtype.kind == "c" for x in (*arrays, *results)):
        raise Untraceable("its numbers are complex")
    if not any(x.dtype.kind in "fVc" for x in arrays):
        if not all(x.dtype.kind == "b" for x in (*arrays, *results)):
            raise Untraceable("its numbers are whole")
    if any(x.dtype.kind not in "fVbc" for x in results):
        raise Untraceable("its result is whole numbers")


def demand_work(
    results: Sequence[Traced], targets: Sequence[tuple[int, ...]] | None = None
) -> None:
    """Untraceable where results are copies, and are not even summed to shapes."""
    if targets is None:
        if all(x.function in ("input", "number", "astype") for x in reached_from(results)):
            raise Untraceable("it copies")


def summed_together(
    shape: tuple[int, ...], targets: Sequence[tuple[int, ...]]
) -> tuple[int, int, bool] | None:
    """How one kernel sums elements of `shape` to those of `targets` that are less: as so many rows
    and columns, the rows or, False, each row. None where there is nothing to sum, where dims that
    are summed lie among others, and where targets differ in them.
    """
    ways = {_ends(shape, target) for target in targets if target != shape}
    return ways.pop() if len(ways) == 1 and 0 not in shape else None


def _ends(shape: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, int, bool] | None:
    aligned = (1,) * (len(shape) - len(target)) + target
    sums = [i for i, (n, t) in enumerate(zip(shape, aligned)) if n != t]
    keeps = [i for i, (n, t) in enumerate(zip(shape, aligned)) if n == t and n != 1]
    if not sums:
        return None
    if not keeps or max(keeps) < min(sums):
        return prod(shape[: min(sums)]), prod(shape[min(sums) :]), False
    if max(sums) < min(keeps):
        return prod(shape[: min(keeps)]), prod(shape[min(keeps) :]), True
    return None
