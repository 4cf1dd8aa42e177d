"""Numbers of bytes, as people write and read them, and of those that the host has free."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["bytes_of", "enough", "free_host", "size"]

HOST_FREE = 0.9  # of the host's free memory, that may be used where no limit is named

UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
         "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}  # fmt: skip


def bytes_of(amount: Any, what: str, least: int = 0) -> int:
    """The bytes of a number, or of a text such as "12GiB", "500 MB".

    ValueError for what is neither, or less than `least`; `what` names the argument.

    >>> bytes_of("1.5 MB", "offload: min_bytes"), bytes_of(2e9, "budget: limit")
    (1500000, 2000000000)
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", str(amount).lower())
    nbytes = -1
    if match is not None and match[2] in UNITS and not isinstance(amount, bool):
        whole = match[1].isdigit()
        nbytes = int((int(match[1]) if whole else float(match[1])) * UNITS[match[2]])
    if nbytes < least:
        raise ValueError(
            f"{what}: got {amount!r}, want bytes{', 1 or more' if least else ''}, as "
            "12_000_000_000, '12GB' or '12GiB'"
        )
    return nbytes


def size(nbytes: float) -> str:
    """Bytes for people.

    >>> size(5 << 30), size(1536), size(12)
    ('5 GiB', '1.5 KiB', '12 B')
    """
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while abs(nbytes) >= 1023.5 and len(units) > 1:
        nbytes /= 1024
        del units[0]
    return f"{nbytes:.4g} {units[0]}"


def enough(nbytes: int) -> str:
    """Bytes for people who give them back as a limit: rounded up, so that they are not too few.

    >>> size(1_062_700), enough(1_062_700)
    ('1.013 MiB', '1.014 MiB')
    """
    more = nbytes
    while bytes_of(size(more), "enough") < nbytes:
        more += max(1, nbytes >> 15)  # of four digits the last is more than that
    return size(more)


def free_host() -> int:
    """Bytes of host memory that may be taken; without bound where the system does not say."""
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(HOST_FREE * 1024 * int(line.split()[1]))
    except OSError:
        pass
    return 1 << 62
