"""What public functions do with their arguments before they call a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from ... import dtypes
from ...autograd.forward.dual import highest
from ...autograd.mode import state
from ...autograd.recording.node import edge_of
from ...autograd.recording.record import recorded
from ...backends import backend_of
from ...dtypes import as_dtype, type_name
from ...errors import NoArray
from ...ops.refused import NO_NODE
from ...runtime.dispatching import of_operand
from ...runtime.frames import called
from ...tensor import UNCOUNTED, Tensor

__all__ = [
    "array_of", "as_own", "cast", "check_known", "fresh", "is_contiguous_format", "lifted",
    "of_reals", "refuse_complex", "refuse_more_dims", "refuse_whole", "refused", "varargs",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])


def array_of(value: Any, function: str, argument: str = "input", position: int = 1) -> Any:
    """The array of a Tensor; TypeError that names the function and argument for anything else."""
    try:
        return value._array
    except NoArray as error:
        return error.tensor.outline
    except AttributeError:
        raise of_operand(TypeError(
            f"{function}(): argument '{argument}' (position {position}) must be Tensor, "
            f"not {type(value).__name__}"
        )) from None  # fmt: skip


def check_known(value: Tensor, d: dtypes.dtype) -> None:
    """RuntimeError for a tensor of one number out of the range of a dtype, where the number is on
    a host; elsewhere looking at it would wait.
    """
    if type(value._array) is np.ndarray:
        dtypes.check_fits(value.item(), d)


def cast(input: Tensor, dtype: Any) -> Tensor:
    """`input` in another dtype, itself where it has it already."""
    target = as_dtype(dtype).numpy
    if not isinstance(input, Tensor):
        array_of(input, called())
    return input if input._array.dtype == target else recorded.to_dtype(input, target)


def refused(result: Tensor, inputs: Any, function: str, node: str = NO_NODE) -> Tensor:
    """A result whose derivative by these inputs is an error, where one of them may ask for it."""
    for x in inputs:
        asks = isinstance(x, Tensor) and (
            x._requires_grad
            and state.grad_enabled
            or bool(state.levels)
            and highest((x,)) is not None
        )
        if asks:
            is_lone = x._requires_grad and edge_of(x) is None and not state.levels
            name = "" if is_lone else function  # its gradient goes nowhere
            result = recorded.not_implemented(result, x, name, node)
    return result


def of_reals(function: F) -> F:
    """A function that is not there for complex numbers, as PyTorch's is not, though each of the ops
    that it is made of is: NotImplementedError for a complex tensor.
    """

    @wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        refuse_complex(function.__name__, (*args, *options.values()) if options else args)
        return function(*args, **options)

    return run  # type: ignore[return-value]


def refuse_complex(name: str, values: tuple[Any, ...]) -> None:
    """NotImplementedError where one of the values is a complex tensor."""
    for x in values:
        if isinstance(x, Tensor) and x._array.dtype.kind == "c":
            raise NotImplementedError(f"\"{name}\" not implemented for '{type_name(x.dtype)}'")


def refuse_whole(name: str, input: Tensor, *but: dtypes.dtype) -> None:
    """NotImplementedError for a tensor of whole numbers, which an average would be cut to."""
    kind = input.dtype
    if kind.category < dtypes.FLOAT and kind not in but:
        raise NotImplementedError(f"\"{name}\" not implemented for '{type_name(kind)}'")


def refuse_more_dims(function: str, target: Tensor, source: Tensor) -> None:
    """RuntimeError for a source of more dims than its target, which NumPy takes if they have one
    element each.
    """
    if source._array.ndim > target._array.ndim:
        raise RuntimeError(
            f"output with shape {list(target._array.shape)} doesn't match the broadcast shape of "
            f"{list(source._array.shape)} ({function}: the source has more dims)"
        )


def of_one_dtype(function: str, input: Tensor, wide: bool = False, **others: Any) -> None:
    """RuntimeError unless the others, or those that are there, have the dtype of the input.

    `wide`: beside an input of half precision all of them may be float32.
    """
    kinds = {name: x.dtype for name, x in others.items() if x is not None}
    kind = input.dtype
    if all(other is kind for other in kinds.values()):
        return
    narrow = wide and kind in (dtypes.float16, dtypes.bfloat16)
    if narrow and all(other is dtypes.float32 for other in kinds.values()):
        return
    said = ", ".join(f"{name} of {other}" for name, other in kinds.items())
    want = f"{kind}, that of the input" + (", or all of float32" if narrow else "")
    raise RuntimeError(
        f"{function}: mixed dtype: all inputs must share same datatype, got {said}; want {want}"
    )


def varargs(values: tuple[Any, ...], named: Any = None) -> Any:
    """`f(2, 3)`, `f((2, 3))` and `f(name=(2, 3))` as the tuple; TypeError for two of them."""
    if named is not None:
        if values:
            raise TypeError(f"got sizes or dims twice: {values}, and {named} by name")
        return named
    if len(values) == 1 and isinstance(values[0], Sequence):
        return values[0]
    return values


def lifted(function: Callable[..., Any], input: Tensor, *args: Any, **options: Any) -> Any:
    """`function` of a 0-d tensor seen as having one dim, with that dim gone from the results."""
    out = function(recorded.unsqueeze(input, 0), *args, **options)
    if isinstance(out, Tensor):
        return _lowered(out)
    return type(out)(*map(_lowered, out))


def _lowered(out: Tensor) -> Tensor:
    return as_own(recorded.squeeze(out, (0,)), ()) if out._array.ndim else out


def fresh(function: F) -> F:
    """A function whose results are its own, however it came by them.

    They are no views, though it may have made them of something larger; what shows an argument's
    memory is copied.
    """

    @wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        out = function(*args, **options)
        if isinstance(out, Tensor):
            return as_own(out, (*args, *options.values()))
        results = [
            as_own(x, (*args, *options.values())) if isinstance(x, Tensor) else x for x in out
        ]
        return type(out)(*results) if hasattr(out, "_fields") else type(out)(results)

    return run  # type: ignore[return-value]


def as_own(out: Tensor, args: tuple[Any, ...]) -> Tensor:
    """A result that is no view; a copy where it shows memory of one of the arguments."""
    for a in args:
        for x in a if type(a) in (tuple, list) else (a,):
            if isinstance(x, Tensor) and _is_shared(out, x):
                return recorded.clone(out, "C")
    if any(s == 0 and n > 1 for s, n in zip(out._array.strides, out._array.shape)):
        return recorded.clone(out, "C")
    if out._rare is not None and out._rare.view is not None:
        out._rare.view.release(out)
    return out


def _is_shared(out: Tensor, x: Tensor) -> bool:
    """Whether two tensors show the same memory, and so have one version."""
    if out is x or out._counter is None or out._counter is not x._counter:
        return out is x
    return out._counter is not UNCOUNTED or bool(
        backend_of(out._array).xp.may_share_memory(out._array, x._array)
    )


def is_contiguous_format(memory_format: Any) -> bool:
    """Whether a memory format asks for contiguous memory; None and preserve_format do not."""
    return str(memory_format).endswith("contiguous_format")
