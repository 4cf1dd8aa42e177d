"""Has the batches of a loader come to a device one batch ahead, on a side stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ....autograd.ranges import ranged
from ....backends import get
from ....backends.copies import in_its_order, is_dense
from ....backends.lending.ahead import CopiesAhead, SideStream
from ....backends.lending.pinned import pinned_memory
from ....device import device
from ....tensor import Tensor, make
from .pin_memory import with_values

__all__ = ["Ahead", "InTurn", "on_device"]


def on_device(place: device, private: bool) -> InTurn:
    """What moves the batches of an iterator to a device: ahead, where that has streams.

    `private`: the dataset keeps no page-locked tensor that it gives.
    """
    no_streams = get(place.type).current_device() is None
    return InTurn(place) if no_streams else Ahead(place, private)


class InTurn:
    """Moves batches to a device when they are handed out."""

    def __init__(self, place: device) -> None:
        self.place = place

    def next(self, fetch: Callable[[], Any]) -> Any:
        """The batch that `fetch` gets, on the device."""
        return self.moved(fetch())

    def moved(self, data: Any) -> Any:
        """`data` with all that has a method `to` on the device."""
        if callable(getattr(data, "to", None)):
            return data.to(self.place, non_blocking=True)
        return with_values(data, self.moved)

    def forget(self) -> None:
        """Drops the batches that are ahead."""


class Ahead(InTurn):
    """Copies the next batch to a device while the one before is in use.

    Tensors on the host, in all that `pin_memory` looks into, are copied on a side stream. What else
    has a method `to`, and tensors with a gradient, are moved by that when they are handed out.
    """

    def __init__(self, place: device, private: bool) -> None:
        """The arguments are those of `on_device`."""
        self._backend, self._private = get(place.type), private
        self._side = SideStream(self._backend, place.index)
        super().__init__(device(place.type, self._side.index))
        self._coming: deque[tuple[Any, CopiesAhead, list[Any]]] = deque()
        self._error: Exception | None = None  # what came instead of the next batch

    def next(self, fetch: Callable[[], Any]) -> Any:
        """The batch that was copied ahead; the one behind it is fetched, and its copy begins.

        What `fetch` raises for a batch is raised when it is the batch's turn.
        """
        while len(self._coming) < 2 and self._error is None:
            self._get(fetch)
        if not self._coming:
            error, self._error = self._error, None
            assert error is not None
            try:
                raise error
            finally:
                del error  # it has this frame
        data, copies, rest = self._coming.popleft()
        copies.wait()
        return self.moved(data) if rest else data

    def forget(self) -> None:
        self._coming.clear()
        self._error = None

    def _get(self, fetch: Callable[[], Any]) -> None:
        """Gets one batch more; its error's traceback ends here, and has no batch of a caller's."""
        try:
            self._coming.append(self._begin(fetch()))
        except StopIteration as end:
            self._error = end.with_traceback(None)  # else it holds itself, and what is ahead
        except Exception as error:
            self._error = error

    def _begin(self, data: Any) -> tuple[Any, CopiesAhead, list[Any]]:
        copies, rest = CopiesAhead(self._side), list[Any]()
        data = self._coming_of(data, copies, rest)
        with ranged("DataLoader: copy ahead", "copy", copies.nbytes, self._side.stream):
            copies.begin()
        return data, copies, rest

    def _coming_of(self, data: Any, copies: CopiesAhead, rest: list[Any]) -> Any:
        """`data` with the tensors that come by `copies`; to `rest` goes what `to` has to move."""
        into = partial(self._coming_of, copies=copies, rest=rest)
        if hasattr(data, "_over_tensors"):
            return data._over_tensors(into)
        if not callable(getattr(data, "to", None)):
            return with_values(data, into)
        source = self._source(data) if type(data) is Tensor else None
        if source is not None:
            return make(in_its_order(source, copies.add))
        rest.append(data)
        return data

    def _source(self, value: Tensor) -> np.ndarray[Any, Any] | None:
        """The elements of a tensor in page-locked memory; None for one that `to` has to move."""
        array = None if value.requires_grad or value.is_sparse else value._array
        if not isinstance(array, np.ndarray):
            return None
        if self._private and is_dense(array) and self._backend.is_pinned(array):
            return array
        source: np.ndarray[Any, Any] = in_its_order(array, self._room)
        source[...] = array
        return source

    def _room(self, like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Page-locked memory for the elements of an array, in the order of its dims."""
        try:
            return pinned_memory(self._backend).empty(like.shape, like.dtype)
        except MemoryError:  # then the host waits
            return np.empty(like.shape, like.dtype)
