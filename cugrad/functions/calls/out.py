"""`out=` for every function that has it, and NumPy's names for arguments: one mechanism for all."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Collection, Iterator
from functools import wraps
from typing import Any

from ...autograd.forward.dual import highest
from ...autograd.mode import no_grad, state
from ...backends import backend_of
from ...backends.several import at_home, calls_away, several
from ...dtypes import type_name
from ...errors import NoArray
from ...ops.table import TABLE
from ...runtime.dispatching import Unasked, newly_asked
from ...tensor import Tensor
from ..shapes.strided import in_its_memory
from .mistakes import MISTAKES, explained
from .old_order import in_any_order, reordered
from .signatures import Signature

__all__ = ["ALIASES", "SPARSE", "accepting", "called", "layout", "renaming", "strided"]

# What PyTorch's parser reads under NumPy's names, and the names it has for them.
ALIASES = {"axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input",
           "x2": "other"}  # fmt: skip
# The first argument, which PyTorch's parser reads under the first two names in any function.
_FIRST = ("input", "self", "A")

# Further names of arguments, which one function has: those of PyTorch's overloads, or of NumPy.
_SECTIONS = {"indices": "indices_or_sections", "sections": "indices_or_sections"}
_ALSO = {
    "cholesky_solve": {"input": "B", "input2": "L"}, "copy_": {"other": "src"},
    "dsplit": _SECTIONS, "hsplit": _SECTIONS, "vsplit": _SECTIONS,
    "isin": {"element": "elements", "test_element": "test_elements"},
    "lstsq": {"b": "B"}, "lu_solve": {"input": "b"}, "triangular_solve": {"input": "b"},
    **dict.fromkeys(("householder_product", "orgqr"), {"input2": "tau"}),
    "ormqr": {"input2": "tau", "input3": "other"},
    "resize_as_": {"the_template": "other"},
    **dict.fromkeys(("random_", "uniform_"), {"from": "from_"}),
    "result_type": {"tensor": "tensor1", "scalar1": "tensor1", "scalar": "tensor2",
                    "other": "tensor2", "scalar2": "tensor2"},
    **dict.fromkeys(("split", "split_copy"), {
        "split_size": "split_size_or_sections", "split_sizes": "split_size_or_sections"}),
    "unsafe_split": {"input": "tensor"},
    "tensor_split": {"tensor_indices_or_sections": "indices_or_sections"},
    **dict.fromkeys(("swapaxes", "transpose"), {"axis0": "dim0", "axis1": "dim1"}),
}  # fmt: skip

# Those of factories that make sparse tensors too, by name: cugrad/sparse/making.py sets them.
SPARSE: dict[str, Callable[..., Any]] = {}

# Functions of which `out` may also be the argument of this number.
_OUT_AT = {"norm": 4, "tensordot": 3}


def renaming(function: Callable[..., Any]) -> Callable[..., Any]:
    """A method that also takes `axis` for `dim`, and the like, where it has such an argument.

    >>> import cugrad as torch
    >>> torch.ones(2, 3).sum(axis=1, keepdims=True).shape
    torch.Size([2, 1])
    """
    code = _code(function)
    if code is None or not ({"dim", "keepdim"} & set(_names(code)) or function.__name__ in _ALSO):
        return function
    return _wrapped(function.__name__, function, frozenset(_names(code)), takes_out=False)


def accepting(
    functions: dict[str, Callable[..., Any]],
    takes_out: Collection[str],
    room: str = "cugrad",
) -> dict[str, Callable[..., Any]]:
    """The functions with PyTorch's aliases of arguments; those named in `takes_out` with `out=`."""
    wrapped = {}
    for name, function in functions.items():
        code = _code(function)
        names = () if code is None else _names(code)
        if code is None or code.co_flags & 0x08:  # **more: a compiled row calls `called` itself
            wrapped[name] = in_any_order(name, function)
            continue
        has = name in takes_out and "out" not in names
        call = _wrapped(name, function, frozenset(names), has)
        call.__module__ = room  # where pickle finds it
        call.__qualname__ = name
        wrapped[name] = call
    return wrapped


def _code(function: Callable[..., Any]) -> Any:
    """Of the function itself, where autocast has decorated it."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return getattr(function, "__code__", None)


def _names(code: Any) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _wrapped(
    name: str, function: Callable[..., Any], names: frozenset[str], takes_out: bool
) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if several.devices and calls_away(name, args, kwargs):
            with at_home(*args, *kwargs.values()):
                return call(*args, **kwargs)
        try:
            if kwargs and not kwargs.keys() <= names:
                return _call(name, function, names, takes_out, args, kwargs)
            return function(*args, **kwargs)
        except NoArray:
            if name not in SPARSE:
                raise
            return SPARSE[name](*args, **kwargs)
        except MISTAKES as error:
            if isinstance(error, Unasked) or newly_asked((*args, *kwargs.values())):
                return call(*args, **kwargs)
            if len(args) > place and "out" not in kwargs:
                return call(*args[:place], *args[place + 1 :], out=args[place], **kwargs)
            old = reordered(name, function, args)
            if old is not None:
                return call(*old[0], **kwargs, **old[1])
            better = explained(error, name)
            if better is None:
                raise
            raise better from None

    place = _OUT_AT.get(name, sys.maxsize) if takes_out else sys.maxsize
    if takes_out:
        call.__signature__ = Signature(function)  # type: ignore[attr-defined]
    return call


def called(function: Callable[..., Any], values: dict[str, Any], more: dict[str, Any]) -> Any:
    """A compiled row with `more` keywords than those of its inputs and parameters, `values`."""
    names, name = frozenset(values), function.__name__
    kwargs = {k: v for k, v in values.items() if v is not None}
    for key in more:
        if ALIASES.get(key) in kwargs:
            raise TypeError(f"{name}() got multiple values for argument '{ALIASES[key]}'")
    return _call(name, function, names, TABLE[name].out, (), {**kwargs, **more})


def _call(
    name: str,
    function: Callable[..., Any],
    names: frozenset[str],
    takes_out: bool,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """`function` with arguments that PyTorch's parser knows and the function itself does not."""
    if name in SPARSE and kwargs.get("layout") is sparse_coo:
        return SPARSE[name](*args, **kwargs)
    options: dict[str, Any] = {}
    after = []
    for key, value in kwargs.items():
        own_name = _ALSO.get(name, {}).get(key) or ALIASES.get(key)
        if own_name is None and key in _FIRST:
            own_name = next((first for first in _FIRST if first in names), None)
        if key in names or key == "out" and takes_out:
            options[key] = value
        elif own_name in names:
            options[str(own_name)] = value
        elif key in _PLACING and "device" in names:
            after.append(_PLACING[key](name, value))
        else:
            raise TypeError(f"{name}() got an unexpected keyword argument '{key}'")
    out = options.pop("out", None)
    if out is None:
        result = function(*args, **options)
        for step in after:
            result = step(result)
        return result
    outs = _outputs(name, out)
    _demand_no_gradient(name, (*args, *options.values(), *outs))
    if "dtype" in names:
        dtype = options.setdefault("dtype", outs[0].dtype)
        if dtype is not None and dtype is not outs[0].dtype:
            raise RuntimeError(
                f"{name}(): dtype {dtype} does not match dtype of out tensor ({outs[0].dtype})"
            )
    if "device" in names:
        options.setdefault("device", outs[0].device)
    with no_grad():
        result = function(*args, **options)
        values = (result,) if isinstance(result, Tensor) else tuple(result)
        if len(values) != len(outs):
            raise TypeError(
                f"{name}(): argument 'out' must be "
                + ("Tensor" if len(values) == 1 else f"tuple of {len(values)} Tensors")
                + f", not {len(outs)} of them"
            )
        for value, target in zip(values, outs):
            _place(name, value, target, getattr(function, "joins", False))
    if isinstance(result, (Tensor, list)) or type(result) is tuple:
        return outs[0] if isinstance(result, Tensor) else type(result)(outs)
    return type(result)(*outs)


class layout:
    """How elements lie in memory: `cugrad.strided`, or `cugrad.sparse_coo`.

    No tensor has another one; programs compare with them.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str = "strided") -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"torch.{self._name}"

    def __reduce__(self) -> str:
        return self._name


_mkldnn, jagged, sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr = map(layout, (
    "_mkldnn", "jagged", "sparse_bsc", "sparse_bsr", "sparse_coo", "sparse_csc", "sparse_csr"
))  # fmt: skip
strided = layout()


def _unchanged(result: Any) -> Any:
    return result


def _laid_out(name: str, value: Any) -> Callable[[Any], Any]:
    if value is not None and value is not strided:
        raise RuntimeError(f"{name}(): layout must be torch.strided, got {value!r}")
    return _unchanged


def _pinned(name: str, value: Any) -> Callable[[Any], Any]:
    return (lambda result: result.pin_memory()) if value else _unchanged


def _formatted(name: str, value: Any) -> Callable[[Any], Any]:
    if value is None or "preserve" in repr(value):
        return _unchanged
    return lambda result: result.contiguous(memory_format=value)


# Keywords of factories that most of them need not know.
_PLACING: dict[str, Callable[[str, Any], Callable[[Any], Any]]] = {
    "layout": _laid_out, "pin_memory": _pinned, "memory_format": _formatted,
}  # fmt: skip


def _outputs(name: str, out: Any) -> tuple[Tensor, ...]:
    outs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    for tensor in outs:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(tensor).__name__}")
    return outs


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from (x for x in value if isinstance(x, Tensor))


def _demand_no_gradient(name: str, values: Any) -> None:
    if state.grad_enabled and any(x._requires_grad for x in _tensors(values)):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, "
            "but one of the arguments requires grad."
        )
    if state.levels and highest(list(_tensors(values))) is not None:
        raise NotImplementedError(
            f"Trying to use forward AD with {name}_out that does not support it because it is an "
            "out= function"
        )


def _place(name: str, value: Tensor, out: Tensor, joins: bool) -> None:
    """Writes a result into `out`, which gets another shape if it must."""
    if value.device != out.device:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{value.device} and {out.device}! (when running {name}; want out on {value.device})"
        )
    if value.dtype.category > out.dtype.category:
        if joins:
            raise TypeError(
                "torch.cat(): input types can't be cast to the desired output type "
                f"{type_name(out.dtype)}"
            )
        raise RuntimeError(
            f"result type {type_name(value.dtype)} can't be cast to the desired output type "
            f"{type_name(out.dtype)}"
        )
    if value.shape != out.shape:
        if out.numel():
            warnings.warn(
                "An output with one or more elements was resized since it had shape "
                f"{list(out.shape)}, which does not match the required output shape "
                f"{list(value.shape)}. This behavior is deprecated, and in a future PyTorch "
                "release outputs will not be resized unless they have zero elements. You can "
                "explicitly reuse an out tensor t by resizing it, inplace, to zero elements with "
                "t.resize_(0).",
                stacklevel=4,
            )
        shape, backend = value._array.shape, backend_of(out._array)
        same = in_its_memory(out._array, shape) if out.numel() else None
        with backend.use_device(backend.device_index(out._array)):
            same = backend.xp.empty(shape, out._array.dtype) if same is None else same
            out._form, out._array = None, same
    out.copy_(value)
