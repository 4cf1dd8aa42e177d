"""Rows for a part of a tensor that was changed in place: the region that view ops lead to."""

from __future__ import annotations

from typing import Any

from ...backends.batched.arrays import levels_of, lifted_to, owner, plain
from ..precision import sum_of
from ..table import LINEAR, raw, row
from .mirrored import turned
from .strided import layout_of


class Region:
    """The part of a tensor that a chain of view ops leads to.

    It is read by these ops, and written through what they make: so a view op is its own inverse,
    of whatever dtype the view is, as long as it is given memory laid out as the tensor's was. What
    is a view in one layout may be a copy in another, and a change of that would be lost.
    """

    __slots__ = ("steps", "shape", "strides", "whole_dtype", "levels", "part_levels")

    def __init__(
        self,
        steps: tuple[tuple[Any, dict[str, Any]], ...],
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        whole_dtype: Any = None,
        levels: tuple[Any, ...] = (),
        part_levels: tuple[Any, ...] = (),
    ) -> None:
        self.steps = steps  # the view ops and their parameters
        self.shape = shape  # of the whole tensor
        self.strides = strides  # of the whole tensor, in elements
        self.whole_dtype = whole_dtype  # where the part is of another
        self.levels = levels  # of vmap, at which the whole tensor differs by example
        self.part_levels = part_levels  # and those at which the part does

    def __repr__(self) -> str:
        return f"Region({' '.join(op.name for op, _ in self.steps)} of {self.shape})"

    def of(self, whole: Any) -> Any:
        """The view of it in an array of the tensor's layout, of numbers as they lie there."""
        for op, params in self.steps:
            if not op.mirrors:
                whole = getattr(raw, op.name)(whole, **params)
        return whole

    def turned(self, part: Any) -> Any:
        """An array of the part's shape with its numbers turned, as the view ops do, or back."""
        return turned(owner(part).xp, part, self.steps)

    def zeros(self, part: Any) -> Any:
        """Zeros of the tensor's shape, for each example that what is put into them has beside."""
        dtype = part.dtype if self.whole_dtype is None else self.whole_dtype
        zero = owner(plain(part)).xp.zeros((), dtype)
        more = [level for level in levels_of(part) if level not in self.part_levels]
        zero = lifted_to(zero, (*self.levels, *more))
        return owner(zero).xp.broadcast_to(zero, self.shape)

    def is_laid_out(self, array: Any) -> bool:
        """Whether an array of the tensor's shape lies in memory as the tensor does."""
        steps = zip(array.shape, layout_of(array), self.strides)
        return not array.size or all(n == 1 or a == b for n, a, b in steps)

    def laid_out(self, array: Any) -> Any:
        """A copy of an array of the tensor's shape, in its layout."""
        array = lifted_to(array, self.levels)
        order = sorted(range(array.ndim), key=lambda dim: -abs(self.strides[dim]))
        back = sorted(range(array.ndim), key=order.__getitem__)
        dense = array[...].transpose(order).copy("C").transpose(back)
        if self.is_laid_out(dense):
            return dense
        steps = [(n - 1) * s for n, s in zip(self.shape, self.strides)]
        low, high = sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)
        xp = owner(array).xp
        memory = xp.zeros(high - low + 1, array.dtype)
        strides = tuple([s * array.itemsize for s in self.strides])
        whole = xp.lib.stride_tricks.as_strided(memory[-low:], self.shape, strides)
        whole[...] = array
        return whole


def _part(xp: Any, self: Any, region: Region) -> Any:
    part = region.of(self if region.is_laid_out(self) else region.laid_out(self))
    return region.turned(part.copy())


def _zero_part(xp: Any, self: Any, region: Region) -> Any:
    whole = region.laid_out(self)
    region.of(whole)[...] = 0
    return whole


def _embed_part(xp: Any, self: Any, region: Region) -> Any:
    whole = region.laid_out(region.zeros(self))
    region.of(whole)[...] = region.turned(self)
    return whole


# Not holomorphic: the adjoint of seeing real numbers as complex ones is to see them as real again.
row("part", "self", _part, LINEAR, holomorphic=False,
    self=lambda m, g, region: m.embed_part(g, region))  # fmt: skip
row("zero_part", "self", _zero_part, LINEAR, holomorphic=False,
    self=lambda m, g, region: m.zero_part(g, region))  # fmt: skip
row("embed_part", "self", _embed_part, LINEAR, holomorphic=False,
    self=lambda m, g, region: m.part(g, region))  # fmt: skip
row("copy_slices", "self src",
    lambda xp, self, src, region: _zero_part(xp, self, region) + _embed_part(xp, src, region),
    node="torch::autograd::CopySlices", holomorphic=False,
    self=lambda m, g, region: m.zero_part(g, region),
    src=lambda m, g, region: m.part(g, region),
    jvp=lambda m, self_t, src_t, region: sum_of(
        None if self_t is None else m.zero_part(self_t, region),
        None if src_t is None else m.embed_part(src_t, region)))  # fmt: skip
