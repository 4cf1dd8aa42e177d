"""The thread of rank 0 that all ranks are connected with."""

from __future__ import annotations

import hmac
import selectors
import socket
import threading
import time
from typing import Any

from .messages import Inbox, send
from .report import whereabouts

__all__ = ["Server"]

GRACE = 3.0  # seconds in which a rank says where it is; a busy machine may need one


class Inquiry:
    """A rank waits in vain: the histories of the others, as far as they have come."""

    def __init__(self, call: dict[str, Any]) -> None:
        self.call, self.end = call, time.monotonic() + GRACE
        self.answers: dict[int, dict[str, Any]] = {}

    def is_over(self) -> bool:
        return len(self.answers) == len(self.call["ranks"]) or time.monotonic() > self.end


class Server(threading.Thread):
    """Passes words between ranks, and tells all of them of the first thing that goes wrong."""

    def __init__(self, listener: socket.socket, size: int, token: str) -> None:
        super().__init__(name="cugrad-meeting", daemon=True)
        self.listener, self.size, self.token = listener, size, token
        self.selector = selectors.DefaultSelector()
        self.selector.register(listener, selectors.EVENT_READ)
        self.ranks: dict[socket.socket, int | None] = {}
        self.gathering: dict[str, dict[int, Any]] = {}
        self.waiting: dict[str, list[socket.socket]] = {}
        self.inquiry: Inquiry | None = None
        self.gone: set[int] = set()
        self.failed = False
        self.together = True  # whether no process ended before all had taken their leave

    def run(self) -> None:
        """Until all ranks are gone."""
        while len(self.gone) < self.size:
            for key, _ in self.selector.select(timeout=0.1 if self.inquiry else None):
                if key.data is None:
                    self.accept()
                else:
                    self.read(key.data)
            if self.inquiry is not None and self.inquiry.is_over():
                self.fail(whereabouts(self.inquiry.call, self.inquiry.answers))
                self.inquiry = None
        # rank 0 last: what it does then may let no other thread run
        for connection in sorted(self.ranks, key=lambda c: -(self.ranks[c] or 0)):
            self.say(connection, what="over", together=self.together)
        self.selector.close()
        self.listener.close()
        for connection in self.ranks:  # each rank closes its end when it has read the word
            connection.settimeout(GRACE)
            while Inbox(connection).receive() is not None:
                pass
            connection.close()

    def accept(self) -> None:
        connection, _ = self.listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.selector.register(connection, selectors.EVENT_READ, Inbox(connection))
        self.ranks[connection] = None

    def read(self, inbox: Inbox) -> None:
        messages = inbox.receive()
        for message in messages or ():
            if self.ranks[inbox.connection] is None:
                self.enter(inbox.connection, message)
            else:
                self.hear(inbox.connection, message)
        if messages is None:
            self.lose(inbox.connection)

    def enter(self, connection: socket.socket, message: dict[str, Any]) -> None:
        """The first message of a rank, which has the token of the job."""
        rank, token = message.get("rank"), str(message.get("token"))
        if hmac.compare_digest(token.encode(), self.token.encode()) and isinstance(rank, int):
            if 0 <= rank < self.size and rank not in self.ranks.values():
                self.ranks[connection] = rank
                return
            self.say(connection, what="fault", text=f"two processes call themselves rank {rank} of "
                     f"{self.size}")  # fmt: skip
        self.lose(connection)

    def lose(self, connection: socket.socket) -> None:
        """A connection has ended: its rank has died, unless it took its leave."""
        self.selector.unregister(connection)
        connection.close()
        rank = self.ranks.pop(connection)
        self.together = self.together and rank is None
        if rank is not None and rank not in self.gone:
            self.gone.add(rank)
            self.fail(f"rank {rank} has died: its process ended in the midst of its work")

    def hear(self, connection: socket.socket, message: dict[str, Any]) -> None:
        rank, what = self.ranks[connection], message["what"]
        assert rank is not None
        if what == "gather":
            self.gather(connection, message)
        elif what == "stuck":
            if self.inquiry is None and not self.failed:
                self.inquiry = Inquiry(message)
                self.tell(what="where")
        elif what == "here":
            if self.inquiry is not None and rank in self.inquiry.call["ranks"]:
                self.inquiry.answers[rank] = message["groups"]
        elif what == "fault":
            self.fail(message["text"])
        elif what == "leave":
            self.gone.add(rank)
            if message["error"]:
                self.fail(f"rank {rank} has ended with {message['error']}")
            self.tell(what="left", rank=rank)

    def gather(self, connection: socket.socket, message: dict[str, Any]) -> None:
        """Keeps a value until those of all who meet under a key are there, which all then get."""
        key, count = message["key"], message["count"]
        values = self.gathering.setdefault(key, {})
        values[message["index"]] = message["value"]
        self.waiting.setdefault(key, []).append(connection)
        if len(values) == count:
            del self.gathering[key]
            for member in self.waiting.pop(key):
                self.say(member, what="gathered", key=key, values=[values[i] for i in range(count)])

    def fail(self, text: str) -> None:
        """Tells all ranks what went wrong, the first time."""
        if not self.failed:
            self.failed = True
            self.tell(what="fault", text=text)

    def tell(self, **message: Any) -> None:
        """Rank 0 last: its process may end at the word, and this thread with it."""
        present = [(rank, c) for c, rank in self.ranks.items() if rank is not None]
        for _, connection in sorted(present, key=lambda pair: -pair[0]):
            self.say(connection, **message)

    @staticmethod
    def say(connection: socket.socket, **message: Any) -> None:
        try:
            send(connection, **message)
        except OSError:  # the end of the connection is read next
            pass
