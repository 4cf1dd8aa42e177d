"""What public functions do with their arguments before they call a row."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any

from ..autograd.record import recorded
from ..dtypes import as_dtype
from ..tensor import Tensor

__all__ = ["array_of", "cast", "is_contiguous_format", "lifted", "return_type", "varargs"]


def array_of(value: Any, function: str, argument: str = "input", position: int = 1) -> Any:
    """The array of a Tensor; TypeError that names the function and argument for anything else."""
    try:
        return value._array
    except AttributeError:
        raise TypeError(
            f"{function}(): argument '{argument}' (position {position}) must be Tensor, "
            f"not {type(value).__name__}"
        ) from None


def cast(input: Tensor, dtype: Any) -> Tensor:
    """`input` in another dtype, itself where it has it already."""
    wanted = as_dtype(dtype).numpy
    return input if input._array.dtype == wanted else recorded.to_dtype(input, wanted)


def varargs(values: tuple[Any, ...]) -> Any:
    """`f(2, 3)` and `f((2, 3))` both as the tuple."""
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
    return recorded.squeeze(out, (0,)) if out._array.ndim else out


def return_type(name: str, fields: str = "values indices") -> Any:
    """A named tuple that prints as PyTorch's `torch.return_types.<name>` does."""
    base: Any = namedtuple(name, fields)  # type: ignore[misc]

    def __repr__(self: Any) -> str:
        lines = ",\n".join(f"{f}={v!r}" for f, v in zip(self._fields, self))
        return f"torch.return_types.{name}(\n{lines})"

    return type(name, (base,), {"__repr__": __repr__, "__slots__": ()})


def is_contiguous_format(memory_format: Any) -> bool:
    """Whether a memory format asks for contiguous memory; None and preserve_format do not."""
    return str(memory_format).endswith("contiguous_format")
