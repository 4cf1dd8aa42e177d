"""Saved tensors in a file: for what does not fit in host memory either."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ...tensor import Tensor
from ..offloading.context import _Offloading, checked_sizes, codec_named
from ..offloading.options import OffloadOptions

__all__ = ["save_on_disk"]


class save_on_disk(_Offloading):
    """Within it, tensors saved for backward are written to a file, and read again ahead of need.

    Threads write and read while the ops run. Each storage is written once, even if several views of
    it are saved. Its memory, of the host or of a device, is free when it has been written.
    Parameters stay. The file goes with this object, and with the process, even if that crashes.
    Bytes that leave a device pass through page-locked memory, of `backlog` and `lookahead` bytes,
    by copies on side streams. Where kvikio is installed, GPUDirect Storage moves them directly.

    Args:
        directory: where the file is made; None: $TMPDIR, or /var/tmp.
        min_bytes: storages smaller than this stay.
        limit: bytes of disk to use; None: what there is.
        when_full: "host", what finds no room stays in memory, with a warning; "error", OSError.
        lookahead: bytes read ahead of need; None: two of the largest storages, at least 64 MiB.
        backlog: bytes being written before forward waits; None: as `lookahead`.
        direct: pass the operating system's page cache by, where the file system can.
        compress, filter, device_type, timing: as of `offload`; a `device_type` of "cpu" means that
            tensors on the host alone are moved.

    >>> import cugrad as torch
    >>> from cugrad import memory
    >>> x = torch.ones(256, 256, requires_grad=True)
    >>> with memory.save_on_disk(min_bytes=1024) as saving:
    ...     y = (x * 2).exp().sum()
    >>> y.backward()
    >>> x.grad[0, 0], saving.stats.disk_bytes
    (tensor(14.7781), 262144)
    """

    moves_host_tensors = True
    usual = OffloadOptions(1 << 16, 0)

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        min_bytes: int | str = 1 << 16,
        limit: int | str | None = None,
        when_full: str = "host",
        lookahead: int | str | None = None,
        backlog: int | str | None = None,
        direct: bool = True,
        compress: Any = None,
        filter: Callable[[Tensor], bool] | None = None,
        device_type: str | None = None,
        timing: bool = True,
    ) -> None:
        least, most, ahead, leaving = checked_sizes(
            "save_on_disk", min_bytes=min_bytes, limit=limit, lookahead=lookahead, backlog=backlog
        )
        from .store import DiskStore  # here: it would make `import cugrad` slower

        self.store = DiskStore(directory, most, when_full=when_full, direct=direct, backlog=leaving)
        options = OffloadOptions(
            least, 0, ahead, leaving, None, False, self.store, codec_named(compress),
            bool(timing),
        )  # fmt: skip
        super().__init__(options, device_type, filter)
