"""Wires: dense runs of elements that engines read and write, and the tensors they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...autograd.recording.views import were_changed, will_be_changed
from ...backends import backend_of
from ...tensor import Tensor

__all__ = ["Wire"]


class Wire:
    """The elements of some tensors, one behind the other, in the memory of an engine.

    Of one dense tensor in that memory it is the tensor's own. `reads` says that the engine reads
    the elements, `writes` that it writes them; `deliver` then puts them where they belong.
    """

    def __init__(
        self, tensors: list[Tensor], on_host: bool, reads: bool = False, writes: bool = False
    ) -> None:
        arrays = [t._array for t in tensors]
        self.tensors, self.counts = tensors, [a.size for a in arrays]
        backend = backend_of(arrays[0])
        away = on_host and backend.device_type != "cpu"
        self.shown = will_be_changed(tensors) if writes else []
        self.is_own = len(arrays) == 1 and not away and bool(arrays[0].flags.c_contiguous)
        if self.is_own:
            self.array = arrays[0].reshape(-1)
        elif reads:
            flat = [a.reshape(-1) for a in arrays]
            whole = flat[0] if len(flat) == 1 else backend.xp.concatenate(flat)
            self.array = np.ascontiguousarray(backend.to_host(whole)) if away else whole
        else:
            xp = np if away else backend.xp
            self.array = xp.empty(sum(self.counts), arrays[0].dtype)

    def deliver(self) -> None:
        """Writes the elements to the tensors."""
        begin = 0
        if self.is_own:
            were_changed(self.shown)
            return
        for t, count in zip(self.tensors, self.counts, strict=True):
            backend = backend_of(t._array)
            piece: Any = self.array[begin : begin + count].reshape(t._array.shape)
            backend.xp.copyto(t._array, backend.asarray(piece))
            begin += count
        were_changed(self.shown)
