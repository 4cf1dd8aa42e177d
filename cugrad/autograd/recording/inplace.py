"""Runs an op in place: its output goes where its first input was, and history is rewritten."""

from __future__ import annotations

import functools
from typing import Any

from ...backends import Backend, backend_of, on_register
from ...backends.batched import arrays as batched
from ...backends.copies import is_dense
from ...backends.several import are_away, at_home, several
from ...dtypes import is_differentiable, type_name
from ...dtypes import of as dtype_of
from ...errors import NoArray
from ...ops.table import TABLE, Op
from ...tensor import UNCOUNTED, Tensor, make
from ..forward.dual import keep_tangents
from ..forward.dual_inplace import apply_dual_inplace, copied, shares_memory
from ..mode import INFERRING, PLAIN, UNUSUAL, state, writes_watched
from .fast import compile_change
from .mirrors import shows_twice, write
from .node import edge_of
from .op_node import NO_PARAMS, new_node, plan_of
from .operands import explain, plain, read_inputs, run_forward
from .record import lifted, observed
from .texts.changes import FEW
from .views import at_edge, changed, check_inplace, is_part_of_recorded, rebase, spares

__all__ = ["apply_inplace", "check_cast", "may_be_overwritten", "put"]

COPY = TABLE["copy"]


class ChangesInPlace(dict[Op, Any]):
    """By row what changes a tensor in place where nothing is unusual, or None."""

    def __init__(self, backend: Any) -> None:
        super().__init__()
        self.backend = backend

    def __missing__(self, op: Op) -> Any:
        change = self[op] = compile_change(op, self.backend)
        return change


_changes: dict[type, ChangesInPlace] = {}  # by array type


def _add_changes(backend: Any) -> None:
    if backend.runs_rows:
        _changes[backend.array_types[0]] = ChangesInPlace(backend)


on_register(_add_changes)


def apply_inplace(op: Op, args: tuple[Any, ...], params: dict[str, Any] = NO_PARAMS) -> Tensor:
    """Runs an op and puts its output in the place of its first input, which is returned."""
    if params:
        params = plain(op, params)
    try:
        changes = _changes.get(type(args[0]._array))
        change = None if changes is None else changes[op]
        if change is not None and change(*args, **params) is not None:
            return args[0]
        if several.devices and are_away(args):
            with at_home(args):
                return apply_inplace(op, args, params)
        if state.observers:
            args = _lifted(op, args, params) if batched.HIDING else args  # by ops that come before
            return observed(op, args, params, _dual)
        return _dual(op, args, params)
    except NoArray as error:
        if error.changes(op.name, args):
            return args[0]
        raise NotImplementedError(f"{op.name}_: {error}") from None
    except AttributeError:
        if isinstance(args[0], Tensor):
            raise
        kind = type(args[0]).__name__
        raise TypeError(
            f"{op.name}_(): argument 'input' (position 1) must be Tensor, not {kind}"
        ) from None


def may_be_overwritten(t: Tensor) -> bool:
    """Whether all that another value of a tensor asks for is `changed`, which counts it: it
    is not recorded, and no observer or watcher is there.
    """
    mode = state.fast
    if mode == UNUSUAL or writes_watched or state.before_write is not None:
        return False
    if mode == INFERRING:
        return True
    if t._counter is UNCOUNTED:
        return False
    if t._node is not None and spares(t):
        return False
    return mode == PLAIN or not (t._requires_grad or t._rare is not None and is_part_of_recorded(t))


def _dual(op: Op, args: tuple[Any, ...], params: dict[str, Any], seq: int = 0) -> Tensor:
    if batched.HIDING:
        args = _lifted(op, args, params)
    if not state.levels:
        return _execute(op, args, params, seq)
    nodes: list[Any] = []  # the node, whose saved result gets a tangent
    run = functools.partial(_execute, seq=seq, nodes=nodes)
    return apply_dual_inplace(op, args, params, run, nodes)


def _execute(
    op: Op, args: tuple[Any, ...], params: dict[str, Any], seq: int = 0,
    nodes: list[Any] | None = None,
) -> Tensor:  # fmt: skip
    t: Tensor = args[0]
    check_inplace(t, op.name + "_")
    _check_overlap(t)
    arrays, mask = read_inputs(op, args)
    home = t._array
    backend = backend_of(home)
    recording = bool(mask) and state.grad_enabled and is_differentiable(home.dtype)
    loses = recording and op is COPY and _loses_part(t)
    if loses:
        mask &= ~1  # what was there has no gradient: the node of the base says so
    elif not mask and t._requires_grad and op is not COPY:
        return _overwritten(op, args, params, seq, nodes)
    if recording:
        if t._rare is not None and t._rare.view is not None:
            t._rare.view.check(t, "is being modified inplace")
        if mask:
            args = _keep_old_value(op, args, mask)
    compute = None
    if _fits(op, arrays):  # no array for the result: large tensors are changed where they lie
        with backend.quiet():
            getattr(backend.xp, op.ufunc or "")(*arrays, out=home)
    elif op.inplace is not None and _stands_alone(arrays, params):
        try:
            with backend.quiet():
                op.inplace(backend.xp, *arrays, **params)
        except ValueError as error:
            raise explain(op, arrays, error) from None
    else:
        value, arrays, compute = run_forward(op, arrays, params, home)
        if value is not home:
            _write(op, backend, home, backend.wrap(value))
    if recording:
        t.counter[0] += 1
        node = None
        if mask:
            after = make(home)
            after._counter = t._counter
            node = new_node(op, args, params, mask, compute, (after,), seq)
            if nodes is not None:
                nodes.append(node)
        rebase(t, node)
    else:
        changed(t)
    return t


def _loses_part(t: Tensor) -> bool:
    """Whether a tensor is a part of another one that is recorded, and will know that it is gone."""
    view = None if t._rare is None else t._rare.view
    return view is not None and bool(view.base._requires_grad) and not state.levels


def _overwritten(
    op: Op, args: tuple[Any, ...], params: dict[str, Any], seq: int, nodes: list[Any] | None
) -> Tensor:
    """An op without derivative, such as `eq_`: what it puts there has no history, as `copy_` does.

    Without that the tensor would keep the gradient of the values that are gone.
    """
    value = run_forward(op, read_inputs(op, args)[0], params)[0]
    t: Tensor = args[0]
    return _execute(COPY, (t, make(backend_of(t._array).wrap(value))), NO_PARAMS, seq, nodes)


def _lifted(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments at the same levels of vmap; the tensor that is written to must have them."""
    raised = lifted(op, args, params)
    if raised[0] is not args[0]:
        raise RuntimeError(
            "vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a "
            "Tensor `other` in extra_args that has more elements than `self`. This happened due to "
            "`other` being vmapped over but `self` not being vmapped over in a vmap. Please try to "
            f"use out-of-place operators instead ({op.name}_)."
        )
    return raised


def _keep_old_value(op: Op, args: tuple[Any, ...], mask: int) -> tuple[Any, ...]:
    """The arguments with the tensor as it was: a copy, where the formulas need its value."""
    t = args[0]
    saves = plan_of(op, mask).saves
    needed = any(args[op.inputs.index(n)] is t for n in saves if n in op.inputs)
    edge = edge_of(t) if t._requires_grad else None
    view = None if t._rare is None or edge is None else t._rare.view
    if view is not None and view.base._requires_grad and _is_heard(edge, len(view.steps)):
        edge = view.replayed()  # as in PyTorch, hooks on the way to the base are left out
    before = copied(t, edge) if needed else at_edge(t._array, t._requires_grad, edge)
    if needed and t._rare is not None and t._rare.tangents:
        keep_tangents(before, t)
    kept = [before if a is t else a for a in args]
    for i, a in enumerate(args):
        if a is not t and isinstance(a, Tensor) and (a._counter is not None or a._rare):
            kept[i] = _operand(a, t, op.inputs[i] in saves)
    return tuple(kept)


def _is_heard(edge: Any, steps: int) -> bool:
    """Whether a node has hooks, or retains gradients, among the first of those from a view on."""
    for _ in range(steps):
        node = None if edge is None else edge.grad_fn
        if node is None:
            return False
        if node.rare is not None and node.rare.is_heard():
            return True
        edge = node.edges[0] if node.edges else None
    return False


def _operand(x: Tensor, t: Tensor, needed: bool) -> Tensor:
    """Another operand: a copy where formulas need what is overwritten with `t`, a view of it say;
    with its place in the graph where that would be lost, as a view's is with its base.
    """
    lost = needed and shares_memory(x, t)
    hidden = x._requires_grad and x._node is None and x._rare is not None
    if not lost and not (hidden and x._base is not None):
        return x
    edge = edge_of(x) if x._requires_grad else None
    same = copied(x, edge) if lost else at_edge(x._array, x._requires_grad, edge)
    if not lost:
        same._counter = x._counter
    if x._rare is not None and x._rare.tangents:
        keep_tangents(same, x)
    return same


def _fits(op: Op, arrays: list[Any]) -> bool:
    """Whether the op's array function may write into its first operand while it reads."""
    home = arrays[0]
    if op.ufunc is None or home.size < FEW or home.dtype.char not in "fd":
        return False
    if is_dense(home) and backend_of(home).keeps_launches:
        return False  # its own kernel writes there, in whatever order the elements lie
    for x in arrays[1:]:
        if type(x) is float or type(x) is int:
            continue
        if type(x) is not type(home) or x.dtype != home.dtype or x.shape not in (home.shape, ()):
            return False
        if x is not home and backend_of(home).xp.may_share_memory(x, home):
            return False
    return True


def _stands_alone(arrays: list[Any], params: dict[str, Any]) -> bool:
    """Whether all arrays are of one dtype and backend, and none overlaps the first, nor itself;
    a host takes real numbers beside them.
    """
    home = arrays[0]
    if shows_twice(home):
        return False
    backend = backend_of(home)
    share = backend.xp.may_share_memory
    for x in arrays[1:]:
        if backend.runs_rows and type(x) in (float, int, bool):
            continue
        if type(x) is not type(home) or x.dtype != home.dtype or share(x, home):
            return False
    others = [x for p in params.values() if type(p) is tuple for x in p if hasattr(x, "dtype")]
    return all(type(x) is type(home) and not share(x, home) for x in others)


def put(name: str, t: Tensor, result: Tensor) -> Tensor:
    """Puts the result of the function of a name in the place of a tensor, which is returned.

    RuntimeError where it is of another shape, or of another kind of number.
    """
    check_shape(name, t._array, result._array)
    check_cast(name, result._array.dtype, t._array.dtype)
    return apply_inplace(COPY, (t, result))


def check_shape(name: str, home: Any, value: Any) -> None:
    """RuntimeError where a result has another shape than the tensor it shall go to."""
    if value.shape != home.shape:
        raise RuntimeError(
            f"output with shape {list(home.shape)} doesn't match the broadcast shape "
            f"{list(value.shape)} ({name}_: an in-place op keeps the shape of its tensor)"
        )


def _write(op: Op, backend: Backend, home: Any, value: Any) -> None:
    check_shape(op.name, home, value)
    if value.dtype != home.dtype:
        check_cast(op.name, value.dtype, home.dtype)
    write(backend, home, value)


def check_cast(name: str, got: Any, target: Any) -> None:
    """RuntimeError where a result is of another kind of number than the tensor it shall go to."""
    got, target = dtype_of(got), dtype_of(target)
    if got.category > target.category:
        raise RuntimeError(
            f"result type {type_name(got)} can't be cast to the desired output type "
            f"{type_name(target)} "
            f"({name}_: use the out-of-place op, or convert the tensor first)"
        )


def _check_overlap(t: Tensor) -> None:
    """RuntimeError for a write to a tensor of which several elements are one place in memory."""
    array = t._array
    if 0 not in array.strides:
        return
    steps = zip(array.strides, array.shape, strict=True)
    if array.size and any(s == 0 and n > 1 for s, n in steps):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a "
            "single memory location. Please clone() the tensor before performing the operation."
        )
