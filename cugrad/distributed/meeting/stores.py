"""Stores: keys and values that processes share, by which they find each other."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import weakref
from datetime import timedelta
from typing import Any

from ..errors import DistNetworkError, DistStoreError
from .messages import Inbox, send

__all__ = ["FileStore", "HashStore", "PrefixStore", "Store", "TCPStore", "Table", "reach"]

PAUSE = 0.01  # seconds between two looks at what others may have written
DEFAULT = timedelta(seconds=300)


class Table:
    """Keys and values in memory; texts are bytes in latin-1, so that JSON carries them."""

    def __init__(self, entries: dict[str, str] | None = None) -> None:
        self.entries: dict[str, str] = {} if entries is None else entries
        self.changed = threading.Condition()

    def act(self, what: str, args: list[Any], seconds: float) -> Any:
        """Does one thing; "get" and "wait" wait for keys: DistStoreError after some seconds."""
        end = time.monotonic() + seconds
        with self.changed:
            while what in ("get", "wait") and not all(key in self.entries for key in args):
                if not self.changed.wait(max(end - time.monotonic(), 0.0)):
                    raise DistStoreError("Wait timeout")
            result = getattr(self, what)(*args)
            self.changed.notify_all()
        return result

    def set(self, key: str, value: str) -> None:
        self.entries[key] = value

    def get(self, *keys: str) -> list[str]:
        return [self.entries[key] for key in keys]

    def wait(self, *keys: str) -> None:
        pass

    def add(self, key: str, amount: int) -> int:
        total = int(self.entries.get(key, "0")) + amount
        self.entries[key] = str(total)
        return total

    def append(self, key: str, value: str) -> None:
        self.entries[key] = self.entries.get(key, "") + value

    def compare_set(self, key: str, expected: str, desired: str) -> str:
        if self.entries.get(key, "") != expected:
            return self.entries.get(key, expected)
        self.entries[key] = desired
        return desired

    def delete_key(self, key: str) -> bool:
        return self.entries.pop(key, None) is not None

    def check(self, *keys: str) -> bool:
        return all(key in self.entries for key in keys)

    def list_keys(self) -> list[str]:
        return list(self.entries)


def _text(value: Any) -> str:
    if isinstance(value, str):
        value = value.encode()
    if not isinstance(value, bytes):
        raise TypeError(f"a store's value: got {type(value).__name__}, want str or bytes")
    return value.decode("latin-1")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


class Store:
    """Keys and values that processes share: HashStore, FileStore, TCPStore, or PrefixStore of one.

    Values are strings or bytes, and are read as bytes.
    """

    timeout = DEFAULT

    def _ask(self, what: str, args: list[Any], seconds: float) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not say how it keeps its keys")

    def _now(self, what: str, *args: Any) -> Any:
        return self._ask(what, list(args), self.timeout.total_seconds())

    def set(self, key: str, value: str | bytes) -> None:
        """Gives a key a value."""
        self._now("set", key, _text(value))

    def get(self, key: str) -> bytes:
        """The value of a key, when it has one; DistStoreError after the timeout."""
        return _bytes(self._now("get", key)[0])

    def add(self, key: str, amount: int) -> int:
        """Adds to a key's number, 0 at first; the sum."""
        return int(self._now("add", key, int(amount)))

    def append(self, key: str, value: str | bytes) -> None:
        """Puts more behind a key's value."""
        self._now("append", key, _text(value))

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Gives a key a value if it has the expected one, or "" for none; what it has then."""
        return _bytes(self._now("compare_set", key, _text(expected), _text(desired)))

    def delete_key(self, key: str) -> bool:
        """Drops a key; whether it was there."""
        return bool(self._now("delete_key", key))

    def check(self, keys: list[str]) -> bool:
        """Whether all keys have values."""
        return bool(self._now("check", *keys))

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Until all keys have values; DistStoreError after the timeout."""
        self._ask("wait", list(keys), (timeout or self.timeout).total_seconds())

    def num_keys(self) -> int:
        """How many keys there are."""
        return len(self.list_keys())

    def list_keys(self) -> list[str]:
        """The keys."""
        return list(self._now("list_keys"))

    def multi_set(self, keys: list[str], values: list[str | bytes]) -> None:
        """Gives several keys values."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """The values of several keys."""
        return [_bytes(text) for text in self._now("get", *keys)]

    def has_extended_api(self) -> bool:
        """Whether there are `append`, `multi_get` and `multi_set`: True."""
        return True

    def set_timeout(self, timeout: timedelta) -> None:
        """How long `get` and `wait` wait."""
        self.timeout = timeout


class HashStore(Store):
    """A store of this process, for its threads.

    >>> import cugrad.distributed as dist
    >>> store = dist.HashStore()
    >>> store.set("rank 0", "ready")
    >>> store.get("rank 0"), store.add("steps", 2), store.check(["rank 1"])
    (b'ready', 2, False)
    """

    def __init__(self) -> None:
        self._table = Table()

    def _ask(self, what: str, args: list[Any], seconds: float) -> Any:
        return self._table.act(what, args, seconds)


class FileStore(Store):
    """A store in a file that all processes see, and that stays."""

    def __init__(self, file_name: str | os.PathLike[str], world_size: int = -1) -> None:
        self.path, self.world_size = os.fspath(file_name), world_size

    def _ask(self, what: str, args: list[Any], seconds: float) -> Any:
        import fcntl  # not on Windows

        end = time.monotonic() + seconds
        while True:
            with open(self.path, "a+") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                table = Table(json.loads(file.read() or "{}"))
                before = dict(table.entries)
                try:
                    result = table.act(what, args, 0.0)
                except DistStoreError:
                    if time.monotonic() > end:
                        raise
                else:
                    if table.entries != before:
                        file.truncate(0)
                        file.write(json.dumps(table.entries))
                    return result
            time.sleep(PAUSE)


class TCPStore(Store):
    """A store in one process, the master's, that others reach at its address.

    With `world_size` and `wait_for_workers` the master waits until that many processes are there.
    `port` 0 is one that is free. DistNetworkError where the master cannot be reached in time.
    """

    def __init__(
        self, host_name: str, port: int, world_size: int | None = None, is_master: bool = False,
        timeout: timedelta = DEFAULT, wait_for_workers: bool = True, multi_tenant: bool = False,
        master_listen_fd: int | None = None, use_libuv: bool = True,
    ) -> None:  # fmt: skip
        if multi_tenant or master_listen_fd is not None:
            raise NotImplementedError(
                "TCPStore: got multi_tenant= or master_listen_fd=, want a port of its own"
            )
        self.host, self.port, self.timeout, self.libuvBackend = host_name, port, timeout, use_libuv
        self._turn = threading.Lock()
        if is_master:
            listener = _serve(port)
            self.port = int(listener.getsockname()[1])
            weakref.finalize(self, _stop, listener)
        self._connection = reach(self.host, self.port, timeout.total_seconds())
        weakref.finalize(self, self._connection.close)
        self._inbox = Inbox(self._connection)
        if world_size is not None and world_size > 0:
            present = self._now("add", "init/", 1)
            while is_master and wait_for_workers and present < world_size:
                time.sleep(PAUSE)
                present = self._now("add", "init/", 0)

    def _ask(self, what: str, args: list[Any], seconds: float) -> Any:
        with self._turn:
            answers: list[dict[str, Any]] | None = []
            try:
                send(self._connection, what=what, args=args, seconds=seconds)
                while answers is not None and not answers:
                    answers = self._inbox.receive()
            except OSError:
                answers = None
        if answers is None:
            raise DistNetworkError(f"TCPStore: {self.host}:{self.port} does not answer any more")
        (answer,) = answers
        if "error" in answer:
            raise DistStoreError(answer["error"])
        return answer["result"]

    def list_keys(self) -> list[str]:
        """The keys."""
        return [key for key in super().list_keys() if key != "init/"]


def _serve(port: int) -> socket.socket:
    """Begins to answer for a table of this process; the socket at which."""
    try:
        listener = socket.create_server(("", port), backlog=128)
    except OSError as error:
        raise DistNetworkError(f"TCPStore: cannot listen at port {port} ({error})") from None
    table = Table()

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # the store is gone
                return
            threading.Thread(target=_answer, args=(connection, table), daemon=True).start()

    threading.Thread(target=accept, name="cugrad-store", daemon=True).start()
    return listener


def _stop(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()


ACTS = ("add", "append", "check", "compare_set", "delete_key", "get", "list_keys", "set", "wait")


def _answer(connection: socket.socket, table: Table) -> None:
    """One process's questions, one after the other."""
    inbox = Inbox(connection)
    try:
        while (questions := inbox.receive()) is not None:
            for question in questions:
                if question.get("what") not in ACTS:
                    return
                try:
                    send(connection, result=table.act(
                        question["what"], question["args"], question["seconds"]
                    ))  # fmt: skip
                except (DistStoreError, ValueError) as error:
                    send(connection, error=str(error))
    except OSError:  # the process is gone
        pass
    finally:
        connection.close()


def reach(host: str, port: int, seconds: float) -> socket.socket:
    """A connection with a store that may not have begun yet."""
    end = time.monotonic() + seconds
    while True:
        try:
            connection = socket.create_connection((host, port), max(end - time.monotonic(), PAUSE))
        except OSError as error:
            if time.monotonic() < end:
                time.sleep(PAUSE)
                continue
            raise DistNetworkError(
                f"TCPStore: no connection with {host}:{port} within {seconds:g} s ({error})"
            ) from None
        connection.settimeout(None)
        return connection


class PrefixStore(Store):
    """Another store, in which all keys begin with a word."""

    def __init__(self, prefix: str, store: Store) -> None:
        self.prefix, self.underlying_store = prefix, store

    @property
    def timeout(self) -> timedelta:  # type: ignore[override]
        """That of the other store."""
        return self.underlying_store.timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets that of the other store."""
        self.underlying_store.set_timeout(timeout)

    def _ask(self, what: str, args: list[Any], seconds: float) -> Any:
        count = len(args) if what in ("get", "wait", "check") else 1  # of keys among `args`
        named = [f"{self.prefix}/{key}" for key in args[:count]] + args[count:]
        result = self.underlying_store._ask(what, named, seconds)
        if what == "list_keys":
            start = self.prefix + "/"
            return [key.removeprefix(start) for key in result if key.startswith(start)]
        return result
