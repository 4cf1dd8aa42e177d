"""Waiting for what other threads and processes do, however busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 90.0  # seconds after which a wait is a hang, on a machine with other things to do


def eventually(holds: Callable[[], bool], within: float = PATIENCE) -> bool:
    """Whether a condition comes to hold; what never does is waited for until it counts as a hang.

    >>> eventually(lambda: True)
    True
    """
    end = time.monotonic() + within
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True
