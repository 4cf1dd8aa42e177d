"""Straight-line functions for elementwise rows on plain float32 and float64 tensors.

What `record.apply` does in general is compiled here, per row, for the common case: one dtype,
nothing unusual switched on. Any other case, and any error, falls through to `record.apply`, which
computes the same and explains what is wrong. DESIGN: the hot path is straight-line.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from textwrap import indent
from typing import Any

import numpy as np

from .. import backends
from ..ops.table import ELEMENTWISE, Op, parameters_of, raw
from ..tensor import Tensor
from .mode import state
from .node import edge_of, next_seq
from .record import NO_PARAMS, OpNode, Plan, apply, plan_of
from .saved import arrays, versions_of

__all__ = ["compile_function", "has_fast_path"]


def has_fast_path(op: Op) -> bool:
    """Whether a row is one array function of one or two inputs with elementwise gradients."""
    return op.ufunc is not None and op.kind == ELEMENTWISE and len(op.inputs) in (1, 2)


def compile_function(op: Op) -> Callable[..., Any]:
    """A row as a function of Tensors, with its fast path in front."""
    code = _unary(op) if len(op.inputs) == 1 else _binary(op)
    scope = {
        "__name__": __name__, "Tensor": Tensor, "OpNode": OpNode,
        "new": Tensor.__new__, "new_node": OpNode.__new__,
        "state": state, "edge_of": edge_of, "next_seq": next_seq, "versions_of": versions_of,
        "apply": apply, "OP": op, "NO_PARAMS": NO_PARAMS, "backend_of": backends.backend_of,
        "F32": np.dtype("float32"), "F64": np.dtype("float64"), "forwards": _forwards(op),
        **_plans(op),
    }  # fmt: skip
    exec(_compiled(code), scope)
    function: Any = scope["function"]
    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = op.doc or None
    return function


@cache
def _compiled(code: str) -> Any:
    """The code object of a source text; many rows share one."""
    return compile(code, "<cugrad fast path>", "exec")


def _forwards(op: Op) -> dict[type, Callable[..., Any]]:
    """The array function by array type; backends that come later add theirs."""
    found: dict[type, Callable[..., Any]] = {}
    backends.on_register(
        lambda backend: found.update({backend.array_types[0]: getattr(backend.xp, op.ufunc or "")})
    )
    return found


class FastPlan(Plan):
    """A plan for nodes of which all tensors had one shape and dtype."""

    __slots__ = ()

    def __init__(self, op: Op, mask: int, scalar: bool) -> None:
        super().__init__(op, mask)
        self.vjp = _compile_vjp(op, mask, self.saves, scalar)


def _compile_vjp(op: Op, mask: int, saves: tuple[str, ...], scalar: bool) -> Callable[..., Any]:
    """`vjp(node, g)` for arrays: unpack, check versions, call the formulas."""
    scope: dict[str, Any] = {"__name__": __name__, "raw": raw, "arrays": arrays}
    lines, checks, values = [], [], {"m": "raw", "g": "g"}
    for i, name in enumerate(saves):
        if name in op.outputs:
            checks.append(f"s{i}[1][0] != s{i}[2]")
            values[name] = f"s{i}[0]"
        elif scalar and name == op.inputs[1]:
            values[name] = f"s{i}"
        else:
            checks.append(f"s{i}._counter is not None")
            values[name] = f"s{i}._array"
    if saves:
        lines.append("".join(f"s{i}, " for i in range(len(saves))) + "= node.saved")
    if checks:
        lines.append(f"if {' or '.join(checks)}:\n    arrays(node)  # raises if changed in place")
    calls = []
    for i, formula in enumerate(op.formulas):
        if formula is None or not mask >> i & 1:
            calls.append("None")
            continue
        scope[f"F{i}"] = formula
        wanted = ", ".join(values[p] for p in parameters_of(formula))
        calls.append(f"F{i}({wanted})")
    lines.append(f"return {', '.join(calls)},")
    code = "def vjp(node, g):\n" + indent("\n".join(lines), "    ")
    exec(_compiled(code), scope)
    return scope["vjp"]


def _plans(op: Op) -> dict[str, Plan]:
    """The plans that the code of a row refers to, by name."""
    if len(op.inputs) == 1:
        return {"plan1": FastPlan(op, 1, False)}
    plans: dict[str, Plan] = {f"plan{mask}": FastPlan(op, mask, False) for mask in (1, 2, 3)}
    plans.update((f"general{mask}", plan_of(op, mask)) for mask in (1, 2, 3))
    plans["scalar1"] = FastPlan(op, 1, True)
    return plans


def _record(op: Op, mask: int, plan: str, meta: str, scalar: bool = False) -> str:
    """The lines that make the node of a set of inputs, and hang the output `t` on it."""
    saves = op.saves(mask)
    entries, counted = [], []
    for name in saves:
        if name in op.outputs:
            entries.append("(y, counter, 0, 0)")
        else:
            entries.append(name)
            if not (scalar and name == op.inputs[1]):
                counted.append(name)
    edges = [f"{n}._node or edge_of({n})" if mask >> i & 1 else "None"
             for i, n in enumerate(op.inputs)]  # fmt: skip
    clean = " and ".join(f"{n}._counter is None" for n in counted)
    lines = [
        "node = new_node(OpNode)",
        f"node.plan = {plan}",
        f"node.edges = ({', '.join(edges)},)",
        f"node.meta = {meta}",
        "node.rare = None",
        "counter = [0]" if "result" in saves else "counter = None",
        f"node.saved = saved = ({', '.join(entries)},)" if entries else "node.saved = ()",
        f"node.versions = None if {clean} else versions_of(saved)" if clean
        else "node.versions = None",
        "node.seq = next_seq()",
        "t._requires_grad, t._node, t._counter = True, node, counter",
    ]  # fmt: skip
    return "\n".join(lines)


FORWARD = """
y = forwards[type(a)]({args})
if type(y) is not type(a):
    y = backend_of(a).wrap(y)
t = new(Tensor)
t._array = y
t._grad = t._rare = None
"""

LEAF = "t._requires_grad, t._node, t._counter = False, None, None"

UNARY = """
def function(input):
    self = input
    try:
        a = self._array
        dtype = a.dtype
        if (dtype is F32 or dtype is F64) and (mode := state.fast) != 2:
{forward}
            if mode and self._requires_grad:
{record}
            else:
                {leaf}
            return t
    except Exception:
        pass
    return apply(OP, (self,))
"""

BINARY = """
def function(input, other):
    self = input
    try:
        a = self._array
        dtype = a.dtype
        if (dtype is F32 or dtype is F64) and (mode := state.fast) != 2:
            if isinstance(other, Tensor):
                b = other._array
                if b.dtype is dtype:
{forward}
                    if mode and self._requires_grad:
                        same = a.shape == b.shape
                        if other._requires_grad:
{record3}
                        else:
{record1}
                    elif mode and other._requires_grad:
                        same = a.shape == b.shape
{record2}
                    else:
                        {leaf}
                    return t
            elif type(other) is float or type(other) is int:
{forward_scalar}
                if mode and self._requires_grad:
{record_scalar}
                else:
                    {leaf}
                return t
    except Exception:
        pass
    return apply(OP, (self, other))
"""


def _unary(op: Op) -> str:
    return UNARY.format(
        leaf=LEAF,
        forward=indent(FORWARD.format(args="a"), " " * 12),
        record=indent(_record(op, 1, "plan1", "None"), " " * 16),
    )  # fmt: skip


def _binary(op: Op) -> str:
    def record(mask: int, width: int) -> str:
        meta = "None if same else ((a.shape, b.shape), NO_PARAMS, (dtype, dtype), None, False)"
        lines = _record(op, mask, f"plan{mask} if same else general{mask}", meta)
        return indent(lines, " " * width)

    return BINARY.format(
        leaf=LEAF,
        forward=indent(FORWARD.format(args="a, b"), " " * 20),
        forward_scalar=indent(FORWARD.format(args="a, other"), " " * 16),
        record1=record(1, 28), record2=record(2, 24), record3=record(3, 28),
        record_scalar=indent(_record(op, 1, "scalar1", "None", scalar=True), " " * 20),
    )  # fmt: skip
