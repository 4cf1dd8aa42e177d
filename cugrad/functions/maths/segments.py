"""segment_reduce: reductions of runs of elements along a dim."""

from __future__ import annotations

from math import inf
from typing import Any

from ...autograd.recording.record import recorded
from ...tensor import Tensor
from ..creation.factories import full
from ..creation.ranges import arange
from ..indexing.bounds import is_looked_at
from ..indexing.scatter import scatter_reduce
from ..shapes.copies import repeat_interleave

__all__ = ["segment_reduce"]

METHODS: dict[str, Any] = {}
TAKES_OUT = {"segment_reduce"}

# Reduction -> that of scatter_reduce, and what no elements give.
REDUCTIONS = {
    "sum": ("sum", 0.0), "mean": ("sum", 0.0), "max": ("amax", -inf), "min": ("amin", inf),
    "amax": ("amax", -inf), "amin": ("amin", inf), "prod": ("prod", 1.0),
}  # fmt: skip


def segment_reduce(
    data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:  # fmt: skip
    """Reduces segments along `axis`, which follow one another: "sum", "mean", "max", "min", "prod".

    Args:
        data: floating point, of any shape.
        lengths: (*data.shape[:axis], segments) of integers: how long each segment is.
        offsets: (*data.shape[:axis], segments + 1): where each begins, and the last one ends.
        unsafe: does not look whether lengths are negative, or do not add up.
        initial: takes part in each segment; without it an empty one gives what there is for no
            element: 0, nan, -inf, inf or 1.

    The result is (*data.shape[:axis], segments, *data.shape[axis + 1:]). RuntimeError for lengths
    that do not fit.

    >>> import cugrad as torch
    >>> x = torch.tensor([1., 2., 3., 4.])
    >>> torch.segment_reduce(x, "max", lengths=torch.tensor([3, 1]))
    tensor([3., 4.])
    """
    if reduce not in REDUCTIONS:
        raise RuntimeError(
            f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}"
        )
    if not data.is_floating_point():
        raise NotImplementedError(f"segment_reduce: got {data.dtype}, want floating point")
    axis = axis + data.dim() if axis < 0 else axis
    sizes = _lengths(data, lengths, indices, offsets, axis)
    before, extent, after = data.shape[:axis], data.shape[axis], data.shape[axis + 1 :]
    if not unsafe and is_looked_at(sizes._array):
        _check(sizes, extent)
    rows, segments = before.numel(), sizes.shape[-1]
    flat = data.reshape(rows * extent, after.numel())
    counts = sizes.reshape(-1)
    numbers = arange(rows * segments, device=data.device)
    index = repeat_interleave(numbers, counts, output_size=flat.shape[0])
    way, nothing = REDUCTIONS[reduce]
    start = full((rows * segments, flat.shape[1]), nothing if initial is None else initial,
                 dtype=data.dtype, device=data.device)  # fmt: skip
    result = scatter_reduce(start, 0, index.unsqueeze(1).expand(flat.shape), flat, way)
    if reduce == "mean":
        least = 0 if initial is None else 1
        result = result / counts.clamp(min=least).to(data.dtype).unsqueeze(1)
    return recorded.unsafe_view(result, (*before, segments, *after))


def _lengths(data: Tensor, lengths: Any, indices: Any, offsets: Any, axis: int) -> Tensor:
    name = "segment_reduce()"
    if indices is not None:
        raise RuntimeError(f"{name}: indices based reduction is not supported yet.")
    if lengths is None and offsets is None:
        raise RuntimeError(f"{name}: Either lengths or offsets must be defined.")
    what, which = ("lengths", lengths) if lengths is not None else ("offsets", offsets)
    if not 0 <= axis < data.dim() or which.dim() != axis + 1:
        raise RuntimeError(
            f"{name}: Expected axis to be the last dimension of {what} but got {axis}."
        )
    if which.is_floating_point() or which.is_complex():
        raise NotImplementedError(f"{name}: got {what} of {which.dtype}, want integers")
    if which.shape[:-1] != data.shape[:axis]:
        raise RuntimeError(f"{name}: Expected all dimensions of {what} but the last one to be "
                           f"{list(data.shape[:axis])}, got {list(which.shape[:-1])}")  # fmt: skip
    return which if lengths is not None else offsets[..., 1:] - offsets[..., :-1]


def _check(sizes: Tensor, extent: int) -> None:
    if bool((sizes < 0).any()):
        raise RuntimeError("lengths contains negative value!")
    if bool((sizes.sum(-1) != extent).any()):
        raise RuntimeError(
            "segment_reduce(): Expected all rows of lengths along axis to sum to "
            f"data.size(lengths.dim()-1) when !unsafe, which is {extent}."
        )
