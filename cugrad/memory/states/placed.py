"""A tensor that is placed: whoever asks for its array has it brought in."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from ...backends.batched.arrays import plain
from ...backends.lending.queues import switched
from ...device import device as Device
from ...dtypes import of as dtype_of
from ...runtime.dispatching import overrides, plainly
from ...tensor import UNCOUNTED, Size, Tensor, make
from ..geometry import root_of, span_of

if TYPE_CHECKING:
    from .home import Home

__all__ = ["FIELD", "HOMES", "Sent", "alias_of", "arm", "can_be_placed", "disarm", "settle",
           "tensors_in"]  # fmt: skip

# A placed tensor is the same object as before, of a class that differs in one thing: a property
# hides the field `_array`, as in an uninitialized parameter. So what computes need not know of
# placements, and tensors that are not placed pay nothing. What a tensor is (its shape, dtype,
# device, strides) is answered without its bytes.

FIELD = Tensor.__dict__["_array"]  # the field, which the property hides
LIBRARY = __name__.partition(".")[0] + "."
HOMES: dict[int, Home] = {}  # by the id of the tensor
_placed_classes: dict[type, type] = {}  # by the class that a tensor had


class Placed:
    """The part of a placed tensor's class that is its own; the rest is the class that it had."""

    __slots__ = ()
    _usual: type  # the class that it had

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """What the class makes when it is called is an ordinary tensor of the class that it had."""
        return cls._usual(*args, **kwargs)

    @property
    def _may_be_away(self) -> bool:
        """Whether it may have to come when its elements are asked for, or was sent, and is changed
        there as well; not a gradient that lives on the device, of which none of that is so.
        """
        home = HOMES[id(self)]
        window = home.window
        if window.comes_again or window.limit is not None or home.span is not None:
            return True
        return not home.is_here

    @property
    def _is_spent(self) -> bool:
        return bool(HOMES[id(self)].gone)

    @property
    def _array(self) -> Any:
        home = HOMES[id(self)]
        if switched[0] and home.engine is not None:  # a program with several streams
            home.engine.in_order()
        return home.asked(FIELD.__get__(self))

    @_array.setter
    def _array(self, value: Any) -> None:
        HOMES[id(self)].replaced(value)

    @property
    def shape(self) -> Size:
        return Size(HOMES[id(self)].form.shape)

    @property
    def ndim(self) -> int:
        return HOMES[id(self)].form.ndim

    @property
    def dtype(self) -> Any:
        return dtype_of(HOMES[id(self)].form.dtype)

    @property
    def itemsize(self) -> int:
        return HOMES[id(self)].form.itemsize

    @property
    def nbytes(self) -> int:
        return HOMES[id(self)].nbytes

    @property
    def device(self) -> Device:
        return HOMES[id(self)].device

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def is_cpu(self) -> bool:
        return self.device.type == "cpu"

    @property
    def is_meta(self) -> bool:
        return False

    def dim(self) -> int:
        return HOMES[id(self)].form.ndim

    ndimension = dim

    def numel(self) -> int:
        return HOMES[id(self)].form.size

    nelement = numel

    def element_size(self) -> int:
        return HOMES[id(self)].form.itemsize

    def stride(self, dim: int | None = None) -> Any:
        return make(HOMES[id(self)].form).stride(dim)

    def is_contiguous(self, *args: Any, **kwargs: Any) -> bool:
        return make(HOMES[id(self)].form).is_contiguous(*args, **kwargs)

    def detach(self: Any) -> Tensor:
        """The same elements in a tensor with no history, which does not hold them here.

        That of a class which takes calls is what the class makes of the call.
        """
        if overrides(self._usual):
            return self._usual.detach(self)
        return HOMES[id(self)].alias(self)

    def _change_later(self, change: Any) -> None:
        """Changes the tensor in place, by a function of it; where it is used next, if it is away.

        Until then the function may be called with other tensors of the same elements.
        """
        HOMES[id(self)].change(change)

    def _told(self, name: Any, compute: Any) -> Tensor:
        """What `compute` makes of the elements. Of gradients it is computed before they leave, from
        the second time on that something of this name is asked for.
        """
        home = HOMES[id(self)]
        home.window.tells[name] = compute
        return home.tell(name, compute)

    @property
    def _mark_of_storage(self) -> Any:
        """What tells the storage of this tensor from others', wherever its bytes are."""
        return "placed", id(self)

    def __deepcopy__(self, memo: Any) -> Any:
        """An ordinary tensor with the same elements, of which no more are here than those of one
        at a time: an op that is recorded holds those of an alias for as long as its result may be
        made again, but none of `detach`'s.
        """
        usual: Any = self._usual
        of_all: Any = Tensor
        if id(self) in memo:
            return memo[id(self)]
        copies = usual.__deepcopy__
        if copies is not of_all.__deepcopy__ and copies.__module__.startswith(LIBRARY):
            return copies(self, memo)
        plain = self._plain()
        memo[id(self)] = plain.__deepcopy__(memo)
        memo.pop(id(plain), None)  # it is gone by now
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._plain().__reduce_ex__(protocol)

    def _plain(self: Any) -> Any:
        """A tensor of the class that this one had, with the same array and attributes."""
        plain = make(self._array, self._requires_grad)
        if self._usual is not Tensor:
            plain.__class__ = self._usual
        vars(plain).update(vars(self))
        plain._grad = self._grad
        return plain


class PlacedAlias(Placed, Tensor):
    """What `detach` makes of a placed tensor: its field has that tensor, whose array is its own."""

    __slots__ = ()
    __torch_function__ = staticmethod(plainly)
    _usual = Tensor

    @property
    def _array(self) -> Any:
        return FIELD.__get__(self)._array

    @_array.setter
    def _array(self, value: Any) -> None:
        if value is not FIELD.__get__(self)._array:  # else it was changed in place
            settle(self, value)

    shape: Any = property(lambda self: FIELD.__get__(self).shape)
    ndim: Any = property(lambda self: FIELD.__get__(self).ndim)
    dtype: Any = property(lambda self: FIELD.__get__(self).dtype)
    itemsize: Any = property(lambda self: FIELD.__get__(self).itemsize)
    nbytes: Any = property(lambda self: FIELD.__get__(self).nbytes)
    device: Any = property(lambda self: FIELD.__get__(self).device)

    _may_be_away: Any = property(lambda self: FIELD.__get__(self)._may_be_away)

    def dim(self) -> int:
        return FIELD.__get__(self).dim()

    ndimension = dim

    def numel(self) -> int:
        return FIELD.__get__(self).numel()

    nelement = numel

    def element_size(self) -> int:
        return FIELD.__get__(self).element_size()

    def stride(self, dim: int | None = None) -> Any:
        return FIELD.__get__(self).stride(dim)

    def is_contiguous(self, *args: Any, **kwargs: Any) -> bool:
        return FIELD.__get__(self).is_contiguous(*args, **kwargs)

    def detach(self) -> Tensor:
        return FIELD.__get__(self).detach()

    def _change_later(self, change: Any) -> None:
        FIELD.__get__(self)._change_later(change)

    def _told(self, name: Any, compute: Any) -> Tensor:
        return FIELD.__get__(self)._told(name, compute)

    @property
    def _mark_of_storage(self) -> Any:
        return "placed", id(FIELD.__get__(self))


PlacedAlias.__name__ = PlacedAlias.__qualname__ = Tensor.__name__
PlacedAlias.__module__ = Tensor.__module__


def alias_of(tensor: Any) -> Any:
    """A tensor without history that has the array that a placed tensor has, at any time."""
    alias = make(tensor)  # the field
    alias._counter = tensor.counter
    alias.__class__ = PlacedAlias
    return alias


def settle(alias: Any, array: Any) -> None:
    """Makes an alias an ordinary tensor with an array."""
    if type(alias) is PlacedAlias:
        alias.__class__ = Tensor  # type: ignore[assignment]
        alias._form, alias._array = None, array


def _placed_class(usual: Any) -> type:
    kind = _placed_classes.get(usual)
    if kind is None:
        members: dict[str, Any] = {"__slots__": (), "_usual": usual}
        members |= {
            name: getattr(usual, name) for name in ("__module__", "__qualname__", "__doc__")
        }
        takes_calls = overrides(usual)  # results are not placed
        members["__torch_function__"] = (
            usual.__torch_function__ if takes_calls else staticmethod(plainly)
        )
        kind = _placed_classes[usual] = type(usual)(usual.__name__, (Placed, usual), members)
    return kind


def arm(tensor: Any, home: Home) -> None:
    """Has a tensor's home asked for its array from now on."""
    HOMES[id(tensor)] = home
    tensor._form = None  # nor is one told while it is placed
    tensor.__class__ = _placed_class(type(tensor))


def disarm(tensor: Any) -> None:
    """Makes a tensor, whose array is in its field, an ordinary one again."""
    if isinstance(tensor, Placed):
        tensor.__class__ = tensor._usual
    HOMES.pop(id(tensor), None)


def tensors_in(kept: Any) -> list[Tensor]:
    """The tensors of what an optimizer keeps, in lists, tuples and dicts of it, too."""
    tensors, waiting = list[Tensor](), [kept]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, dict):
            waiting += reversed(value.values())
        elif isinstance(value, (list, tuple, deque)):
            waiting += reversed(value)
    return tensors


class Sent:
    """A tensor as the engine looks at it: its array and its counter, without asking for it."""

    __slots__ = ("_array", "counter")

    def __init__(self, tensor: Tensor) -> None:
        self._array, self.counter = FIELD.__get__(tensor), tensor.counter


def can_be_placed(tensor: Any) -> bool:
    """Whether a tensor has bytes that can be elsewhere: elements without gaps, all in one place."""
    if not isinstance(tensor, Tensor) or tensor.is_sparse or tensor._counter is UNCOUNTED:
        return False
    array = tensor._array
    if plain(array) is not array or not array.size:
        return False
    _, _, first, low, high = span_of(array, root_of(array))
    return high - low == array.nbytes and first == low
