"""Follows the storages that a step makes: which op made them, on what line, and what holds them."""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from ...autograd.recording.saved import Packed
from ...memory.geometry import root_of
from ...memory.offloading.span import SavedView
from ...runtime.frames import users_frames
from ...tensor import Tensor

Category = Literal["parameter", "input", "gradient", "activation", "saved"]
CATEGORIES: tuple[Category, ...] = ("parameter", "input", "gradient", "activation", "saved")


class Site(NamedTuple):
    """An op, and the line of the user's program that called it."""

    op: str
    seq: int
    phase: str
    line: str


class TrackedStorage:
    """A block of memory, while a sample counts it: from `born` on, until before `died`."""

    __slots__ = ("site", "nbytes", "kind", "born", "died", "holders")

    def __init__(self, site: Site, nbytes: int, kind: Category, born: int) -> None:
        self.site, self.nbytes, self.kind = site, nbytes, kind
        self.born, self.died = born, sys.maxsize
        self.holders = 0  # nodes that keep it for backward

    @property
    def category(self) -> Category:
        """What it is for now: a result that a node keeps is "saved"."""
        return "saved" if self.holders and self.kind == "activation" else self.kind


class _Ref(weakref.ref[Any]):
    """A weak reference with the storage that it is for."""

    __slots__ = ("about", "key")
    about: Any
    key: int


class StorageTracker:
    """All storages of a timeline. Numbers of samples are given by `now`.

    `history` has a line for each change: (sample, storage, category before, category after), where
    None means that it did not exist.
    """

    def __init__(self) -> None:
        self.now = 0
        self.all: list[TrackedStorage] = []
        self.live: dict[Category, int] = dict.fromkeys(CATEGORIES, 0)
        self.history: list[tuple[int, TrackedStorage, Category | None, Category | None]] = []
        self.older: list[tuple[int, TrackedStorage]] = []  # there on entry; the sample that met it
        self.older_bytes = 0
        self._known: dict[int, _Ref] = {}  # by the id of the array that owns the memory
        self._nodes: dict[int, _Ref] = {}  # by the id of a node: the storages that it keeps
        self._dead: deque[_Ref] = deque()  # left by callbacks, which take no lock
        self._ended: list[tuple[int, int]] = []  # nodes that have run, and when

    def of(self, array: Any) -> TrackedStorage | None:
        """The storage of an array, if it is followed."""
        ref = self._known.get(id(root_of(array)))
        return ref.about if ref is not None and ref() is not None else None

    def follow(self, array: Any, site: Site, kind: Category) -> TrackedStorage:
        """The storage of an array; a new one if the array is new."""
        tracked = self.of(array)
        if tracked is not None:
            if kind == "gradient" and tracked.kind == "activation":
                self._change(tracked, kind, 0)
            return tracked
        root = root_of(array)
        storage = TrackedStorage(site, int(root.nbytes), kind, self.now)
        try:
            reference = _Ref(root, self._dead.append)
        except TypeError:  # arrays of a vmap
            return storage
        reference.about, reference.key = storage, id(root)
        self._known[reference.key] = reference
        self.all.append(storage)
        self.live[kind] += storage.nbytes
        self.history.append((self.now, storage, None, kind))
        return storage

    def was_there(self, storage: TrackedStorage) -> None:
        """A storage that has just been met is as old as the timeline."""
        when, _, before, after = self.history.pop()
        assert before is None and storage.born == when
        self.older.append((when, storage))
        self.older_bytes += storage.nbytes
        storage.born = 0
        self.history.append((0, storage, before, after))

    def keep(self, node: Any, site: Site, input_ids: set[int]) -> None:
        """Follows what a node has saved, until the node releases it. `input_ids` has those of the
        storages of the op's inputs, which the op has not made.
        """
        held = {}
        for array in _saved_by(node):
            if self.of(array) is not None or id(root_of(array)) not in input_ids:
                storage = self.follow(array, site, "activation")
                held[id(storage)] = storage
        if not held:
            return
        reference = _Ref(node, self._dead.append)
        reference.about, reference.key = list(held.values()), id(node)
        self._nodes[reference.key] = reference
        for storage in held.values():
            self._change(storage, storage.kind, 1)

    def ended(self, node: Any) -> None:
        """A node has run; what it has let go of is seen at the next `settle`."""
        if id(node) in self._nodes:
            self._ended.append((id(node), self.now))

    def settle(self) -> int:
        """Notes what nodes have released and what was freed. Returns the bytes that were freed."""
        gone = 0
        ended, self._ended = self._ended, []
        for key, when in ended:
            reference = self._nodes.get(key)
            node = None if reference is None else reference()
            if reference is not None and (node is None or node.is_freed):
                self._let_go(reference)
            elif self.now <= when + 1:  # it lets go when its observers have seen its end
                self._ended.append((key, when))
        while self._dead:
            reference = self._dead.popleft()
            if type(reference.about) is list:
                self._let_go(reference)
                continue
            if self._known.get(reference.key) is reference:
                del self._known[reference.key]
            storage: TrackedStorage = reference.about
            before, storage.died = storage.category, self.now
            self.live[before] -= storage.nbytes
            self.history.append((self.now, storage, before, None))
            gone += storage.nbytes
        return gone

    def _let_go(self, reference: _Ref) -> None:
        if self._nodes.get(reference.key) is reference:
            del self._nodes[reference.key]
            for storage in reference.about:
                self._change(storage, storage.kind, -1)

    def _change(self, storage: TrackedStorage, kind: Category, holders: int) -> None:
        before = storage.category
        storage.kind, storage.holders = kind, storage.holders + holders
        after = storage.category
        if before != after and storage.died > self.now:
            self.live[before] -= storage.nbytes
            self.live[after] += storage.nbytes
            self.history.append((self.now, storage, before, after))

    def alive_at(self, sample: int) -> list[tuple[TrackedStorage, Category]]:
        """The storages that this sample counts, with what they were for then."""
        by_id: dict[int, tuple[TrackedStorage, Category]] = {}
        for when, storage, _, after in self.history:
            if when > sample:
                continue  # no break: storages that existed on entry come later
            if after is None:
                by_id.pop(id(storage), None)
            else:
                by_id[id(storage)] = storage, after
        return list(by_id.values())


def _saved_by(node: Any) -> Iterator[Any]:
    """The arrays that a node keeps on the device, also those that an offload has yet to move."""
    for entry in getattr(node, "saved", ()):
        if isinstance(entry, Packed):
            entry = entry.packed
        if isinstance(entry, SavedView):
            root = entry.span.root()
            if root is not None:
                yield root
        elif isinstance(entry, Tensor):
            yield from (part._array for part in parts_of(entry))
        elif type(entry) is tuple and entry and hasattr(entry[0], "base"):
            yield entry[0]
        elif isinstance(entry, (list, tuple)):  # of a program's own hook
            yield from (
                part._array for e in entry if isinstance(e, Tensor) for part in parts_of(e)
            )  # fmt: skip


def parts_of(tensor: Any) -> tuple[Tensor, ...]:
    """The tensors that have the memory of one: itself, but for a sparse tensor."""
    return tensor.parts() if tensor.is_sparse else (tensor,)


def line_of_caller() -> str:
    """The line of the user's program that is running: "train.py:12 in step"; "" where none is."""
    frame = next(users_frames(), None)
    if frame is None:
        return ""
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
