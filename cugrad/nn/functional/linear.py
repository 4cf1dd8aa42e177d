"""linear: a product with a weight, and a bias."""

from __future__ import annotations

from ...autograd.recording.record import recorded
from ...functions.calls.mistakes import MISTAKES, explained
from ...functions.maths.products import matmul
from ...tensor import Tensor

__all__ = ["linear"]


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias, for weight of shape (out_features, in_features), or one feature."""
    try:
        if weight.ndim == 1:  # one output, which has no dim
            out = matmul(input, weight)
            return out if bias is None else out + bias
        if weight.ndim > 2:
            raise RuntimeError(
                f"linear(): expected weight to have 1 or 2 dimensions, but it is {weight.ndim}D"
            )
        return recorded.linear(input, weight, bias)
    except MISTAKES as error:
        raise (explained(error) or error) from None
