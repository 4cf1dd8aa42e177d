"""Runs an op on Tensors and, where a gradient will be asked for, records a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from ..backends import backend_of, batched
from ..dtypes import of as dtype_of
from ..ops.promotion import REFUSED, SCALARS, meet, refuse, share_device
from ..ops.table import ELEMENTWISE, TABLE, Op, raw
from ..tensor import UNCOUNTED, Tensor, make
from . import saved as saving
from .anomaly_mode import note
from .dual import apply_dual
from .mode import UNUSUAL, anomaly, state
from .node import FREED, Node, Output, announced_seq, edge_of, next_seq, take_seq
from .views import MULTIPLE, NORMAL, attach

__all__ = ["apply", "recorded"]


class Plan:
    """How nodes of one op behave when the inputs in the bit set `mask` need a gradient."""

    __slots__ = ("op", "mask", "saves", "adapts", "vjp")
    vjp: Callable[..., Any]  # vjp(node, g): the gradients of the inputs, arrays from arrays

    def __init__(self, op: Op, mask: int) -> None:
        self.op, self.mask = op, mask
        self.saves = op.saves(mask)
        self.adapts = op.kind == ELEMENTWISE or op.promote is not None
        self.vjp = self._vjp_raw

    def packed(self) -> Plan:
        """The plan for a node whose saved entries hooks have packed."""
        return self

    def saved_name(self, index: int) -> str:
        return self.saves[0 if self.op.variadic else index]

    def _vjp_raw(self, node: OpNode, g: Any) -> Any:
        return self._vjp(node, g, raw, saving.arrays(node))

    def vjp_recorded(self, node: OpNode, g: Any) -> Any:
        """The gradients of the inputs, Tensors from Tensors, so that they can be differentiated."""
        return self._vjp(node, g, recorded, saving.tensors(node))

    def _vjp(self, node: OpNode, g: Any, m: Any, saved: tuple[Any, ...]) -> Any:
        meta = node.meta
        formula = self.op.gradients(self.mask)
        if meta is None:
            return formula(m, g, saved, (), NO_PARAMS)
        shapes, params, dtypes, compute, conjugates = meta
        if compute is not None:
            saved = tuple([_to(m, s, compute) for s in saved])
        if self.op.variadic:
            saved = (saved,)
        if conjugates:  # a holomorphic formula F gives the gradient conj(F(conj(g)))
            g = _conj(m, g)
        grads = formula(m, g, saved, shapes, params)
        if conjugates:
            grads = _conj(m, grads)
        if self.adapts:
            grads = tuple(
                [
                    None if edge is None or x is None else _adapt(m, x, shape, dtype)
                    for edge, x, shape, dtype in zip(
                        node.edges, grads, shapes, dtypes, strict=True
                    )
                ]
            )
        return grads


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


class OpNode(Node):
    """The node of a row; once a user has looked at it, it is of a subclass with the row's name."""

    __slots__ = ()
    plan: Plan

    def shown(self) -> OpNode:
        if type(self) is OpNode:
            self.__class__ = _class_named(self.short_name())
        return self

    def name(self) -> str:
        return self.plan.op.name_of_node(self.params)

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """Of inputs for which there are formulas, which an index, or a mask, is not."""
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


NO_PARAMS: dict[str, Any] = {}
_plans: dict[tuple[Op, int], Plan] = {}
_new_node = OpNode.__new__


def plan_of(op: Op, mask: int) -> Plan:
    """The one plan of an op and a set of inputs that need a gradient."""
    found = _plans.get((op, mask))
    if found is None:
        found = _plans[op, mask] = Plan(op, mask)
    return found


def apply(op: Op, args: tuple[Any, ...], params: dict[str, Any] = NO_PARAMS) -> Any:
    """Runs an op on Tensors (and Python scalars): its output, or a tuple of them."""
    if state.autocast is not None:
        args = state.autocast(op, args)
    if state.observers:
        args = lifted(op, args, params) if batched.in_use else args  # by ops that come before
        return observed(op, args, params, _unobserved)
    if state.before_op is not None:
        state.before_op(op, args, params)
    if batched.in_use:
        args = lifted(op, args, params)
    if state.levels:
        return apply_dual(op, args, params, execute)
    return execute(op, args, params)


def observed(op: Op, args: Any, params: Any, run: Callable[..., Any]) -> Any:
    seq = announced_seq(args[0] if op.variadic else args)
    result, observers, begun = None, state.observers, 0
    state.call = op, args, params, run is not _unobserved
    given = (*args, *params.values()) if params else args
    try:
        try:
            for observer in observers:
                observer.op_begin(op.name, seq, given)
                begun += 1
        finally:
            state.call = None
        result = run(op, args, params, seq)
        return result
    finally:
        for observer in reversed(observers[:begun]):
            observer.op_end(op.name, seq, result)


def _unobserved(op: Op, args: tuple[Any, ...], params: dict[str, Any], seq: int) -> Any:
    """The op as it runs with no observer about, so that a profile shows what it costs then."""
    fields, before = vars(state), {"observers": state.observers, "fast": UNUSUAL}
    try:
        try:
            state.switch(observers=())
            result = getattr(recorded, op.name)(*args, **params)
        finally:
            fields.update(before)
    except BaseException:  # again, should it have come just then: see `kept`
        fields.update(before)
        raise
    for out in result if type(result) is tuple else (result,):
        if out._requires_grad and out._node is not None:
            take_seq(out._node.grad_fn, seq)
    return result


def execute(op: Op, args: tuple[Any, ...], params: dict[str, Any], seq: int = 0) -> Any:
    """`apply` without observers; `seq` is the number for the node, 0 for the next one."""
    inputs = args[0] if op.variadic else args
    arrays, mask = read_inputs(op, inputs)
    value, arrays, compute = run_forward(op, arrays, params)
    backend = backend_of(_first(op, arrays))
    single = len(op.outputs) == 1
    if op.many:
        single, op = False, op.counted(len(value))
    outputs = tuple([make(backend.wrap(v)) for v in ((value,) if single else value)])
    if op.view and args[0]._counter is UNCOUNTED:
        mask = 0  # nothing leads to an inference tensor through its views
        for out in outputs:
            out._counter = UNCOUNTED
    elif op.view:
        for out in outputs:
            attach(out, args[0], op, params, NORMAL if single else MULTIPLE)
    if mask and state.grad_enabled:
        _connect(op, mask, inputs, arrays, params, compute, outputs, seq)
    return outputs[0] if single else outputs


def lifted(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> tuple[Any, ...]:
    """Inputs that are the same for all examples of a vmap, lifted where others differ by example.

    That is an op of its own: its gradient adds up over the examples.
    """
    inputs = args[0] if op.variadic else args
    arrays = [x._array if isinstance(x, Tensor) else x for x in inputs]
    others = [x for p in params.values() for x in (p if type(p) is tuple else (p,))]
    if not (batched.any_batched(arrays) or batched.any_batched(others)):
        return args
    missing = batched.missing_levels((*arrays, *others))
    if missing is None:
        return args
    raised = list(inputs)
    for i, levels in enumerate(missing[: len(arrays)]):
        for level in levels:
            x = raised[i] if isinstance(raised[i], Tensor) else make(arrays[i])
            raised[i] = apply(TABLE["vmap_lift"], (x,), {"level": level})
    return (raised,) if op.variadic else tuple(raised)


def read_inputs(op: Op, inputs: Any) -> tuple[list[Any], int]:
    """The arrays of the inputs, and the bit set of those whose gradient the row can give."""
    arrays, mask, formulas = [], 0, op.formulas
    for i, value in enumerate(inputs):
        if isinstance(value, Tensor):
            arrays.append(value._array)
            if value._requires_grad and formulas[0 if op.variadic else i] is not None:
                mask |= 1 << i
        elif type(value) in SCALARS or isinstance(value, np.ndarray) or (
            value is None and op.inputs[0 if op.variadic else i] in op.optional
        ):
            arrays.append(value)
        elif isinstance(value, np.generic):
            arrays.append(value.item())
        else:
            raise not_a_tensor(op, i, value)
    return arrays, mask


def not_a_tensor(op: Op, index: int, value: Any) -> TypeError:
    """The error for an input that is no Tensor, in the words of a public function."""
    name = op.inputs[0 if op.variadic else index]
    kind = type(value).__name__
    if kind == "Tensor":
        library = type(value).__module__.partition(".")[0]
        again = " of another import" if library == __name__.partition(".")[0] else ""
        kind = f"{library}.Tensor{again}"
    return TypeError(
        f"{op.name}(): argument '{'input' if name == 'self' else name}' must be Tensor, not {kind}"
    )


def _first(op: Op, arrays: Any) -> Any:
    for array in arrays:
        if hasattr(array, "dtype") and not isinstance(array, np.generic):  # a bfloat16 number
            return array
    raise not_a_tensor(op, 0, arrays[0] if arrays else None)


def run_forward(op: Op, arrays: list[Any], params: dict[str, Any]) -> tuple[Any, list[Any], Any]:
    """The raw value, the operands as the row saw them, and the dtype they met in (or None)."""
    _first(op, arrays)
    if len(arrays) > 1:
        kind = type(arrays[0])
        for array in arrays:
            if type(array) is not kind:
                arrays = share_device(op, arrays)
                break
    compute = None
    if op.promote is not None:
        arrays, compute = meet(op, arrays)
        if op.name in REFUSED:
            refuse(op, arrays)
    if state.stand_in is not None:
        value = state.stand_in
        state.switch(stand_in=None)
        return value, arrays, compute
    backend = backend_of(_first(op, arrays))
    operands = (arrays,) if op.variadic else arrays
    try:
        if backend.name == "batched":
            value = batched.run_row(op, backend, operands, params)
        else:
            value = op.forward(backend.xp, *operands, **params)
    except RuntimeWarning:  # warnings are errors here; overflow is not one
        with backend.quiet():
            value = op.forward(backend.xp, *operands, **params)
    except ValueError as error:
        raise explain(op, arrays, error) from None
    except TypeError:
        if op.ufunc is None:
            raise
        kinds = dict.fromkeys(str(dtype_of(x.dtype)) for x in arrays if hasattr(x, "dtype"))
        raise NotImplementedError(f"{op.name}: not implemented for {', '.join(kinds)}") from None
    return value, arrays, compute


def explain(op: Op, arrays: list[Any], error: ValueError) -> Exception:
    """A ValueError of the array library, said as PyTorch says it where that is known."""
    if op.kind == ELEMENTWISE or op.promote is not None:
        shapes = [x.shape for x in arrays if hasattr(x, "shape")]
        if len(shapes) == 2:
            a, b = shapes
            for back in range(1, min(len(a), len(b)) + 1):
                if a[-back] != b[-back] and 1 not in (a[-back], b[-back]):
                    return RuntimeError(
                        f"The size of tensor a ({a[-back]}) must match the size of tensor b "
                        f"({b[-back]}) at non-singleton dimension {max(len(a), len(b)) - back} "
                        f"({op.name}: got shapes {tuple(a)} and {tuple(b)})"
                    )
    shapes_text = ", ".join(str(tuple(x.shape)) for x in arrays if hasattr(x, "shape"))
    return RuntimeError(f"{op.name}: {error} (got shapes {shapes_text})")


def _connect(
    op: Op, mask: int, inputs: Any, arrays: Any, params: Any, compute: Any, outputs: Any, seq: int
) -> None:
    """Records the node of an op that has just run, and hangs its outputs on it."""
    differentiable = [outputs[i] for i in op.differentiable]
    if not all(t._array.dtype.kind in "fcV" for t in differentiable):
        return
    node = new_node(op, inputs, params, mask, compute, outputs, seq)
    if len(differentiable) == 1:
        out = differentiable[0]
        out._requires_grad, out._node = True, node
    else:
        for nr, out in enumerate(differentiable):
            out._requires_grad, out._node = True, Output(node, nr)


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
    plan = plan_of(op, 1 if op.variadic else mask)
    node = _new_node(OpNode)
    node.plan, node.rare = plan, None
    node.edges = tuple(
        [edge_of(x) if mask >> i & 1 else None for i, x in enumerate(inputs)]
    )
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


class RecordedNamespace:
    """The ops on Tensors: `m` in a formula under create_graph, and what public functions call."""

    def __getattr__(self, name: str) -> Any:
        op = TABLE.get(name)
        if op is None:
            raise AttributeError(f"no row named {name!r} in the op table")
        from .fast import compile_function  # it stands on this module; imported at first use

        call = compile_function(op)
        self.__dict__[name] = call  # found without this detour from now on
        return call


recorded = RecordedNamespace()
