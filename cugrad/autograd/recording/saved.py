"""Saved tensors: how a node keeps what its formulas need, and gets it back."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ...backends import backend_of
from ...backends.batched.arrays import plain
from ...backends.lending.queues import hooked, usual_again
from ...backends.owners import root_of
from ...dtypes import of as dtype_of
from ...errors import InplaceError
from ...tensor import UNCOUNTED, Tensor, make
from ..forward.dual import Tangents, restore_tangents
from ..mode import anomaly, no_grad, state, unrecorded
from .node import FREED, FREED_TEXT, edge_of
from .views import linked

# An entry of `node.saved` is one of
#   a Tensor: an input, whose version at saving time stands in `node.versions`
#   a tuple (array, counter, version, output_nr): a result; not the Tensor, which holds the node.
#     The counter is None until it is first used: Tensor.counter and the node then share one
#   a Packed: what a pack hook made of either
#   anything else: a Python number, or None for an absent input

INFERENCE_TEXT = (
    "Inference tensors cannot be saved for backward. Please do not use Tensors created in "
    "inference mode in computation tracked by autograd. To work around this, you can make a clone "
    "to get a normal tensor and use it in autograd, or use `torch.no_grad()` instead of "
    "`torch.inference_mode()`."
)

CHANGE_A_COPY = (
    "change a copy (x = x.clone()) or use the out-of-place op. To find the operation that failed "
    "to compute its gradient enable anomaly detection, with "
    "torch.autograd.set_detect_anomaly(True, check_nan=False)."
)
CHANGED_THERE = (
    "the backtrace further above shows the operation that failed to compute its gradient. The "
    "variable in question was changed in there or anywhere later. Good luck!"
)


class Packed:
    """A saved tensor in the form that a pack hook gave it.

    `root` is a weak reference to the array that owned the memory of the tensor. `version` is the
    version of the tensor at that time, or None if changes in place are allowed.
    """

    __slots__ = (
        "packed", "unpack", "requires_grad", "edge", "output_nr", "backend", "shape", "dtype",
        "root", "counter", "version", "tangents", "original",
    )  # fmt: skip

    def __init__(self, hooks: tuple[Any, Any], tensor: Tensor, edge: Any, output_nr: int) -> None:
        pack, self.unpack = hooks
        self.requires_grad = output_nr >= 0 or tensor._requires_grad
        self.edge, self.output_nr = edge, output_nr
        follows = not self.requires_grad and getattr(pack, "__self__", None)
        self.original = weakref.ref(tensor) if getattr(follows, "is_placement", False) else None
        array = tensor._array
        self.backend, self.shape, self.dtype = backend_of(array), array.shape, array.dtype
        self.root = weakref.ref(root_of(plain(array)))
        self.counter = tensor.counter
        self.version: int | None = self.counter[0]
        rare = tensor._rare
        self.tangents = None if rare is None or not rare.tangents else Tangents(tensor)
        self.packed = pack(tensor)
        if self.counter[0] != self.version:
            raise RuntimeError(
                "A saved tensor pack hook is modifying its input in place. Tensors provided as "
                "input to pack hook cannot be modified by in-place operations as this can lead "
                "to unexpected side-effects. Please open an issue if you need to perform in-place "
                "operations on the input to a pack hook."
            )
        if state.before_write is not None:
            self.version = None

    def restore(self) -> Tensor:
        """What the unpack hook returns, which must be a Tensor."""
        switches = hooked.switches
        count = 0 if switches is None else len(switches)
        if state.grad_enabled:
            tensor = unrecorded(partial(self.unpack, self.packed))
        else:
            tensor = self.unpack(self.packed)
        if switches and len(switches) > count:
            usual_again(switches, count)
        if not isinstance(tensor, Tensor):
            raise TypeError(
                "Output of saved tensor unpack_hook expected to be a Tensor but got result of "
                f"type {type(tensor).__name__}"
            )
        return tensor

    def end(self) -> tuple[bool, Any]:
        """Whether what was saved, an input, requires gradients, and where these go.

        This is as it was when the tensor was saved, with one exception. Under cugrad's placements a
        tensor may begin to require gradients later, as it may without hooks.
        """
        tensor = None if self.original is None else self.original()
        if tensor is None or not tensor._requires_grad or self.counter[0] != self.version:
            return self.requires_grad, self.edge
        return True, edge_of(tensor)

    def fits(self, tensor: Tensor) -> bool:
        """Whether what was unpacked can stand for what was saved: its shape, dtype and device."""
        array = tensor._array
        same = array.shape == self.shape and array.dtype == self.dtype
        return same and backend_of(array) is self.backend

    def shows_change(self, tensor: Tensor) -> bool:
        """Whether what was unpacked is memory that was changed in place since it was saved.

        A hook that made a copy has kept the old values, and a change after that does no harm.
        """
        if self.version is None or self.counter[0] == self.version:
            return False
        root, packed = self.root(), self.packed
        shown = [tensor, packed] if isinstance(packed, Tensor) else [tensor]
        if root is None:  # a tensor that a placement moves gets other memory
            return any(t._counter is self.counter for t in shown)
        return any(_share_memory(root, plain(t._array)) for t in shown)


def _share_memory(root: Any, array: Any) -> bool:
    if type(array) is not type(root):
        return False
    return root_of(array) is root or bool(backend_of(array).xp.may_share_memory(root, array))


def pack(node: Any) -> None:
    """Sends everything that a node has saved through the innermost pair of hooks."""
    if not node.saved:
        return
    hooks, before = state.hooks[-1], (state.saving, state.saving_at)

    def run() -> None:
        entries = []
        for i in range(len(node.saved)):
            state.saving, state.saving_at = node, i
            entries.append(_packed(node, i, hooks))
        node.keep_packed(tuple(entries))

    try:  # not `kept`, which would undo what the hook of a checkpoint's second run switches on
        try:
            unrecorded(run)
        finally:
            state.saving, state.saving_at = before
    except BaseException:
        state.saving, state.saving_at = before
        raise


def _packed(node: Any, index: int, hooks: tuple[Any, Any]) -> Any:
    """Saved entry `index` after a pack hook; sparse tensors, numbers and None stay as they are."""
    entry = node.saved[index]
    if isinstance(entry, Tensor) and not entry.is_sparse:  # which has no array to pack
        edge = node.edge_of_entry(index) if entry._requires_grad else None
        return Packed(hooks, entry, edge, -1)
    if type(entry) is tuple:
        alias = make(entry[0])
        alias._counter = counter_at(node, index)
        return Packed(hooks, alias, None, entry[3])
    return entry


def is_result(entry: Any, output_nr: int) -> bool:
    """Whether a saved entry is the op's output of this number."""
    if type(entry) is tuple:
        return entry[3] == output_nr
    return type(entry) is Packed and entry.output_nr == output_nr


def counter_at(node: Any, index: int) -> list[int]:
    """The version counter of the saved result `index`, made when first asked for."""
    entry = node.saved[index]
    if type(entry) is Packed:
        return entry.counter
    if entry[1] is None:
        entry = (entry[0], [0], *entry[2:])
        node.saved = (*node.saved[:index], entry, *node.saved[index + 1 :])
    return entry[1]


def keep_result(tensor: Tensor, output_nr: int) -> Any:
    """The entry for a result. It holds no Tensor, which would refer to the node: a cycle."""
    counter = tensor.counter
    return tensor._array, counter, counter[0], output_nr


def versions_of(saved: tuple[Any, ...]) -> tuple[int, ...] | None:
    """The versions of the saved inputs, None when all are 0; RuntimeError if one has none."""
    versions = []
    for entry in saved:
        counter = entry._counter if isinstance(entry, Tensor) else None
        if counter is UNCOUNTED:
            raise RuntimeError(INFERENCE_TEXT)
        versions.append(0 if counter is None else counter[0])
    return tuple(versions) if any(versions) else None


def attached(node: Any, index: int, entry: Tensor) -> Tensor:
    """The saved input `index`, with the history it had if `detach_` has removed that since."""
    edge = None if node.saved is FREED else node.edge_of_entry(index)
    if edge is None or isinstance(edge, Tensor):
        return entry
    result = make(entry._array, True, edge)
    result._counter = entry.counter
    return result


def check_version(node: Any, index: int) -> None:
    """InplaceError when saved entry `index`, which no hook has packed, was changed in place."""
    entry = node.saved[index]
    if isinstance(entry, Tensor):
        version = 0 if entry._counter is None else entry._counter[0]
        expected = 0 if node.versions is None else node.versions[index]
        if version == expected or not _is_needed(node, index):
            return
        shape, (maker, output) = entry.shape, _maker(entry)
    else:
        version, expected = 0 if entry[1] is None else entry[1][0], entry[2]
        if version == expected:
            return
        shape, maker, output = entry[0].shape, node, entry[3]
    if node.saved is FREED:  # another thread has freed it, and its versions with it
        raise RuntimeError(FREED_TEXT)
    raise changed(node, index, shape, maker, output, version, expected)


def _maker(entry: Tensor) -> tuple[Any, int]:
    try:
        return entry.grad_fn, entry.output_nr
    except RuntimeError:  # of a view that has become useless, by the same change maybe
        return None, 0


def _is_needed(node: Any, index: int) -> bool:
    """Whether a gradient that goes somewhere needs the saved input `index`.

    Not where it was saved for another operand, and that is a view without a history.
    """
    op = getattr(node.plan, "op", None)
    if op is None or len(op.inputs) == 1 and not op.variadic:
        return True
    mask = sum(1 << i for i, edge in enumerate(node.edges) if edge is not None)
    if op.variadic:
        return mask != 0
    return node.plan.saves[index] in op.saves(mask)


def changed(
    node: Any, index: int, shape: Any, maker: Any, output: int, version: int, expected: Any
) -> InplaceError:
    """The error for a changed saved tensor: output `output` of `maker`, if that is known."""
    origin = "" if maker is None else f", which is output {output} of {maker.short_name()},"
    return InplaceError(
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: the tensor of shape {list(shape)} that {node.name()} saved as "
        f"{node.plan.saved_name(index)!r}{origin} is at version {version}; expected version "
        f"{expected} instead. Hint: {CHANGED_THERE if anomaly.enabled else CHANGE_A_COPY}"
    )


def unpacked(node: Any, index: int, entry: Packed) -> Tensor:
    """What the unpack hook makes of saved entry `index`: what was saved, and as it was.

    RuntimeError if it is of another shape, dtype or device; InplaceError if it is memory that was
    changed in place meanwhile.
    """
    tensor = entry.restore()
    if entry.shows_change(tensor) and (entry.output_nr >= 0 or _is_needed(node, index)):
        maker = node if entry.output_nr >= 0 else getattr(entry.edge, "grad_fn", None)
        output = max(entry.output_nr, 0)
        raise changed(node, index, entry.shape, maker, output, entry.counter[0], entry.version)
    if not entry.fits(tensor) and not getattr(entry.packed, "may_differ", False):
        raise RuntimeError(
            f"{node.name()}: the unpack hook of its saved {node.plan.saved_name(index)!r} returned "
            f"{spelled(tensor._array)}, want {spelled(entry)} as the pack hook was given: "
            "unpack must undo what pack did"
        )
    return tensor


def spelled(array: Any) -> str:
    """Shape, dtype and device of an array, or of a Packed."""
    backend = array.backend if type(array) is Packed else backend_of(array)
    where = f"{backend.device_type}{' inside vmap' * (not backend.readable)}"
    return f"a tensor of shape {list(array.shape)} and dtype {dtype_of(array.dtype)} on {where}"


def arrays(node: Any) -> tuple[Any, ...]:
    """Everything that a node saved, as arrays, each checked to be what it was."""
    values = []
    for index, entry in enumerate(node.saved):
        if isinstance(entry, Tensor):
            if entry._counter is not None:
                check_version(node, index)
            values.append(entry._array)
        elif type(entry) is tuple:
            check_version(node, index)
            values.append(entry[0])
        elif type(entry) is Packed:
            values.append(unpacked(node, index, entry)._array)
        else:
            values.append(entry)
    return tuple(values)


def tensor_at(node: Any, index: int) -> Any:
    """Saved entry `index` as a Tensor that is connected to the graph as the original was."""
    entry = node.saved[index]
    if isinstance(entry, Tensor):
        check_version(node, index)
        return attached(node, index, entry) if entry._node is None else entry
    if type(entry) is tuple:
        check_version(node, index)
        array, _, _, output_nr = entry
        edge = node.output(output_nr)
        result = make(array, edge is not None, edge)
        result._counter = counter_at(node, index)
        if state.levels:
            restore_tangents(result, node, output_nr)
        return result
    if type(entry) is Packed:
        restored = unpacked(node, index, entry)
        if entry.output_nr >= 0:
            edge = node.output(entry.output_nr)
            requires_grad = edge is not None
        else:
            requires_grad, edge = entry.end()
            if entry.tangents is None and not requires_grad and not restored._requires_grad:
                return restored
        result = linked(restored._array, requires_grad, edge)
        result._counter = restored.counter
        if state.levels and entry.output_nr >= 0:
            restore_tangents(result, node, entry.output_nr)
        elif entry.tangents is not None:
            entry.tangents.give(result)
        return result
    return entry


def tensors(node: Any) -> tuple[Any, ...]:
    """Everything that a node saved, as Tensors of the graph."""
    return tuple([tensor_at(node, index) for index, _ in enumerate(node.saved)])


def read(node: Any, name: str) -> Any:
    """What `grad_fn._saved_<name>` answers: a Tensor, a tuple of them, or a parameter of the op.

    None for a tensor that only the gradients of other inputs would need.
    """
    indices = _indices(node, name)
    if indices is None:
        params, op = node.params, node.plan.op
        if name in op.saves(-1):
            return None
        of = name.removesuffix("_sym_sizes")
        if of != name and of in op.inputs and node.meta is not None:
            return node.meta[0][op.inputs.index(of)]
        if name not in params:
            raise AttributeError(
                f"{node.name()} saved no {name!r}; it has: {', '.join(names(node)) or 'nothing'}"
            )
        if op.held and node.is_freed:
            raise RuntimeError(FREED_TEXT)
        return tuple(map(_index, params[name])) if op.held and name == "indices" else params[name]
    if node.is_freed:
        raise RuntimeError(FREED_TEXT)
    values = tuple(tensor_at(node, i) for i in indices)
    return values if node.plan.op.variadic else values[0]


def _index(part: Any) -> Any:
    """A part of an index as PyTorch saves it: a Tensor, or None for all of a dim."""
    if part == slice(None) if isinstance(part, slice) else part is None:
        return None
    return make(part) if hasattr(part, "dtype") and hasattr(part, "shape") else part


def read_raw(node: Any, name: str) -> Any:
    """What `grad_fn._raw_saved_<name>` answers: an object with `register_hooks`."""
    indices = _indices(node, name)
    if indices is None and name in node.plan.op.saves(-1):
        return SavedTensor(node, None)
    if indices is None:
        raise AttributeError(f"{node.name()} saved no tensor {name!r}")
    if node.is_freed and node.plan.op.variadic:
        raise RuntimeError(FREED_TEXT)
    saved = tuple(SavedTensor(node, i) for i in indices)
    return saved if node.plan.op.variadic else saved[0]


def names(node: Any) -> Iterator[str]:
    """The names that `_saved_` answers to."""
    yield from node.plan.saves
    yield from node.params


def _indices(node: Any, name: str) -> range | None:
    saves = node.plan.saves
    if name not in saves:
        return None
    return range(len(node.saved)) if node.plan.op.variadic else _at(saves.index(name))


def _at(index: int) -> range:
    return range(index, index + 1)


class SavedTensor:
    """The handle `_raw_saved_<name>` of one saved tensor, or of one that was not wanted."""

    __slots__ = ("_node", "_index")

    def __init__(self, node: Any = None, index: int | None = 0) -> None:
        if node is None:
            raise RuntimeError("Trying to create a SavedTensor object from Python is forbidden.")
        self._node, self._index = node, index

    def _entry(self) -> Any:
        """What the node keeps: None where nothing is saved, and once it is freed."""
        is_empty = self._index is None or self._node.is_freed
        return None if is_empty else self._node.saved[self._index]

    @property
    def data(self) -> Any:
        """What the pack hook made of the tensor, or the tensor; None once it is freed."""
        entry = self._entry()
        if type(entry) is Packed:
            return entry.packed
        if entry is None or self._index is None:
            return None
        return tensor_at(self._node, self._index)

    @property
    def unpack_hook(self) -> Callable[[Any], Tensor] | None:
        """The hook that will be called with `data`, if there is one."""
        entry = self._entry()
        return entry.unpack if type(entry) is Packed else None

    def register_hooks(
        self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]
    ) -> None:
        """Packs this saved tensor now; it is unpacked when backward, or the user, needs it.

        RuntimeError when it was freed, or has hooks already.
        """
        node, index = self._node, self._index
        for hook in (pack_hook, unpack_hook):
            if not callable(hook):
                raise TypeError(f"register_hooks: want callables, got {type(hook).__name__}")
        if node.is_freed:
            raise RuntimeError(
                "Calling register_hooks on a saved tensor after it has been freed. Saved "
                "intermediate values of the graph are freed when you call .backward() or "
                "autograd.grad(). Specify retain_graph=True if you need to backward through the "
                "graph a second time or if you need to access saved variables after calling "
                "backward."
            )
        entry = self._entry()
        if type(entry) is Packed:
            raise RuntimeError(
                "Calling register_hooks on a saved tensor whose hooks have already been set. "
                "Hint: only one pair of hooks is allowed at a time."
            )
        if index is None or not isinstance(entry, (Tensor, tuple)):
            raise RuntimeError(
                "Calling register_hooks on a saved tensor with value None is forbidden"
            )
        check_version(node, index)
        entries = list(node.saved)
        with no_grad():
            entries[index] = _packed(node, index, (pack_hook, unpack_hook))
        node.keep_packed(tuple(entries))
