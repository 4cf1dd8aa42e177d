"""Tensors shared with other libraries: DLPack, CUDA's array interface, NumPy's ufuncs, buffers."""

from __future__ import annotations

import ctypes
import warnings
from typing import Any

import numpy as np

from ... import dtypes
from ...autograd.mode import will_change
from ...autograd.recording.mirrors import bits
from ...autograd.recording.views import changed
from ...backends import backend_of, get
from ...backends.several import copy_of
from ...device import device as Device
from ...tensor import Tensor, check_differentiable_dtype, make
from ..calls.arguments import array_of
from ..calls.out import strided
from .conversion import numpy as to_numpy
from .conversion import type_ as type_text

__all__ = ["METHODS", "PROPERTIES", "from_dlpack", "frombuffer", "to_dlpack"]

CPU, CUDA, CUDA_HOST = 1, 2, 3  # device types, numbers of DLPack's header dlpack.h
UNSIGNED, BFLOAT = 1, 4  # type codes, of there too
# Where in the struct behind a capsule of that name its DLTensor begins, in bytes.
_TENSOR_AT = {b"dltensor": 0, b"dltensor_versioned": 32}
_CODE_AT, _BITS_AT = 20, 21  # in a DLTensor: data 8, device 8, ndim 4, then code, bits, lanes


class _Exporter:
    """What from_dlpack of an array library asks for its capsule."""

    def __init__(self, capsule: Any, place: tuple[int, int]) -> None:
        self.capsule, self.place = capsule, place

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.place


class _Writable:
    """Memory of a capsule that does not say whether it is read-only: NumPy takes it to be."""

    def __init__(self, array: Any) -> None:
        self.array, told = array, array.__array_interface__
        self.__array_interface__ = {**told, "data": (told["data"][0], False)}


def _name_of(capsule: Any) -> Any:
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    return name_of(capsule) if type(capsule).__name__ == "PyCapsule" else None


def _address(capsule: Any) -> int:
    """Where the DLTensor of a capsule begins; RuntimeError for one that was used already."""
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype = ctypes.c_void_p
    pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
    name = _name_of(capsule)
    if name not in _TENSOR_AT:
        raise RuntimeError(
            "from_dlpack received an invalid capsule, or one that was used already; want a tensor "
            f"with __dlpack__, or a fresh capsule, got {type(capsule).__name__}"
        )
    return int(pointer_of(capsule, name)) + _TENSOR_AT[name]


def _byte(address: int) -> Any:
    return ctypes.c_uint8.from_address(address)


def _dlpack(
    self: Tensor,
    *,
    stream: Any = -1,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """A DLPack capsule of this tensor, for `from_dlpack` of another library.

    BufferError for a tensor that requires gradients, or lies on another device than `dl_device`
    and `copy=False`.
    """
    if self._requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if bits(self).conjugate:
        raise BufferError("Can't export tensors with the conjugate bit set")
    array, place = self._array, _dlpack_device(self)
    if dl_device is not None and tuple(map(int, dl_device)) != place:
        if copy is False or int(dl_device[0]) != CPU:
            raise BufferError(
                f"__dlpack__: the tensor is on device {place}, want {tuple(dl_device)}: that "
                "takes a copy; move it first, with x.to(device)"
            )
        array, place, copy = backend_of(array).to_host(array), (CPU, 0), False
    if copy:
        array = copy_of(array)
    options: dict[str, Any] = {}
    if place[0] == CPU:
        if stream not in (-1, None):
            raise AssertionError("stream should be None on cpu.")
        if max_version is not None:
            options["max_version"] = max_version
    elif stream != -1:
        options["stream"] = stream
    is_bfloat16 = self.dtype is dtypes.bfloat16
    capsule = (array.view(np.uint16) if is_bfloat16 else array).__dlpack__(**options)
    if is_bfloat16:  # array libraries do not know it: say so in the struct
        _byte(_address(capsule) + _CODE_AT).value = BFLOAT
    return capsule


def _dlpack_device(self: Tensor) -> tuple[int, int]:
    """The device as DLPack numbers it: (1, 0) for the CPU, (2, n) for GPU n."""
    device = self.device
    return (CPU, 0) if device.type == "cpu" else (CUDA, device.index or 0)


def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule that shares the memory of a tensor; it can be used once."""
    array_of(tensor, "to_dlpack", "tensor")
    return _dlpack(tensor)


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor that shares the memory of another library's, or of a DLPack capsule.

    `copy=True` never shares; a `device` other than that of `ext_tensor` needs a copy too, and
    raises BufferError with `copy=False`.

    >>> import numpy as np, cugrad as torch
    >>> x = np.arange(3)
    >>> torch.from_dlpack(x).add_(1), x
    (tensor([1, 2, 3]), array([1, 2, 3]))
    """
    if isinstance(ext_tensor, Tensor):
        tensor = make(ext_tensor._array)
        tensor._counter = ext_tensor.counter
    else:
        tensor = make(_imported(ext_tensor))
    if device is not None and Device(device).type != tensor.device.type:
        if copy is False:
            raise BufferError(
                f"from_dlpack: copy=False, but the move from {tensor.device} to {device} is a copy"
            )
        return tensor.to(device)
    return tensor.clone() if copy else tensor


def _imported(source: Any) -> Any:
    """The array behind an object with `__dlpack__`, or a capsule."""
    if hasattr(source, "__dlpack__"):
        kind, index = (int(n) for n in source.__dlpack_device__())
        if kind == CUDA:
            stream = get("cuda").current_stream().ptr
            capsule = source.__dlpack__(stream=stream or 1)
        else:
            capsule = _versioned(source)
    else:
        capsule, at = source, _address(source)
        kind = ctypes.c_int32.from_address(at + 8).value
        index = ctypes.c_int32.from_address(at + 12).value
    if kind not in (CPU, CUDA, CUDA_HOST):
        raise BufferError(f"from_dlpack: want a device of the CPU or CUDA, got DLPack's {kind}")
    at = _address(capsule)
    is_bfloat16 = (_byte(at + _CODE_AT).value, _byte(at + _BITS_AT).value) == (BFLOAT, 16)
    if is_bfloat16:
        _byte(at + _CODE_AT).value = UNSIGNED
    backend = get("cuda" if kind == CUDA else "cpu")
    with backend.use_device(index if kind == CUDA else None):
        old = kind != CUDA and _name_of(capsule) == b"dltensor"
        array = backend.xp.from_dlpack(_Exporter(capsule, (CPU if kind != CUDA else kind, index)))
    if old:
        array = np.asarray(_Writable(array))
    if is_bfloat16:
        array = array.view(dtypes.bfloat16.numpy)
    dtypes.of(array.dtype)
    return array


def _versioned(source: Any) -> Any:
    """The newest capsule that a library makes: older ones say nothing of read-only memory."""
    try:
        return source.__dlpack__(max_version=(1, 0))
    except TypeError:  # an exporter from before DLPack 1.0
        return source.__dlpack__()


def _cuda_array_interface(self: Tensor) -> dict[str, Any]:
    """CUDA's array interface, by which CuPy, Numba and others read this tensor where it lies."""
    if not self.is_cuda:
        raise AttributeError(
            f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {type_text(self)} If "
            "CUDA data is required use tensor.cuda() to copy tensor to device memory."
        )
    if self._requires_grad:
        raise RuntimeError(
            "Can't get __cuda_array_interface__ on Variable that requires grad. If gradients "
            "aren't required, use var.detach() to get Variable that doesn't require grad."
        )
    return self._array.__cuda_array_interface__


# NumPy's functions ----------------------------------------------------------------------------

# Python's operators between an array and a tensor reach the tensor under these names.
_OPERATORS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "truediv",
    "true_divide": "truediv", "floor_divide": "floordiv", "remainder": "mod", "power": "pow",
    "matmul": "matmul", "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor",
    "left_shift": "lshift", "right_shift": "rshift",
}  # fmt: skip
_COMPARISONS = {"equal": "eq", "not_equal": "ne", "less": "gt", "less_equal": "ge",
                "greater": "lt", "greater_equal": "le"}  # fmt: skip


def _array_ufunc(self: Tensor, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """NumPy's ufuncs on tensors: arithmetic is the tensor's own, and recorded; others compute on
    the arrays of CPU tensors that require no gradient, and give a tensor, or fill `out`."""
    name = ufunc.__name__
    if method == "__call__" and not options and len(inputs) == 2:
        first, second = inputs
        if name in _OPERATORS and not isinstance(first, Tensor):
            return getattr(second, f"__r{_OPERATORS[name]}__")(first)
        if name in _COMPARISONS and not isinstance(first, Tensor):
            return getattr(second, f"__{_COMPARISONS[name]}__")(first)
        if name in _OPERATORS:
            return getattr(first, f"__{_OPERATORS[name]}__")(second)
    arrays = [to_numpy(x) if isinstance(x, Tensor) else x for x in inputs]
    outs = options.get("out")
    if outs is not None:
        for x in outs:
            if isinstance(x, Tensor):
                will_change(x)
        options["out"] = tuple(to_numpy(x) if isinstance(x, Tensor) else x for x in outs)
    result = getattr(ufunc, method)(*arrays, **options)
    if outs is not None:
        for x in outs:
            if isinstance(x, Tensor):
                changed(x)
        return outs[0] if len(outs) == 1 else outs
    return tuple(map(_wrapped, result)) if isinstance(result, tuple) else _wrapped(result)


def _wrapped(value: Any) -> Any:
    return make(np.asarray(value)) if isinstance(value, (np.generic, np.ndarray)) else value


def _array_wrap(self: Tensor, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
    """A NumPy array as a tensor, for functions of NumPy that keep the type of their argument."""
    return make(np.asarray(array))


def frombuffer(
    buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """A one-dimensional CPU tensor over the memory of a Python buffer, from byte `offset` on.

    `count` elements, all that there are by default. ValueError when they do not fit; a warning
    when the buffer is read-only.

    >>> import cugrad as torch
    >>> torch.frombuffer(bytearray(b"abcd"), dtype=torch.uint8, count=2, offset=1)
    tensor([98, 99], dtype=torch.uint8)
    """
    kind = dtypes.as_dtype(dtype)
    check_differentiable_dtype(kind, requires_grad)
    try:
        view = memoryview(buffer)
    except TypeError:
        raise ValueError("object does not implement Python buffer protocol.") from None
    size, item = view.nbytes, kind.itemsize
    if size == 0 or count == 0:
        raise ValueError(f"both buffer length ({size}) and count ({count}) must not be 0")
    if not 0 <= offset < size:
        raise ValueError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length "
            f"({size} bytes) minus 1"
        )
    if count < 0:
        if (size - offset) % item:
            raise ValueError(
                f"buffer length ({size - offset} bytes) after offset ({offset} bytes) must be a "
                f"multiple of element size ({item})"
            )
        count = (size - offset) // item
    if count * item > size - offset:
        raise ValueError(
            f"requested buffer length ({count} * {item} bytes) after offset ({offset} bytes) must "
            f"not be greater than actual buffer length ({size} bytes)"
        )
    if view.readonly:
        warnings.warn(
            "The given buffer is not writable, and tensors that are not are not supported: "
            "writing to this tensor raises an error of NumPy's. Use a bytearray, or clone().",
            stacklevel=2,
        )
    return make(np.frombuffer(view, kind.numpy, count, offset), requires_grad)


def _device_to(self: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """This tensor on another device; `stream` is that of the work to wait for, the current one."""
    if stream is not None:
        raise ValueError(f"to_device: want stream=None, the current stream, got {stream!r}")
    return self.to(device)


METHODS: dict[str, Any] = {
    "__dlpack__": _dlpack, "__dlpack_device__": _dlpack_device, "__array_ufunc__": _array_ufunc,
    "__array_wrap__": _array_wrap, "to_device": _device_to,
}  # fmt: skip
PROPERTIES = {"__cuda_array_interface__": _cuda_array_interface, "layout": lambda self: strided}
