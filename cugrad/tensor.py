"""Tensor: an array and its autograd state; the maths is attached from above."""

from __future__ import annotations

import threading
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from . import dtypes
from .backends import backend_of, started
from .device import device as Device
from .dtypes import dtype as Dtype
from .dtypes import is_differentiable
from .runtime import dispatching
from .runtime.extents import Size, of_dim, size_of
from .runtime.kept import of_thread

if TYPE_CHECKING:
    from .autograd.recording.mirrors import Turned
    from .autograd.recording.views import View

__all__ = ["Size", "Tensor"]


class Uncounted(list[int]):
    """The version counter of an inference tensor: it does not count."""

    __slots__ = ()

    def __setitem__(self, index: Any, value: Any) -> None:
        pass


class Fresh(threading.local):
    """The version counter that this thread's new tensors have: `UNCOUNTED` in inference mode."""

    counter: list[int] | None = None


NO_LEAF = (
    "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad "
    "attribute won't be populated during autograd.backward(). If you indeed want the .grad field "
    "to be populated for a non-leaf Tensor, use .retain_grad() on the non-leaf Tensor. If you "
    "access the non-leaf Tensor by mistake, make sure you access the leaf Tensor instead."
)
INFERENCE = "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed."
UNCOUNTED = Uncounted([0])
fresh = of_thread(Fresh())
flags_set = [0]  # how often a tensor that was there has come to require gradients, or ceased to


class Rare:
    """What most tensors never have: hooks, a view's origin, the views of a base."""

    __slots__ = ("leaf", "post_hooks", "view", "views", "turned", "accumulator", "tangents",
                 "stands_for", "lifted")  # fmt: skip

    def __init__(self) -> None:
        self.leaf: Any = None  # the hooks of a leaf, a NodeRare; other tensors' sit at their node
        self.post_hooks: Any = None  # run after `.grad` was accumulated
        self.view: View | None = None
        self.views: list[weakref.ref[Tensor]] | None = None
        self.turned: Turned | None = None  # of a view of conjugates or negatives
        self.accumulator: weakref.ref[Any] | None = None
        self.tangents: dict[Any, Tensor | None] | None = None  # by level of forward mode
        self.stands_for: Tensor | None = None  # the leaf to which its gradient goes, as of a copy
        self.lifted = False  # a leaf to the function that a transform has given it to

    def tell_views(self, requires_grad: bool) -> None:
        """Has the views that have no history require gradients as their base does now."""
        for ref in self.views or ():
            view = ref()
            if view is not None and view._rare is not None and view._rare.view is not None:
                view._rare.view.base_requires(view, requires_grad)


class Tensor:
    """An n-dimensional array on a device that remembers how it was computed.

    Make one with `cugrad.tensor`, `cugrad.zeros` and their like.
    """

    # _node: the node or node output that made this tensor; None for leaves and for views whose
    #   base has changed since (grad_fn makes it anew)
    # _counter: None until the first in-place change or view; then a list of one int, the version,
    #   that all views of the storage share; UNCOUNTED for inference tensors
    # _form: what a backend calls the form of the array, or None; who sets `_array` sets both
    __slots__ = ("_array", "_requires_grad", "_node", "_grad", "_counter", "_rare", "_form",
                 "__dict__", "__weakref__")  # fmt: skip
    _array: Any
    _requires_grad: bool
    _node: Any
    _grad: Tensor | None
    _counter: list[int] | None
    _rare: Rare | None
    _form: Any

    if TYPE_CHECKING:  # what methods.py attaches

        def __getattr__(self, name: str) -> Any: ...
        def __getitem__(self, index: Any) -> Tensor: ...
        def __len__(self) -> int: ...
        def __bool__(self) -> bool: ...
        def __eq__(self, other: object) -> Any: ...
        def __ne__(self, other: object) -> Any: ...

        __add__: Any
        __radd__: Any
        __sub__: Any
        __rsub__: Any
        __mul__: Any
        __rmul__: Any
        __truediv__: Any
        __rtruediv__: Any
        __matmul__: Any
        __pow__: Any
        __neg__: Any
        __lt__: Any
        __le__: Any
        __gt__: Any
        __ge__: Any
        __and__: Any
        __or__: Any
        __invert__: Any

    _may_be_away = False  # whether its array is brought in, perhaps, when it is asked for
    __array_priority__ = 1000  # `numpy_array * tensor` is a tensor
    __hash__ = object.__hash__
    _cdata = property(lambda self: id(self))  # pyro compares them; `id` itself asks no class

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        dispatching.meets(cls)

    def __new__(cls, *data: Any, device: Any = None) -> Any:
        """PyTorch's old constructor: `Tensor(2, 3)` is uninitialised, `Tensor([1, 2])` has data.

        Of the default dtype in both cases; `cugrad.tensor` infers the dtype. A subclass may have
        a `__new__` with arguments of its own, which needs no `__init__` then.
        """
        tensor = _new(cls)
        tensor.fill_in(old_constructor(data, device))
        return tensor

    def fill_in(self, array: Any, requires_grad: bool = False) -> None:
        """Sets every field; for subclasses and copies, which are not made by `make`."""
        self._form, self._array = None, array
        self._requires_grad = requires_grad
        self._node = self._grad = self._rare = None
        self._counter = fresh.counter

    def _in_parts(self, local: Tensor) -> Tensor:
        """A tensor as one in the parts that this one is in: DTensors are; others are whole."""
        return local

    @property
    def rare(self) -> Rare:
        """The rarely needed state, made when first asked for."""
        if self._rare is None:
            self._rare = Rare()
        return self._rare

    # ------------------------------------------------------------------ the array

    @property
    def shape(self) -> Size:
        return size_of(self._array.shape)

    @property
    def ndim(self) -> int:
        return self._array.ndim

    @property
    def dtype(self) -> Dtype:
        return dtypes.of(self._array.dtype)

    @property
    def device(self) -> Device:
        backend = backend_of(self._array)
        return Device(backend.device_type, backend.device_index(self._array))

    @property
    def is_cuda(self) -> bool:
        return backend_of(self._array).device_type == "cuda"

    @property
    def is_cpu(self) -> bool:
        return backend_of(self._array).device_type == "cpu"

    @property
    def is_meta(self) -> bool:
        return backend_of(self._array).device_type == "meta"

    @property
    def itemsize(self) -> int:
        return self._array.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the elements: their number times their size."""
        return self._array.size * self._array.itemsize

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the extent of one dimension."""
        return self.shape if dim is None else of_dim(self.shape, dim)

    def dim(self) -> int:
        return self._array.ndim

    ndimension = dim

    def numel(self) -> int:
        return self._array.size

    nelement = numel

    def element_size(self) -> int:
        return self._array.itemsize

    def stride(self, dim: int | None = None) -> Any:
        """The steps between neighbours along each dimension, in elements."""
        item, shape = self._array.itemsize, self._array.shape
        if self._array.size:
            steps = tuple(s // item for s in self._array.strides)
        else:  # array libraries differ; PyTorch's are those of extents of at least one
            steps = tuple(
                Size(max(n, 1) for n in shape[d:]).numel() for d in range(1, len(shape) + 1)
            )
        return steps if dim is None else of_dim(steps, dim)

    def is_contiguous(self) -> bool:
        return bool(self._array.flags.c_contiguous)

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        return self.dtype.is_complex

    def is_pinned(self, device: Any = None) -> bool:
        """Whether the tensor lies in page-locked host memory, which is so for CUDA alone."""
        if device is not None and Device(device).type != "cuda":
            return False
        return self.is_cpu and any(b.is_pinned(self._array) for b in started())

    # ------------------------------------------------------------------ autograd state

    @property
    def requires_grad(self) -> bool:
        """Whether gradients are computed for this tensor."""
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if not self.is_leaf:
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables. If you want to use a "
                "computed variable in a subgraph that doesn't require differentiation use "
                "var_no_grad = var.detach()."
            )
        if type(value) is not bool:
            raise RuntimeError("requires_grad must be a bool")
        check_differentiable_dtype(self.dtype, value, "only")
        if value and self._counter is UNCOUNTED and fresh.counter is None:
            raise RuntimeError(INFERENCE)
        flags_set[0] += value is not self._requires_grad
        self._requires_grad = value
        if self._rare is not None:
            if self._rare.view is not None:
                self._rare.view.accumulates = value
            self._rare.tell_views(value)

    @requires_grad.deleter
    def requires_grad(self) -> None:
        raise RuntimeError("requires_grad must be a bool")

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Sets `requires_grad` in place; RuntimeError for integers, or False of a non-leaf."""
        if type(requires_grad) is not bool:
            raise TypeError(
                "requires_grad_(): argument 'requires_grad' (position 1) must be bool, not "
                f"{type(requires_grad).__name__}"
            )
        if not requires_grad or self.is_leaf:
            check_differentiable_dtype(self.dtype, requires_grad, "only", "floating point")
            self.requires_grad = requires_grad
        return self

    @property
    def grad_fn(self) -> Any:
        """The node that computed this tensor, or None for a leaf."""
        node = self._node
        if node is None:
            if not self._requires_grad or self._rare is None or self._rare.view is None:
                return None
            node = self._rare.view.regenerate(self)
        grad_fn = None if node is None else node.grad_fn
        return None if grad_fn is None else grad_fn.shown()

    @property
    def _grad_fn(self) -> Any:
        return self.grad_fn

    @_grad_fn.deleter
    def _grad_fn(self) -> None:
        raise RuntimeError("Deletion of _grad_fn not allowed. Detach tensor instead!")

    @property
    def _backward_hooks(self) -> Any:
        """What `register_hook` has registered, by the number of the handle; None before it."""
        if self._node is not None:
            rare = self._node.grad_fn.rare
        else:
            rare = None if self._rare is None else self._rare.leaf
        return None if rare is None else rare.tensor_hooks.get(self.output_nr)

    @_backward_hooks.deleter
    def _backward_hooks(self) -> None:
        raise RuntimeError("Deletion of _backwards_hooks not allowed!")

    @property
    def is_leaf(self) -> bool:
        """True for tensors made by the user, and for all that do not require gradients."""
        if not self._requires_grad:
            return True
        return self._node is None and self.grad_fn is None

    @property
    def output_nr(self) -> int:
        """Which output of `grad_fn` this tensor is."""
        return 0 if self._node is None else self._node.output_nr

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient, None before the first backward; non-leaves have none, and
        warn."""
        if self._grad is None and self._requires_grad and self._node is not None:
            if not (self.is_leaf or self.retains_grad):
                warnings.warn(NO_LEAF, stacklevel=2)
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            self._check_grad(value)
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    def _check_grad(self, value: Any) -> None:
        if value is self:
            raise RuntimeError("can't assign Variable as its own grad")
        if not isinstance(value, Tensor):
            raise TypeError(
                f"assigned grad expected to be a Tensor or None but got grad of type "
                f"{type(value).__name__}"
            )
        for what, own, new, same in (
            ("with dtype", self.dtype, value.dtype, "have the same dtype"),
            ("with device", self.device, value.device, "are on the same device"),
            ("of size", list(self.shape), list(value.shape), "are the same size"),
        ):
            if own != new:
                raise RuntimeError(
                    f"attempting to assign a gradient {what} '{new}' to a tensor {what} '{own}'. "
                    f"Please ensure that the gradient and the tensor {same}"
                )

    @property
    def retains_grad(self) -> bool:
        """Whether a non-leaf keeps its `.grad`, see `retain_grad`."""
        node = None if self._node is None else self._node.grad_fn
        if node is None and self._rare is not None and self._rare.view is not None:
            return self._rare.view.retains is not None
        if node is None or node.rare is None:
            return False
        keeper = node.rare.retained.get(self.output_nr)
        return keeper is not None and keeper() is self

    @property
    def _base(self) -> Tensor | None:
        """The tensor that this one is a view of, or None."""
        return None if self._rare is None or self._rare.view is None else self._rare.view.base

    def _is_view(self) -> bool:
        return self._base is not None

    @property
    def _version(self) -> int:
        """How many times the storage was changed in place."""
        if self._counter is UNCOUNTED:
            raise RuntimeError("Inference tensors do not track version counter.")
        return 0 if self._counter is None else self._counter[0]

    @property
    def counter(self) -> list[int]:
        """The version, in a list that all views of this storage share; made when asked for."""
        if self._counter is None:
            saved = None if self._node is None else self._node.counter_of()
            self._counter = [0] if saved is None else saved  # the one its node watches, if any
        return self._counter

    def is_inference(self) -> bool:
        """Whether this tensor was made in `inference_mode`, and so takes no part in autograd."""
        return self._counter is UNCOUNTED

    def counter_of(self) -> None:
        """A leaf that another tensor stands for has saved nothing of it."""

    @property
    def data(self) -> Tensor:
        """The same elements with no history and a version counter of its own."""
        return tell_shared(make(self._array), self)

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
        if self._requires_grad and not is_differentiable(value._array.dtype):
            raise RuntimeError(
                "data set to a tensor that requires gradients must be floating point or complex "
                f"dtype, got {value.dtype}"
            )
        self._form, self._array = None, value._array
        tell_shared(self, value)

    @data.deleter
    def data(self) -> None:
        raise RuntimeError("Deleting tensor data is not allowed. Delete tensor instead!")


def old_constructor(data: tuple[Any, ...], device: Any) -> Any:
    """The array that `Tensor(*data)` makes; cugrad/functions/creation sets it."""
    raise NotImplementedError


dispatching.taking_no_calls(Tensor)
_new = object.__new__


def make(array: Any, requires_grad: bool = False, node: Any = None) -> Tensor:
    """A Tensor over an array, with no copy and no check; a NumPy scalar becomes an array."""
    if isinstance(array, np.generic):
        array = np.asarray(array)
    t = _new(Tensor)
    t._array, t._requires_grad, t._node = array, requires_grad, node
    t._grad = t._rare = t._form = None
    t._counter = fresh.counter
    return t


def aliased(t: Tensor, requires_grad: bool = False) -> Tensor:
    """The same elements, and the same version counter, in a tensor with no history."""
    alias: Tensor = make(t._array, requires_grad)
    alias._counter = t.counter
    tell_turned(alias, t)
    return alias


def tell_shared(alias: Tensor, t: Tensor) -> Tensor:
    """Tells a tensor, which has a version counter of its own, that its memory is that of `t`."""
    counter: Any = t._counter
    if (alias._counter is UNCOUNTED) is not (counter is UNCOUNTED):
        alias._counter = UNCOUNTED if counter is UNCOUNTED else None
    if counter is not None and len(counter) > 1 and counter is not UNCOUNTED:
        # mirrors show what is written to it, too
        mirrors = [r for r in counter[1:] if not isinstance(r(), Tensor) and r() is not None]
        if mirrors:
            refs, these = list[Any](alias.counter[1:]), set(map(id, mirrors))
            refs = [r for r in refs if r() is not None and id(r) not in these]
            alias.counter[1:] = refs + mirrors
    if t._rare is not None:
        tell_turned(alias, t)
    return alias


def tell_turned(alias: Tensor, t: Tensor) -> None:
    """Tells a tensor with the elements of `t` if they are conjugates, or negatives."""
    if t._rare is not None and t._rare.turned is not None:
        alias.rare.turned = t._rare.turned


def check_differentiable_dtype(
    kind: Dtype,
    requires_grad: bool,
    only: str = "Only",
    kinds: str = "floating point and complex",
) -> None:
    """RuntimeError when gradients are asked for an element type that has none."""
    if requires_grad and not (kind.is_floating_point or kind.is_complex):
        raise RuntimeError(
            f"{only} Tensors of {kinds} dtype can require gradients, got {kind}; convert it "
            "first, for example x.float()"
        )
