"""torch.fx: `wrap` gives functions back; there are no graphs of calls, and the rest refuses."""

from __future__ import annotations

from typing import Any

from ...absent import COMPILED
from ..refusals import refuse_the_rest

__all__ = ["is_fx_tracing", "wrap"]


def wrap(fn_or_name: Any) -> Any:
    """The function, or the name of one, itself: nothing is traced.

    >>> wrap(abs) is abs
    True
    """
    return fn_or_name


def is_fx_tracing() -> bool:
    """False."""
    return False


refuse_the_rest(__name__, "fx", COMPILED)
