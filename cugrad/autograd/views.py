"""Views and in-place changes: how history is rewritten when storage is."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from ..tensor import Tensor
from .mode import enable_grad, state, writes_watched

if TYPE_CHECKING:
    from ..ops.table import Op

Step = tuple["Op", dict[str, Any]]

NORMAL, NO_GRAD, MULTIPLE, CUSTOM = range(4)  # how a view came to be


class View:
    """Where a view comes from: its base, and the view ops that lead from the base to it."""

    __slots__ = ("base", "steps", "creation", "__weakref__")

    def __init__(self, base: Tensor, steps: tuple[Step, ...], creation: int) -> None:
        self.base, self.steps, self.creation = base, steps, creation

    def regenerate(self, view: Tensor) -> Any:
        """A new node for a view whose base was changed in place: its view ops, recorded anew."""
        from .record import execute

        if not self.base._requires_grad:
            return None
        self.check("its base or another view of its base has been modified inplace")
        with enable_grad():
            replayed: Any = self.base
            for op, params in self.steps:
                replayed = execute(op, (replayed,), params)
        view._node = replayed._node
        return view._node

    def check(self, what: str) -> None:
        """RuntimeError where an in-place change, `what`, cannot be followed for such a view."""
        if self.creation != NORMAL:
            raise RuntimeError(REFUSALS[self.creation].format(what))


REFUSALS = {
    NO_GRAD: (
        "A view was created in no_grad mode and {} with grad mode enabled. Given that this use "
        "case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving "
        "both the view and the inplace either both inside the no_grad block (if you don't want the "
        "inplace to be tracked) or both outside (if you want the inplace to be tracked)."
    ),
    MULTIPLE: (
        "A tensor is a view and {}. This view is the output of a function that returns multiple "
        "views. Such functions do not allow the output views to be modified inplace. You should "
        "replace the inplace operation by an out-of-place one."
    ),
    CUSTOM: (
        "A tensor is a view and {}. This view was created inside a custom Function (or because an "
        "input was returned as-is) and the autograd logic to handle view+inplace would override "
        "the custom backward associated with the custom Function, leading to incorrect gradients. "
        "This behavior is forbidden. You can fix this by cloning the output of the custom "
        "Function."
    ),
}


def attach(view: Tensor, parent: Tensor, op: Op, params: dict[str, Any], creation: int) -> None:
    """Makes `view` known as the result of a view op on `parent`."""
    origin = None if parent._rare is None else parent._rare.view
    base, steps = parent, ((op, params),)  # type: tuple[Tensor, tuple[Step, ...]]
    if origin is not None:
        base, steps = origin.base, origin.steps + steps
        creation = max(creation, origin.creation)
    if creation == NORMAL and not state.grad_enabled:
        creation = NO_GRAD
    register(view, base, steps, creation)


def register(view: Tensor, base: Tensor, steps: tuple[Step, ...], creation: int) -> None:
    """Makes `base`, which is no view itself, and `view` know each other."""
    view._counter = base.counter  # one storage, one version
    view.rare.view = View(base, steps, creation)
    views = base.rare.views
    if views is None:
        views = base.rare.views = []
    elif len(views) >= 8 and len(views) & (len(views) - 1) == 0:  # at powers of two: drop the dead
        views[:] = [ref for ref in views if ref() is not None]
    views.append(weakref.ref(view))


def check_inplace(t: Tensor, op_name: str) -> None:
    """RuntimeError when autograd forbids changing `t` in place."""
    if state.before_write is not None:
        state.before_write(t)
    if writes_watched:
        for watcher in tuple(writes_watched):
            watcher(t)
    if not state.grad_enabled:
        return
    view = None if t._rare is None else t._rare.view
    if t._requires_grad and t.is_leaf:
        raise RuntimeError(
            "a leaf Variable that requires grad is being used in an in-place operation. "
            f"({op_name}: use torch.no_grad() to change it without recording, or a copy)"
        )
    if view is None:
        return
    if view.base._requires_grad and view.base.is_leaf:
        raise RuntimeError(
            "a view of a leaf Variable that requires grad is being used in an in-place operation. "
            f"({op_name}: use torch.no_grad(), or take the view of a copy)"
        )
    if t._requires_grad or view.base._requires_grad:
        view.check("is being modified inplace")


def rebase(t: Tensor, node: Any) -> None:
    """Gives `t`, just changed in place, its new history, and its base and fellow views theirs."""
    view = None if t._rare is None else t._rare.view
    base = t if view is None else view.base
    latest = node if view is None else _copy_slices(base, node, view.steps, t._array)
    if base._node is not None and base._node.grad_fn.rare is not None:
        _keep_retaining(base, latest)
    base._node, base._requires_grad = latest, True
    if base._rare is not None and base._rare.views is not None:
        for ref in base._rare.views:
            other = ref()
            if other is not None:
                other._requires_grad = True
                other._node = None  # regenerated when asked for


def _keep_retaining(t: Tensor, latest: Any) -> None:
    """A tensor whose gradient is retained has it retained where its history ends now."""
    retained = t._node.grad_fn.rare.retained
    ref = retained.get(t._node.output_nr)
    if ref is not None and ref() is t:
        del retained[t._node.output_nr]
        latest.grad_fn.get_rare().retained[latest.output_nr] = ref


def _copy_slices(base: Tensor, node: Any, steps: tuple[Step, ...], array: Any) -> Any:
    """The node of `base` after a region of it became the output of `node`."""
    from ..ops.table import TABLE
    from ..tensor import make
    from .record import new_node

    op = TABLE["copy_slices"]
    part = make(array, True, node)
    before = make(base._array, base._requires_grad, base._node)
    layout, order = base._array, None
    if not layout.flags.c_contiguous:
        order = tuple(sorted(range(layout.ndim), key=lambda dim: -layout.strides[dim]))
    return new_node(op, (before, part), {"steps": steps, "order": order})
