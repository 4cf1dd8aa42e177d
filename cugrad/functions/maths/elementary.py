"""Functions of single elements that are no row: parts of numbers, facts, lazy conjugates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...autograd.autocast import autocasts
from ...autograd.mode import will_change
from ...autograd.recording.inplace import apply_inplace
from ...autograd.recording.mirrors import bits
from ...autograd.recording.record import recorded
from ...autograd.recording.views import changed
from ...backends import backend_of
from ...backends.batched.arrays import raise_if_read
from ...dtypes import is_floating, type_name
from ...ops.table import TABLE
from ...tensor import Tensor
from ..calls.arguments import array_of
from ..calls.return_types import return_type
from ..creation.factories import full_like
from ..shapes.views import broadcast_tensors
from .arithmetic import INPLACE, conj

__all__ = [
    "conj_physical", "fill", "frexp", "is_conj", "is_neg", "is_nonzero", "is_same_size",
    "is_signed", "polar", "resolve_conj", "resolve_neg",
]  # fmt: skip
TAKES_OUT = frozenset(["conj_physical", "frexp", "polar"])


Frexp = return_type("frexp", "mantissa exponent")


def frexp(input: Tensor) -> Any:
    """The mantissa, in (-1, 1), and the exponent, int32, of which mantissa * 2**exponent is input.

    >>> import cugrad as torch
    >>> torch.frexp(torch.tensor([3.0, -8.0]))
    torch.return_types.frexp(
    mantissa=tensor([ 0.7500, -0.5000]),
    exponent=tensor([2, 4], dtype=torch.int32))
    """
    if not is_floating(array_of(input, "frexp").dtype):
        raise RuntimeError(f"torch.frexp() only supports floating-point dtypes, got {input.dtype}")
    return Frexp(*recorded.frexp(input))


@autocasts
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """The complex numbers of these absolute values and angles, real tensors of one dtype.

    >>> import cugrad as torch
    >>> torch.polar(torch.tensor([2.0]), torch.tensor([0.0]))
    tensor([2.+0.j])
    """
    for x, name, place in ((abs, "abs", 1), (angle, "angle", 2)):
        array_of(x, "polar", name, place)
    kinds = [type_name(x.dtype) for x in (abs, angle)]
    if kinds == ["Half", "Half"]:
        raise NotImplementedError("\"polar\" not implemented for 'Half'")
    if not {"Float", "Double"}.issuperset(kinds):
        raise RuntimeError(
            "Expected both inputs to be Half, Float or Double tensors but got "
            f"{kinds[0]} and {kinds[1]} (polar)"
        )
    if abs.dtype is not angle.dtype:
        raise RuntimeError(
            f"Expected object of scalar type {kinds[0]} but got scalar type {kinds[1]} for second "
            "argument"
        )
    if abs.shape != angle.shape:
        abs, angle = broadcast_tensors(abs, angle)
    return recorded.polar(abs, angle)


def fill(input: Tensor, value: Any) -> Tensor:
    """A tensor like `input` with every element `value`, a number or a 0-d tensor."""
    array_of(input, "fill")
    if not isinstance(value, Tensor):
        filled = full_like(input, value)
        return recorded.copy(input, filled) if input.requires_grad else filled
    if value.ndim:
        raise RuntimeError(
            "fill only supports 0-dimension value tensor but got tensor with "
            f"{value.ndim} dimensions."
        )
    return recorded.copy(input, value)


def conj_physical(input: Tensor) -> Tensor:
    """The complex conjugate, a tensor of its own; `input` itself where it is real."""
    return recorded.conj(input) if array_of(input, "conj_physical").dtype.kind == "c" else input


def resolve_conj(input: Tensor) -> Tensor:
    """A copy of a view of conjugates, which is none; any other tensor itself.

    >>> import cugrad as torch
    >>> x = torch.tensor([1 + 2j])
    >>> x.conj().is_conj(), x.conj().resolve_conj().is_conj(), x.resolve_conj() is x
    (True, False, True)
    """
    array_of(input, "resolve_conj")
    return recorded.clone(input) if bits(input).conjugate else input


def resolve_neg(input: Tensor) -> Tensor:
    """A copy of a view of negatives, which is none; any other tensor itself."""
    array_of(input, "resolve_neg")
    return recorded.clone(input) if bits(input).negative else input


def is_conj(input: Tensor) -> bool:
    """Whether a tensor is a view of conjugates of what lies in its memory, as `conj` gives."""
    array_of(input, "is_conj")
    return bits(input).conjugate


def is_neg(input: Tensor) -> bool:
    """Whether a tensor is a view of negatives of what lies in its memory: `x.conj().imag` is."""
    array_of(input, "is_neg")
    return bits(input).negative


def neg_view(input: Tensor) -> Tensor:
    """A view of the negatives: a change of either changes the other."""
    if array_of(input, "_neg_view").dtype.kind == "b":
        raise RuntimeError("Negation, the `-` operator, on a bool tensor is not supported.")
    return recorded._neg_view(input)


def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return input.dtype.is_signed


def is_nonzero(input: Tensor) -> bool:
    """Whether the one element is not zero; RuntimeError for none or several."""
    if input.numel() != 1:
        few = "no values" if not input.numel() else "more than one value"
        raise RuntimeError(f"Boolean value of Tensor with {few} is ambiguous")
    return bool(input)


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one shape."""
    return input.shape == other.shape


# Functions over the host's elements, one call of Python's each: slow, as PyTorch says ------------


def _on_host(self: Tensor, name: str) -> Any:
    backend = backend_of(self._array)
    if not backend.readable:
        raise_if_read(name)
    if backend.device_type != "cpu":
        raise TypeError(f"{name} is only implemented on CPU tensors")
    if self.requires_grad:
        raise RuntimeError(f"Can't call {name}() on Variable that requires grad. Use "
                           f"var.detach().{name}()")  # fmt: skip
    return self._array


def _mapped(name: str, *names: str) -> Callable[..., Tensor]:
    count = len(names)

    def call(self: Tensor, *args: Any, **named: Any) -> Tensor:
        args += tuple([named.pop(key) for key in names[len(args) :] if key in named])
        if named or len(args) != count:
            raise TypeError(f"{name}() wants the arguments {', '.join(names)}")
        *tensors, function = args
        arrays = [_on_host(self, name), *[np.broadcast_to(_on_host(t, name), self.shape)
                                          for t in tensors]]  # fmt: skip
        values = [function(*row) for row in zip(*[a.ravel().tolist() for a in arrays], strict=True)]
        result = np.array(values, self._array.dtype).reshape(self.shape)
        will_change(self)
        np.copyto(self._array, result)
        changed(self)
        return self

    call.__name__ = name
    call.__qualname__ = f"Tensor.{name}"
    call.__doc__ = (
        f"Puts a Python function of {count} number{'s' * (count > 1)} in the place of each "
        "element; on the CPU only, and slow."
    )
    return call


def _conj_physical_(self: Tensor) -> Tensor:
    """`conj_physical` in place, which of a real tensor is a change too that changes nothing."""
    if array_of(self, "conj_physical_").dtype.kind == "b":
        return apply_inplace(TABLE["copy"], (self, self))
    return apply_inplace(TABLE["conj"], (self,))


METHODS: dict[str, Callable[..., Any]] = {
    **{f.__name__: f for f in (conj_physical, frexp, is_conj, is_neg, is_nonzero, is_same_size,
                               is_signed, resolve_conj, resolve_neg)},
    "apply_": _mapped("apply_", "callable"), "map_": _mapped("map_", "other", "callable"),
    "map2_": _mapped("map2_", "x", "y", "callable"),
    "conj_physical_": _conj_physical_, "_conj": conj, "_neg_view": neg_view,
}  # fmt: skip

# The in-place methods that PyTorch has as functions of the module too.
_AT_MODULE_LEVEL = """
    abs_ acos_ acosh_ arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_ asin_ asinh_ atan_ atanh_
    ceil_ clamp_ clamp_max_ clamp_min_ clip_ cos_ cosh_ deg2rad_ erf_ erfc_ exp2_ exp_ expm1_ fill_
    fix_ floor_ frac_ gcd_ i0_ lcm_ ldexp_ log10_ log1p_ log2_ log_ logit_ nan_to_num_ neg_
    negative_ rad2deg_ reciprocal_ relu_ round_ rsqrt_ sigmoid_ sin_ sinc_ sinh_ sqrt_ square_ tan_
    tanh_ trunc_ xlogy_ zero_
"""
FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: INPLACE[name] for name in _AT_MODULE_LEVEL.split() if name in INPLACE
} | {"_conj": conj, "_neg_view": neg_view}
