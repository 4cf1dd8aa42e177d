"""Makes the device of arrays the current one while they are computed with, if there are several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from ..errors import NoArray
from ..runtime.kept import NOTHING
from . import BY_ARRAY_TYPE, backend_of

__all__ = [
    "OfDevice", "Several", "are_away", "are_on_two", "at", "at_home", "beside", "by_device",
    "calls_away", "cast", "copy_of", "place_of", "several", "there", "zeros_like",
]  # fmt: skip


class Several:
    """Whether a backend has several devices: if not, all arrays are in one place."""

    __slots__ = ("devices",)

    def __init__(self) -> None:
        self.devices = False


several = Several()
NAMING = {"to", "cuda", "type", "backward"}  # and who calls hooks goes from device to device


class OfDevice:
    """A backend as it answers where one of its devices is current, whichever that is."""

    __slots__ = ("_backend", "_index")

    def __init__(self, backend: Any, index: int | None) -> None:
        self._backend, self._index = backend, index

    def __getattr__(self, name: str) -> Any:
        answer = getattr(self._backend, name)
        if not several.devices or not callable(answer):
            return answer

        def there(*args: Any, **options: Any) -> Any:
            with self._backend.use_device(self._index):
                return answer(*args, **options)

        return there


def _place_of(values: Iterable[Any]) -> tuple[Any, int] | None:
    """The backend and the device of the first array, or tensor, that is on one."""
    for value in values:
        if isinstance(value, (list, tuple)):
            place = _place_of(value)
            if place is not None:
                return place
            continue
        try:
            array = value if type(value) in BY_ARRAY_TYPE else getattr(value, "_array", value)
        except NoArray:  # of a sparse tensor, which runs other ops instead
            continue
        while type(array) not in BY_ARRAY_TYPE and hasattr(array, "level"):
            array = array.values  # of all examples of a vmap
        backend = BY_ARRAY_TYPE.get(type(array))
        index = None if backend is None else backend.device_index(array)
        if backend is not None and index is not None:
            return backend, index
    return None


def at_home(*values: Any) -> AbstractContextManager[Any]:
    """The device of the first array, or tensor, among values is the current one in the block."""
    return at(_place_of(values) if several.devices else None)


def place_of(value: Any) -> tuple[Any, int] | None:
    """The backend and the device of an array, or tensor; None where there is one device alone."""
    return _place_of((value,)) if several.devices else None


def at(place: tuple[Any, int] | None) -> AbstractContextManager[Any]:
    """The device that `place_of` has found is the current one in the block."""
    return NOTHING if place is None else place[0].use_device(place[1])


def are_away(values: Iterable[Any]) -> bool:
    """Whether the first array, or tensor, is on a device that is not the current one."""
    place = _place_of(values)
    return place is not None and place[0].current_device() != place[1]


def are_on_two(first: Any, second: Any) -> bool:
    """Whether two arrays, or tensors, are on two devices, neither of them the host."""
    places = [_place_of((x,)) for x in (first, second)] if several.devices else []
    return None not in places and len(set(places)) > 1


def calls_away(name: str, args: Iterable[Any], options: Mapping[str, Any]) -> bool:
    """Whether a public function of tensors that are away is to run where they are.

    Not where a device may be named: "cuda" is the current one.
    """
    return name not in NAMING and "device" not in options and are_away((*args, *options.values()))


def there(function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)`, on the device of the first of them that is on one."""
    with at_home(*args):
        return function(*args)


def beside(array: Any, values: Any) -> Any:
    """Host values as an array on the device of another array."""
    return there(lambda array: backend_of(array).asarray(values), array)


def copy_of(array: Any, order: str = "C") -> Any:
    """A copy of an array, where that lies."""
    return there(lambda array: array.copy(order=order), array)


def cast(array: Any, dtype: Any) -> Any:
    """An array in a dtype, where it lies; itself, if it has that."""
    return there(lambda array: array.astype(dtype, copy=False), array)


def zeros_like(array: Any) -> Any:
    """Zeros like an array, where that lies."""
    return there(lambda array: backend_of(array).xp.zeros_like(array), array)


def by_device(tensors: list[Any]) -> Iterator[list[Any]]:
    """Tensors in groups of those on one device, in their order; none of none."""
    if not several.devices:
        if tensors:
            yield tensors
        return
    groups: dict[Any, list[Any]] = {}
    for tensor in tensors:
        groups.setdefault(_place_of((tensor,)), []).append(tensor)
    yield from groups.values()
