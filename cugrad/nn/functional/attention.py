"""Attention: scaled dot products, in blocks of queries, and with projections of several heads."""

from __future__ import annotations

import math
import warnings
from typing import Any

from ... import dtypes
from ...autograd.autocast import autocasts
from ...autograd.recording.record import recorded
from ...functions import FUNCTIONS
from ...functions.calls.arguments import of_reals
from ...functions.creation.factories import zeros
from ...ops.dims import canonical_dim
from ...tensor import Tensor
from .dot_product_attention import (
    AttentionSettings,
    by_kernel,
    dot_product_attention,
    is_recorded,
)
from .dropout import dropout

__all__ = ["multi_head_attention_forward", "scaled_dot_product_attention"]

BLOCK = 1 << 24  # scores that are held at once where no gradient will be asked for
cat, pad = FUNCTIONS["cat"], FUNCTIONS["constant_pad_nd"]


@autocasts
@of_reals
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query @ key.mT * scale + mask) @ value, of shape (..., L, value's last).

    On CUDA no scores are held where a kernel takes the operands. Elsewhere, if no gradient will be
    asked for, they are computed for a block of queries at a time, so that memory does not grow with
    L * S; else backward computes them again, and keeps only the operands.

    Args:
        query, key, value: (..., L, E), (..., S, E), (..., S, Ev).
        attn_mask: broadcast with (..., L, S): bool, True where a key takes part, or added.
        dropout_p: the probability with which a weight is dropped; it always applies.
        is_causal: a query sees the keys that stand no later than itself; no mask then.
        scale: default 1 / sqrt(E).
        enable_gqa: key and value may have fewer heads, dim -3, that divide those of the query.

    Raises RuntimeError for shapes and dtypes that do not fit.

    >>> import cugrad as torch
    >>> q = torch.ones(1, 2, 4)
    >>> torch.nn.functional.scaled_dot_product_attention(q, q, q).shape
    torch.Size([1, 2, 4])
    """
    _check(query, key, value, attn_mask, is_causal)
    shape, groups = query._array.shape, 1
    length, width = shape[-2:]
    if enable_gqa:
        for t in (query, key, value):
            canonical_dim(-3, t.dim())
        groups = shape[-3] // key.shape[-3]
        if key.shape[-3] != value.shape[-3]:
            value = value.repeat_interleave(key.shape[-3] // value.shape[-3], -3)
    if scale is None:
        scale = 1 / math.sqrt(width) if width else 1.0
    how = AttentionSettings(dropout_p, is_causal, scale, groups)
    if is_recorded(query, key, value, attn_mask):
        return dot_product_attention(query, key, value, attn_mask, how)
    keys = key.shape[-2]
    rows = max(1, BLOCK * length // max(1, query.numel() // max(1, width) * keys))
    if rows >= length:
        return dot_product_attention(query, key, value, attn_mask, how)
    whole = by_kernel(query, key, value, attn_mask, how)
    if whole is not None:
        return whole
    parts = []
    for start in range(0, length, rows):
        count = min(rows, length - start)
        mask = attn_mask
        if mask is not None and mask.dim() > 1 and mask.shape[-2] != 1:
            mask = mask.narrow(-2, start, count)
        block = query.narrow(-2, start, count)
        parts.append(dot_product_attention(block, key, value, mask, how._replace(start=start)))
    return cat(parts, -2)


def _check(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> None:
    where = "scaled_dot_product_attention"
    q, k, v = query._array, key._array, value._array
    if q.ndim < 2 or k.ndim < 2 or v.ndim < 2:
        raise RuntimeError(
            f"{where}: Expected query, key, and value to all be  at least 2 dimensional, but got "
            f"query.dim(): {query.dim()}, key.dim(): {key.dim()} and value.dim(): {value.dim()} "
            "instead."
        )
    if not q.dtype == k.dtype == v.dtype:
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{query.dtype} key.dtype: {key.dtype} and value.dtype: {value.dtype} instead."
        )
    if mask is not None:
        if causal:
            raise RuntimeError(f"{where}: Explicit attn_mask should not be set when is_causal=True")
        if (
            mask.dtype is not dtypes.bool_
            and mask.dtype is not query.dtype
            and (mask.dtype is not dtypes.float32)
        ):
            raise RuntimeError(
                "Expected attn_mask dtype to be bool or float or to match query dtype, but got "
                f"attn_mask.dtype: {mask.dtype} and  query.dtype: {query.dtype} instead."
            )


# Several heads ------------------------------------------------------------------------------------


def _canonical_mask(
    mask: Tensor | None, mask_name: str, other_type: Any, other_name: str, target_type: Any,
    check_other: bool = True,
) -> Tensor | None:  # fmt: skip
    """A mask as numbers to be added: -inf where a bool one is True.

    Warns where another mask, of dtype `other_type`, is bool and this one is not, or the reverse.
    """
    if mask is None:
        return None
    if check_other and other_type is not None and mask.dtype is not other_type:
        warnings.warn(
            f"Support for mismatched {mask_name} and {other_name} is deprecated. "
            "Use same type for both instead.", stacklevel=3,
        )  # fmt: skip
    if mask.dtype is dtypes.bool_:
        return recorded.masked_fill(
            zeros(mask.shape, dtype=target_type, device=mask.device), mask, float("-inf")
        )
    if not mask.is_floating_point():
        raise AssertionError(f"only bool and floating types of {mask_name} are supported")
    return mask


def _batched_shapes(query: Tensor, key: Tensor, value: Tensor, heads: int, **masks: Any) -> bool:
    """Whether the inputs have a batch dimension; AssertionError where they disagree."""
    if query.dim() not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {query.dim()}-D query "
            "tensor"
        )
    if key.dim() != query.dim() or value.dim() != query.dim():
        raise AssertionError(
            f"For {'batched' if query.dim() == 3 else 'unbatched'} ({query.dim()}-D) `query`, "
            f"expected `key` and `value` to be {query.dim()}-D but found {key.dim()}-D and "
            f"{value.dim()}-D tensors respectively"
        )
    return query.dim() == 3


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of `num_heads` heads: (output (L, N, E), weights (N, L, S) or None).

    `query` is (L, N, E), `key` and `value` (S, N, ...), or all without N. `nn.MultiheadAttention`
    says what the parameters mean. `is_causal` is a hint that `attn_mask` is the causal one.

    Raises AssertionError and RuntimeError for shapes that do not fit, as PyTorch does.
    """
    batched = _batched_shapes(query, key, value, num_heads)
    is_self = query is key and key is value
    if not batched:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module "
            "method `generate_square_subsequent_mask` to create this mask."
        )
    length, count, width = query.shape
    if width != embed_dim_to_check:
        raise AssertionError(
            f"was expecting embedding dimension of {embed_dim_to_check}, but got {width}"
        )
    size = width // num_heads
    if size * num_heads != width:
        raise AssertionError(f"embed_dim {width} not divisible by num_heads {num_heads}")
    weights: Any = (q_proj_weight, k_proj_weight, v_proj_weight)
    biases: Any = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
    if not use_separate_proj_weight:
        if key.shape != value.shape:
            raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")
        if in_proj_weight is None:
            raise AssertionError("use_separate_proj_weight is False but in_proj_weight is None")
        weights = None if is_self else in_proj_weight.chunk(3)
    elif any(w is None for w in weights):
        raise AssertionError("use_separate_proj_weight is True but a projection weight is None")
    if weights is None:  # one product: parts of the weight would be kept, wherever that lives
        q, k, v = recorded.linear(query, in_proj_weight, in_proj_bias).chunk(3, -1)
    else:
        rows = zip((query, key, value), weights, biases)
        q, k, v = [recorded.linear(x, w, b) for x, w, b in rows]
    kind = None if attn_mask is None else attn_mask.dtype
    padding = _canonical_mask(key_padding_mask, "key_padding_mask", kind, "attn_mask", query.dtype)
    mask = _canonical_mask(attn_mask, "attn_mask", None, "", query.dtype, check_other=False)
    mask = _checked_mask(mask, length, key.shape[0], count * num_heads)
    if bias_k is not None and bias_v is not None:
        if static_k is not None or static_v is not None:
            raise AssertionError("bias cannot be added to static key or value.")
        k, v = cat([k, bias_k.repeat(1, count, 1)]), cat([v, bias_v.repeat(1, count, 1)])
        mask, padding = _wider(mask), _wider(padding)
    q = q.reshape(length, count * num_heads, size).transpose(0, 1)
    k = _heads(k, static_k, count * num_heads, size, "static_k")
    v = _heads(v, static_v, count * num_heads, size, "static_v")
    if add_zero_attn:
        empty = zeros((count * num_heads, 1, size), dtype=k.dtype, device=k.device)
        k, v = cat([k, empty], 1), cat([v, empty], 1)
        mask, padding = _wider(mask), _wider(padding)
    keys = k.shape[1]
    if padding is not None:
        if padding.shape != (count, keys):
            raise AssertionError(
                f"expecting key_padding_mask shape of {(count, keys)}, but got {padding.shape}"
            )
        padding = padding.reshape(count, 1, 1, keys).expand(count, num_heads, 1, keys)
        padding = padding.reshape(count * num_heads, 1, keys)
        mask = padding if mask is None else mask + padding
    p = dropout_p if training else 0.0
    if need_weights:
        scores = (q * math.sqrt(1.0 / size)) @ k.transpose(-2, -1)
        if mask is not None:
            scores = scores + mask
        shares = dropout(recorded.softmax(scores, 2), p)
        output = shares @ v
        shares = shares.reshape(count, num_heads, length, keys)
        if average_attn_weights:
            shares = shares.mean(1)
        shares = shares if batched else shares.squeeze(0)
    else:
        output = scaled_dot_product_attention(q, k, v, mask, p)
        shares = None
    output = output.transpose(0, 1).reshape(length * count, width)
    output = recorded.linear(output, out_proj_weight, out_proj_bias)
    output = output.reshape(length, count, output.shape[1])
    return (output if batched else output.squeeze(1)), shares


def _checked_mask(mask: Tensor | None, length: int, keys: int, rows: int) -> Tensor | None:
    if mask is None:
        return None
    if mask.dim() == 2:
        if mask.shape != (length, keys):
            raise RuntimeError(
                f"The shape of the 2D attn_mask is {mask.shape}, but should be {(length, keys)}."
            )
        return mask.unsqueeze(0)
    if mask.dim() == 3:
        if mask.shape != (rows, length, keys):
            raise RuntimeError(
                f"The shape of the 3D attn_mask is {mask.shape}, but should be "
                f"{(rows, length, keys)}."
            )
        return mask
    raise RuntimeError(f"attn_mask's dimension {mask.dim()} is not supported")


def _wider(mask: Tensor | None) -> Tensor | None:
    """A mask with a column for a key that every query sees."""
    return None if mask is None else pad(mask, (0, 1))


def _heads(x: Tensor, static: Tensor | None, rows: int, size: int, name: str) -> Tensor:
    if static is None:
        return x.reshape(x.shape[0], rows, size).transpose(0, 1)
    if static.shape[0] != rows or static.shape[2] != size:
        raise AssertionError(
            f"expecting {name} of sizes ({rows}, *, {size}), but got {tuple(static.shape)}"
        )
    return static
