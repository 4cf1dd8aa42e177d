"""The text of a row's change of a tensor in place: by the launches that a backend has kept, or of
few elements on a host.

It does what `inplace.apply_inplace` does in the common case: for a tensor without views or hooks,
or where the change is not recorded. In any other it answers None before anything is done.
"""

from __future__ import annotations

from typing import Any

from ....ops.table import CAST, Op
from ...mode import INFERRING, PACKING, PLAIN, UNUSUAL
from ..templates import filled
from .nodes import masks_of, takes_number, text_of_node
from .rows import is_fast, key_of, reading, signature_of

__all__ = ["FEW", "can_change", "text_of_change"]

FEW = 1 << 12  # elements up to which a host computes the result beside the tensor, and copies it

CHANGE = """\
def function({signature}):
    try:
        _a0 = self._array
        _mode = state.fast
        if _mode in ({UNUSUAL}, {PACKING}) or writes_watched or state.before_write is not None:
            return None
        _dtype = _a0.dtype
        {fits}
        {read}
        {unfit}
        _counter = self._counter
        if (self._node is not None or self._rare is not None) and spares(self):
            return None
        if _mode == {INFERRING}:
            _mode = {PLAIN}
        elif _counter is UNCOUNTED:
            return None
        elif _mode and ({needed}):
            {guard}
        elif _mode:
            _mode = {PLAIN}
            if self._rare is not None and is_part_of_recorded(self):
                return None
        {run}
    except Exception:  # nothing is kept, or the general way says what is wrong
        return None
    {record}
    return self
"""

# A kept launch answers None where it does not take operands of their form.
RUN_KEPT = """\
_launch, _meta, _ = launches[{key}]
if _launch({operands}) is None:
    return None
"""

FITS = """\
if type(_a0) is not HOST or not (_dtype is F32 or _dtype is F64) or _a0.size >= {FEW}:
    return None
if not _a0.flags.c_contiguous:
    return None
"""

# Whatever the tensor shares with its operands, they have been read before it is written.
RUN = """\
_y = forwards[HOST]({operands})
if _y.shape != _a0.shape or _y.dtype is not _dtype:
    return None
_a0[...] = _y
"""

RUN_COPY = """\
if _form == 0 and (_a1.shape != _a0.shape or _a1.dtype is not _dtype):
    return None
_a0[...] = _a1
"""

UNFIT = """\
if _n0:
    return None
"""

# What recording asks of the tensor: it is no leaf, has no views, and none listens to its node.
GUARD = """\
if self._rare is not None{old}:
    return None
if _n0 if self._node is None else self._node.grad_fn.rare is not None:
    return None
if len(_counter or self.counter) > 1:
    return None
{others}
"""

GUARD_OTHER = """\
if {x} is self or {x}._rare is not None{counted}:
    return None
"""

GUARD_TENSOR = """\
if _form == 0:
    {guard}
"""

RECORD = """\
if _mode:
    {recorded}
elif _counter is not None and len(_counter) == 1:
    _counter[0] += 1
else:
    changed(self)
"""

RECORDED = """\
_t, _y = self, _a0
self.counter[0] += 1
{nodes}
"""


def can_change(op: Op) -> bool:
    """Whether a row can have such a text, if something is kept of it."""
    return is_fast(op) and op.promoted[0] == 0 and not op.optional


def text_of_change(op: Op, kept: Any) -> str:
    """The code of a row in place; `kept` is what a backend keeps of it, None on a host.

    Named as in `rows.py`; of a tensor that is recorded its `_mode` says so to the end.
    """
    arrays, casts = [f"_a{i}" for i in range(len(op.inputs))], op.promote == CAST
    operands = ", ".join([*arrays, *op.params])
    if kept is None:
        run = RUN_COPY if op.name == "copy" else filled(RUN, operands=operands)
    else:
        run = filled(RUN_KEPT, key=key_of(op, kept, casts), operands=operands)
    able = [i for i, f in enumerate(op.formulas) if f is not None]
    old = [mask for mask in masks_of(op) if op.inputs[0] in op.saves(mask)]
    masks = [mask for mask in masks_of(op) if mask not in old and (kept is not None or not casts)]
    nodes = [text_of_node(op, mask, able, k == 0, False, False, kept, in_place=True)
             for k, mask in enumerate(masks)]  # fmt: skip
    return filled(
        CHANGE, signature=signature_of(op, [*op.inputs, *op.params], False),
        read=reading(op, 0, False, kept, casts), unfit="" if 0 in able else UNFIT, run=run,
        fits=filled(FITS, FEW=FEW) if kept is None else "",
        PLAIN=PLAIN, UNUSUAL=UNUSUAL, PACKING=PACKING, INFERRING=INFERRING,
        needed=" or ".join(f"_n{i}" for i in able) or "False",
        guard=_guard(op, able, old) if masks else "return None",
        record=filled(RECORD, recorded=_recorded(nodes)),
    )  # fmt: skip


def _recorded(nodes: list[str]) -> str:
    return filled(RECORDED, nodes="\n".join(nodes)) if nodes else "pass"


def _guard(op: Op, able: list[int], old: list[int]) -> str:
    tests = [
        " and ".join(f"_n{i}" if mask >> i & 1 else f"not _n{i}" for i in able) for mask in old
    ]
    others = []
    for i, x in enumerate(op.inputs[1:], 1):
        is_saved = any(x in op.saves(mask) for mask in masks_of(op))
        guard = filled(GUARD_OTHER, x=x, counted=f" or {x}._counter is not None" * is_saved)
        others.append(
            filled(GUARD_TENSOR, guard=guard)
            if op.promote == CAST or takes_number(op, i)
            else guard
        )
    old_text = "".join(f" or {test}" for test in tests)  # gradients need what is overwritten
    return filled(GUARD, old=old_text, others="\n".join(others))
