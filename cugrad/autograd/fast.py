"""Rows compiled to straight-line functions of Tensors for the common case.

What `record.apply` does in general is written out here, per row: read the arrays, run the forward,
make the node. The common case is floating-point tensors of one dtype with nothing unusual switched
on. Any other case, and any error, falls through to `record.apply`, which computes the same and
explains what is wrong.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from functools import cache
from itertools import count
from textwrap import indent
from typing import Any

import numpy as np

from .. import backends
from ..ops.table import COMMON, ELEMENTWISE, FLOAT, SAME, Op, parameters_of, raw
from ..tensor import UNCOUNTED, Tensor
from .mode import INFERRING, PACKING, UNUSUAL, state
from .node import Output, edge_of, next_seq
from .record import NO_PARAMS, OpNode, Plan, apply, plan_of
from .saved import arrays, pack, versions_of
from .views import MULTIPLE, NORMAL, attach

__all__ = ["compile_function", "is_fast"]

MAX_INPUTS = 3  # a block of code per set of inputs that need a gradient: 7 for three


def compile_function(
    op: Op, public: bool = False, called: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """A row as a function of Tensors and parameters, by position or name, fast path in front.

    A `public` one calls its first argument `input`, as PyTorch's functions do. The function is
    compiled when it is first called: it then gets other code, and stays the same object.
    `called(function, values, more)` answers calls with more keywords than those of the row.
    """
    names = [*op.inputs, *op.params]
    if public and names[0] == "self":
        names[0] = "input"
    signature, passed, values = _signature(op, names, called is not None), ", ".join(names), ""
    if called is not None:
        signature, passed = f"{signature}, **more", f"{passed}, **more"
        pairs = ", ".join(f"{n!r}: {n}" for n in names)
        values = f"if more:\n    return called(function, {{{pairs}}}, more)\n"
    head = f"def function({signature}):"

    def ready() -> Callable[..., Any]:
        scope.update(_scope(op))
        exec(_compiled(f"{head}\n{indent(values + _body(op, names[0]), '    ')}\n"), scope)
        function.__code__ = scope["function"].__code__
        scope["function"] = function
        return function

    scope: dict[str, Any] = {"__name__": __name__, "ready": ready, "called": called}
    scope.update((f"default_{n}", d) for n, d in op.defaults.items())
    exec(_compiled(f"{head}\n    return ready()({passed})\n"), scope)
    function: Any = scope["function"]
    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = op.doc or None
    return function


def _body(op: Op, first: str) -> str:
    """The code of a row: the fast path where the row allows one, then `record.apply`."""
    slow = f"return apply(OP, ({', '.join(op.inputs)},), {_params(op)})"
    if not is_fast(op):
        body = slow
    else:
        attempt = f"try:\n{indent(_fast_path(op), '    ')}\nexcept Exception:\n    pass"
        packed = f"if _packing is not None:\n    pack(_packing)\n    return {_returned(op)}"
        body = f"_packing = None\n{attempt}\n{packed}\n{slow}"
    return body if first == op.inputs[0] else f"{op.inputs[0]} = {first}\n{body}"


def is_fast(op: Op) -> bool:
    """Whether a row has a fast path: few inputs, and some whose dtype decides."""
    few = not op.variadic and not op.many and len(op.inputs) <= MAX_INPUTS
    return few and bool(op.promoted)


def _scope(op: Op) -> dict[str, Any]:
    """What the code of a row refers to."""
    shared = {
        "Tensor": Tensor, "OpNode": OpNode, "Output": Output, "new": Tensor.__new__,
        "new_node": OpNode.__new__, "state": state, "edge_of": edge_of, "next_seq": next_seq,
        "versions_of": versions_of, "attach": attach, "apply": apply, "pack": pack, "OP": op,
        "NO_PARAMS": NO_PARAMS, "backend_of": backends.backend_of, "F32": np.dtype("float32"),
        "F64": np.dtype("float64"), "F16": np.dtype("float16"), "UNCOUNTED": UNCOUNTED,
    }  # fmt: skip
    return {**shared, "forwards": _forwards(op), **_plans(op)} if is_fast(op) else shared


@cache
def _compiled(code: str) -> Any:
    """The code object of a source text, which tracebacks and pdb show; many rows share one."""
    name = f"cugrad fast path {next(_texts)}"  # in <>, linecache would not ask for its text
    linecache.cache[name] = (lambda: code,)
    return compile(code, name, "exec")


_texts = count(1)


def _forwards(op: Op) -> dict[type, Any]:
    """The array function, or the namespace, by array type; backends that come later add theirs."""
    found: dict[type, Any] = {}

    def add(backend: Any) -> None:
        if op.ufunc is None:
            xp, forward = backend.xp, op.forward
            value = lambda *args: forward(xp, *args)
        else:
            value = getattr(backend.xp, op.ufunc)
        found[backend.array_types[0]] = value

    backends.on_register(add)
    return found


def _signature(op: Op, names: list[str], all_default: bool = False) -> str:
    """PyTorch's argument names; inputs that may be absent default to None, or all inputs."""
    parts, seen_default = [], all_default
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
    return ", ".join(parts)


def _params(op: Op) -> str:
    if not op.params:
        return "NO_PARAMS"
    return "{" + ", ".join(f"{n!r}: {n}" for n in op.params) + "}"


# ---------------------------------------------------------------------- the fast path of a row

# Names in the generated code, with an underscore because inputs and parameters have theirs there:
# _a<i> the array of input i, _n<i> whether it needs a gradient, _dtype the common dtype, _y the raw
# output and _t its Tensor (_y<k> and _t<k> where a row has several), _form 2 where the second
# operand is a Python number.


def _fast_path(op: Op) -> str:
    first = op.promoted[0]
    lines = [
        f"_a{first} = {op.inputs[first]}._array",
        f"_dtype = _a{first}.dtype",
        "if (_dtype is F32 or _dtype is F64 or _dtype is F16) "
        f"and (_mode := state.fast) != {UNUSUAL}:",
        indent(_inputs(op, first), "    "),
        indent(_outputs(op), "    "),
        indent(_recording(op), "    "),
        indent(f"if _packing is None:\n    return {_returned(op)}", "    "),
    ]
    return "\n".join(lines)


def _inputs(op: Op, first: int) -> str:
    """Reads the other inputs; what the fast path does not know raises, and falls through."""
    lines = []
    for i, name in enumerate(op.inputs):
        if i == first:
            lines.append(f"_n{i} = {name}._requires_grad")
            continue
        read = f"_a{i} = {name}._array\n_n{i} = {name}._requires_grad"
        if op.ufunc is None:  # NumPy's own functions refuse what is not theirs
            read += f"\nif type(_a{i}) is not type(_a{first}):\n    raise TypeError"
        if i in op.promoted and op.promote is not None:
            read += f"\nif _a{i}.dtype is not _dtype:\n    raise TypeError"
        if name in op.optional:
            absent = f"    _a{i} = None\n    _n{i} = False"
            read = f"if {name} is None:\n{absent}\nelse:\n{indent(read, '    ')}"
        elif _takes_number(op, i):
            number = (
                f"if type({name}) is not float and type({name}) is not int:\n    raise TypeError\n"
                f"_a{i} = {name}\n_n{i} = False\n_form = 2"
            )
            read = (
                f"if isinstance({name}, Tensor):\n{indent(read, '    ')}\n    _form = 0\n"
                f"else:\n{indent(number, '    ')}"
            )
        lines.append(read)
    return "\n".join(lines)


def _takes_number(op: Op, i: int) -> bool:
    """Whether input i may be a Python number here: the second operand of arithmetic."""
    arithmetic = op.kind == ELEMENTWISE or not any(op.formulas)
    return arithmetic and i == 1 and op.promoted == (0, 1) and op.promote in (COMMON, FLOAT)


def _outputs(op: Op) -> str:
    args = ", ".join([f"_a{i}" for i in range(len(op.inputs))] + list(op.params))
    first = op.promoted[0]
    lines = []
    single = len(op.outputs) == 1
    names = ["_y"] if single else [f"_y{k}" for k in range(len(op.outputs))]
    lines.append(f"{', '.join(names)} = forwards[type(_a{first})]({args})")
    for k, y in enumerate(names):
        t = "_t" if single else f"_t{k}"
        lines += [
            f"if type({y}) is not type(_a{first}):",
            f"    {y} = backend_of(_a{first}).wrap({y})",
            f"{t} = new(Tensor)",
            f"{t}._array = {y}",
            f"{t}._grad = {t}._rare = {t}._node = {t}._counter = None",
            f"{t}._requires_grad = False",
        ]
        if op.view:
            creation = NORMAL if single else MULTIPLE
            lines.append(f"attach({t}, {op.inputs[0]}, OP, {_params(op)}, {creation})")
    return "\n".join(lines)


def _returned(op: Op) -> str:
    return "_t" if len(op.outputs) == 1 else ", ".join(f"_t{k}" for k in range(len(op.outputs)))


def _recording(op: Op) -> str:
    """Makes the node: one block of code per set of inputs that need a gradient."""
    able = [i for i, f in enumerate(op.formulas) if f is not None]
    blocks: list[str] = []
    for mask in _masks(op) if able else ():
        tests = [f"_n{i}" if mask >> i & 1 else f"not _n{i}" for i in able]
        blocks.append(f"{'if' if not blocks else 'elif'} {' and '.join(tests)}:")
        blocks.append(indent(_node(op, mask), "    "))
    needed = " or ".join(f"_n{i}" for i in able)
    cases = []
    if not op.view:  # a view has the counter of what it is a view of
        names = _returned(op).split(", ")
        marks = "\n".join(f"    {t}._counter = UNCOUNTED" for t in names)
        cases.append(f"if _mode == {INFERRING}:\n{marks}")
    if able:
        blocks.append(f"if _mode == {PACKING}:  # outside the try: a hook's error is the user's")
        blocks.append("    _packing = _node")
        record = indent("\n".join([_guard(op), *blocks]), "    ")
        only = f" and _mode != {INFERRING}" * op.view
        cases.append(f"{'el' * bool(cases)}if ({needed}){only}:\n{record}")
    return "if _mode:\n" + indent("\n".join(cases), "    ") if cases else "pass"


def _guard(op: Op) -> str:
    """Leaves outputs of another dtype to the general path, but for casts between float dtypes."""
    y = "_y" if len(op.outputs) == 1 else f"_y{op.differentiable[0]}"
    unfit = f"{y}.dtype is not _dtype"
    if op.kind == ELEMENTWISE and len(op.inputs) == 1:
        unfit += f" and {y}.dtype.kind not in 'fV'"
    return f"if {unfit}:\n    raise TypeError"


def _masks(op: Op) -> list[int]:
    """All non-empty sets of inputs with a formula, as bits."""
    able = sum(1 << i for i, f in enumerate(op.formulas) if f is not None)
    return [mask for mask in range(1, able + 1) if mask & able == mask]


def _node(op: Op, mask: int) -> str:
    lines = ["_node = new_node(OpNode)", *_plan_and_meta(op, mask)]
    entries, counted = [], []
    for name in op.saves(mask):
        if name in op.outputs:
            k = op.outputs.index(name)
            y, t = ("_y", "_t") if len(op.outputs) == 1 else (f"_y{k}", f"_t{k}")
            if op.view or k not in op.differentiable:  # others tell the node of their counter
                lines.append(f"{t}.counter")
                entries.append(f"({y}, {t}._counter, {t}._counter[0], {k})")
            else:
                entries.append(f"({y}, None, 0, {k})")
        else:
            entries.append(name)
            if name in op.optional or _takes_number(op, op.inputs.index(name)):
                counted.append(f"({name}.__class__ in NUMBERS or {name}._counter is None)")
            else:
                counted.append(f"{name}._counter is None")
    entries += ["None"] * op.held
    edges = [f"{n}._node or edge_of({n})" if mask >> i & 1 else "None"
             for i, n in enumerate(op.inputs)]  # fmt: skip
    lines += [f"_node.edges = ({', '.join(edges)},)", "_node.rare = None"]
    lines.append(f"_node.saved = ({', '.join(entries)}{',' * bool(entries)})")
    if counted:
        lines.append(
            f"_node.versions = None if {' and '.join(counted)} else versions_of(_node.saved)"
        )
    else:
        lines.append("_node.versions = None")
    lines.append("_node.seq = next_seq()")
    single = len(op.outputs) == 1
    for nr, k in enumerate(op.differentiable):
        t = "_t" if single else f"_t{k}"
        where = "_node" if len(op.differentiable) == 1 else f"Output(_node, {nr})"
        lines.append(f"{t}._requires_grad = True\n{t}._node = {where}")
    return "\n".join(lines)


def _plan_and_meta(op: Op, mask: int) -> list[str]:
    count = len(op.inputs)
    shapes = [f"_a{i}.shape" for i in range(count)]
    dtypes = [f"_a{i}.dtype" for i in range(count)]
    for i, name in enumerate(op.inputs):
        if name in op.optional:
            shapes[i] = f"() if _a{i} is None else _a{i}.shape"
            dtypes[i] = f"None if _a{i} is None else _a{i}.dtype"
        elif i in op.promoted and op.promote is not None:
            dtypes[i] = "_dtype"
    meta = f"(({', '.join(shapes)},), {_params(op)}, ({', '.join(dtypes)},), None, False)"
    own = op.params or op.kind != ELEMENTWISE  # formulas may ask for params or shapes
    if not _compiles_vjp(op):
        return [f"_node.plan = general{mask}", f"_node.meta = {meta}"]
    if op.kind != ELEMENTWISE:
        return [f"_node.plan = plan{mask}", f"_node.meta = {meta}"]
    kept = meta if own else "None"
    if count == 1:  # an op that changes the dtype, such as a cast, has its gradient cast back
        return [
            "if _y.dtype is _dtype:",
            f"    _node.plan = plan{mask}\n    _node.meta = {kept}",
            "else:",
            f"    _node.plan = general{mask}\n    _node.meta = {meta}",
        ]
    shapes_met = [f"_a{i}.shape" for i in op.promoted] + ["_y.shape"] * (len(op.promoted) < count)
    same = " == ".join(shapes_met)
    lines = [
        f"{'elif' if _takes_number(op, 1) and mask == 1 else 'if'} {same}:",
        f"    _node.plan = plan{mask}\n    _node.meta = {kept}",
        "else:",
        f"    _node.plan = general{mask}\n    _node.meta = {meta}",
    ]
    if _takes_number(op, 1) and mask == 1:
        number = f"    _node.plan = number{mask}\n    _node.meta = {kept}"
        lines = ["if _form == 2:", number, *lines]
    return lines


def _compiles_vjp(op: Op) -> bool:
    """Whether gradients come out in the shape and dtype of their inputs where dtypes are one."""
    if not op.holomorphic:  # the gradient of a real input may come out complex
        return False
    return op.kind == ELEMENTWISE or op.promote in (None, SAME) or len(op.inputs) == 1


# ---------------------------------------------------------------------- the backward of a row


class FastPlan(Plan):
    """A plan for nodes whose saved entries are plain and whose gradients need no adapting."""

    __slots__ = ("_number", "_packed")

    def __init__(self, op: Op, mask: int, number: bool) -> None:
        super().__init__(op, mask)
        self.vjp = _compile_vjp(op, mask, self.saves, number)
        self._number, self._packed = number, None  # type: bool, Plan | None

    def packed(self) -> Plan:
        """The plan when hooks have packed what is saved."""
        found = self._packed
        if found is None:
            found = self._packed = Plan(self.op, self.mask)
            found.vjp = _compile_vjp(self.op, self.mask, self.saves, self._number, packed=True)
        return found


def _compile_vjp(
    op: Op, mask: int, saves: tuple[str, ...], number: bool, packed: bool = False
) -> Callable[..., Any]:
    """`vjp(node, g)` for arrays: unpack, check versions, call the formulas."""
    scope: dict[str, Any] = {"__name__": __name__, "raw": raw, "arrays": arrays}
    lines, checks, values = [], [], {"m": "raw", "g": "g"}
    for i, name in enumerate(saves):
        if packed:
            values[name] = f"s{i}"
        elif name in op.outputs:
            checks.append(f"s{i}[1] is not None and s{i}[1][0] != s{i}[2]")
            values[name] = f"s{i}[0]"
        elif number and name == op.inputs[1]:
            values[name] = f"s{i}"
        elif name in op.optional:
            checks.append(f"s{i} is not None and s{i}._counter is not None")
            values[name] = f"(None if s{i} is None else s{i}._array)"
        else:
            checks.append(f"s{i}._counter is not None")
            values[name] = f"s{i}._array"
    if saves:
        saved = "arrays(node)" if packed else "node.saved"
        lines.append("".join(f"s{i}, " for i in range(len(saves))) + f"= {saved}")
    if checks:
        lines.append(f"if {' or '.join(checks)}:\n    arrays(node)  # raises if changed in place")
    if op.params or op.kind != ELEMENTWISE:
        lines.append("shapes, params, _, _, _ = node.meta")
    calls = []
    for i, formula in enumerate(op.formulas):
        if formula is None or not mask >> i & 1:
            calls.append("None")
            continue
        scope[f"F{i}"] = formula
        wanted = ", ".join(values.get(p) or op.where(p) for p in parameters_of(formula))
        calls.append(f"F{i}({wanted})")
    lines.append(f"return {', '.join(calls)},")
    code = "def vjp(node, g):\n" + indent("\n".join(lines), "    ")
    exec(_compiled(code), scope)
    return scope["vjp"]


def _plans(op: Op) -> dict[str, Any]:
    """The plans that the code of a row refers to, by name."""
    plans: dict[str, Any] = {"NUMBERS": (float, int, type(None))}
    for mask in _masks(op):
        plans[f"general{mask}"] = plan_of(op, mask)
        if _compiles_vjp(op):
            plans[f"plan{mask}"] = FastPlan(op, mask, number=False)
    if _takes_number(op, 1) and op.formulas[0] is not None:
        plans["number1"] = FastPlan(op, 1, number=True)
    return plans
