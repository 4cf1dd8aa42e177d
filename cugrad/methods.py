"""Attaches the ops to Tensor, and gathers the public functions."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from . import autograd, creation, dtypes
from .autograd.fast import compile_function, has_fast_path
from .autograd.mode import state
from .autograd.node import HookDict, RemovableHandle, add_hook, leaf_rare
from .autograd.record import apply, apply_inplace, recorded
from .backends import backend_of, get
from .device import device as Device
from .ops.table import ELEMENTWISE, TABLE, Op
from .printing import tensor_text
from .tensor import Tensor, make

__all__ = ["FUNCTIONS"]


def _general(op: Op) -> Callable[..., Any]:
    """A row as a public function with PyTorch's argument names."""
    shown = ["input" if n == "self" else n for n in op.inputs]
    head = [n + ("=None" if orig in op.optional else "") for n, orig in
            zip(shown, op.inputs, strict=True)]  # fmt: skip
    scope: dict[str, Any] = {"apply": apply, "OP": op}
    for name in op.params:
        if name in op.defaults:
            scope[f"default_{name}"] = op.defaults[name]
            head.append(f"{name}=default_{name}")
        else:
            head.append(name)
    params = ", ".join(f"{n!r}: {n}" for n in op.params)
    body = f"return apply(OP, ({', '.join(shown)},), {{{params}}})"
    code = f"def {op.name}({', '.join(head)}):\n    {body}"
    exec(compile(code, f"<cugrad function {op.name}>", "exec"), scope)
    return scope[op.name]


_HIDDEN = {"to_dtype", "to_device", "where", "clamp", "copy"}
_MORE = ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor",
         "logical_not", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "isnan",
         "isinf", "isfinite")  # fmt: skip
# Rows whose arguments are PyTorch's as they stand.
_ROWS = [
    op for op in TABLE.values()
    if op.name in _MORE or (op.kind == ELEMENTWISE and op.name not in _HIDDEN
                            and not op.name.endswith("_backward"))
]  # fmt: skip

FUNCTIONS: dict[str, Callable[..., Any]] = {
    op.name: compile_function(op) if has_fast_path(op) else _general(op) for op in _ROWS
}
_plain_add, _plain_sub = FUNCTIONS["add"], FUNCTIONS["sub"]


def _public(function: Callable[..., Any]) -> Callable[..., Any]:
    FUNCTIONS[function.__name__] = function
    return function


@_public
def add(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """`input + alpha * other`, broadcast and promoted.

    >>> import cugrad as torch
    >>> torch.add(torch.ones(2), 2., alpha=3)
    tensor([7., 7.])
    """
    return _plain_add(input, other if alpha == 1 else other * alpha)


@_public
def sub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """`input - alpha * other`, broadcast and promoted; RuntimeError for bool tensors."""
    for x in (input, other):
        if type(x) is bool or isinstance(x, Tensor) and x._array.dtype.kind == "b":
            raise RuntimeError(
                "Subtraction, the `-` operator, with a bool tensor is not supported. If you are "
                "trying to invert a mask, use the `~` or `logical_not()` operator instead."
            )
    return _plain_sub(input, other if alpha == 1 else other * alpha)


@_public
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """`input / other`; `rounding_mode` "trunc" or "floor" rounds the quotient."""
    if rounding_mode is None:
        return _plain_div(input, other)
    if rounding_mode == "floor":
        return FUNCTIONS["floor_divide"](input, other)
    if rounding_mode != "trunc":
        raise RuntimeError(
            "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
            f"'{rounding_mode}'"
        )
    quotient = FUNCTIONS["trunc"](_plain_div(input, other))
    operands = [x for x in (input, other) if isinstance(x, Tensor)]
    if all(not x.dtype.is_floating_point for x in operands) and type(other) is not float:
        return quotient.to(operands[0].dtype)
    return quotient


_plain_div = compile_function(TABLE["div"])


@_public
def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """`input` where `condition` holds, else `other`; with one argument, the indices of the true."""
    if input is None and other is None:
        return FUNCTIONS["nonzero"](condition, as_tuple=True)
    return recorded.where(condition, input, other)


@_public
def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """`input` limited to [min, max]; the bounds are numbers or tensors.

    RuntimeError when neither bound is given.
    """
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        if min is not None:
            input = FUNCTIONS["maximum"](input, min)
        return input if max is None else FUNCTIONS["minimum"](input, max)
    return recorded.clamp(input, min, max)


ALIASES = {
    "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div",
    "negative": "neg", "absolute": "abs", "arcsin": "asin", "arccos": "acos", "arctan": "atan",
    "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "clip": "clamp",
    "fix": "trunc", "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le",
    "not_equal": "ne",
}  # fmt: skip


# ---------------------------------------------------------------------- in place


def _inplace(op: Op) -> Callable[..., Any]:
    def call(self: Tensor, *args: Any, **params: Any) -> Tensor:
        return apply_inplace(op, (self, *args), {**op.defaults, **params} if op.params else {})

    call.__name__ = op.name + "_"
    call.__qualname__ = f"Tensor.{op.name}_"
    call.__doc__ = f"`{op.name}` with its result in the place of this tensor, which is returned."
    return call


INPLACE: dict[str, Callable[..., Any]] = {
    op.name + "_": _inplace(op) for op in _ROWS
    if op.inputs[0] == "self" and op.name not in ("real", "imag", "angle")
}  # fmt: skip


def _add_(self: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    return apply_inplace(TABLE["add"], (self, other if alpha == 1 else other * alpha))


def _sub_(self: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    return apply_inplace(TABLE["sub"], (self, other if alpha == 1 else other * alpha))


def _clamp_(self: Tensor, min: Any = None, max: Any = None) -> Tensor:
    return apply_inplace(TABLE["clamp"], (self,), {"min": min, "max": max})


def _copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Copies the elements of `src` into this tensor, broadcast and cast; returns this tensor.

    With `non_blocking`, a copy between pinned host memory and a GPU does not wait for its end.
    """
    if isinstance(src, Tensor):
        ours, theirs = backend_of(self._array), backend_of(src._array)
        if ours is not theirs:
            if _transfer_directly(self, src):
                device = ours if ours.device_type != "cpu" else theirs
                stream = device.current_stream()
                device.copy_async(self._array, src._array, stream)
                if not non_blocking:
                    stream.synchronize()
                self.counter[0] += 1
                return self
            src = src.to(self.device)
    return apply_inplace(TABLE["copy"], (self, src))


def _transfer_directly(dst: Tensor, src: Tensor) -> bool:
    """Whether one raw memory copy between devices does what `dst.copy_(src)` asks."""
    a, b = dst._array, src._array
    return (
        a.shape == b.shape and a.dtype == b.dtype and a.flags.c_contiguous
        and b.flags.c_contiguous
        and not (state.grad_enabled and (src._requires_grad or dst._requires_grad))
    )  # fmt: skip


def _fill_(self: Tensor, value: Any) -> Tensor:
    """Sets every element to `value`, a number or a 0-d tensor."""
    if isinstance(value, Tensor) and value._array.ndim:
        raise RuntimeError(
            "fill_ only supports 0-dimension value tensor but got tensor with "
            f"{value._array.ndim} dimensions."
        )
    return apply_inplace(TABLE["copy"], (self, value))


def _zero_(self: Tensor) -> Tensor:
    """Sets every element to zero."""
    return apply_inplace(TABLE["copy"], (self, 0))


INPLACE.update({"add_": _add_, "sub_": _sub_, "clamp_": _clamp_, "clip_": _clamp_,
                "copy_": _copy_, "fill_": _fill_, "zero_": _zero_})  # fmt: skip

# ---------------------------------------------------------------------- operators


def _reflected(name: str) -> Callable[..., Any]:
    op = TABLE[name]

    def call(self: Tensor, other: Any) -> Any:
        return apply(op, (other, self))

    return call


def _compare(name: str) -> Callable[..., Any]:
    op, function = TABLE[name], FUNCTIONS[name]

    def call(self: Tensor, other: Any) -> Any:
        if other is None or isinstance(other, (str, list, tuple, dict, type)):
            return NotImplemented
        return function(self, other)

    call.__doc__ = f"`{op.name}`, element by element."
    return call


def _identity(self: Tensor) -> Tensor:
    return self


OPERATORS: dict[str, Callable[..., Any]] = {
    "__add__": _plain_add, "__radd__": _plain_add, "__sub__": FUNCTIONS["sub"],
    "__rsub__": lambda self, other: FUNCTIONS["sub"](other, self),
    "__mul__": FUNCTIONS["mul"], "__rmul__": FUNCTIONS["mul"],
    "__truediv__": _plain_div, "__rtruediv__": _reflected("div"),
    "__floordiv__": FUNCTIONS["floor_divide"], "__rfloordiv__": _reflected("floor_divide"),
    "__mod__": FUNCTIONS["remainder"], "__rmod__": _reflected("remainder"),
    "__pow__": FUNCTIONS["pow"], "__rpow__": _reflected("pow"),
    "__neg__": FUNCTIONS["neg"], "__pos__": _identity, "__abs__": FUNCTIONS["abs"],
    "__invert__": FUNCTIONS["bitwise_not"], "__and__": FUNCTIONS["bitwise_and"],
    "__or__": FUNCTIONS["bitwise_or"], "__xor__": FUNCTIONS["bitwise_xor"],
    "__rand__": FUNCTIONS["bitwise_and"], "__ror__": FUNCTIONS["bitwise_or"],
    "__rxor__": FUNCTIONS["bitwise_xor"],
    "__iadd__": _add_, "__isub__": _sub_, "__imul__": INPLACE["mul_"],
    "__itruediv__": INPLACE["div_"], "__ifloordiv__": INPLACE["floor_divide_"],
    "__imod__": INPLACE["remainder_"],
    "__ipow__": INPLACE["pow_"],
    **{f"__{n}__": _compare(n) for n in ("eq", "ne", "lt", "le", "gt", "ge")},
}  # fmt: skip

# ---------------------------------------------------------------------- autograd


def backward(
    self: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Adds the gradients of this tensor with respect to the leaves of its graph to their `.grad`.

    `gradient` has this tensor's shape, and may be left out when it has one element. See
    `autograd.backward`.
    """
    autograd.backward(self, gradient, retain_graph, create_graph, inputs=inputs)


def detach(self: Tensor) -> Tensor:
    """The same elements in a tensor with no history."""
    alias = make(self._array)
    alias._counter = self.counter
    return alias


def detach_(self: Tensor) -> Tensor:
    """Forgets this tensor's history in place, so that it is a leaf."""
    if self._base is not None:
        raise RuntimeError("Can't detach views in-place. Use detach() instead.")
    self._node, self._requires_grad = None, False
    return self


def register_hook(self: Tensor, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
    """Calls `hook(grad)` whenever this tensor's gradient is computed; it may return another one.

    RuntimeError when this tensor does not require gradients. Returns a handle with `remove()`.

    >>> import cugrad as torch
    >>> v = torch.tensor([0., 0.], requires_grad=True)
    >>> handle = v.register_hook(lambda grad: grad * 2)
    >>> v.backward(torch.tensor([1., 2.]))
    >>> v.grad
    tensor([2., 4.])
    """
    if not self._requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    node = self.grad_fn
    rare = leaf_rare(self) if node is None else node.get_rare()
    return add_hook(rare.tensor_hooks.setdefault(self.output_nr, HookDict()), hook)


def register_post_accumulate_grad_hook(
    self: Tensor, hook: Callable[[Tensor], None]
) -> RemovableHandle:
    """Calls `hook(tensor)` after this leaf's `.grad` has been accumulated."""
    if not self._requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if self.grad_fn is not None:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    if self.rare.post_hooks is None:
        self.rare.post_hooks = HookDict()
    return add_hook(self.rare.post_hooks, hook)


def retain_grad(self: Tensor) -> None:
    """Makes this non-leaf keep its gradient in `.grad`; nothing to do for a leaf."""
    import weakref

    if not self._requires_grad:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    node = self.grad_fn
    if node is not None:
        node.get_rare().retained[self.output_nr] = weakref.ref(self)


# ---------------------------------------------------------------------- conversion


def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """This tensor on another device or in another dtype; itself where nothing changes.

    `to(dtype)`, `to(device)`, `to(device, dtype)`, `to(other)`, with `non_blocking` and `copy`.
    """
    device, dtype, copy_ = kwargs.pop("device", None), kwargs.pop("dtype", None), False
    names = ["non_blocking", "copy"]
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
    return recorded.clone(result) if copy_ and result is self else result


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
    source = t._array if t._array.flags.c_contiguous else t._array.copy()
    with device.use_device(index if place.type != "cpu" else device.device_index(source)):
        if place.type == "cpu":
            target = device.empty_pinned(source.shape, source.dtype)
        else:
            target = backend.xp.empty(source.shape, source.dtype)
        device.copy_async(target, source, device.current_stream())
    return make(target)


def cpu(self: Tensor) -> Tensor:
    """This tensor in host memory."""
    return to(self, "cpu")


def cuda(self: Tensor, device: Any = None, non_blocking: bool = False) -> Tensor:
    """This tensor on a GPU, the current one by default."""
    return to(self, "cuda" if device is None else device, non_blocking=non_blocking)


def pin_memory(self: Tensor) -> Tensor:
    """A copy in page-locked host memory; itself where it is there already."""
    if self.is_cuda:
        raise RuntimeError(f"cannot pin '{type_(self)}' only dense CPU tensors can be pinned")
    if self.is_pinned():
        return self
    pinned = creation.get_pinning_backend().empty_pinned(self._array.shape, self._array.dtype)
    pinned[...] = self._array
    return make(pinned)


def _cast(kind: dtypes.dtype) -> Callable[[Tensor], Tensor]:
    def call(self: Tensor) -> Tensor:
        return to(self, kind)

    call.__doc__ = f"This tensor as {kind}."
    return call


CASTS = {
    "float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16,
    "bfloat16": dtypes.bfloat16, "int": dtypes.int32, "long": dtypes.int64, "short": dtypes.int16,
    "char": dtypes.int8, "byte": dtypes.uint8, "bool": dtypes.bool_, "cfloat": dtypes.complex64,
    "cdouble": dtypes.complex128,
}  # fmt: skip


def type_(self: Tensor, dtype: Any = None) -> Any:
    """This tensor in another dtype; without one, the name of its type as PyTorch spells it."""
    if dtype is not None:
        return to(self, dtype)
    names = {
        "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16",
        "int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte",
        "bool": "Bool", "complex64": "ComplexFloat", "complex128": "ComplexDouble",
    }  # fmt: skip
    return f"torch.{'cuda.' if self.is_cuda else ''}{names[self.dtype.name]}Tensor"


def item(self: Tensor) -> Any:
    """The one element as a Python number; RuntimeError for more or fewer. Waits for the device."""
    if self._array.size != 1:
        raise RuntimeError(
            f"a Tensor with {self._array.size} elements cannot be converted to Scalar"
        )
    return backend_of(self._array).to_host(self._array).item()


def tolist(self: Tensor) -> Any:
    """The elements as nested lists of Python numbers."""
    return backend_of(self._array).to_host(self._array).tolist()


def numpy(self: Tensor, *, force: bool = False) -> np.ndarray[Any, Any]:
    """The elements as a NumPy array, shared with a CPU tensor.

    With `force` also of tensors that require gradients or live on a GPU, which are copied.
    """
    if force:
        return backend_of(self._array).to_host(self._array)
    if self.is_cuda:
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy "
            "the tensor to host memory first."
        )
    if self._requires_grad:
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )
    return self._array


def _array(self: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
    array = numpy(self)
    if dtype is None or np.dtype(dtype) == array.dtype:
        return array.copy() if copy else array
    if copy is False:
        raise ValueError(f"__array__: copy=False, but {array.dtype} must be copied to {dtype}")
    return array.astype(dtype)


def _number(kind: type) -> Callable[[Tensor], Any]:
    def call(self: Tensor) -> Any:
        return kind(item(self))

    return call


def _bool(self: Tensor) -> bool:
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
    return (self[i] for i in range(self._array.shape[0]))


def _contains(self: Tensor, element: Any) -> bool:
    return bool((self._array == (element._array if isinstance(element, Tensor) else element)).any())


def _format(self: Tensor, spec: str) -> str:
    return format(item(self), spec) if spec and not self._array.ndim else repr(self)


def _deepcopy(self: Tensor, memo: dict[int, Any]) -> Tensor:
    if not self.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
            "protocol at the moment; use x.detach().clone()"
        )
    twin = type(self).__new__(type(self))
    Tensor.__init__(twin, self._array.copy(), requires_grad=self._requires_grad)
    memo[id(self)] = twin
    if self._grad is not None:
        twin._grad = copy.deepcopy(self._grad, memo)
    twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
    return twin


def _rebuild(kind: type[Tensor], array: Any, device: str, requires_grad: bool) -> Tensor:
    place = Device(device)
    t = kind.__new__(kind)
    Tensor.__init__(t, get(place.type).asarray(array), requires_grad=requires_grad)
    return t


def _reduce(self: Tensor, protocol: Any) -> Any:
    if not self.is_leaf:
        raise RuntimeError("cannot pickle a non-leaf tensor; use x.detach()")
    host = np.ascontiguousarray(backend_of(self._array).to_host(self._array))
    place = self.device.type
    return _rebuild, (type(self), host.reshape(self._array.shape), place, self._requires_grad)


def new_tensor(
    self: Tensor, data: Any, *, dtype: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor from data, with this tensor's dtype and device."""
    return creation.tensor(
        data, dtype=dtype or self.dtype, device=self.device, requires_grad=requires_grad
    )


def _new(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def call(self: Tensor, *size: Any, dtype: Any = None, device: Any = None) -> Tensor:
        return function(*size, dtype=dtype or self.dtype, device=device or self.device)

    return call


METHODS: dict[str, Any] = {
    f.__name__: f for f in (backward, detach, detach_, register_hook,
                            register_post_accumulate_grad_hook, retain_grad, to, cpu, cuda,
                            pin_memory, item, tolist, numpy, new_tensor)
}  # fmt: skip
METHODS.update({
    "type": type_, "__array__": _array, "__float__": _number(float), "__int__": _number(int),
    "__complex__": _number(complex), "__bool__": _bool, "__index__": _index, "__len__": _len,
    "__iter__": _iter, "__contains__": _contains, "__format__": _format, "__repr__": tensor_text,
    "__deepcopy__": _deepcopy, "__reduce_ex__": _reduce, "new_zeros": _new(creation.zeros),
    "new_ones": _new(creation.ones), "new_empty": _new(creation.empty),
    "new_full": _new(creation.full),
    **{name: _cast(kind) for name, kind in CASTS.items()},
})  # fmt: skip


def attach(
    functions: dict[str, Callable[..., Any]],
    methods: dict[str, Callable[..., Any]],
    properties: dict[str, Callable[..., Any]],
) -> None:
    """Adds the functions of other modules to `FUNCTIONS`, and every method to Tensor."""
    FUNCTIONS.update(functions)
    for alias, name in ALIASES.items():
        FUNCTIONS[alias] = FUNCTIONS[name]
    for source in (ROW_METHODS, INPLACE, OPERATORS, METHODS, methods):
        for name, method in source.items():
            setattr(Tensor, name, method)
    for name, read in {**properties, "real": FUNCTIONS["real"], "imag": FUNCTIONS["imag"]}.items():
        setattr(Tensor, name, property(read))


def _where(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """`self` where `condition` holds, else `other`."""
    return recorded.where(condition, self, other)


ROW_METHODS: dict[str, Callable[..., Any]] = {
    **{name: function for name, function in FUNCTIONS.items() if name not in ("real", "imag")},
    **{alias: FUNCTIONS[name] for alias, name in ALIASES.items()},
    "where": _where,
}
