"""Whether indices are looked at before a GPU uses them, which makes the host wait."""

from __future__ import annotations

import os
import threading

from ..runtime.kept import Switch, of_thread

__all__ = ["are_indices_checked", "check_indices"]


class _IndexChecks(threading.local):
    is_on = os.environ.get("CUGRAD_CHECK_INDICES", "0") not in ("", "0")


_state = of_thread(_IndexChecks())


def are_indices_checked() -> bool:
    """Whether indices on a GPU are compared with the size of what they point into."""
    return _state.is_on


class check_indices(Switch):
    """Makes an index outside of a tensor on a GPU an error: at once, or inside a `with` block.

    Without it CuPy takes such an index modulo the size. Looking at it waits for the GPU, so this is
    for finding a mistake. The environment variable CUGRAD_CHECK_INDICES=1 does it from the start.

    >>> import cugrad as torch
    >>> with torch.cuda.check_indices():
    ...     torch.cuda.are_indices_checked()
    True
    """

    def __init__(self, enabled: bool = True) -> None:
        self._was, _state.is_on = _state.is_on, enabled

    def as_is(self) -> bool:
        return self._was

    def change(self, before: bool) -> None:
        """Nothing: that was done at once."""

    def put_back(self, before: bool) -> None:
        _state.is_on = before
