"""torch.nn.functional's own parts, which copies of its attention and of its norms are made of."""

from __future__ import annotations

import warnings
from math import prod
from typing import Any

from ...nn.functional.attention import _batched_shapes, _canonical_mask
from ...nn.functional.linear import linear
from ...tensor import Tensor

__all__ = ["_canonical_mask", "_get_softmax_dim", "_in_projection", "_in_projection_packed",
           "_list_with_default", "_mha_shape_check", "_none_or_dtype",
           "_verify_batch_size"]  # fmt: skip


def _in_projection_packed(
    q: Tensor, k: Tensor, v: Tensor, w: Tensor, b: Tensor | None = None
) -> tuple[Tensor, ...]:
    """Queries, keys and values, by a weight and a bias in which those of the three lie in a row."""
    if q is k and k is v:  # each dense, for callers that `view` it
        return tuple([part.contiguous() for part in linear(q, w, b).chunk(3, -1)])
    biases = (None,) * 3 if b is None else b.chunk(3)
    return tuple([linear(x, part, bias) for x, part, bias in zip((q, k, v), w.chunk(3), biases)])


def _in_projection(
    q: Tensor, k: Tensor, v: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor,
    b_q: Tensor | None = None, b_k: Tensor | None = None, b_v: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Queries, keys and values, each by its own weight; AssertionError where one does not fit."""
    width = q.size(-1)
    kinds = (("query", w_q, b_q, width), ("key", w_k, b_k, k.size(-1)),
             ("value", w_v, b_v, v.size(-1)))  # fmt: skip
    for kind, weight, bias, size in kinds:
        if weight.shape != (width, size):
            raise AssertionError(
                f"expecting {kind} weights shape of {(width, size)}, but got {weight.shape}"
            )
        if bias is not None and bias.shape != (width,):
            raise AssertionError(f"expecting {kind} bias shape of {(width,)}, but got {bias.shape}")
    return linear(q, w_q, b_q), linear(k, w_k, b_k), linear(v, w_v, b_v)


def _none_or_dtype(input: Tensor | None) -> Any:
    """The dtype of a tensor, None of None; RuntimeError of anything else."""
    if input is None or isinstance(input, Tensor):
        return None if input is None else input.dtype
    raise RuntimeError("input to _none_or_dtype() must be None or torch.Tensor")


def _mha_shape_check(
    query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None,
    attn_mask: Tensor | None, num_heads: int,
) -> bool:  # fmt: skip
    """Whether what attention is given has a batch; AssertionError where its dims do not fit."""
    return _batched_shapes(
        query, key, value, num_heads, key_padding_mask=key_padding_mask, attn_mask=attn_mask
    )


def _get_softmax_dim(name: str, ndim: int, stacklevel: int) -> int:
    """The dim along which a softmax goes that was told none: it warns."""
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. "
        "Change the call to include dim=X as an argument.", stacklevel=stacklevel,
    )  # fmt: skip
    return 0 if ndim in (0, 1, 3) else 1


def _verify_batch_size(size: Any) -> None:
    """ValueError where a norm in training has one number of each channel."""
    if prod(size[2:]) * size[0] == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {size}"
        )


def _list_with_default(out_size: Any, defaults: Any) -> Any:
    """Sizes, with those of the input where one is None."""
    if isinstance(out_size, int):
        return out_size
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    own = defaults[-len(out_size) :]
    return [size if size is not None else default for size, default in zip(out_size, own)]
