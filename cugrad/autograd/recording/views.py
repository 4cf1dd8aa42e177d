"""Views and in-place changes: how history is rewritten when storage is."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...backends.several import copy_of
from ...dtypes import is_differentiable
from ...tensor import UNCOUNTED, Rare, Tensor, make
from ..inference import inference_mode
from ..mode import enable_grad, state, will_change, writes_watched
from .mirrors import Mirror, mirrors_of, reflect, turn
from .node import FREED, edge_of

if TYPE_CHECKING:
    from ...ops.table import Op

Step = tuple["Op", dict[str, Any]]

NORMAL, INFERENCE, NO_GRAD, MULTIPLE, CUSTOM = range(5)  # how a view was made
UNRECORDED = (INFERENCE, NO_GRAD)


class View:
    """Where a view comes from: its base, and the view ops that lead from the base to it."""

    __slots__ = (
        "base", "steps", "creation", "version", "maker", "retains", "accumulates", "__weakref__",
    )  # fmt: skip

    def __init__(self, base: Tensor, steps: tuple[Step, ...], creation: int) -> None:
        self.base, self.steps, self.creation = base, steps, creation
        # when the view was made, or last changed and recorded
        self.version = (base._counter or base.counter)[0]
        self.maker: str | None = None  # the node it had, in the words of an error
        # where its gradient is retained until it has another node: the node of before, and which
        # of its outputs
        self.retains: tuple[weakref.ref[Any], int] | None = None
        self.accumulates = False  # whether the user has made it a leaf: `requires_grad_()`

    @property
    def is_followed(self) -> bool:
        """Whether changes of the storage give this view a new node."""
        return self.creation == NORMAL

    def base_requires(self, view: Tensor, requires_grad: bool) -> None:
        """Makes a view without a history require gradients if its base does."""
        had_none = self.creation in UNRECORDED or self.maker is None
        if view._node is None and had_none and not self.accumulates:
            view._requires_grad = requires_grad and is_differentiable(view._array.dtype)

    def regenerate(self, view: Tensor) -> Any:
        """A new node for a view whose base was changed in place: its view ops, recorded anew.

        None for a leaf, such as a view made where nothing was recorded, or before its base required
        gradients, until its base is changed.
        """
        never = self.accumulates or (self.creation != NORMAL and self.maker is None)
        if not self.base._requires_grad and never:
            return None
        if self.maker is None and self.version == self.base.counter[0]:
            return None
        self.check(view, "its base or another view of its base has been modified inplace")
        self.given(view, self.replayed())
        return view._node

    def given(self, view: Tensor, node: Any) -> None:
        """A view has a new node, where its gradient is retained if it was."""
        view._node = node
        if self.retains is not None:
            self.retains_no_more()
            self.retains = None
            node.grad_fn.get_rare().retained[node.output_nr] = weakref.ref(view)

    def retains_no_more(self) -> None:
        """The gradient is no longer retained at the node of before, but at the next."""
        if self.retains is not None:
            before, nr = self.retains
            node = before()
            if node is not None:
                node.rare.retained.pop(nr, None)

    def replayed(self) -> Any:
        """The node of what the view ops make of the base as it is now."""
        from .record import execute

        with inference_mode(False), enable_grad():  # in whatever mode the caller is
            tensor: Any = self.base
            if not tensor._requires_grad:  # the base was detached: history ends here
                tensor = linked(tensor._array, True, None)
            for op, params in self.steps:
                try:
                    tensor = execute(op, (tensor,), params)
                except (IndexError, TypeError, ValueError) as error:
                    raise RuntimeError(
                        f"a view by {op.name} has no history any more: its base was given another "
                        f"shape, {list(self.base.shape)}, as by out= ({error})"
                    ) from None
        return tensor._node

    def check(self, view: Tensor, what: str) -> None:
        """RuntimeError where an in-place change, `what`, cannot be followed for such a view."""
        creation = self.creation
        if creation == NORMAL:
            return
        if view._node is not None:
            self.maker = f"Output {view._node.output_nr} of {_short_name(view._node.grad_fn)}"
        reason = REFUSALS[creation]
        if creation in UNRECORDED:
            subject = f"{self.maker} is a view of a view which was" if self.maker else "A view was"
        elif self.maker:
            subject = f"{self.maker} is a view"
        else:
            subject = "A view was created in no_grad mode"
            what = f"{what} with grad mode enabled"
        raise RuntimeError(f"{subject} {reason.format(what)}")

    def release(self, view: Tensor) -> None:
        """Ends the relation to a base that was a temporary, to which nothing else refers; and that
        of the tangents, which are views of the temporary's.
        """
        assert self.base._rare is not None and self.base._rare.views is not None
        self.base._rare.views[:] = [ref for ref in self.base._rare.views if ref() is not view]
        view.rare.view = None
        for tangent in list((view.rare.tangents or {}).values()):
            if tangent is not None and tangent._rare is not None and tangent._rare.view is not None:
                tangent._rare.view.release(tangent)

    def passes_to(self, successor: Tensor, view: Tensor) -> None:
        """Makes the base know `successor`, which has the fields of `view`, in its place."""
        assert self.base._rare is not None and self.base._rare.views is not None
        views = self.base._rare.views
        views[:] = [weakref.ref(successor) if ref() is view else ref for ref in views]

    def forget(self, view: Tensor) -> None:
        """Drops the node of a view whose storage has changed; the next who asks gets a new one."""
        if view._node is not None:
            self.maker = f"Output {view._node.output_nr} of {_short_name(view._node.grad_fn)}"
        if view._node is not None and view._node.grad_fn.rare is not None and view.retains_grad:
            self.retains = weakref.ref(view._node.grad_fn), view._node.output_nr
        view._node = None


def at_edge(array: Any, requires_grad: bool, edge: Any) -> Tensor:
    """A tensor whose gradient goes to an edge, which may be a leaf: the tensor stands for it then.

    No tensor is the node of another: paths that are generated ask whether there is a node by its
    truth, and a tensor's is that of its elements.
    """
    if not isinstance(edge, Tensor):
        return make(array, requires_grad, edge)
    tensor: Tensor = make(array, requires_grad)
    tensor.rare.stands_for = edge
    return tensor


def linked(array: Any, requires_grad: bool, edge: Any) -> Tensor:
    """The same, but where it requires a gradient and there is no edge, that goes nowhere, as that
    of a view which was made where nothing is recorded: it is no leaf.
    """
    tensor = at_edge(array, requires_grad, edge)
    if requires_grad and edge is None:
        tensor.rare.view = View(make(array), (), NO_GRAD)
    return tensor


def _short_name(node: Any) -> str:
    name: str = node.short_name()
    return name.rpartition("Backward")[0] or name


REFUSALS = {
    INFERENCE: (
        "created in inference mode and {} in normal mode. Given that this use case is ambiguous "
        "and error-prone, it is forbidden. You can clarify your code by moving both the view and "
        "the inplace either both inside the inference_mode block (if you don't want the inplace "
        "to be tracked) or both outside (if you want the inplace to be tracked)."
    ),
    NO_GRAD: (
        "created in no_grad mode and {} with grad mode enabled. Given that this use case is "
        "ambiguous and error-prone, it is forbidden. You can clarify your code by moving both the "
        "view and the inplace either both inside the no_grad block (if you don't want the inplace "
        "to be tracked) or both outside (if you want the inplace to be tracked)."
    ),
    MULTIPLE: (
        "and {}. This view is the output of a function that returns multiple views. Such functions "
        "do not allow the output views to be modified inplace. You should replace the inplace "
        "operation by an out-of-place one."
    ),
    CUSTOM: (
        "and {}. This view was created inside a custom Function (or because an input was returned "
        "as-is) and the autograd logic to handle view+inplace would override the custom backward "
        "associated with the custom Function, leading to incorrect gradients. This behavior is "
        "forbidden. You can fix this by cloning the output of the custom Function."
    ),
}
INFERENCE_TEXT = (
    "Inplace update to inference tensor outside InferenceMode is not allowed.You can make a clone "
    "to get a normal tensor before doing inplace update.See "
    "https://github.com/pytorch/rfcs/pull/17 for more details."
)


def attach(
    view: Tensor, parent: Tensor, op: Op, params: dict[str, Any], creation: int, fast: bool = True
) -> None:
    """Makes `view` known as the result of a view op on `parent`. TypeError on a fast path where the
    general one must say that nothing is recorded.
    """
    origin = None if parent._rare is None else parent._rare.view
    if parent._counter is UNCOUNTED:
        if fast and parent._requires_grad and state.grad_enabled:
            raise TypeError("a view of an inference tensor is recorded nowhere")
        view._counter = UNCOUNTED
    if op.mirrors or parent._rare is not None and parent._rare.turned is not None:
        turn(view, parent, op, params)
    if parent._counter is UNCOUNTED:  # no view of an inference tensor is remembered
        return
    if origin is None and op.inherits:
        view._counter = parent.counter
        return
    if not state.grad_enabled:
        creation = INFERENCE if state.inference else NO_GRAD
        view._requires_grad = parent._requires_grad and is_differentiable(view._array.dtype)
    base, steps = parent, ((op, params),)  # type: tuple[Tensor, tuple[Step, ...]]
    if origin is not None:
        base, steps = origin.base, origin.steps + steps
        if origin.creation == INFERENCE or creation == NORMAL:
            creation = origin.creation
    register(view, base, steps, creation)
    if parent._rare is not None and parent._rare.tangents:
        tangents = parent._rare.tangents.copy()
        hidden = {level: None for level, t in tangents.items() if t is None}
        view.rare.tangents = dict(hidden) or None  # views of a primal have no tangents, either


def register(view: Tensor, base: Tensor, steps: tuple[Step, ...], creation: int) -> None:
    """Makes `base`, which is no view itself, and `view` know each other."""
    counter = view._counter = base._counter or base.counter  # one storage, one version
    rare = view._rare
    if rare is None:
        rare = view._rare = Rare()
    rare.view = View(base, steps, creation)
    rare = base._rare or base.rare
    views = rare.views
    if views is None:
        views = rare.views = []
        known_by(counter, base)
    elif len(views) >= 8 and len(views) & (len(views) - 1) == 0:  # at powers of two: drop the dead
        views[:] = [ref for ref in views if ref() is not None]
    views.append(weakref.ref(view))


def known_by(counter: list[Any], base: Tensor) -> None:
    """Appends a weak reference to a tensor that has views to its version counter. Tensors that
    share a storage, such as a tensor and the result of `detach`, share the counter. Mirrors of the
    storage are there, too.
    """
    for ref in counter[1:]:
        if ref() is None:
            with suppress(ValueError):  # another thread has taken it out; that may add others
                counter.remove(ref)
    counter.append(weakref.ref(base))


def is_part_of_leaf(t: Tensor) -> bool:
    """Whether a tensor is a leaf that requires gradients, or a view of one.

    This makes no new node: it may be called between the number of an op and the node with it.
    """
    base = t if t._base is None else t._base
    if base._rare is not None and base._rare.lifted:
        return base._requires_grad
    return base._requires_grad and (base._node is None or base._node.grad_fn is None)


def is_part_of_recorded(t: Tensor) -> bool:
    """Whether a tensor is a view of one that requires gradients."""
    base = t._base
    return base is not None and base._requires_grad


def spares(t: Tensor) -> Any:
    """The node whose result a tensor shows, or a part of it does, if it is one that copies what it
    saved of that before it is changed in place.
    """
    base = t if t._base is None else t._base
    node: Any = None if base._node is None else base._node.grad_fn
    while getattr(getattr(node, "plan", None), "puts", False):  # of a part that was changed last
        edge = node.edges[1]
        node = None if edge is None or isinstance(edge, Tensor) else edge.grad_fn
    return node if getattr(getattr(node, "plan", None), "spared", False) else None


def spare(t: Tensor) -> None:
    """Such a node gets copies. Of what has changed since it was saved there is none."""
    base, node = t if t._base is None else t._base, spares(t)
    if node is None or node.saved is FREED:
        return
    counter, entries = base.counter, list(node.saved)
    for index, entry in enumerate(entries):
        if type(entry) is tuple and entry[1] is counter and counter[0] == entry[2]:
            entries[index] = copy_of(entry[0], "K"), [0], 0, entry[3]
    node.saved = tuple(entries)


def _is_as_leaf(t: Tensor) -> bool:
    """Whether a tensor is a leaf, or one to the function of a transform."""
    return t.is_leaf or t._rare is not None and t._rare.lifted


def check_inplace(t: Tensor, op_name: str) -> None:
    """RuntimeError when autograd forbids changing `t` in place."""
    if writes_watched or state.before_write is not None:
        will_change(t)
    if (t._node is not None or t._rare is not None) and spares(t):
        spare(t)
    if not state.grad_enabled:
        if t._counter is UNCOUNTED and not state.inference:
            raise RuntimeError(INFERENCE_TEXT)
        return
    view = None if t._rare is None else t._rare.view
    if view is not None and (t._requires_grad or view.base._requires_grad):
        view.check(t, "is being modified inplace")
        if t._requires_grad and _is_as_leaf(view.base):
            raise RuntimeError(
                "a view of a leaf Variable that requires grad is being used in an in-place "
                f"operation. ({op_name}: use torch.no_grad(), or take the view of a copy)"
            )
    if t._requires_grad and _is_as_leaf(t):
        raise RuntimeError(
            "a leaf Variable that requires grad is being used in an in-place operation. "
            f"({op_name}: use torch.no_grad() to change it without recording, or a copy)"
        )
    if t._counter is UNCOUNTED:
        raise RuntimeError(INFERENCE_TEXT)


def changed(t: Tensor) -> None:
    """Counts a change of `t` that was not recorded. All views of its storage get a new node when
    they are next used, as after a recorded change, because their old history belongs to the old
    values. A view that cannot get one raises an error then.
    """
    counter: list[Any] = t.counter
    counter[0] += 1
    if len(counter) > 1:
        _moved(t, counter)


def will_be_changed(tensors: Iterable[Tensor]) -> list[Tensor]:
    """What `will_change` tells of tensors, and what `changed` counts, before they are changed.

    Those that may have mirrors are returned: `were_changed` wants them behind the change.
    """
    watched, shown = state.before_write is not None or writes_watched, []
    for t in tensors:
        if watched:
            will_change(t)
        if t._node is not None and spares(t):
            spare(t)
        counter = t._counter
        if counter is not None and len(counter) == 1:
            counter[0] += 1
        else:
            changed(t)
            shown.append(t)
    return shown


def were_changed(shown: Iterable[Tensor]) -> None:
    """Brings the mirrors of tensors that `will_be_changed` has named to what they show now."""
    for t in shown:
        mirrors = mirrors_of(t)
        if mirrors:
            reflect(t._array, mirrors)


def is_mirrored(t: Tensor) -> bool:
    """Whether there may be views of conjugates, or negatives, of the storage of a tensor."""
    return bool(mirrors_of(t))


def _moved(t: Tensor, counter: list[Any]) -> None:
    """Views of a storage get new nodes, and mirrors show what is there now."""
    mirrors = []
    for ref in counter[1:]:
        base = ref()
        if type(base) is Mirror:
            mirrors.append(base)
            continue
        for other, view in () if base is None else _views_of(base):
            if other._node is not None or (base._requires_grad and view.creation != NORMAL):
                view.forget(other)
    if mirrors:
        reflect(t._array, mirrors)


def detached(base: Tensor) -> None:
    """Gives a view that was changed last a history of its own: `base` is about to lose its."""
    for other, view in _views_of(base):
        if other._requires_grad and view.is_followed and view.version == base.counter[0]:
            edge_of(other)


def _views_of(base: Tensor) -> Iterator[tuple[Tensor, View]]:
    """The living views of a tensor."""
    for ref in (base._rare.views or ()) if base._rare is not None else ():
        other = ref()
        if other is not None and other.rare.view is not None:
            yield other, other.rare.view


def rebase(t: Tensor, node: Any) -> None:
    """Gives `t`, which was changed in place, a new history; its base and the other views, too.

    Without a node `t` is a view that has become constants.
    """
    view = None if t._rare is None else t._rare.view
    base = t if view is None else view.base
    latest = node if view is None else _copy_slices(base, node, view.steps, t._array)
    if base._node is not None and base._node.grad_fn.rare is not None:
        keep_retaining(base, latest)
    base._node, base._requires_grad = latest, True
    if view is not None:
        view.version, view.maker = base.counter[0], view.maker or ""
    for other, other_view in _views_of(base):
        other._requires_grad = True
        other_view.forget(other)
    if view is not None:
        view.retains_no_more()
    others: list[Any] = base.counter[1:]
    if len(others) > 1 or others and others[0]() is not base:
        _moved(t, base.counter)


def became(t: Tensor, node: Any) -> None:
    """Gives `t`, which has become a view of itself by the op of `node`, its history.

    This happens under no_grad, too, because the gradient must go through this op.
    """
    if node is not None and t._base is None:
        if t._node.grad_fn.rare is not None:
            keep_retaining(t, node)
        t._node = node
    changed(t)
    view = None if t._rare is None else t._rare.view
    if node is not None and view is not None and state.grad_enabled:
        view.version = t.counter[0]
        view.given(t, node)


def lead_back(base: Tensor, steps: tuple[Step, ...]) -> None:
    """Tells the views of `base`, which has another geometry now: `steps` lead to the old one."""
    for _, view in _views_of(base):
        view.steps = steps + view.steps


def hand_over(t: Tensor, before: Tensor, out: Tensor) -> None:
    """Makes `before`, which has the old geometry, the base of `t` and of its views, as it is of
    `out`. This is for a tensor that has lost some of its elements.
    """
    for _, view in _views_of(t):
        view.base = before
    before.rare.views, t.rare.views = [*(t.rare.views or ()), weakref.ref(t)], None
    known_by(t.counter, before)
    t.rare.view = None if out._rare is None else out._rare.view


def keep_retaining(t: Tensor, latest: Any) -> None:
    """Moves `retain_grad` of a tensor to its new node."""
    retained = t._node.grad_fn.rare.retained
    ref = retained.get(t._node.output_nr)
    if ref is not None and ref() is t:
        del retained[t._node.output_nr]
        latest.grad_fn.get_rare().retained[latest.output_nr] = ref


def _copy_slices(base: Tensor, node: Any, steps: tuple[Step, ...], array: Any) -> Any:
    """The node of `base` after a region of it became the output of `node`, or constants."""
    from ...backends.batched.arrays import levels_of
    from ...ops.table import TABLE
    from ...ops.views.regions import Region
    from ...ops.views.strided import layout_of
    from .op_node import new_node

    whole = base._array
    dtype = None if array.dtype == whole.dtype else whole.dtype
    levels = tuple(levels_of(whole)), tuple(levels_of(array))
    region = Region(steps, whole.shape, layout_of(whole), dtype, *levels)
    part = make(array, node is not None, node)
    before = make(whole, base._requires_grad, base._node)
    return new_node(TABLE["copy_slices"], (before, part), {"region": region})
