"""The activation functions of nn.functional, over the rows of ops.activation."""

from __future__ import annotations

import warnings
from typing import Any

from ... import dtypes
from ...autograd.recording.inplace import apply_inplace
from ...autograd.recording.operands import number
from ...autograd.recording.record import recorded
from ...backends import backend_of
from ...functions.calls.arguments import array_of, cast, of_reals
from ...functions.creation.random import Generator, source_of
from ...ops import random as draw
from ...ops.dims import canonical_dim
from ...ops.table import TABLE
from ...tensor import Tensor, make

__all__ = [
    "celu", "celu_", "elu", "elu_", "gelu", "glu", "gumbel_softmax", "hardshrink", "hardsigmoid",
    "hardswish", "hardtanh", "hardtanh_", "leaky_relu", "leaky_relu_", "log_softmax", "logsigmoid",
    "mish", "prelu", "relu", "relu6", "relu_", "rrelu", "rrelu_", "selu", "selu_", "sigmoid",
    "silu", "softmax", "softmin", "softplus", "softshrink", "softsign", "tanh", "tanhshrink",
    "threshold", "threshold_",
]  # fmt: skip

# Of "Self-Normalizing Neural Networks", https://arxiv.org/abs/1706.02515, to PyTorch's digits.
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def _run(row: str, input: Tensor, inplace: bool, **params: Any) -> Tensor:
    if not inplace:
        return getattr(recorded, row)(input, **params)
    op = TABLE[row]
    return apply_inplace(op, (input,), {**op.defaults, **params})


# Rectifiers ---------------------------------------------------------------------------------------


def relu(input: Tensor, inplace: bool = False, *, keep_bits: bool = False) -> Tensor:
    """max(input, 0), element by element.

    Backward needs the result, which a linear layer or a convolution keeps anyway. Where nothing
    else keeps it, before a pooling, an addition or a mean, `keep_bits` keeps one bit for each
    element instead.

    >>> import cugrad as torch
    >>> x = torch.tensor([-1.0, 2.0], requires_grad=True)
    >>> y = torch.nn.functional.relu(x, keep_bits=True)
    >>> y.grad_fn._saved_bits
    tensor([64], dtype=torch.uint8)
    """
    if not keep_bits:
        return _run("relu", input, True) if inplace else recorded.relu(input)
    array = input._array
    bits = make(backend_of(array).xp.packbits(~(array <= 0).reshape(-1)))  # nan stays
    if not inplace:
        return recorded.where_bits(input, bits)
    return apply_inplace(TABLE["where_bits"], (input, bits))


def relu_(input: Tensor) -> Tensor:
    """`relu` in place."""
    return _run("relu", input, True)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(input, 0), 6)."""
    return _run("hardtanh", input, inplace, min_val=0.0, max_val=6.0)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """`input` where it is positive, else `negative_slope * input`."""
    negative_slope = number(negative_slope, "leaky_relu", "negative_slope")
    if negative_slope < 0:  # the sign of the result does not tell that of the input
        array = input._array
        chosen = backend_of(array).xp.where(array > 0, 1.0, negative_slope)
        slope = make(chosen.astype(array.dtype))
        return input.mul_(slope) if inplace else input * slope
    return _run("leaky_relu", input, inplace, negative_slope=negative_slope)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """`leaky_relu` in place."""
    return leaky_relu(input, negative_slope, True)


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """`leaky_relu` with a slope per element, drawn from [lower, upper) in training, else the mean.

    Source: Xu et al. 2015, https://arxiv.org/abs/1505.00853.
    """
    return randomly_leaky(input, lower, upper, training, None, inplace)


def randomly_leaky(
    input: Tensor, lower: float, upper: float, training: bool, generator: Generator | None,
    inplace: bool,
) -> Tensor:  # fmt: skip
    """`rrelu`, whose slopes a generator draws."""
    if lower > upper:
        raise RuntimeError(
            f"Lower bound should be less than or equal to the upper bound: got {lower} and {upper}"
        )
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    drawn = draw.uniform(
        source_of(generator), input._array.shape, input._array.dtype, input.device, lower, upper
    )
    slope = recorded.where(input.detach() > 0, 1.0, make(drawn))
    return input.mul_(slope) if inplace else input * slope


def rrelu_(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """`rrelu` in place."""
    return randomly_leaky(input, lower, upper, training, generator, True)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """`input` where it is positive, else `weight * input`; one weight, or one for each channel.

    Channels are dim 1. RuntimeError where the number of weights is neither.
    """
    array_of(input, "prelu"), array_of(weight, "prelu", "weight", 2)
    if weight.dim() > 1:
        raise RuntimeError(
            f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.dim()}"
        )
    if weight.numel() == 1:
        return recorded.prelu_kernel(input, weight.reshape((1,) * input.dim()))
    if not input.dim():
        raise RuntimeError("prelu: Not allow zero-dim input tensor.")
    channels = input.shape[1] if input.dim() > 1 else 1
    if weight.numel() != channels:
        raise RuntimeError(
            "prelu: Mismatch of parameter numbers and input channel size. Found parameter numbers "
            f"= {weight.numel()} and channel size = {channels}."
        )
    return recorded.prelu_kernel(input, weight.reshape(-1, *(1,) * (input.dim() - 2)))


def threshold(
    input: Tensor, threshold: float, value: float, inplace: bool = False
) -> Tensor:  # fmt: skip
    """`input` where it is greater than `threshold`, else `value`."""
    return _run("threshold", input, inplace, threshold=threshold, value=value)


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """`threshold` in place."""
    return _run("threshold", input, True, threshold=threshold, value=value)


# Exponential units --------------------------------------------------------------------------------


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """`input` where it is positive, else alpha * (exp(input) - 1)."""
    return _run("elu", input, inplace, alpha=alpha)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`elu` in place."""
    return elu(input, alpha, True)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """`elu` with the alpha and scale at which layers keep mean 0 and variance 1.

    Source: https://arxiv.org/abs/1706.02515.
    """
    return _run("elu", input, inplace, alpha=_SELU_ALPHA, scale=_SELU_SCALE)


def selu_(input: Tensor) -> Tensor:
    """`selu` in place."""
    return selu(input, True)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """max(input, 0) + min(0, alpha * (exp(input / alpha) - 1))."""
    alpha = number(alpha, "celu", "alpha")
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return _run("celu", input, inplace, alpha=alpha)


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`celu` in place."""
    return celu(input, alpha, True)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """input * Φ(input), Φ the normal distribution function; "tanh" approximates it.

    Source: https://arxiv.org/abs/1606.08415. RuntimeError for another `approximate`.
    """
    if approximate not in ("none", "tanh"):
        raise RuntimeError(
            f"gelu: approximate argument must be either none or tanh, got {approximate!r}"
        )
    return recorded.gelu(input, approximate)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """input * sigmoid(input)."""
    return _run("silu", input, inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * tanh(softplus(input))."""
    return _run("mish", input, inplace)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * input)) / beta; `input` itself where beta * input > threshold."""
    return _run("softplus", input, False, beta=beta, threshold=threshold)


# Between two bounds -------------------------------------------------------------------------------


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-input))."""
    return recorded.sigmoid(input)


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(input)), without underflow."""
    return recorded.log_sigmoid(input)


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return recorded.tanh(input)


def softsign(input: Tensor) -> Tensor:
    """input / (1 + |input|)."""
    return input / (input.abs() + 1)


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """`input` limited to [min_val, max_val]; no gradient at the bounds."""
    min_val = number(min_val, "hardtanh", "min_val")
    max_val = number(max_val, "hardtanh", "max_val")
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    return _run("hardtanh", input, inplace, min_val=min_val, max_val=max_val)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """`hardtanh` in place."""
    return hardtanh(input, min_val, max_val, True)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """(input + 3) / 6, limited to [0, 1]."""
    return _run("hardsigmoid", input, inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * hardsigmoid(input). Source: https://arxiv.org/abs/1905.02244."""
    return _run("hardswish", input, inplace)


# Shrinking towards zero ---------------------------------------------------------------------------


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """0 in [-lambd, lambd], `input` elsewhere."""
    return _run("hardshrink", input, False, lambd=lambd)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """0 in [-lambd, lambd], and `input` nearer to zero by lambd elsewhere."""
    lambd = number(lambd, "softshrink", "lambd")
    if lambd < 0:
        raise RuntimeError(f"lambda must be greater or equal to 0, but found to be {lambd}.")
    return _run("softshrink", input, False, lambd=lambd)


def tanhshrink(input: Tensor) -> Tensor:
    """input - tanh(input)."""
    return input - recorded.tanh(input)


# Along a dim --------------------------------------------------------------------------------------


def implicit_dim(function: str, dim: int | None, input: Tensor, stacklevel: int = 3) -> int:
    """`dim`, or, with a warning, the one that PyTorch takes where none is given."""
    if dim is not None:
        return dim
    warnings.warn(
        f"Implicit dimension choice for {function} has been deprecated. Change the call to "
        "include dim=X as an argument.",
        stacklevel=stacklevel,
    )
    return 0 if input.dim() in (0, 1, 3) else 1


def softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: dtypes.dtype | None = None
) -> Tensor:
    """exp(input) / sum of it along `dim`; `dtype` casts the input first."""
    dim = implicit_dim("softmax", dim, input, _stacklevel)
    return recorded.softmax(input if dtype is None else cast(input, dtype), dim)


def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: dtypes.dtype | None = None
) -> Tensor:
    """The softmax of -input."""
    dim = implicit_dim("softmin", dim, input, _stacklevel)
    return recorded.softmax(-input if dtype is None else cast(-input, dtype), dim)


def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: dtypes.dtype | None = None
) -> Tensor:
    """The logarithm of softmax, computed without forming the softmax."""
    dim = implicit_dim("log_softmax", dim, input, _stacklevel)
    return recorded.log_softmax(input if dtype is None else cast(input, dtype), dim)


@of_reals
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half of `input` along `dim`, times the sigmoid of the second half.

    RuntimeError where that dim is odd.
    """
    if not input.dim():
        raise RuntimeError("glu does not support 0-dimensional tensors")
    dim = canonical_dim(dim, input.dim())
    size = input.shape[dim]
    if size % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim} is size {size}")
    half = size // 2
    value, gate = recorded.split_with_sizes(input, (half, half), dim % input.dim())
    return recorded.gate(value, gate)


def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """A sample of the Gumbel-softmax distribution with these logits, or `hard`, one-hot of it.

    The hard sample has the gradient of the soft one. Source: Jang et al. 2017,
    https://arxiv.org/abs/1611.01144.
    """
    if eps != 1e-10:
        warnings.warn("`eps` parameter is deprecated and has no effect.", stacklevel=2)
    dim = canonical_dim(dim, array_of(logits, "gumbel_softmax", "logits").ndim)
    drawn = draw.exponential(None, logits._array.shape, logits._array.dtype, logits.device)
    soft = recorded.softmax((logits - make(drawn).log()) / tau, dim)
    if not hard:
        return soft
    most = soft.detach().argmax(dim, keepdim=True)
    chosen = make(backend_of(soft._array).xp.zeros_like(soft._array)).scatter(dim, most, 1.0)
    return chosen - soft.detach() + soft
