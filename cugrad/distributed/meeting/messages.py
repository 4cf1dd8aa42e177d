"""Messages between ranks: JSON behind its length, so that nothing that comes in can run code."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

__all__ = ["Inbox", "send"]

LENGTH = struct.Struct("!I")
LARGEST = 1 << 26


def send(connection: socket.socket, **message: Any) -> None:
    """Sends one message; OSError where the other end is gone."""
    text = json.dumps(message).encode()
    connection.sendall(LENGTH.pack(len(text)) + text)


class Inbox:
    """Makes messages of the bytes of a connection, however those are cut."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.bytes = connection, b""

    def receive(self) -> list[dict[str, Any]] | None:
        """The messages that are whole after one read; None at the end of the connection."""
        try:
            chunk = self.connection.recv(1 << 16)
        except OSError:
            return None
        if not chunk:
            return None
        self.bytes += chunk
        try:
            return list(self._whole())
        except ValueError:  # no rank of ours
            return None

    def _whole(self) -> Iterator[dict[str, Any]]:
        while len(self.bytes) >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self.bytes)
            if size > LARGEST:
                raise ValueError(f"a message of {size} bytes")
            end = LENGTH.size + size
            if len(self.bytes) < end:
                return
            text, self.bytes = self.bytes[LENGTH.size : end], self.bytes[end:]
            message = json.loads(text)
            if not isinstance(message, dict):
                raise ValueError("a message is an object")
            yield message
