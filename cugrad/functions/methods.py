"""Attaches everything to Tensor: ops, autograd, conversions."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from .. import autograd
from ..autograd.recording.node import HookDict, RemovableHandle, add_hook, leaf_rare
from ..autograd.recording.record import recorded
from ..autograd.recording.views import detached
from ..runtime import dispatching
from ..runtime.absent import ABSENT, Absent
from ..tensor import Size, Tensor, aliased
from . import FUNCTIONS, PROPERTIES, declared, operators
from . import METHODS as FUNCTION_METHODS
from .calls.arguments import cast
from .calls.mistakes import saying
from .calls.old_order import in_any_order
from .calls.out import renaming
from .interop import conversion, exchange, shared_memory
from .interop.printing import tensor_text
from .maths import arithmetic

__all__ = ["attach"]


# Why what PyTorch asks below autograd cannot be.
NOT_ASKED = "calls are taken by __torch_function__ alone, not below autograd: define that"


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


def as_subclass(self: Tensor, cls: type[Tensor]) -> Tensor:
    """A view of the same elements, with this tensor's history, that is an instance of `cls`.

    What the class has in `__slots__` is not set yet. TypeError where `cls` is no subclass of
    Tensor, or is abstract and has `__slots__`.

    >>> import cugrad as torch
    >>> class Image(torch.Tensor): pass
    >>> image = torch.zeros(2, 2).as_subclass(Image)
    >>> type(image[0] + 1).__name__
    'Image'
    """
    _check_subclass("as_subclass", cls)
    return _in_class(recorded.alias(self), cls)


def _check_subclass(function: str, cls: Any) -> None:
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise TypeError(f"{function}(): argument 'cls' must be a subclass of Tensor, got {cls!r}")
    if hasattr(cls, "__torch_dispatch__"):
        raise NotImplementedError(f"{function}(): {cls.__name__}.__torch_dispatch__: {NOT_ASKED}")


def _in_class(tensor: Tensor, cls: type[Tensor]) -> Tensor:
    try:
        tensor.__class__ = cls
    except TypeError:  # a Tensor has no room for its fields
        return _succeeded(tensor, cls)
    return tensor


def _succeeded(tensor: Tensor, cls: type[Tensor]) -> Tensor:
    """An instance of a class with fields of its own, in the place of `tensor`, which is new."""
    try:
        successor: Tensor = object.__new__(cls)
    except TypeError as error:
        raise TypeError(f"{cls.__name__}: a Tensor does not become one ({error})") from None
    for field in Tensor.__slots__:
        if not field.startswith("__"):
            setattr(successor, field, getattr(tensor, field))
    view = None if tensor._rare is None else tensor._rare.view
    if view is not None:
        view.passes_to(successor, tensor)
    return successor


def _make_subclass(cls: type[Tensor], data: Tensor, require_grad: bool = False) -> Tensor:
    """An instance of a subclass that shares the memory of `data`, without its history."""
    _check_subclass("_make_subclass", cls)
    if not isinstance(data, Tensor):
        raise TypeError(
            f"_make_subclass(): argument 'data' must be Tensor, not {type(data).__name__}"
        )
    return _in_class(aliased(data, require_grad), cls)


def _make_wrapper_subclass(cls: type[Tensor], *args: Any, **kwargs: Any) -> NoReturn:
    """NotImplementedError: a Tensor has memory of its own, or is on the device meta."""
    raise NotImplementedError(f"_make_wrapper_subclass(): {cls.__name__}: {NOT_ASKED}")


def _torch_function(
    cls: type[Tensor],
    func: Callable[..., Any],
    types: Iterable[type],
    args: Any = (),
    kwargs: Any = None,
) -> Any:
    """What a subclass makes of a call: what Tensor makes of it, with results of the subclass.

    `func` is the public function, `types` the classes of arguments that take calls; where one
    of them is no base of this class the answer is NotImplemented. A subclass may override this.

    >>> import cugrad as torch
    >>> class Logged(torch.Tensor):
    ...     @classmethod
    ...     def __torch_function__(cls, func, types, args=(), kwargs=None):
    ...         print(func.__name__)
    ...         return super().__torch_function__(func, types, args, kwargs)
    >>> x = torch.tensor([1.0, 2.0]).as_subclass(Logged)
    >>> y = torch.exp(x * 2)
    mul
    exp
    >>> isinstance(y, Logged)
    True
    """
    if not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    with dispatching.DisableTorchFunctionSubclass():
        result = func(*args, **(kwargs or {}))
        return result if dispatching.gives_base(func) else _converted(result, cls)


def _converted(result: Any, kind: type) -> Any:
    """A result whose tensors are of a subclass."""
    if isinstance(result, Tensor):
        is_one = isinstance(result, kind) or result.is_sparse
        return result if is_one else result.as_subclass(kind)
    if not isinstance(result, (tuple, list)) or type(result) is Size:
        return result
    values = [_converted(x, kind) for x in result]
    return type(result)(*values) if hasattr(result, "_fields") else type(result)(values)


def detach(self: Tensor) -> Tensor:
    """The same elements in a tensor with no history."""
    return aliased(self)


def detach_(self: Tensor) -> Tensor:
    """Forgets this tensor's history in place, so that it is a leaf."""
    if self._base is not None:
        raise RuntimeError(
            "Can't detach views in-place. Use detach() instead. (A view's history is that of its "
            "base.)"
        )
    if self._node is not None:
        _ = self.counter  # what has one is looked at by the nodes that saved it
        detached(self)
    self._node, self._requires_grad = None, False
    if self._rare is not None:
        self._rare.tangents = self._rare.stands_for = None
        self._rare.tell_views(False)
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
    if not self._requires_grad:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    node = self.grad_fn
    if node is not None:
        node.get_rare().retained[self.output_nr] = weakref.ref(self)


def softmax(self: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """exp of this tensor, divided by the sum of it along `dim`; `dtype` casts first."""
    return recorded.softmax(self if dtype is None else cast(self, dtype), dim)


def log_softmax(self: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """The logarithm of softmax, computed without forming the softmax."""
    return recorded.log_softmax(self if dtype is None else cast(self, dtype), dim)


def _where(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """`self` where `condition` holds, else `other`."""
    return recorded.where(condition, self, other)


def _part(read: Callable[[Tensor], Tensor]) -> property:
    """A property that is a view, such as `real`: what is assigned to it is copied into it."""

    def write(self: Tensor, value: Any) -> None:
        read(self)[...] = value

    return property(lambda self: read(self), write)


def _set_backward_hooks(self: Tensor, hooks: Any) -> None:
    """The hooks of a leaf, by whatever keys; those of others are at their node, and registered."""
    if self.grad_fn is None:
        leaf_rare(self).tensor_hooks[0] = HookDict(hooks or {})


def _dir(self: Tensor) -> list[str]:
    """The names that can be read, as `dir` lists them."""
    away = {n for n, value in vars(Tensor).items() if isinstance(value, Absent)}
    if not self.is_cuda:
        away.add("__cuda_array_interface__")
    return [name for name in object.__dir__(self) if name not in away]


OF_THE_CLASS: dict[str, Any] = {
    "_make_subclass": staticmethod(_make_subclass),
    "_make_wrapper_subclass": staticmethod(_make_wrapper_subclass),
    "__torch_function__": classmethod(_torch_function),
}
METHODS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (as_subclass, backward, detach, detach_, log_softmax, register_hook,
                            register_post_accumulate_grad_hook, retain_grad, softmax)
}  # fmt: skip
METHODS.update({"where": _where, "__repr__": tensor_text, "__dir__": _dir})
hooks_of: Any = vars(Tensor)["_backward_hooks"]
PROPERTIES_TO_SET = {
    "_backward_hooks": hooks_of.setter(_set_backward_hooks), "volatile": conversion.VOLATILE,
}  # fmt: skip


# What tensors are not, here: there is one kind of memory, and three kinds of devices.
FALSE = """
    is_ipu is_maia is_mkldnn is_mps is_mtia is_nested is_quantized is_sparse is_sparse_csr
    is_vulkan is_xla is_xpu
"""


# Methods whose numbers meet NumPy or Python before a row does.
SAYING = frozenset(["clamp", "clip", "masked_fill", "masked_fill_", "uniform_", "normal_",
                    "bernoulli_", "random_", "exponential_", "geometric_", "cauchy_",
                    "log_normal_"])  # fmt: skip


# What `help` says of methods that are written where a line is dear.
TEXTS = {
    "dim ndimension": "The number of dims.",
    "numel nelement": "The number of elements.",
    "element_size": "The bytes of an element.",
    "is_floating_point": "Whether elements are real numbers with a fraction, halves too.",
    "is_complex": "Whether elements are complex numbers.",
    "add_": "Adds alpha · other in place.",
    "sub_ subtract_": "Subtracts alpha · other in place.",
    "div_ divide_ true_divide_": 'Divides in place; rounded where `rounding_mode` says "trunc" or '
    '"floor".',
    "clamp_ clip_": "Moves elements outside of [min, max] to its ends, in place.",
}


def attach(*more: dict[str, Callable[..., Any]]) -> None:
    """Adds every method to Tensor, those of modules above this one (`more`) too."""
    rows = {n: f for n, f in arithmetic.METHODS.items() if n != "where"}  # see _where
    methods = declared(
        rows, arithmetic.INPLACE, operators.OPERATORS, conversion.METHODS, exchange.METHODS,
        shared_memory.METHODS, FUNCTION_METHODS, METHODS, *more,
    )  # fmt: skip
    for name, method in methods.items():
        method = renaming(method)
        method = saying(method, "cugrad") if name in SAYING else method
        setattr(Tensor, name, in_any_order(name, method))
    for names, text in TEXTS.items():
        for name in names.split():
            vars(Tensor)[name].__doc__ = text
    read_only = {**PROPERTIES, **exchange.PROPERTIES}
    for name, read in read_only.items():
        setattr(Tensor, name, property(read))
    for name, of_class in OF_THE_CLASS.items():
        setattr(Tensor, name, of_class)
    for name, both in PROPERTIES_TO_SET.items():
        setattr(Tensor, name, both)
    for name in ("real", "imag"):
        setattr(Tensor, name, _part(FUNCTIONS[name]))
    for name in FALSE.split():
        setattr(Tensor, name, False)
    for reason, names in ABSENT["Tensor"].items():
        for name in names.split():
            setattr(Tensor, name, Absent(name, reason))
