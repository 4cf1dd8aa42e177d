"""Momentums that a scheduler changes against the learning rates."""

from __future__ import annotations

from typing import Any

from ..optimizer import Optimizer
from .scheduler import one_for_each_group

__all__ = ["begin_momentums", "set_momentum", "uses_beta1"]


def uses_beta1(optimizer: Optimizer) -> bool:
    """Whether the momentum of an optimizer is the first of its betas.

    ValueError if it has neither.
    """
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        raise ValueError(
            "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
        )
    return "betas" in optimizer.defaults


def set_momentum(group: dict[str, Any], momentum: Any, use_beta1: bool) -> None:
    """Sets the momentum of a group, wherever it has it."""
    if use_beta1:
        group["betas"] = (momentum, *group["betas"][1:])
    else:
        group["momentum"] = momentum


def begin_momentums(
    optimizer: Optimizer, base: Any, most: Any, use_beta1: bool, begins: bool
) -> tuple[list[Any], list[Any]]:
    """The least and the largest momentum of each group, which begins with the largest."""
    largest = one_for_each_group("max_momentum", optimizer, most)
    least = one_for_each_group("base_momentum", optimizer, base)
    if begins:
        for high, low, group in zip(largest, least, optimizer.param_groups, strict=True):
            set_momentum(group, high, use_beta1)
            group["max_momentum"], group["base_momentum"] = high, low
    return least, largest
