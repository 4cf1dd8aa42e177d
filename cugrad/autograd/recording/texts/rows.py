"""The text of a row's function of Tensors: what it does in the common case, in a straight line.

Names that the code makes begin with an underscore, because inputs and parameters have theirs there:
_a0 is the array of input 0, _n0 whether it needs a gradient, _dtype the common dtype, _y the raw
output and _t its Tensor (_y0 and _t0, _y1 and _t1 where a row has several), _form 2 where the
second operand is a Python number.
"""

from __future__ import annotations

from typing import Any

from ....ops.table import ELEMENTWISE, Op
from ...mode import INFERRING, PACKING, UNUSUAL
from ..policies import CASTS
from ..templates import filled
from ..views import MULTIPLE, NORMAL
from .known import READ, READ_OPTIONAL, known_or, telling
from .lists import text_of_joined, text_of_pieces, wrapping
from .nodes import masks_of, outputs_of, params_of, takes_number, text_of_node

__all__ = [
    "is_fast", "key_of", "names_of", "reading", "signature_of", "text_of",
]  # fmt: skip

MAX_INPUTS = 3  # with gradients: a block of code per set that needs one, 7 for three

# Templates: `{hole}` alone on a line is filled with lines, or with none. Names that the code makes
# begin with an underscore, because inputs and parameters have theirs there: _a0 is the array of
# input 0, _n0 whether it needs a gradient, _dtype the common dtype, _y the raw output and _t its
# Tensor (_y0 and _t0, _y1 and _t1 where a row has several), _form 2 where the second operand is a
# Python number.

FUNCTION = """\
def function({signature}):
    {more}
    {renamed}
    {fast}
    {general}
"""

GENERAL = """\
return apply(OP, ({inputs},), {params}){part}
"""

ASKING = """\
try:
    {general}
except Unasked:  # a class that derives from nothing of the library, and takes calls
    return function({names})
"""

OPERATOR = """\
try:
    {general}
except TypeError as error:
    return left_to_other(error)
"""

MORE = """\
if more:
    return called(function, {{{pairs}}}, more)
"""

BEGIN = """\
_packing = _dtype = None
try:
"""

# What has raised the general way computes, or it says what is wrong.
END = """\
        {wrap}
        {record}
        if _packing is None:
            return {results}
except Exception:
    pass
if _packing is not None:
    pack(_packing)
    return {results}
{half}
"""

KNOWN = """\
    {ready}
    if _ready:
"""

PLAIN = """\
    {a} = {first}._array
    _dtype = {a}.dtype
    if ({kinds}) and (_mode := state.fast) != {UNUSUAL}:
        {read}
        {run}
"""
FAST, FAST_PLAIN = BEGIN + KNOWN + END, BEGIN + PLAIN + END

HALF = """\
if _dtype is not None and ({kinds}):
    return of_half({names})
"""

KINDS, HALVES = "_dtype is F32 or _dtype is F64", "_dtype is F16 or _dtype is BFLOAT16._numpy"

# Reading another input. What the fast path does not know raises, and falls through.
READ_ALIKE = (
    READ
    + """\
{same_kind}
{same_dtype}
"""
)

SAME_KIND = """\
if type({a}) is not type({first}):
    raise TypeError
"""

SAME_DTYPE = """\
if {a}.dtype is not _dtype:
    raise TypeError
"""

READ_OR_NUMBER = """\
if isinstance({x}, Tensor):
    {read}
    _form = 0
else:
    if type({x}) is not float and type({x}) is not int:
        raise TypeError
    {fits}
    {a} = {number}
    {n} = False
    _form = 2
"""

FITS = """\
if {given}not -127 <= {x} <= 127 and (_dtype.kind in "biu" or not -{LEAST} <= {x} <= {LEAST}):
    raise TypeError  # the general way looks closer
"""
NUMBER = """\
if {x}.__class__ not in NUMBERS:
    raise TypeError  # NumPy's numbers have a dtype, and a tensor is none
"""
LEAST = 65504  # the largest number of the floating-point dtype whose largest is least

# Running it: by a function of arrays, or by what a backend has kept for operands of this form, with
# what nodes keep of these.
RUN = """\
{outputs} = forwards[_kind := type({a})]({operands})
{wrap}
"""

WRAP_ARRAY = """\
if type({y}) is not _kind:
    {y} = backend_of({a}).wrap({y})
"""

RUN_KEPT = """\
if type({a}) is KIND:
    _launch, _meta, _shown = launches[{key}]
    {outputs} = _launch({operands})
    {declined}
    {telling}
else:
    _launch = _shown = None
    {run}
"""

DECLINED = """\
if {y} is None:
    raise TypeError
"""

# Making the node: one block per set of inputs that need a gradient.
RECORD = """\
if _mode:
    {uncounted}
    {connect}
"""

UNCOUNT = """\
if _mode == {INFERRING}:
    {marks}
"""

CONNECT = """\
{when} ({needed}){only}:
    {guard}
    {nodes}
    if _mode == {PACKING}:  # outside the try: a hook's error is the user's
        _packing = _node
"""

GUARD = """\
if {unfit}:
    raise TypeError
"""


def text_of(op: Op, public: bool = True, more: bool = False, half: bool = False,
            asks: bool = False, alone: bool = False, kept: Any = None,
            operator: bool = False) -> str:  # fmt: skip
    """The code of a row: the fast path where the row allows one, then `record.apply`.

    With `half` the path is that of half precision, which another text leads to. `kept` is what a
    backend keeps of the row: see `row_function` in `backends/protocol.py`.

    >>> from cugrad.ops.table import TABLE
    >>> print(text_of(TABLE["cat"]))
    def function(tensors, dim=default_dim):
        return apply(OP, (tensors,), {'dim': dim})
    """
    names = names_of(op, public)
    renamed = f"{op.inputs[0]} = {names[0]}" if names[0] != op.inputs[0] else ""
    pairs = ", ".join(f"{n!r}: {n}" for n in names)
    general = filled(GENERAL, inputs=", ".join(op.inputs), params=params_of(op), part="[0]" * alone)
    if asks:
        general = filled(ASKING, general=general, names=", ".join(names))
    if operator:
        general = filled(OPERATOR, general=general)
    text = filled(
        FUNCTION, signature=signature_of(op, names, more), renamed=renamed, general=general,
        fast=_fast_path(op, names, half, alone, kept) if is_fast(op)
        else text_of_joined(op, kept) if op.variadic and kept is not None
        else text_of_pieces(op, params_of(op)) if op.many else "",
        more=filled(MORE, pairs=pairs) if more else "",
    )  # fmt: skip
    return text.replace("state.fast)", "state.fast_cast)") if op.name in CASTS else text


def is_fast(op: Op) -> bool:
    """Whether a row has a fast path: few inputs, and some whose dtype decides."""
    few = not op.variadic and not op.many and len(masks_of(op)) < 1 << MAX_INPUTS
    if op.refuses and op.kind == ELEMENTWISE and len(op.promoted) < len(op.inputs):
        return False  # an operand that meets no other is not looked at
    return few and bool(op.promoted)


def names_of(op: Op, public: bool) -> list[str]:
    names = [*op.inputs, *op.params]
    return ["input", *names[1:]] if public and names[0] == "self" else names


def signature_of(op: Op, names: list[str], more: bool) -> str:
    """PyTorch's argument names; inputs that may be absent default to None, or all inputs."""
    parts, seen_default = [], more
    for name in names:
        default = None
        if name in op.optional:
            default = "None"
        elif name in op.defaults:
            default = f"default_{name}"
        seen_default = seen_default or default is not None
        if default is None and seen_default:
            default = "None"
        parts.append(name if default is None else f"{name}={default}")
    return ", ".join(parts) + ", **more" * more


# ---------------------------------------------------------------------- the fast path of a row


def _fast_path(op: Op, names: list[str], half: bool, alone: bool, kept: Any) -> str:
    first = op.promoted[0]
    a, pairs, is_view = f"_a{first}", outputs_of(op), bool(op.view)
    shown = pairs[:1] if alone else pairs
    creation = NORMAL if len(pairs) == 1 else MULTIPLE
    wrap = [
        wrapping(y, t, f"attach({t}, {op.inputs[0]}, OP, {params_of(op)}, {creation})" * is_view,
                 "" if k or kept is None else "_shown")
        for k, (y, t) in enumerate(shown)
    ]  # fmt: skip
    kinds = HALVES if half else KINDS
    holes = {
        "half": "" if half else filled(HALF, kinds=HALVES, names=", ".join(names)),
        "results": ", ".join(t for _, t in shown), "wrap": "\n".join(wrap),
        "record": _recording(op, half, alone, kept),
    }  # fmt: skip
    read, run = reading(op, first, half, kept), _running(op, a, kept)
    if kept is None:
        return filled(FAST_PLAIN, a=a, first=op.inputs[first], UNUSUAL=UNUSUAL, read=read,
                      kinds=kinds, run=run, **holes)  # fmt: skip
    ready = known_or(
        op, first, _numbers(op), f"{read}\n{run}", key=_key_of_forms(op, kept),
        checks=_looking_at_numbers(op), kinds=f"type({a}) is KIND or {kinds}", **_holes_of_run(op),
    )  # fmt: skip
    return filled(FAST, ready=ready, **holes)


def _numbers(op: Op) -> list[int]:
    """The inputs that may be numbers."""
    return [i for i in range(len(op.inputs)) if takes_number(op, i) and i != op.promoted[0]]


def _key_of_forms(op: Op, kept: Any) -> Any:
    """The text of a key by the texts of operands' forms."""
    return lambda forms: kept.key([*op.inputs, *op.params], forms)


def _running(op: Op, a: str, kept: Any) -> str:
    holes = {"a": a, **_holes_of_run(op)}
    wrap = "\n".join(filled(WRAP_ARRAY, a=a, y=y) for y, _ in outputs_of(op))
    run = filled(RUN, wrap=wrap, **holes)
    if kept is None:
        return run
    told = telling(op, _numbers(op), _key_of_forms(op, kept))
    return filled(RUN_KEPT, run=run, key=key_of(op, kept), telling=told, **holes)


def _holes_of_run(op: Op) -> dict[str, str]:
    """The holes of a line that runs a row."""
    ys = [y for y, _ in outputs_of(op)]
    operands = [*[f"_a{i}" for i in range(len(op.inputs))], *op.params]
    return {"operands": ", ".join(operands), "outputs": ", ".join(ys),
            "declined": filled(DECLINED, y=ys[0]) if len(ys) == 1 else ""}  # fmt: skip


def key_of(op: Op, kept: Any, casts: bool = False) -> str:
    """The form of the operands, as a text, once they have been read."""
    key: str = kept.key([*[f"_a{i}" for i in range(len(op.inputs))], *op.params])
    for i in op.promoted if op.promote is not None and not casts else op.promoted[:1]:
        if op.inputs[i] not in op.optional:  # those are of one dtype
            key = key.replace(f"_a{i}.dtype", "_dtype")
    return key


def reading(op: Op, first: int, half: bool, kept: Any, casts: bool = False) -> str:
    """Reads the inputs; `casts`: others may be of any dtype, and numbers."""
    parts = []
    for i, x in enumerate(op.inputs):
        names = {"a": f"_a{i}", "n": f"_n{i}", "x": x, "first": f"_a{first}"}
        if i == first:
            parts.append(f"_n{i} = {x}._requires_grad")
            continue
        meets = i in op.promoted and op.promote is not None and not casts
        read = filled(
            READ_ALIKE, **names, same_dtype=filled(SAME_DTYPE, **names) if meets else "",
            # NumPy's own functions refuse what is not theirs
            same_kind=filled(SAME_KIND, **names) if op.ufunc is None else "",
        )  # fmt: skip
        if x in op.optional:
            read = filled(READ_OPTIONAL, **names, read=read)
        elif casts or takes_number(op, i):
            number = x
            if not casts and (half or kept is not None):  # as the general way makes of it
                other = x if kept is None else f"float({x})"
                number = f"_dtype.type({x}) if _dtype is BFLOAT16._numpy else {other}"
                if op.exact == x and kept is None:
                    number = f"float({x}) if type(_a{first}) is HOST else {number}"
            fits = filled(FITS, x=x, LEAST=LEAST, given="") if x in op.fits else ""
            read = filled(READ_OR_NUMBER, **names, read=read, number=number, fits=fits)
        parts.append(read)
    parts += _looking_at_numbers(op)
    for x in op.params:
        if x in op.fits:
            parts.append(filled(FITS, x=x, LEAST=LEAST, given=f"{x} is not None and "))
    return "\n".join(parts)


def _looking_at_numbers(op: Op) -> list[str]:
    """Lines that look at what parameters are that have to be numbers."""
    return [filled(NUMBER, x=x) for x in op.params if x in op.numbers]


def _recording(op: Op, half: bool, alone: bool, kept: Any) -> str:
    able = [i for i, f in enumerate(op.formulas) if f is not None]
    uncounted = connect = ""
    if not op.view:  # a view has the counter of what it is a view of
        shown = outputs_of(op)[:1] if alone else outputs_of(op)
        marks = "\n".join(f"{t}._counter = UNCOUNTED" for _, t in shown)
        uncounted = filled(UNCOUNT, INFERRING=INFERRING, marks=marks)
    if able:
        nodes = [text_of_node(op, mask, able, k == 0, half, alone, kept)
                 for k, mask in enumerate(masks_of(op))]  # fmt: skip
        connect = filled(
            CONNECT, when="elif" if uncounted else "if", needed=" or ".join(f"_n{i}" for i in able),
            only=f" and _mode != {INFERRING}" * op.view, PACKING=PACKING, guard=_guard(op, kept),
            nodes="\n".join(nodes),
        )  # fmt: skip
    return filled(RECORD, uncounted=uncounted, connect=connect) if uncounted or connect else "pass"


def _guard(op: Op, kept: Any) -> str:
    """Leaves outputs of another dtype to the general path, but for casts between float dtypes."""
    y, _ = outputs_of(op)[op.differentiable[0]]
    unfit = f"{y}.dtype is not _dtype"
    if op.kind == ELEMENTWISE and len(op.inputs) == 1:
        unfit += f" and not is_floating({y}.dtype)"
    if kept is not None:  # who keeps a launch has looked
        unfit = f"({unfit}) if _launch is None else _meta is UNFIT"
    return filled(GUARD, unfit=unfit)
