"""What rows cost: as many kernels as a GPU has for them, where NumPy needs one a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..numpy.blocks import is_composite
from ..traced.arrays import Untraceable
from ..traced.rows import demand_floats, traced_forward, traced_gradients
from ..wanted import wanted
from .machine import Machine

__all__ = ["forward_of", "gradients_of", "in_place"]

Function = Callable[..., Any]


def forward_of(op: Any, xp: Any, machine: Machine) -> Function:
    """A row's forward: of functions of elements in one kernel, else in as many as it says."""
    plain: Function = partial(op.forward, xp) if op.ufunc is None else getattr(xp, op.ufunc)
    most = op.kernels[0]
    if op.ufunc is not None or not (most or op.kind == "elementwise"):
        return plain
    kind, names = xp.ndarray, [*op.inputs, *op.params]
    traces = _Traces(lambda args: traced_forward(op, args, kind))

    def forward(*args: Any, **params: Any) -> Any:
        if params:
            values = {**op.defaults, **params}
            args = (*args, *[values.get(n) for n in names[len(args) :]])
        if not wanted.fused or not (most or traces.can(args, kind)):
            return plain(*args)
        return machine.in_kernels(op.name, lambda: plain(*args), most or 1)

    return forward


def in_place(function: Function, operands: Any, params: dict[str, Any], home: Any, xp: Any) -> Any:
    """`home` with a row's result, which one kernel writes there; the result where none can."""
    value = function(*operands, **params)
    if home.dtype.kind not in "fV" or home.strides != value.strides:
        return value
    if home.dtype != value.dtype or home.shape != value.shape:
        return value
    xp.copyto(home, value)
    return home


def gradients_of(op: Any, mask: int, raw: Any, machine: Machine) -> Function | None:
    """`gradients(g, saved, meta)` of a row whose gradients a GPU has in as many kernels as it
    says, or in one, of elements; None of others, and where its formulas must compute them.
    """
    most, formula, name = op.kernels[1], op.gradients(mask), f"{op.name} backward"
    if not most and (op.kind != "elementwise" or not _are_several(op, mask)):
        return None
    traces = _Traces(lambda args: _trace_gradients(op, mask, raw, args))

    def gradients(g: Any, saved: Sequence[Any], meta: Any) -> Any:
        if not wanted.fused or not (most or traces.can((g, *saved, meta), type(g))):
            return None
        if meta is None:
            return machine.in_kernels(name, lambda: formula(raw, g, saved, (), {}), most or 1)
        shapes, params, dtypes, compute, conjugates = meta
        if most and (conjugates or compute is not None):
            return None

        def run() -> Any:
            values = [x if compute is None or not hasattr(x, "dtype") else raw.to_dtype(x, compute)
                      for x in saved]  # fmt: skip
            incoming = raw.conj(g) if conjugates else g
            grads = formula(raw, incoming, (values,) if op.variadic else values, shapes, params)
            if conjugates:
                grads = [None if x is None else raw.conj(x) for x in grads]
            return raw.fitted(grads, shapes, dtypes) if fits else grads

        fits = most or len({s for i, s in enumerate(shapes) if mask >> i & 1} - {g.shape}) < 2
        grads = machine.in_kernels(name, run, most or 1)
        return grads if fits else raw.fitted(grads, shapes, dtypes)

    return gradients


def _are_several(op: Any, mask: int) -> bool:
    """Whether the gradients may take more than one function: more than `lambda g, x: g * x`."""
    formulas = [f for i, f in enumerate(op.formulas) if f is not None and mask >> i & 1]
    return len(formulas) > 1 or any(is_composite(f) or _calls(f) for f in formulas)


def _calls(formula: Function) -> bool:
    code = formula.__code__
    return bool(code.co_names or code.co_freevars)


def _trace_gradients(op: Any, mask: int, raw: Any, args: Sequence[Any]) -> None:
    g, *saved, meta = args
    grads = traced_gradients(op, mask, raw, g, saved, meta)[2]
    arrays = [x for x in (g, *saved) if type(x) is type(g)]
    demand_floats(arrays, [x for x in grads if x is not None], complexes=True)


class _Traces:
    """Whether a function of arguments is one of elements, once for each form of the arguments."""

    def __init__(self, trace: Callable[[Sequence[Any]], Any]) -> None:
        self._trace, self._answers = trace, dict[Any, bool]()

    def can(self, args: Sequence[Any], kind: Any) -> bool:
        form = tuple([x.dtype if type(x) is kind else type(x) for x in args])
        answer = self._answers.get(form)
        if answer is None:
            try:
                self._trace(args)
            except Untraceable:
                answer = False
            else:
                answer = True
            self._answers[form] = answer
        return answer
