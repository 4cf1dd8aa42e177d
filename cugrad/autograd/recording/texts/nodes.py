"""The text that makes a row's node, for each set of inputs that need a gradient.

Names are those of `rows.py`.
"""

from __future__ import annotations

from textwrap import indent
from typing import Any

from ....ops.table import COMMON, ELEMENTWISE, FLOAT, Op
from ..op_node import compiles_vjp
from ..templates import filled
from .lists import HANG

__all__ = [
    "masks_of", "number_mask", "outputs_of", "params_of", "takes_number", "text_of_node",
]  # fmt: skip

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


def outputs_of(op: Op) -> list[tuple[str, str]]:
    """What the outputs are called: the raw ones, and their Tensors."""
    numbers = [""] if len(op.outputs) == 1 else range(len(op.outputs))
    return [(f"_y{k}", f"_t{k}") for k in numbers]


def params_of(op: Op) -> str:
    if not op.params:
        return "NO_PARAMS"
    return "{" + ", ".join(f"{n!r}: {n}" for n in op.params) + "}"


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
            y, t = outputs_of(op)[k]
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
    ends = [(outputs_of(op)[k][1], f"Output(_node, {nr})" if several else "_node")
            for nr, k in enumerate(op.differentiable)]  # fmt: skip
    hang = [filled(HANG, t=t, node=node) for t, node in ends]
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
    meta = f"(({', '.join(shapes)},), {params_of(op)}, ({', '.join(dtypes)},), None, False)"
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
