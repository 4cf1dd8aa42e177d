"""torch.nn.attention.flex_attention: attention whose scores a function of yours changes."""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal, NamedTuple, TypedDict

import numpy as np

from ... import dtypes
from ...autograd.autocast import autocasts
from ...autograd.recording.record import recorded
from ...functions.calls.arguments import of_reals
from ...runtime.absent import explain
from ...tensor import Tensor
from ..functional.attention import scaled_dot_product_attention
from .block_mask import BlockMask, create_block_mask
from .masks import (
    Mod,
    and_masks,
    create_mask,
    noop_mask,
    or_masks,
    over_places,
    sliced_mask_mod_error,
)

__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "FlexKernelOptions", "and_masks", "create_block_mask",
    "create_mask", "flex_attention", "noop_mask", "or_masks",
]  # fmt: skip

explain(__name__)

# What programs call the types of such functions.
_mask_mod_signature = _score_mod_signature = Mod


class AuxRequest(NamedTuple):
    """What `flex_attention` is to give beside its result."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked of `flex_attention` beside its result, (B, Hq, L) each, or None."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


class FlexKernelOptions(TypedDict, total=False):
    """Hints to PyTorch's kernels, which are known and checked here, and change nothing.

    A name may begin with `fwd_` or `bwd_`.
    """

    num_warps: int
    num_stages: int
    BLOCK_M: int
    BLOCK_N: int
    BLOCK_M1: int
    BLOCK_N1: int
    BLOCK_M2: int
    BLOCK_N2: int
    PRESCALE_QK: bool
    ROWS_GUARANTEED_SAFE: bool
    BLOCKS_ARE_CONTIGUOUS: bool
    WRITE_DQ: bool
    FORCE_USE_FLEX_ATTENTION: bool
    USE_TMA: bool
    kpack: int
    matrix_instr_nonkdim: int
    waves_per_eu: int
    BACKEND: Literal["AUTO", "TRITON", "FLASH", "TRITON_DECODE"]


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Mod | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: FlexKernelOptions | None = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """softmax(score_mod(query @ key.mT * scale), where `block_mask` lets it) @ value.

    It is made of tensor functions and a `vmap` of what you pass: no kernel of its own, all scores
    (B, Hq, L, S) in memory at once, and nothing skipped for a sparse mask. Without a score_mod,
    and if nothing else is asked for, it is `scaled_dot_product_attention` with a dense mask. There
    are gradients of any order for query, key, value, and what `score_mod` reads. A query that sees
    no key gets 0, and an lse of -inf.

    Args:
        query, key, value: (B, Hq, L, E), (B, Hkv, S, E), (B, Hkv, S, Ev), of floating dtypes; with
            a mask for B, those of key and value may be 1.
        score_mod: (score, batch, head, q_idx, k_idx), tensors without dims, to the score that is
            used; the score is float64 for a float64 query, else float32, the others int64.
        block_mask: which keys count; its blocks that are not listed do not, whatever mask_mod says.
        scale: default 1 / sqrt(E).
        enable_gqa: Hq may be a multiple of Hkv.
        return_lse: deprecated, warns: the result is (output, lse).
        kernel_options: hints to PyTorch's kernels; they change nothing.
        return_aux: what else to give: the result is (output, AuxOutput); `lse` is the logsumexp of
            the scores, `max_scores` their maximum, without a gradient.

    The output is (B, Hq, L, Ev), of query's dtype.

    Raises ValueError for devices, numbers of heads, batches, embedding dims and masks that do not
    fit, and options that are not known; NotImplementedError for other than four dims and complex
    numbers; RuntimeError for dtypes, devices of masks, and the mask_mod of a slice.

    >>> import cugrad as torch
    >>> flex = torch.nn.attention.flex_attention
    >>> q = torch.ones(1, 2, 3, 4)
    >>> causal = flex.create_block_mask(lambda b, h, q, k: q >= k, None, None, 3, 3, device="cpu")
    >>> near = lambda score, b, h, q, k: score - (q - k) * 0.5
    >>> flex.flex_attention(q, q, q, near, causal).shape
    torch.Size([1, 2, 3, 4])
    """
    _check_operands(query, key, value, enable_gqa)
    _check_batches(query, key, block_mask)
    if block_mask is not None:
        _check_mask(block_mask, query, key)
    if return_lse and return_aux is not None:
        raise ValueError(
            "Cannot specify both return_lse and return_aux. return_lse is deprecated, please use "
            "return_aux=AuxRequest(lse=True) instead."
        )
    if return_lse:
        warnings.warn(
            "return_lse is deprecated and will be removed in v2.10. Please use "
            "return_aux=AuxRequest(lse=True) instead.", FutureWarning, stacklevel=2,
        )  # fmt: skip
    _check_options(kernel_options)
    if scale is None:
        scale = 1.0 / math.sqrt(query.shape[-1]) if query.shape[-1] else 1.0
    request = AuxRequest(lse=return_lse) if return_aux is None else return_aux
    output, aux = _attend(query, key, value, score_mod, block_mask, scale, request)
    if return_aux is not None:
        return output, aux
    return (output, aux.lse) if return_lse else output


def _flex_attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Mod | None,
    block_mask: BlockMask | None, scale: float, request: AuxRequest,
) -> tuple[Tensor, AuxOutput]:  # fmt: skip
    sizes = (*query.shape[:3], key.shape[2])
    mask = None if block_mask is None else block_mask.elements(sizes)
    if key.shape[0] != sizes[0]:
        key, value = (x.expand(sizes[0], *x.shape[1:]) for x in (key, value))
    if score_mod is None and not any(request) and query.dtype is key.dtype is value.dtype:
        grouped = key.shape[1] != sizes[1]
        result = scaled_dot_product_attention(
            query, key, value, mask, scale=scale, enable_gqa=grouped
        )
        return result, AuxOutput()
    wide = dtypes.float64 if query.dtype is dtypes.float64 else dtypes.float32
    groups = sizes[1] // key.shape[1] if key.shape[1] else 1
    key, value = (x.to(wide).repeat_interleave(groups, 1) for x in (key, value))
    scores = recorded.matmul(query.to(wide), recorded.mT(key)) * scale
    if score_mod is not None:
        scores = over_places(score_mod, sizes, scores.device, scores).to(wide)
    if mask is not None:
        scores = recorded.masked_fill(scores, ~mask, -math.inf)
    # a row of -inf alone has no softmax, and its gradient would be NaN: it is computed of zeros
    blind = (scores == -math.inf).all(-1, keepdim=True)
    shown = recorded.masked_fill(scores, blind, 0.0)
    weights = recorded.masked_fill(recorded.softmax(shown, 3), blind, 0.0)
    lse = most = None
    if request.lse:
        lse = recorded.masked_fill(shown.logsumexp(-1), blind.squeeze(-1), -math.inf)
    if request.max_scores:
        most = scores.detach().amax(-1)
    return recorded.matmul(weights, value).to(query.dtype), AuxOutput(lse, most)


_attend = autocasts(_flex_attention, "scaled_dot_product_attention")


# What does not fit --------------------------------------------------------------------------------


@of_reals
def _check_operands(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> None:
    if not query.device == key.device == value.device:
        raise ValueError(
            "Expected query, key, and value to have the same device type, but got query.device: "
            f"{query.device}, key.device: {key.device}, and value.device: {value.device} instead."
        )
    if min(query.dim(), key.dim(), value.dim()) < 2:
        raise ValueError(
            "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: "
            f"{query.dim()}, key.dim: {key.dim()} and value.dim: {value.dim()} instead."
        )
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            "Expect query and key/value to have the same embedding dimension but got "
            f"E={query.shape[-1]} and E={key.shape[-1]}."
        )
    if not query.dim() == key.dim() == value.dim() == 4:
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    if not all(x.dtype.is_floating_point for x in (query, key, value)):
        raise RuntimeError(
            "flex_attention: Expected query, key, and value of floating dtypes, but got "
            f"{query.dtype}, {key.dtype} and {value.dtype}; convert them with .float()"
        )
    heads, fewer = query.shape[1], key.shape[1]
    if not enable_gqa and heads != fewer:
        raise ValueError(
            "Expect query and key/value to have the same number of heads but got "
            f"Hq={heads} and Hkv={fewer}. Try setting enable_gqa=True for GQA."
        )
    if enable_gqa and (heads % fewer if fewer else heads):
        raise ValueError(
            "Expect number of query heads to be a multiple of kv heads for GQA but got "
            f"Hq={heads} and Hkv={fewer}."
        )
    if key.shape[:3] != value.shape[:3]:
        raise ValueError(
            "flex_attention: Expect key and value to have the same batch size, heads and length, "
            f"but got {list(key.shape[:3])} and {list(value.shape[:3])}."
        )


def _check_batches(query: Tensor, key: Tensor, mask: BlockMask | None) -> None:
    batch, fewer = query.shape[0], key.shape[0]
    if batch == fewer:
        return
    if mask is None:
        raise ValueError(
            "Expect query and key/value to have the same batch size, or non-none block_mask, "
            f"but got block_mask=None, Bq={batch}, and Bkv={fewer}."
        )
    if mask.kv_num_blocks.shape[0] != batch:
        raise ValueError(
            "Expect query and key/value to have the same batch size, or block_mask and query to "
            f"have the same batch size, but got Bq={batch}, Bkv={fewer}, "
            f"B_block_mask={mask.kv_num_blocks.shape[0]}."
        )
    if fewer != 1:
        raise RuntimeError(f"Bq and Bkv must broadcast. Got Bq={batch} and Bkv={fewer}")


def _check_mask(mask: BlockMask, query: Tensor, key: Tensor) -> None:
    if mask.mask_mod is sliced_mask_mod_error:
        raise RuntimeError("Cannot use mask_mod from a sliced BlockMask")
    queries, keys = query.shape[2], key.shape[2]
    if (queries, keys) != tuple(mask.seq_lengths):
        smaller = queries > mask.seq_lengths[0] or keys > mask.seq_lengths[1]
        raise ValueError(
            f"block_mask was created for block_mask.shape={mask.shape} but got q_len={queries} and "
            f"kv_len={keys}. As the block mask was created for a "
            + (
                "smaller length than you're using it for, you likely need to create a new block "
                "mask."
                if smaller
                else "larger length than you're using it for, you can either 1. create a new block "
                "mask with the correct length, or 2. 'adjust' the existing block mask to the "
                "correct length by calling block_mask._adjust(q_len, kv_len). This essentially "
                "'crops' the block mask to the upper left corner, which does not work for all "
                "mask_mods!"
            )
        )
    lead, whole = tuple(mask.shape[:-2]), tuple(query.shape[:2])
    try:
        fits = np.broadcast_shapes(lead, whole) == whole
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"flex_attention: block_mask.shape={mask.shape} is for {lead} batches and heads, but "
            f"query has {whole}; create it with B and H of query's, or None"
        )
    if query.device != mask.kv_num_blocks.device:
        raise RuntimeError(
            "Expect q/k/v and block_mask to be on the same device but got "
            f"{query.device} and {mask.kv_num_blocks.device}."
        )


def _check_options(options: FlexKernelOptions | None) -> None:
    if not options:
        return
    ways = ("AUTO", "TRITON", "FLASH", "TRITON_DECODE")
    if "BACKEND" in options and options.get("FORCE_USE_FLEX_ATTENTION"):
        raise RuntimeError(
            "BACKEND cannot be combined with legacy FORCE_USE_FLEX_ATTENTION. BACKEND supersedes "
            "the legacy knob; please drop FORCE_USE_FLEX_ATTENTION and only specify the desired "
            "BACKEND."
        )
    way = options.get("BACKEND", "AUTO")
    if way not in ways:
        raise ValueError(f"Invalid BACKEND value '{way}'. Must be one of {ways}")
    if way != "AUTO":
        raise NotImplementedError(
            f"flex_attention: BACKEND='{way}' is a kernel of PyTorch's; here it is made of tensor "
            "functions: leave BACKEND out, or 'AUTO'"
        )
    for name in options:
        if name.removeprefix("fwd_").removeprefix("bwd_") not in FlexKernelOptions.__annotations__:
            raise ValueError(
                f"flex_attention: kernel_options has no {name!r}; it knows "
                + ", ".join(FlexKernelOptions.__annotations__)
            )
