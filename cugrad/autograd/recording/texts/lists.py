"""The text of the fast path of rows with lists: of tensors that are joined, of views of one."""

from __future__ import annotations

from typing import Any

from ....ops.table import Op
from ...mode import INFERRING, UNUSUAL
from ..templates import filled
from ..views import MULTIPLE

__all__ = ["HANG", "text_of_joined", "text_of_pieces", "wrapping"]

# Making the Tensor of an output.
WRAP = """\
{t} = new(Tensor)
{t}._array = {y}
{t}._grad = {t}._rare = {t}._node = {t}._counter = {unknown}None
{known}
{t}._requires_grad = False
{attach}
"""

# Making it known to its node.
HANG = """\
{t}._requires_grad = True
{t}._node = {node}
"""

# A row of a list of tensors, by what a backend has kept. It saves none of them.
JOINED = """\
try:
    if (_mode := state.fast) != {UNUSUAL}:
        _arrays = [_x._array for _x in {x}]
        _forms = tuple([_x._form for _x in {x}])
        if None in _forms or (_found := by_forms.get({formed})) is None:
            _found = launches[{key}]
            {telling}
        _launch, _meta, _shown = _found
        _y = _launch({operands})
        if _y is None:
            raise TypeError
        {wrap}
        if _mode == {INFERRING}:
            _t._counter = UNCOUNTED
        elif _mode and True in [_x._requires_grad for _x in {x}]:
            _node = OpNode()
            _node.plan = formed1
            _node.meta = _meta
            _node.edges = tuple([
                (_x._node or (_x if _x._rare is None else edge_of(_x)))
                if _x._requires_grad else None for _x in {x}
            ])
            _node.rare = _node.versions = None
            _node.saved = ()
            _node.seq = next_seq()
            {hang}
        return _t
except Exception:  # nothing is kept, or the general way says what is wrong
    pass
"""

# Leaves are told their form, and what they have computed that of others.
TELLING = """\
if all([_x._form is not None or _x._requires_grad and _x._node is None for _x in {x}]):
    _forms = tuple([tell_form(_x, _x._array, named_form) for _x in {x}])
    if None not in _forms:
        by_forms[{formed}] = _found
"""

# A row that makes several views of one tensor, and saves nothing.
PIECES = """\
try:
    if (_mode := state.fast) != {UNUSUAL}:
        _a = {x}._array
        _views = []
        for _y in forwards[type(_a)](_a, {operands}):
            {wrap}
            _views.append(_t)
        if _mode and _mode != {INFERRING} and {x}._requires_grad:
            _node = OpNode()
            _node.plan = plan_of(OP.counted(len(_views)), 1)
            _node.meta = ((_a.shape,), {params}, (_a.dtype,), None, _a.dtype.kind == "c")
            _node.edges = ({x}._node or ({x} if {x}._rare is None else edge_of({x})),)
            _node.rare = _node.versions = None
            _node.saved = ()
            _node.seq = next_seq()
            for _nr, _t in enumerate(_views):
                _t._requires_grad = True
                _t._node = Output(_node, _nr) if len(_views) > 1 else _node
        return tuple(_views)
except Exception:  # as in all fast paths: the general one says what is wrong
    pass
"""


def wrapping(y: str, t: str, attach: str, form: str = "") -> str:
    """The lines that make the Tensor `t` of an array, whose form `form` is, if that is known."""
    return filled(
        WRAP, y=y, t=t, attach=attach, unknown="" if form else f"{t}._form = ",
        known=f"{t}._form = {form}" if form else "",
    )  # fmt: skip


def text_of_joined(op: Op, kept: Any) -> str:
    """The fast path of a row of a list; `kept` is what a backend keeps of it."""
    told, x = ["_arrays", *op.params], op.inputs[0]
    formed = kept.key(told, ["_forms"])
    return filled(
        JOINED, x=x, key=kept.key(told), formed=formed,
        telling=filled(TELLING, x=x, formed=formed), operands=", ".join(told), UNUSUAL=UNUSUAL,
        INFERRING=INFERRING, wrap=wrapping("_y", "_t", "", "_shown"),
        hang=filled(HANG, t="_t", node="_node"),
    )  # fmt: skip


def text_of_pieces(op: Op, params: str) -> str:
    """The fast path of a row with a list of results; `params` is the text of its parameters."""
    x = op.inputs[0]
    attach = f"attach(_t, {x}, OP, {params}, {MULTIPLE})"
    return filled(
        PIECES, x=x, operands=", ".join(op.params), params=params, UNUSUAL=UNUSUAL,
        INFERRING=INFERRING, wrap=wrapping("_y", "_t", attach),
    )  # fmt: skip
