"""linear_cross_entropy: a linear layer and cross entropy, whose logits may come in chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ... import dtypes
from ...autograd.recording.record import recorded
from ...dtypes import dtype as DType
from ...functions.shapes.copies import cat
from ...runtime.frames import warn_user
from ...tensor import Tensor
from .class_losses import cross_entropy
from .loss import check_reduction

__all__ = ["linear_cross_entropy"]

_POLICIES = ("accurate", "auto", "balanced", "compact")
_ACCUMULATED = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
_HALVES = (dtypes.float16, dtypes.bfloat16)


@dataclass(slots=True, frozen=True)
class LinearCrossEntropyOptions:
    """How `linear_cross_entropy` computes in chunks of the batch.

    Args:
        allow_retain_graph: here backward may always run again with `retain_graph=True`, as chunks
            are computed again in backward; PyTorch does that only where this is True.
        batch_chunk_size: rows of a chunk, all by default.
        chunking_method: "aspect_ratio:N": logits of a chunk as large as 1/N of the input, about;
            "auto" is "aspect_ratio:2" unless there is a batch_chunk_size; None is none.
        acc_policy: what is computed in `acc_dtype`: "accurate" all of it; "balanced" the losses,
            and the sum of the chunks' gradients of the weight; "compact" the losses alone. "auto"
            is "accurate" on CPUs, else "compact".
        acc_dtype: None is float32 for "auto" and halves, else the input's.

    Raises ValueError for other values.

    >>> import cugrad as torch
    >>> torch.nn.LinearCrossEntropyOptions(acc_policy="compact").chunk_size(64, 8, 32)
    8
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: DType | None = None

    def __post_init__(self) -> None:
        if self.acc_policy not in _POLICIES:
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}")
        if self.chunking_method not in (None, "auto"):
            name, colon, factor = str(self.chunking_method).partition(":")
            positive = (factor.isdigit() and int(factor) > 0) or not colon
            if name != "aspect_ratio" or not positive:
                raise ValueError(f"invalid chunking_method: {self.chunking_method!r}")
        size = self.batch_chunk_size
        if size is not None and not (isinstance(size, int) and size > 0):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {size!r}")
        if self.acc_dtype is not None and self.acc_dtype not in _ACCUMULATED:
            raise ValueError(f"acc_dtype must be one of {_ACCUMULATED}, got {self.acc_dtype!r}")

    def chunk_size(self, rows: int, features: int, classes: int) -> int:
        """The rows of a chunk, of as many in all; ValueError where the options disagree."""
        size, method = self.batch_chunk_size, self.chunking_method
        if method == "auto":
            method = None if size is not None else "aspect_ratio:2"
        if method is None:
            return max(1, rows if size is None else min(size, rows))
        target = -(-rows // -(-classes // features))
        chunk = (1 << max(target - 1, 0).bit_length()) // int(method.partition(":")[2] or 1)
        chunk = min(chunk, rows)
        if size is not None and min(size, rows) != chunk:
            raise ValueError(
                f"batch_chunk_size (={size}) and chunking_method ('{method}') give different chunk "
                f"sizes ({size} vs {chunk}); pass only one."
            )
        return max(1, chunk)

    def precision(self, input: Tensor) -> tuple[str, DType]:
        """The policy and the dtype to accumulate in, for an input."""
        policy, kind = self.acc_policy, self.acc_dtype
        if policy == "auto":
            policy = "accurate" if input.is_cpu else "compact"
            if kind is None and input.dtype in _HALVES:
                kind = dtypes.float32
        return policy, input.dtype if kind is None else kind


def _chunked(
    input: Tensor, linear_weight: Tensor, target: Tensor, linear_bias: Tensor | None,
    weight: Tensor | None, reduction: str, ignore_index: int, options: LinearCrossEntropyOptions,
) -> Tensor:  # fmt: skip
    """The loss of (N, features) or (features,), with no more than the logits of a chunk at once."""
    from ...utils.checkpoint import checkpoint

    x, y = (input, target) if input.dim() == 2 else (input.unsqueeze(0), target.unsqueeze(0))
    policy, kind = options.precision(x)
    at_once = kind if policy == "accurate" else x.dtype
    table = linear_weight.to(kind) if policy != "compact" else linear_weight

    def losses(rows: Tensor, table: Tensor, labels: Tensor) -> Tensor:
        bias = None if linear_bias is None else linear_bias.to(at_once)
        logits = recorded.linear(rows.to(at_once), table.to(at_once), bias).to(kind)
        scale = None if weight is None else weight.to(kind)
        return cross_entropy(
            logits, labels, scale, reduction="none", ignore_index=ignore_index
        )  # fmt: skip

    size = options.chunk_size(x.shape[0], x.shape[1], linear_weight.shape[0])
    parts: list[Any] = [
        checkpoint(losses, rows, table, labels, use_reentrant=False)
        for rows, labels in zip(x.split(size), y.split(size))
    ]
    each = cat(parts) if parts else losses(x, table, y)
    if reduction == "none":
        result = each if input.dim() == 2 else each.squeeze(0)
    else:
        result = each.sum()
        if reduction == "mean":
            counted = (y != ignore_index).to(kind)
            if weight is not None:
                at = recorded.where(y != ignore_index, y, 0)
                counted = counted * weight.to(kind).index_select(0, at)
            result = result / counted.sum()
    return result.to(input.dtype)


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None,
) -> Tensor:
    """Cross entropy of the logits `input @ linear_weight.T + linear_bias`.

    `input` is (N, in_features) or (in_features,), `linear_weight` (C, ..., in_features): the dims
    between make a loss of so many dims. With `options` the logits are computed in chunks of the
    batch, and again in backward, so that they never are in memory all at once.

    >>> import cugrad as torch
    >>> x, weight, target = torch.ones(6, 3), torch.eye(4, 3), torch.arange(6) % 4
    >>> plain = torch.nn.functional.linear_cross_entropy(x, weight, target)
    >>> few = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=2, chunking_method=None)
    >>> chunked = torch.nn.functional.linear_cross_entropy(x, weight, target, options=few)
    >>> torch.allclose(plain, chunked)
    True
    """
    places = _checked_places(input, linear_weight, linear_bias)
    shape = (*input.shape[:-1], *places)
    if tuple(target.shape) == shape and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    ignored = -100 if ignore_index is None else ignore_index
    if options is not None:
        if len(places) == 1 and not label_smoothing and target.dtype is dtypes.int64:
            whole = (input, linear_weight, target, linear_bias)
            return _chunked(*whole, weight, check_reduction(reduction), ignored, options)
        warn_user(
            "linear_cross_entropy: ``options`` ignored; chunks need label_smoothing == 0, "
            f"target.dtype == int64, out_features == (). Got label_smoothing={label_smoothing}, "
            f"target.dtype={target.dtype}, out_features={places[1:]}.",
            shown=(),
        )
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = recorded.linear(input, linear_weight.reshape(-1, input.shape[-1]), bias)
    return cross_entropy(
        logits.reshape(shape), target, weight, reduction=reduction, ignore_index=ignored,
        label_smoothing=label_smoothing,
    )  # fmt: skip


def _checked_places(
    input: Tensor, linear_weight: Tensor, linear_bias: Tensor | None
) -> tuple[int, ...]:
    """The dims of the weight but the last; RuntimeError for shapes that do not fit."""
    if input.dim() not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.dim()}")
    if linear_weight.dim() < 2:
        raise RuntimeError(
            f"expected linear_weight with dimensionality at least 2, got {linear_weight.dim()}"
        )
    features = input.shape[-1]
    if features != linear_weight.shape[-1]:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), got "
            f"{features} and {linear_weight.shape[-1]}, respectively"
        )
    if input.dtype is not linear_weight.dtype:
        raise RuntimeError(
            "linear_cross_entropy: expected input and linear_weight to have the same dtype, but "
            f"got: {input.dtype} != {linear_weight.dtype}; convert one with .to({input.dtype})"
        )
    places = tuple(linear_weight.shape[:-1])
    if linear_bias is not None and tuple(linear_bias.shape) != places:
        raise RuntimeError(f"expected linear_bias shape {places}, got {tuple(linear_bias.shape)}")
    if len(places) > 1 and input.dim() == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} "
            f"requires batched input, (N, {features}), got unbatched input with shape "
            f"{tuple(input.shape)}"
        )
    return places
