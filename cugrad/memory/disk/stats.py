"""The counts of a store of bytes on disk."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["DiskStats"]


@dataclass
class DiskStats:
    """What went through a store: bytes, and the seconds for which its caller had to wait.

    `host_bytes` stayed in host memory because the disk was full. `ahead_bytes` were on their way
    from the disk when they were asked for, `early_bytes` not yet on it.
    """

    spans: int = 0
    written_bytes: int = 0
    read_bytes: int = 0
    ahead_bytes: int = 0
    early_bytes: int = 0
    host_bytes: int = 0
    peak_bytes: int = 0  # on disk at once
    waited_writing: float = 0.0
    waited_reading: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Every count by name."""
        return asdict(self)
