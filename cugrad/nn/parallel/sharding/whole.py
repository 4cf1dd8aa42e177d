"""A parameter that forward and backward compute with: it is whole while its group is gathered."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ....backends import backend_of
from ....device import device as Device
from ....memory.states.placed import FIELD, HOMES, alias_of, arm
from ....tensor import Tensor, make
from ...parameter import Parameter

if TYPE_CHECKING:
    from .group import ShardedGroup

__all__ = ["WholeHome", "whole_parameter"]


class WholeHome:
    """The home of a placed parameter whose bytes are in parts on all ranks.

    Whoever asks for its array has the group gathered, as `memory.offload_states` has an array
    brought in from the host. It keeps neither the tensor nor the group alive: the module and what
    backward will run keep the group.
    """

    engine: Any = None  # that moves it: none does

    def __init__(self, tensor: Tensor, group: ShardedGroup) -> None:
        array, self.group = tensor._array, weakref.ref(group)
        backend = backend_of(array)
        self.device = Device(backend.device_type, backend.device_index(array))
        first = np.empty(1, array.dtype)
        self.form: Any = np.lib.stride_tricks.as_strided(first, array.shape, array.strides)
        self.nbytes: int = array.nbytes
        key = id(tensor)
        self.ref: Any = weakref.ref(tensor, lambda ref: HOMES.pop(key, None))
        self.window = self
        self.tells: dict[Any, Any] = {}

    @property
    def array(self) -> Any:
        """What the tensor's field has: None while only the parts are there."""
        return FIELD.__get__(self.ref())

    @array.setter
    def array(self, value: Any) -> None:
        FIELD.__set__(self.ref(), value)

    def asked(self, array: Any) -> Any:
        """The array; the group is gathered for it."""
        if array is None:
            group = self.group()
            if group is None:
                raise RuntimeError(
                    "fully_shard: a parameter of a module that is gone, whose parts are gone with "
                    "it, has no elements: copy it while the module is there"
                )
            group.unshard()
            array = self.array
        return array

    def replaced(self, array: Any) -> None:
        """The tensor has another array until the group lets go of what it has gathered."""
        self.array = array

    def alias(self, tensor: Tensor) -> Any:
        """A tensor with the same elements, and no history, that does not hold them here."""
        return alias_of(tensor)

    def change(self, change: Callable[[Tensor], object]) -> None:
        """Changes what is gathered, in place."""
        change(self.ref())

    def tell(self, name: Any, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """What `compute` makes of the whole."""
        return compute(make(self.ref()._array))


def whole_parameter(like: Tensor, group: ShardedGroup) -> tuple[Any, WholeHome]:
    """A parameter of the shape and dtype of a tensor, which is nowhere yet, and its home."""
    whole = Parameter(make(like._array), like.requires_grad)
    home = WholeHome(whole, group)
    arm(whole, home)  # type: ignore[arg-type]  # a home by what is asked of one
    home.array = None
    return whole, home
