"""Activation functions as modules, for tensors of any shape."""

from __future__ import annotations

import warnings
from typing import Any

from ...dtypes import dtype as DType
from ...functions.creation.factories import empty
from ...tensor import Tensor
from .. import init
from ..functional import activation as functional
from ..parameter import Parameter
from .attention import MultiheadAttention
from .module import Module

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU",
    "LogSigmoid", "LogSoftmax", "Mish", "MultiheadAttention", "PReLU", "RReLU", "ReLU", "ReLU6",
    "SELU", "SiLU", "Sigmoid", "Softmax", "Softmax2d", "Softmin", "Softplus", "Softshrink",
    "Softsign", "Tanh", "Tanhshrink", "Threshold",
]  # fmt: skip


class _InPlace(Module):
    """A module with no setting but whether it writes into its input."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        """`inplace=True` or nothing."""
        return "inplace=True" if self.inplace else ""

    def _also(self) -> str:
        """The same, behind other settings."""
        return ", inplace=True" if self.inplace else ""


class ReLU(_InPlace):
    """max(x, 0), element by element; `inplace` writes it into the input.

    `keep_bits` keeps one bit for each element for backward instead of the result; that saves memory
    where the next layer does not keep the result anyway, such as a pooling.

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> nn.ReLU()(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    def __init__(self, inplace: bool = False, *, keep_bits: bool = False) -> None:
        super().__init__(inplace)
        self.keep_bits = keep_bits

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor of any shape."""
        return functional.relu(input, self.inplace, keep_bits=self.keep_bits)


class Hardtanh(_InPlace):
    """x limited to [min_val, max_val].

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> nn.Hardtanh(0.0, 2.0)(torch.tensor([-1.0, 1.0, 3.0]))
    tensor([0., 1., 2.])
    """

    def __init__(
        self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False,
        min_value: float | None = None, max_value: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(inplace)
        for old, new, value in (("min_value", "min_val", min_value),
                                ("max_value", "max_val", max_value)):  # fmt: skip
            if value is not None:
                text = f"keyword argument `{old}` is deprecated and rename to `{new}`"
                warnings.warn(text, FutureWarning, stacklevel=2)
        min_val = min_val if min_value is None else min_value
        max_val = max_val if max_value is None else max_value
        if max_val <= min_val:
            raise AssertionError(f"max_val ({max_val}) must be greater than min_val ({min_val})")
        self.min_val, self.max_val = min_val, max_val

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor of any shape."""
        return functional.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        """The bounds."""
        return f"min_val={self.min_val}, max_val={self.max_val}{self._also()}"


class ReLU6(Hardtanh):
    """min(max(x, 0), 6)."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        """`inplace=True` or nothing."""
        return _InPlace.extra_repr(self)


class LeakyReLU(_InPlace):
    """x where it is positive, else negative_slope * x."""

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.negative_slope = negative_slope

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor of any shape."""
        return functional.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        """The slope."""
        return f"negative_slope={self.negative_slope}{self._also()}"


class PReLU(Module):
    """x where it is positive, else weight * x, with one learned weight or one per channel (dim 1).

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> nn.PReLU()(torch.tensor([-1.0, 2.0])).detach()
    tensor([-0.2500,  2.0000])
    """

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None,
        dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weights to their initial value."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to (N, C, ...), or with one weight to any shape."""
        return functional.prelu(input, self.weight)

    def extra_repr(self) -> str:
        """How many weights."""
        return f"num_parameters={self.num_parameters}"


class Threshold(_InPlace):
    """x where it is greater than `threshold`, else `value`."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.threshold, self.value = threshold, value

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor of any shape."""
        return functional.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        """The settings."""
        return f"threshold={self.threshold}, value={self.value}{self._also()}"


class _Alpha(_InPlace):
    """Settings of ELU and CELU."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = alpha

    def extra_repr(self) -> str:
        """alpha."""
        return f"alpha={self.alpha}{self._also()}"


class ELU(_Alpha):
    """x where it is positive, else alpha * (exp(x) - 1)."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor of any shape."""
        return functional.elu(input, self.alpha, self.inplace)


class CELU(_Alpha):
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor of any shape."""
        return functional.celu(input, self.alpha, self.inplace)


class SELU(_InPlace):
    """ELU scaled so that layers keep mean 0 and variance 1: https://arxiv.org/abs/1706.02515."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor of any shape."""
        return functional.selu(input, self.inplace)


class GELU(Module):
    """x * Φ(x), Φ the normal distribution function; `approximate="tanh"` approximates it.

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> nn.GELU()(torch.tensor([-1.0, 2.0]))
    tensor([-0.1587,  1.9545])
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor of any shape."""
        return functional.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        """The approximation."""
        return f"approximate={self.approximate!r}"


class SiLU(_InPlace):
    """x * sigmoid(x)."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor of any shape."""
        return functional.silu(input, self.inplace)


class Mish(_InPlace):
    """x * tanh(softplus(x))."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor of any shape."""
        return functional.mish(input, self.inplace)


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta; x itself where beta * x > threshold."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor of any shape."""
        return functional.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        """The settings."""
        return f"beta={self.beta}, threshold={self.threshold}"


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor of any shape."""
        return functional.sigmoid(input)


class LogSigmoid(Module):
    """log(sigmoid(x)), without underflow."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor of any shape."""
        return functional.logsigmoid(input)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor of any shape."""
        return functional.tanh(input)


class Softsign(Module):
    """x / (1 + |x|)."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor of any shape."""
        return functional.softsign(input)


class Tanhshrink(Module):
    """x - tanh(x)."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor of any shape."""
        return functional.tanhshrink(input)


class Hardsigmoid(_InPlace):
    """(x + 3) / 6, limited to [0, 1]."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor of any shape."""
        return functional.hardsigmoid(input, self.inplace)

    def extra_repr(self) -> str:
        """Nothing, as PyTorch has it."""
        return ""


class Hardswish(_InPlace):
    """x * hardsigmoid(x)."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor of any shape."""
        return functional.hardswish(input, self.inplace)

    def extra_repr(self) -> str:
        """Nothing, as PyTorch has it."""
        return ""


class _Shrink(Module):
    """Settings of the shrinks."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        """lambd."""
        return str(self.lambd)


class Hardshrink(_Shrink):
    """0 in [-lambd, lambd], x elsewhere."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor of any shape."""
        return functional.hardshrink(input, self.lambd)


class Softshrink(_Shrink):
    """0 in [-lambd, lambd], and x nearer to zero by lambd elsewhere."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor of any shape."""
        return functional.softshrink(input, self.lambd)


class GLU(Module):
    """The first half along `dim`, times the sigmoid of the second half."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor with an even size along `dim`."""
        return functional.glu(input, self.dim)

    def extra_repr(self) -> str:
        """The dim."""
        return f"dim={self.dim}"


class _Softmax(Module):
    """Settings of the softmax family."""

    _of_older_files = {"dim": None}

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        """The dim."""
        return f"dim={self.dim}"


class Softmax(_Softmax):
    """exp(x) / sum of it along `dim`.

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> nn.Softmax(dim=0)(torch.zeros(2))
    tensor([0.5000, 0.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor of any shape."""
        return functional.softmax(input, self.dim)


class Softmin(_Softmax):
    """The softmax of -x."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor of any shape."""
        return functional.softmin(input, self.dim)


class LogSoftmax(_Softmax):
    """The logarithm of softmax, computed without forming the softmax."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor of any shape."""
        return functional.log_softmax(input, self.dim)


class Softmax2d(Module):
    """The softmax over the channels of (N, C, H, W) or (C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it at every place."""
        if input.dim() not in (3, 4):
            raise ValueError(
                f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead"
            )
        return functional.softmax(input, -3)


class RReLU(Module):
    """A leaky ReLU whose slope is drawn from [lower, upper) in training, else their mean.

    Source: Xu et al. 2015, https://arxiv.org/abs/1505.00853.
    """

    def __init__(
        self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False
    ) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor of any shape."""
        return functional.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        """Bounds and mode."""
        inplace = ", inplace=True" if self.inplace else ""
        return f"lower={self.lower}, upper={self.upper}{inplace}"
