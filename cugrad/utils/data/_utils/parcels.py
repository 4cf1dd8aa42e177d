"""Moves what a worker made to another process: arrays in shared memory, the rest in a pickle.

A parcel is a message of few bytes. Where its arrays are large it names a segment of shared memory,
which the receiver maps and unlinks; arrays that are unpacked lie in it, and it goes with the last.
"""

from __future__ import annotations

import errno
import io
import os
import pickle
from collections.abc import Sequence
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

from ....tensor import Tensor

__all__ = ["discard", "pack", "unpack"]

INLINE = 32 << 10  # bytes that a pipe takes faster than a segment is made
ALIGNMENT = 64
FULL = (errno.ENOSPC, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


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


class Segment:
    """Shared memory that stays mapped as long as an array refers to this object, its base."""

    def __init__(self, memory: SharedMemory) -> None:
        self.memory = memory
        whole: Bytes = np.ndarray((memory.size,), np.uint8, memory.buf)
        self.__array_interface__ = dict(whole.__array_interface__)

    def __del__(self) -> None:
        self.memory.close()


def pack(value: Any, name: str) -> bytes:
    """The message of a value; `name` is that of its segment, if it needs one."""
    stream, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
    ParcelPickler(stream, 5, buffer_callback=buffers.append).dump(value)
    parts = [np.frombuffer(part, np.uint8) for part in
             [stream.getbuffer(), *[buffer.raw() for buffer in buffers]]]  # fmt: skip
    if sum([part.nbytes for part in parts]) > INLINE:
        spans = _laid_out(parts)
        if _shared(parts, spans, name):
            return pickle.dumps((name, spans))
    return pickle.dumps((None, [part.tobytes() for part in parts]))


def _laid_out(parts: Sequence[Bytes]) -> list[tuple[int, int]]:
    """Where each part begins and ends in a segment."""
    spans, at = [], 0
    for part in parts:
        spans.append((at, at + part.nbytes))
        at += -(-part.nbytes // ALIGNMENT) * ALIGNMENT
    return spans


def _shared(parts: Sequence[Bytes], spans: Sequence[tuple[int, int]], name: str) -> bool:
    """Whether there was room for a segment with these parts."""
    if os.name != "posix":  # a segment would go with the process that made it
        return False
    try:
        memory = SharedMemory(name, create=True, size=spans[-1][1])
    except OSError as error:
        if error.errno not in FULL:
            raise
        return False
    try:
        _reserve(memory)
        whole: Bytes = np.asarray(Segment(memory))
        for part, (start, end) in zip(parts, spans, strict=True):
            whole[start:end] = part
    except BaseException as error:
        memory.unlink()
        if isinstance(error, OSError) and error.errno in FULL:
            return False
        raise
    return True


def _reserve(memory: SharedMemory) -> None:
    """OSError where memory is short; to find that out by writing ends the process."""
    descriptor = getattr(memory, "_fd", -1)
    if descriptor >= 0 and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, memory.size)


def unpack(message: bytes) -> Any:
    """The value of a message, once. RuntimeError where this process has too many open files."""
    name, parts = pickle.loads(message)
    if name is None:
        return pickle.loads(parts[0], buffers=[bytearray(part) for part in parts[1:]])
    try:
        memory = SharedMemory(name)
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        raise RuntimeError(
            "Too many open files. Communication with the workers is no longer possible. Please "
            "increase the limit using `ulimit -n` in the shell, or keep fewer batches, or copies "
            "(x.clone()): each that is kept as it came holds its shared memory open"
        ) from None
    memory.unlink()
    whole: Bytes = np.asarray(Segment(memory))
    views: list[Any] = [whole[start:end] for start, end in parts]
    return pickle.loads(views[0], buffers=views[1:])


def discard(name: str) -> None:
    """Unlinks a segment that nobody will receive, if it is there."""
    try:
        memory = SharedMemory(name)
    except OSError:
        return
    memory.close()
    memory.unlink()
