"""Nodes of rows: what they save, and how they run backward: by their formulas, or compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from ...backends import on_register
from ...dtypes import is_half
from ...ops.promotion import is_exact
from ...ops.table import ELEMENTWISE, SAME, Op, raw
from ...runtime.dispatching import unasked
from ...tensor import Tensor
from ..anomaly_mode import note
from ..mode import anomaly, state
from . import saved as saving
from .node import FREED, Node, Output, edge_of, next_seq, take_seq
from .operands import read_inputs
from .recorded import recorded
from .templates import compiled, filled

__all__ = [
    "NO_PARAMS", "FastPlan", "FormedPlan", "OpNode", "OpPlan", "compiles_vjp", "new_node",
    "plan_of", "text_of_vjp",
]  # fmt: skip

NO_PARAMS: dict[str, Any] = {}


class OpPlan:
    """How nodes of one op behave when the inputs in the bit set `mask` need a gradient."""

    __slots__ = ("op", "mask", "saves", "adapts", "spared", "puts", "vjp")
    vjp: Callable[..., Any]  # vjp(node, g): the gradients of the inputs, arrays from arrays

    def __init__(self, op: Op, mask: int) -> None:
        self.op, self.mask = op, mask
        self.saves, self.spared = op.saves(mask), op.spared
        self.puts = op.name == "copy_slices"
        self.adapts = op.kind == ELEMENTWISE or op.promote is not None
        self.vjp = self._vjp_raw

    def fused(self) -> OpPlan:
        """Itself, with gradients by backends that run rows in their own way."""
        on_register(self._fuse)
        return self

    def _fuse(self, backend: Any) -> None:
        if not backend.runs_rows or not self.mask:  # or all its gradients go nowhere
            return
        fused = backend.gradients_function(self.op, self.mask, raw)
        if fused is None:
            return
        if type(self) is FastPlan and not getattr(fused, "wide", True):
            return  # it is for half precision, whose nodes have no such plan
        scope = {"others": self.vjp, "fused": fused, "kind": backend.array_types[0],
                 "arrays": saving.arrays, "__name__": __name__}  # fmt: skip
        text = self.text_of_fused(getattr(fused, "least", backend.least))
        if len(self.op.differentiable) > 1:
            text = text.replace(OF_ONE, OF_SEVERAL)
        exec(compiled(text), scope)
        self.vjp = scope["vjp"]

    def text_of_fused(self, least: int) -> str:
        """The code of the gradients by a backend, for at least so many elements."""
        return _text_of_fused(least, READ_ONCE, "", "saved", takes_saved=True)

    def packed(self) -> OpPlan:
        """The plan for a node whose saved entries hooks have packed."""
        return self

    def saved_name(self, index: int) -> str:
        return self.saves[0 if self.op.variadic else index]

    def _vjp_raw(self, node: OpNode, g: Any, saved: tuple[Any, ...] | None = None) -> Any:
        """The gradients of the inputs, arrays from arrays; `saved` if that has been read."""
        if saved is None:
            saved = saving.arrays(node) if node.saved else ()
        return self._vjp(node, g, raw, saved)

    def vjp_recorded(self, node: OpNode, g: Any) -> Any:
        """The gradients of the inputs, Tensors from Tensors, so that they can be differentiated.

        As in PyTorch, the classes of what is saved get no calls of formulas.
        """
        return unasked(self._vjp, node, g, recorded, saving.tensors(node))

    def _vjp(self, node: OpNode, g: Any, m: Any, saved: tuple[Any, ...]) -> Any:
        meta = node.meta
        formula = self.op.gradients(self.mask)
        if meta is None:
            return formula(m, g, saved, (), NO_PARAMS)
        shapes, params, dtypes, compute, conjugates = meta
        if compute is not None:
            exact = bool(self.op.exact) and is_half(compute)
            saved = tuple([
                s if exact and is_exact(s, compute) else _to(m, s, compute) for s in saved
            ])  # fmt: skip
        if self.op.variadic:
            saved = (saved,)
        if conjugates:  # a holomorphic formula F gives the gradient conj(F(conj(g)))
            g = _conj(m, g)
        grads = formula(m, g, saved, shapes, params)
        if conjugates:
            grads = _conj(m, grads)
        return self._adapted(m, node, grads) if self.adapts else grads

    def _adapted(self, m: Any, node: OpNode, grads: Any) -> Any:
        shapes, _, dtypes, _, _ = node.meta
        results = []
        for edge, x, shape, dtype in zip(node.edges, grads, shapes, dtypes, strict=True):
            if edge is None:
                x = None
            elif x is not None:
                array = x._array if m is recorded else x
                if array.shape != shape or array.dtype is not dtype:
                    x = _adapt(m, x, shape, dtype)
            results.append(x)
        return tuple(results)


def _conj(m: Any, g: Any) -> Any:
    if type(g) in (tuple, list):
        return tuple([None if x is None else m.conj(x) for x in g])
    return m.conj(g)


def _to(m: Any, x: Any, dtype: Any) -> Any:
    array = x._array if isinstance(x, Tensor) else x
    if not hasattr(array, "dtype") or array.dtype == dtype:
        return x
    return m.to_dtype(x, dtype)


def _adapt(m: Any, g: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """A gradient in the shape and dtype of its input: un-broadcast, real part, cast."""
    if tuple(g.shape) != shape:
        g = m.sum_to_shape(g, shape)
    array = g._array if m is recorded else g
    if array.dtype != dtype:
        if array.dtype.kind == "c" and dtype.kind != "c":
            g = m.real(g)
        g = _to(m, g, dtype)
    return g


# The backward of a node by a backend that has the gradients of its row at once. They come in the
# shapes and dtypes of inputs, or not at all. What hooks have packed they unpack once: the formulas
# are given what has been read.
OF_ONE, OF_SEVERAL = "type(g) is kind", "type(g) in (list, tuple)"  # outputs
FUSED = f"""\
def vjp(node, g{{argument}}):
    if {OF_ONE}{{enough}}:
        {{unpack}}
        {{check}}
        grads = fused(g, {{saved}}, node.meta)
        if grads is not None:
            return grads
    return others(node, g{{passed}})
"""
ARGUMENT = ", saved=None"
READ_ONCE = """\
if saved is None:
    saved = arrays(node)
"""


def _text_of_fused(
    least: int, unpack: str, check: str, saved: str, takes_saved: bool = False
) -> str:
    enough = f" and (g.size >= {least} or g.itemsize == 2)" * bool(least)
    return filled(
        FUSED, enough=enough, unpack=unpack, check=check, saved=saved,
        argument=ARGUMENT * takes_saved, passed=", saved" * takes_saved,
    )  # fmt: skip


# The backward of a node whose saved entries are plain, and whose gradients need no adapting.
VJP = """\
def vjp(node, g{argument}):
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


class FormedPlan(OpPlan):
    """A plan for nodes whose saved entries are plain, and which know the form of their inputs."""

    __slots__ = ("_number",)

    def __init__(self, op: Op, mask: int, number: bool) -> None:
        super().__init__(op, mask)
        self._number = number
        self.fused()

    def text_of_fused(self, least: int) -> str:
        places, unpack, check = _unpacking(self.op, self.mask, self._number, False)
        saved = "".join(f"{places[name]}, " for name in self.saves)
        return _text_of_fused(least, unpack, check, f"({saved})")

    def packed(self) -> OpPlan:
        return plan_of(self.op, self.mask)


class FastPlan(FormedPlan):
    """A plan for nodes whose saved entries are plain and whose gradients need no adapting."""

    __slots__ = ("_packed",)

    def __init__(self, op: Op, mask: int, number: bool) -> None:
        self._packed: OpPlan | None = None
        super().__init__(op, mask, number)

    def fused(self) -> OpPlan:
        self.vjp = _compile_vjp(self.op, self.mask, self._number)
        return super().fused()

    def packed(self) -> OpPlan:
        """The plan when hooks have packed what is saved."""
        plan = self._packed
        if plan is None:
            plan = self._packed = OpPlan(self.op, self.mask)
            plan.vjp = _compile_vjp(self.op, self.mask, self._number, packed=True)
            plan.fused()
        return plan


def _compile_vjp(op: Op, mask: int, number: bool, packed: bool = False) -> Callable[..., Any]:
    """`vjp(node, g)` for arrays: unpack, check versions, call the formulas."""
    scope: dict[str, Any] = {"raw": raw, "arrays": saving.arrays, **op.formula_names()}
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
    places, unpack, check = _unpacking(op, mask, number, packed)
    return filled(
        VJP, calls=op.calls(mask, places), unpack=unpack, check=check,
        meta=META if op.params or op.kind != ELEMENTWISE else "", argument=ARGUMENT * packed,
    )  # fmt: skip


def _unpacking(op: Op, mask: int, number: bool, packed: bool) -> tuple[dict[str, str], str, str]:
    """Where a formula finds what it asks for, and the code that takes it out and looks at it."""
    checks, places, saves = [], {"m": "raw", "g": "g"}, op.saves(mask)
    for i, name in enumerate(saves):
        if packed:
            places[name] = f"s{i}"
        elif name in op.outputs:
            checks.append(f"s{i}[1] is not None and s{i}[1][0] != s{i}[2]")
            places[name] = f"s{i}[0]"
        elif number and name == op.inputs[op.promoted[1]]:
            places[name] = f"s{i}"
        elif name in op.optional:
            checks.append(f"s{i} is not None and s{i}._counter is not None")
            places[name] = f"(None if s{i} is None else s{i}._array)"
        else:
            checks.append(f"s{i}._counter is not None")
            places[name] = f"s{i}._array"
    names = ", ".join(f"s{i}" for i in range(len(saves)))
    saved = "arrays(node) if saved is None else saved" if packed else "node.saved"
    unpack = filled(UNPACK, names=names, saved=saved) if names else ""
    return places, unpack, filled(CHECK, changed=" or ".join(checks)) if checks else ""


def compiles_vjp(op: Op) -> bool:
    """Whether gradients come out in the shape and dtype of their inputs where dtypes are one."""
    if not op.holomorphic:  # the gradient of a real input may come out complex
        return False
    return op.kind == ELEMENTWISE or op.promote in (None, SAME) or len(op.inputs) == 1


class OpNode(Node):
    """The node of a row. Its class gets the row's name when a user first looks at it."""

    __slots__ = ()
    plan: OpPlan

    def shown(self) -> OpNode:
        if type(self) is OpNode:
            self.__class__ = _class_named(self.short_name())
        return self

    def name(self) -> str:
        return self.plan.op.name_of_node(self.params)

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """The ends of the edges, for inputs that have a formula: not for an index or a mask."""
        formulas = () if self.plan.op.variadic else self.plan.op.formulas
        ends = super().next_functions
        if len(formulas) != len(ends):
            return ends
        return tuple([end for end, formula in zip(ends, formulas, strict=True) if formula])

    @property
    def params(self) -> dict[str, Any]:
        return NO_PARAMS if self.meta is None else self.meta[1]

    @property
    def is_freed(self) -> bool:
        return self.saved is FREED

    @property
    def output_count(self) -> int:  # type: ignore[override]
        return len(self.plan.op.differentiable)

    def output(self, output_nr: int) -> Any:
        """What a tensor that is output `output_nr` has as its node; None if it has no gradient."""
        differentiable = self.plan.op.differentiable
        if output_nr not in differentiable:
            return None
        return self if len(differentiable) == 1 else Output(self, differentiable.index(output_nr))

    def edge_of_entry(self, index: int) -> Any:
        """Where the gradient of the saved input `index` goes."""
        op = self.plan.op
        return self.edges[index if op.variadic else op.inputs.index(self.plan.saves[index])]

    def counter_of(self, nr: int = 0) -> list[int] | None:
        output = self.plan.op.differentiable[nr]
        for index, entry in enumerate(() if self.is_freed else self.saved):
            if saving.is_result(entry, output):
                return saving.counter_at(self, index)
        return None

    def keep_packed(self, entries: tuple[Any, ...]) -> None:
        """Replaces what is saved by what hooks made of it."""
        self.saved, self.plan = entries, self.plan.packed()

    def __getattr__(self, name: str) -> Any:
        for prefix, read in (("_saved_", saving.read), ("_raw_saved_", saving.read_raw)):
            if name.startswith(prefix):
                return read(self, name[len(prefix) :])
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __dir__(self) -> Iterator[str]:
        yield from object.__dir__(self)
        for name in saving.names(self):
            yield f"_saved_{name}"
            if name in self.plan.saves:
                yield f"_raw_saved_{name}"

    def release(self) -> None:
        """Lets go of everything saved."""
        if self.saved:
            self.saved, self.versions = FREED, None


@cache
def _class_named(name: str) -> type[OpNode]:
    return type(name, (OpNode,), {"__slots__": (), "__module__": __name__})


_plans: dict[tuple[Op, int], OpPlan] = {}


def plan_of(op: Op, mask: int) -> OpPlan:
    """The one plan of an op and a set of inputs that need a gradient."""
    plan = _plans.get((op, mask))
    if plan is None:
        plan = _plans[op, mask] = OpPlan(op, mask).fused()
    return plan


def new_node(
    op: Op,
    inputs: Any,
    params: dict[str, Any],
    mask: int | None = None,
    compute: Any = None,
    outputs: tuple[Tensor, ...] = (),
    seq: int = 0,
) -> OpNode:
    """A node for an op on `inputs`, with what its formulas will need saved."""
    if mask is None:
        _, mask = read_inputs(op, inputs)
    node = OpNode()
    node.rare = None
    node.edges = tuple([edge_of(x) if mask >> i & 1 else None for i, x in enumerate(inputs)])
    if len(op.inputs) > 1:  # nothing is saved for the gradient of a view without a history
        for i, edge in enumerate(node.edges):
            if edge is None:
                mask &= ~(1 << i)
    plan = node.plan = plan_of(op, 1 if op.variadic else mask)
    entries = []
    for name in plan.saves:
        if name in op.outputs:
            nr = op.outputs.index(name)
            entries.append(saving.keep_result(outputs[nr], nr))
        elif op.variadic:
            entries.extend(inputs)
        else:
            entries.append(inputs[op.inputs.index(name)])
    node.versions = saving.versions_of(tuple(entries)) if entries else None
    node.saved = (*entries, None) if op.held else tuple(entries)
    shapes, dtypes, complex_ = [], [], bool(outputs) and outputs[0]._array.dtype.kind == "c"
    for x in inputs:
        if isinstance(x, Tensor):
            shapes.append(x._array.shape)
            dtypes.append(x._array.dtype)
        else:
            shapes.append(())
            dtypes.append(None)
    if len(params) != len(op.params):
        params = {**op.defaults, **params}
    node.meta = (tuple(shapes), params, tuple(dtypes), compute, complex_ and op.holomorphic)
    node.seq = next_seq()
    if seq:
        take_seq(node, seq)
    if anomaly.enabled:
        note(node)
    if state.hooks:
        saving.pack(node)
    return node
