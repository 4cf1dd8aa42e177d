"""Whether indices are looked at before a GPU uses them, which makes the host wait."""

from __future__ import annotations

import os
import threading
from types import TracebackType

__all__ = ["are_indices_checked", "check_indices"]


class _State(threading.local):
    is_on = os.environ.get("CUGRAD_CHECK_INDICES", "0") not in ("", "0")


_state = _State()


def are_indices_checked() -> bool:
    """Whether indices on a GPU are compared with the size of what they point into."""
    return _state.is_on


class check_indices:
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

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _state.is_on = self._was
