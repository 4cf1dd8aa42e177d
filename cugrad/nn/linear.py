"""Linear: the fully connected layer."""

from __future__ import annotations

from typing import Any

from ..creation import empty
from ..dtypes import dtype as DType
from ..tensor import Tensor
from . import functional, init
from .module import Module
from .parameter import Parameter


class Linear(Module):
    """y = x @ weight.T + bias, for x of shape (..., in_features).

    `weight` has shape (out_features, in_features), `bias` (out_features,); both start uniform
    on ±1/√in_features.

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> nn.Linear(3, 2)(torch.ones(5, 3)).shape
    torch.Size([5, 2])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(empty((out_features, in_features), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        init.reset_affine(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer to the last dimension."""
        return functional.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Sizes and bias."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
