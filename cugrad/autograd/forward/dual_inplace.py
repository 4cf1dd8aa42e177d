"""Forward mode of in-place ops: a tangent changes with its own tensor and with no other."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ...backends import backend_of
from ...backends.batched.arrays import levels_of
from ...backends.several import copy_of, zeros_like
from ...ops.table import Op
from ...tensor import Tensor, make
from ..mode import Level, enable_grad, state
from ..recording.node import edge_of
from ..recording.recorded import recorded
from ..recording.views import at_edge
from .dual import (
    _remember,
    below,
    highest,
    laid_out,
    set_tangent,
    tangent,
    tangent_of,
    unshared,
    viewed,
)

__all__ = ["apply_dual_inplace", "copied", "own", "shares_memory", "written"]

# A tensor may share its tangent with others: that of `x + 1` is the one of `x`, and an expanded one
# has many elements in one place. So an in-place op on a whole tensor gives it a new tangent. One on
# a view writes to a part of its base's tangent, which `level.owners` says to be the base's own; if
# it is not, the base gets a copy first. Other views look theirs up anew.


def apply_dual_inplace(
    op: Op, args: tuple[Any, ...], params: dict[str, Any], run: Callable[..., Any],
    nodes: list[Any],
) -> Tensor:  # fmt: skip
    """Runs an op whose result takes the place of its first input; `run` tells its node."""
    t: Tensor = args[0]
    level = highest(args)
    if level is None:
        return run(op, args, params)
    tangents = tuple([tangent_of(x, level) for x in args])
    old = tangents[0]
    with below(level):
        if old is not None and _base(t) is not t and state.grad_enabled:
            if any(x._requires_grad for x in (*args, *tangents) if isinstance(x, Tensor)):
                tangents = (old.clone(), *tangents[1:])  # it will be saved, then written to
        tangents = tuple(
            [v if v is None or not shares_memory(v, t) else v.clone() for v in tangents]
        )
        before = _before(t)
        olds = tuple([before if x is t else _before(x) if shares_memory(x, t) else x for x in args])
        apply_dual_inplace(op, args, params, run, nodes)
        (new,) = tangent(op, olds, tangents, (t,), params)
        for node in nodes if new is not None else ():
            assert new is not None
            rare = node.get_rare()
            rare.tangents = rare.tangents or {}
            rare.tangents.setdefault(level, {})[0] = new, new.counter[0]
            _remember(level, node)
        _replace(t, level, old, new, tangents[1:])
    return t


def copied(x: Tensor, edge: Any) -> Tensor:
    """A copy that takes the place of `x` in the graph, so that changes of `x` do not change it. It
    gets a version counter at once. Later it would get that of the result which its node saved.
    """
    copy = at_edge(copy_of(x._array, "K"), x._requires_grad, edge)
    if copy._counter is None:
        copy._counter = [0]
    return copy


def _before(x: Tensor) -> Tensor:
    """What `x` is before it, or what it shares memory with, is changed."""
    before = copied(x, edge_of(x) if x._requires_grad else None)
    for lower in state.levels:
        deeper = tangent_of(x, lower)
        if deeper is not None:
            set_tangent(before, lower, deeper.clone())
    return before


def shares_memory(x: Any, t: Tensor) -> bool:
    """Whether an operand is, in part, what a change of `t` overwrites."""
    if not isinstance(x, Tensor) or x._counter is None or x._counter is not t._counter:
        return False
    return bool(backend_of(t._array).xp.may_share_memory(x._array, t._array))


def _replace(
    t: Tensor, level: Level, old: Tensor | None, new: Tensor | None,
    others: Sequence[Tensor | None],
) -> None:  # fmt: skip
    """Gives `t`, just changed, the tangent `new`, zero where it had one and has none now."""
    if new is None:
        if old is None:
            return
        new = _zeros(t)
    if old is None and t._rare is not None and level in (t._rare.tangents or ()):
        new = _copy(new)  # a primal, whose tangent is no part of the dual tensor's
        set_tangent(t, level, new)
        own(new, t, level)
        return
    view = None if t._rare is None else t._rare.view
    if view is None:
        new = laid_out(new, t)
        if old is not None and old._requires_grad and not state.grad_enabled:
            # as with its tensor: the change is not recorded, and what was before it stays
            new = at_edge(_copy(new, ())._array, True, edge_of(old))
        set_tangent(t, level, unshared(new, level, others))
        _forget_views(t, level)
        return
    if old is None and tangent_of(view.base, level) is None:
        home = _zeros(view.base)
        set_tangent(view.base, level, home)
        own(home, view.base, level)
    written(t, level, new).copy_(new)


def own(tangent: Tensor, t: Tensor, level: Level) -> None:
    """Says that a tangent is that of `t` and its views alone: it may be written to."""
    key = id(tangent)

    def gone(ref: Any) -> None:
        if level.owners.get(key, (None,))[0] is ref:
            del level.owners[key]

    level.owners[key] = weakref.ref(tangent, gone), weakref.ref(t)


def written(t: Tensor, level: Level, new: Tensor | None = None) -> Tensor:
    """The tangent of `t` to write to, in memory that no other tensor's tangent shares.

    It has a place for each element of `new`, which inside vmap may differ by example.
    """
    base, current = _base(t), tangent_of(t, level)
    hidden = [at for at in levels_of(t._array) if at not in levels_of(base._array)]
    batches = [] if new is None else [x for x in levels_of(new._array) if x not in hidden]
    if current is not None:
        root = current if current._base is None else current._base
        _, owner = level.owners.get(id(root), (None, None))
        if owner is not None and (owner() is base or owner() is t) and _holds(root, batches):
            return current
    home = current if base is t else tangent_of(base, level)
    if home is not None:
        mine = _copy(home, batches)
        set_tangent(base, level, mine)
        own(mine, base, level)
        _forget_views(base, level)
        part = mine if base is t else viewed(t, mine)
    else:  # a dual tensor made of a plain one, or a view of it
        assert current is not None
        root = current if current._base is None else current._base
        mine = _copy(root, batches)
        own(mine, base, level)
        for ref in base.rare.views or ():
            other = ref()
            theirs = None if other is None else tangent_of(other, level)
            if other is not None and theirs is not None:
                if theirs is root:
                    set_tangent(other, level, mine)
                elif theirs._base is root:
                    set_tangent(other, level, viewed(theirs, mine))
        part = mine if current is root else viewed(current, mine)
    set_tangent(t, level, part)
    return part


def _base(t: Tensor) -> Tensor:
    view = None if t._rare is None else t._rare.view
    return t if view is None else view.base


def _zeros(t: Tensor) -> Tensor:
    return make(zeros_like(t._array))


def _holds(home: Tensor, batches: list[Any]) -> bool:
    """Whether each element of `home` has a place of its own, for each example of these batches."""
    strides = zip(home._array.strides, home._array.shape, strict=True)
    if any(s == 0 and n > 1 for s, n in strides):
        return False
    return set(batches) <= set(levels_of(home._array))


def _copy(home: Tensor, batches: Any = ()) -> Tensor:
    """A copy of `home` with its history, for each example of these batches."""
    levels = levels_of(home._array)
    with enable_grad():  # an unrecorded change keeps the old history
        for level in reversed(batches):
            if level not in levels:
                home = recorded.vmap_lift(home, level)
        copy: Tensor = recorded.clone(home)
    return copy


def _forget_views(base: Tensor, level: Level) -> None:
    """Tangents of views are looked up anew when they are next read."""
    for ref in (base._rare.views or ()) if base._rare is not None else ():
        view = ref()
        if view is not None and view._rare is not None and view._rare.tangents:
            if view._rare.tangents.get(level) is not None:
                del view._rare.tangents[level]
