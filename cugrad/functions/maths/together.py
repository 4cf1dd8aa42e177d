"""Functions of elements on lists of tensors: one CUDA launch for as many as it has room for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...autograd.mode import INFERRING, UNUSUAL, state, unseen
from ...autograd.recording.views import is_mirrored, will_be_changed
from ...backends import backend_of
from ...backends.copies import is_dense
from ...backends.several import by_device
from ...backends.traced.arrays import Trace, Traced, Untraceable, reached_from
from ...backends.traced.lists import ListGraph
from ...backends.wanted import wanted
from ...dtypes import is_floating
from ...runtime.dispatching import here, overrides
from ...tensor import Tensor, make
from ..creation.factories import zeros_like

__all__ = [
    "are_plain", "changed_together", "computed_together", "copied_together", "left_by",
    "zero_gradients", "zeroed_together",
]  # fmt: skip

MOST = 4096  # functions with their numbers that are kept; then it begins anew

_kernels: dict[Any, Any] = {}  # by device, and what they compute
_traced: dict[Any, Any] = {}  # by function, dtypes and numbers

Left = list[int]  # the places of tensors that no kernel took


class Elements:
    """A function of an element of each list, and the numbers that its kernel is told."""

    def __init__(
        self, name: str, function: Callable[..., Any], dtypes: tuple[np.dtype[Any], ...],
        numbers: Sequence[Any], target: np.dtype[Any] | None, by: bool,
    ) -> None:  # fmt: skip
        trace = Trace((2,))  # of tensors of one shape, whichever
        inputs = [make(trace.input(k, dtype)) for k, dtype in enumerate(dtypes)]
        if by:  # a number of this dtype that is on the device
            inputs.append(make(trace.number("by", dtypes[0])))
        result = function(*inputs, *numbers)
        if not isinstance(result, Tensor) or type(result._array) is not Traced:
            raise Untraceable("its result is no element")
        if not is_floating(result._array.dtype):
            raise Untraceable("its result is no floating-point number")
        value = result._array if target is None else trace.cast(result._array, target)
        self.dtype, self.at = value.dtype, 0 if target is not None else len(dtypes)
        nodes = reached_from([value])
        constants = [x for x in nodes if x.function == "number"]
        if by and [x.value for x in constants] != ["by"]:
            raise Untraceable("it computes with numbers of two kinds")
        self.told = () if by else tuple([float(x.value) for x in constants])
        for k, x in enumerate(constants):  # another value is no other kernel
            x.value = k
        self.graph = ListGraph(f"{name.split()[0]}_lists", {self.at: value}, tuple(constants))
        place = {node.name: k for k, node in enumerate(nodes)}
        self.form = self.graph.name, dtypes, self.at, tuple([
            (x.function, x.dtype, x.meeting, x.value, *[place[y.name] for y in x.operands])
            for x in nodes
        ])  # fmt: skip

    def kernels(self, backend: Any) -> Any:
        """Those of all functions of this form."""
        return _kept(backend, self.form, lambda dtypes, graph=self.graph: graph)


def _kept(backend: Any, form: Any, graph_of: Any) -> Any:
    kernels = _kernels.get((id(backend), form))
    if kernels is None:
        kernels = _kernels[id(backend), form] = backend.list_kernels(graph_of)
    return kernels


def _elements(
    name: str, function: Callable[..., Any], dtypes: tuple[np.dtype[Any], ...],
    numbers: tuple[Any, ...], target: np.dtype[Any] | None, by: bool,
) -> Elements | None:  # fmt: skip
    key = name, dtypes, tuple([(type(x), repr(x)) for x in numbers]), target, by
    if key not in _traced:
        if len(_traced) >= MOST:
            _traced.clear()
        try:
            _traced[key] = unseen(lambda: Elements(name, function, dtypes, numbers, target, by))
        except Exception:  # it comes again when the function is called as it is
            _traced[key] = None
    elements: Elements | None = _traced[key]
    return elements


def _backend_of(lists: Sequence[Sequence[Tensor]]) -> Any:
    """The backend whose kernels may do what ops would do with these tensors, one by one; None
    where something else is to be done, too: what is recorded, watched, or done by their classes.
    """
    if not lists[0] or not wanted.fused or state.unobserved in (UNUSUAL, INFERRING) or here.modes:
        return None
    if state.autocast is not None:
        return None
    first = lists[0][0]
    if not isinstance(first, Tensor) or first.is_sparse or first._may_be_away:
        return None
    backend = backend_of(first._array)
    return backend if backend.makes_kernels else None


def _may_take(tensors: Sequence[Any], kind: type, backend: Any, index: int | None) -> bool:
    """Whether a kernel on a device can take the tensors of a place together."""
    first = tensors[0]
    for x in tensors:
        if not _is_plain(x, kind, backend, index):
            return False
        if x._array.shape != first._array.shape or not is_floating(x._array.dtype):
            return False
    return is_dense(first._array)


def _is_plain(x: Any, kind: type, backend: Any, index: int | None) -> bool:
    """Whether an operand is a tensor whose array on a device is all that matters."""
    if not isinstance(x, Tensor) or x.is_sparse or x._may_be_away or type(x._array) is not kind:
        return False
    if (x._requires_grad and state.grad_enabled) or overrides(type(x)) or is_mirrored(x):
        return False
    return bool(backend.device_index(x._array) == index)


def are_plain(tensors: Sequence[Any]) -> bool:
    """Whether a kernel may do what ops would do with these tensors: see `_backend_of`."""
    backend = _backend_of([tensors])
    if backend is None:
        return False
    array = tensors[0]._array
    kind, index = type(array), backend.device_index(array)
    return all(_is_plain(x, kind, backend, index) for x in tensors)


def _are_apart(lists: Sequence[Sequence[Tensor]], places: Sequence[int]) -> bool:
    """Whether no tensor that is read shares memory with one that is changed, but one at its own
    place that begins where it does: those are read before they are written.
    """
    written = sorted((x._array.data.ptr, x._array.data.ptr + x._array.nbytes, at)
                     for at in places for x in (lists[0][at],) if x._array.size)  # fmt: skip
    starts = [begin for begin, _, _ in written]
    for column in lists[1:]:
        for at in places:
            array = column[at]._array
            begin, k = array.data.ptr, bisect_left(starts, array.data.ptr + array.nbytes)
            while k and array.size:  # those that are changed do not overlap one another
                k -= 1
                first, behind, place = written[k]
                if behind <= begin:
                    break
                if place != at or first != begin:
                    return False
    return True


def changed_together(
    name: str, function: Callable[..., Tensor], lists: Sequence[Sequence[Tensor]],
    numbers: Sequence[tuple[Any, ...]], by: Tensor | None = None,
) -> Left:  # fmt: skip
    """Gives each tensor of the first list the values of `function(*tensors, *numbers)`, which is
    one of elements, of those that are at its place, `numbers` among them. Numbers that differ from
    place to place are no more launches. `by`, a tensor of one element, is one more for all.
    """
    return _run(name, function, lists, numbers, None, by)


def computed_together(
    name: str, function: Callable[..., Tensor], lists: Sequence[Sequence[Tensor]],
    numbers: Sequence[tuple[Any, ...]], by: Tensor | None = None,
) -> tuple[list[Any], Left]:  # fmt: skip
    """The same as new tensors, None at the places that are left."""
    results: list[Any] = [None] * len(lists[0])
    return results, _run(name, function, lists, numbers, results, by)


def _run(
    name: str, function: Callable[..., Tensor], lists: Sequence[Sequence[Tensor]],
    numbers: Sequence[tuple[Any, ...]], results: list[Any] | None,
    by: Tensor | None,
) -> Left:  # fmt: skip
    """As above, in place or to `results`; the places that are left."""
    changes = results is None
    every = list(range(len(lists[0])))
    backend = _backend_of(lists)
    if backend is None:
        return every
    first = lists[0][0]._array
    kind, index = type(first), backend.device_index(first)
    constant = None
    if by is not None:
        constant = by._array
        if not _is_plain(by, kind, backend, index) or by.numel() != 1:
            return every
    places: dict[Any, list[int]] = {}  # by kernels
    of_place: dict[int, Elements] = {}
    left: Left = []
    for at, tensors in enumerate(zip(*lists)):
        elements = None
        if _may_take(tensors, kind, backend, index):
            dtypes = tuple([x._array.dtype for x in tensors])
            if constant is None or {*dtypes} == {constant.dtype}:
                target = dtypes[0] if changes else None
                elements = _elements(name, function, dtypes, numbers[at], target, by is not None)
        if elements is None:
            left.append(at)
            continue
        of_place[at] = elements
        places.setdefault(elements.kernels(backend), []).append(at)
    if changes and len(lists) > 1 and not _are_apart(lists, sorted(of_place)):
        return every
    with backend.use_device(index):
        for kernels, some in places.items():
            columns = [[column[at]._array for at in some] for column in lists]
            if not changes:
                empty = backend.xp.empty_like
                columns.append([empty(x, dtype=of_place[at].dtype)
                                for at, x in zip(some, columns[0])])  # fmt: skip
            groups, untaken = kernels.sorted_out(columns, [0] if changes else [])
            apart = set(untaken)
            taken = [at for k, at in enumerate(some) if k not in apart]
            left += [some[k] for k in untaken]
            if results is None:
                will_be_changed([lists[0][at] for at in taken])
            else:
                for k, at in enumerate(some):
                    results[at] = None if k in apart else make(columns[-1][k])
            told = [of_place[at].told for at in some]
            kernels.run(groups, told if constant is None else constant.reshape(1, 1))
    return sorted(left)


def copied_together(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> Left:
    """Copies each tensor of the second list into that of the first, cast to its dtype."""
    return changed_together(
        "copy", lambda target, source: source, [targets, sources], [()] * len(targets)
    )


def zeroed_together(tensors: Sequence[Tensor]) -> Left:
    """Fills tensors with zeros, complex ones, too."""
    every = list(range(len(tensors)))
    backend = _backend_of([tensors])
    if backend is None:
        return every

    def graph(dtypes: tuple[np.dtype[Any], ...]) -> ListGraph:
        return ListGraph("zero_lists", {0: Trace().number(0.0, dtypes[0])}, ())

    array = tensors[0]._array
    kind, index = type(array), backend.device_index(array)
    some = [at for at, x in enumerate(tensors) if _is_plain(x, kind, backend, index)]
    kernels = _kept(backend, "zero", graph)
    with backend.use_device(index):
        groups, untaken = kernels.sorted_out([[tensors[at]._array for at in some]], [0])
        apart = {some[k] for k in untaken}
        taken = [at for at in some if at not in apart]
        will_be_changed([tensors[at] for at in taken])
        kernels.run(groups, [()] * len(some))
    return sorted(set(every) - set(taken))


def zero_gradients(params: Iterable[Any]) -> None:
    """Fills the gradients of parameters with zeros, and takes from them whatever they remember. One
    that a step within backward has used up is made anew.
    """
    grads = []
    for param in params:
        grad = param.grad
        if grad is not None and getattr(grad, "_is_spent", False):
            param.grad = zeros_like(param)
        elif grad is not None:
            grads.append(grad)
    for grad in grads:
        if grad.grad_fn is not None:  # it was made under create_graph
            grad.detach_()
        else:
            grad.requires_grad_(False)
    for grad in left_by(zeroed_together, grads):
        grad.zero_()


def left_by(take: Callable[[list[Any]], Left], tensors: Sequence[Any]) -> Iterator[Any]:
    """The tensors, of whatever devices, that `take` leaves of those of each device; and such as are
    elsewhere, or sparse.
    """
    here = []
    for x in tensors:
        if x.is_sparse or x._may_be_away:
            yield x
        else:
            here.append(x)
    for some in by_device(here):
        yield from [some[at] for at in take(some)]
