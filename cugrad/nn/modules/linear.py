"""The fully connected layers of one input and of two, and the layer that does nothing."""

from __future__ import annotations

from typing import Any

from ...autograd.mode import no_grad
from ...dtypes import dtype as DType
from ...functions.creation.factories import empty
from ...linalg.distances import bilinear
from ...tensor import Tensor
from .. import init
from ..functional.linear import linear
from ..parameter import Parameter
from .lazy import LazyModuleMixin
from .module import Module

__all__ = ["Bilinear", "Identity", "LazyLinear", "Linear"]


class Identity(Module):
    """Gives back its input; takes and ignores any arguments, to stand in for another layer.

    >>> from cugrad import nn
    >>> nn.Identity(54)(7)
    7
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        """The input, untouched."""
        return input


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
        return linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Sizes and bias."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class NonDynamicallyQuantizableLinear(Linear):
    """What `MultiheadAttention` has for `out_proj`: programs that replace layers see by the class
    that its `forward` is not called."""


class LazyLinear(LazyModuleMixin, Linear):
    """A Linear whose `in_features` is the last extent of its first input.

    >>> import cugrad as torch
    >>> layer = torch.nn.LazyLinear(2)
    >>> layer(torch.ones(5, 3)).shape
    torch.Size([5, 2])
    """

    cls_to_become = Linear

    def __init__(
        self, out_features: int, bias: bool = True, device: Any = None, dtype: DType | None = None
    ) -> None:
        super().__init__(0, 0, False)
        self.out_features = out_features
        self._declare("weight bias" if bias else "weight", device, dtype)

    def reset_parameters(self) -> None:
        """Draw new initial values, once there is room for them."""
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Take the size of `input`."""
        columns = input.shape[-1]
        if self.has_uninitialized_params():
            with no_grad():
                self.in_features = columns
                self.weight.materialize((self.out_features, columns))
                if self.bias is not None:
                    self.bias.materialize((self.out_features,))
                self.reset_parameters()
        if self.in_features == 0:  # the parameters were loaded
            if columns != self.weight.shape[-1]:
                raise AssertionError(
                    f"The in_features inferred from input: {columns} is not equal to in_features "
                    f"from self.weight: {self.weight.shape[-1]}"
                )
            self.in_features = columns


class Bilinear(Module):
    """y = x1ᵀ A x2 + bias, for x1 of shape (..., in1_features) and x2 of (..., in2_features).

    `weight` has shape (out_features, in1_features, in2_features); it and `bias` start uniform on
    ±1/√in1_features.

    >>> import cugrad as torch
    >>> torch.nn.Bilinear(2, 3, 4)(torch.ones(5, 2), torch.ones(5, 3)).shape
    torch.Size([5, 4])
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got ({in1_features=})")
        self.in1_features, self.in2_features = in1_features, in2_features
        self.out_features = out_features
        shape = (out_features, in1_features, in2_features)
        self.weight = Parameter(empty(shape, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        bound = self.in1_features**-0.5
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """Apply the layer to the last dimensions."""
        return bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Sizes and bias."""
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )
