"""Functions that look vectors up by number: embedding, embedding_bag, one_hot."""

from __future__ import annotations

from typing import Any

from ... import dtypes
from ...autograd.function import Function
from ...autograd.mode import no_grad
from ...autograd.recording.record import recorded
from ...backends import backend_of
from ...func import vmap
from ...functions import FUNCTIONS
from ...functions.calls.arguments import of_one_dtype, of_reals, refuse_whole
from ...functions.creation.factories import full, zeros
from ...functions.creation.ranges import arange
from ...functions.indexing.bounds import is_looked_at
from ...runtime.frames import warn_user
from ...sparse import SparseTensor
from ...tensor import Tensor, aliased

__all__ = ["embedding", "embedding_bag", "one_hot"]

MODES = ("sum", "mean", "max")


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of `weight` (rows, columns) at the integers of `input`: (*input.shape, columns).

    Args:
        padding_idx: the row that gets no gradient.
        max_norm: rows that are looked up and longer than this, by `norm_type`, are first shortened
            to it, in place.
        scale_grad_by_freq: the gradient of a row is divided by how often it was looked up.
        sparse: the gradient of the weight, if that is a leaf, is a sparse tensor of the rows
            looked up.

    Raises IndexError for numbers out of range, on the CPU.
    """
    _check_numbers("embedding", input, weight)
    rows = weight.shape[0]
    if padding_idx is None:
        padding_idx = -1
    elif not -rows <= padding_idx < rows:
        raise AssertionError("Padding_idx must be within num_embeddings")
    else:
        padding_idx %= rows
    if max_norm is not None:
        _shorten(weight, input, max_norm, norm_type)
    if sparse:
        return _rows(weight, input, padding_idx, scale_grad_by_freq)
    rows_at = recorded.embedding(weight, input, padding_idx)
    return _shared_by_frequency(rows_at, input, rows) if scale_grad_by_freq else rows_at


class _Rows(Function):
    """Rows of a leaf, whose gradient is sparse: their numbers, and what has come for each."""

    @staticmethod
    def forward(weight: Tensor, input: Tensor, padding_idx: int) -> Tensor:
        return recorded.embedding(weight, input, padding_idx)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
        weight, input, ctx.padding_idx = inputs
        ctx.save_for_backward(input)
        ctx.save_for_forward(input)
        ctx.size = weight.shape

    @staticmethod
    def vmap(info: Any, in_dims: Any, weight: Tensor, input: Tensor, padding_idx: int) -> Any:
        """Numbers of a batch are numbers; of a batch of tables the gradient is not sparse."""
        if in_dims[0] is None:
            return _Rows.apply(weight, input, padding_idx), in_dims[1]
        return vmap(recorded.embedding, (*in_dims[:2], None))(weight, input, padding_idx), 0

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *rest: Any) -> Tensor:
        return recorded.embedding(tangent, ctx.saved_tensors[0], ctx.padding_idx)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (input,) = ctx.saved_tensors
        numbers = input.reshape(-1).long()
        values = g.reshape(numbers.shape[0], ctx.size[1])
        if ctx.padding_idx >= 0:
            kept = (numbers != ctx.padding_idx).nonzero().reshape(-1)
            numbers, values = numbers.index_select(0, kept), values.index_select(0, kept)
        return SparseTensor(numbers.unsqueeze(0), values, ctx.size), None, None


def _rows(weight: Tensor, input: Tensor, padding_idx: int, by_frequency: bool) -> Tensor:
    """The rows of a table whose gradient is to be sparse, if it is a leaf: that of one which was
    computed has to pass the ops that made it.
    """
    if by_frequency:
        raise RuntimeError("embedding: scale_grad_by_freq not supported with sparse gradients")
    if weight.requires_grad and not weight.is_leaf:
        return recorded.embedding(weight, input, padding_idx)
    return _Rows.apply(weight, input, padding_idx)


def _check_numbers(name: str, input: Tensor, weight: Tensor) -> None:
    kind = input._array.dtype
    if kind.kind not in "iu" or kind.itemsize < 4:
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
            f"Long, Int; but got {input.dtype} instead (while checking arguments for {name})"
        )
    if weight.dim() != 2:
        raise RuntimeError("'weight' must be 2-D")
    if is_looked_at(input._array):
        xp = backend_of(input._array).xp
        array, rows = input._array, weight.shape[0]
        if array.size and bool(xp.any((array < 0) | (array >= rows))):
            raise IndexError(f"index out of range in self: {name} of {rows} rows")


def _shorten(weight: Tensor, input: Tensor, max_norm: float, norm_type: float) -> None:
    """Rows that will be looked up get a norm of at most `max_norm`, in place.

    As the gradient is, the tangent is that of the rows as they are then.
    """
    if weight._rare is not None and weight._rare.tangents:
        weight = aliased(weight)
    with no_grad():
        used = FUNCTIONS["unique"](input.reshape(-1))
        vectors = weight.index_select(0, used)
        norms = vectors.norm(norm_type, 1, True)
        scale = recorded.where(norms > max_norm, max_norm / (norms + 1e-7), 1.0)
        weight.index_copy_(0, used, vectors * scale.to(weight.dtype))


class _ScaledRows(Function):
    """Rows whose gradient is multiplied by a share; their values are as they were."""

    generate_vmap_rule = True

    @staticmethod
    def forward(vectors: Tensor, share: Tensor) -> Tensor:
        return vectors.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (share,) = ctx.saved_tensors
        return g * share, None

    @staticmethod
    def jvp(ctx: Any, vectors_t: Tensor, share_t: Any) -> Tensor:
        return vectors_t.clone()


def _shared_by_frequency(vectors: Tensor, input: Tensor, rows: int) -> Tensor:
    """Rows that were looked up, whose gradient will be divided by how often each one was."""
    flat = input.reshape(-1)
    count = zeros(rows, dtype=dtypes.int64, device=input.device)
    count = count.index_add(0, flat, full(flat.shape, 1, dtype=dtypes.int64, device=input.device))
    share = 1 / count.index_select(0, flat).reshape(*input.shape, 1).double()
    return _ScaledRows.apply(vectors, share.to(vectors.dtype))


@of_reals
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The sum, mean or maximum of the rows of `weight` in each bag of numbers: (bags, columns).

    `input` is (bags, size), or 1D with `offsets`, where each bag begins; `include_last_offset` says
    that the last offset is the end. Numbers equal to `padding_idx` do not count. Empty bags give
    zeros. `per_sample_weights`, of the shape of input, multiply the rows, for mode "sum".

    Raises ValueError for wrong shapes and modes, IndexError for numbers out of range.
    """
    if weight.dtype is dtypes.int64 and input.is_floating_point():
        warn_user(
            "Argument order of nn.functional.embedding_bag was changed. Usage "
            "`embedding_bag(weight, input, ...)` is deprecated, and should now be "
            "`embedding_bag(input, weight, ...)`."
        )
        input, weight = weight, input
    if sparse and mode == "max":
        raise ValueError("max mode does not support sparse weights")
    if mode not in MODES:
        raise ValueError("mode has to be one of sum, mean or max")
    if weight.dim() != 2:
        raise ValueError(
            f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.dim()}"
        )
    if per_sample_weights is not None and input.shape != per_sample_weights.shape:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, then "
            f"it must have the same shape as the input ({input.shape})"
        )
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported "
            f"for mode='sum' (got mode='{mode}')."
        )
    of_one_dtype("embedding_bag", weight, per_sample_weights=per_sample_weights)
    if mode == "max" and scale_grad_by_freq:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    begins = begins_of(input, offsets, include_last_offset)
    _check_numbers("embedding_bag", input, weight)
    refuse_whole("embedding_bag", weight)
    if max_norm is not None:
        _shorten(weight, input, max_norm, norm_type)
    padding = padding_of(weight, padding_idx)
    if mode == "max":
        return recorded.embedding_bag_max(weight, input, begins, padding)[0]
    if sparse or scale_grad_by_freq:
        weight, input, padding = _each_alone(weight, input, padding, sparse, scale_grad_by_freq)
    return recorded.embedding_bag(
        weight, input, begins, per_sample_weights, mode == "mean", padding
    )


def padding_of(weight: Tensor, padding_idx: int | None) -> int:
    """The number of the row that does not count, -1 for none; AssertionError for one beyond."""
    if padding_idx is None:
        return -1
    rows = weight.shape[0]
    if not -rows <= padding_idx < rows:
        raise AssertionError("padding_idx must be within the number of embeddings")
    return padding_idx % rows


def begins_of(input: Tensor, offsets: Tensor | None, include_last: bool) -> Tensor | None:
    """Where each bag begins; None where they are the lines of input."""
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch "
                f"of fixed length sequences. However, is_most offsets of type {type(offsets)}"
            )
        return None
    if input.dim() != 1:
        raise ValueError(
            f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}"
        )
    if offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    if offsets.dim() != 1:
        raise ValueError("offsets has to be a 1D Tensor")
    if is_looked_at(offsets._array) and offsets.shape[0]:
        first, last = int(offsets[0]), int(offsets.max())
        if first != 0:
            raise RuntimeError(
                "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start "
                f"from position 0. However, got {first}"
            )
        if last > input.shape[0]:
            raise RuntimeError(
                f"offsets[-1] can not be greater than input's length {input.shape[0]} but got "
                f"offsets[-1] of {last}"
            )
    if include_last and not offsets.shape[0]:
        raise RuntimeError("include_last_offset: number of offsets should be at least 1")
    return offsets[:-1] if include_last else offsets


def _each_alone(
    weight: Tensor, input: Tensor, padding: int, sparse: bool, by_frequency: bool
) -> tuple[Tensor, Tensor, int]:
    """A table of the rows that are looked up, in which each number has one, and which one is to be
    left out: the gradient then comes back for each number by itself.
    """
    count = input.numel()
    rows = embedding(input.reshape(-1), weight, scale_grad_by_freq=by_frequency, sparse=sparse)
    numbers = arange(count, dtype=input.dtype, device=input.device).reshape(input.shape)
    if padding < 0:
        return rows, numbers, padding
    rows = recorded.cat([rows, zeros((1, rows.shape[1]), dtype=rows.dtype, device=rows.device)])
    return rows, numbers.masked_fill(input == padding, count), count


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """1 at the class number along a new last dim, 0 elsewhere; int64.

    `num_classes` -1 takes one more than the largest number, which the host has to wait for. It
    looks for negative numbers on the CPU, as PyTorch does.

    >>> import cugrad as torch
    >>> torch.nn.functional.one_hot(torch.tensor([0, 2]))
    tensor([[1, 0, 0],
            [0, 0, 1]])
    """
    if tensor.dtype is not dtypes.int64:
        raise RuntimeError(
            f"one_hot is only applicable to index tensor of type LongTensor. Got {tensor.dtype}"
        )
    if tensor.numel() == 0 and num_classes <= 0:
        raise RuntimeError("Can not infer total number of classes from empty tensor.")
    if num_classes == 0 or num_classes < -1:
        raise RuntimeError("num_classes should be positive")
    looked: Any = is_looked_at(tensor._array)
    if tensor.numel() and (looked or num_classes == -1):
        high = int(tensor.max())
        if looked and int(tensor.min()) < 0:
            raise RuntimeError("Class values must be non-negative.")
        if num_classes == -1:
            num_classes = high + 1
        elif high >= num_classes:
            raise RuntimeError("Class values must be smaller than num_classes.")
    return recorded.one_hot(tensor, num_classes)
