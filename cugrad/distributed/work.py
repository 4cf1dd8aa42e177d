"""Work: a collective that has begun, and what comes after it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ..futures import Future
from ..tensor import Tensor
from .engines.protocol import Pending

__all__ = ["Future", "Work"]


class Work:
    """A collective, a send or a receive that has begun; `wait` before its tensors are used."""

    def __init__(
        self, call: Any, pending: Pending, tensors: list[Tensor], deliver: Callable[[], None]
    ) -> None:
        self._call, self._pending = call, pending
        self._tensors, self._deliver = tensors, deliver
        self._lock = threading.Lock()
        self._is_delivered = False
        self._error: BaseException | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """True, once the tensors may be used; on a GPU, by what its current stream is told next.

        RuntimeError (DistBackendError) within the timeout, the group's by default, if another rank
        has died, hangs, or called something else.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            if not self._is_delivered:
                try:
                    self._call.wait_for(self._pending, timeout)
                    self._deliver()
                except BaseException as error:
                    if isinstance(error, Exception):
                        self._error = error
                    raise
                self._is_delivered = True
        return True

    synchronize = wait

    def is_completed(self) -> bool:
        """Whether the work has ended, well or not; never waits."""
        if self._is_delivered or self._error is not None:
            return True
        try:
            if not self._pending.test():
                return False
            self.wait()
        except RuntimeError:
            pass
        return True

    def is_success(self) -> bool:
        """Whether the work has ended well."""
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        """What went wrong, if anything did."""
        return self._error

    def result(self) -> list[Tensor]:
        """The tensors that the work writes, when it has ended."""
        self.wait()
        return self._tensors

    def get_future(self) -> Future[list[Tensor]]:
        """The future of the list of tensors that the work writes."""
        return Future.of(self.result, self.is_completed)

    def source_rank(self) -> int:
        """The rank in the group that a received tensor came from."""
        return self._pending.source

    _source_rank = source_rank
