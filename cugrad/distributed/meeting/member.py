"""A rank's side of the meeting: what it asks for, and the thread that answers for it."""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from collections.abc import Iterable
from typing import Any

from ..errors import DistNetworkError, DistStoreError
from .messages import Inbox, send
from .server import GRACE, Server

__all__ = ["Member", "host_here"]


def host_here(address: str, port: int, size: int, token: str) -> int:
    """Begins the meeting in this process, which is rank 0; returns the port it listens at."""
    try:
        listener = socket.create_server((address, port), backlog=max(size, 16))
    except OSError as error:
        raise DistNetworkError(
            f"init_process_group: rank 0 cannot listen at port {port} of {address or 'any address'}"
            f" ({error}): choose another MASTER_PORT"
        ) from None
    Server(listener, size, token).start()
    return int(listener.getsockname()[1])


class Member:
    """One rank at the meeting. `fault` is what went wrong anywhere in the job, or None."""

    def __init__(
        self, rank: int, size: int, address: tuple[str, int], token: str, timeout: float
    ) -> None:
        self.rank, self.size, self.host = rank, size, address[0]
        self.fault: str | None = None
        self.left: dict[int, float] = {}  # ranks that took their leave, and when
        self.is_over = False  # whether all have
        self.are_together = False  # whether all processes were there to see it
        self.groups: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self.heard = threading.Condition()
        self._gathered: dict[str, list[Any]] = {}
        self._sending = threading.Lock()
        self._connection = _connected(address, timeout)
        self._say(rank=rank, token=token)
        threading.Thread(target=self._listen, name="cugrad-member", daemon=True).start()
        if hasattr(os, "register_at_fork"):  # or a child would keep up the rank's connection
            ref = weakref.ref(self)
            os.register_at_fork(after_in_child=lambda: _forsake(ref()))

    def gather(
        self, key: str, index: int, count: int, value: Any, timeout: float
    ) -> list[Any]:  # fmt: skip
        """The values of all `count` ranks that meet under a key, in the order of their indices."""
        self._say(what="gather", key=key, index=index, count=count, value=value)
        end = time.monotonic() + timeout
        with self.heard:
            while key not in self._gathered:
                if self.fault is not None:
                    raise DistStoreError(f"{key}: {self.fault}")
                if not self.heard.wait(end - time.monotonic()) and time.monotonic() > end:
                    raise DistStoreError(
                        f"{key}: rank {self.rank} waited {timeout:.1f} s in vain for all {count} "
                        "ranks that take part"
                    )
            return self._gathered.pop(key)

    def why_stuck(
        self, group: str, ranks: Iterable[int], sequence: int, name: str, waited: float
    ) -> str | None:  # fmt: skip
        """Asks where all ranks of a group are, which all are told; None if there is no answer."""
        self._say(what="stuck", group=group, ranks=list(ranks), sequence=sequence, name=name,
                  waited=waited, rank=self.rank)  # fmt: skip
        return self._wait_for_fault(4 * GRACE)

    def tell_fault(self, text: str) -> str:
        """Tells all ranks what went wrong here; returns what went wrong first, anywhere."""
        self._say(what="fault", text=text)
        return self._wait_for_fault(4 * GRACE) or text

    def leave(self, error: str = "", patience: float = 0.0) -> bool:
        """Takes this rank's leave, and waits a while until all have; whether all are there yet."""
        self._say(what="leave", error=error)
        end = time.monotonic() + patience
        with self.heard:
            while not (self.is_over or self.fault) and time.monotonic() < end:
                self.heard.wait(end - time.monotonic())
        return self.are_together

    # ------------------------------------------------------------------ the thread

    def _listen(self) -> None:
        inbox = Inbox(self._connection)
        while not self.is_over and (messages := inbox.receive()) is not None:
            for message in messages:
                self._hear(message)
        self._connection.close()
        with self.heard:
            if not self.is_over and 0 not in self.left:
                self.fault = self.fault or (
                    "rank 0 has died: its process ended in the midst of its work"
                )
            self.heard.notify_all()

    def _hear(self, message: dict[str, Any]) -> None:
        what = message["what"]
        if what == "where":
            histories = {name: group.recent() for name, group in list(self.groups.items())}
            self._say(what="here", groups=histories)
            return
        with self.heard:
            if what == "gathered":
                self._gathered[message["key"]] = message["values"]
            elif what == "fault":
                self.fault = self.fault or message["text"]
            elif what == "left":
                self.left[message["rank"]] = time.monotonic()
            elif what == "over":
                self.is_over, self.are_together = True, message["together"]
            self.heard.notify_all()

    def _wait_for_fault(self, seconds: float) -> str | None:
        end = time.monotonic() + seconds
        with self.heard:
            while self.fault is None and time.monotonic() < end:
                self.heard.wait(end - time.monotonic())
        return self.fault

    def _say(self, **message: Any) -> None:
        try:
            with self._sending:
                send(self._connection, **message)
        except OSError:  # the listening thread sees the end of the connection
            pass


def _connected(address: tuple[str, int], timeout: float) -> socket.socket:
    """A connection with the server, which may not have begun yet."""
    end = time.monotonic() + timeout
    while True:
        try:
            connection = socket.create_connection(address, timeout=max(end - time.monotonic(), 0.1))
        except OSError as error:
            if time.monotonic() > end:
                raise DistNetworkError(
                    f"init_process_group: rank 0 does not answer at {address[0]}:{address[1]} "
                    f"within {timeout:.0f} s ({error}): MASTER_ADDR and MASTER_PORT name its "
                    "machine and a free port there"
                ) from None
            time.sleep(0.05)
            continue
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


def _forsake(member: Member | None) -> None:
    if member is not None:
        member._connection.close()
