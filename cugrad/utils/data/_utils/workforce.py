"""The worker processes of a loader: started, sent orders, waited for, and ended whatever happens.

Each worker has a pipe for orders and one for results, so that no worker can lock another one out. A
worker that dies closes its pipe and is noticed at once.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import threading
import time
import warnings
from collections.abc import Callable
from multiprocessing import connection
from typing import Any

from . import parcels
from .failures import ExceptionWrapper
from .worker import MP_STATUS_CHECK_INTERVAL, Job, _worker_loop

__all__ = ["PinningWorkforce", "Workforce", "death_of"]

NOTHING = object()  # what `receive` answers when the time is over


class Workforce:
    """Processes that answer orders with parcels."""

    def __init__(self, context: Any, job: Job) -> None:
        self.processes: list[Any] = []
        self.orders: list[connection.Connection] = []
        self.results: list[connection.Connection] = []
        self.dismissed: set[int] = set()  # told that no order will follow
        self.owner = os.getpid()
        self.grace = MP_STATUS_CHECK_INTERVAL  # seconds that workers are given to end by themselves
        try:
            for number in range(job.num_workers):
                self._start(context, job, number)
        except BaseException:
            self.grace = 0.0
            self.close()
            raise

    def _start(self, context: Any, job: Job, number: int) -> None:
        listening, orders = context.Pipe(duplex=False)
        results, sending = context.Pipe()  # of two ways: it takes descriptors
        forked = context.get_start_method() == "fork"  # then it has what is open here
        ours = (orders, results, *self.orders, *self.results) if forked else ()
        process = context.Process(
            target=_worker_loop, daemon=True,
            args=(job, number, listening, sending, ours),
        )  # fmt: skip
        try:
            process.start()
        except (TypeError, AttributeError, pickle.PicklingError):
            warnings.warn(
                "Got pickle error when attempting to start a worker Process. This might be because "
                "the worker Process arguments are not picklable. Python 3.14+ changed the "
                "multiprocessing start method in non-Mac POSIX platforms to 'forkserver', which "
                "requires the worker Process arguments to be picklable. You can also try "
                "multiprocessing.set_start_method('fork').",
                stacklevel=6,
            )
            raise
        finally:
            listening.close()
            sending.close()
        self.processes.append(process)
        self.orders.append(orders)
        self.results.append(results)

    def send(self, number: int, task: Any, index: Any) -> None:
        """Gives a worker an order. RuntimeError, naming it, if it is dead."""
        try:
            self.orders[number].send_bytes(pickle.dumps((task, index)))
        except (BrokenPipeError, ConnectionResetError):
            raise death_of(self.processes[number]) from None

    def dismiss(self, number: int) -> None:
        """Tells a worker to end when it has answered what it was asked."""
        if number not in self.dismissed:
            self.dismissed.add(number)
            try:
                self.orders[number].send_bytes(b"")
            except OSError:  # it has ended
                pass

    def present(self) -> list[int]:
        """The workers that were not dismissed."""
        return [n for n in range(len(self.processes)) if n not in self.dismissed]

    def receive(self, timeout: float) -> Any:
        """The next answer of any worker, `(task, data)`; NOTHING when the time is over.

        RuntimeError for a worker that has died.
        """
        present = self.present()
        by_result = {self.results[n]: n for n in present}
        by_sentinel = {self.processes[n].sentinel: n for n in present}
        ready = connection.wait([*by_result, *by_sentinel], timeout)
        for source in ready:
            if source in by_result:
                number = by_result[source]
                try:
                    parcel = parcels.receive(self.results[number])
                except (EOFError, OSError):
                    raise death_of(self.processes[number]) from None
                return parcels.unpack(parcel)
        for source in ready:
            raise death_of(self.processes[by_sentinel[source]])
        return NOTHING

    def close(self) -> None:
        """Ends all workers, and closes the pipes; in a process forked from the owner's nothing.

        Asks; after `grace` seconds terminates; then kills.
        """
        if self.owner == os.getpid():
            try:
                self.end()
            finally:
                self.hang_up()

    def end(self) -> None:
        """Ends all workers."""
        try:
            for number in range(len(self.processes)):
                self.dismiss(number)
            self._join(self.grace)
        finally:
            for end in ("terminate", "kill"):
                living = [process for process in self.processes if process.is_alive()]
                for process in living:
                    getattr(process, end)()
                self._join(MP_STATUS_CHECK_INTERVAL if living else 0.0)

    def _join(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        for process in self.processes:
            process.join(max(0.0, until - time.monotonic()))

    def hang_up(self) -> None:
        """Closes the pipes; what was not received goes with them."""
        for pipe in (*self.orders, *self.results):
            pipe.close()


def death_of(process: Any) -> RuntimeError:
    """The error that names a worker that has ended before its time, and how it did."""
    process.join(MP_STATUS_CHECK_INTERVAL)
    code = process.exitcode
    if code is None or code >= 0:
        return RuntimeError(
            f"DataLoader worker (pid {process.pid}) exited unexpectedly with exit code {code}. "
            "Details are lost due to multiprocessing. Rerunning with num_workers=0 may give better "
            "error trace."
        )
    name = signal.strsignal(-code)
    text = f"DataLoader worker (pid {process.pid}) is killed by signal: {name}. "
    if -code == getattr(signal, "SIGBUS", 0):
        text += (
            "It is possible that dataloader's workers are out of shared memory. Please try to "
            "raise your shared memory limit."
        )
    return RuntimeError(text)


class PinningWorkforce:
    """A workforce whose answers a thread receives and page-locks, ahead of who asks for them."""

    def __init__(self, force: Workforce, pin: Callable[[Any], Any]) -> None:
        self.force, self.pin, self.grace = force, pin, force.grace
        self.processes, self.dismissed = force.processes, force.dismissed
        self.send, self.dismiss = force.send, force.dismiss
        self.answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.closing = False
        self.thread = threading.Thread(target=self._work, name="cugrad data pin", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        while not self.closing and self.force.present():
            try:
                answer = self.force.receive(MP_STATUS_CHECK_INTERVAL)
            except RuntimeError as error:
                self.answers.put(error)
                return
            if answer is not NOTHING and not self.closing:
                self.answers.put(self._pinned(*answer))

    def _pinned(self, task: Any, data: Any) -> Any:
        if isinstance(data, ExceptionWrapper):
            return task, data
        try:
            return task, self.pin(data)
        except Exception:
            return task, ExceptionWrapper(where="in pin memory thread")

    def receive(self, timeout: float) -> Any:
        """As that of the workforce."""
        try:
            answer = self.answers.get(timeout=timeout)
        except queue.Empty:
            return NOTHING
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self) -> None:
        """As that of the workforce; the thread ends with the workers it waits for."""
        self.closing = True
        self.force.grace = self.grace
        if self.force.owner == os.getpid():
            try:
                self.force.end()
                self.thread.join(MP_STATUS_CHECK_INTERVAL)
            finally:
                self.force.hang_up()
