"""Runs an op on Tensors and, where a gradient will be asked for, records a node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...backends import backend_of, on_register
from ...backends.batched import arrays as batched
from ...backends.several import are_away, at_home, several
from ...dtypes import is_differentiable
from ...errors import NoArray
from ...ops.table import TABLE, Op
from ...tensor import UNCOUNTED, Tensor, make
from ..forward.dual import apply_dual
from ..mode import PACKING, UNUSUAL, state
from .node import Output, announced_seq, take_seq
from .op_node import NO_PARAMS, new_node
from .operands import first_array, plain, read_inputs, run_forward
from .policies import CASTS
from .recorded import recorded
from .views import MULTIPLE, NORMAL, attach

__all__ = ["apply", "execute", "observed", "recorded"]


def apply(op: Op, args: tuple[Any, ...], params: dict[str, Any] = NO_PARAMS) -> Any:
    """Runs an op on Tensors (and Python scalars): its output, or a tuple of them."""
    if params:
        params = plain(op, params)
    if several.devices and are_away(args):
        with at_home(args):
            return apply(op, args, params)
    try:
        if state.autocast is not None and op.name in CASTS:
            if state.fast not in (UNUSUAL, PACKING) and _lie_on_devices(op, args):
                return _as_cast(op, args, params, state.autocast)
            args = state.autocast(op, args)
        if state.observers:
            args = lifted(op, args, params) if batched.HIDING else args  # by ops that come before
            return observed(op, args, params, _unobserved)
        if state.before_op is not None:
            state.before_op(op, args, params)
        if batched.HIDING:
            args = lifted(op, args, params)
        if state.levels:
            return apply_dual(op, args, params, execute)
        return execute(op, args, params)
    except NoArray as error:  # of a tensor that is no array: it runs other ops instead
        return error.run(op.name, *args, **params)


def _lie_on_devices(op: Op, args: tuple[Any, ...]) -> bool:
    """Whether all tensors have arrays of a device, and none runs other ops instead."""
    for x in args[0] if op.variadic else args:
        if isinstance(x, Tensor) and type(x._array) not in _device_arrays:
            return False
    return True


_device_arrays: set[type] = set()
on_register(lambda backend: _device_arrays.update(backend.array_types))


def _as_cast(op: Op, args: tuple[Any, ...], params: Any, cast: Callable[..., Any]) -> Any:
    """Casts the inputs of an op, and runs it, as without autocast: on their fast paths."""
    fields = vars(state)
    before = {"fast_cast": UNUSUAL, "autocast": cast}
    try:
        try:
            fields.update(fast_cast=state.fast, autocast=None)
            return getattr(recorded, op.name)(*cast(op, args), **params)
        finally:
            fields.update(before)
    except BaseException:  # an interrupt may have come in `finally`: see `kept`
        fields.update(before)
        raise


def observed(op: Op, args: Any, params: Any, run: Callable[..., Any]) -> Any:
    plain = not params and not op.variadic and None not in op.formulas
    seq = announced_seq(args if plain else _leading(op, args, params))
    result, observers, begun = None, state.observers, 0
    inputs = (*args, *params.values()) if params else args
    try:
        try:
            state.call = op, args, params, run is not _unobserved
            for observer in observers:
                observer.op_begin(op.name, seq, inputs)
                begun += 1
        finally:
            state.call = None
        result = run(op, args, params, seq)
        return result
    finally:
        for observer in reversed(observers[:begun]):
            observer.op_end(op.name, seq, result)


def _leading(op: Op, args: Any, params: dict[str, Any]) -> Sequence[Any]:
    """Those of an op's inputs that its node would lead to; none where it makes whole numbers."""
    if "dtype" in params and not is_differentiable(params["dtype"]):
        return []
    inputs, formulas = args[0] if op.variadic else args, op.formulas
    if None not in formulas:
        return inputs
    return [x for i, x in enumerate(inputs) if formulas[0 if op.variadic else i] is not None]


def _unobserved(op: Op, args: tuple[Any, ...], params: dict[str, Any], seq: int) -> Any:
    """Runs the op without observers, so that a profile shows what it costs without a profile."""
    fields, fast = vars(state), state.unobserved
    before = {"fast": UNUSUAL, "fast_cast": UNUSUAL, "observers": state.observers}
    try:
        try:
            fields.update(
                fast=fast, fast_cast=fast if state.autocast is None else UNUSUAL, observers=()
            )
            result = getattr(recorded, op.name)(*args, **params)
        finally:
            fields.update(before)
    except BaseException:  # an interrupt may have come in `finally`: see `kept`
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
    backend = backend_of(first_array(op, arrays))
    single = len(op.outputs) == 1
    if op.many:
        single, op = False, op.counted(len(value))
    outputs = tuple([make(backend.wrap(v)) for v in ((value,) if single else value)])
    if op.view and args[0]._counter is UNCOUNTED:
        mask = 0  # no gradient goes to an inference tensor through its views
    for out in outputs if op.view else ():
        attach(out, args[0], op, params, NORMAL if single else MULTIPLE, fast=False)
    if mask and state.grad_enabled:
        _connect(op, mask, inputs, arrays, params, compute, outputs, seq)
    return outputs[0] if single else outputs


def lifted(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> tuple[Any, ...]:
    """Lifts inputs that are the same for all examples of a vmap, if other inputs differ by example.
    Lifting is an op of its own, whose gradient sums over the examples.
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


def _connect(
    op: Op, mask: int, inputs: Any, arrays: Any, params: Any, compute: Any, outputs: Any, seq: int
) -> None:
    """Records the node of an op that has just run, and hangs its outputs on it."""
    differentiable = [outputs[i] for i in op.differentiable]
    if not all(is_differentiable(t._array.dtype) for t in differentiable):
        return
    node = new_node(op, inputs, params, mask, compute, outputs, seq)
    if len(differentiable) == 1:
        out = differentiable[0]
        out._requires_grad, out._node = True, node
    else:
        for nr, out in enumerate(differentiable):
            out._requires_grad, out._node = True, Output(node, nr)
