"""A limit on a step's memory: the first step measures, a plan is made, the next steps follow it."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from contextlib import AbstractContextManager
from typing import Any

from ... import backends
from ...autograd.engine.backward_pass import task
from ...autograd.graph import saved_tensors_hooks
from ...autograd.mode import state
from ...backends.several import OfDevice
from ...device import default_device
from ...device import device as Device
from ...runtime.frames import warn_user
from ...tensor import Tensor
from ..geometry import root_of
from ..recomputing.context import Recomputed
from ..recomputing.recipes import Recipe
from ..recomputing.values import Value, piece_of, returned
from ..sizes import bytes_of, size
from .known_steps import RECORDED, BudgetError, SeenStep, StepBook, StepKind, StepOutcome
from .lessons import Lessons
from .measuring import Measurement, mark
from .of_model import OfModel
from .placing import PLACEMENTS, Places, allowed
from .planning import DISK, KEEP, OFFLOAD, RECOMPUTE
from .step_recorder import StepRecorder, WaitsRecorder
from .within import Within, entered

__all__ = ["BudgetError", "budget"]

_learned: dict[Any, StepBook] = {}
_lock = threading.Lock()


class budget(OfModel, saved_tensors_hooks):
    """Within it, a training step takes no more device memory than `limit`, at little cost in time.

    The first step is measured: what it saves, how long each op takes, how fast the link is. It
    takes as little memory as any, for everything that it saves leaves the device; that amount is
    not known before, so this step alone may exceed the limit, and warns then. Then each saved
    tensor gets a place: it stays, or waits in host memory, on disk or in fewer bits, or is made
    again, so that the step is as fast as is known while its peak stays under the limit. The next
    steps follow that plan, and correct it by what they measure; what does not fit while they do has
    to leave, or to wait. A step whose ops or sizes differ is measured anew. See
    docs/memory-budget.md, "What is promised".

    Args:
        limit: bytes of the device in use at most, parameters and all, as a number or as text:
            "12GiB". On the CPU: of what is allocated within.
        placements: which ones may be used, of "keep", "offload", "recompute", "compress", "disk";
            if not given, all, but the disk only on a host or with a `host_limit`.
        lossless: gradients are bitwise those without; False allows "compress", in bfloat16.
        host_limit: bytes of page-locked host memory to use; None: what the host can give.
        device: whose memory; None: the default device, or the model's.
        model, optimizer: a Module (a ModuleList of several) and its optimizer, or a list: weights,
            gradients and states are placed, too, as by `offload_states`. The context is then around
            the whole loop, and what it has sent away stays there behind it.
        disk: True or a directory: what the host has no room for may go there.
        masters: as of `offload_states`: "float32" for a model in 16 bits.
        step: as of `offload_states`: "during backward" allows the plan to choose that.
        bring_back: whether what it has sent away is on the device again behind the context.

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

    is_placement = True

    def __init__(
        self,
        limit: int | str,
        *,
        placements: tuple[str, ...] = PLACEMENTS,
        lossless: bool = True,
        host_limit: int | str | None = None,
        device: Device | str | None = None,
        model: Any = None,
        optimizer: Any = None,
        disk: Any = None,
        masters: str | None = None,
        step: str = "behind backward",
        bring_back: bool = False,
    ) -> None:
        self.limit = bytes_of(limit, "budget: limit", least=1)
        if model is not None and not hasattr(model, "parameters"):
            raise TypeError(f"budget: model: got {type(model).__name__}, want one Module")
        if device is None and model is not None:
            device = next(iter([p.device for p in model.parameters()]), None)
        if not isinstance(lossless, bool):
            raise TypeError(f"budget: lossless: got {lossless!r}, want True or False")
        self.lossless = lossless
        host_limit = None if host_limit is None else bytes_of(host_limit, "budget: host_limit")
        self.host_limit = host_limit
        self.device = default_device() if device is None else Device(device)
        self._backend = backends.get(self.device.type)
        self._index = self.device.index
        if self._index is None:
            self._index = self._backend.current_device()
        self._of_device: Any = OfDevice(self._backend, self._index)
        self.placements = allowed(placements, lossless, self.device.type, host_limit is not None)
        self._walk = (StepRecorder if model is None else WaitsRecorder)(self)
        self._small = min(1 << 12, self.limit >> 20)  # bytes: what is smaller stays
        self._places = Places(self.device.type, self._index, self.limit, host_limit)
        self._limiter = self._places.limiter
        self._thread: int | None = None
        self._left = False  # whether the last step ended before its backward
        key = self.device.type, self._index, self.limit, self.placements, self.lossless, host_limit
        with _lock:  # what a model's steps take depends on where the model is
            book = StepBook() if model is not None else _learned.setdefault(key, StepBook())
        self._lessons = Lessons(
            book, self._backend, self.device, self._index, self.limit, self.placements,
            self._small, self._places.under_way,
        )  # fmt: skip
        self._within = Within(self._of_device)
        self._take_model(model, optimizer, disk, masters, step, bring_back)
        self._fresh()

    def __repr__(self) -> str:
        last, what = self.last, "no step yet"
        if last is not None:
            plans = "1 plan" if len(last.tried) == 1 else f"{len(last.tried)} plans"
            what = f"settled after {plans}" if last.settled else f"{plans} tried"
            what += f", the last step took {size(last.peak)}"
        return f"<budget of {size(self.limit)} on '{self.device}': {what}>"

    @property
    def last(self) -> SeenStep | None:
        """What the last step followed, or taught."""
        return self._lessons.last

    def peak(self) -> int:
        """Bytes in use at most since it was entered; 0 if only its steps are looked at."""
        return max(self._within.most, self._lessons.told)

    # ------------------------------------------------------------------ a step

    def _fresh(self) -> None:
        """A step begins: nothing of it is known."""
        self.names, self.sizes, self.nodes = list[str](), list[int](), list[str]()
        self._following: SeenStep | None = None
        self._first: tuple[str, int] | None = None
        self._measuring: Measurement | None = None
        self._peaks: list[int] | None = None  # by event, while a plan is tried
        self._events = 0  # ops and nodes that have begun
        self.turned = False  # whether backward has begun
        self._run: Any = None  # the backward pass that asked last
        self._saves = False  # whether something was saved
        self._is_aside = False  # whether some of it was made without gradients
        self._dropped = 0  # bytes that are to be made again, since the last that stays
        self._most = self._peak = 0  # bytes in use at most: before it, told again in the end; in it
        self._began: Any = None
        self._tracing = False

    def as_is(self) -> Any:
        if self._thread not in (None, threading.get_ident()):
            raise RuntimeError("budget: it is entered in another thread; make one for each thread")
        if entered.budget is not None:
            raise RuntimeError(
                f"budget: one of {size(self.limit)} is entered within one of "
                f"{size(entered.budget.limit)}, which would see nothing of what is saved from "
                "here on; use one, around the whole step"
            )
        return super().as_is(), self._walk.as_is()

    def change(self, before: Any) -> budget:
        entered.budget, self._thread = self, threading.get_ident()
        super().change(before[0])
        self._walk.change(before[1])
        return self

    def put_back(self, before: Any) -> None:
        self._walk.put_back(before[1])
        super().put_back(before[0])
        entered.budget = self._thread = None

    def __enter__(self) -> Any:
        self._lessons.told = self._lessons.told_of_turn = self._lessons.foretold = 0
        if self._states is not None:
            self._states.begin()
        self._within.begin()
        try:
            return super().__enter__()
        except BaseException:
            if self._states is not None:
                self._states.end()
            raise

    def __exit__(self, *exc: Any) -> None:
        saved_tensors_hooks.__exit__(self, *exc)  # `super()` is a call, at which a signal may come
        full = self._lessons.ran_out(self._measuring, exc[1])
        try:
            self._end(failed=exc[0] is not None)
        finally:
            self._within.end()
            if self._states is not None:
                self._states.leave(full, exc[1])
        if full is not None:
            raise full from exc[1]
        self._within.check(self.limit, self._lessons.told_of_turn)

    def op_will_begin(self, args: tuple[Any, ...]) -> None:
        """A recorded op, outside of backward. After one has run it is of another step, unless it
        goes on with the graph of this one, as a penalty on gradients does, or a second loss. What
        was made without gradients, and has saved nothing, was an evaluation.
        """
        if not self.turned:
            if self._is_aside and not self._saves:
                self._end()
        elif not any(isinstance(x, Tensor) and x._requires_grad and not x.is_leaf for x in args):
            self._end()

    def op_begins(self, name: str, recipe: Recipe | None) -> None:
        measuring, plan = self._measuring, self._following
        if measuring is None and self._first is None and plan is None:
            self._limiter.begin([], None)
            if self.device.type != "cpu" and not self._lessons.is_settled:
                gc.collect()  # else the plan would leave room for what is garbage by now
            self._limiter.tighten()  # what the copies of the step before hold
            self._places.copies(self._places.under_way, 0)
            if self._states is not None:
                self._states.begin_step()
            used = self._of_device.memory_allocated()
            training = None if self._states is None else self._states.on_device
            measuring = self._measuring = Measurement(self._of_device, used, training)
        self._event_begins(name)
        for value in () if recipe is None else recipe.values():
            if measuring is not None and value.number >= 0:
                measuring.reads(value.number)
            # what stays is held from the first that is made of it
            if plan is not None and not value.is_held and value.views == 0:
                if plan.plan.placements[value.number] == KEEP:
                    self._place(value, value.root(), KEEP)

    def _event_begins(self, name: str) -> None:
        """An op, or a node: there must be room for what it takes."""
        plan, measuring = self._following, self._measuring
        number, self._events = self._events, self._events + 1
        if measuring is not None:
            if self._states is not None or self._places.is_leaving:
                before = measuring.pause()  # before that has left of which the last event had need
                self._empty()
                self._limiter.tighten()
                measuring.resume(before)
            measuring.enter(name)
            return
        if plan is not None and self._peaks is not None:
            self._look(number - 1)
            if plan.now.is_cold:
                self._limiter.tighten()
            self._of_device.watch_peak()
        self._limiter.event(number if plan is not None and plan.has_event(number, name) else -1)

    def _look(self, number: int) -> None:
        """Takes the peak since the last look: of the last event, and of the step."""
        most = self._of_device.watched_peak()
        self._peak = max(self._peak, most)
        if self._peaks and 0 <= number < len(self._peaks):
            self._peaks[number] = max(self._peaks[number], most)

    def op_ends(self, recipe: Recipe | None) -> None:
        if self._measuring is not None:
            self._measuring.leave()
        plan = self._following
        if plan is None or recipe is None:
            return
        for ref in recipe.outputs.values():  # inputs of other values that no node has saved
            value = ref()
            if value is not None and not value.is_held and value.views == 0:
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
            self._measuring.made(value, recipe, self._places.are_ours(value.root()))
        plan = self._following
        self._is_aside = self._is_aside or not state.grad_enabled
        if plan is not None and not plan.matches(number, name, value.nbytes):
            self._following = plan = self._other(plan)
        if plan is not None:  # ops that make no value, as views, may be more, or fewer
            self._events = plan.step.values[number].born + 1

    def _begin(self, first: tuple[str, int]) -> None:
        """The first value says which plans there may be."""
        self._first, self._left = first, False
        plans, measuring = self._lessons.book.known.get(first), self._measuring
        if not plans or first in self._lessons.book.again or measuring is None:
            self._empty()
            return
        measuring.close()
        self._measuring, plan = None, plans[-1]
        self._follow(plan, measuring)
        tried = not plan.settled
        if tried:
            if self.device.type == "cpu" and not tracemalloc.is_tracing():
                tracemalloc.start()
                self._tracing = True
            self._began = mark(self._of_device)
            born = plan.step.values[0].born
            self._peaks = [0] * len(plan.step.events)
            for number, span in zip(range(born, -1, -1), reversed(measuring.spans)):
                self._peaks[number] = span.peak
        evicts = (tried or plan.now.evicts) and OFFLOAD in self.placements
        self._limiter.begin(plan.owns, self._places.options if evicts else None)
        self._most, self._peak = self._of_device.watched_peak(), measuring.peak
        self._of_device.watch_peak()

    def _follow(self, plan: SeenStep, measuring: Measurement) -> None:
        """The step is one that is known, as far as can be seen."""
        self._following = plan
        if self.device.type != "cpu":
            before = measuring.before
            if not plan.fitting(self.limit, before):  # perhaps of what only the collector frees
                used = self._of_device.memory_allocated()
                gc.collect()
                before -= used - self._of_device.memory_allocated()
            adds = self._states is not None and self._states.adds
            plan.begin(self.limit, before, self.placements, adds)
        under_way = plan.step.lookahead
        self._places.copies(under_way, 0 if plan.now.is_cold else under_way)

    def _other(self, left: SeenStep) -> SeenStep | None:
        """Another plan, where the step goes on otherwise; none for an evaluation."""
        assert self._first is not None
        if self._is_aside and not self._saves:
            return None
        return self._lessons.book.other(left, self._first, self.names, self.sizes)

    def node_begins(self, node: Any) -> None:
        if not self.turned:
            self._walk.turn()
            if self._following is not None:
                self._events = self._following.step.forward
        if task.running and task.running[-1] is not self._run:
            self._run = task.running[-1]
            self._run.callbacks.append(self._backward_has_ended)
        name = node.name()
        self.nodes.append(RECORDED + name if self._run.recording else name)
        self._event_begins(name)
        if not self.turned:
            self.turned = True
            if self._measuring is not None:
                self._measuring.turn()

    def node_ends(self) -> None:
        if self._measuring is not None:
            self._measuring.leave()

    def _backward_has_ended(self) -> None:
        """What comes now is not planned: optimizers, evaluations."""
        self._run = None
        self._limiter.own = 0 if self._states is None else self._states.pass_ends()
        if self._measuring is None and self._first is not None:  # also of one that went otherwise
            self._look(self._events - 1)

    # ------------------------------------------------------------------ saved tensors

    def pack_hook(self, tensor: Tensor) -> Any:
        """A piece of a value that waits elsewhere; the tensor itself, if it stays."""
        self._walk.check_thread()
        value = self._walk.value_of(tensor)
        self._saves = True
        if value is None or self.turned:
            return tensor
        root = root_of(tensor._array)
        if not value.is_held and value.views == 0:
            plan = self._following
            if plan is None or value.number >= len(plan.sizes):
                self._place(value, root, self._safe(value))
            else:
                self._place(value, root, plan.plan.placements[value.number])
        if value.kept is not None and value.views == 0:
            if self._measuring is None and not self._limiter.evicts:
                return tensor
        packed = Recomputed(piece_of(value, tensor._array, root))
        if self._measuring is not None:
            self._measuring.saves(value, packed)
        return packed

    def unpack_hook(self, packed: Any) -> Tensor:
        """The tensor that was packed."""
        if self._left and not self.turned:
            self._left = False
            warn_user(
                "budget: backward runs after the budget has ended, so this step is not planned; "
                "put forward and backward into one `with memory.budget(...)`"
            )
        if not isinstance(packed, Recomputed):
            return packed
        if (measuring := self._measuring) is None:
            tensor = packed.tensor(self._running)
            self._limiter.make_room(0)  # for the node itself, beside what is here now
            return tensor
        before = measuring.pause()
        tensor = packed.tensor()
        measuring.uses(packed.piece.value)
        measuring.returns(packed.piece.value, root_of(tensor._array))
        for other in returned():  # made on the way, and wanted later
            measuring.returns(other, root_of(other.restored))
        measuring.resume(before)
        return tensor

    def _running(self, recipe: Recipe) -> AbstractContextManager[None]:
        """Around an op that runs again: there must be room for what it takes."""
        event = -1
        if self._following is not None:
            values = self._following.step.values
            outputs = [ref() for ref in recipe.outputs.values()]
            event = max([values[v.number].born for v in outputs if v is not None
                         and v.number < len(values)], default=-1)  # fmt: skip
        return self._limiter.remaking(event)

    def _safe(self, value: Value) -> str:
        """Where a value goes of which nothing is known: what needs least memory."""
        if value.nbytes < self._small:
            return KEEP
        if OFFLOAD in self.placements:
            return OFFLOAD
        if RECOMPUTE in self.placements and value.recipe is not None:
            if self._dropped + value.nbytes <= self.limit // 8:
                self._dropped += value.nbytes
                return RECOMPUTE
            self._dropped = 0
        return DISK if DISK in self.placements and RECOMPUTE not in self.placements else KEEP

    def _place(self, value: Value, root: Any, place: str) -> None:
        """Puts a value where it waits for backward."""
        place = place if self._places.are_ours(root) else KEEP
        if place == RECOMPUTE and value.recipe is not None:
            return
        before = None
        if self._measuring is not None and place in (OFFLOAD, DISK):
            before = self._measuring.pause()
        if not self._places.put(value, root, place):
            self._walk.hold(value, root)
            self._limiter.keeps(value)
            if self._measuring is not None:
                self._measuring.keeps(value)
        if self._measuring is not None and before is not None:
            self._measuring.resume(before)
        value.recipe = None

    # ------------------------------------------------------------------ what was learned

    def _end(self, failed: bool = False) -> None:
        """The step is over: it is planned, or its plan is corrected."""
        measuring, plan, first = self._measuring, self._following, self._first
        did = StepKind(self.names, self.sizes, self.nodes)
        turned, began = self.turned, self._began
        if measuring is not None:
            measuring.close()
        elif first is not None:
            if not turned:
                self._look(self._events - 1)
            self._of_device.raise_watched_peak(max(self._most, self._peak))
        if self._tracing:
            tracemalloc.stop()
        self._left = self._saves and not turned and not failed
        seen = StepOutcome(self._peak, self._peaks or [], self._limiter.evicted)
        self._fresh()
        self._walk.known.clear()
        if failed or not turned:
            return
        if self._states is not None:
            self._lessons.adds = self._states.adds
            self._states.passes += 1
        if measuring is not None and measuring.is_whole:
            self._lessons.learn(first or ("", 0), did, measuring)
        elif plan is not None and len(plan.sizes) == len(did.sizes):
            self._lessons.compare(first or ("", 0), plan, did, seen, began)
        elif first is not None:
            self._lessons.unlike(plan, seen.peak)
