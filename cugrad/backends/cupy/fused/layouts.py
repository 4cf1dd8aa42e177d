"""How the operands of an elementwise kernel lie: as few dims as possible, and packs of 16 bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Layout", "Operand", "layout_of", "needs_alignment", "strides_in_order"]

MAX_DIMS = 8
MAX_PACK = 8  # elements of two bytes in 16 bytes
LIMIT = 2**31 - 1024 * MAX_PACK  # threads of the last block count beyond the end

Strides = tuple[int, ...]


class Operand(NamedTuple):
    """What of an array decides how it is read: `strides` are in bytes."""

    itemsize: int
    shape: tuple[int, ...]
    strides: Strides


class Layout(NamedTuple):
    """`shape`, the outermost dim first, and for each operand its strides, in elements.

    A thread computes `pack` elements that are neighbours in the last dim. `modes` say how it reads
    each operand there: "v" as one vector, "s" one element for all, "e" element by element.
    `wide` is whether 32 bits are too few for an index.
    """

    shape: tuple[int, ...]
    strides: tuple[Strides, ...]
    pack: int
    modes: str
    wide: bool

    @property
    def size(self) -> int:
        size = 1
        for n in self.shape:
            size *= n
        return size

    @property
    def threads(self) -> int:
        """How many threads have something to do."""
        inner = -(-self.shape[-1] // self.pack)
        return inner * (self.size // self.shape[-1])

    @property
    def kind(self) -> tuple[int, int, str, bool]:
        """What the text of a kernel depends on."""
        return len(self.shape), self.pack, self.modes, self.wide


def strides_in_order(
    shape: tuple[int, ...], operands: Sequence[Operand], itemsize: int
) -> Strides | None:
    """The strides of a new array that lies as NumPy's results do: in the order of its operands.

    None is the order of the dims.
    """
    small = tuple([min(n, 2) for n in shape])
    views: list[Any] = [_small(x) for x in operands]
    flags: Any = [["readonly"]] * len(views) + [["writeonly", "allocate"]]
    kinds: Any = [None] * len(views) + ["u1"]
    loop = np.nditer([*views, None], ["zerosize_ok"], flags, kinds, order="K", itershape=small)
    result = loop.operands[-1]
    axes = sorted(range(len(shape)), key=lambda i: (-result.strides[i], i))
    if axes == list(range(len(shape))):
        return None
    strides, step = [0] * len(shape), itemsize
    for axis in reversed(axes):
        strides[axis] = step
        step *= max(1, shape[axis])
    return tuple(strides)


def _small(x: Operand) -> np.ndarray[Any, Any]:
    """An array of few bytes whose strides have the order, the equals and the signs of an operand's:
    NumPy looks at no more.
    """
    ranks = {size: k + 1 for k, size in enumerate(sorted({abs(s) for s in x.strides} - {0}))}
    steps = [ranks.get(abs(s), 0) * (-1 if s < 0 else 1) for s in x.strides]
    shape = [min(n, 2) for n in x.shape]
    start = -sum(s for s, n in zip(steps, shape) if s < 0 and n == 2)
    memory = bytes(1 + sum(map(abs, steps)))
    return np.ndarray(shape, np.uint8, memory, start, steps)


def layout_of(
    shape: tuple[int, ...], operands: Sequence[Operand], packing: bool = True
) -> Layout | None:
    """The layout of operands that broadcast to `shape`; the last one is the result, which lies
    dense in some order. None where no kernel reads them. `packing` wants vectors where they can be.
    """
    steps = []
    for x in operands:
        if any(s % x.itemsize for s in x.strides):
            return None
        own = [0 if n == 1 else s // x.itemsize for n, s in zip(x.shape, x.strides)]
        steps.append([0] * (len(shape) - len(own)) + own)
    axes = sorted((i for i, n in enumerate(shape) if n != 1), key=lambda i: -steps[-1][i])
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in operands]
    for axis in axes:
        n = shape[axis]
        if sizes and all(m[-1] == s[axis] * n for m, s in zip(merged, steps)):
            sizes[-1] *= n
            for m, s in zip(merged, steps):
                m[-1] = s[axis]
        else:
            sizes.append(n)
            for m, s in zip(merged, steps):
                m.append(s[axis])
    if not sizes:
        sizes, merged = [1], [[0] for _ in operands]
        merged[-1] = [1]
    if len(sizes) > MAX_DIMS:
        return None
    strides = tuple(map(tuple, merged))
    pack = _pack(sizes, strides, operands) if packing else 1
    modes = "".join(_mode(s[-1], pack) for s in strides)
    reach = max(
        sum(abs(step) * (n - 1) for n, step in zip(sizes, own)) for own in strides
    )  # fmt: skip
    size = Layout(tuple(sizes), strides, pack, modes, False).size
    return Layout(tuple(sizes), strides, pack, modes, max(reach, size) >= LIMIT)


def _mode(step: int, pack: int) -> str:
    if pack > 1:
        return "v" if step == 1 else "s"
    return "s" if step == 0 else "e"


def _pack(sizes: list[int], strides: Sequence[Strides], operands: Sequence[Operand]) -> int:
    """How many neighbours a thread computes: as many of the narrowest as 16 bytes hold."""
    if any(s[-1] not in (0, 1) for s in strides):
        return 1
    narrowest = min([x.itemsize for x in operands if x.itemsize > 1], default=1)
    pack = min(MAX_PACK, 16 // narrowest)
    if len(sizes) == 1:
        return pack
    outer = [step for s in strides if s[-1] == 1 for step in s[:-1]]
    while pack > 1 and (sizes[-1] % pack or any(step % pack for step in outer)):
        pack //= 2
    return pack


def needs_alignment(layout: Layout, itemsizes: Sequence[int]) -> list[int]:
    """By operand, what its address must be a multiple of."""
    return [
        min(16, layout.pack * itemsize) if mode == "v" else 1
        for mode, itemsize in zip(layout.modes, itemsizes, strict=True)
    ]
