"""The elementwise rows as functions, in-place methods and operators."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any

import numpy as np

from ... import dtypes
from ...autograd.mode import state
from ...autograd.recording.fast import compile_function
from ...autograd.recording.inplace import apply_inplace, check_cast, put
from ...autograd.recording.operands import number
from ...autograd.recording.record import recorded
from ...autograd.recording.views import changed, check_inplace
from ...backends import backend_of
from ...backends.lending.pinned import pinned_memory
from ...backends.several import are_on_two, at_home
from ...errors import FormulaError
from ...ops.promotion import fit_scalar, result_dtype
from ...ops.table import TABLE, Op
from ...tensor import Tensor
from ..calls.arguments import array_of, cast, refuse_complex, refuse_more_dims, refused
from ..calls.out import called
from ..calls.signatures import Signature
from ..creation.factories import tensor

__all__ = ["ALIASES", "FUNCTIONS", "INPLACE", "METHODS"]


def help_of(op: Op) -> str:
    """What `help` says of a public row; FormulaError where the row does not say what it computes.

    >>> help_of(TABLE["neg"])
    'neg: -input, element by element.'
    """
    if not op.doc:
        raise FormulaError(
            f"row {op.name}: a public function wants doc='...', what it computes in a few words; "
            "or public=False"
        )
    return f"{op.name}: {op.doc}, element by element."


_ROWS = [op for op in TABLE.values() if op.public]

_PLAIN = {op.name: compile_function(op, asks=True) for op in _ROWS}  # of operators and methods
for _op in _ROWS:
    _PLAIN[_op.name].__doc__ = help_of(_op)

FUNCTIONS: dict[str, Callable[..., Any]] = {}  # those written here, and below those of other rows


def _public(function: Callable[..., Any]) -> Callable[..., Any]:
    FUNCTIONS[function.__name__] = function
    return function


BOOL = np.dtype(bool)
ONE = 1  # what `alpha=` is unless it is named: True and 1.0 are looked at


def _scaled(input: Any, other: Any, alpha: Any, is_taken_off: bool = False) -> Any:
    """`other * alpha`, in the dtype in which both meet; of what is taken off `-alpha` must fit."""
    alpha = number(alpha, "add", "alpha")
    arrays = [array_of(x, "add") if isinstance(x, Tensor) else x for x in (input, other)]
    meeting = result_dtype(arrays)
    if type(alpha) is bool and meeting is not dtypes.bool_:
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if type(alpha) in (float, complex) and meeting.category < dtypes.FLOAT:
        raise RuntimeError(
            "For integral input tensors, argument alpha must not be a floating point number."
        )
    if type(alpha) is complex and not meeting.is_complex:
        raise RuntimeError(
            "For non-complex input tensors, argument alpha must not be a complex number."
        )
    dtypes.check_number(-alpha if is_taken_off else alpha, meeting)
    if meeting is dtypes.bool_:  # True + True is True, however often
        return other & bool(alpha)
    if meeting.category == dtypes.INTEGER and alpha == 1 << (8 * meeting.itemsize - 1):
        alpha = -alpha  # which fits where that is signed, and by which a product is the same
    if isinstance(other, Tensor) and other.dtype is not meeting:
        other = cast(other, meeting)
    return other * alpha


def _is_scaled_alone(input: Any, other: Any, alpha: Any) -> bool:
    """Whether a row has the factor: of dense floating-point tensors; all else is looked at."""
    if type(alpha) is not float and type(alpha) is not int:
        return False
    if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        return False
    is_alike = input.dtype.is_floating_point and other.dtype is input.dtype
    return is_alike and not (input.is_sparse or other.is_sparse)


@_public
def add(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """`input + alpha * other`, broadcast and promoted.

    >>> import cugrad as torch
    >>> torch.add(torch.ones(2), 2., alpha=3)
    tensor([7., 7.])
    """
    if alpha is ONE:
        return recorded.add(input, other)
    if _is_scaled_alone(input, other, alpha):
        return recorded.add_scaled(input, other, alpha)
    return recorded.add(input, _scaled(input, other, alpha))


@_public
def sub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """`input - alpha * other`, broadcast and promoted; RuntimeError for bool tensors."""
    refuse_bools(input, other)
    if alpha is ONE:
        return recorded.sub(input, other)
    if _is_scaled_alone(input, other, alpha):
        return recorded.sub_scaled(input, other, alpha)
    return recorded.sub(input, _scaled(input, other, alpha, True))


def refuse_bools(*operands: Any) -> None:
    bools = [type(x) is bool or isinstance(x, Tensor) and x.dtype is dtypes.bool_ for x in operands]
    if all(bools):
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. "
            "Use the `^` or `logical_xor()` operator instead."
        )
    if any(bools):
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are "
            "trying to invert a mask, use the `~` or `logical_not()` operator instead."
        )


@_public
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """`input / other`; `rounding_mode` "trunc" or "floor" rounds the quotient."""
    if rounding_mode is None:
        return _PLAIN["div"](input, other)
    if rounding_mode == "floor":
        return FUNCTIONS["floor_divide"](input, other)
    if rounding_mode != "trunc":
        raise (RuntimeError if isinstance(rounding_mode, str) else TypeError)(
            "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
            f"'{rounding_mode}'"
        )
    if _has_integers_alone(input, other):  # exactly, where floating point would round
        whole = recorded.sub(input, FUNCTIONS["fmod"](input, other))
        return FUNCTIONS["floor_divide"](whole, other)
    return recorded.div_trunc(input, other)


def _has_integers_alone(*operands: Any) -> bool:
    return all(
        x.dtype.category < dtypes.FLOAT if isinstance(x, Tensor) else isinstance(x, int)
        for x in operands
    )


def met(*operands: Any) -> list[Any]:
    """Operands in the floating-point dtype in which they meet; numbers stay what they are.

    For rows that have no formula for one of them, which they take as it comes.
    """
    kind = result_dtype([x._array if isinstance(x, Tensor) else x for x in operands])
    kind = dtypes.get_default_dtype() if kind.category < dtypes.FLOAT else kind
    return [
        recorded.to_dtype(x, kind.numpy) if isinstance(x, Tensor) and x.dtype is not kind else x
        for x in operands
    ]


def _incomplete(name: str, input: Tensor, other: Tensor) -> Tensor:
    array_of(input, name, "input"), array_of(other, name, "other", 2)
    result = getattr(recorded, name)(*met(input, other))
    return refused(result, (input,), f"{name}: input", f"{name.title()}Backward0")


@_public
def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 where `input` is negative, 1 where it is positive, and `values` where it is zero.

    Backward raises a RuntimeError: no derivative is defined, as in PyTorch.
    """
    array_of(input, "heaviside", "input"), array_of(values, "heaviside", "values", 2)
    return refused(recorded.heaviside(input, values), (input, values), "heaviside")


@_public
def igamma(input: Tensor, other: Tensor) -> Tensor:
    """The lower incomplete gamma function of `input` up to `other`, regularised to end at 1.

    Differentiable in `other`; backward raises NotImplementedError where `input` requires grad.

    >>> import cugrad as torch
    >>> torch.special.gammainc(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0]))
    tensor([0.6321, 0.5940])
    """
    return _incomplete("igamma", input, other)


@_public
def igammac(input: Tensor, other: Tensor) -> Tensor:
    """1 - `igamma`, without its cancellation."""
    return _incomplete("igammac", input, other)


@_public
def polygamma(n: int, input: Tensor) -> Tensor:
    """The n-th derivative of digamma; RuntimeError where n is negative.

    >>> import cugrad as torch
    >>> torch.polygamma(1, torch.tensor([1.0, 0.5]))
    tensor([1.6449, 4.9348])
    """
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    return recorded.polygamma(input, n)


@_public
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """The nearest whole number, or number of `decimals` digits after the point; ties to even.

    >>> import cugrad as torch
    >>> torch.round(torch.tensor([0.1256, 2.5]), decimals=2)
    tensor([0.1300, 2.5000])
    """
    if not decimals:
        return recorded.round(input)
    if not input.is_floating_point():
        raise RuntimeError(f"round_cpu: decimals want a floating-point tensor, got {input.dtype}")
    ten = 10.0 ** max(decimals, -decimals)
    if decimals > 0:
        return recorded.div(recorded.round(recorded.mul(input, ten)), ten)
    return recorded.mul(recorded.round(recorded.div(input, ten)), ten)


@_public
def square(input: Tensor) -> Tensor:
    """The square of each element; of booleans as integers."""
    if array_of(input, "square").dtype.kind == "b":
        input = recorded.to_dtype(input, dtypes.int64.numpy)
    return recorded.square(input)


@_public
def conj(input: Tensor) -> Tensor:
    """The complex conjugate, a view: a change of either changes the other. `input` itself where it
    is real.

    >>> import cugrad as torch
    >>> x = torch.tensor([1 + 2j])
    >>> x.conj()[0] = 5j
    >>> x
    tensor([0.-5.j])
    """
    return recorded._conj(input) if array_of(input, "conj").dtype.kind == "c" else input


@_public
def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """`input` where `condition` holds, else `other`; with one argument, the indices of the true."""
    if input is None and other is None:
        lines = condition if condition._array.ndim else recorded.unsqueeze(condition, 0)
        return tuple(recorded.nonzero(lines).unbind(1))
    kind = array_of(condition, "where", "condition").dtype
    if kind is not BOOL and kind != np.uint8:
        raise RuntimeError(
            "where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{dtypes.type_name(condition.dtype)}"
        )
    if not isinstance(input, Tensor) and not isinstance(other, Tensor):
        input = tensor(input, device=condition.device)  # Python's numbers in the default dtypes
    return recorded.where(condition, input, other)


@_public
def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """`input` limited to [min, max], numbers or tensors. RuntimeError when neither is given."""
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    refuse_complex("clamp", (input, min, max))
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        if min is not None:
            input = FUNCTIONS["clamp_min"](input, min)
        return input if max is None else FUNCTIONS["clamp_max"](input, max)
    if float in (type(min), type(max)) and input.dtype.category < dtypes.FLOAT:
        input = recorded.to_dtype(input, dtypes.get_default_dtype().numpy)
    elif input._array.dtype.kind == "b" and int in (type(min), type(max)):
        input = recorded.to_dtype(input, dtypes.int64.numpy)
    return recorded.clamp(input, min, max)


def _of_row(op: Op) -> Callable[..., Any]:
    """The function that is the row."""
    function: Any = compile_function(op, public=True, called=called, asks=True)
    function.__module__ = "cugrad"  # where pickle finds it: a module may hold torch.relu
    function.__doc__ = _PLAIN[op.name].__doc__
    function.__signature__ = Signature(function, op)
    return function


_COMPILED = {op.name: _of_row(op) for op in _ROWS if op.name not in FUNCTIONS}
FUNCTIONS.update(_COMPILED)

ALIASES = {
    "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div",
    "negative": "neg", "absolute": "abs", "arcsin": "asin", "arccos": "acos", "arctan": "atan",
    "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "clip": "clamp",
    "fix": "trunc", "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le",
    "not_equal": "ne",
}  # fmt: skip


# ---------------------------------------------------------------------- in place


def _inplace(op: Op) -> Callable[..., Any]:
    count = len(op.inputs) - 1

    def call(input: Tensor, *args: Any, **params: Any) -> Tensor:
        if params or len(args) != count:
            args, params = _sorted_out(op, args, params)
        return apply_inplace(op, (input, *args), {**op.defaults, **params} if op.params else {})

    call.__name__ = op.name + "_"
    call.__qualname__ = f"Tensor.{op.name}_"
    call.__doc__ = f"`{op.name}` with its result in the place of this tensor, which is returned."
    return call


def _sorted_out(op: Op, args: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Operands and parameters, whether they were given by position or by name."""
    names = (*op.inputs[1:], *op.params)
    if len(args) > len(names):
        raise TypeError(
            f"{op.name}_() takes {len(names)} positional arguments but {len(args)} were given"
        )
    arguments = dict(zip(names, args, strict=False))
    for name, value in named.items():
        if name not in names:
            raise TypeError(f"{op.name}_() got an unexpected keyword argument '{name}'")
        if name in arguments:
            raise TypeError(f"{op.name}_() got multiple values for argument '{name}'")
        arguments[name] = value
    missing = [name for name in op.inputs[1:] if name not in arguments]
    if missing:
        raise TypeError(
            f"{op.name}_() missing {len(missing)} required positional arguments: "
            f"{', '.join(repr(name) for name in missing)}"
        )
    return [arguments.pop(name) for name in op.inputs[1:]], arguments


def _add_(self: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    if alpha is not ONE and _is_scaled_alone(self, other, alpha):
        return apply_inplace(TABLE["add_scaled"], (self, other), {"alpha": alpha})
    scaled = other if alpha is ONE else _scaled(self, other, alpha)
    return apply_inplace(TABLE["add"], (self, scaled))


def _sub_(self: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    refuse_bools(self, other)
    if alpha is not ONE and _is_scaled_alone(self, other, alpha):
        return apply_inplace(TABLE["sub_scaled"], (self, other), {"alpha": alpha})
    scaled = other if alpha is ONE else _scaled(self, other, alpha, True)
    return apply_inplace(TABLE["sub"], (self, scaled))


def _div_(self: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    if rounding_mode is None:
        return apply_inplace(TABLE["div"], (self, other))
    if rounding_mode == "floor" or self.dtype is dtypes.bool_:
        return apply_inplace(TABLE["floor_divide"], (self, other))
    # gradients ask for what is overwritten
    result = FUNCTIONS["div"](recorded.clone(self), other, rounding_mode=rounding_mode)
    return put("div", self, result)


def _clamp_(self: Tensor, min: Any = None, max: Any = None) -> Tensor:
    if min is max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        if min is None or max is None:
            name, bound = ("clamp_max", max) if min is None else ("clamp_min", min)
            return apply_inplace(TABLE[name], (self, bound))
        limited = clamp(recorded.clone(self), min, max)  # gradients ask for what is overwritten
        return put("clamp", self, limited)
    check_cast("clamp", result_dtype([self._array, min, max]).numpy, self._array.dtype)
    return apply_inplace(TABLE["clamp"], (self,), {"min": min, "max": max})


def _copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Copies the elements of `src` into this tensor, broadcast and cast; returns this tensor.

    With `non_blocking`, a copy between pinned host memory and a GPU does not wait for its end.
    """
    if isinstance(src, Tensor):
        refuse_more_dims("copy_", self, src)
        ours, theirs = backend_of(self._array), backend_of(src._array)
        apart = ours is not theirs and ours.readable and theirs.readable
        if apart and theirs.device_type != "meta" and _transfer_directly(self, src):
            check_inplace(self, "copy_")
            device = ours if ours.device_type != "cpu" else theirs
            with at_home(self, src):
                stream = device.current_stream()
                pinned_memory(device).copy(self._array, src._array, stream)
                if not non_blocking:
                    stream.synchronize()
            changed(self)
            return self
        src = src.to(self.device) if apart or are_on_two(self, src) else src
    return apply_inplace(TABLE["copy"], (self, src))


def _transfer_directly(dst: Tensor, src: Tensor) -> bool:
    """Whether one raw memory copy between devices does what `dst.copy_(src)` asks."""
    a, b = dst._array, src._array
    return (
        a.shape == b.shape and a.dtype == b.dtype and a.flags.c_contiguous
        and b.flags.c_contiguous and dst._rare is None and not state.levels
        and not (state.grad_enabled and (src._requires_grad or dst._requires_grad))
    )  # fmt: skip


def _round_(self: Tensor, *, decimals: int = 0) -> Tensor:
    """`round` with its result in the place of this tensor, which is returned."""
    if not decimals:
        return apply_inplace(TABLE["round"], (self,))
    return apply_inplace(TABLE["copy"], (self, FUNCTIONS["round"](self, decimals=decimals)))


def _fill_(self: Tensor, value: Any) -> Tensor:
    """Sets every element to `value`, a number or a 0-d tensor."""
    if isinstance(value, Tensor) and value._array.ndim:
        raise RuntimeError(
            "fill_ only supports 0-dimension value tensor but got tensor with "
            f"{value._array.ndim} dimensions."
        )
    if type(value) in (bool, int, float, complex):
        dtypes.check_fits(value, self.dtype)
        value = fit_scalar(value, self.dtype)
    elif not isinstance(value, (Tensor, Number, np.generic)):
        raise TypeError(
            f"fill_(): argument 'value' (position 1) must be Number, not {type(value).__name__}"
        )
    return apply_inplace(TABLE["copy"], (self, value))


def _zero_(self: Tensor) -> Tensor:
    """Sets every element to zero."""
    return apply_inplace(TABLE["copy"], (self, 0))


INPLACE: dict[str, Callable[..., Any]] = {
    "add_": _add_, "sub_": _sub_, "div_": _div_, "clamp_": _clamp_, "copy_": _copy_,
    "fill_": _fill_, "zero_": _zero_, "round_": _round_,
}  # fmt: skip
INPLACE.update({
    op.name + "_": _inplace(op) for op in _ROWS
    if op.inputs[0] == "self" and op.in_place and op.name + "_" not in INPLACE
})  # fmt: skip
INPLACE.update({alias + "_": INPLACE[name + "_"] for alias, name in ALIASES.items()})

FUNCTIONS.update({alias: FUNCTIONS[name] for alias, name in ALIASES.items()})
# As FUNCTIONS, less what only functions take: out=, and NumPy's names for the arguments.
METHODS = {
    name: _PLAIN[function.__name__] if function is _COMPILED.get(function.__name__) else function
    for name, function in FUNCTIONS.items()
}
METHODS["polygamma"] = _PLAIN["polygamma"]  # the tensor comes first
