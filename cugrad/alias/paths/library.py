"""torch.library: operators of a program's own, as functions of Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import autograd
from ...absent import COMPILED
from ..refusals import operators, refuse_the_rest

__all__ = ["CustomOpDef", "custom_op", "register_autograd", "register_fake", "register_kernel"]


class CustomOpDef:
    """An operator that `custom_op` has made: its function, and what is registered for it.

    Its name in `torch.ops` is this object, too, whose `default` is itself.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name, self._function = name, function
        self._backward: tuple[Any, Any] | None = None
        self._by_device: dict[str, Callable[..., Any]] = {}
        self.__doc__, self.__name__ = function.__doc__, name.rpartition("::")[2]

    @property
    def default(self) -> CustomOpDef:
        """The only overload."""
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            import inspect

            bound = inspect.signature(self._function).bind(*args, **kwargs)
            bound.apply_defaults()
            args = tuple(bound.arguments.values())
        return _Call.apply(self, *args)

    def run(self, args: tuple[Any, ...]) -> Any:
        """What the function for the first tensor's device answers."""
        for arg in args:
            kind = getattr(getattr(arg, "device", None), "type", None)
            if kind is not None and kind in self._by_device:
                return self._by_device[kind](*args)
        return self._function(*args)

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
    op = CustomOpDef(name, fn)
    setattr(getattr(operators, space), last, op)
    return op


def _of(op: Any) -> CustomOpDef:
    if isinstance(op, str):
        space, _, last = op.partition("::")
        op = getattr(getattr(operators, space), last)
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
