"""Rows compiled to straight-line functions of Tensors for the common case.

What `record.apply` does in general is written out here, per row: read the arrays, run the forward,
make the node. The common case is floating-point tensors of one dtype with nothing unusual switched
on. Any other case, and any error, falls through to `record.apply`, which computes the same and
explains what is wrong.

`python -m cugrad.autograd mul` prints the function of a row. `texts` writes it;
docs/fast-path.md shows that of `mul`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import backends
from ...dtypes import bfloat16, is_floating
from ...ops.table import Op
from ...runtime.dispatching import Unasked, give_code, left_to_other, worker_of
from ...tensor import UNCOUNTED, Tensor
from ..mode import state, writes_watched
from .node import Output, edge_of, next_seq
from .op_node import NO_PARAMS, FastPlan, FormedPlan, OpNode, compiles_vjp, plan_of
from .record import apply
from .saved import pack, versions_of
from .templates import compiled
from .texts.changes import can_change, text_of_change
from .texts.known import tell_form
from .texts.nodes import masks_of, number_mask
from .texts.rows import is_fast, names_of, signature_of, text_of
from .views import attach, changed, is_part_of_recorded, spares

__all__ = ["compile_change", "compile_function", "is_fast", "text_of"]


def compile_function(
    op: Op, public: bool = False, called: Callable[..., Any] | None = None, asks: bool = False,
    alone: bool = False, operator: bool = False,
) -> Callable[..., Any]:  # fmt: skip
    """A row as a function of Tensors and parameters, by position or name, fast path in front.

    A `public` one calls its first argument `input`, as PyTorch's functions do. The function is
    compiled when it is first called, and again when a backend comes that keeps launches: it then
    gets other code, and stays the same object. `alone`: it answers with the first output alone.
    `called(function, values, more)` answers calls with more keywords than those of the row. What
    users call `asks` the classes of operands that are no tensors, see `cugrad.runtime.dispatching`.
    An `operator` answers NotImplemented for an operand of a class that the row does not take.
    """
    more = called is not None

    def ready() -> Callable[..., Any]:
        scope.update(_scope(op))
        backends.on_register(compile_for)
        return worker_of(function)  # who takes calls has got this one

    def compile_for(backend: Any) -> None:
        kept = _kept_by(op, backend)
        if kept is not None:
            scope.update(kept.scope, launches=kept.launches, by_forms=kept.by_forms,
                         KIND=backend.array_types[0], **_formed_plans(op))  # fmt: skip
        elif "function" in scope:
            return  # it is there already, and this backend is one of `forwards`
        text = text_of(op, public, more, asks=asks, alone=alone, kept=kept, operator=operator)
        exec(compiled(text), scope)
        give_code(function, scope["function"].__code__)
        scope["function"] = function

    def of_half(*args: Any) -> Any:
        """The function of half precision: bfloat16's arrays make float32 of Python's numbers."""
        own = {**scope, **_scope(op, half=True)}
        exec(
            compiled(text_of(op, public, half=True, asks=asks, alone=alone, operator=operator)), own
        )
        scope["of_half"] = own["function"]
        return own["function"](*args)

    names = names_of(op, public)
    scope: dict[str, Any] = {"__name__": __name__, "ready": ready, "called": called,
                             "of_half": of_half}  # fmt: skip
    scope.update((f"default_{n}", d) for n, d in op.defaults.items())
    passed = ", ".join(names) + ", **more" * more
    returns = "Tensor" if alone or len(op.outputs) == 1 and not op.many else "tuple[Tensor, ...]"
    head = f"def function({signature_of(op, names, more)}) -> {returns}:"  # never evaluated
    first = f"{head}\n    return ready()({passed})\n"
    exec(compiled(first), scope)
    function: Any = scope.pop("function")
    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = op.doc or None
    return function


def compile_change(op: Op, backend: Any) -> Callable[..., Any] | None:
    """A row in place, by launches that a backend keeps, or on a host: it answers the tensor that it
    has changed, or None where the general way must. None for rows that are always run so.
    """
    if not backend.runs_rows or not can_change(op):
        return None
    kept = getattr(getattr(backend.row_function(op), "in_place", None), "kept", None)
    if kept is None and backend.keeps_launches:
        return None
    own = {} if kept is None else {**kept.scope, "launches": kept.launches, **_formed_plans(op)}
    scope: dict[str, Any] = {
        "__name__": __name__, "writes_watched": writes_watched, "changed": changed,
        "is_part_of_recorded": is_part_of_recorded, "spares": spares, **_scope(op),
        **own, **{f"default_{n}": d for n, d in op.defaults.items()},
    }  # fmt: skip
    exec(compiled(text_of_change(op, kept)), scope)
    function: Callable[..., Any] = scope["function"]
    return function


def _scope(op: Op, half: bool = False) -> dict[str, Any]:
    """What the code of a row refers to."""
    shared = {
        "Tensor": Tensor, "OpNode": OpNode, "Output": Output, "new": object.__new__,
        "state": state, "edge_of": edge_of, "next_seq": next_seq,
        "versions_of": versions_of, "attach": attach, "apply": apply, "pack": pack, "OP": op,
        "NO_PARAMS": NO_PARAMS, "backend_of": backends.backend_of, "F32": np.dtype("float32"),
        "F64": np.dtype("float64"), "F16": np.dtype("float16"), "BFLOAT16": bfloat16,
        "HOST": np.ndarray,
        "Unasked": Unasked, "left_to_other": left_to_other, "UNCOUNTED": UNCOUNTED,
        "is_floating": is_floating,
        "tell_form": tell_form,
    }  # fmt: skip
    if op.many:
        return {**shared, "forwards": _forwards(op, half), "plan_of": plan_of}
    return {**shared, "forwards": _forwards(op, half), **_plans(op)} if is_fast(op) else shared


def _kept_by(op: Op, backend: Any) -> Any:
    """What a backend keeps of a row, if anything."""
    runs = backend.runs_rows and (is_fast(op) or op.variadic and not op.saves(1))
    return getattr(backend.row_function(op), "kept", None) if runs else None


def _forwards(op: Op, half: bool) -> dict[type, Any]:
    """The array function, or the namespace, by array type; backends that come later add theirs."""
    forwards: dict[type, Any] = {}

    def add(backend: Any) -> None:
        if backend.runs_rows:
            value = backend.row_function(op)
            value = value if half else getattr(value, "wide", value)
        elif op.ufunc is None:
            xp, forward = backend.xp, op.forward
            value = lambda *args: forward(xp, *args)
        else:
            value = getattr(backend.xp, op.ufunc)
        forwards[backend.array_types[0]] = value

    backends.on_register(add)
    return forwards


def _plans(op: Op) -> dict[str, Any]:
    """The plans that the code of a row refers to, by name."""
    plans: dict[str, Any] = {"NUMBERS": (float, int, type(None))}
    for mask in masks_of(op):
        plans[f"general{mask}"] = plan_of(op, mask)
        if compiles_vjp(op):
            plans[f"plan{mask}"] = FastPlan(op, mask, number=False)
    if (beside := number_mask(op)) is not None:
        plans[f"number{beside}"] = FastPlan(op, beside, number=True)
    return plans


def _formed_plans(op: Op) -> dict[str, Any]:
    """Those of nodes that have been told the form of their operands with a launch."""
    plans = {f"formed{mask}": FormedPlan(op, mask, number=False) for mask in masks_of(op)}
    if (beside := number_mask(op)) is not None:
        plans[f"number_formed{beside}"] = FormedPlan(op, beside, number=True)
    return plans
