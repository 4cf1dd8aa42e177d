"""Forward mode: tensors that carry tangents, and how an op computes the tangent of its result."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from ...backends import backend_of
from ...backends.several import zeros_like
from ...dtypes import is_differentiable
from ...errors import InplaceError
from ...ops.table import ELEMENTWISE, Op
from ...ops.views.strided import storage_of
from ...runtime.kept import Switch
from ...tensor import Tensor, make
from ..mode import Level, state
from ..recording.recorded import recorded

__all__ = [
    "apply_dual", "enter", "hide_tangent", "laid_out", "leave", "set_tangent", "tangent_of",
]  # fmt: skip

# A tensor keeps its tangents by level, in `Rare.tangents`; a node keeps those of its outputs, for
# what it saved of them, in `NodeRare.tangents`. Only levels in `state.levels` are visible. While
# the tangent of an op at one level is computed, only lower levels are visible. The same tensors
# then look as if they had no tangent at that level. So levels nest, and a tangent may itself have
# tangents.


def enter() -> Level:
    """Opens a level above those of this thread."""
    level = Level()
    state.switch(levels=(*state.levels, level))
    return level


def leave(level: Level) -> None:
    """Closes a level: the tangents that tensors and nodes hold of it are dropped."""
    state.switch(levels=tuple([x for x in state.levels if x is not level]))
    for ref in level.holders:
        holder = ref()
        if holder is not None:
            rare = holder._rare if isinstance(holder, Tensor) else holder.rare
            if rare is not None and rare.tangents:
                rare.tangents.pop(level, None)
    level.holders.clear()


class below(Switch):
    """Only the levels below this one are visible inside."""

    def __init__(self, level: Level) -> None:
        self._level = level

    def as_is(self) -> tuple[Level, ...]:
        return state.levels

    def change(self, before: tuple[Level, ...]) -> None:
        if self._level in before:  # else it is hidden, as all may be
            state.switch(levels=before[: before.index(self._level)])

    def put_back(self, before: tuple[Level, ...]) -> None:
        state.switch(levels=before)


def tangent_of(tensor: Any, level: Level) -> Tensor | None:
    """The tangent of a tensor at one level, or None; a view's is the view of its base's."""
    if not isinstance(tensor, Tensor) or tensor._rare is None:
        return None
    rare = tensor._rare
    if rare.tangents and level in rare.tangents:
        return rare.tangents[level]
    if rare.view is None:
        return None
    base = rare.view.base._rare
    home = base.tangents.get(level) if base is not None and base.tangents else None
    if home is None:
        return None
    with below(level) if level in state.levels else nullcontext():
        part = viewed(tensor, home)
    _keep(tensor, rare, level, part)
    return part


def viewed(view: Tensor, home: Tensor) -> Tensor:
    """What the view ops of `view` make of the tangent of its base."""
    assert view._rare is not None and view._rare.view is not None
    origin, part = view._rare.view, home
    array, turned = origin.base._array, view._rare.turned
    mirrors = [] if turned is None else list(turned.mirror.all_behind())
    xp = backend_of(array).xp
    for step, params in origin.steps:
        tangents = getattr(recorded, step.name)(part, **params)
        array = mirrors.pop().face if step.mirrors else step.forward(xp, array, **params)
        if type(tangents) is tuple:  # the one of several views that shows these bytes
            nr = next((i for i, a in enumerate(array) if xp.may_share_memory(a, view._array)), 0)
            tangents, array = tangents[nr], array[nr]
        part = tangents
    return part


def hide_tangent(tensor: Tensor, level: Level) -> None:
    """Makes a tensor have no tangent, even if it is a view of one that has. Nor do its views."""
    _keep(tensor, tensor.rare, level, None)


def set_tangent(tensor: Tensor, level: Level, tangent: Tensor) -> None:
    """Gives a tensor its tangent; its node, too, which may have saved the tensor."""
    _keep(tensor, tensor.rare, level, tangent)
    if tensor._node is not None:
        note_tangent(tensor._node.grad_fn, tensor._node.output_nr, level, tangent)


def note_tangent(node: Any, output_nr: int, level: Level, tangent: Tensor) -> None:
    """The tangent of a node's output, as it is by now, for what the node may have saved."""
    rare = node.get_rare()
    if rare.tangents is None:
        rare.tangents = {}
    rare.tangents.setdefault(level, {})[output_nr] = tangent, tangent.counter[0]
    _remember(level, node)


def unshared(tangent: Tensor, level: Level, others: Sequence[Tensor | None]) -> Tensor:
    """The tangent, or a copy where its memory is that of another tensor's, which may change.

    It is where it is owned; of an op, whose operands have these other tangents, also where it is
    one of those, or a view: of one of them, or of one number in many places.
    """
    root = tangent if tangent._base is None else tangent._base
    is_own = root is tangent or not others
    if is_own and id(root) not in level.owners and not any(tangent is each for each in others):
        return tangent
    with below(level) if level in state.levels else nullcontext():
        copy: Tensor = recorded.clone(tangent)
    return copy


def laid_out(tangent: Tensor, like: Tensor) -> Tensor:
    """A tangent in the dtype and the strides of its tensor. It is copied if it has others, or if
    the two do not span the same part of their memory.
    """
    home = like._array
    overlaps = any(s == 0 and n > 1 for s, n in zip(like.stride(), like.shape, strict=True))
    if overlaps:
        return tangent
    if type(home) is not type(tangent._array) or not backend_of(home).readable:
        return _in_order(tangent, like)
    if tangent.stride() == like.stride():
        sizes = [storage_of(x)[0].size for x in (home, tangent._array)]
        if sizes[0] == sizes[1] or not home.size:
            return tangent
    laid: Tensor = make(zeros_like(home)).copy_(tangent)
    return laid


def _in_order(tangent: Tensor, like: Tensor) -> Tensor:
    """A tangent in a vmap whose examples, or the one of all, lie in the order of their tensor's."""
    steps = zip(tangent.stride(), like.stride(), like.shape, strict=True)
    if len({a / b for a, b, n in steps if n > 1}) < 2:  # as far apart, but for what is between
        return tangent
    order = sorted(range(like.dim()), key=like.stride().__getitem__, reverse=True)
    back = sorted(range(like.dim()), key=order.__getitem__)
    laid: Tensor = tangent.permute(order).contiguous().permute(back)
    return laid


def _keep(tensor: Tensor, rare: Any, level: Level, tangent: Tensor | None) -> None:
    if rare.tangents is None:
        rare.tangents = {}
    rare.tangents[level] = tangent
    _remember(level, tensor)


def _remember(level: Level, holder: Any) -> None:
    holders = level.holders
    if len(holders) >= 64 and len(holders) & (len(holders) - 1) == 0:  # at powers of two
        holders[:] = [ref for ref in holders if ref() is not None]
    holders.append(weakref.ref(holder))


def restore_tangents(result: Tensor, node: Any, output_nr: int) -> None:
    """Gives a saved result that was read back the tangents that it had."""
    if node.rare is None or not node.rare.tangents:
        return
    for level in state.levels:
        tangent, version = node.rare.tangents.get(level, {}).get(output_nr, (None, 0))
        if tangent is not None:
            _keep(result, result.rare, level, _unchanged(tangent, version))


def _unchanged(tangent: Tensor, version: int) -> Tensor:
    """A tangent that backward needs; InplaceError if it is another one by now."""
    if tangent.counter[0] != version:
        raise InplaceError(
            "one of the variables needed for gradient computation has been modified by an inplace "
            f"operation: a tangent of shape {list(tangent.shape)} is at version "
            f"{tangent.counter[0]}; expected version {version} instead. Hint: change a copy "
            "(x = x.clone()) of the dual tensor, of which saved-tensor hooks keep the primal alone."
        )
    return tangent


class Tangents:
    """The tangents, by level, of a saved input that hooks have packed, and their versions."""

    __slots__ = ("tangents", "versions", "__weakref__")

    def __init__(self, tensor: Tensor) -> None:
        assert tensor._rare is not None and tensor._rare.tangents is not None
        self.tangents = dict(tensor._rare.tangents)
        self.versions = {k: 0 if t is None else t.counter[0] for k, t in self.tangents.items()}
        for level in self.tangents:
            _remember(level, self)

    @property
    def rare(self) -> Tangents:
        """Where `leave` looks for them."""
        return self

    def give(self, tensor: Tensor) -> None:
        """Gives them to what was unpacked."""
        for level in state.levels:
            tangent = self.tangents.get(level)
            if tangent is not None:
                tangent = _unchanged(tangent, self.versions[level])
                _keep(tensor, tensor.rare, level, tangent)


# Whose a tangent is, None for the tensor itself; the number of its level; the tangent, its version.
Carried = tuple[Tensor | None, int, Tensor, int]


def carried(tensor: Tensor, levels: tuple[Level, ...]) -> list[Carried]:
    """The tangents of a tensor at some levels, those that these have at lower ones, and so on."""
    entries: list[Carried] = []
    pending: list[tuple[Tensor | None, int]] = [(None, len(levels))]
    while pending:
        holder, count = pending.pop()
        for nr in range(count):
            tangent = tangent_of(tensor if holder is None else holder, levels[nr])
            if tangent is not None:
                entries.append((holder, nr, tangent, tangent.counter[0]))
                pending.append((tangent, nr))
    return entries


class reopened(Switch):
    """Makes these levels visible inside. A level that has been closed is replaced by a new one, at
    which tensors have what they carried: pairs of a tensor and of that. InplaceError where a
    tangent has changed since.
    """

    def __init__(
        self, levels: tuple[Level, ...], tensors: list[tuple[Tensor, list[Carried]]]
    ) -> None:
        self._levels = levels
        self._tangents = [
            (tensor if holder is None else holder, nr, _unchanged(tangent, version))
            for tensor, entries in tensors
            for holder, nr, tangent, version in entries
        ]

    def as_is(self) -> tuple[tuple[Level, ...], tuple[Level, ...]]:
        open_ = state.levels
        return open_, tuple([level if level in open_ else Level() for level in self._levels])

    def change(self, before: tuple[tuple[Level, ...], tuple[Level, ...]]) -> None:
        _, own = before
        state.switch(levels=own)
        for tensor, nr, tangent in self._tangents:
            if own[nr] is not self._levels[nr]:
                _keep(tensor, tensor.rare, own[nr], tangent)

    def put_back(self, before: tuple[tuple[Level, ...], tuple[Level, ...]]) -> None:
        open_, own = before
        for level in own:
            if level not in open_:
                leave(level)
        state.switch(levels=open_)


def keep_tangents(copy: Tensor, tensor: Tensor) -> None:
    """Gives a copy of a tensor, which is about to change, copies of its tangents."""
    assert tensor._rare is not None and tensor._rare.tangents is not None
    for level, t in tensor._rare.tangents.copy().items():
        if t is None:
            continue
        with below(level) if level in state.levels else nullcontext():
            _keep(copy, copy.rare, level, t.clone())


def highest(inputs: Any) -> Level | None:
    """The innermost level at which one of the inputs has a tangent."""
    for level in reversed(state.levels):
        for x in inputs:
            if tangent_of(x, level) is not None:
                return level
    return None


def apply_dual(
    op: Op, args: tuple[Any, ...], params: dict[str, Any], run: Callable[..., Any]
) -> Any:
    """`run(op, args, params)`, and the tangent of what it returns, where an input has one."""
    inputs = args[0] if op.variadic else args
    level = highest(inputs)
    if level is None:
        return run(op, args, params)
    tangents = tuple([tangent_of(x, level) for x in inputs])
    with below(level):
        result = apply_dual(op, args, params, run)
        results = result if type(result) is tuple else (result,)
        outgoing = tangent(op, tuple(inputs), tangents, results, params)
        if not op.view:  # as the result lies, for views of both to come
            outgoing = tuple([
                None if t is None else laid_out(unshared(t, level, tangents), out)
                for t, out in zip(outgoing, results, strict=True)
            ])  # fmt: skip
    for out, t in zip(results, outgoing, strict=True):
        if t is not None:
            set_tangent(out, level, t)
    return result


def tangent(
    op: Op,
    primals: tuple[Any, ...],
    tangents: tuple[Tensor | None, ...],
    results: tuple[Tensor, ...],
    params: dict[str, Any],
) -> tuple[Tensor | None, ...]:
    """The tangent of each result, in its shape and dtype; None for those that have none."""
    nothing = (None,) * len(results)
    op = op.counted(len(results)) if op.many else op
    if not any(op.formulas) and op.jvp_formula is None:
        return nothing
    able = [
        None if t is None or op.formulas[0 if op.variadic else i] is None else t
        for i, t in enumerate(tangents)
    ]
    if all(t is None for t in able):
        return nothing
    first = results[op.differentiable[0]] if op.differentiable else results[0]
    if op.promote is not None and op.promote != "cast":
        primals, able = _promoted(op, primals, able, first)
    if op.kind == ELEMENTWISE:
        shape = first._array.shape
        able = [t if t is None or t._array.shape == shape else recorded.expand(t, shape)
                for t in able]  # fmt: skip
    products = op.jvp(recorded, primals, tuple(able), results, params)
    products = products if type(products) is tuple else (products,)
    return tuple([
        None if t is None or i not in op.differentiable else _shaped(t, out)
        for i, (t, out) in enumerate(zip(products, results, strict=True))
    ])  # fmt: skip


def _promoted(op: Op, primals: Any, tangents: Any, like: Tensor) -> tuple[Any, Any]:
    """Floating-point inputs that meet in one dtype, which is that of the result, brought to it."""
    dtype = like._array.dtype
    if not is_differentiable(dtype):
        return primals, tangents

    def cast(x: Any, i: int) -> Any:
        if not isinstance(x, Tensor) or (not op.variadic and i not in op.promoted):
            return x
        if x._array.dtype == dtype or (x._array.dtype.kind == "c" and dtype.kind != "c"):
            return x
        return recorded.to_dtype(x, dtype)

    return (
        tuple([cast(x, i) for i, x in enumerate(primals)]),
        [cast(t, i) for i, t in enumerate(tangents)],
    )


def _shaped(t: Any, out: Tensor) -> Tensor | None:
    if not isinstance(t, Tensor):  # a formula may return a plain 0
        return None
    if not is_differentiable(out._array.dtype):
        return None
    if t._array.shape != out._array.shape:
        t = recorded.expand(t, out._array.shape)
    if t._array.dtype != out._array.dtype:
        if t._array.dtype.kind == "c" and out._array.dtype.kind != "c":
            t = recorded.real(t)
        if t._array.dtype != out._array.dtype:
            t = recorded.to_dtype(t, out._array.dtype)
    return t
