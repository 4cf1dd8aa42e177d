"""The text of finding a kept launch by the forms that tensors have.

To ask CuPy for the shape of an array takes as long as a third of a kernel's launch. But what a kept
launch makes is known beforehand, and leaves are the same in each step. So tensors have the form of
their array, as an object, and a row finds a launch by those of its operands. Names are those of
`rows.py`; also _f0 is the form of input 0, and _shown that of the output.
"""

from __future__ import annotations

from textwrap import indent
from typing import Any

from ....ops.table import Op
from ....tensor import Tensor
from ...mode import UNUSUAL
from ..templates import filled

__all__ = ["FIELD", "READ", "READ_OPTIONAL", "known_or", "tell_form", "telling"]

FIELD = Tensor.__dict__["_array"]

KNOWN = """\
if ({first} := {x}._form) is not None{tensors} and (
    (_mode := state.fast) != {UNUSUAL} and (_known := by_forms.get({key})) is not None
):
    {read}
    _launch, _meta, _shown = _known
    {outputs} = _launch({operands})
    {declined}
    _ready = True
else:
    {a} = {x}._array
    _dtype = {a}.dtype
    if _ready := ({kinds}) and (_mode := state.fast) != {UNUSUAL}:
        {others}
"""

READ = """\
{a} = {x}._array
{n} = {x}._requires_grad
"""

READ_OPTIONAL = """\
if {x} is None:
    {a} = None
    {n} = False
else:
    {read}
"""

# Leaves are told their form, and what they have computed that of others.
TELLING = """\
if {leaves}:
    {told}
    if None not in ({forms},):
        by_forms[{key}] = _launch, _meta, _shown
"""


def known_or(
    op: Op, first: int, numbers: list[int], others: str, key: Any, checks: list[str], **holes: Any
) -> str:
    """A launch by forms if all operands are tensors that have one; else `others`, a text."""
    reads, forms, tensors = [], [], ""
    for i, x in enumerate(op.inputs):
        names = {"a": f"_a{i}", "n": f"_n{i}", "x": x}
        read = filled(READ, **names)
        optional = x in op.optional
        reads.append(filled(READ_OPTIONAL, **names, read=read) if optional else read)
        forms.append(_form_of(op, i) if i != first else f"_f{i}")
        tensors += f" and isinstance({x}, Tensor)" * (i in numbers)
    reads += [*checks, "_form = 0"] if numbers else checks
    return filled(
        KNOWN, first=f"_f{first}", x=op.inputs[first], a=f"_a{first}", tensors=tensors,
        UNUSUAL=UNUSUAL, key=key(forms), read="\n".join(reads), others=others, **holes,
    )  # fmt: skip


def telling(op: Op, numbers: list[int], key: Any) -> str:
    """The lines after a launch that was found otherwise; none where an operand is a number."""
    leaves, told = [], []
    for i, x in enumerate(op.inputs):
        has = f"{x}._form is not None or _n{i} and {x}._node is None"
        leaves.append(f"({x} is None or {has})" if x in op.optional else f"({has})")
        told.append(f"_f{i} = tell_form({x}, _a{i}, named_form)")
    forms = [f"_f{i}" for i in range(len(op.inputs))]
    lines = filled(
        TELLING, leaves=" and ".join(leaves), told="\n".join(told), forms=", ".join(forms),
        key=key(forms),
    )  # fmt: skip
    return f"if _form == 0:\n{indent(lines, '    ')}" if numbers else lines


def _form_of(op: Op, i: int) -> str:
    x = op.inputs[i]
    return f"False if {x} is None else {x}._form" if x in op.optional else f"{x}._form"


def tell_form(tensor: Any, array: Any, named_form: Any) -> Any:
    """The form of a tensor, which it has from now on, unless its array comes and goes; False where
    there is no tensor.
    """
    if tensor is None:
        return False
    if tensor._form is None and type(tensor)._array is FIELD:
        tensor._form = named_form(array)
    return tensor._form
