"""Memory formats: in which order the dims of a tensor lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...autograd.recording.record import recorded
from ...tensor import Tensor
from ..calls.arguments import array_of, as_own

__all__ = ["clone", "memory_format"]


class memory_format:
    """The order of dims in memory; the four there are have names in the package.

    >>> import cugrad as torch
    >>> torch.zeros(2, 3, 4, 4).contiguous(memory_format=torch.channels_last).stride()
    (48, 1, 12, 3)
    """

    __slots__ = ("name", "order")

    def __init__(self, name: str, order: tuple[int, ...] | None = None) -> None:
        self.name, self.order = name, order

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last", (0, 2, 3, 1))
channels_last_3d = memory_format("channels_last_3d", (0, 2, 3, 4, 1))


def _order(function: str, input: Tensor, format: Any) -> tuple[int, ...] | None:
    """The dims from the slowest to the fastest, None for row-major; errors as PyTorch's."""
    if not isinstance(format, memory_format):
        raise TypeError(
            f"{function}(): argument 'memory_format' must be torch.memory_format, not "
            f"{type(format).__name__}"
        )
    if format.order is not None and len(format.order) != input._array.ndim:
        raise RuntimeError(
            f"required rank {len(format.order)} tensor to use {format.name} format, got rank "
            f"{input._array.ndim} ({function})"
        )
    return format.order


def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy that gradients flow through; it keeps strides unless a memory format is asked for."""
    array_of(input, "clone")
    if memory_format is None or memory_format is preserve_format:
        return recorded.clone(input, "K")
    order = _order("clone", input, memory_format)
    return recorded.clone(input, "C") if order is None else _ordered(input, order)


def _ordered(input: Tensor, order: tuple[int, ...]) -> Tensor:
    back = tuple(sorted(range(len(order)), key=order.__getitem__))
    laid_out = recorded.clone(recorded.permute(input, order), "C")
    return as_own(recorded.permute(laid_out, back), ())


def contiguous(self: Tensor, memory_format: Any = contiguous_format) -> Tensor:
    """The tensor itself where its memory has the format already, else a copy that has."""
    if memory_format is contiguous_format:
        return self if is_contiguous(self) else recorded.clone(self, "C")
    if memory_format is preserve_format:
        raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
    order = _order("contiguous", self, memory_format)
    if order is None or is_contiguous(self, memory_format):
        return self
    return _ordered(self, order)


def is_contiguous(self: Tensor, memory_format: Any = contiguous_format) -> bool:
    """Whether elements lie side by side in memory, in the order of a memory format."""
    array = self._array
    order: Sequence[int]
    if memory_format is contiguous_format:
        if array.flags.c_contiguous or not array.size:
            return True
        order = range(array.ndim)  # one example of a batch may lie so where all do not
    elif not isinstance(memory_format, type(contiguous_format)) or memory_format.order is None:
        raise RuntimeError(f"is_contiguous: got {memory_format}, which says no order of dims")
    else:
        order = memory_format.order
    if len(order) != array.ndim:
        return False
    shape, strides, step = array.shape, array.strides, array.itemsize
    if not array.size:
        strides, step = self.stride(), 1
    for d in reversed(order):
        if strides[d] != step and shape[d] != 1:
            return False
        step *= shape[d]  # of no elements few lie so, as PyTorch has it
    return True


def suggested(self: Tensor) -> memory_format:
    """The memory format that strides are like: channels last, if they lie so and cannot lie in the
    order of the dims, with or without gaps; else the contiguous one. As `to` asks PyTorch's.
    """
    for format in (channels_last, channels_last_3d):
        if self.ndim == len(format.order or ()) and _is_like(self, format):
            return format
    return contiguous_format


def _is_like(self: Tensor, format: memory_format) -> bool:
    shape, strides, least = self.shape, self.stride(), 0
    if not strides[1]:
        return False
    for d in reversed(format.order or ()):
        if not shape[d] or strides[d] < least or d == 0 and least == strides[1]:
            return False
        least = strides[d] * shape[d]
    return True


AMBIGUOUS = "The tensor does not have unique dim order"


def dim_order(self: Tensor, *, ambiguity_check: bool | list[Any] = False) -> tuple[int, ...]:
    """The dims in their order in memory, from the outermost to the innermost.

    RuntimeError where more than one order is true and `ambiguity_check` is set; or is a list of
    memory formats, of which not just one is true.

    >>> import cugrad as torch
    >>> torch.empty(2, 3, 5, 7).transpose(1, 2).dim_order()
    (0, 2, 1, 3)
    """
    formats = ambiguity_check if isinstance(ambiguity_check, list) else []
    if not isinstance(ambiguity_check, (bool, list)) or not all(
        isinstance(x, type(contiguous_format)) for x in formats
    ):
        raise TypeError("The ambiguity_check argument must be a bool or a list of memory formats.")
    sizes, strides = tuple(self.shape), self.stride()
    open_order = 1 in sizes or any(a == b for a, b in zip(strides, strides[1:]))
    if ambiguity_check is not False and open_order:
        if sum(is_contiguous(self, x) for x in formats) != 1:
            raise RuntimeError(
                f"{AMBIGUOUS}, or cannot map to exact one of the given memory formats."
            )
    natural, last = is_contiguous(self), is_contiguous(self, channels_last)
    if len(sizes) < 2 or natural and not last:
        return tuple(range(len(sizes)))
    if last and not natural:
        return channels_last.order or ()
    order = _outwards(sizes, strides)
    if ambiguity_check and not all(
        _compared(sizes, strides, a, b) < 0 for a, b in zip(order, order[1:])
    ):
        raise RuntimeError(f"{AMBIGUOUS}.")
    return tuple(order[::-1])


def _compared(sizes: Any, strides: Any, a: int, b: int) -> int:
    """-1 where dim `a` lies within `b`, 1 the other way round, 0 where strides leave it open."""
    if not strides[a] or not strides[b]:
        return 0
    if strides[a] == strides[b]:
        return int(sizes[b] < sizes[a])
    return -1 if strides[a] < strides[b] else 1


def _outwards(sizes: Any, strides: Any) -> list[int]:
    """The dims from the innermost: sorted by insertion, as PyTorch does it, for of a stride of 0
    each place may be true.
    """
    order = list(reversed(range(len(sizes))))
    for i in range(1, len(order)):
        at = i
        for before in reversed(range(i)):
            sign = _compared(sizes, strides, order[before], order[at])
            if sign > 0:
                order[before], order[at], at = order[at], order[before], before
            elif sign < 0:
                break
    return order


METHODS: dict[str, Any] = {
    "clone": clone, "contiguous": contiguous, "dim_order": dim_order, "is_contiguous": is_contiguous
}  # fmt: skip
