"""Tensors turned, stacked and laid out in new shapes, over the views and copies of other files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...autograd.recording.operands import number
from ...autograd.recording.record import recorded
from ...ops import dims as D
from ...tensor import Size, Tensor
from ..calls.arguments import array_of, fresh
from ..calls.declaring import joining
from .copies import cat, flip
from .views import diagonal, permute, reshape, transpose

__all__ = [
    "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes", "channel_shuffle",
    "column_stack", "diag", "diag_embed", "diagflat", "dstack", "fliplr", "flipud", "hstack",
    "pixel_shuffle", "pixel_unshuffle", "rot90", "row_stack", "vstack",
]  # fmt: skip
TAKES_OUT = frozenset(["column_stack", "diag", "dstack", "hstack", "row_stack", "vstack"])


# Turning ------------------------------------------------------------------------------------------


def _flipped(function: str, least: int, dim: int, input: Tensor) -> Tensor:
    if array_of(input, function).ndim < least:
        raise RuntimeError(f"Input must be >= {least}-d. ({function}: got {input._array.ndim}-d)")
    return flip(input, (dim,))


def fliplr(input: Tensor) -> Tensor:
    """A copy with the order along dim 1 reversed."""
    return _flipped("fliplr", 2, 1, input)


def flipud(input: Tensor) -> Tensor:
    """A copy with the order along dim 0 reversed."""
    return _flipped("flipud", 1, 0, input)


def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """A copy turned by 90 degrees `k` times, from the first of `dims` towards the second.

    >>> import cugrad as torch
    >>> torch.rot90(torch.tensor([[0, 1], [2, 3]]))
    tensor([[1, 3],
            [0, 2]])
    """
    ndim = array_of(input, "rot90").ndim
    plane = D.int_tuple(dims, "dims")
    if len(plane) != 2:
        raise RuntimeError(
            f"expected total rotation dims == 2, but got dims = {len(plane)} (rot90)"
        )
    if ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {ndim} (rot90)")
    for d in plane:
        if not -ndim <= d < ndim:
            raise RuntimeError(f"Rotation dim out of range, dim = {d} of a tensor of {ndim} dims")
    first, second = (d % ndim for d in plane)
    if first == second:
        raise RuntimeError(
            f"expected rotation dims to be different, but got dim0 = {plane[0]} and "
            f"dim1 = {plane[1]}"
        )
    return recorded.rot90(input, k % 4, (first, second))


# Diagonals ----------------------------------------------------------------------------------------


def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices, in dims dim1 and dim2 of the result, with the last dim of `input` on a diagonal.

    >>> import cugrad as torch
    >>> torch.diag_embed(torch.tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]])
    """
    shape = array_of(input, "diag_embed").shape
    ndim = len(shape) + 1
    first, second = D.canonical_dim(dim1, ndim), D.canonical_dim(dim2, ndim)
    if first == second:  # also where there is no dim but the new one
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    size = shape[-1] + abs(offset)
    whole: list[int] = list(shape[:-1])
    for d in sorted((first, second)):
        whole.insert(d, size)
    return recorded.diagonal_backward(input, tuple(whole), offset, first, second)


def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A copy of a matrix's diagonal; of a vector, the matrix that has it as its diagonal."""
    ndim = array_of(input, "diag").ndim
    if ndim == 1:
        return diag_embed(input, diagonal)
    if ndim != 2:
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {ndim}D")
    return recorded.clone(_diagonal(input, diagonal), "C")


_diagonal = diagonal


def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """The matrix that has all elements of a tensor on a diagonal."""
    return diag_embed(reshape(input, (array_of(input, "diagflat").size,)), offset)


def fill_diagonal_(self: Tensor, fill_value: float, wrap: bool = False) -> Tensor:
    """Fills the main diagonal in place; with `wrap` again below it in a tall matrix.

    >>> import cugrad as torch
    >>> torch.zeros(2, 2).fill_diagonal_(3)
    tensor([[3., 0.],
            [0., 3.]])
    """
    shape, fill_value = self._array.shape, number(fill_value, "fill_diagonal_", "fill_value")
    if len(shape) < 2:
        raise RuntimeError("dimensions must larger than 1 (fill_diagonal_)")
    if len(shape) > 2 and len(set(shape)) > 1:
        raise RuntimeError(
            f"all dimensions of input must be of equal length, got {list(shape)} (fill_diagonal_)"
        )
    rows, columns = shape[0], shape[-1]
    strides = [s // self._array.itemsize for s in self._array.strides]
    step = sum(strides)
    if 0 in shape:
        return self.fill_(fill_value)
    self.as_strided((min(shape),), (step,)).fill_(fill_value)
    if wrap and len(shape) == 2 and rows > columns + 1:
        for top in range(columns + 1, rows, columns + 1):
            self[top:].as_strided((min(columns, rows - top),), (step,)).fill_(fill_value)
    return self


def block_diag(*tensors: Tensor) -> Tensor:
    """A matrix with the given matrices, vectors as rows, along its diagonal.

    >>> import cugrad as torch
    >>> torch.block_diag(torch.tensor([[1, 2]]), torch.tensor(3))
    tensor([[1, 2, 0],
            [0, 0, 3]])
    """
    blocks = [_at_least("block_diag", 2, x) for x in tensors]
    for i, (x, block) in enumerate(zip(tensors, blocks)):
        if block._array.ndim > 2:
            raise RuntimeError(
                "torch.block_diag: Input tensors must have 2 or fewer dimensions. Input "
                f"{i} has {x._array.ndim} dimensions"
            )
    if not blocks:
        raise RuntimeError("torch.block_diag: expected at least one tensor")
    width = sum(b._array.shape[1] for b in blocks)
    rows, left = [], 0
    for block in blocks:
        n = block._array.shape[1]
        rows.append(recorded.constant_pad_nd(block, ((0, 0), (left, width - left - n))))
        left += n
    return cat(rows, 0)


# Stacking -----------------------------------------------------------------------------------------


def _at_least(function: str, ndim: int, x: Any) -> Tensor:
    shape = array_of(x, function, "tensors").shape
    if len(shape) >= ndim:
        return x
    if ndim == 3 and len(shape) == 2:
        return recorded.unsqueeze(x, 2)
    if ndim == 3 and len(shape) == 1:
        return reshape(x, (1, shape[0], 1))
    return reshape(x, (1,) * (ndim - len(shape)) + shape)


def _raising(ndim: int) -> Callable[..., Any]:
    name = f"atleast_{ndim}d"

    def call(*tensors: Any) -> Any:
        if len(tensors) == 1:
            if isinstance(tensors[0], Tensor):
                return _at_least(name, ndim, tensors[0])
            tensors = tuple(tensors[0])
        return tuple([_at_least(name, ndim, x) for x in tensors])

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"The tensor, or each of several, with at least {ndim} dims, as a view."
    return call


atleast_1d, atleast_2d, atleast_3d = _raising(1), _raising(2), _raising(3)


def _some(function: str, tensors: Any) -> list[Tensor]:
    """A list of at least one tensor, as the user gave it."""
    if isinstance(tensors, Tensor):
        raise TypeError(
            f"{function}(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor"
        )
    tensors = list(tensors)
    if not tensors:
        raise RuntimeError(f"{function} expects a non-empty TensorList")
    return tensors


@joining
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors side by side: along dim 1, or dim 0 for vectors."""
    raised = [_at_least("hstack", 1, x) for x in _some("hstack", tensors)]
    return cat(raised, 0 if raised[0]._array.ndim == 1 else 1)


@joining
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors below one another along dim 0; vectors count as rows."""
    return cat([_at_least("vstack", 2, x) for x in _some("vstack", tensors)], 0)


row_stack = vstack


@joining
def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors behind one another along dim 2."""
    return cat([_at_least("dstack", 3, x) for x in _some("dstack", tensors)], 2)


@joining
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors side by side along dim 1; vectors count as columns."""
    columns = []
    for x in _some("column_stack", tensors):
        array = array_of(x, "column_stack", "tensors")
        columns.append(reshape(x, (array.size, 1)) if array.ndim < 2 else x)
    return cat(columns, 1)


def broadcast_shapes(*shapes: Any) -> Size:
    """The shape in which tensors of these shapes meet; RuntimeError where they do not.

    >>> import cugrad as torch
    >>> torch.broadcast_shapes((3, 1), (4,))
    torch.Size([3, 4])
    """
    sizes = [D.int_tuple(s) for s in shapes]
    for shape in sizes:
        for n in shape:
            if n < 0:
                raise RuntimeError(f"Trying to create tensor with negative dimension ({n}): ({n})")
    try:
        return Size(D.broadcast_shapes(*sizes))
    except RuntimeError as error:
        raise RuntimeError(
            f"Shape mismatch: objects cannot be broadcast to a single shape: {error}"
        ) from None


# Images -------------------------------------------------------------------------------------------


def _image(function: str, input: Tensor, factor: int, what: str) -> tuple[int, ...]:
    shape = array_of(input, function).shape
    if len(shape) < 3:
        raise RuntimeError(
            f"{function} expects input to have at least 3 dimensions, but got input with "
            f"{len(shape)} dimension(s)"
        )
    if factor <= 0:
        raise RuntimeError(f"{function} expects a positive {what}, but got {factor}")
    return shape


@fresh
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(*, C r², H, W) laid out as (*, C, H r, W r), r being `upscale_factor`.

    Source: https://arxiv.org/abs/1609.05158.
    """
    r = upscale_factor
    *lead, channels, height, width = _image("pixel_shuffle", input, r, "upscale_factor")
    if channels % (r * r):
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square "
            f"of upscale_factor, but input.size(-3)={channels} is not divisible by {r * r}"
        )
    n = len(lead)
    parts = reshape(input, (*lead, channels // (r * r), r, r, height, width))
    moved = permute(parts, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return reshape(moved, (*lead, channels // (r * r), height * r, width * r))


@fresh
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """The inverse of `pixel_shuffle`: (*, C, H r, W r) laid out as (*, C r², H, W)."""
    r = downscale_factor
    *lead, channels, height, width = _image("pixel_unshuffle", input, r, "downscale_factor")
    for what, size in (("height", height), ("width", width)):
        if size % r:
            raise RuntimeError(
                f"pixel_unshuffle expects {what} to be divisible by downscale_factor, but "
                f"{size} is not divisible by {r}"
            )
    n = len(lead)
    parts = reshape(input, (*lead, channels, height // r, r, width // r, r))
    moved = permute(parts, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return reshape(moved, (*lead, channels * r * r, height // r, width // r))


@fresh
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """The channels of (N, C, ...), in `groups` groups, dealt one from each in turn.

    Source: https://arxiv.org/abs/1707.01083.
    """
    shape = array_of(input, "channel_shuffle").shape
    if len(shape) < 3:
        raise RuntimeError(
            f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(shape)}"
        )
    if groups <= 0:
        raise RuntimeError(f"Number of groups to divide channels in must be positive. Value of "
                           f"groups:{groups}")  # fmt: skip
    if shape[1] % groups:
        raise RuntimeError(
            f"Number of channels must be divisible by groups. Got {shape[1]} channels and "
            f"{groups} groups."
        )
    parts = reshape(input, (shape[0], groups, shape[1] // groups, *shape[2:]))
    return reshape(recorded.clone(transpose(parts, 1, 2), "C"), shape)


METHODS = {
    f.__name__: f for f in (diag, diag_embed, diagflat, fill_diagonal_, fliplr, flipud, rot90)
}
