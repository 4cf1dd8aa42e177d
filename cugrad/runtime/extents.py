"""What belongs to a dimension that a user names: its extent, its stride."""

from __future__ import annotations

from typing import Any

from .frames import called

__all__ = ["of_dim"]


def of_dim(values: tuple[int, ...], dim: Any) -> int:
    """What belongs to one dimension; PyTorch's errors where there is no such, or it is no int."""
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
    except TypeError:
        text = f"{called()}(): argument 'dim' must be int, not {type(dim).__name__}: got {dim!r}"
        raise TypeError(text) from None
    raise IndexError(text)
