"""torch.library: operators of a program's own, as functions of Python."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ... import autograd
from ...runtime.absent import COMPILED
from ..refusals import operators, refuse_the_rest

__all__ = ["CustomOpDef", "Library", "custom_op", "define", "impl", "register_autograd",
           "register_fake", "register_kernel", "triton_op"]  # fmt: skip


class CustomOpDef:
    """An operator that `custom_op` or `define` has made: what is registered for it.

    Its name in `torch.ops` is this object, too, whose `default` is itself. One that `define` has
    made has no function until `impl` or `register_kernel` gives it one for a kind of device.
    """

    def __init__(self, name: str, function: Callable[..., Any] | None) -> None:
        self._name, self._function = name, function
        self._backward: tuple[Any, Any] | None = None
        self._by_device: dict[str, Callable[..., Any]] = {}
        self._recorded: dict[str, Callable[..., Any]] = {}  # by device, or "": their ops have nodes
        self._is_below = threading.local()  # true while one of these runs, which may call this
        self.__doc__, self.__name__ = getattr(function, "__doc__", None), name.rpartition("::")[2]

    @property
    def default(self) -> CustomOpDef:
        """The only overload."""
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            import inspect

            functions = {**self._recorded, **self._by_device}
            function = self._function or next(iter(functions.values()), None)
            if function is None:
                raise self._nothing(args)
            bound = inspect.signature(function).bind(*args, **kwargs)
            bound.apply_defaults()
            args = tuple(bound.arguments.values())
        if self._recorded and not getattr(self._is_below, "value", False):
            recorded = self._for(self._recorded, args) or self._recorded.get("")
            if recorded is not None:
                self._is_below.value = True
                try:
                    return recorded(*args)
                finally:
                    self._is_below.value = False
        return _Call.apply(self, *args)

    def run(self, args: tuple[Any, ...]) -> Any:
        """What the function for the first tensor's device answers."""
        function = self._for(self._by_device, args) or self._function
        if function is None:
            raise self._nothing(args)
        return function(*args)

    def _for(self, functions: dict[str, Any], args: tuple[Any, ...]) -> Any:
        """The function for the device of the first tensor that has one, or None."""
        for arg in args:
            kind = getattr(getattr(arg, "device", None), "type", None)
            if kind in functions:
                return functions[kind]
        return None

    def _nothing(self, args: tuple[Any, ...]) -> NotImplementedError:
        places = sorted({str(arg.device) for arg in args if hasattr(arg, "device")})
        return NotImplementedError(
            f"Could not run {self._name!r} with arguments on {', '.join(places) or 'no device'}: "
            "no function of Python is registered for it; operators of C++ libraries cannot be "
            "loaded"
        )

    def register_fake(self, fn: Any = None, /) -> Any:
        """`fn` itself: shapes are those of what the function computes."""
        return (lambda fn: fn) if fn is None else fn

    def register_kernel(self, device_types: Any, fn: Any = None, /) -> Any:
        """The function for these kinds of devices; a decorator where it is not given."""
        if fn is None:
            return lambda fn: self.register_kernel(device_types, fn)
        for kind in [device_types] if isinstance(device_types, str) else device_types:
            self._by_device[kind] = fn
        return fn

    def register_autograd(self, backward: Any, /, *, setup_context: Any = None) -> None:
        """`backward(ctx, *grads)` gives a gradient for each argument of the operator."""
        self._backward = backward, setup_context


class _Call(autograd.Function):
    """A call of a custom operator."""

    @staticmethod
    def forward(ctx: Any, op: CustomOpDef, *args: Any) -> Any:
        result = op.run(args)
        ctx.op = op
        if op._backward is not None and op._backward[1] is not None:
            op._backward[1](ctx, args, result)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if ctx.op._backward is None:
            raise RuntimeError(
                f"Trying to backward through {ctx.op._name} but no autograd formula was "
                "registered. Please use register_autograd to add one."
            )
        inputs = ctx.op._backward[0](ctx, *grads)
        return None, *(inputs if isinstance(inputs, tuple) else (inputs,))


_UNDEFINED = object()


def custom_op(
    name: str, fn: Any = None, /, *, mutates_args: Any = (), device_types: Any = None,
    schema: str | None = None, tags: Any = None,
) -> Any:  # fmt: skip
    """An operator of the name "namespace::name" that calls `fn`; a decorator where it is not given.

    `torch.ops.namespace.name` is the operator. What it changes, and its schema, are not looked at.
    """
    if fn is None:
        return lambda fn: custom_op(name, fn, mutates_args=mutates_args)
    space, _, last = name.partition("::")
    if not last:
        raise ValueError(f"custom_op: got the name {name!r}, want 'namespace::name'")
    op = CustomOpDef(name, None if fn is _UNDEFINED else fn)
    setattr(getattr(operators, space), last, op)
    return op


def define(qualname: str, schema: str = "", *, lib: Library | None = None, tags: Any = ()) -> None:
    """An operator without a function yet. Its schema is not looked at; ValueError for a bad name.

    >>> import cugrad as torch
    >>> define("doctest::twice", "(Tensor x) -> Tensor")
    >>> impl("doctest::twice", "cpu", lambda x: x * 2)
    >>> operators.doctest.twice(torch.ones(2))
    tensor([2., 2.])
    """
    custom_op(qualname.partition("(")[0], _UNDEFINED)


triton_op = (
    custom_op  # its function is called; kernels of Triton are functions of the program's own
)

_KINDS = {"CPU": "cpu", "CUDA": "cuda", "Meta": "meta"}  # dispatch keys that are kinds of devices
# Dispatch keys of functions whose ops autograd sees, in the place of a formula for the operator.
_RECORDED = {"CompositeImplicitAutograd": "", "Autograd": "", "AutogradCPU": "cpu",
             "AutogradCUDA": "cuda"}  # fmt: skip


def impl(qualname: str, types: Any, func: Any = None, *, lib: Library | None = None) -> Any:
    """The function of an operator for kinds of devices, "default" for all; or a decorator."""
    if func is None:
        return lambda func: impl(qualname, types, func)
    for kind in [types] if isinstance(types, str) else types:
        if kind in _RECORDED:
            _of(qualname)._recorded[_RECORDED[kind]] = func
        elif kind in ("default", "CompositeExplicitAutograd"):
            _of(qualname)._function = func
        elif not kind.startswith("Autocast"):  # functions of Python are autocast op by op
            _of(qualname).register_kernel(_KINDS.get(kind, kind), func)
    return None


class Library:
    """The operators of a namespace, that `define` and `impl` make: `kind` is "DEF" or the like."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = "default") -> None:
        if kind not in ("DEF", "IMPL", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key or "default"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """An operator by its schema, `name(Tensor x) -> Tensor`; returns its name."""
        name = schema.partition("(")[0].strip()
        define(f"{self.ns}::{name}")
        return name

    def impl(
        self, op_name: Any, fn: Any, dispatch_key: str = "", *, with_keyset: bool = False,
        allow_override: bool = False,
    ) -> None:  # fmt: skip
        """The function of an operator, by its name or by what `torch.ops` has."""
        if with_keyset:
            raise NotImplementedError("Library.impl: there are no sets of dispatch keys to give")
        name = op_name if isinstance(op_name, str) else op_name._name
        whole = name if "::" in name else f"{self.ns}::{name}"
        impl(whole, dispatch_key or self.dispatch_key, fn)


def _of(op: Any) -> CustomOpDef:
    if isinstance(op, str):
        space, _, last = op.partition("::")
        op = getattr(getattr(operators, space), last.partition(".")[0])
    if not isinstance(op, CustomOpDef):
        raise NotImplementedError(f"torch.library: {op!r} was not made by custom_op")
    return op


def register_fake(op: Any, func: Any = None, /, **how: Any) -> Any:
    """`func` itself, or a decorator."""
    return (lambda func: func) if func is None else func


def register_kernel(op: Any, device_types: Any, func: Any = None, /, **how: Any) -> Any:
    """The function of an operator for kinds of devices."""
    return _of(op).register_kernel(device_types, func)


def register_autograd(
    op: Any, backward: Any, /, *, setup_context: Any = None, lib: Any = None
) -> None:
    """The gradient of an operator that `custom_op` has made."""
    _of(op).register_autograd(backward, setup_context=setup_context)


refuse_the_rest(__name__, "library", COMPILED)
