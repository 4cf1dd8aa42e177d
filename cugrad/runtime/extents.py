"""What belongs to a dimension that a user names: its extent, its stride."""

from __future__ import annotations

from typing import Any

__all__ = ["of_dim"]


def of_dim(values: tuple[int, ...], dim: Any) -> int:
    """What belongs to one dimension; IndexError, in PyTorch's words, where there is no such."""
    try:
        return values[dim]
    except IndexError:
        if not values:
            text = f"Dimension specified as {dim} but tensor has no dimensions"
        else:
            text = (
                "Dimension out of range (expected to be in range of "
                f"[-{len(values)}, {len(values) - 1}], but got {dim})"
            )
    raise IndexError(text)
