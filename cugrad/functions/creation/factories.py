"""Makes tensors: from data, filled with a value, and like others."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import dtypes
from ... import tensor as _tensor
from ...autograd.recording.operands import number
from ...autograd.recording.record import recorded
from ...backends import backend_of, get
from ...backends.batched.arrays import per_example
from ...backends.lending.pinned import pinned_memory
from ...backends.several import are_away, at_home, several
from ...backends.wanted import known
from ...device import default_device
from ...device import device as Device
from ...ops.dims import broadcast_shapes, keeps_order
from ...ops.promotion import fit_scalar
from ...runtime.frames import called
from ...tensor import Size, Tensor, check_differentiable_dtype, make
from .host_data import cast, check_range, host_array

__all__ = [
    "as_tensor", "asarray", "complex", "empty", "empty_like", "eye", "from_numpy", "full",
    "full_like", "ones", "ones_like", "scalar_tensor", "tensor", "zeros",
    "zeros_like",
]  # fmt: skip
TAKES_OUT = frozenset(["complex", "empty", "eye", "full", "ones", "zeros"])


def _place(device: Any) -> tuple[Any, Device]:
    place = default_device() if device is None else Device(device)
    return get(place.type), place


def _numpy_dtype(dtype: Any) -> np.dtype[Any]:
    return (dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)).numpy


def _finish(array: Any, requires_grad: bool) -> Tensor:
    if requires_grad:
        if requires_grad is not True:
            raise TypeError(
                f"argument 'requires_grad' must be bool, not {type(requires_grad).__name__}"
            )
        check_differentiable_dtype(dtypes.of(array.dtype), True)
    return make(array, bool(requires_grad))


def _shape(sizes: tuple[Any, ...], size: Any = None) -> tuple[int, ...]:
    """A shape given as `2, 3`, `(2, 3)` or `size=(2, 3)`; RuntimeError for a negative extent."""
    if size is not None:
        if sizes:
            raise TypeError(f"got a shape twice: {sizes} and size={size!r}")
        sizes = (size,)
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    try:
        if bool in map(type, sizes):
            raise TypeError("a size that is True or False")
        shape = tuple([operator.index(n) for n in sizes])
    except TypeError:
        place, wrong = next(
            (i, n) for i, n in enumerate(sizes) if type(n) is bool or not hasattr(n, "__index__")
        )
        raise TypeError(
            f"{called()}(): argument 'size' must be tuple of ints, but found element of type "
            f"{type(wrong).__name__} at pos {place}: got {sizes}"
        ) from None
    for n in shape:
        if n < 0:
            raise RuntimeError(
                f"Trying to create tensor with negative dimension {n}: {list(shape)}"
            )
    return shape


def tensor(
    data: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    size: Any = None,
) -> Tensor:
    """A new tensor with a copy of `data`: numbers, nested lists, a NumPy array or a tensor.

    Floats become the default dtype, ints int64; NumPy arrays keep their dtype. `size` is the shape
    of a tensor without elements, as it is printed. ValueError for ragged lists and for a size of
    other elements than there are, TypeError for what is no number.

    >>> import cugrad as torch
    >>> torch.tensor([[1., 2.], [3., 4.]])
    tensor([[1., 2.],
            [3., 4.]])
    """
    if isinstance(data, Tensor):
        kind = None if dtype is None else dtypes.as_dtype(dtype).numpy
        backend, place = _place(data.device if device is None else device)
        source = data._array
        if backend_of(source) is not backend:
            source = backend_of(source).to_host(source)
        with backend.use_device(place.index):
            array = backend.xp.array(backend.asarray(source, kind))
        return _finish(array, requires_grad)
    array = host_array(data, exact=dtype is not None)
    array = array if size is None else array.reshape(size)
    kind = array.dtype if dtype is None else dtypes.as_dtype(dtype).numpy
    dtypes.of(array.dtype), dtypes.of(kind)
    if not isinstance(data, (np.ndarray, np.generic)):
        check_range(array, kind)
    backend, place = _place(device)
    with backend.use_device(place.index):
        array = cast(array, kind)  # a copy, also of a NumPy array
        if pin_memory:
            pinned = empty_pinned(array.shape, array.dtype)
            pinned[...] = array
            array = pinned
        return _finish(backend.asarray(array), requires_grad)


def empty_pinned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """A host array that CUDA has page-locked, where it is usable."""
    from ...backends import is_usable

    return (
        pinned_memory(get("cuda")).empty(shape, dtype)
        if is_usable("cuda")
        else np.empty(shape, dtype)
    )


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """`data` as a tensor, shared with it where dtype and device allow."""
    if isinstance(data, Tensor):
        return data.to(device=device, dtype=dtype)
    if isinstance(data, np.ndarray) and (device is None or Device(device).type == "cpu"):
        if default_device().type == "cpu" or device is not None:
            check_array(data)
            shared = make(data.view())  # whose own shape may change
            return shared if dtype is None else shared.to(dtype=dtype)
    return tensor(data, dtype=dtype, device=device)


def asarray(
    obj: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """`obj` as a tensor: a tensor, array, buffer, scalar or nested sequence, or what has DLPack.

    `copy=True` never shares memory, `copy=False` raises ValueError if it has to copy; None shares
    where it can. `requires_grad` is that of a tensor `obj` unless given.
    """
    kind = None if dtype is None else dtypes.as_dtype(dtype)
    source = _shared(obj, kind)
    if source is None:
        if copy is False:
            raise ValueError("can't alias arbitrary sequence into a tensor.")
        result = tensor(obj, dtype=dtype, device=device)
    else:
        result = source if device is None and kind is None else source.to(device=device, dtype=kind)
        if copy is False and result is not source:
            what = "dtype" if result.dtype is not source.dtype else "device"
            raise ValueError(
                f"can't alias tensor with {what} '{getattr(source, what)}' into {what} "
                f"'{getattr(result, what)}'."
            )
        if copy and result is source:
            result = result.clone()
    if requires_grad is None:
        return result
    if requires_grad and result.is_leaf:
        return result.requires_grad_()
    return result if requires_grad or not result._requires_grad else result.detach()


def _shared(obj: Any, kind: dtypes.dtype | None) -> Tensor | None:
    """A tensor over the memory of a tensor, array or buffer; None for anything else."""
    if isinstance(obj, Tensor):
        return obj
    if isinstance(obj, np.ndarray):
        check_array(obj)
        return make(obj.view())
    if isinstance(obj, (bytes, bytearray, memoryview)):
        return make(np.frombuffer(obj, _numpy_dtype(kind)))
    if hasattr(obj, "__dlpack__") and hasattr(obj, "__dlpack_device__"):
        from ..interop.exchange import from_dlpack  # it stands on this module

        return from_dlpack(obj)
    return None


def check_array(array: np.ndarray[Any, Any]) -> None:
    """Raises as PyTorch does for a NumPy array that a tensor cannot share."""
    if array.dtype.kind in "OUSMm":
        raise TypeError(
            f"can't convert np.ndarray of type {array.dtype}. The only supported types are: "
            "float64, float32, float16, complex64, complex128, int64, int32, int16, int8, uint64, "
            "uint32, uint16, uint8, and bool."
        )
    if not array.dtype.isnative:
        raise ValueError(
            "given numpy array has byte order different from the native byte order. Conversion "
            "between byte orders is currently not supported; use array.astype(array.dtype."
            "newbyteorder('='))"
        )
    if any(step < 0 for step in array.strides) and array.size:
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative "
            "strides are not currently supported. (You can probably work around this by making a "
            "copy of your array with array.copy().)"
        )


def from_numpy(ndarray: np.ndarray[Any, Any]) -> Tensor:
    """A CPU tensor that shares the memory of a NumPy array; TypeError for other objects.

    >>> import numpy as np, cugrad as torch
    >>> torch.from_numpy(np.arange(3))
    tensor([0, 1, 2])
    """
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    check_array(ndarray)
    dtypes.of(ndarray.dtype)
    if not ndarray.flags.writeable:
        warnings.warn(
            "The given NumPy array is not writable: an in-place change of this tensor raises an "
            "error of NumPy's. You may want to copy the array before converting it to a tensor.",
            stacklevel=2,
        )
    return make(ndarray.view())


def scalar_tensor(
    s: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A 0-d tensor of the default dtype."""
    kind = dtypes.get_default_dtype() if dtype is None else dtype
    return full((), s, dtype=kind, device=device, requires_grad=requires_grad)


def _filled(
    function: str, shape: tuple[int, ...], dtype: Any, device: Any, requires_grad: bool
) -> Tensor:
    backend, place = _place(device)
    with backend.use_device(place.index):
        array = getattr(backend.xp, function)(shape, _numpy_dtype(dtype))
    if function == "empty":
        known(array)
    return _finish(array, requires_grad)


def zeros(
    *sizes: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of zeros: `zeros(2, 3)`, `zeros((2, 3))` or `zeros(size=(2, 3))`."""
    return _filled("zeros", _shape(sizes, size), dtype, device, requires_grad)


def ones(
    *sizes: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of ones: `ones(2, 3)`, `ones((2, 3))` or `ones(size=(2, 3))`."""
    return _filled("ones", _shape(sizes, size), dtype, device, requires_grad)


def empty(
    *sizes: Any,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of whatever is in memory; `pin_memory` page-locks it, for copies to a GPU."""
    if pin_memory:
        if device is not None and Device(device).type != "cpu":
            raise RuntimeError("Only dense CPU tensors can be pinned")
        pinned = empty_pinned(_shape(sizes, size), _numpy_dtype(dtype))
        return make(known(pinned))
    return _filled("empty", _shape(sizes, size), dtype, device, requires_grad)


def full(
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of one value; its dtype is inferred from the value as `tensor` does.

    >>> import cugrad as torch
    >>> torch.full((2,), 7)
    tensor([7, 7])
    """
    fill_value = number(fill_value, "full", "fill_value")
    if not isinstance(size, (tuple, list)):
        raise TypeError(
            f"full(): argument 'size' (position 1) must be tuple of ints, not {type(size).__name__}"
        )
    kind = host_array(fill_value).dtype if dtype is None else dtypes.as_dtype(dtype).numpy
    backend, place = _place(device)
    with backend.use_device(place.index):
        shape = _shape(tuple(size))
        value = _filling(fill_value, dtypes.of(kind))
        return _finish(backend.xp.full(shape, value, kind), requires_grad)


def _filling(value: Any, kind: dtypes.dtype) -> Any:
    """A number for an array of `kind`; RuntimeError when it is out of range."""
    dtypes.check_fits(value, kind)
    return fit_scalar(value.real if kind.category < dtypes.COMPLEX else value, kind)


def _old_constructor(data: tuple[Any, ...], device: Any) -> Any:
    """The array of `Tensor(*data)`: sizes make it uninitialised, one sequence or array fills it."""
    if len(data) == 1 and not isinstance(data[0], (int, np.integer, Size)):
        return tensor(data[0], dtype=dtypes.get_default_dtype(), device=device)._array
    return empty(*(data or (0,)), device=device)._array


_tensor.old_constructor = _old_constructor


def laid_as(like: Any, new: Callable[[tuple[int, ...]], Any]) -> Any:
    """The array that `new(shape)` makes, in the shape of another one and with its dims in the same
    order in memory.
    """
    if like.flags.c_contiguous or not keeps_order(like):
        return new(like.shape)
    order = sorted(range(like.ndim), key=lambda d: -like.strides[d])
    array = new(tuple([like.shape[d] for d in order]))
    with at_home(array):
        return array.transpose([order.index(d) for d in range(like.ndim)])


def _like(function: str, input: Tensor, dtype: Any, device: Any, grad: bool, *value: Any) -> Tensor:
    like = input._array
    kind = like.dtype if dtype is None else dtypes.as_dtype(dtype).numpy
    if device is None and not several.devices:
        backend = backend_of(like)
        if backend.readable and keeps_order(like):
            array = getattr(backend.xp, function)(like, *value, dtype=kind)
            return _finish(known(array) if function == "empty_like" else array, grad)
    backend, place = _place(input.device if device is None else device)
    with backend.use_device(place.index):
        here = backend is backend_of(input._array) and not (several.devices and are_away((input,)))
        if here and keeps_order(input._array):
            array = getattr(backend.xp, function)(input._array, *value, dtype=kind)
        else:
            new = getattr(backend.xp, function.removesuffix("_like"))
            array = laid_as(input._array, lambda shape: new(shape, *value, dtype=kind))
            array = per_example(array, input._array)
    if function == "empty_like":
        known(array)
    return _finish(array, grad)


def zeros_like(
    input: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Zeros in the shape, dtype, device and layout of `input`."""
    return _like("zeros_like", input, dtype, device, requires_grad)


def ones_like(
    input: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Ones in the shape, dtype, device and layout of `input`."""
    return _like("ones_like", input, dtype, device, requires_grad)


def empty_like(
    input: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Uninitialised memory in the shape, dtype, device and layout of `input`."""
    return _like("empty_like", input, dtype, device, requires_grad)


def full_like(
    input: Tensor,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """One value in the shape, dtype, device and layout of `input`."""
    fill_value = number(fill_value, "full_like", "fill_value")
    value = _filling(fill_value, input.dtype if dtype is None else dtypes.as_dtype(dtype))
    return _like("full_like", input, dtype, device, requires_grad, value)


def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The identity matrix of n rows and m columns (n of them by default)."""
    if n < 0 or (m or 0) < 0:
        raise RuntimeError(f"eye: n and m must be greater or equal to 0, got {n} and {m}")
    backend, place = _place(device)
    with backend.use_device(place.index):
        array = backend.xp.eye(n, m, dtype=_numpy_dtype(dtype))
    return _finish(array, requires_grad)


def complex(real: Tensor, imag: Tensor) -> Tensor:
    """`real + i imag`, of two tensors of one floating-point dtype, broadcast."""
    for name, value in (("real", real), ("imag", imag)):
        if not isinstance(value, Tensor):
            raise TypeError(
                f"complex(): argument '{name}' must be Tensor, not {type(value).__name__}"
            )
    kinds = [dtypes.type_name(x.dtype) for x in (real, imag)]
    if not {"Half", "Float", "Double"}.issuperset(kinds):
        raise RuntimeError(
            "Expected both inputs to be Half, Float or Double tensors but got "
            f"{kinds[0]} and {kinds[1]} (complex)"
        )
    if real.dtype is not imag.dtype:
        raise RuntimeError(
            f"Expected object of scalar type {kinds[0]} but got scalar type {kinds[1]} for second "
            "argument"
        )
    if real.dtype.itemsize == 2:  # there is no complex number of halves
        real, imag = real.float(), imag.float()
    shape = broadcast_shapes(real.shape, imag.shape)
    parts = [recorded.expand(x, shape) if x.shape != shape else x for x in (real, imag)]
    return recorded.complex(*parts)
