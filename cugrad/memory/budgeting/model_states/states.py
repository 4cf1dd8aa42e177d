"""Where a budget puts weights, gradients and optimizer states: together with what a step saves."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ....autograd.mode import state as grad_mode
from ...offloading.engine import engine_of
from ...states.context import offload_states
from ...states.masters import steps_by_buckets
from ...states.steps import home_of
from ..known_steps import BudgetError, shifted
from ..measuring import BLOCK, mark
from .adding import Adding
from .between import Between
from .chooser import GAIN, Chooser
from .choosing import Candidate, MeasuredStep
from .inventory import Inventory, check_elements
from .remembered import Known, forget, recall, remember

if TYPE_CHECKING:
    from ..context import budget

__all__ = ["StatesOfBudget"]

LEARNS, TIMED = 1, 2  # steps of a choice: to learn the order of uses in; and to be timed
PATIENCE = 24  # steps in which plans for what is saved may settle
TRIALS = 4  # choices that are measured, at most
MISSES = 4  # of steps over the limit, after each of which places are chosen again
KINDS_OF_STEPS = 4  # for which places are chosen, at most


class StatesOfBudget(Chooser):
    """The training states of one model within a budget.

    The first step runs with all of them elsewhere, as with what is saved: that takes least, and is
    measured. Then each choice of places is forecast with the best plan for what is saved beside it,
    and the fastest that fits is taken. Forecasts tell the least that a step takes. So if a choice,
    once it is measured, takes longer than the forecast of another, that one is tried, and the
    fastest of those that were measured stays.
    """

    def __init__(
        self, owner: budget, model: Any, optimizer: Any, disk: Any, masters: str | None, step: str,
        bring_back: bool,
    ) -> None:  # fmt: skip
        self.owner, self.model, self.optimizer, self.disk = owner, model, optimizer, disk
        several = optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]
        self.optimizers = [each for each in several if each is not None]
        if not self.optimizers:
            raise ValueError(
                "budget: got a model and no optimizer, whose step says when a step has ended; want "
                "optimizer=..., or leave out the model, of which all stays on the device then"
            )
        check_elements(model)
        self.masters, self.step, self.bring_back = masters, step, bring_back
        self.inventory = Inventory(owner, model, self.optimizers, disk, masters is not None, step)
        on_host = any(p.device.type == "cpu" for p in model.parameters())
        self.device = owner.device if on_host and owner.device.type != "cpu" else None
        offload_states(model, self.optimizers, masters=masters, step=step)  # checks them
        self.context: Any = None
        self.ended: Any = None  # that of the last step, behind the budget
        self.chosen: Candidate | None = None
        self.tried: list[Candidate] = []
        self.measured: dict[int, float] = {}  # seconds, by place in `tried`
        self.settled = False  # whether no other choice will be tried
        self.passes = 0  # forward and backward, since the last step of an optimizer
        self.adding, self.between = Adding(self), Between(self)
        self._handles: list[Any] = []
        self._paced_by: Any = None  # the optimizer whose steps are timed
        self._ends: list[Any] = []  # of steps with one choice
        self._events: dict[int, int] = {}  # by id of a parameter: when its gradient was whole
        self._is_moving = False  # whether it enters other places
        self._waits = False  # whether the first step has shown that it needs all gradients
        self._seen: MeasuredStep | None = None
        self._kinds: list[MeasuredStep] = []  # the steps by which places were chosen before
        self._others = 0  # bytes of the device that are not the model's, in the first step
        self._over: int | None = None  # the same when it was last begun anew, behind the first step
        self.turns = self._turns = 0  # passes that have ended, and had as the last step began
        self._before = 0  # bytes of the device in use at most, before the step of an optimizer
        self._steps_over = 0  # steps of optimizers that took more than the limit

    def on_device(self) -> tuple[int, ...]:
        """Bytes of what is placed that the device has now, of each kind."""
        windows = () if self.context is None else self.context._windows.values()
        block = 1 if self.owner.device.type == "cpu" else BLOCK
        return tuple([window.swept(block) if window.limit is not None else 0 for window in windows])

    @property
    def adds(self) -> bool:
        """Whether the pass that begins adds to gradients."""
        return self.passes > 0 or getattr(self._seen, "zeroed", self.adding.from_start)

    @property
    def beside_step(self) -> int:
        """Bytes that a step of the optimizer takes beside what is placed."""
        return 0 if self.chosen is None else self.chosen.beside_step

    def pass_ends(self) -> int:
        """Forward and backward have ended; the same, for what comes now."""
        self.turns += 1
        return self.beside_step

    def empty(self) -> None:
        """Has all leave that can: a step is measured that takes as little as any."""
        for window in () if self.context is None else self.context._windows.values():
            window.unload(window.bytes)

    def comes(self, nbytes: int) -> None:
        """Bytes of what is placed are about to come, for who has asked for them."""
        if self.owner._measuring is None:
            self.owner._limiter.make_room(nbytes)
        else:
            self.owner._measuring.moves()

    def has_come(self) -> None:
        """They have come."""
        if self.owner._measuring is not None:
            self.owner._measuring.moves(has_come=True)

    def makes_room(self) -> None:
        """What came ahead of need makes room for what stays, and is copied before it is changed."""
        if self.owner._measuring is None:
            self.owner._limiter.make_room(0)
        else:
            self.empty()

    def may_step(self, nbytes: int) -> bool:
        """Whether a step for which so many bytes come may be taken within backward. None is while
        the memory of each event is seen: there it would count as the event's.
        """
        limiter, plan = self.owner._limiter, self.owner._following
        if plan is None or plan.now.is_cold:
            return False
        nbytes += self.beside_step
        if limiter.room() < nbytes:
            limiter.tighten()
        return limiter.room() >= nbytes

    def has_room(self, nbytes: int) -> bool:
        """Whether bytes may come ahead of need, which none do in a step that is measured."""
        whole = -(-nbytes // BLOCK) * BLOCK
        return self.owner._measuring is None and self.owner._limiter.room() >= whole

    def _unload(self, nbytes: int) -> None:
        """Has so many bytes leave of what is placed, as far as they can."""
        limiter, room = self.owner._limiter, self.owner._limiter.room() + nbytes
        for window in self.context._windows.values():
            if limiter.room() < room:
                window.unload(room - limiter.room())

    def let_go(self) -> None:
        """Waits until what is on its way out has left: a step that is measured begins with that."""
        engine_of(self.owner._backend, self.owner._index).drain()

    def _others_now(self) -> int:
        """Bytes of the device that are not the model's."""
        used = self.owner._of_device.memory_allocated() - sum(self.on_device())
        return max(0, used - self.inventory.resident_now())

    def begin_step(self) -> None:
        """A step begins. One that had no room with the places of those before gets others."""
        self.between.ends()
        seen, may_be = self._seen, not self._is_moving and grad_mode.grad_enabled
        if not any(p._grad is not None for p in self.model.parameters()):
            self.passes = 0  # those before have been given up, if there were any
        if may_be and not self.passes and self.owner._lessons.lacking is not None:
            self._make_do()
            seen = self._seen
        if may_be:
            self.adding.begins()
        self.let_go()
        if seen is None and not self.tried and may_be:
            self._begin_second() if self.passes else self._begin_first()

    def _begin_first(self) -> None:
        """The first step begins: now it is known what the device has beside the model."""
        chosen, lessons, self._others = self.chosen, self.owner._lessons, self._others_now()
        assert chosen is not None
        needs = lambda each: each.in_step + self._others
        if chosen.away < chosen.layout.count or needs(chosen) > self.owner.limit:
            least = self.inventory.frugal(needs)
            if not least.is_like(chosen):
                self._go_on(least)
            chosen = least
        lessons.stepping = chosen.in_step + self._others
        lessons.is_least = chosen.away == chosen.layout.count

    def _begin_second(self) -> None:
        """Another pass of the first step begins: it adds to gradients, which are there then. It
        gets other places where those have too little room for that.
        """
        latest, passes = self.owner._lessons.latest, self.passes + 1
        if latest is None:
            return
        self._see(latest, passes)
        assert self._seen is not None and self.chosen is not None
        most = int((self._seen.least + self._seen.shifts(self._seen.before)).max())
        if most <= self.owner.limit:
            self._seen = None
            return
        anew, self.tried = self._chosen_anew(), []
        if not anew.is_same(self.chosen):
            self._go_on(anew)

    # ------------------------------------------------------------------ begin and end

    def begin(self) -> None:
        """Sends away what can be, as long as nothing is known of the step."""
        self._is_moving = False
        if self.chosen is None:
            self.inventory.count()
            self.owner._lessons.later = self.inventory.later
            self.owner._lessons.foresees = self._foreseen
            self.chosen = self.inventory.frugal(lambda each: each.in_step)
            self._recall()
        self._enter(self.chosen)

    def _key(self) -> Any:
        owner = self.owner
        return (owner.limit, owner.placements, owner.lossless, owner.host_limit, str(self.disk),
                self.masters, self.step, str(owner.device))  # fmt: skip

    def _recall(self) -> None:
        """Takes what a budget of these arguments has chosen for this model."""
        before = recall(self.model, self._key(), self.optimizers, self.inventory.params)
        if before is not None:
            self.chosen, self.tried = before.chosen, list(before.tried)
            self.measured, self.settled = dict(before.measured), before.settled
            self.between.reserve, self.between.beside = before.between
            self.owner._lessons.book, self.owner._lessons.is_least = before.book, before.is_least

    def _remember(self) -> None:
        assert self.chosen is not None
        lessons = self.owner._lessons
        choice = Known(
            self.inventory.params, self.chosen, list(self.tried), dict(self.measured), self.settled,
            lessons.is_least, (self.between.reserve, self.between.beside), lessons.book,
        )  # fmt: skip
        remember(self.model, self._key(), self.optimizers, choice)

    def _enter(self, chosen: Candidate) -> None:
        """Places what is to be elsewhere, and has the rest come back."""
        if self.masters is not None or not chosen.is_on_device:
            self.context = offload_states(
                self.model, self.optimizers, window=chosen.window, min_bytes=self.inventory.least,
                **chosen.places, step=chosen.step, host_limit=self.owner.host_limit,
                bring_back=False, masters=self.masters, device=self.device,
                directory=None if self.disk in (None, True) else self.disk,
            )  # fmt: skip
            self.context.stay = frozenset(chosen.stay)
            self.context.__enter__()
            for window in self.context._windows.values():
                window.watcher = self
            self.owner._limiter.unload = self._unload
            self.let_go()
            self._bring_all()
        self._release(chosen.stay)
        self._ends = []
        for each in self.optimizers:  # behind the context's own
            self._handles.append(each.register_step_pre_hook(self._before_step))
            self._handles.append(each.register_step_post_hook(self._after_step))
        # in each step: with such a hook backward may come to gradients in another order
        self._handles += [
            param.register_post_accumulate_grad_hook(self._is_whole)
            for param in self.model.parameters() if param.requires_grad
        ]  # fmt: skip

    def _bring_all(self) -> None:
        """Brings back what is on the device from now on: the next step is planned beside it."""
        for window in self.context._windows.values():
            for home in list(window.members) if window.limit is None else ():
                if home.is_away:
                    window.bring(home)

    def _release(self, stay: set[int]) -> None:
        """Brings back for good what some parameters have elsewhere."""
        for param in [p for p in self.model.parameters() if id(p) in stay]:
            tensors = [param, param._grad]
            for each in self.optimizers:
                kept = each.state.get(param)
                tensors += kept.values() if isinstance(kept, dict) else ()
            for home in [home_of(tensor) for tensor in tensors]:
                if home is not None:
                    home.release()

    def end(self) -> None:
        """Leaves all where it is."""
        while self._handles:
            self._handles.pop().remove()
        if self._before:  # a step that has not come to its end
            self.owner._of_device.raise_watched_peak(self._before)
        self.owner._limiter.unload = None
        context, self.context = self.context, None
        if context is not None:
            for window in context._windows.values():
                window.watcher = None
            context.__exit__(None, None, None)

    def leave(self, full: BudgetError | None = None, error: BaseException | None = None) -> None:
        """The budget has been left: all stays where it is, or is brought back, if the device was
        not too full for the step. Places for which there was an error are not taken again.
        """
        if isinstance(error, BudgetError):
            forget(self.model, self._key())
        self._remember() if self.tried and error is None else None
        self.ended = self.context
        if self.context is not None and self.bring_back and full is None:
            self.context.bring_back = True
        self.end()

    def _is_whole(self, param: Any) -> None:
        """The gradient of a parameter is whole in the step that is measured."""
        self._events[id(param)] = self.owner._events - 1

    def _go_on(self, chosen: Candidate, is_least: bool = False) -> None:
        """Takes other places than those of the steps before; `is_least`: there are none with less
        of the device.
        """
        self.chosen, seen, owner = chosen, self.owner.last, self.owner
        owner._lessons.is_least = is_least or self.inventory.is_least(chosen)
        self._remember()
        if self._seen is not None and seen is not None:
            step, shifts = self._seen.step, self._seen.shifts(chosen)
            later = shifted(step, shifts.tolist(), chosen.weights_stay)
            adds = self._seen.adds
            more = chosen.in_no_window(len(shifts), adds) - int(self._seen.stay[0])
            seen.restart(later, more, owner.limit, owner.placements, adds)
        if self.context is not None:
            self.context.bring_back = chosen.is_on_device
        self.end()
        self._is_moving = True
        self._enter(chosen)
        self._is_moving = False
        owner._end(failed=True)  # what that has computed is no step

    # ------------------------------------------------------------------ behind a step

    def _before_step(self, optimizer: Any, *args: Any) -> None:
        """A step begins, beside a loss, and what else the loop holds."""
        self.owner._walk.check_thread()
        self.between.step_begins(self._paced_by not in (None, optimizer))
        if self.owner._measuring is not None:  # of forward and backward
            self.owner._measuring.pause()
        if self._seen is None:
            self._others = max(self._others, self._others_now())
        self._before, self._turns = self.owner._of_device.watched_peak(), self.turns
        self.owner._of_device.watch_peak()

    def _stepped(self) -> int:
        """The most bytes in use within a step of an optimizer; 0 if it has run passes itself."""
        most = self.owner._of_device.watched_peak()
        self.owner._of_device.raise_watched_peak(self._before)
        self._before = 0
        return most if self.turns == self._turns else 0

    def _is_over(self, stepped: int, seen: Any) -> bool:
        """Whether a step of an optimizer had too little room with places that were chosen, and
        others may have more; says so.
        """
        if stepped <= self.owner.limit or not self.tried:
            return False
        if seen is None or seen.steps:  # else that is said of the step that was measured
            self.owner._lessons.check(stepped, "what the optimizer's step takes has grown")
        self.owner._lessons.tell(stepped)
        self._steps_over += 1
        by_buckets = all(map(steps_by_buckets, self.optimizers))
        return seen is not None and by_buckets and self._steps_over <= MISSES

    def _after_step(self, optimizer: Any, *args: Any) -> None:
        """A step has ended: what it has taught says where all goes."""
        stepped = self._stepped()
        if self._paced_by not in (None, optimizer):
            self.between.step_of_another(optimizer, stepped)
            return
        if not self.tried:
            self._waits = self.context is not None and self.context.waits_for_backward
            self.owner._lessons.later += self._told()
        self.owner._end()
        lessons = self.owner._lessons
        seen, passes = lessons.take_latest(), max(self.passes, 1)
        self.passes = 0
        is_over = self._is_over(stepped, seen)
        if self.between.turns():
            return
        if self.tried and (is_over or lessons.lacking is not None):
            self._make_do(passes, seen if is_over else None, stepped - self.owner.limit)
            return
        if seen is None or self.settled:
            return
        self._paced_by = optimizer
        if not self.tried:
            has_no_room, lessons.lacking = lessons.lacking is not None, None
            if self._seen is None:
                self._see(seen, passes)
            else:  # by an earlier pass of this step
                self._seen.passes, self._seen.told = passes, self._told()
            self._go_on(self._chosen_anew())
            if has_no_room:
                lessons.check_first(seen.peak)
            return
        over = seen.peak - self.owner.limit
        if over > 0 and self._seen is not None and self._seen.misses < MISSES:
            self._seen.misses += 1
            self._seen.less += over
            before, anew = self.chosen, self._chosen_anew()
            if before is None or not anew.is_same(before):
                self._go_on(anew)
            self.chosen = anew  # if it is the same, the plan for what is saved is corrected
            self._ends.clear()
            return
        if not (seen.settled or seen.plan.keeps_all) and seen.steps < PATIENCE:
            self._ends.clear()
        self._ends.append(mark(self.owner._of_device))
        if len(self._ends) > LEARNS + TIMED:
            self._revise(seen.peak)

    def _make_do(self, passes: int | None = None, stepped: Any = None, over: int = 0) -> None:
        """Takes other places, as the last step had no room with these: it is of another kind than
        those before, or beside more, or, `stepped`, the optimizer's was `over` the limit. Where no
        others seem to do, the next step is measured as the first one was, with all elsewhere.
        """
        lessons, seen = self.owner._lessons, self._seen
        lacking, is_said = lessons.lacking or stepped, lessons.lacking is None
        before, lessons.lacking, others = self.chosen, None, self._others_now()
        assert lacking is not None and before is not None
        if lacking.steps and self._over is not None:
            if lessons.lack is not None and others - self._over <= self.owner.limit >> 6:
                raise lessons.lack  # it was begun anew beside the same, which has not helped
        self.settled = False
        self._ends.clear()
        self._is_moving = True  # what that computes begins no step
        self.inventory.count()  # of what is trained there may be more, too
        self._is_moving = False
        if not lacking.steps:  # it was measured just now
            if not is_said:
                lessons.check_first(lacking.peak)
            self._know(seen)
            self._see(lacking, passes or (1 if seen is None else seen.passes))
            self._others = others
        elif seen is not None:
            self._note_when_whole(len(seen.step.events))
            seen.less += max(lacking.peak - self.owner.limit, others - self._others, 0)
        anew = None
        if self._seen is not None:
            with suppress(BudgetError):
                anew = self._chosen_anew()
                if stepped is not None and anew.is_same(before):  # it takes more than is known
                    self._seen.less += max(over, 0)
                    anew = self._chosen_anew()
        if anew is None or anew.is_same(before):
            self._know(self._seen)
            self._seen, self.tried, self.measured, self._over = None, [], {}, others
            lessons.book.known.clear()
            lessons.later = self.inventory.later
            self._go_on(self.inventory.frugal(lambda each: each.in_step + others), is_least=True)
            return
        for several in lessons.book.known.values():  # all others were planned beside other places
            several[:] = [each for each in several if each is lacking]
        self._go_on(anew)

    def takes(self, anew: Candidate) -> None:
        """Takes other places, as these have no room for what is done between passes."""
        self.settled = False
        self._ends.clear()
        for several in self.owner._lessons.book.known.values():  # planned beside those of before
            several[:] = [each for each in several if each is self.owner.last]
        self._go_on(anew)

    def _know(self, seen: MeasuredStep | None) -> None:
        """Keeps a step, of the last few kinds, for which other places have to have room, too."""
        if seen is not None:
            self._kinds = [*self._kinds, seen][-KINDS_OF_STEPS:]

    def _revise(self, peak: int) -> None:
        """The time of a choice is known: another is tried, if its forecast is less."""
        assert self.chosen is not None
        ends, self._ends = self._ends[LEARNS:], []
        ends[-1].synchronize()
        seconds = min([a.elapsed_time(b) / 1e3 for a, b in zip(ends, ends[1:])])
        now, measured = self.tried.index(self.chosen), self.measured
        measured[now] = seconds if peak <= self.owner.limit else float("inf")
        roomy = [k for k, each in enumerate(self.tried) if self.between.has_room(each)] or [now]
        best = min({*measured} & {*roomy} or [now], key=lambda k: measured[k])
        less = GAIN * measured[best]
        others = [k for k in roomy if k not in measured and self.tried[k].seconds < less]
        if others and len(measured) < TRIALS:
            self._go_on(self._fastest([self.tried[k] for k in others]))
            return
        self.settled = True
        if best != now:
            self._go_on(self.tried[best])
        self._remember()
