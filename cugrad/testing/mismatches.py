"""What an error of a comparison says: which values differ, and by how much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..dtypes import float32, int64
from ..tensor import Tensor

__all__ = ["ErrorMeta", "make_scalar_mismatch_msg", "make_tensor_mismatch_msg"]

Identifier = str | Callable[[str], str] | None


class ErrorMeta(Exception):
    """A difference: the class and the text of the error for the user, and where it was found."""

    def __init__(self, type: type[Exception], msg: str, *, id: tuple[Any, ...] = ()) -> None:
        super().__init__(f"{msg} (raise what to_error() gives)")
        self.type, self.msg, self.id = type, msg, id

    def to_error(self, msg: str | Callable[[str], str] | None = None) -> Exception:
        """The error, with a text of the caller's, or what a function makes of the text."""
        if isinstance(msg, str):
            return self.type(msg)
        where = "".join(f"[{item!r}]" for item in self.id)
        text = f"{self.msg}\n\nThe failure occurred for item {where}" if where else self.msg
        return self.type(text if msg is None else msg(text))


def make_scalar_mismatch_msg(
    actual: Any, expected: Any, *, rtol: float, atol: float, identifier: Identifier = None
) -> str:
    """The text for two numbers that differ."""
    difference = abs(actual - expected)
    relative = float("inf") if expected == 0 else difference / abs(expected)
    lines = _head("Scalars", identifier, rtol, atol)
    lines.append(f"Expected {expected} but got {actual}.")
    for name, value, allowed in (("Absolute", difference, atol), ("Relative", relative, rtol)):
        lines.append(f"{name} difference: {value}{_limit(allowed, rtol, atol)}")
    return "\n".join(lines)


def make_tensor_mismatch_msg(
    actual: Tensor, expected: Tensor, matches: Tensor, *, rtol: float, atol: float,
    identifier: Identifier = None,
) -> str:  # fmt: skip
    """The text for two tensors of one shape: how many elements differ, and where they do most."""
    count, size = int((~matches).sum()), matches.numel()
    lines = _head("Tensor-likes", identifier, rtol, atol)
    lines.append(f"Mismatched elements: {count} / {size} ({count / size:.1%})")
    if actual.dtype.is_floating_point and actual.dtype.itemsize == 1:
        lines[0] = lines[0].replace("not equal", "not 'equal'").replace("not close", "not 'equal'")
        first = tuple((~matches).nonzero()[0].tolist())
        return "\n".join([*lines, f"The first mismatched element is at index {first}."])
    if actual.dtype.category < float32.category:  # a uint8 cannot be negative
        actual, expected = actual.to(int64), expected.to(int64)
    difference = (actual - expected).abs()
    relative = (difference / expected.abs()).masked_fill(matches, 0)
    difference = difference.masked_fill(matches, 0)
    for name, values, allowed in (("absolute", difference, atol), ("relative", relative, rtol)):
        flat = int(values.argmax())
        value = values.reshape(-1)[flat].item()
        index = tuple(int(i) for i in np.unravel_index(flat, tuple(values.shape)))
        limit = _limit(allowed, rtol, atol)
        lines.append(f"Greatest {name} difference: {value} at index {index}{limit}")
    return "\n".join(lines)


def _head(what: str, identifier: Identifier, rtol: float, atol: float) -> list[str]:
    if identifier is not None:
        what = identifier if isinstance(identifier, str) else identifier(what)
    return [f"{what} are not {'close' if rtol or atol else 'equal'}!", ""]


def _limit(allowed: float, rtol: float, atol: float) -> str:
    return f" (up to {allowed} allowed)" if rtol or atol else ""
