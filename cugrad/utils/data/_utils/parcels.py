"""Moves what a worker made to another process: arrays in shared memory, the rest in a pickle.

A parcel is a message of few bytes and, where its arrays are large, the descriptor of a file without
a name in memory. The receiver maps it; arrays that are unpacked lie in it, and it goes with the
last. Nothing is left of a parcel that is never received, however the processes end.
"""

from __future__ import annotations

import errno
import io
import os
import pickle
import socket
from array import array
from collections.abc import Sequence
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from ....functions.interop.shared_memory import SharedBlock
from ....tensor import Tensor

__all__ = ["pack", "receive", "send", "unpack"]

INLINE = 32 << 10  # bytes that a pipe takes faster than a file is made
ALIGNMENT = 64
FULL = (errno.ENOSPC, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Parcel = tuple[list[Any], SharedBlock | None]  # pickle and arrays: as bytes, or where they lie


class ParcelPickler(pickle.Pickler):
    """Refuses tensors that another process cannot have."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            if not obj.is_cpu:
                raise RuntimeError(
                    f"a worker process can send tensors in host memory only, got one on "
                    f"{obj.device}: make it there (x.cpu()), and move batches where they are used"
                )
            if obj.requires_grad and not obj.is_leaf:
                raise RuntimeError(
                    "Cowardly refusing to serialize non-leaf tensor which requires_grad, since "
                    "autograd does not support crossing process boundaries.  If you just want to "
                    "transfer the data, call detach() on the tensor before serializing "
                    "(e.g., putting it on the queue)."
                )
        return NotImplemented


def pack(value: Any) -> Parcel:
    """The parcel of a value."""
    stream, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
    ParcelPickler(stream, 5, buffer_callback=buffers.append).dump(value)
    parts = [np.frombuffer(part, np.uint8) for part in
             [stream.getbuffer(), *[buffer.raw() for buffer in buffers]]]  # fmt: skip
    if sum([part.nbytes for part in parts]) > INLINE:
        spans = _laid_out(parts)
        block = _block_with(parts, spans)
        if block is not None:
            return spans, block
    return [part.tobytes() for part in parts], None


def _laid_out(parts: Sequence[Bytes]) -> list[tuple[int, int]]:
    """Where each part begins and ends in a segment."""
    spans, at = [], 0
    for part in parts:
        spans.append((at, at + part.nbytes))
        at += -(-part.nbytes // ALIGNMENT) * ALIGNMENT
    return spans


def _block_with(parts: Sequence[Bytes], spans: Sequence[tuple[int, int]]) -> SharedBlock | None:
    """Shared memory with these parts; None where there is no room for it."""
    if os.name != "posix":  # a descriptor would mean nothing to the receiver
        return None
    try:
        block = SharedBlock(spans[-1][1])
    except OSError as error:
        if error.errno not in FULL:
            raise
        return None
    whole: Bytes = np.asarray(block)
    for part, (start, end) in zip(parts, spans, strict=True):
        whole[start:end] = part
    return block


def send(connection: Connection, parcel: Parcel) -> None:
    """Sends a parcel through a pipe of two ways."""
    parts, block = parcel
    connection.send_bytes(pickle.dumps((parts, 0 if block is None else block.nbytes)))
    if block is not None:
        reduction.send_handle(connection, block.descriptor, None)


def receive(connection: Connection) -> Parcel:
    """The next parcel of a pipe. EOFError or ConnectionError where its sender has ended.

    RuntimeError where this process has too many open files; the parcel is lost then.
    """
    parts, nbytes = pickle.loads(connection.recv_bytes())
    return parts, _received(connection, nbytes) if nbytes else None


class Arrival:
    """The system's answer to `recvmsg`, whose descriptors are closed with it."""

    answers: Any = ()  # until an interrupt may come

    def __init__(self) -> None:
        self.answers = []

    def receive(self, channel: Any) -> int:
        """The descriptor that follows a message; it is received and kept in one step, so that an
        interrupt comes before or after.
        """
        self.answers.extend(map(channel.recvmsg, [1], [socket.CMSG_LEN(array("i").itemsize)]))
        if reduction.ACKNOWLEDGE:  # by a system that wants it of the receiver
            channel.send(b"A")
        if not self.answers[0][0]:
            raise EOFError
        for descriptor in self.descriptors():
            return descriptor
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))  # the system had no number for it

    def descriptors(self) -> array[int]:
        """Those of all answers."""
        return array("i", b"".join([data for _, items, *_ in self.answers for _, _, data in items]))

    def __del__(self) -> None:
        for descriptor in self.descriptors():
            os.close(descriptor)


def _received(connection: Connection, nbytes: int) -> SharedBlock:
    arrival = Arrival()
    try:
        with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            return SharedBlock(nbytes, arrival.receive(channel), arrival)
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        raise RuntimeError(
            "Too many open files. Communication with the workers is no longer possible. Please "
            "increase the limit using `ulimit -n` in the shell, or keep fewer batches, or copies "
            "(x.clone()): each that is kept as it came holds its shared memory open"
        ) from None


def unpack(parcel: Parcel) -> Any:
    """The value of a parcel."""
    parts, block = parcel
    if block is None:
        return pickle.loads(parts[0], buffers=[bytearray(part) for part in parts[1:]])
    whole: Bytes = np.asarray(block)
    views: list[Any] = [whole[start:end] for start, end in parts]
    return pickle.loads(views[0], buffers=views[1:])
