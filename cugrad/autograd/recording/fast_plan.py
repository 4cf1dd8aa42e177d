"""The gradients of rows, compiled to straight-line functions of arrays for the common case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ops.table import ELEMENTWISE, SAME, Op, raw
from .op_node import OpPlan
from .saved import arrays
from .templates import compiled, filled

__all__ = ["FastPlan", "compiles_vjp", "text_of_vjp"]


# The backward of a node whose saved entries are plain, and whose gradients need no adapting.
VJP = """\
def vjp(node, g):
    {unpack}
    {check}
    {meta}
    return {calls},
"""
UNPACK = "{names}, = {saved}"
CHECK = """\
if {changed}:
    arrays(node)  # raises if changed in place
"""
META = "shapes, params, _, _, _ = node.meta"


class FastPlan(OpPlan):
    """A plan for nodes whose saved entries are plain and whose gradients need no adapting."""

    __slots__ = ("_number", "_packed")

    def __init__(self, op: Op, mask: int, number: bool) -> None:
        super().__init__(op, mask)
        self.vjp = _compile_vjp(op, mask, number)
        self._number, self._packed = number, None  # type: bool, OpPlan | None

    def packed(self) -> OpPlan:
        """The plan when hooks have packed what is saved."""
        found = self._packed
        if found is None:
            found = self._packed = OpPlan(self.op, self.mask)
            found.vjp = _compile_vjp(self.op, self.mask, self._number, packed=True)
        return found


def _compile_vjp(op: Op, mask: int, number: bool, packed: bool = False) -> Callable[..., Any]:
    """`vjp(node, g)` for arrays: unpack, check versions, call the formulas."""
    scope: dict[str, Any] = {"raw": raw, "arrays": arrays, **op.formula_names()}
    scope["__name__"] = __name__
    exec(compiled(text_of_vjp(op, mask, number, packed)), scope)
    return scope["vjp"]


def text_of_vjp(op: Op, mask: int, number: bool = False, packed: bool = False) -> str:
    """The code of the gradients of the inputs in the bit set `mask`.

    `number`: the second operand was a Python number. `packed`: hooks have packed what is saved.

    >>> from cugrad.ops.table import TABLE
    >>> print(text_of_vjp(TABLE["mul"], 0b01))
    def vjp(node, g):
        s0, = node.saved
        if s0._counter is not None:
            arrays(node)  # raises if changed in place
        return F0(g, s0._array), None,
    """
    checks, places, saves = [], {"m": "raw", "g": "g"}, op.saves(mask)
    for i, name in enumerate(saves):
        if packed:
            places[name] = f"s{i}"
        elif name in op.outputs:
            checks.append(f"s{i}[1] is not None and s{i}[1][0] != s{i}[2]")
            places[name] = f"s{i}[0]"
        elif number and name == op.inputs[1]:
            places[name] = f"s{i}"
        elif name in op.optional:
            checks.append(f"s{i} is not None and s{i}._counter is not None")
            places[name] = f"(None if s{i} is None else s{i}._array)"
        else:
            checks.append(f"s{i}._counter is not None")
            places[name] = f"s{i}._array"
    names = ", ".join(f"s{i}" for i in range(len(saves)))
    saved = "arrays(node)" if packed else "node.saved"
    return filled(
        VJP, calls=op.calls(mask, places),
        unpack=names and filled(UNPACK, names=names, saved=saved),
        check=checks and filled(CHECK, changed=" or ".join(checks)),
        meta=META if op.params or op.kind != ELEMENTWISE else "",
    )  # fmt: skip


def compiles_vjp(op: Op) -> bool:
    """Whether gradients come out in the shape and dtype of their inputs where dtypes are one."""
    if not op.holomorphic:  # the gradient of a real input may come out complex
        return False
    return op.kind == ELEMENTWISE or op.promote in (None, SAME) or len(op.inputs) == 1
