"""What goes wrong between processes, under PyTorch's names."""

from __future__ import annotations

__all__ = ["DistBackendError", "DistError", "DistNetworkError", "DistStoreError"]


class DistError(RuntimeError):
    """Something went wrong between the processes of a group."""


class DistBackendError(DistError):
    """A collective did not come to its end: it says which rank, collective and sequence number."""


class DistNetworkError(DistError):
    """The processes could not reach the place where they meet."""


class DistStoreError(DistError):
    """The processes met, and one of them did not say in time what the others wait for."""
