"""Waiting for what other threads and processes do, however busy the machine is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

PATIENCE = 90.0  # seconds after which a wait is a hang, on a machine with few other things to do


def patient(seconds: float = PATIENCE) -> float:
    """As many seconds, for each process that wants a processor now: what takes its turns with ten
    others takes ten times as long.

    >>> patient(10) >= 10
    True
    """
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def eventually(holds: Callable[[], bool], within: float = PATIENCE) -> bool:
    """Whether a condition comes to hold; what never does is waited for until it counts as a hang.

    >>> eventually(lambda: True)
    True
    """
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > patient(within):
            return False
        time.sleep(0.001)
    return True
