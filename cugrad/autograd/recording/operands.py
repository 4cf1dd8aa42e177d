"""The arrays that an op gets, its forward over them, and the errors for those that do not fit."""

from __future__ import annotations

from numbers import Number
from typing import Any

import numpy as np

from ...backends import backend_of
from ...backends.reclaimers import ask_when_full
from ...dtypes import of as dtype_of
from ...dtypes import type_name
from ...ops.dims import broadcast_shapes, mismatch
from ...ops.promotion import SCALARS, check_numbers, meet, refuse, share_device
from ...ops.table import ELEMENTWISE, Op
from ...runtime.dispatching import Unasked, newly_asked, of_operand
from ...tensor import Tensor
from ..mode import state

PYTHON_NUMBERS = (float, int)  # they are on every device
NEGATION_TEXT = (
    "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a "
    "mask, use the `~` or `logical_not()` operator instead."
)

__all__ = [
    "explain", "first_array", "not_a_tensor", "number", "plain", "read_inputs", "run_forward",
]  # fmt: skip


def read_inputs(op: Op, inputs: Any) -> tuple[list[Any], int]:
    """The arrays of the inputs, and the bit set of those whose gradient the row can give."""
    arrays, mask, formulas = [], 0, op.formulas
    for i, value in enumerate(inputs):
        if isinstance(value, Tensor):
            arrays.append(value._array)
            if value._requires_grad and formulas[0 if op.variadic else i] is not None:
                mask |= 1 << i
        elif (
            type(value) in SCALARS
            or isinstance(value, np.ndarray)
            or (value is None and op.inputs[0 if op.variadic else i] in op.optional)
        ):
            arrays.append(value)
        elif isinstance(value, np.generic):
            arrays.append(value.item())
        else:
            raise not_a_tensor(op, i, value)
    return arrays, mask


def plain(op: Op, params: dict[str, Any]) -> dict[str, Any]:
    """Parameters with Python's numbers in the places of NumPy's, and of tensors that have no dims
    and no gradient; TypeError for other tensors, and for what is no number where one is wanted.
    """
    for name, value in params.items():
        if type(value) in SCALARS or value is None:
            continue
        lacks_dtype = name in op.numbers and not hasattr(value, "dtype")  # arrays are many numbers
        if lacks_dtype or isinstance(value, (Tensor, np.generic)):
            params = {**params, name: number(value, op.name, name)}
    return params


def number(value: Any, function: str, argument: str) -> Any:
    """A number as Python has them, of one that may be NumPy's or a tensor, as in `plain`."""
    if type(value) in SCALARS:
        return value
    has_no_more = isinstance(value, Tensor) and not (value._requires_grad or value._array.ndim)
    if not has_no_more and not isinstance(value, (np.generic, Number)):
        kind = type(value).__name__
        raise TypeError(f"{function}(): argument '{argument}' must be Number, not {kind}")
    return value.item() if hasattr(value, "item") else value


def not_a_tensor(op: Op, index: int, value: Any) -> TypeError:
    """The error for an input that is no Tensor, in the words of a public function."""
    name = op.inputs[0 if op.variadic else index]
    kind = type(value).__name__
    is_tensor = kind == "Tensor"  # of another library: an answer of its class would say less
    if is_tensor:
        library = type(value).__module__.partition(".")[0]
        again = " of another import" if library == __name__.partition(".")[0] else ""
        kind = f"{library}.Tensor{again}"
    kind_of_error = Unasked if newly_asked((value,)) else TypeError
    error = kind_of_error(
        f"{op.name}(): argument '{'input' if name == 'self' else name}' must be Tensor, not {kind}"
    )
    return error if is_tensor else of_operand(error)


def first_array(op: Op, arrays: Any) -> Any:
    for array in arrays:
        if hasattr(array, "dtype") and not isinstance(array, np.generic):  # a bfloat16 number
            return array
    raise not_a_tensor(op, 0, arrays[0] if arrays else None)


def run_forward(
    op: Op, arrays: list[Any], params: dict[str, Any], home: Any = None
) -> tuple[Any, list[Any], Any]:
    """The raw value, the operands as the row saw them, and the dtype they met in (or None).

    The value is `home` where it has been written there.
    """
    first_array(op, arrays)
    if len(arrays) > 1:
        kind = type(arrays[0])
        for array in arrays:
            if type(array) is not kind and type(array) not in PYTHON_NUMBERS:
                arrays = share_device(op, arrays)
                break
    compute = None
    if op.demands is not None:
        op.demands(*arrays)
    if op.fits:
        check_numbers(op, arrays, params)
    if op.promote is not None:
        arrays, compute = meet(op, arrays)
    if op.refuses:
        refuse(op, arrays)
    if state.stand_in is not None:
        value = state.stand_in
        state.switch(stand_in=None)
        return value, arrays, compute
    backend = backend_of(first_array(op, arrays))
    operands = (arrays,) if op.variadic else arrays
    try:
        if backend.runs_rows:
            value = backend.run_row(op, operands, params, home)
        else:
            value = op.forward(backend.xp, *operands, **params)
    except RuntimeWarning:  # warnings are errors here; overflow is not one
        with backend.quiet():
            if backend.runs_rows:
                value = backend.run_row(op, operands, params)
            else:
                value = op.forward(backend.xp, *operands, **params)
    except ValueError as error:
        raise explain(op, arrays, error) from None
    except MemoryError as error:
        if backend.device_type == "cpu":
            raise
        raise _full(op, backend, error) from None
    except RuntimeError as error:
        if not backend.made_room(error):
            raise
        value = backend.run_row(op, operands, params)
    except TypeError as error:
        if op.ufunc is None and "for the input types" not in str(error):
            raise
        kinds = dict.fromkeys(type_name(dtype_of(x.dtype)) for x in arrays if hasattr(x, "dtype"))
        if op.name == "neg" and "Bool" in kinds:
            raise NotImplementedError(NEGATION_TEXT) from None
        of = "', '".join(kinds)
        raise NotImplementedError(f"\"{op.name}\" not implemented for '{of}'") from None
    return value, arrays, compute


def _full(op: Op, backend: Any, error: MemoryError) -> Exception:
    from .holders import out_of_memory  # wanted where there is no memory alone

    return out_of_memory(op.name, backend, error)


def _tell(error: Any, kind: type) -> None:
    from .holders import tell

    tell(error, kind)


ask_when_full(_tell)


def explain(op: Op, arrays: list[Any], error: ValueError) -> Exception:
    """A ValueError of the array library, with PyTorch's text if that is known."""
    if op.kind == ELEMENTWISE or op.promote is not None:
        shapes = [x.shape for x in arrays if hasattr(x, "shape")]
        a: tuple[int, ...] = ()
        for b in shapes if len(shapes) > 1 else ():
            if clash := mismatch(a, b):
                said = " and ".join(str(tuple(s)) for s in shapes)
                return RuntimeError(f"{clash} ({op.name}: got shapes {said})")
            a = broadcast_shapes(a, b)
    shapes_text = ", ".join(str(tuple(x.shape)) for x in arrays if hasattr(x, "shape"))
    return RuntimeError(f"{op.name}: {error} (got shapes {shapes_text})")
