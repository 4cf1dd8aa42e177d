"""The text of a row's function of Tensors: what it does in the common case, in a straight line.

Names that the code makes begin with an underscore, because inputs and parameters have theirs there:
_a0 is the array of input 0, _n0 whether it needs a gradient, _dtype the common dtype, _y the raw
output and _t its Tensor (_y0 and _t0, _y1 and _t1 where a row has several), _form 2 where the
second operand is a Python number.
"""

from __future__ import annotations

from textwrap import indent
from typing import Any

from ...ops.table import COMMON, ELEMENTWISE, FLOAT, Op
from ..mode import INFERRING, PACKING, UNUSUAL
from .list_text import HANG, WRAP, text_of_joined, text_of_pieces
from .op_node import compiles_vjp
from .templates import filled
from .views import MULTIPLE, NORMAL

__all__ = [
    "is_fast", "key_of", "masks_of", "names_of", "number_mask", "reading", "signature_of",
    "takes_number", "text_of", "text_of_node",
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

MORE = """\
if more:
    return called(function, {{{pairs}}}, more)
"""

FAST = """\
_packing = _dtype = None
try:
    {a} = {first}._array
    _dtype = {a}.dtype
    if ({kinds}) and (_mode := state.fast) != {UNUSUAL}:
        {read}
        {run}
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

HALF = """\
if _dtype is not None and ({kinds}):
    return of_half({names})
"""

KINDS, HALVES = "_dtype is F32 or _dtype is F64", "_dtype is F16 or _dtype is BFLOAT16._numpy"

# Reading another input. What the fast path does not know raises, and falls through.
READ = """\
{a} = {x}._array
{n} = {x}._requires_grad
{same_kind}
{same_dtype}
"""

SAME_KIND = """\
if type({a}) is not type({first}):
    raise TypeError
"""

SAME_DTYPE = """\
if {a}.dtype is not _dtype:
    raise TypeError
"""

READ_OPTIONAL = """\
if {x} is None:
    {a} = None
    {n} = False
else:
    {read}
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
    _launch, _meta = launches[{key}]
    {outputs} = _launch({operands})
    {declined}
else:
    _launch = None
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

NODE = """\
{when} {tests}:
    _node = OpNode()
    {plan}
    {counters}
    _node.edges = ({edges},)
    _node.rare = None
    _node.saved = ({saved})
    _node.versions = {versions}
    _node.seq = next_seq()
    {hang}
"""

PLAN = """\
_node.plan = {plan}
_node.meta = {meta}
"""

PLAN_IF = """\
{when} {test}:
    {plan}
"""

PLAN_KEPT = """\
if _launch is not None:
    _node.plan = {plan}
    _node.meta = _meta
else:
    {others}
"""


def text_of(op: Op, public: bool = True, more: bool = False, half: bool = False,
            asks: bool = False, alone: bool = False, kept: Any = None) -> str:  # fmt: skip
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
    general = filled(GENERAL, inputs=", ".join(op.inputs), params=_params(op), part="[0]" * alone)
    if asks:
        general = filled(ASKING, general=general, names=", ".join(names))
    return filled(
        FUNCTION, signature=signature_of(op, names, more), renamed=renamed, general=general,
        fast=_fast_path(op, names, half, alone, kept) if is_fast(op)
        else text_of_joined(op, kept) if op.variadic and kept is not None
        else text_of_pieces(op, _params(op)) if op.many else "",
        more=filled(MORE, pairs=pairs) if more else "",
    )  # fmt: skip


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


def _params(op: Op) -> str:
    if not op.params:
        return "NO_PARAMS"
    return "{" + ", ".join(f"{n!r}: {n}" for n in op.params) + "}"


# ---------------------------------------------------------------------- the fast path of a row


def _fast_path(op: Op, names: list[str], half: bool, alone: bool, kept: Any) -> str:
    first = op.promoted[0]
    a, pairs = f"_a{first}", _outputs(op)
    shown = pairs[:1] if alone else pairs
    creation = NORMAL if len(pairs) == 1 else MULTIPLE
    wrap = [
        filled(WRAP, y=y, t=t, attach=op.view
               and f"attach({t}, {op.inputs[0]}, OP, {_params(op)}, {creation})")
        for y, t in shown
    ]  # fmt: skip
    kinds = HALVES if half else KINDS
    return filled(
        FAST, a=a, first=op.inputs[first], UNUSUAL=UNUSUAL, read=reading(op, first, half, kept),
        kinds=kinds if kept is None else f"type({a}) is KIND or {kinds}",
        half="" if half else filled(HALF, kinds=HALVES, names=", ".join(names)),
        run=_running(op, a, kept), results=", ".join(t for _, t in shown),
        wrap="\n".join(wrap), record=_recording(op, half, alone, kept),
    )  # fmt: skip


def _outputs(op: Op) -> list[tuple[str, str]]:
    """What the outputs are called: the raw ones, and their Tensors."""
    numbers = [""] if len(op.outputs) == 1 else range(len(op.outputs))
    return [(f"_y{k}", f"_t{k}") for k in numbers]


def _running(op: Op, a: str, kept: Any) -> str:
    arrays = [f"_a{i}" for i in range(len(op.inputs))]
    pairs = _outputs(op)
    holes = {"a": a, "operands": ", ".join([*arrays, *op.params]),
             "outputs": ", ".join(y for y, _ in pairs)}  # fmt: skip
    wrap = "\n".join(filled(WRAP_ARRAY, a=a, y=y) for y, _ in pairs)
    run = filled(RUN, wrap=wrap, **holes)
    if kept is None:
        return run
    declined = filled(DECLINED, y=pairs[0][0]) if len(pairs) == 1 else ""
    return filled(RUN_KEPT, run=run, key=key_of(op, kept), declined=declined, **holes)


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
            READ, **names, same_dtype=filled(SAME_DTYPE, **names) if meets else "",
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
            fits = filled(FITS, x=x, LEAST=LEAST, given="") if x in op.fits else ""
            read = filled(READ_OR_NUMBER, **names, read=read, number=number, fits=fits)
        parts.append(read)
    for x in op.params:
        if x in op.numbers:
            parts.append(filled(NUMBER, x=x))
        if x in op.fits:
            parts.append(filled(FITS, x=x, LEAST=LEAST, given=f"{x} is not None and "))
    return "\n".join(parts)


def takes_number(op: Op, i: int) -> bool:
    """Whether input i may be a Python number here: the second of two that meet in arithmetic."""
    arithmetic = op.kind == ELEMENTWISE or not any(op.formulas)
    meets = len(op.promoted) == 2 and op.promote in (COMMON, FLOAT)
    return arithmetic and meets and i == op.promoted[1]


def number_mask(op: Op) -> int | None:
    """The set of inputs that need a gradient where one is a number; None where none may be."""
    first, *others = op.promoted
    if len(others) != 1 or not takes_number(op, others[0]) or op.formulas[first] is None:
        return None
    return 1 << first


def _recording(op: Op, half: bool, alone: bool, kept: Any) -> str:
    able = [i for i, f in enumerate(op.formulas) if f is not None]
    uncounted = connect = ""
    if not op.view:  # a view has the counter of what it is a view of
        shown = _outputs(op)[:1] if alone else _outputs(op)
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
    y, _ = _outputs(op)[op.differentiable[0]]
    unfit = f"{y}.dtype is not _dtype"
    if op.kind == ELEMENTWISE and len(op.inputs) == 1:
        unfit += f" and not is_floating({y}.dtype)"
    if kept is not None:  # who keeps a launch has looked
        unfit = f"({unfit}) if _launch is None else _meta is UNFIT"
    return filled(GUARD, unfit=unfit)


def masks_of(op: Op) -> list[int]:
    """All non-empty sets of inputs with a formula, as bits."""
    able = sum(1 << i for i, f in enumerate(op.formulas) if f is not None)
    return [mask for mask in range(1, able + 1) if mask & able == mask]


def text_of_node(
    op: Op, mask: int, able: list[int], is_first: bool, half: bool, alone: bool, kept: Any,
    in_place: bool = False,
) -> str:  # fmt: skip
    counters, saved, counted = [], [], []
    for name in op.saves(mask):
        if name in op.outputs:
            k = op.outputs.index(name)
            y, t = _outputs(op)[k]
            if op.view or in_place or k not in op.differentiable and not (alone and k):
                # others tell the node of their counter, or have no Tensor
                counters.append(f"{t}.counter")
                saved.append(f"({y}, {t}._counter, {t}._counter[0], {k})")
            else:
                saved.append(f"({y}, None, 0, {k})")
            continue
        saved.append(name)
        if name in op.optional or takes_number(op, op.inputs.index(name)):
            counted.append(f"({name}.__class__ in NUMBERS or {name}._counter is None)")
        else:
            counted.append(f"{name}._counter is None")
    saved += ["None"] * op.held
    changeable = f"None if {' and '.join(counted)} else versions_of(_node.saved)"
    edges = [f"{n}._node or ({n} if {n}._rare is None else edge_of({n}))"
             if mask >> i & 1 else "None"
             for i, n in enumerate(op.inputs)]  # fmt: skip
    several = len(op.differentiable) > 1
    hang = [filled(HANG, t=_outputs(op)[k][1], node=f"Output(_node, {nr})" if several else "_node")
            for nr, k in enumerate(op.differentiable)]  # fmt: skip
    return filled(
        NODE, when="if" if is_first else "elif", plan=_plan_and_meta(op, mask, half, kept),
        tests=" and ".join(f"_n{i}" if mask >> i & 1 else f"not _n{i}" for i in able),
        edges=", ".join(edges), counters="\n".join(counters), hang="\n".join(hang),
        saved=", ".join(saved) + "," * bool(saved), versions=changeable if counted else "None",
    )  # fmt: skip


def _plan_and_meta(op: Op, mask: int, half: bool, kept: Any) -> str:
    others = _plan_of_form(op, mask, half)
    if kept is None:
        return others
    plan = f"formed{mask}"
    if compiles_vjp(op):
        plan = f"plan{mask} if _meta is None else {plan}"
        if mask == number_mask(op):
            number = f"number{mask} if _meta is None else number_formed{mask}"
            plan = f"({number}) if _form == 2 else {plan}"
    return filled(PLAN_KEPT, plan=plan, others=others)


def _plan_of_form(op: Op, mask: int, half: bool) -> str:
    count = len(op.inputs)
    shapes = [f"_a{i}.shape" for i in range(count)]
    dtypes = [f"_a{i}.dtype" for i in range(count)]
    for i, name in enumerate(op.inputs):
        if name in op.optional:
            shapes[i] = f"() if _a{i} is None else _a{i}.shape"
            dtypes[i] = f"None if _a{i} is None else _a{i}.dtype"
        elif i in op.promoted and op.promote is not None:
            dtypes[i] = "_dtype"
        if half and takes_number(op, i):
            shapes[i] = f"() if _form == 2 else _a{i}.shape"
    meta = f"(({', '.join(shapes)},), {_params(op)}, ({', '.join(dtypes)},), None, False)"
    general = filled(PLAN, plan=f"general{mask}", meta=meta)
    if half or not compiles_vjp(op):  # formulas may make float32 of bfloat16: cast back
        return general
    if op.kind != ELEMENTWISE:
        return filled(PLAN, plan=f"plan{mask}", meta=meta)
    kept = meta if op.params else "None"  # formulas may ask for parameters
    plan = filled(PLAN, plan=f"plan{mask}", meta=kept)
    if count == 1:  # an op that changes the dtype, such as a cast, has its gradient cast back
        cases = [("_y.dtype is _dtype", plan)]
    else:
        others = ["_y.shape"] * (len(op.promoted) < count)
        cases = [(" == ".join([*[f"_a{i}.shape" for i in op.promoted], *others]), plan)]
        if mask == number_mask(op):
            number = filled(PLAN, plan=f"number{mask}", meta=kept)
            whole = " == ".join([f"_a{op.promoted[0]}.shape", *others]) if others else ""
            cases.insert(0, ("_form == 2" + f" and {whole}" * bool(others), number))
    parts = [filled(PLAN_IF, when="elif" if k else "if", test=test, plan=plan)
             for k, (test, plan) in enumerate(cases)]  # fmt: skip
    return "\n".join([*parts, "else:", indent(general, "    ")])
