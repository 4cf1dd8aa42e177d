"""Mirrors: how a conjugate, or a negative, is a view, though no array library has such views."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from itertools import chain, count
from typing import Any, NamedTuple

from ...backends import backend_of
from ...backends.batched.arrays import plain
from ...ops.views.mirrored import AS_THEY_LIE, Bits, bits_behind
from ...ops.views.strided import address_of, storage_of
from ...tensor import Tensor

__all__ = [
    "Mirror", "bits", "lying", "mirrors_of", "reflect", "shows_twice", "turn", "write",
    "written_with",
]  # fmt: skip


class Mirror:
    """Memory of its own, the `face`, that shows that of another array with its numbers turned.

    PyTorch has a bit for that, which each of its ops looks at. Here what shows is computed with the
    view, and again with each change of either array that a version counter tells of: so ops read
    it as they read all arrays, and one who has no such view pays nothing.
    """

    __slots__ = ("op", "memory", "face", "behind", "number", "__weakref__")

    def __init__(self, op: Any, memory: Any, face: Any, behind: Mirror | None) -> None:
        self.op, self.memory, self.face = op, memory, face  # the op undoes itself
        self.behind = behind  # the mirror whose face, or a part of it, `memory` is
        self.number = next(_numbers)

    def show(self) -> None:
        """Makes the face show what the memory is by now."""
        self._write(self.face, self.memory)

    def keep(self) -> None:
        """Makes the memory what the face shows by now."""
        self._write(self.memory, self.face)

    def _write(self, home: Any, source: Any) -> None:
        backend = backend_of(home)
        write(backend, home, backend.wrap(self.op.forward(backend.xp, source)))

    def lying(self, part: Any) -> Any:
        """What lies behind a part of the face, in the memory that this shows."""
        memory, face, part = plain(self.memory), plain(self.face), plain(part)
        offset = address_of(part) - address_of(face)
        same = part.shape == face.shape and part.strides == face.strides
        if not offset and same and part.dtype == face.dtype:
            return memory
        flat, start = storage_of(memory)
        steps = zip(face.shape, face.strides, memory.strides, strict=True)
        if flat.ndim != 1 or any(n > 1 and a != b for n, a, b in steps):
            raise RuntimeError(
                "a part of a view of conjugates, or of negatives, of few elements in much memory "
                "has no place in that; call resolve_conj() or resolve_neg() first"
            )
        start = start * memory.itemsize + offset
        flat = flat.view(part.dtype)[start // part.itemsize :]
        return backend_of(flat).xp.lib.stride_tricks.as_strided(flat, part.shape, part.strides)

    def all_behind(self) -> Iterator[Mirror]:
        """This one, and those that it is a mirror of."""
        mirror: Mirror | None = self
        while mirror is not None:
            yield mirror
            mirror = mirror.behind


_numbers = count()


class Turned(NamedTuple):
    """What a view of conjugates or negatives knows: the mirror that it is in, and its bits."""

    mirror: Mirror
    bits: Bits

    def shows(self, array: Any) -> bool:
        """Whether an array is a part of the face: its tensor may have got other memory since."""
        return not array.size or _overlap(array, self.mirror.face)

    def lying(self, array: Any) -> Any:
        """What lies in memory for an array of a tensor with such a view: of a part of the face.
        RuntimeError for a part of one that does not lie as that.
        """
        if self.shows(array):
            for mirror in self.mirror.all_behind():
                array = mirror.lying(array)
        return array


def _turned(t: Tensor) -> Turned | None:
    """What a view of conjugates or negatives knows; None for other tensors."""
    turned = None if t._rare is None else t._rare.turned
    return turned if turned is not None and turned.shows(t._array) else None


def lying(t: Tensor) -> Any:
    """The array of a tensor, or what that shows the conjugates or negatives of."""
    turned = None if t._rare is None else t._rare.turned
    return t._array if turned is None else turned.lying(t._array)


def turn(view: Tensor, parent: Tensor, op: Any, params: dict[str, Any]) -> None:
    """Tells a view, which `op` has made of `parent`, how its numbers are turned."""
    before = _turned(parent)
    mirror = None if before is None else before.mirror
    if op.mirrors:
        mirror = Mirror(op, parent._array, view._array, mirror)
        counter: list[Any] = parent.counter
        counter.append(weakref.ref(mirror, counter.remove))
    if mirror is None:
        return
    bits = bits_behind(AS_THEY_LIE if before is None else before.bits, op, params)
    view.rare.turned = Turned(mirror, bits)


def mirrors_of(t: Tensor) -> list[Mirror]:
    """The mirrors that the version counter of a tensor knows."""
    counter: Any = t._counter
    return [] if counter is None else [x for ref in counter[1:] if type(x := ref()) is Mirror]


def bits(t: Tensor) -> Bits:
    """How the numbers of a tensor are turned."""
    turned = _turned(t)
    return AS_THEY_LIE if turned is None else turned.bits


def reflect(array: Any, mirrors: list[Mirror]) -> None:
    """An array, a part of the memory that `mirrors` show, or of the face of one, has changed: so
    does what it is a view of, and what the others show.
    """
    within, others = beside(array, mirrors)
    for mirror in within:
        mirror.keep()
    for mirror in others:
        mirror.show()


def beside(array: Any, mirrors: list[Mirror]) -> tuple[list[Mirror], list[Mirror]]:
    """The mirrors that an array is a part of, and then the others that show what is written with
    it, each behind those that it is a mirror of.
    """
    within, others = list[Mirror](), list[Mirror]()
    for mirror in mirrors:
        if _overlap(array, mirror.face):
            within = list(mirror.all_behind())
    written = [array, *[mirror.memory for mirror in within]]
    every = {mirror.number: mirror for each in mirrors for mirror in each.all_behind()}
    for number in sorted(every):
        mirror = every[number]  # perhaps of another: all inference tensors have one counter
        if mirror not in within and any(_overlap(part, mirror.memory) for part in written):
            others.append(mirror)
            written.append(mirror.face)
    return within, others


def written_with(t: Tensor) -> list[Any]:
    """The arrays that a change of a tensor is written to: its own, and those of its mirrors."""
    mirrors, arrays = mirrors_of(t), [t._array]
    for mirror in chain(*beside(t._array, mirrors)) if mirrors else ():
        arrays += [mirror.memory, mirror.face]
    return arrays


def _overlap(a: Any, b: Any) -> bool:
    """Whether two arrays may share memory; within a vmap, of all examples."""
    a, b = plain(a), plain(b)
    backend = backend_of(a)
    return backend_of(b) is backend and bool(backend.xp.may_share_memory(a, b))


def write(backend: Any, home: Any, value: Any) -> None:
    """Writes an array into another one of its shape, cast to its dtype."""
    if shows_twice(home):
        # a place in memory is written where one of the elements that show it has changed
        backend.xp.copyto(home, value, casting="unsafe", where=value != home)
    else:
        backend.xp.copyto(home, value, casting="unsafe")


def shows_twice(array: Any) -> bool:
    """Whether there are more elements than places in memory, as in what `unfold` makes."""
    flags = array.flags
    if flags.c_contiguous or flags.f_contiguous:
        return False
    steps = zip(array.strides, array.shape, strict=True)
    return bool(array.size > 1 + sum(abs(s) * (n - 1) for s, n in steps) // array.itemsize)
