"""Samples the memory of a device at the end of every op and of every backward node."""

from __future__ import annotations

import importlib
import json
import threading
import time
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ... import backends
from ...autograd import mode
from ...autograd.recording.node import SEQ_LIMIT
from ...device import default_device
from ...device import device as Device
from ...memory.geometry import root_of
from ...memory.sizes import size
from ...memory.usage import bytes_elsewhere
from ...runtime.kept import Switch
from ...tensor import Tensor
from .storages import Category, Site, StorageTracker, line_of_caller, parts_of

Phase = Literal["forward", "backward"]


class MemorySample(NamedTuple):
    """Memory in use when an op or a backward node had just ended. All numbers are bytes.

    `bytes` is the sum of `parameters`, `inputs`, `gradients`, `activations` (results that no node
    keeps), `saved` (results that a node keeps for backward), `before` (in use on entry, and none of
    these), and `other`: temporary arrays, gradients under way, what an offload brought back, what
    is the optimizer's.
    """

    name: str  # "mul", "MulBackward0"
    phase: Phase  # whether a backward node was running: a recomputed op counts as backward
    seq: int  # the number that the op's node, or the node, carries
    bytes: int  # allocated on the device
    t: float  # seconds since the timeline was entered
    saved: int = 0
    parameters: int = 0
    inputs: int = 0
    gradients: int = 0
    activations: int = 0
    before: int = 0
    offloaded: int = 0  # of saved tensors, neither on the device nor on their way back
    in_flight: int = 0  # on their way, out or back
    pinned: int = 0  # page-locked host memory in use
    disk: int = 0

    @property
    def other(self) -> int:
        """What is in use and is none of the categories."""
        in_categories = (
            self.saved + self.parameters + self.inputs + self.gradients + self.activations
        )
        return max(self.bytes - in_categories - self.before, 0)


class Alive(NamedTuple):
    """The memory at the peak that one op, on one line of the program, had made."""

    op: str
    line: str
    category: Category
    bytes: int
    tensors: int
    phase: str


class _TimelineThread(threading.local):
    """What runs in a thread: nodes, and ops with their line and the storages of their inputs."""

    def __init__(self) -> None:
        self.nodes = 0
        self.running: list[tuple[str, set[int]]] = []


class MemoryTimeline(Switch):
    """Context manager that records how much memory is in use after each op and each backward node.

    Args:
        device: whose memory; the default device when None.

    On CUDA it reads what CuPy's memory pool has handed out. On the CPU it reads tracemalloc, which
    it starts for the time of the block if it is not tracing: Python is then slower, and only what
    is allocated since is counted. It sees the ops of the thread that entered it, and of an op's
    temporary arrays only those that are alive at its end; a node's sample still counts what the
    node saved, which is let go just after. Entering again starts anew.

    Results of ops are followed until they are gone, so each sample says what the memory is for, and
    `explain()` what was alive at the peak, by op and line. `to_json`, `to_png` and `to_html` write
    it all down. Tensors that no op made are parameters or inputs from their first use on; before,
    and on the CPU if they are older than the block, they are among what was there on entry.

    `samples` is the list of MemorySample, `start` the bytes in use on entry, `peak` the most bytes
    in use, temporary arrays of ops and all: what `memory.budget` reports. RuntimeError when entered
    while active, or when the device cannot be used.

    >>> import cugrad
    >>> x = cugrad.ones(1000, requires_grad=True)
    >>> with cugrad.profiler.MemoryTimeline() as timeline:
    ...     (x * x).sum().backward()
    >>> [(s.name, s.phase) for s in timeline.samples][:3]
    [('mul', 'forward'), ('sum', 'forward'), ('SumBackward0', 'backward')]
    >>> timeline.peak >= timeline.samples[0].bytes
    True
    >>> [(s.activations, s.saved) for s in timeline.samples][0]
    (4000, 0)
    """

    def __init__(self, device: Device | str | None = None) -> None:
        self.device = default_device() if device is None else Device(device)
        self.samples: list[MemorySample] = []
        self.start = 0
        self._backend = backends.get(self.device.type)
        self._entered: float | None = None
        self._kinds: dict[type, bool] = {}  # classes of arrays, and whether they are of this device
        self._seen = 0  # bytes at the last look
        self._most = 0  # bytes in use at most, in the block
        self._storages = StorageTracker()
        self._here = _TimelineThread()
        self._lock = threading.RLock()  # threads of a parallel module have this observer, too

    @property
    def peak(self) -> int:
        """The most bytes in use at any time, within ops too: what max_memory_allocated() says."""
        most = self._most if self._entered is None else self._backend.watched_peak()
        return max([most, self.start, *[sample.bytes for sample in self.samples]])

    def as_is(self) -> tuple[int, bool]:
        if self._entered is not None:
            raise RuntimeError("MemoryTimeline is not reentrant: leave it first, or make another")
        starts = self.device.type == "cpu" and not tracemalloc.is_tracing()
        return self._backend.watched_peak(), starts

    def change(self, before: tuple[int, bool]) -> MemoryTimeline:
        _, starts = before
        if starts:
            tracemalloc.start()
        self.samples, self._storages, self._here = [], StorageTracker(), _TimelineThread()
        self.start = self._seen = self._backend.memory_allocated()
        self._backend.watch_peak()
        self._entered = time.perf_counter()
        mode.push_observer(self)
        return self

    def __repr__(self) -> str:
        what = "running" if self._entered is not None else "not entered"
        if self.samples:
            top = max(self.samples, key=lambda sample: sample.bytes)
            when = f" at the end of {top.name}" if top.bytes == self.peak else ""
            what = f"{len(self.samples)} samples, peak {size(self.peak)}{when}"
            what += "; explain(), to_html(path)" if self._entered is None else ", running"
        return f"<MemoryTimeline of {self.device}: {what}>"

    def put_back(self, before: tuple[int, bool]) -> None:
        peak, started = before
        mode.pop_observer(self)
        if self._entered is not None:
            most, samples = self._backend.watched_peak(), self._with_older()
            vars(self).update(_entered=None, _most=most, samples=samples)  # all of it, or nothing
        self._backend.raise_watched_peak(peak)  # which is told again
        if started:
            tracemalloc.stop()

    # ------------------------------------------------------------------ watching

    def op_begin(self, name: str, seq: int, args: tuple[Any, ...]) -> None:
        line, storages, here = line_of_caller(), self._storages, self._here
        inputs = [x for x in _tensors(args) if self._is_here(x)]
        here.running.append((line, {id(root_of(x._array)) for x in inputs}))
        fresh = [x for x in inputs if x._node is None and storages.of(x._array) is None]
        if fresh and not here.nodes:  # a node's are made of what it has saved
            with self._lock:
                self._take_in(fresh, Site(name, seq, "forward", line))

    def op_end(self, name: str, seq: int, result: Any) -> None:
        here = self._here
        phase: Phase = "backward" if here.nodes else "forward"
        line, input_ids = here.running.pop() if here.running else (line_of_caller(), set[int]())
        site = Site(name, seq, phase, line)
        outputs = [x for x in _tensors(result if type(result) is tuple else (result,))
                if self._is_here(x)]  # fmt: skip
        with self._lock:
            for x in outputs:
                if self._storages.of(x._array) is None and id(root_of(x._array)) not in input_ids:
                    self._storages.follow(x._array, site, "activation")
            node = next((x._node.grad_fn for x in outputs if x._node is not None), None)
            if node is not None and node.seq == seq:
                self._storages.keep(node, site, input_ids)
            self._sample(name, phase, seq)

    def node_begin(self, node: Any) -> None:
        self._here.nodes += 1

    def node_end(self, node: Any) -> None:
        leaf, here = getattr(node, "variable", None), self._here
        grad = None if leaf is None else leaf.grad
        with self._lock:
            for part in () if grad is None else parts_of(grad):
                if self._is_here(part) and self._is_counted(part._array):
                    site = Site(node.name(), node.seq, "backward", line_of_caller())
                    self._storages.follow(part._array, site, "gradient")
            self._storages.ended(node)
            self._sample(node.name(), "backward", node.seq)
        here.nodes = max(here.nodes - 1, 0)  # 0: entered in the middle of a node

    def _take_in(self, leaves: list[Tensor], site: Site) -> None:
        """Follows tensors that no op has made: they existed before the block, or memory grew."""
        storages, used = self._storages, self._backend.memory_allocated()
        grown = used - self._seen + storages.settle()
        self._seen = used
        for x in leaves:
            if storages.of(x._array) is not None or not self._is_counted(x._array):
                continue
            held = storages.follow(x._array, site, "parameter" if x.requires_grad else "input")
            if held.nbytes <= grown or self.device.type == "cpu":
                grown -= held.nbytes
                continue
            storages.was_there(held)
            for part in () if x.grad is None else parts_of(x.grad):
                if self._is_here(part) and storages.of(part._array) is None:
                    storages.was_there(storages.follow(part._array, site, "gradient"))

    def _is_here(self, tensor: Tensor) -> bool:
        kind = type(tensor._array)
        is_here = self._kinds.get(kind)
        if is_here is None:
            is_here = self._kinds[kind] = tensor.device.type == self.device.type
        return is_here

    def _is_counted(self, array: Any) -> bool:
        """Whether an array's memory is in the count: on the CPU, if it was traced when made."""
        if self.device.type != "cpu":
            return True
        return tracemalloc.get_object_traceback(root_of(array)) is not None

    def _sample(self, name: str, phase: Phase, seq: int) -> None:
        if self._entered is None:  # left in the middle of this op or node
            return
        used, now = self._backend.memory_allocated(), time.perf_counter() - self._entered
        storages = self._storages
        storages.now = len(self.samples)
        storages.settle()
        live, away = storages.live, bytes_elsewhere(self.device.type)
        before = max(min(self.start - storages.older_bytes, used - sum(live.values())), 0)
        self.samples.append(
            MemorySample(
                name, phase, seq, used, now, live["saved"], live["parameter"], live["input"],
                live["gradient"], live["activation"], before, *away,
            )
        )  # fmt: skip
        storages.now += 1
        self._seen = used

    def _with_older(self) -> list[MemorySample]:
        """The samples. Memory that existed on entry counts from the beginning."""
        samples = self.samples.copy()
        columns = {"parameter": "parameters", "input": "inputs", "gradient": "gradients"}
        met = sorted(self._storages.older, key=lambda each: -each[0])
        sums = dict.fromkeys(columns.values(), 0)
        for i in reversed(range(len(samples))):
            sample, rest = samples[i], samples[i].before
            while met and met[0][0] > i:
                storage = met.pop(0)[1]
                sums[columns[storage.kind]] += storage.nbytes
            moved = {}
            for name, nbytes in sums.items():
                part = min(nbytes, rest)
                rest -= part
                moved[name] = getattr(sample, name) + part
            if rest != sample.before:
                samples[i] = sample._replace(before=rest, **moved)
        least = self.start
        for i, sample in enumerate(samples):  # freed memory does not come back: it counts as other
            least = min(least, sample.before)
            if sample.before > least:
                samples[i] = sample._replace(before=least)
        return samples

    # ------------------------------------------------------------------ the peak

    def alive_at_peak(self) -> list[Alive]:
        """What was alive at the peak, by op and line, the largest first.

        It is what ops made, and inputs that were made inside the block; what remains of the peak is
        what was there before, and temporary arrays.
        """
        if not self.samples:
            return []
        index = max(range(len(self.samples)), key=lambda i: self.samples[i].bytes)
        sums: dict[tuple[str, str, Category, str], list[int]] = {}
        for storage, category in self._storages.alive_at(index):
            site = storage.site
            entry = sums.setdefault((site.op, site.line, category, site.phase), [0, 0])
            entry[0] += storage.nbytes
            entry[1] += 1
        groups = [
            Alive(op, line, category, nbytes, tensors, phase)
            for (op, line, category, phase), (nbytes, tensors) in sums.items()
        ]
        return sorted(groups, key=lambda each: -each.bytes)

    def by_op(self) -> list[dict[str, Any]]:
        """What each op made in all: {"op", "calls", "bytes", "at_peak", "saved_at_peak"}."""
        rows: dict[str, dict[str, Any]] = {}

        def of(op: str) -> dict[str, Any]:
            empty = {"op": op, "calls": 0, "bytes": 0, "at_peak": 0, "saved_at_peak": 0}
            return rows.setdefault(op, empty)

        for sample in self.samples:
            of(sample.name)["calls"] += 1
        for storage in self._storages.all:
            if storage.kind in ("activation", "gradient"):
                of(storage.site.op)["bytes"] += storage.nbytes
        for each in self.alive_at_peak():
            if each.category in ("activation", "saved", "gradient"):
                of(each.op)["at_peak"] += each.bytes
                of(each.op)["saved_at_peak"] += each.bytes if each.category == "saved" else 0
        return sorted(rows.values(), key=lambda row: -row["bytes"])

    def explain(self, row_limit: int = 20) -> str:
        """What was alive at the peak, by op and line, as a table."""
        if not self.samples:
            return "no op ran inside the timeline"
        top = max(self.samples, key=lambda sample: sample.bytes)
        alive = self.alive_at_peak()
        shown = min(row_limit, sum([x.bytes >= top.bytes / 1000 for x in alive]))
        rows: list[tuple[str, ...]] = [
            (_mib(x.bytes), str(x.tensors), x.category, x.op, x.line) for x in alive[:shown]
        ]
        if len(alive) > shown:
            more = alive[shown:]
            total, tensors = sum(x.bytes for x in more), sum(x.tensors for x in more)
            rows.append((_mib(total), str(tensors), "", f"{len(more)} more", ""))
        before, other = top.before, top.other
        rows += [(_mib(before), "", "before", "(in use on entry)", "")] * (before > 0)
        rest = "(temporary arrays, gradients under way, what came back)"
        rows += [(_mib(other), "", "other", rest, "")]
        head = ("MiB", "tensors", "category", "op", "line")
        widths = [max(len(row[i]) for row in [head, *rows]) for i in range(5)]
        lines = [
            f"{row[0]:>{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:<{widths[2]}}  "
            f"{row[3]:<{widths[3]}}  {row[4]}".rstrip()
            for row in [head, *rows]
        ]
        title = f"peak: {_mib(top.bytes)} MiB on {self.device.type}, at the end of {top.name}"
        if top.seq < SEQ_LIMIT:
            title += f" ({top.phase}, seq={top.seq})"
        return "\n".join([title, *lines])

    # ------------------------------------------------------------------ files

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON: the samples, what was alive at the peak, and what each op made."""
        index = max(range(len(self.samples)), key=lambda i: self.samples[i].bytes, default=None)
        return {
            "format": "cugrad memory timeline", "version": 1, "device": self.device.type,
            "start": self.start, "peak": self.peak, "peak_sample": index,
            "samples": [{**each._asdict(), "other": each.other} for each in self.samples],
            "alive_at_peak": [each._asdict() for each in self.alive_at_peak()],
            "by_op": self.by_op(),
        }  # fmt: skip

    def to_json(self, path: str | Path) -> None:
        """Writes `as_dict()`."""
        Path(path).write_text(json.dumps(self.as_dict()) + "\n", encoding="utf-8")

    def to_png(self, path: str | Path) -> None:
        """Draws memory over time by category into a PNG; ImportError without matplotlib."""
        from .picture import draw

        draw(self.as_dict(), path)

    def to_html(self, path: str | Path, title: str = "Memory over a step") -> None:
        """Writes one page that opens in any browser, needs no server, and loads nothing."""
        from ..html import memory_page

        Path(path).write_text(memory_page(self.as_dict(), title), encoding="utf-8")

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


def _tensors(args: Iterable[Any]) -> Iterable[Tensor]:
    """The tensors among arguments, and in lists of them; of a sparse one its parts."""
    for arg in args:
        if isinstance(arg, Tensor):
            yield from parts_of(arg)
        elif isinstance(arg, (list, tuple)):
            yield from _tensors(each for each in arg if isinstance(each, Tensor))


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.2f}"
