"""The store of torchrun's agent, at which the ranks that it has started meet."""

from __future__ import annotations

import struct
import weakref
from typing import Any

from ..errors import DistNetworkError, DistStoreError
from .stores import Store, reach

__all__ = ["AgentStore"]

# The messages of PyTorch's TCPStore: a number for the kind, then numbers and strings behind their
# lengths. Source: torch/csrc/distributed/c10d/TCPStoreBackend.hpp of 2.13.
VALIDATE, SET, GET, WAIT, PING = 0, 1, 3, 6, 13
MAGIC, NONCE = 0x3C85F7CE, 7
STOP_WAITING = 0


def _string(text: str) -> bytes:
    data = text.encode("latin-1")
    return struct.pack("<Q", len(data)) + data


class AgentStore(Store):
    """A store that PyTorch keeps at an address: of it keys are set, waited for and read here."""

    def __init__(self, host: str, port: int, seconds: float) -> None:
        self.where = f"{host}:{port}"
        self._connection = reach(host, port, seconds)
        weakref.finalize(self, self._connection.close)
        self._send(struct.pack("<BI", VALIDATE, MAGIC), struct.pack("<BI", PING, NONCE))
        if struct.unpack("<I", self._read(4)) != (NONCE,):
            raise DistNetworkError(f"init_process_group: {self.where} is no store of torchrun's")

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()

    def _send(self, *parts: bytes) -> None:
        self._connection.sendall(b"".join(parts))

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                piece = self._connection.recv(count - len(data))
            except TimeoutError:
                raise DistStoreError("Wait timeout") from None
            except OSError:
                piece = b""
            if not piece:
                self.close()
                raise DistNetworkError(
                    f"init_process_group: the store of torchrun's agent at {self.where} does not "
                    "answer: start the script with `python -m cugrad.distributed.run`"
                )
            data += piece
        return data

    def _ask(self, what: str, args: list[Any], seconds: float) -> Any:
        self._connection.settimeout(seconds)
        if what == "set":
            self._send(struct.pack("<B", SET), _string("/" + args[0]), _string(args[1]))
            return None
        if what not in ("get", "wait"):
            raise NotImplementedError(f"{what}: the store of torchrun's agent is for ranks to meet")
        keys = [_string("/" + key) for key in args]
        self._send(struct.pack("<BQ", WAIT, len(keys)), *keys)
        if self._read(1) != bytes([STOP_WAITING]):
            raise DistStoreError("Wait timeout")
        values = []
        for key in keys if what == "get" else ():
            self._send(struct.pack("<B", GET), key)
            (count,) = struct.unpack("<Q", self._read(8))
            values.append(self._read(count).decode("latin-1"))
        return values
