"""Which rows have written kernels, and how a row is run with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import cupy
import numpy as np

from ...moments import waiting
from ...wanted import wanted
from ..fused.copies import copies_in_place, dense
from ..launches.rows import (
    Gradients,
    form_of_array,
    form_of_arrays,
    key_of,
    of_array_or_none,
    straight,
    told_of,
)
from .plans import noted_run

__all__ = [
    "BACKWARDS",
    "FORWARDS",
    "KEPT",
    "backward",
    "backward_of",
    "change",
    "forward",
    "forward_of",
]

Array = Any  # cupy.ndarray
Function = Callable[..., Any]
ndarray = cupy.ndarray

FORWARDS: dict[str, Function] = {}  # by row: the result of its inputs and parameters, or None
BACKWARDS: dict[str, Function] = {}  # by row: the gradients of a `NodeCall`, or None
IN_PLACE: dict[str, Function] = {"copy": copies_in_place}  # by row: of its forward, in place
CHANGES: dict[str, Function] = {}  # by row: its first input, which it has changed, or None
KEPT: set[Function] = set()  # those whose launches are kept by the form of the operands
MOVING: set[Function] = set()  # those that may change the running statistics that wait for them
BY_KERNELS = SimpleNamespace(ascontiguousarray=dense)  # a namespace, as far as `Op.lies` needs one


def forward(
    *names: str, keeps: bool = False, moves: bool = False
) -> Callable[[Function], Function]:
    """Says that a function computes rows: from inputs and parameters, all by position.

    With `keeps` its launches are kept by the form of the operands: see plans.py. With `moves` it
    may change running statistics: see `backends/moments.py`.
    """

    def enter(function: Function) -> Function:
        if moves:
            MOVING.add(function)
        return _enter(FORWARDS, names, function, keeps)

    return enter


def backward(*names: str, keeps: bool = False) -> Callable[[Function], Function]:
    """Says that a function of a `NodeCall` computes the gradients of rows; `keeps` as above."""
    return lambda function: _enter(BACKWARDS, names, function, keeps)


def change(name: str) -> Callable[[Function], Function]:
    """Says that a function computes a row over its first input, which it answers: of arrays that
    share no memory, by position.
    """
    return lambda function: _enter(CHANGES, (name,), function, False)


def _enter(
    table: dict[str, Function], names: Sequence[str], function: Function, keeps: bool
) -> Function:
    for name in names:
        table[name] = function
    if keeps:
        KEPT.add(function)
    return function


class NodeCall:
    """A node of a row that runs backward: what its formulas would be given.

    `call["input"]` is what was saved of an input or an output, `call.shape("input")` an input's
    shape, `call.wants("input")` whether its gradient is asked for; `call.shapes` are those of all.
    """

    __slots__ = ("op", "mask", "g", "params", "shapes", "_saved")

    def __init__(
        self, op: Any, mask: int, g: Array, saved: Sequence[Any], shapes: Any, params: Any
    ) -> None:
        self.op, self.mask, self.g, self.params = op, mask, g, params
        self._saved, self.shapes = dict(zip(op.saves(mask), saved)), shapes

    def __getitem__(self, name: str) -> Any:
        return self._saved.get(name)

    def shape(self, name: str) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.shapes[self.op.inputs.index(name)]
        return shape

    def wants(self, name: str) -> bool:
        return bool(self.mask >> self.op.inputs.index(name) & 1)

    def answer(self, /, **gradients: Array | None) -> tuple[Array | None, ...]:
        """A gradient for each input of the row, in their order."""
        return tuple([gradients.get(name) for name in self.op.inputs])


def forward_of(op: Any, plain: Function) -> Function:
    """A row's forward by its kernel, and by `plain` where that answers None."""
    function = FORWARDS.get(op.name)
    if op.name in IN_PLACE:
        plain.in_place = IN_PLACE[op.name](plain)  # type: ignore[attr-defined]
    run = plain if function is None else _run_of(op, function, plain)
    if op.name in CHANGES:
        run.in_place = _change_of(op, CHANGES[op.name], run)  # type: ignore[attr-defined]
    return run


def _change_of(op: Any, written: Function, run: Function) -> Function:
    """A row over its first input, where that lies dense, and apart from the others."""
    others = range(1, len(op.inputs))

    def in_place(*args: Any, **params: Any) -> Any:
        home = args[0]
        if wanted.fused and _on_device(args) and home._c_contiguous and home.size:
            if not any(cupy.may_share_memory(args[i], home) for i in others):
                full = {**op.defaults, **dict(zip(op.params, args[len(op.inputs) :])), **params}
                if written(*args[: len(op.inputs)], *[full[n] for n in op.params]) is not None:
                    return home
        return run(*args, **params)

    return in_place


def _as_operands(op: Any, function: Function) -> Function:
    """Results of kernels, which lie in the order of their dims, as the row wants them to lie."""

    def run_and_copy(*args: Any) -> Any:
        result = function(*args)
        if result is None or all(type(x) is not ndarray or x._c_contiguous for x in args[:2]):
            return result
        return op.lies(BY_KERNELS, args[:2], result)

    return run_and_copy


def _run_of(op: Any, written: Function, plain: Function) -> Function:
    names = [*op.inputs, *op.params]
    function = written if op.lies is None else _as_operands(op, written)

    def run(*args: Any, **params: Any) -> Any:
        if wanted.fused and _on_device(args):
            full = args
            if len(args) < len(names):
                values = {**op.defaults, **params}
                full = (*args, *[values.get(n) for n in names[len(args) :]])
            result = function(*full)
            if result is not None:
                return result
        return plain(*args, **params)

    def begin(*args: Any) -> Any:
        if not wanted.fused or not _on_device(args):
            return plain(*args), None, None
        operands, opening = _named(op, args)
        moving = Moving(waiting.now if written in MOVING else None)
        operands |= moving.operands
        result, launch = noted_run(
            lambda: function(*args), names, operands, moving.opening or opening, moving.closing,
            own,
        )  # fmt: skip
        if result is None:
            return plain(*args), None, None
        return result, launch, told_of(op, args, result)

    def part(i: int, name: str) -> str:
        if op.variadic:
            return form_of_arrays(name)
        return (of_array_or_none if op.inputs[i] in op.optional else form_of_array)(name)

    if written not in KEPT:
        return run
    defaults = {n: op.defaults.get(n) for n in names[1:]}
    # What is no output that a program gets is for backward alone.
    own = 1 + max(op.differentiable, default=0)
    more = [Moving.KEY] if written in MOVING else []
    return straight(names, key_of(op, part, "{}", *more), run, begin, defaults)


class Moving:
    """Running statistics that wait for a row, as operands of it: the lines of a launch that fetch
    them, and that say what was done.
    """

    KEY = "waiting.now and waiting.now.form()"

    def __init__(self, running: Any) -> None:
        self.running, self.opening = running, ""
        self.operands: dict[str, Array] = {}
        if running is not None:
            names = ("running_mean", "running_var", "batches")
            pairs = zip(names, running.arrays(), strict=True)
            self.operands |= {name: x for name, x in pairs if type(x) is ndarray}
            self.opening = f"running = waiting.now; {', '.join(names)} = running.arrays()"

    def closing(self) -> str:
        if self.running is None:
            return "pass"
        return f"waiting.now = None; running.moved = {self.running.moved}"


def _named(op: Any, args: Sequence[Any]) -> tuple[dict[str, Array], str]:
    """The arrays among the arguments of a row, by name, and the line that makes such names."""
    if not op.variadic:
        return {name: x for name, x in zip(op.inputs, args) if type(x) is ndarray}, "pass"
    operands = {f"x{k}": x for k, x in enumerate(args[0])}
    return operands, f"{', '.join(operands)}, = {op.inputs[0]}"


def backward_of(op: Any, mask: int, raw: Any) -> Function | None:
    """`backward(g, saved, meta)`: the gradients of a row's inputs, or None where the formulas must
    compute them; see `fused.rows.backward_of`.
    """
    function = BACKWARDS.get(op.name)
    if function is None:
        return None

    def run(g: Any, saved: Sequence[Any], meta: Any) -> Any:
        if not wanted.fused or meta is None or not _on_device((g, *saved)):
            return None
        shapes, params, dtypes, compute, conjugates = meta
        if conjugates or compute is not None:
            return None
        grads = function(NodeCall(op, mask, g, saved, shapes, {**op.defaults, **params}))
        return None if grads is None else raw.fitted(grads, shapes, dtypes)

    def begin(g: Any, saved: Sequence[Any], meta: Any) -> Any:
        operands = form.arrays(g, saved)
        return *noted_run(lambda: run(g, saved, meta), form.names, operands, form.opening), None

    if function not in KEPT:
        return run
    form = Gradients(op, mask)
    return form.straight(run, begin)


def _on_device(args: Sequence[Any]) -> bool:
    """Whether all arrays are CuPy's: none is of the host, none hides a dim of vmap."""
    for x in args:
        if type(x) is not ndarray and hasattr(x, "dtype") and not isinstance(x, np.generic):
            return False
    return True
