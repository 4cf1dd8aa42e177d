"""Collectives by MPI, through mpi4py, in host memory."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import dtypes
from ...runtime.kept import NOTHING
from ..reduce_op import ReduceOp

__all__ = ["MpiEngine", "finalize", "is_started", "is_there", "mpi"]

# A collective has a communicator of its own. Where ranks call different ones, they then wait for
# each other, and can be told; in one communicator they might take each other's data.
KINDS = ("all_reduce", "reduce", "broadcast", "all_gather", "gather", "scatter", "reduce_scatter",
         "all_to_all", "point", "barrier")  # fmt: skip
NAMES = {ReduceOp.SUM: "SUM", ReduceOp.AVG: "SUM", ReduceOp.PRODUCT: "PROD", ReduceOp.MIN: "MIN",
         ReduceOp.MAX: "MAX", ReduceOp.BAND: "BAND", ReduceOp.BOR: "BOR",
         ReduceOp.BXOR: "BXOR"}  # fmt: skip
OF_BOOL = {"SUM": "MAX", "PROD": "MIN", "BAND": "MIN", "BOR": "MAX"}  # over bytes of 0 and 1


def is_there() -> bool:
    """Whether mpi4py is installed; whether it finds an MPI is seen when it starts."""
    return importlib.util.find_spec("mpi4py") is not None


def is_started() -> bool:
    """Whether MPI runs in this process."""
    return "mpi4py.MPI" in sys.modules


def mpi() -> Any:
    """mpi4py's module MPI, which it starts when it is first imported."""
    if "mpi4py.MPI" not in sys.modules and is_there():
        importlib.import_module("mpi4py").rc.finalize = False  # it would wait for the dead
    try:
        return importlib.import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        raise RuntimeError(
            f"init_process_group: backend 'mpi' needs mpi4py and an MPI ({error}): "
            "pip install 'cugrad[mpi]', and start the script with mpiexec"
        ) from None


def finalize() -> None:
    """Ends MPI, which all ranks do at about the same time."""
    module = sys.modules.get("mpi4py.MPI")
    if module is not None and module.Is_initialized() and not module.Is_finalized():
        progress.stop()
        module.Finalize()


class Progress:
    """A thread for calls that are not waited for yet: MPI moves data only when it is asked."""

    def __init__(self) -> None:
        self.pending: list[MpiPending] = []
        self.changed = threading.Condition()
        self.process = 0  # that the thread runs in: it is not in a forked child

    def add(self, pending: MpiPending) -> None:
        with self.changed:
            if self.process != os.getpid():
                self.process = os.getpid()
                threading.Thread(target=self._run, name="cugrad-mpi", daemon=True).start()
            self.pending.append(pending)
            self.changed.notify()

    def stop(self) -> None:
        """Lets nothing go on from here."""
        with self.changed:
            self.pending.clear()

    def _run(self) -> None:
        while True:
            with self.changed:
                while not self.pending:
                    self.changed.wait()
                for pending in list(self.pending):
                    if pending.is_over():
                        self.pending.remove(pending)
            time.sleep(0.0002)


progress = Progress()


class MpiPending:
    """A request of MPI's, and the arrays that it uses."""

    def __init__(self, request: Any, arrays: Any, ended: Callable[[], None] | None = None) -> None:
        self.request, self.arrays, self.ended = request, arrays, ended
        self.lock = threading.Lock()  # a request may be asked by one thread at a time
        self.error: BaseException | None = None
        self.done, self.source = False, -1

    def test(self) -> bool:
        """Whether the request has ended; what MPI raised is raised here."""
        if not self.is_over():
            return False
        if self.error is not None:
            raise self.error
        return True

    def is_over(self) -> bool:
        """Whether the request has ended, well or not."""
        with self.lock:
            if self.done:
                return True
            status = mpi().Status()
            try:
                self.done = self.request.Test(status)
                if self.done:
                    self.source = status.Get_source()
                    if self.ended is not None:
                        self.ended()
                    self.arrays = self.ended = None
            except Exception as error:
                self.done, self.error = True, error
            return self.done

    def attend(self) -> None:
        """Has a thread ask from time to time."""
        progress.add(self)

    def wait(self, check: Callable[[], None]) -> None:
        """Asks until the request has ended, less and less often."""
        asked, pause = 0, 20e-6
        while not self.test():
            asked += 1
            if asked < 50:
                time.sleep(0)
                continue
            check()
            time.sleep(pause)
            pause = min(pause * 1.3, 1e-3)


class MpiEngine:
    """One rank of a communicator of its own."""

    on_host = True
    name = "mpi"

    def __init__(self, communicator: Any) -> None:
        self.size = communicator.Get_size()
        self.communicators = {kind: communicator.Dup() for kind in KINDS}

    # ------------------------------------------------------------------ sums

    def all_reduce(self, array: Any, op: ReduceOp) -> MpiPending:
        buffer, function, ended = self._summable(array, op)
        request = self.communicators["all_reduce"].Iallreduce(mpi().IN_PLACE, buffer, function)
        return MpiPending(request, buffer, ended)

    def reduce(self, array: Any, op: ReduceOp, root: int) -> MpiPending:
        buffer, function, ended = self._summable(array, op)
        communicator = self.communicators["reduce"]
        if communicator.Get_rank() == root:
            request = communicator.Ireduce(mpi().IN_PLACE, buffer, function, root)
        else:
            request, ended = communicator.Ireduce(buffer, None, function, root), None
        return MpiPending(request, buffer, ended)

    def reduce_scatter(self, out: Any, array: Any, counts: Any, op: ReduceOp) -> MpiPending:
        result, function, ended = self._summable(out, op)
        terms = array.view(np.uint8) if array.dtype == bool else array
        terms = np.ascontiguousarray(terms, dtype=result.dtype)
        request = self.communicators["reduce_scatter"].Ireduce_scatter(
            terms, result, list(counts), function
        )
        return MpiPending(request, (terms, result), ended)

    def _summable(self, array: Any, op: ReduceOp) -> tuple[Any, Any, Callable[[], None] | None]:
        """What MPI is given for an array, its function, and what is done at the end."""
        name = NAMES[op]
        buffer, dtype = array, dtypes.of(array.dtype)
        if dtype is dtypes.bool_:
            buffer, name = array.view(np.uint8), OF_BOOL.get(name, name)
        elif dtype.is_floating_point and dtype.itemsize < 4:  # MPI has no such numbers
            buffer = array.astype(np.float32)

        def ended() -> None:
            if op is ReduceOp.AVG:
                _divide(buffer, self.size)
            if buffer.dtype != array.dtype and dtype is not dtypes.bool_:
                array[...] = buffer.astype(array.dtype)

        plain = buffer is array or dtype is dtypes.bool_
        return buffer, getattr(mpi(), name), None if plain and op is not ReduceOp.AVG else ended

    # ------------------------------------------------------------------ bytes

    def broadcast(self, array: Any, root: int) -> MpiPending:
        buffer = _bytes(array)
        return MpiPending(self.communicators["broadcast"].Ibcast(buffer, root), buffer)

    def all_gather(self, out: Any, array: Any, counts: Any) -> MpiPending:
        source, target = _bytes(array), self._parts(out, counts)
        request = self.communicators["all_gather"].Iallgatherv(source, target)
        return MpiPending(request, (source, target))

    def gather(self, out: Any, array: Any, counts: Any, root: int) -> MpiPending:
        source = _bytes(array)
        target = None if out is None else self._parts(out, counts)
        request = self.communicators["gather"].Igatherv(source, target, root)
        return MpiPending(request, (source, target))

    def scatter(self, out: Any, array: Any, counts: Any, root: int) -> MpiPending:
        source = None if array is None else self._parts(array, counts)
        target = _bytes(out)
        request = self.communicators["scatter"].Iscatterv(source, target, root)
        return MpiPending(request, (source, target))

    def all_to_all(self, out: Any, out_counts: Any, array: Any, counts: Any) -> MpiPending:
        source, target = self._parts(array, counts), self._parts(out, out_counts)
        request = self.communicators["all_to_all"].Ialltoallv(source, target)
        return MpiPending(request, (source, target))

    def send(self, array: Any, peer: int, tag: int) -> MpiPending:
        buffer = _bytes(array)
        return MpiPending(self.communicators["point"].Isend(buffer, peer, tag), buffer)

    def receive(self, array: Any, peer: int | None, tag: int) -> MpiPending:
        buffer, source = _bytes(array), mpi().ANY_SOURCE if peer is None else peer
        return MpiPending(self.communicators["point"].Irecv(buffer, source, tag), buffer)

    def barrier(self) -> MpiPending:
        return MpiPending(self.communicators["barrier"].Ibarrier(), None)

    @staticmethod
    def _parts(array: Any, counts: Any) -> Any:
        """Bytes of an array with the part of each rank."""
        sizes = [int(n) * array.itemsize for n in counts]
        return [_bytes(array), sizes, np.cumsum([0, *sizes])[:-1].tolist(), mpi().BYTE]

    # ------------------------------------------------------------------ the rest

    def batch(self) -> Any:
        return NOTHING  # sends and receives go on together as they are

    def close(self) -> None:
        for communicator in self.communicators.values():
            communicator.Free()

    def abort(self) -> None:
        progress.stop()


def _bytes(array: Any) -> Any:
    """The memory of a flat array, in which numbers that MPI does not know travel, too."""
    return array.view(np.uint8) if array.size else np.empty(0, np.uint8)


def _divide(array: Any, n: int) -> None:
    """In place; integers towards zero, as in C."""
    if array.dtype.kind in "iu":
        negative = (array < 0) & (array % n != 0)
        array //= n
        array += negative.astype(array.dtype)
    else:
        array /= n
