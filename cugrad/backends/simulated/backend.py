"""The simulated device as a Backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NoReturn

import numpy as np

from ...runtime.kept import Switch
from ..allocations import MemorySegment, statistics_of
from ..copies import check_copy
from ..numpy.backend import HostRng
from ..wanted import wanted
from .array import SimulatedArray, run
from .attention import attention, attention_backward, attention_of_mask
from .cost import Model
from .graphs import SimulatedLists, SimulatedNumbers, graph_function, table_function
from .machine import Machine, SimulatedEvent, SimulatedStream
from .memory import empty_pinned, pinned_of
from .mirrors import MirroredRank
from .namespace import HOST, SimulatedNamespace
from .rows import forward_of, gradients_of, in_place

__all__ = ["MACHINE", "SimulatedBackend", "SimulatedRng"]

Array = Any
MACHINE = Machine()


class SimulatedRng:
    """Random numbers drawn as the host does, on the device."""

    def __init__(self, seed: int, backend: SimulatedBackend) -> None:
        self._host, self._backend = HostRng(seed), backend

    @property
    def seed(self) -> int:
        return self._host.seed

    @seed.setter
    def seed(self, seed: int) -> None:
        self._host.seed = seed

    def uniform(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return self._draw("uniform", shape, dtype)

    def normal(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return self._draw("normal", shape, dtype)

    def integers(self, low: int, high: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return self._draw("integers", low, high, shape, dtype)

    def bits(self, p: float, shape: tuple[int, ...]) -> Array:
        return self._draw("bits", p, shape)

    def permutation(self, n: int, dtype: np.dtype[Any]) -> Array:
        return self._draw("permutation", n, dtype)

    def made_of(
        self, law: tuple[Any, ...], shape: tuple[int, ...], drawn: np.dtype[Any],
        function: Callable[..., Any] | None, arrays: Sequence[Array], numbers: Sequence[Any],
        dtype: np.dtype[Any], out: Array | None,
    ) -> Array | None:  # fmt: skip
        """As on CUDA, a kernel."""
        name, *told = law
        fits = out is not None and out.flags.c_contiguous
        if out is not None and (not fits or (out.shape, out.dtype) != (shape, dtype)):
            out = None

        def draw(*hosts: np.ndarray[Any, Any], out: Any = None) -> Any:
            x = getattr(self._host, name)(*told, shape, drawn)
            x = x if function is None else function(HOST, x, *hosts, *numbers)
            if out is None:
                return x.astype(dtype, copy=False)
            out[...] = x
            return out

        kind = self._backend.array_types[0]
        return run(kind, f"random {name}", draw, arrays, {} if out is None else {"out": out})

    def poisson(self, rate: Array) -> Array:
        return self._draw("poisson", rate)

    def binomial(self, count: Array, chance: Array) -> Array:
        return self._draw("binomial", count, chance)

    def _draw(self, name: str, *args: Any) -> Array:
        kind = self._backend.array_types[0]
        return run(kind, f"random {name}", getattr(self._host, name), args, {})

    def get_state(self) -> np.ndarray[Any, Any]:
        return self._host.get_state()

    def set_state(self, state: np.ndarray[Any, Any]) -> None:
        self._host.set_state(state)


class _Using(Switch):
    """Makes a stream the current one of this thread."""

    def __init__(self, machine: Machine, stream: SimulatedStream) -> None:
        self._machine, self._stream = machine, stream

    def as_is(self) -> SimulatedStream | None:
        return self._machine.chosen()

    def change(self, before: SimulatedStream | None) -> SimulatedStream:
        self._machine.use(self._stream)
        return self._stream

    def put_back(self, before: SimulatedStream | None) -> None:
        self._machine.use(before)


class SimulatedBackend:
    """Tensors on the simulated device. Its two faces, "simulated" and "cuda" where it stands in for
    CUDA, share one machine, but their arrays do not mix.
    """

    readable, runs_rows, makes_kernels, stands_in = True, True, True, True
    keeps_launches = False
    least = 0
    attention: Any = staticmethod(attention)
    attention_backward: Any = staticmethod(attention_backward)
    attention_of_mask: Any = staticmethod(attention_of_mask)
    grid_sample: Any = None  # by rows
    ctc_loss: Any = None

    def __init__(self, device_type: str = "simulated") -> None:
        self.name, self.device_type = "simulated", device_type
        self.machine = MACHINE
        self._kind: Any = type("SimulatedArray", (SimulatedArray,), {
            "__slots__": (), "machine": MACHINE, "__module__": SimulatedArray.__module__,
        })  # fmt: skip
        self.array_types: tuple[type, ...] = (self._kind,)
        self.xp: Any = SimulatedNamespace(self._kind)
        self._rows: dict[Any, Callable[..., Any]] = {}  # by op

    @property
    def model(self) -> Model:
        return self.machine.model

    def host_seconds(self) -> float:
        return self.machine.host_time

    # rows

    def row_function(self, op: Any) -> Callable[..., Any]:
        """A row's forward, at the cost of a GPU's kernels for it."""
        function = self._rows.get(op)
        if function is None:
            function = self._rows[op] = forward_of(op, self.xp, self.machine)
        return function

    def run_row(
        self, op: Any, operands: Any, params: dict[str, Any], home: Array | None = None
    ) -> Any:
        """The result of a row; an elementwise one may lie in `home`, which is then answered."""
        function = self.row_function(op)
        if home is None or op.kind != "elementwise" or not wanted.fused:
            return function(*operands, **params)
        run = partial(in_place, function, operands, params, home, self.xp)
        return self.machine.in_kernels(op.name, run)

    def gradients_function(self, op: Any, mask: int, raw: Any) -> Callable[..., Any] | None:
        """The gradients of a row, at such a cost, too."""
        return gradients_of(op, mask, raw, self.machine)

    def graph_function(
        self, name: str, results: Any, arrays: Any, targets: Any = None
    ) -> Callable[[Any], list[Array]]:  # fmt: skip
        """Traced results of arrays like these, at the cost of the kernel that CUDA has of them."""
        return graph_function(self._kind, name, results, arrays, targets)

    def table_function(self, name: str, element: Any, shape: Sequence[int]) -> Callable[[], Array]:
        """What makes arrays of what is traced of their places, at the cost of a kernel."""
        return table_function(self._kind, name, element, shape)

    def list_kernels(self, graph_of: Any) -> SimulatedLists:
        """What changes lists of arrays in place, at the cost of few launches for all."""
        return SimulatedLists(self._kind, graph_of)

    def number_kernels(self, graph: Any) -> SimulatedNumbers:
        """What computes the constants for such lists from numbers on the device."""
        return SimulatedNumbers(self._kind, self.xp, graph)

    # arrays

    def wrap(self, value: Any) -> Array:
        return self.xp.from_host(value) if isinstance(value, np.generic) else value

    def asarray(self, value: Any, dtype: np.dtype[Any] | None = None) -> Array:
        """`value` on the device; a device array is itself if the dtype is right."""
        if isinstance(value, self._kind):
            return value if dtype is None or value.dtype == dtype else value.astype(dtype)
        return self.xp.from_host(value, dtype)

    def to_host(self, array: Array) -> np.ndarray[Any, Any]:
        """A NumPy copy; waits for the current stream."""
        return array.get() if isinstance(array, self._kind) else np.asarray(array)

    # devices

    def device_index(self, array: Array) -> int | None:
        return 0

    def holder_of(self, array: Array) -> Any:
        """What keeps the memory of an array from going back to its pool."""
        return array._allocation

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int | None:
        return 0

    def set_device(self, index: int) -> None:
        self.use_device(index)

    def use_device(self, index: int | None) -> AbstractContextManager[Any]:
        if index not in (None, 0):
            raise RuntimeError(f"invalid device ordinal: got {index}, there is one device, 0")
        return nullcontext()

    def device_properties(self, index: int) -> dict[str, Any]:
        model = self.machine.model
        return {
            "name": f"simulated {model.name}".encode(), "major": 8 if "A100" in model.name else 9,
            "minor": 0, "totalGlobalMem": self.machine.capacity, "multiProcessorCount": 132,
            "warpSize": 32, "sharedMemPerBlock": 49152,
        }  # fmt: skip

    def memory_info(self) -> tuple[int, int]:
        return self.machine.capacity - self.machine.pool.held, self.machine.capacity

    # streams

    def stream(self, priority: int = 0) -> SimulatedStream:
        return self.machine.new_stream(priority)

    def default_stream(self) -> SimulatedStream:
        return self.machine.default

    def external_stream(self, stream: Any) -> SimulatedStream:
        raise RuntimeError("a simulated device takes no streams of other libraries")

    def current_stream(self) -> SimulatedStream:
        return self.machine.current()

    def use_stream(self, stream: SimulatedStream) -> AbstractContextManager[SimulatedStream]:
        return _Using(self.machine, stream)

    def event(
        self, timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> SimulatedEvent:
        return SimulatedEvent(self.machine, timing)

    def copy_async(self, dst: Array, src: Array, stream: SimulatedStream) -> None:
        """Queues a copy of bytes on `stream`; the caller keeps both alive until it is done."""
        check_copy(dst, src)
        if src.nbytes:
            self.machine.copy(dst, src, stream)

    def synchronize(self) -> None:
        self.machine.synchronize()

    def host_computed(self, nbytes: int) -> None:
        """The host has read and written so many bytes of its own memory."""
        self.machine.host_computed(nbytes)

    # memory

    def empty_pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        return empty_pinned(self.machine, shape, np.dtype(dtype))

    def is_pinned(self, array: np.ndarray[Any, Any]) -> bool:
        return pinned_of(array) is not None

    def memory_allocated(self) -> int:
        """Bytes of arrays alive, rounded up to blocks of 512."""
        self.machine.settlers.ask()
        with self.machine.lock:
            self.machine.pool.collect()
            return self.machine.pool.used

    def max_memory_allocated(self) -> int:
        self.memory_allocated()
        return self.machine.pool.peak

    def memory_reserved(self) -> int:
        return self.machine.pool.held

    def max_memory_reserved(self) -> int:
        return self.machine.pool.reserved.bytes.of["all"].peak

    def reset_peak_memory_stats(self) -> None:
        pool = self.machine.pool
        pool.peak = self.memory_allocated()
        pool.reserved.forget_peaks()
        if pool.ledger is not None:
            pool.ledger.forget_peaks()

    def watch_peak(self) -> None:
        self.machine.pool.watched = self.memory_allocated()

    def watched_peak(self) -> int:
        self.memory_allocated()
        return self.machine.pool.watched

    def raise_watched_peak(self, nbytes: int) -> None:
        self.machine.pool.watched = max(nbytes, self.machine.pool.watched)

    def empty_cache(self) -> None:
        with self.machine.lock:
            self.machine.pool.release()

    def memory_statistics(self) -> dict[str, Any]:
        """PyTorch's nested statistics; see CupyBackend."""
        self.machine.settlers.ask()
        with self.machine.lock:
            pool = self.machine.pool
            return statistics_of(pool.watch(), pool.segments(), pool.reserved)

    def reset_statistics(self) -> None:
        """Forgets what came and went."""
        with self.machine.lock:
            pool = self.machine.pool
            pool.watch().forget_sums()
            pool.reserved.forget_sums()

    def memory_segments(self) -> list[MemorySegment]:
        """What its pool holds."""
        with self.machine.lock:
            return self.machine.pool.segments()

    def watch_memory(self) -> None:
        """Has blocks that are given from now on noted."""
        with self.machine.lock:
            self.machine.pool.watch()

    def on_out_of_memory(self, reclaim: Callable[[], bool]) -> None:
        """Calls `reclaim` when the device is full; the allocation is tried again if that answers
        true.
        """
        self.machine.reclaimers.add(reclaim)

    def on_count(self, settle: Callable[[], bool]) -> None:
        """Calls `settle` before memory in use is counted."""
        self.machine.settlers.add(settle)

    def limit_memory(self, nbytes: int) -> None:
        self.machine.limit = nbytes

    def memory_limit(self) -> int:
        return min(self.machine.limit, self.machine.capacity)

    def made_room(self, error: Exception) -> bool:
        """Only its pool allocates, which asks for room itself."""
        return False

    # the rest

    def quiet(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def rng(self, seed: int) -> SimulatedRng:
        return SimulatedRng(seed, self)

    def has_communicators(self) -> bool:
        """False: the other ranks of its groups are mirrors."""
        return False

    def unique_identifier(self) -> bytes:
        return b""

    def communicator(self, size: int, identifier: bytes, rank: int) -> MirroredRank:
        return MirroredRank(self.machine, size, rank)

    def capture(self, pool: Any, handle: tuple[int, int]) -> NoReturn:
        """NotImplementedError."""
        raise NotImplementedError(
            "cuda graph: the simulated device captures no CUDA graphs; it runs each step anew"
        )

    def profiler_start(self) -> None:
        """There is no profiler to tell."""

    def profiler_stop(self) -> None:
        """There is no profiler to tell."""
