"""Steps that are taken while backward goes on, and count when the optimizer's own step comes."""

from __future__ import annotations

from functools import partial
from typing import Any

from ....autograd.mode import no_grad
from ....autograd.threads import run_to_its_end
from ....tensor import Tensor
from ...sizes import free_host
from ..home import Home
from ..masters import steps_by_buckets
from ..placed import HOMES
from ..steps import StatesElsewhere, home_of
from ..undo import Remembered
from .early import DuringBackward

__all__ = ["Beforehand"]

STAYS = 2  # one part of the window of gradients is for those that stay, the rest for who leaves
SCALER = {"grad_scale", "found_inf"}  # what a GradScaler tells an optimizer for the time of a step


class Taken:
    """The step of a parameter that was taken, and does not count yet: as if it were not.

    Whoever looks at the parameter, or at its states, has it taken back: their homes know of it. The
    host has both versions of them meanwhile. `kept` is what the optimizer keeps beside placed
    tensors: before the step, and behind it.
    """

    def __init__(self, owner: Beforehand, optimizer: Any, group: Any, param: Tensor) -> None:
        self.owner, self.optimizer, self.group, self.param = owner, optimizer, group, param
        homes = [HOMES[id(param)], *owner.steps.homes_of_states(optimizer, [param])]
        self.before = [(h, h.span, h.pending, h.ref().counter[0]) for h in homes]
        self.kept = [Remembered(optimizer, [param])]
        self.behind: list[int] = []  # versions
        self.marks: Any = None

    def put_aside(self) -> None:
        """The step has been taken: all looks as before it from now on."""
        self.kept.append(Remembered(self.optimizer, [self.param]))
        self.kept[0].put_back()
        self.behind = [home.ref().counter[0] for home, *_ in self.before]
        for home, _, _, version in self.before:
            _count_as(home, version)
            home.ahead = self
        self.marks = self._marks()

    def _marks(self) -> Any:
        """What the step was taken with: it differs if that has been changed since."""
        grad, kept = self.param._grad, self.optimizer.state.get(self.param)
        gradient = home_of(grad)
        writes = 0 if gradient is None else gradient.writes
        state = [(name, _mark(value)) for name, value in kept.items()] if kept else []
        settings = [(n, _mark(v)) for n, v in self.group.items() if n != "params"]
        return grad, _mark(grad), writes, state, settings

    def is_valid(self, optimizer: Any, group: Any) -> bool:
        """Whether a step of an optimizer would do now what this one has done."""
        if optimizer is not self.optimizer or group is not self.group:
            return False
        if SCALER & set(vars(optimizer)):
            return False
        (grad, *before), (now, *marks) = self.marks, self._marks()
        return grad is now and bool(before == marks)

    def count(self) -> None:
        """The step counts from now on."""
        for (home, *_), version in zip(self.before, self.behind):
            _count_as(home, version)
        self.kept[-1].put_back()
        for home, *_ in self.before:
            home.ahead = None

    def take_back(self) -> None:
        """Makes all what it was before the step. May be called again, should an interrupt come."""
        if not self.behind:  # it has not been put aside
            self.kept[0].put_back()
        for home, span, pending, version in self.before:
            home.ref().counter[0] = version
            home.revert(span, pending)
        self.owner.was_seen(self.param)
        for home, *_ in self.before:
            home.ahead = None


class Beforehand(DuringBackward):
    """Takes the steps of buckets within backward, as if `optimizer.step()` took them.

    That would bring each weight and its gradient once more. A step that was taken counts when
    `optimizer.step()` comes to its parameter, if gradient, settings and states are what they were;
    else it is taken back, as it is when anyone looks at the parameter or its states before, and
    that parameter is stepped behind backward from then on. Gradients leave, and can be asked for.

    The first step is behind backward, and shows whether the loop changes gradients in between:
    then so are all. The host must have room for weights and states once more.
    """

    def __init__(self, steps: StatesElsewhere) -> None:
        super().__init__(steps)
        steps.ahead = self
        self.taken: dict[int, Taken] = {}  # by the id of the parameter
        self.seen_ahead: set[int] = set()  # the ids of those at which someone has looked

    def can_follow(self, optimizer: Any) -> bool:
        return steps_by_buckets(optimizer) and optimizer._by_element

    def takes(self, param: Tensor) -> bool:
        if id(param) in self.seen_ahead or self.steps.gradients.tells or self.steps.steps_open:
            return False
        return super().takes(param)

    def was_seen(self, param: Tensor) -> None:
        """The step of a parameter is taken back."""
        self.seen_ahead.add(id(param))
        self.taken.pop(id(param), None)

    # ------------------------------------------------------------------ within backward

    def _is_whole(self, param: Tensor) -> None:
        optimizer, _ = self._group_of(param)
        if optimizer is None or param._grad is None:  # it is trained no more
            return
        if id(optimizer) not in self.on:
            self._learn(param)
            return
        if id(param) in self.taken:  # another pass has added to it
            self.taken[id(param)].take_back()
        if not self.takes(param):  # the gradient has left
            return
        self.steps.moments.note(param)
        if id(param) in self.steps.moments.known and self._is_unseen(optimizer, param):
            self._wait(param)
        else:
            self._leaves([param])

    def _is_unseen(self, optimizer: Any, param: Tensor) -> bool:
        """Whether no one but a parameter and its states has their elements, and the host has what
        they are now.
        """
        state = optimizer.state.get(param)
        if not isinstance(state, dict) or not state:
            return False
        homes = [home_of(value) for value in state.values()
                 if isinstance(value, Tensor) and value.ndim]  # fmt: skip
        for home in [home_of(param), *homes]:
            if home is None or not home.is_away and not home.is_free:
                return False
            if not home.send() or not home.is_up_to_date or not home.engine.is_on_host(home.span):
                return False
        return True

    def _stay(self) -> None:
        """Has gradients leave that need no step, as far as they fill more than half of their
        window: the last ones are dropped before they have to.
        """
        window = self.steps.gradients
        more = sum(window.here.values()) - int((window.limit or 0) / STAYS)
        for home in list(window.here):
            if more <= 0:
                break
            more -= home.nbytes if window.leave(home) else 0

    def take_bucket(self) -> None:
        """Takes the steps of the parameters that wait, and puts them aside."""
        bucket, self.bucket = self._are_stepped(self.bucket), []
        if not bucket:
            return
        optimizer, group = self.groups[id(bucket[0])]
        if not self._device_has_room(optimizer, bucket):
            self._leaves(bucket)
            return
        taken: list[Taken] = []
        try:
            with no_grad():
                taken += [Taken(self, optimizer, group, param) for param in bucket]
                self.steps.open_step(optimizer)
                try:
                    self.steps._on_device(optimizer, group, [bucket], gradients_leave=False)
                finally:
                    self.steps.steps_open.pop(id(optimizer), None)
                for each in taken:
                    each.put_aside()
                    self.taken[id(each.param)] = each
        except BaseException as error:
            for each in taken:
                each.take_back()
            if not isinstance(error, (MemoryError, OSError)):  # which the step itself may not meet
                raise
        self._stay()
        self._bring_next()

    def _through(self) -> set[int]:
        return set(self.taken)

    # ------------------------------------------------------------------ steps

    def count(
        self, optimizer: Any, params: list[Tensor], group: Any, through: set[int]
    ) -> list[Tensor]:
        """Of parameters that are to be stepped now those whose step does not count already."""
        several = [self.taken[id(param)] for param in params if id(param) in self.taken]
        valid = [each for each in several if each.is_valid(optimizer, group)]
        for each in several:
            if each not in valid:
                each.take_back()
        if valid:
            run_to_its_end(partial(self._count, valid, through))
        return [param for param in params if id(param) not in through]

    def _count(self, several: list[Taken], through: set[int]) -> None:
        for each in several:
            each.count()
            through.add(id(each.param))
            del self.taken[id(each.param)]

    def begin_step(self, optimizer: Any, has_closure: bool) -> None:
        """The optimizer's own step begins."""
        self.bucket = [p for p in self.bucket if self._group_of(p)[0] is not optimizer]
        self._regroup()
        if id(optimizer) not in self.on or has_closure:
            self._look(optimizer, has_closure)

    def end_step(self, optimizer: Any) -> None:
        """The optimizer's own step has ended."""
        for each in list(self.taken.values()):
            if each.optimizer is optimizer:  # its gradient was dropped
                each.take_back()
        if self.problem or not self.on and not self._has_room():
            self.on.clear()
        else:
            super().end_step(optimizer)
            here = self.steps.weights.here
            if len(here) == len(self.steps.weights.members):  # none of them leaves by itself
                for home in list(here):
                    home.send()

    def _has_room(self) -> bool:
        """Whether the host has room for another version of all weights and states."""
        windows = [self.steps.weights, self.steps.states]
        homes = [home for window in windows for home in list(window.members)]
        more, limit = sum([home.nbytes for home in homes]), windows[0].options.host_limit
        if limit is None:
            return more <= free_host()
        engines = {home.engine for home in homes}
        return more + sum([engine.out.slab.used_bytes for engine in engines]) <= limit

    def close(self) -> None:
        """Nothing is taken early any more; what does not count yet is taken back."""
        for each in list(self.taken.values()):
            each.take_back()
        super().close()


def _mark(value: Any) -> Any:
    """What tells a value from another one, and a tensor from what it becomes."""
    return (id(value), value.counter[0]) if isinstance(value, Tensor) else value


def _count_as(home: Home, version: int) -> None:
    """The elements of a tensor as they are have this version from now on."""
    is_up_to_date = home.is_up_to_date
    home.ref().counter[0] = version
    if is_up_to_date:
        home.version = version
        home.span.renew()
    else:
        home.is_changed = True
