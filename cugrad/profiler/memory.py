"""Samples the memory of a device at the end of every op and of every backward node."""

from __future__ import annotations

import importlib
import time
import tracemalloc
from typing import Any, Literal, NamedTuple

from .. import backends
from ..autograd import mode
from ..device import default_device
from ..device import device as Device

Phase = Literal["forward", "backward"]


class MemorySample(NamedTuple):
    """Memory in use when an op or a backward node had just ended."""

    name: str  # "mul", "MulBackward0"
    phase: Phase  # whether a backward node was running: a recomputed op counts as backward
    seq: int  # the number that the op's node, or the node, carries
    bytes: int  # allocated on the device
    t: float  # seconds since the timeline was entered


class MemoryTimeline:
    """Context manager that records how much memory is in use after each op and each backward node.

    Args:
        device: whose memory; the default device when None.

    On CUDA it reads what CuPy's memory pool has handed out. On the CPU it reads tracemalloc, which
    it starts for the time of the block if it is not tracing: Python is then slower, and only what
    is allocated since is counted. It sees the ops of the thread that entered it, and of an op's
    temporary arrays only those that are alive at its end; a node's sample still counts what the
    node saved, which is let go just after. Entering again starts anew.

    `samples` is the list of MemorySample, `start` the bytes in use on entry, `peak` the most bytes
    seen. RuntimeError when entered while active, or when the device cannot be used.

    >>> import cugrad
    >>> x = cugrad.ones(1000, requires_grad=True)
    >>> with cugrad.profiler.MemoryTimeline() as timeline:
    ...     (x * x).sum().backward()
    >>> [(s.name, s.phase) for s in timeline.samples][:3]
    [('mul', 'forward'), ('sum', 'forward'), ('SumBackward0', 'backward')]
    >>> timeline.peak >= timeline.samples[0].bytes
    True
    """

    def __init__(self, device: Device | str | None = None) -> None:
        self.device = default_device() if device is None else Device(device)
        self.samples: list[MemorySample] = []
        self.start = 0
        self._backend = backends.get(self.device.type)
        self._entered: float | None = None
        self._nodes = 0
        self._started_tracing = False

    @property
    def peak(self) -> int:
        """The most bytes seen in use."""
        return max((sample.bytes for sample in self.samples), default=self.start)

    def __enter__(self) -> MemoryTimeline:
        if self._entered is not None:
            raise RuntimeError("MemoryTimeline is not reentrant: leave it first, or make another")
        if self.device.type == "cpu" and not tracemalloc.is_tracing():
            tracemalloc.start()
            self._started_tracing = True
        self.samples, self._nodes = [], 0
        self.start = self._backend.memory_allocated()
        self._entered = time.perf_counter()
        mode.push_observer(self)
        return self

    def __exit__(self, *exc: object) -> None:
        mode.pop_observer(self)
        self._entered = None
        if self._started_tracing:
            self._started_tracing = False
            tracemalloc.stop()

    def op_begin(self, name: str, seq: int, args: tuple[Any, ...]) -> None:
        pass

    def op_end(self, name: str, seq: int, result: Any) -> None:
        self._sample(name, "backward" if self._nodes else "forward", seq)

    def node_begin(self, node: Any) -> None:
        self._nodes += 1

    def node_end(self, node: Any) -> None:
        self._sample(node.name(), "backward", node.seq)
        self._nodes = max(self._nodes - 1, 0)  # 0: entered in the middle of a node

    def _sample(self, name: str, phase: Phase, seq: int) -> None:
        if self._entered is not None:  # None: left in the middle of this op or node
            used, now = self._backend.memory_allocated(), time.perf_counter() - self._entered
            self.samples.append(MemorySample(name, phase, seq, used, now))

    def plot(
        self,
        ax: Any = None,
        *,
        label: str | None = None,
        by: Literal["time", "op"] = "time",
    ) -> Any:
        """Draws MiB above `start` over milliseconds, or over the ops and nodes run so far.

        `ax` is a matplotlib Axes, a new one when None; it is returned. A dot marks where backward
        begins. ImportError when matplotlib is missing.
        """
        if by not in ("time", "op"):
            raise ValueError(f"MemoryTimeline.plot: got by={by!r}, want 'time' or 'op'")
        if ax is None:
            try:
                pyplot = importlib.import_module("matplotlib.pyplot")
            except ImportError as error:
                raise ImportError(
                    "MemoryTimeline.plot draws with matplotlib, which is not installed; "
                    "install it with: pip install matplotlib"
                ) from error
            ax = pyplot.subplots()[1]
        x = [s.t * 1e3 if by == "time" else i for i, s in enumerate(self.samples, 1)]
        y = [(s.bytes - self.start) / 2**20 for s in self.samples]
        (line,) = ax.plot([0, *x], [0.0, *y], label=label, drawstyle="steps-post")
        turn = [i for i, s in enumerate(self.samples) if s.phase == "backward"][:1]
        ax.plot([x[i] for i in turn], [y[i] for i in turn], "o", color=line.get_color())
        ax.set_xlabel("milliseconds" if by == "time" else "ops and backward nodes run")
        ax.set_ylabel(f"MiB in use on {self.device.type} above the start")
        if label is not None:
            ax.legend()
        return ax
