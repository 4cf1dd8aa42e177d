"""Masks of attention that are written as functions of batch, head, query and key."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ... import dtypes
from ...accelerator import current_accelerator
from ...func import vmap
from ...functions.creation.factories import zeros
from ...functions.creation.ranges import arange
from ...tensor import Tensor

__all__ = ["and_masks", "create_mask", "noop_mask", "or_masks"]

Mod = Callable[..., Tensor]


def over_places(mod: Mod, sizes: tuple[int, ...], device: Any, *scores: Tensor) -> Tensor:
    """A function of (batch, head, query, key), each a number, at every place: of shape `sizes`.

    With `scores`, of that shape, it is a function of the score there and of the place.
    """
    for dim in (3, 2, 1, 0):
        own = [0 if dim == place else None for place in range(4)]
        mod = vmap(mod, in_dims=(*(0 for _ in scores), *own))
    result = mod(*scores, *(arange(size, device=device) for size in sizes))
    if tuple(result.shape) != sizes:
        raise RuntimeError(
            f"score_mod and mask_mod: got a result of shape {list(result.shape[4:])} at each "
            "place, want a tensor without dimensions there: they are called with single numbers"
        )
    return result


def is_score_mod(mod: Callable[..., Any]) -> bool:
    """Whether it takes a score before the four numbers of a place."""
    count = sum(
        p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        for p in inspect.signature(mod).parameters.values()
    )
    if count not in (4, 5):
        raise AssertionError(f"Expected 4 or 5 positional args, got {count}")
    return count == 5


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """A mask_mod by which every query sees every key: True, a bool tensor without dimensions.

    >>> import cugrad as torch
    >>> torch.nn.attention.flex_attention.noop_mask(*torch.zeros(4, dtype=torch.int64))
    tensor(True)
    """
    return batch.new_ones((), dtype=dtypes.bool_)


def _check_mods(mods: tuple[Mod, ...]) -> None:
    if not all(callable(mod) for mod in mods):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mods}")


def or_masks(*mask_mods: Mod) -> Mod:
    """A mask_mod that is True where any of `mask_mods` is; RuntimeError for what is no function.

    >>> import cugrad as torch
    >>> flex = torch.nn.attention.flex_attention
    >>> near = flex.or_masks(lambda b, h, q, k: q == k, lambda b, h, q, k: q == k + 1)
    >>> flex.create_mask(near, None, None, 2, 3, device="cpu")[0, 0]
    tensor([[ True, False, False],
            [ True,  True, False]])
    """
    _check_mods(mask_mods)

    def or_mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        result = b.new_zeros((), dtype=dtypes.bool_)
        for mod in mask_mods:
            result = result | mod(b, h, q_idx, kv_idx)
        return result

    return or_mask


def and_masks(*mask_mods: Mod) -> Mod:
    """A mask_mod that is True where all of `mask_mods` are; RuntimeError for what is no function.

    >>> import cugrad as torch
    >>> flex = torch.nn.attention.flex_attention
    >>> window = flex.and_masks(lambda b, h, q, k: q >= k, lambda b, h, q, k: q - k < 2)
    >>> flex.create_mask(window, None, None, 2, 3, device="cpu")[0, 0]
    tensor([[ True, False, False],
            [ True,  True, False]])
    """
    _check_mods(mask_mods)

    def and_mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        result = b.new_ones((), dtype=dtypes.bool_)
        for mod in mask_mods:
            result = result & mod(b, h, q_idx, kv_idx)
        return result

    return and_mask


def sliced_mask_mod_error(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    """Stands for the mask_mod of a BlockMask that was sliced, whose places are others: raises."""
    raise RuntimeError(
        "Cannot use mask_mod from a sliced BlockMask. When you slice a BlockMask using [], the "
        "mask_mod attribute is reset. You must set it from the original BlockMask's mask_mod: "
        "sliced_mask.mask_mod = apply_offset(base_mask.mask_mod, offset)"
    )


def create_mask(
    mod_fn: Mod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None
) -> Tensor:  # fmt: skip
    """A function of places as a bool tensor (B, H, Q_LEN, KV_LEN): True where a key counts.

    Args:
        mod_fn: a mask_mod(b, h, q_idx, kv_idx), or a score_mod(score, b, h, q_idx, kv_idx), whose
            mask is False where it makes -inf of a score of 0.
        B, H: 1 where None.
        device: by default the accelerator, or the CPU.

    Raises AssertionError for a function of other than 4 or 5 arguments.

    >>> import cugrad as torch
    >>> flex = torch.nn.attention.flex_attention
    >>> flex.create_mask(lambda b, h, q, k: q >= k, None, None, 2, 2, device="cpu").tolist()
    [[[[True, False], [True, True]]]]
    """
    if device is None:
        device = current_accelerator() or "cpu"
    sizes = (1 if B is None else B, 1 if H is None else H, Q_LEN, KV_LEN)
    if not is_score_mod(mod_fn):
        return over_places(mod_fn, sizes, device)
    return ~over_places(mod_fn, sizes, device, zeros(sizes, device=device)).isneginf()
