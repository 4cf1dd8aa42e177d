"""NCCL between the GPUs of several processes, through CuPy's binding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from cupy_backends.cuda.libs import nccl

from ..protocol import Array, Stream

__all__ = ["NcclRank", "unique_identifier"]

OPS = {"sum": "NCCL_SUM", "avg": "NCCL_AVG", "prod": "NCCL_PROD", "min": "NCCL_MIN",
       "max": "NCCL_MAX"}  # fmt: skip
OF_BOOL = {"sum": "max", "prod": "min"}  # over bytes of 0 and 1
DTYPES = {
    "int8": nccl.NCCL_INT8, "uint8": nccl.NCCL_UINT8, "bool": nccl.NCCL_UINT8,
    "int32": nccl.NCCL_INT32, "uint32": nccl.NCCL_UINT32, "int64": nccl.NCCL_INT64,
    "uint64": nccl.NCCL_UINT64, "float16": nccl.NCCL_FLOAT16, "bfloat16": nccl.NCCL_BFLOAT16,
    "float32": nccl.NCCL_FLOAT32, "float64": nccl.NCCL_FLOAT64,
    "complex64": nccl.NCCL_FLOAT32, "complex128": nccl.NCCL_FLOAT64,
}  # fmt: skip


def unique_identifier() -> bytes:
    """What the ranks of a communicator know each other by; one of them makes it."""
    return bytes(nccl.get_unique_id())


def _terms(array: Array, op: str) -> tuple[int, int, int]:
    """How many numbers of which type NCCL reduces by which operation."""
    name = np.dtype(array.dtype).name
    if name not in DTYPES:
        raise TypeError(f"NCCL has no sums of {name}: use float32, or backend 'mpi'")
    count = array.size * (2 if name.startswith("complex") else 1)
    op = OF_BOOL.get(op, op) if name == "bool" else op
    if op not in OPS:
        raise ValueError(f"NCCL reduces by {', '.join(OPS)}, got {op}: use backend 'mpi'")
    return count, DTYPES[name], getattr(nccl, OPS[op])


class NcclRank:
    """One rank of an NCCL communicator. Arrays are flat and dense; calls are queued on a stream."""

    def __init__(self, size: int, identifier: bytes, rank: int) -> None:
        self._nccl = nccl.NcclCommunicator(size, identifier, rank)

    def all_reduce(self, array: Array, op: str, stream: Stream) -> None:
        count, dtype, code = _terms(array, op)
        self._nccl.allReduce(array.data.ptr, array.data.ptr, count, dtype, code, stream.ptr)

    def reduce(self, array: Array, op: str, root: int, stream: Stream) -> None:
        count, dtype, code = _terms(array, op)
        self._nccl.reduce(array.data.ptr, array.data.ptr, count, dtype, code, root, stream.ptr)

    def broadcast(self, array: Array, root: int, stream: Stream) -> None:
        self._nccl.bcast(array.data.ptr, array.nbytes, nccl.NCCL_UINT8, root, stream.ptr)

    def all_gather(self, out: Array, array: Array, stream: Stream) -> None:
        self._nccl.allGather(
            array.data.ptr, out.data.ptr, array.nbytes, nccl.NCCL_UINT8, stream.ptr
        )

    def reduce_scatter(self, out: Array, array: Array, op: str, stream: Stream) -> None:
        count, dtype, code = _terms(out, op)
        self._nccl.reduceScatter(array.data.ptr, out.data.ptr, count, dtype, code, stream.ptr)

    def exchange(
        self, sends: Sequence[tuple[Array, int]], receives: Sequence[tuple[Array, int]],
        stream: Stream,
    ) -> None:  # fmt: skip
        """Sends and receives together, each with its peer."""
        nccl.groupStart()
        try:
            for array, peer in sends:
                self._nccl.send(array.data.ptr, array.nbytes, nccl.NCCL_UINT8, peer, stream.ptr)
            for array, peer in receives:
                self._nccl.recv(array.data.ptr, array.nbytes, nccl.NCCL_UINT8, peer, stream.ptr)
        finally:
            nccl.groupEnd()

    def error(self) -> str | None:
        """What has gone wrong since, of calls that were queued."""
        try:
            self._nccl.check_async_error()
        except Exception as error:
            return str(error)
        return None

    def abort(self) -> None:
        """Ends what is queued, in an error."""
        self._nccl.abort()

    def close(self) -> None:
        self._nccl.destroy()
