"""A limit on a step's memory: the first step measures, a plan is made, the next steps follow it."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterable
from typing import Any

from .. import backends
from ..autograd.anomaly_mode import warn_user
from ..autograd.engine import task
from ..autograd.graph import saved_tensors_hooks
from ..device import default_device
from ..device import device as Device
from ..tensor import Tensor, make
from .engine import CopyEngine, engine_of
from .geometry import root_of
from .known_steps import ADVICE, BudgetError, Course, Known, Learned, first_plan
from .measuring import Measurement
from .owner import Owner
from .planning import COMPRESS, DISK, KEEP, OFFLOAD, RECOMPUTE
from .rates import CODEC, rates_of
from .recipes import Recipe, Value, piece_of, returned
from .recomputing import Again
from .sizes import bytes_of, size
from .walk import Walk

__all__ = ["BudgetError", "budget"]

PLACEMENTS = (KEEP, OFFLOAD, RECOMPUTE, COMPRESS, DISK)
_learned: dict[Any, Learned] = {}
_lock = threading.Lock()


class _Entered(threading.local):
    """The budget that a thread is in."""

    budget: budget | None = None


_entered = _Entered()


class Away:
    """A value in host memory or on disk, which the copy engine brings back."""

    __slots__ = ("engine", "view")
    stays = True

    def __init__(self, engine: CopyEngine, view: Any) -> None:
        self.engine, self.view = engine, view

    def array(self) -> Any:
        with self.engine.backend.use_device(self.engine.index):
            return self.engine.unpack(self.view)[0]


class Encoded:
    """A value that is stored in fewer bytes on the device."""

    __slots__ = ("xp", "codec", "payload", "kind")
    stays = False

    def __init__(self, xp: Any, codec: Any, root: Any) -> None:
        self.xp, self.codec, self.kind = xp, codec, (root.dtype, root.shape)
        self.payload = codec.encode(xp, root)

    def array(self) -> Any:
        return self.codec.decode(self.xp, self.payload, *self.kind)


class budget(saved_tensors_hooks):
    """Within it, a training step takes no more device memory than `limit`, at little cost in time.

    The first step is measured: what it saves, how long each op takes, how fast the link is. It
    runs in little memory, for everything that it saves leaves the device. Then each saved tensor
    gets a place: it stays, or waits in host memory, on disk or in fewer bits, or is made again, so
    that the step is as fast as is known while its peak stays under the limit. The next steps follow
    that plan, and correct it by what they measure. A step whose ops or sizes differ is measured
    anew. See docs/memory-budget.md.

    Args:
        limit: bytes of the device in use at most, parameters and all, as a number or as text:
            "12GiB". On the CPU: of what is allocated within.
        placements: which ones may be used, of "keep", "offload", "recompute", "compress", "disk";
            if not given, all, but the disk only on a host or with a `host_limit`.
        lossless: gradients are bitwise those without; False allows "compress", in bfloat16.
        host_limit: bytes of page-locked host memory to use; None: what the host can give.
        device: whose memory; None: the default device.

    BudgetError at the end of the first step if no plan fits: it says how much is needed, and for
    what. ValueError for a limit that is no size, or a placement that does not exist.

    >>> import cugrad as torch
    >>> from cugrad import memory
    >>> x = torch.rand(64, 256, device="simulated")
    >>> net = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)]).to("simulated")
    >>> for _ in range(3):
    ...     with memory.budget("5MB", device="simulated") as plan:
    ...         net.zero_grad()
    ...         h = x
    ...         for layer in net:
    ...             h = torch.tanh(layer(h))
    ...         loss = h.sum()
    ...         del h
    ...         loss.backward()
    >>> plan.report()["peak"] <= 5_000_000
    True
    """

    def __init__(
        self,
        limit: int | str,
        *,
        placements: tuple[str, ...] = PLACEMENTS,
        lossless: bool = True,
        host_limit: int | str | None = None,
        device: Device | str | None = None,
    ) -> None:
        self.limit = bytes_of(limit, "budget: limit", least=1)
        if not isinstance(lossless, bool):
            raise TypeError(f"budget: lossless: got {lossless!r}, want True or False")
        self.lossless = lossless
        if host_limit is not None:
            host_limit = bytes_of(host_limit, "budget: host_limit")
        self.host_limit = host_limit
        self.device = default_device() if device is None else Device(device)
        self._backend = backends.get(self.device.type)
        self._index = self.device.index
        if self._index is None:
            self._index = self._backend.current_device()
        self.placements = self._allowed(placements)
        here = self.device.type, self._index
        with _lock:
            key = (*here, self.limit, self.placements, self.lossless, host_limit)
            self._learned = _learned.setdefault(key, Learned())
        self._walk = Walk(self)
        self._small = min(1 << 12, self.limit >> 20)  # bytes: what is smaller stays
        self._under_way = min(self.limit // 32, 1 << 30)  # bytes that the link may hold, each way
        self._owner = Owner(1, 0, self._under_way, self._under_way, host_limit, exact=True)
        self._disk_owner: Owner | None = None
        self._engine: CopyEngine | None = None
        if self.device.type != "cpu":
            self._engine = engine_of(self._backend, self._index)
        self._thread: int | None = None
        self._left = False  # whether the last step ended before its backward
        self.last: Known | None = None  # what the last step followed, or taught
        self._fresh()

    def _allowed(self, placements: Any) -> frozenset[str]:
        several = isinstance(placements, Iterable) and not isinstance(placements, str)
        given = tuple(placements) if several else ()
        if KEEP not in given or any(p not in PLACEMENTS for p in given):
            raise ValueError(
                f"budget: placements: got {placements!r}, want several of {', '.join(PLACEMENTS)}, "
                "'keep' among them"
            )
        if self.lossless and COMPRESS in given and given != PLACEMENTS:
            raise ValueError(
                "budget: placements: 'compress' is not lossless; it needs lossless=False"
            )
        allowed = set(given)
        if self.lossless:
            allowed.discard(COMPRESS)
        if self.device.type == "cpu":
            allowed.discard(OFFLOAD)
        elif given == PLACEMENTS and self.host_limit is None:  # the host's memory is faster
            allowed.discard(DISK)
        return frozenset(allowed)

    # ------------------------------------------------------------------ a step

    def _fresh(self) -> None:
        """A step begins: nothing of it is known."""
        self.names: list[str] = []
        self.sizes: list[int] = []
        self._following: Known | None = None
        self._first: tuple[str, int] | None = None
        self._measuring: Measurement | None = None
        self.turned = False  # whether backward has begun
        self._saves = False  # whether something was saved
        self._dropped = 0  # bytes that are to be made again, since the last that stays
        self._back: dict[int, int] = {}  # bytes that came back while the node ran, by value
        self._most = 0  # bytes that were in use at most before it, which is told again in the end
        self._began: Any = None
        self._tracing = False

    def __enter__(self) -> budget:  # type: ignore[override]
        here = threading.get_ident()
        if self._thread not in (None, here):
            raise RuntimeError("budget: it is entered in another thread; make one for each thread")
        if _entered.budget is not None:
            raise RuntimeError(
                f"budget: one of {size(self.limit)} is entered within one of "
                f"{size(_entered.budget.limit)}, which would see nothing of what is saved from "
                "here on; use one, around the whole step"
            )
        _entered.budget, self._thread = self, here
        super().__enter__()
        self._walk.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._walk.__exit__(*exc)
        super().__exit__(*exc)
        _entered.budget = self._thread = None
        self._end(failed=exc[0] is not None)

    def op_will_begin(self) -> None:
        """A recorded op, outside of backward: of another step, if backward has run."""
        if self.turned and not task.running:
            self._end()

    def op_begins(self, name: str, recipe: Recipe) -> None:
        measuring, plan = self._measuring, self._following
        if measuring is None and self._first is None and plan is None:
            measuring = self._measuring = Measurement(self._backend, self._in_use())
        if measuring is not None:
            for value in recipe.values():
                if value.number >= 0:
                    measuring.reads(value.number)
            measuring.enter(name)
        if plan is not None:
            for value in recipe.values():  # what stays is held from the first that is made of it
                if value.held is None and value.views == 0:
                    if plan.plan.placements[value.number] == KEEP:
                        self._place(value, value.root(), KEEP)

    def op_ends(self, recipe: Recipe) -> None:
        if self._measuring is not None:
            self._measuring.leave(0)
        plan = self._following
        if plan is None:
            return
        for ref in recipe.outputs.values():  # what others are made of, and nobody has saved
            value = ref()
            if value is not None and value.held is None and value.views == 0:
                place = plan.plan.placements[value.number]
                if place in (OFFLOAD, DISK):
                    self._place(value, value.root(), place)

    def made(self, value: Value, recipe: Recipe) -> None:
        """A value of this step: is it the one that the plan expects?"""
        number, name = len(self.sizes), recipe.op.name
        value.number = number
        self.names.append(name)
        self.sizes.append(value.nbytes)
        if number == 0:
            self._begin((name, value.nbytes))
        if self._measuring is not None:
            self._measuring.made(value, recipe, self._is_ours(value.root()))
        plan = self._following
        if plan is not None and not plan.matches(number, name, value.nbytes):
            self._following = self._other(plan)

    def _begin(self, first: tuple[str, int]) -> None:
        """The first value says which plans there may be."""
        self._first, self._left = first, False
        known = self._learned.known.get(first)
        if known and first not in self._learned.again:
            before = self._in_use()
            if self._measuring is not None:  # since the op began that has made the value
                before = self._measuring.before
                self._measuring.close()
            self._following, self._measuring = known[-1], None
            if self.device.type == "cpu":
                known[-1].now.begin()
            else:
                known[-1].begin(self.limit, before, self.placements)
            under_way = known[-1].step.lookahead
            self._owner.backlog = under_way
            self._owner.lookahead = 0 if known[-1].now.is_cold else under_way
            if not known[-1].settled:
                if self.device.type == "cpu" and not tracemalloc.is_tracing():
                    tracemalloc.start()
                    self._tracing = True
                self._began = self._mark()
            self._most = self._backend.max_memory_allocated()
            self._backend.reset_peak_memory_stats()

    def _in_use(self) -> int:
        """Bytes in use, but for those that the copies of the step before have yet to let go of."""
        under_way = 0
        if self._engine is not None:
            self._engine.settle()
            under_way = self._engine.out.leaving_bytes + self._engine.ahead
        return max(0, self._backend.memory_allocated() - under_way)

    def _mark(self) -> Any:
        event = self._backend.event(timing=True)
        self._backend.current_stream().record_event(event)
        return event

    def _other(self, left: Known) -> Known | None:
        """Another plan that has done as this one so far, and goes on as the step does."""
        assert self._first is not None
        n = len(self.sizes)
        for known in reversed(self._learned.known[self._first]):
            if known.sizes[:n] == self.sizes and known.names[:n] == self.names:
                if known.plan.placements[: n - 1] == left.plan.placements[: n - 1]:
                    return known
        self._learned.again.add(self._first)
        return None

    def node_begins(self, node: Any) -> None:
        if not self.turned:
            self.turned = True
            self._walk.turn()
        if self._measuring is not None:
            self._back = {}
            leaving = set()
            if self._engine is not None:
                leaving = {id(root_of(entry[4])) for entry in self._engine.out._leaving}
            self._measuring.turn(leaving)
            self._measuring.enter(node.name())

    def node_ends(self) -> None:
        if self._measuring is not None:
            ahead = 0 if self._engine is None else self._engine.ahead
            back = self._back | {id(value): value.nbytes for value in returned()}
            self._measuring.leave(sum(back.values()) + ahead)

    # ------------------------------------------------------------------ saved tensors

    def pack_hook(self, tensor: Tensor) -> Any:
        """A piece of a value that waits elsewhere; the tensor itself, if it stays."""
        value = self._walk.value_of(tensor)
        self._saves = True
        if value is None or self.turned:
            return tensor
        root = root_of(tensor._array)
        if value.held is None and value.views == 0:
            plan = self._following
            if plan is None or value.number >= len(plan.sizes):
                self._place(value, root, self._safe(value))
            else:
                self._place(value, root, plan.plan.placements[value.number])
        if hasattr(value.held, "dtype") and value.views == 0 and self._measuring is None:
            return tensor
        return Again(piece_of(value, tensor._array, root))

    def unpack_hook(self, packed: Any) -> Tensor:
        """The tensor that was packed."""
        if self._left and not self.turned:
            self._left = False
            warn_user(
                "budget: backward runs after the budget has ended, so this step is not planned; "
                "put forward and backward into one `with memory.budget(...)`"
            )
        if not isinstance(packed, Again):
            return packed
        measuring, value = self._measuring, packed.piece.value
        if measuring is None:
            return packed.tensor()
        before, was_here = measuring.pause(), value.here() is not None
        tensor = packed.tensor()
        measuring.resume(before)
        measuring.uses(value)
        if not was_here or value.present is not None:
            self._back[id(value)] = value.nbytes
        return tensor

    def _safe(self, value: Value) -> str:
        """Where a value goes of which nothing is known: what needs least memory."""
        if value.nbytes < self._small:
            return KEEP
        if self._engine is not None and OFFLOAD in self.placements:
            return OFFLOAD
        if RECOMPUTE in self.placements and value.recipe is not None:
            if self._dropped + value.nbytes <= self.limit // 8:
                self._dropped += value.nbytes
                return RECOMPUTE
            self._dropped = 0
        return DISK if DISK in self.placements and RECOMPUTE not in self.placements else KEEP

    def _place(self, value: Value, root: Any, place: str) -> None:
        """Puts a value where it waits for backward."""
        place = place if self._is_ours(root) else KEEP
        if place == RECOMPUTE and value.recipe is not None:
            return
        if place in (OFFLOAD, DISK):
            before = None if self._measuring is None else self._measuring.pause()
            value.held = self._sent(value, root, place)
            if self._measuring is not None:
                self._measuring.resume(before)
        elif place == COMPRESS and root.flags.c_contiguous and _codec().applies(root.dtype):
            value.held = Encoded(self._backend.xp, _codec(), root)
        if value.held is None:
            self._walk.hold(value, root)
        value.recipe = None

    def _is_ours(self, root: Any) -> bool:
        """Whether a storage is on the device that the limit is for."""
        backend = backends.backend_of(root)
        return backend is self._backend and backend.device_index(root) in (None, self._index)

    def _sent(self, value: Value, root: Any, place: str) -> Any:
        tensor = make(root)
        tensor._counter = value.counter
        engine = self._engine or engine_of(self._backend, self._index)
        owner = self._owner
        if place == DISK:
            if self._disk_owner is None:
                from .disk_store import DiskStore

                self._disk_owner = Owner(
                    1, 0, self._under_way, self._under_way, None, False, DiskStore()
                )
            owner = self._disk_owner
        with self._backend.use_device(self._index):
            view = engine.pack(tensor, owner)
        return None if view is None else Away(engine, view)

    # ------------------------------------------------------------------ what was learned

    def _end(self, failed: bool = False) -> None:
        """The step is over: it is planned, or its plan is corrected."""
        measuring, plan, first = self._measuring, self._following, self._first
        names, sizes, turned, most, began = (
            self.names, self.sizes, self.turned, self._most, self._began
        )  # fmt: skip
        tracing, self._left = self._tracing, self._saves and not turned and not failed
        self._fresh()
        self._walk.known.clear()
        if measuring is not None:
            measuring.close()
        peak = self._backend.max_memory_allocated()
        self._backend.raise_peak_memory_stats(most)
        if tracing:
            tracemalloc.stop()
        if failed or first is None or not turned:
            return
        if measuring is not None and measuring.is_whole:
            self._learn(first, names, sizes, measuring)
        elif plan is not None:
            self.last = plan
            if len(plan.sizes) == len(sizes):
                self._look(plan, peak, began)

    def _learn(
        self, first: Any, names: list[str], sizes: list[int], measuring: Measurement
    ) -> None:
        if measuring.elsewhere and not any(seen.nbytes for seen in measuring.values):
            warn_user(
                f"budget: the limit is for the memory of '{self.device}', and what this step makes "
                f"is on '{measuring.elsewhere}'; say device='{measuring.elsewhere}'"
            )
        rates = rates_of(self._backend, self._index, self.limit // 32, self.placements)
        largest = max([seen.nbytes for seen in measuring.values if seen.uses], default=0)
        for under_way in (max(self._under_way, min(largest, self.limit // 8)), self._under_way):
            step = measuring.step(rates, self.placements, self._small, under_way)
            limit, plan = first_plan(step, self.limit, self.placements)
            if plan.needs < 0.95 * self.limit:  # else fewer bytes under way may leave more room
                break
        known = Known(names, sizes, step, measuring.before, Course(step, 0, limit, plan))
        known.first_peak, self.last = measuring.peak, known
        if plan.forecast.peak > self.limit:
            raise BudgetError(
                f"budget: {size(self.limit)} are too few: this step needs at least "
                f"{size(plan.needs)}, and room for an optimizer's state if that is yet to come. "
                f"{plan.holders} {ADVICE}"
            )
        plans = self._learned.known.setdefault(first, [])
        plans[:] = [k for k in plans if (k.names, k.sizes) != (names, sizes)][-3:] + [known]
        self._learned.again.discard(first)

    def _look(self, known: Known, peak: int, began: Any) -> None:
        """Compares a step with its limit and its forecast; plans again where it missed."""
        if known.settled and peak <= self.limit:
            return
        if peak > self.limit:
            warn_user(
                f"budget: the step took {size(peak)}, over its limit of {size(self.limit)} "
                f"({size(known.here)} were in use as it began); that corrects the next ones' plan"
            )
        if known.settled:
            known.now.exceeded(self.limit, peak, self.placements)
            return
        end = self._mark()
        end.synchronize()
        if self._engine is not None:  # the next step is not to count what this one's copies hold
            self._engine.drain()
        known.now.correct(self.limit, peak, began.elapsed_time(end), self.placements)

    def report(self) -> Any:
        """What the step does to memory, and why; a dict that prints as a page and can be drawn."""
        from .budget_report import report_of

        return report_of(self, self.last)


def _codec() -> Any:
    from .codecs import codec_of

    return codec_of(CODEC)


