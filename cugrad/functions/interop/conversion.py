"""Tensors to other dtypes, devices and objects, and back: casts, moves, NumPy, numbers, pickles."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from ... import dtypes
from ...autograd.mode import state
from ...autograd.recording.mirrors import bits, written_with
from ...autograd.recording.record import recorded
from ...backends import backend_of, get
from ...backends.batched.arrays import per_example, plain, raise_if_read
from ...backends.copies import in_its_order, order_of
from ...backends.lending.pinned import pinned_memory
from ...backends.lending.streams import lent_memory
from ...backends.several import at_home, there
from ...device import default_device
from ...device import device as Device
from ...tensor import Size, Tensor, make
from ..calls.arguments import array_of, varargs
from ..calls.out import accepting
from ..creation import factories as creation
from ..creation import ranges
from ..shapes import layouts
from ..shapes.storages import is_storage

__all__ = ["METHODS"]


def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """This tensor on another device or in another dtype; itself where nothing changes.

    `to(dtype)`, `to(device)`, `to(device, dtype)`, `to(other)`, with `non_blocking` and `copy`.
    """
    device, dtype, copy_ = kwargs.pop("device", None), kwargs.pop("dtype", None), False
    layout, names = kwargs.pop("memory_format", None), ["non_blocking", "copy"]
    if "tensor" in kwargs:
        args = (kwargs.pop("tensor"), *args)
    for value in args:
        if isinstance(value, Tensor):
            device, dtype = value.device, value.dtype
        elif isinstance(value, dtypes.dtype) or value in (float, int, bool, complex_type):
            dtype = value
        elif isinstance(value, (str, Device)) or type(value) is int and device is None:
            device = value
        elif isinstance(value, bool):
            kwargs[names.pop(0)] = value
        elif value is not None:
            raise TypeError(f"to() received an invalid argument: {value!r}")
    non_blocking = bool(kwargs.pop("non_blocking", False))
    copy_ = bool(kwargs.pop("copy", False))
    if kwargs:
        raise TypeError(f"to() got an unexpected keyword argument '{next(iter(kwargs))}'")
    result = self
    if dtype is not None and dtypes.as_dtype(dtype) is not self.dtype:
        result = recorded.to_dtype(result, dtypes.as_dtype(dtype).numpy)
    if device is not None:
        result = _move(result, Device(device), non_blocking)
    copy_ = copy_ and result is self
    if layout is None or layout is layouts.preserve_format:
        return recorded.clone(result) if copy_ else result
    if not copy_ and layouts.suggested(result) is layout:
        if result is self or layouts.is_contiguous(result, layout):
            return result
    return layouts.clone(result, memory_format=layout)


complex_type = complex


def _move(t: Tensor, place: Device, non_blocking: bool) -> Tensor:
    backend, home = get(place.type), t.device
    if place.type == "cpu" and home.type == "cpu":
        return t
    index = backend.current_device() if place.index is None else place.index
    if (place.type, index) == (home.type, home.index):
        return t
    if non_blocking and not (t._requires_grad and state.grad_enabled) and home.type != place.type:
        return _move_async(t, place, index)
    return recorded.to_device(t, place.type, index, (home.type, home.index))


def _move_async(t: Tensor, place: Device, index: int | None) -> Tensor:
    """A copy between host and device that the host does not wait for."""
    backend = get(place.type)
    device = backend if place.type != "cpu" else backend_of(t._array)

    def moved(source: Any) -> Any:
        source = source if source.flags.c_contiguous else source.copy()
        with device.use_device(index if place.type != "cpu" else device.device_index(source)):
            if place.type == "cpu":
                target = pinned_memory(device).empty(source.shape, source.dtype)
            else:
                target = backend.xp.empty(source.shape, source.dtype)
            pinned_memory(device).copy(target, source, device.current_stream())
        return target

    with at_home(t):
        return make(in_its_order(t._array, moved))


def cpu(self: Tensor, memory_format: Any = None) -> Tensor:
    """This tensor in host memory."""
    return to(self, "cpu", memory_format=memory_format)


def cuda(
    self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None
) -> Tensor:
    """This tensor on a GPU, the current one by default."""
    place = "cuda" if device is None else device
    return to(self, place, non_blocking=non_blocking, memory_format=memory_format)


def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """A copy in page-locked host memory; itself where it is there already.

    `device` is the one whose copies shall be quick: CUDA, the default; RuntimeError for others.
    """
    if device is not None and Device(device).type != "cuda":
        raise RuntimeError(f"{Device(device).type.upper()} device type not an accelerator.")
    if self.is_cuda:
        raise RuntimeError(f"cannot pin '{type_(self)}' only dense CPU tensors can be pinned")
    if self.is_pinned():
        return self
    pinned = in_its_order(self._array, lambda a: creation.empty_pinned(a.shape, a.dtype))
    pinned[...] = self._array
    return make(pinned)


def record_stream(self: Tensor, s: Any) -> None:
    """Keeps this tensor's memory from other tensors until a stream is done with it.

    For tensors that another stream than their own uses, as a batch that was copied ahead on a side
    stream: once the tensor is gone, its memory is used again when what `s` has queued by then has
    run. TypeError for what is no stream; NotImplementedError for a tensor on the host.
    """
    native = getattr(s, "native", s)
    if not callable(getattr(native, "record_event", None)):
        raise TypeError(
            f"record_stream(): argument 's' (position 1) must be Stream, not {type(s).__name__}"
        )
    array = plain(self._array)
    backend = backend_of(array)
    if backend.device_index(array) is None:
        raise NotImplementedError(
            f"record_stream: got a tensor on {self.device}, want one on a GPU: host memory is in "
            "no stream's order (a copy from page-locked memory keeps it until it has ended)"
        )
    for written in written_with(self):
        lent_memory(backend).record(plain(written), native)


def _cast(kind: dtypes.dtype) -> Callable[[Tensor], Tensor]:
    def call(self: Tensor, memory_format: Any = None) -> Tensor:
        return to(self, kind, memory_format=memory_format)

    call.__doc__ = f"This tensor as {kind}."
    return call


CASTS = {
    "float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16,
    "bfloat16": dtypes.bfloat16, "int": dtypes.int32, "long": dtypes.int64, "short": dtypes.int16,
    "char": dtypes.int8, "byte": dtypes.uint8, "bool": dtypes.bool_, "cfloat": dtypes.complex64,
    "cdouble": dtypes.complex128,
}  # fmt: skip


ON_DEVICE = ("cuda", "simulated")  # stand in the names of types


def type_(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """This tensor in another dtype; without one, the name of its type as PyTorch spells it.

    `dtype` may be such a name, "torch.DoubleTensor", or what has that name: `torch.DoubleTensor`.
    `torch.Tensor` is the type that new tensors have by default.
    """
    if dtype is not None:
        named = "torch.Tensor" if dtype is Tensor else str(dtype)
        if named == "torch.Tensor":
            return to(self, default_device(), dtypes.get_default_dtype(), non_blocking)
        if not named.endswith("Tensor"):
            return to(self, dtype, non_blocking=non_blocking)
        place = next((each for each in ON_DEVICE if f".{each}." in named), "cpu")
        for kind in dtypes.EVERY:
            if named.rpartition(".")[2] == f"{dtypes.type_name(kind)}Tensor":
                return to(self, place, kind, non_blocking)
        raise ValueError(f"invalid type: '{named}'")
    place = f"{self.device.type}." if self.device.type in ON_DEVICE else ""
    place += "sparse." if self.is_sparse else ""
    return f"torch.{place}{dtypes.type_name(self.dtype)}Tensor"


def type_as(self: Tensor, other: Tensor) -> Tensor:
    """This tensor in the dtype and on the device of another."""
    array_of(other, "type_as", "other")
    return to(self, other)


def get_device(self: Tensor) -> int:
    """The number of the GPU that holds this tensor, -1 for host memory."""
    index = self.device.index
    return -1 if index is None else index


def item(self: Tensor) -> Any:
    """The one element as a Python number; RuntimeError for more or fewer. Waits for the device."""
    if self._array.size != 1:
        raise RuntimeError(
            f"a Tensor with {self._array.size} elements cannot be converted to Scalar"
        )
    backend = backend_of(self._array)
    if backend.device_type == "meta":
        raise RuntimeError("Tensor.item() cannot be called on meta tensors")
    return backend.to_host(self._array).item()


def tolist(self: Tensor) -> Any:
    """The elements as nested lists of Python numbers."""
    return backend_of(self._array).to_host(self._array).tolist()


def numpy(self: Tensor, *, force: bool = False) -> np.ndarray[Any, Any]:
    """The elements as a NumPy array, shared with a CPU tensor.

    With `force` also of tensors that require gradients or live on a GPU, which are copied.
    """
    if force:
        return backend_of(self._array).to_host(self._array)
    if not self.is_cpu:
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy "
            "the tensor to host memory first."
        )
    if self._requires_grad and state.grad_enabled:
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )
    for bit, name in zip(bits(self), ("conj", "neg")):
        if bit:
            long = "conjugate" if name == "conj" else "negative"
            raise RuntimeError(
                f"Can't call numpy() on Tensor that has {long} bit set. Use "
                f"tensor.resolve_{name}().numpy() instead."
            )
    if not backend_of(self._array).readable:
        raise_if_read("numpy")
    return self._array.view()  # of the same memory: its shape is the program's to change


def _array(self: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
    array = numpy(self)
    if dtype is None or np.dtype(dtype) == array.dtype:
        return array.copy() if copy else array
    if copy is False:
        raise ValueError(f"__array__: copy=False, but {array.dtype} must be copied to {dtype}")
    return array.astype(dtype)


def _number(kind: type) -> Callable[[Tensor], Any]:
    def call(self: Tensor) -> Any:
        if self._array.size != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        value = item(self)
        if kind is not complex and isinstance(value, complex):
            dtypes.check_fits(value, dtypes.float64 if kind is float else dtypes.int64)
            value = value.real
        return kind(value)

    return call


def _bool(self: Tensor) -> bool:
    if not backend_of(self._array).readable:
        raise_if_read("bool")
    if self._array.size != 1:
        raise RuntimeError(
            "Boolean value of Tensor with "
            + ("no values" if self._array.size == 0 else "more than one value")
            + " is ambiguous"
        )
    return bool(item(self))


def _index(self: Tensor) -> int:
    if self._array.dtype.kind not in "iub" or self._array.size != 1:
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(item(self))


def _len(self: Tensor) -> int:
    if not self._array.ndim:
        raise TypeError("len() of a 0-d tensor")
    return self._array.shape[0]


def _iter(self: Tensor) -> Any:
    if not self._array.ndim:
        raise TypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))  # the method, which a subclass may answer


def _contains(self: Tensor, element: Any) -> bool:
    if not isinstance(element, (Tensor, int, float, complex)):
        raise RuntimeError(
            "Tensor.__contains__ only supports Tensor or scalar, but you passed in a "
            f"{type(element)}."
        )
    with at_home(self):
        value = element._array if isinstance(element, Tensor) else element
        return bool((self._array == value).any())


def _format(self: Tensor, spec: str) -> str:
    return object.__format__(self, spec) if self.dim() else format(item(self), spec)


def _deepcopy(self: Tensor, memo: dict[int, Any]) -> Tensor:
    if not self.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
            "protocol at the moment; use x.detach().clone()"
        )
    twin = object.__new__(type(self))  # a subclass may have a `__new__` that wants arguments
    with at_home(self):
        copied = in_its_order(self._array, lambda array: array.copy())
        twin.fill_in(copied, self._requires_grad)
    memo[id(self)] = twin
    if self._grad is not None:
        twin._grad = copy.deepcopy(self._grad, memo)
    twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
    return twin


def _rebuild(
    kind: type[Tensor], array: Any, device: str, requires_grad: bool,
    axes: list[int] | None = None,
) -> Tensor:  # fmt: skip
    """A tensor of an array; `axes`: its dims, in the order of those of the array."""
    place = Device(device)
    t = object.__new__(kind)
    backend = get(place.type)
    with nullcontext() if place.index is None else backend.use_device(place.index):
        placed = backend.asarray(array)
        if axes is not None:
            placed = placed.transpose(sorted(range(len(axes)), key=axes.__getitem__))
        t.fill_in(placed, requires_grad)
    return t


def _rebuild_empty(kind: type[Tensor], layout: tuple[Any, ...], requires_grad: bool) -> Tensor:
    """A tensor on the meta device."""
    dtype, size, stride = layout
    t = object.__new__(kind)
    empty = ranges.empty_strided(size, stride, dtype=dtype, device="meta")
    t.fill_in(empty._array, requires_grad)
    return t


def _reduce(self: Tensor, protocol: Any) -> Any:
    rare = self._rare
    hooks = None if rare is None or rare.leaf is None else rare.leaf.tensor_hooks.get(0)
    for hook in list(hooks.values()) if hooks else ():
        warnings.warn(f"backward hook {hook!r} on tensor will not be serialized", stacklevel=2)
    parts: tuple[Any, ...]
    rebuild: Callable[..., Tensor]
    if self.is_meta:
        rebuild, layout = _rebuild_empty, (self.dtype, tuple(self.shape), self.stride())
        parts = type(self), layout, self._requires_grad
    else:
        host, rebuild = backend_of(self._array).to_host(self._array), _rebuild
        axes = order_of(host)
        rows = np.ascontiguousarray(host if axes is None else host.transpose(axes))
        rows = rows.reshape(rows.shape if host.ndim else ())
        parts = type(self), rows, str(self.device), self._requires_grad
        parts += () if axes is None else (axes,)
    return (rebuild, parts, dict(self.__dict__)) if self.__dict__ else (rebuild, parts)


def new(self: Tensor, *data: Any, size: Any = None, device: Any = None) -> Tensor:
    """PyTorch's old `new_empty(*size)`, or `new_tensor(data)`, with this tensor's dtype, device.

    Of a storage it is a tensor over that memory.

    >>> import cugrad as torch
    >>> torch.ones(2).new(2, 3).shape, torch.ones(2).new([1, 2])
    (torch.Size([2, 3]), tensor([1., 2.]))
    """
    place = self.device if device is None else device
    first = data[0] if data else 0
    if size is not None or len(data) > 1 or isinstance(first, (int, Size)):
        sizes = varargs(data, size) or (first if isinstance(first, Size) else (0,))
        return creation.empty(tuple(sizes), dtype=self.dtype, device=place)
    if is_storage(first):  # its memory
        return make(first._flat.view(self.dtype.numpy))
    values = first.detach() if isinstance(first, Tensor) else first
    return creation.tensor(values, dtype=self.dtype, device=place)


def _volatile(self: Tensor) -> bool:
    """False, with a warning: `no_grad` is what took its place."""
    warnings.warn(
        "volatile was removed (Variable.volatile is always False)", UserWarning, stacklevel=2
    )
    return False


def _set_volatile(self: Tensor, value: Any) -> None:
    warnings.warn(
        "volatile was removed and now has no effect. Use `with torch.no_grad():` instead.",
        UserWarning,
        stacklevel=2,
    )


def _new(name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The method of a function that makes tensors: in this tensor's dtype, on its device."""
    making = accepting({name: function}, ())[name]

    def call(
        self: Tensor, *args: Any, dtype: Any = None, device: Any = None, **named: Any
    ) -> Tensor:
        tensor = making(*args, dtype=dtype or self.dtype, device=device or self.device, **named)
        if name != "new_tensor":  # whose data is the same for all examples of a vmap
            array = there(per_example, tensor._array, self._array)
            tensor._form, tensor._array = None, array
        return tensor

    call.__name__ = name
    call.__qualname__ = f"Tensor.{name}"
    call.__doc__ = f"`{function.__name__}` with this tensor's dtype and device."
    return call


def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """What becomes of this parameter, or buffer, where `load_state_dict` finds `other` for it.

    It is asked for under `torch.__future__.set_swap_module_params_on_conversion(True)`; a subclass
    may say otherwise, with a tensor that is none of the two. Here it is a copy into this one, or
    `other` as it is with `assign`, without history.
    """
    return other.detach() if assign else self.copy_(other).detach()


VOLATILE = property(_volatile, _set_volatile)
METHODS: dict[str, Any] = {
    f.__name__: f
    for f in (
        to,
        type_as,
        get_device,
        cpu,
        cuda,
        pin_memory,
        record_stream,
        item,
        tolist,
        numpy,
        new,
        module_load,
    )
}
METHODS.update({
    "type": type_, "__array__": _array, "__float__": _number(float), "__int__": _number(int),
    "__complex__": _number(complex), "__bool__": _bool, "__index__": _index, "__len__": _len,
    "__iter__": _iter, "__contains__": _contains, "__format__": _format,
    "__deepcopy__": _deepcopy, "__reduce_ex__": _reduce,
    **{f"new_{f.__name__}": _new(f"new_{f.__name__}", f)
       for f in (creation.zeros, creation.ones, creation.empty, creation.full, creation.tensor,
                 ranges.empty_strided)},
    **{name: _cast(kind) for name, kind in CASTS.items()},
})  # fmt: skip
