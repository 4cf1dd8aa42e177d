"""The step of an optimizer whose states are elsewhere: on the host, or through the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ...autograd.threads import run_to_its_end
from ...backends import backend_of
from ...tensor import Tensor
from ..recomputing.recorder import unrecorded_here
from .home import Home
from .masters import Masters
from .pieces import PARTS, Pieces, can_pass_in_pieces
from .placed import HOMES, tensors_in
from .undo import Before
from .unfinished import OpenStep, tell
from .window import Window
from .within_backward.moments import Moments

__all__ = ["StatesElsewhere", "home_of"]

BUCKETS = 32  # of a step at least, where tensors are so small: one is computed with, others move
LARGEST = 1 << 26  # bytes of a bucket's parameters, where nothing bounds them
SMALL = 1 << 22  # of those that are not placed: a copy of them is made for the time of their step


def home_of(value: Any) -> Home | None:
    """The home of a placed tensor; None of anything else."""
    return HOMES.get(id(value)) if isinstance(value, Tensor) else None


def _update_whole(homes: list[Home], update: Callable[[], None]) -> None:
    """An update in page-locked memory, behind the changes that have waited for it: the whole life
    of a thread. It is no part of what a budget plans, or what may be made again.
    """
    unrecorded_here()
    for home in homes:
        if home.pending:
            home.catch_up_on_host()
    update()


class StatesElsewhere:
    """Updates an optimizer's parameters by buckets, whose states come, and leave again.

    On the host the optimizer's own update finds parameters, gradients and states there; so states
    that it makes are made there. On the device it finds them on the device. Whatever comes in the
    middle of a step, each parameter with its states is as before it, or as behind it: `steps_open`
    has those that are behind, of each optimizer whose step has not ended.
    """

    def __init__(
        self, windows: list[Window], moves: bool, on_host: bool,
        place: Callable[[Tensor, Window, Any], Home | None], nbytes: int,
        masters: Masters | None = None,
    ) -> None:  # fmt: skip
        self.weights, self.gradients, self.states = self.windows = windows
        self.moves, self.on_host, self.place = moves, on_host, place
        self.masters = masters
        self.first: list[Home] = []  # states in the order in which the step has used them
        limits = [window.limit for window in windows]
        self.most = [LARGEST if limit is None else limit // PARTS for limit in limits]
        self.most[0] = min(self.most[0], nbytes // BUCKETS)  # `nbytes` of parameters in all
        self.together = [min(SMALL, nbytes // BUCKETS)] * 3  # of those that are not placed
        self.host_bytes = 0  # that the host has read or written in steps
        self.computed: list[tuple[float, float]] = []  # when, in this one
        self.steps_open: dict[int, OpenStep] = {}  # by the id of the optimizer
        self.moments = Moments(self.weights, self.gradients, self.states, place)
        self.ahead: Any = None  # steps that backward has taken, and that count when this one comes

    def update(self, optimizer: Any, params: list[Tensor], group: dict[str, Any]) -> None:
        """One step of parameters that have gradients; those that are not placed step as usual."""
        step = self.open_step(optimizer)
        params = [param for param in params if id(param) not in step.through]
        if self.ahead is not None:
            params = self.ahead.count(optimizer, params, group, step.through)
        placed = [param for param in params if home_of(param) is not None]
        usual = [param for param in params if home_of(param) is None]
        try:
            if usual and self.states.watcher is not None:
                self.states.watcher.makes_room()
            for bucket in self._buckets(optimizer, usual, self.together):
                self._update(optimizer, bucket, group)
            update = self._on_host if self.on_host else self._beside_backward
            update(optimizer, group, list(self._buckets(optimizer, placed)))
        except BaseException as error:
            tell(error, step)
            raise

    def gradient_leaves(self, grad: Tensor, engine: Any) -> None:
        """Has a gradient that is whole leave."""
        home = home_of(grad) or self.place(grad, self.gradients, engine)
        if home is not None:
            self.gradients.leave(home)
            self.gradients.make_room(home.nbytes)

    def open_step(self, optimizer: Any) -> OpenStep:
        """The step of an optimizer that has begun, perhaps just now."""
        return self.steps_open.setdefault(id(optimizer), OpenStep(optimizer))

    def begin_step(self, optimizer: Any) -> None:
        """A step begins, of which the first bucket is still to come."""
        step = self.steps_open.get(id(optimizer))
        if step is not None and not step.goes_on and not step.is_early:
            del self.steps_open[id(optimizer)]
        self.first = []
        for window in self.windows:
            window.begin_step()

    def end_step(self, optimizer: Any) -> None:
        """A step has ended: what the next one needs first comes while it is far away."""
        try:
            self.settle(optimizer)
            self._put_in_order(optimizer)
            for window in self.windows:
                window.end_step()
                window.turn()
            self.states.await_room(self.states.first(self.first))
            self.moments.turn([p for group in optimizer.param_groups for p in group["params"]])
        except BaseException as error:
            if id(optimizer) in self.steps_open:
                tell(error, self.steps_open[id(optimizer)])
            raise
        self.steps_open.pop(id(optimizer), None)

    def _put_in_order(self, optimizer: Any) -> None:
        """States that a step has made are in the order of parameters, whichever came first."""
        step = self.steps_open.get(id(optimizer))
        trained = [] if step is None else list(optimizer.state)[step.kept :]
        if len(trained) < 2:
            return
        params = [param for group in optimizer.param_groups for param in group["params"]]
        place = {id(param): k for k, param in enumerate(params)}
        for param in sorted(trained, key=lambda each: place.get(id(each), len(place))):
            optimizer.state[param] = optimizer.state.pop(param)

    def _buckets(
        self, optimizer: Any, params: list[Tensor], most: list[int] | None = None
    ) -> Iterator[list[Tensor]]:
        """Parameters, as many at a time as may be on their way with all that their step needs."""
        most = self.most if most is None else most
        bucket: list[Tensor] = []
        total = [0, 0, 0]
        for param in params:
            more = [param.nbytes, param.nbytes, self._bytes_of_states(optimizer, param)]
            sums = [a + b for a, b in zip(total, more)]
            if bucket and any(a > b for a, b in zip(sums, most)):
                yield bucket
                bucket, sums = [], more
            bucket.append(param)
            total = sums
        if bucket:
            yield bucket

    def _bytes_of_states(self, optimizer: Any, param: Tensor) -> int:
        """Bytes of states that a parameter has, or will have."""
        kept = sum([home.nbytes for home in self.homes_of_states(optimizer, [param])])
        return kept or (2 * param.nbytes if self.masters is None else 12 * param.numel())

    def homes_of_states(self, optimizer: Any, params: list[Tensor]) -> list[Home]:
        """The homes of the states of some parameters."""
        homes = []
        for param in params:
            for value in tensors_in(optimizer.state.get(param)):
                home = home_of(value)
                if home is not None:
                    homes.append(home)
        return homes

    def settle(self, optimizer: Any) -> None:
        """Places all states of an optimizer, and has them leave."""
        if self.masters is not None:
            self.masters.widen(optimizer)
        for group in optimizer.param_groups:
            self.adopt(optimizer, group["params"])
        for home in list(self.states.here):
            if not home.is_coming:  # ahead of the next step
                self.states.leave(home)

    def adopt(self, optimizer: Any, params: list[Tensor]) -> None:
        """Places the states that parameters have got."""
        for param in params:
            self.take(param, optimizer.state.get(param))

    def take(self, param: Tensor, kept: Any) -> None:
        """Places the state of a parameter, and has it leave."""
        home = home_of(param)
        if not self.moves or home is None:
            return
        for value in tensors_in(kept):
            if home_of(value) is None and value.ndim:
                self._adopt(value, home)

    def _adopt(self, value: Tensor, home: Home) -> None:
        there = backend_of(value._array)
        if there is home.backend or there.device_type == "cpu":
            new = self.place(value, self.states, home.engine)
            if new is not None and new.is_here:
                self.states.leave(new)
                self.states.make_room(0)

    # ------------------------------------------------------------------ on the device

    def _beside_backward(self, optimizer: Any, group: Any, buckets: list[list[Tensor]]) -> None:
        """Steps of buckets on a stream of their own, each behind the moments of its parameters, if
        no one can tell: the device may be in backward still. Else on the current one.
        """
        params = [param for bucket in buckets for param in bucket]
        engine = HOMES[id(params[0])].engine if params else None
        if engine is None or not self._may_be_beside(optimizer, group, params):
            self._on_device(optimizer, group, buckets)
            return
        compute, beside = engine.backend.current_stream(), engine.stream_of_steps()
        events = {id(param): self.moments.of(param) for param in params}

        def begin(bucket: list[Tensor]) -> None:
            moments = [events[id(param)] for param in bucket]
            for event in moments if None not in moments else [compute.record_event()]:
                beside.wait_event(event)

        try:
            try:
                with engine.backend.use_stream(beside):
                    self._on_device(optimizer, group, buckets[::-1], begin)
            finally:
                compute.wait_event(beside.record_event())
        except BaseException:  # perhaps while that was done
            compute.wait_event(beside.record_event())
            raise
        finally:
            for param in params:
                gradient = home_of(param._grad)
                if gradient is not None:
                    gradient.release()

    def _may_be_beside(self, optimizer: Any, group: Any, params: list[Tensor]) -> bool:
        """Whether a step of parameters uses nothing of the device but them, their gradients and
        their states, which no one has touched since the first gradient was whole.
        """
        if self.weights.limit is not None or self.gradients.limit is not None:
            return False  # what backward lets go of would be waited for
        if not self.moments.are_known or any(home.is_here for home in self.states.here):
            return False
        kept: list[Any] = [*group.values(), *vars(optimizer).values()]
        for param in params:
            values = list((optimizer.state.get(param) or {}).values())
            if not any(home_of(value) is not None for value in values):
                return False
            kept += [value for value in values if home_of(value) is None]
        return all(each.is_cpu for each in kept if isinstance(each, Tensor))

    def _on_device(
        self, optimizer: Any, group: Any, buckets: list[list[Tensor]],
        begin: Callable[[list[Tensor]], None] | None = None, gradients_leave: bool = True,
    ) -> None:  # fmt: skip
        """Steps of buckets, of each of which `begin` is told before; what the one that follows
        needs comes meanwhile.
        """
        for k, bucket in enumerate(buckets):
            if begin is not None:
                begin(bucket)
            states = self.homes_ahead(optimizer, bucket)
            self.first += states
            for several in buckets[k : k + 2]:
                self._expect(optimizer, several)
            if self.passes_in_pieces(optimizer, bucket) and can_pass_in_pieces(
                optimizer, bucket[0], group
            ):
                self._update_in_pieces(optimizer, bucket[0], group)
            else:
                self._update(optimizer, bucket, group)
            self.adopt(optimizer, bucket)
            for home in states:
                self.states.leave(home)
            if self.gradients.limit is not None and gradients_leave:
                self._have_been_used([home_of(param._grad) for param in bucket])

    def _have_been_used(self, gradients: list[Home | None]) -> None:
        """Has gradients leave, of which others have the bytes, for those of the next bucket."""
        for home in gradients:
            if home is not None and home.is_here:
                self.gradients.leave(home)

    def passes_in_pieces(self, optimizer: Any, params: list[Tensor]) -> bool:
        """Whether a bucket has one parameter, whose states would fill more than half of their
        window: what comes next would have to wait until they have left.
        """
        if len(params) > 1 or self.states.limit is None or not optimizer._by_element:
            return False
        if home_of(params[0]) is None or params[0].is_cpu:
            return False
        return 2 * self._bytes_of_states(optimizer, params[0]) > self.states.limit

    def homes_ahead(self, optimizer: Any, params: list[Tensor]) -> list[Home]:
        """The homes of the states of a bucket that come whole, ahead of its step."""
        if self.passes_in_pieces(optimizer, params):
            return []
        return self.homes_of_states(optimizer, params)

    def _update_in_pieces(self, optimizer: Any, param: Tensor, group: dict[str, Any]) -> None:
        """The step of a parameter whose states pass the device in pieces."""
        home, nbytes = HOMES[id(param)], self._bytes_of_states(optimizer, param)
        pieces = Pieces(
            optimizer, param, self.states, nbytes, PARTS * self.most[2],
            lambda params: self._take(optimizer, params, group),
        )  # fmt: skip
        home.send()  # to where it is put back from, which would take as much again here
        try:
            self._update(optimizer, [param], group, pieces.run)
        finally:
            if home.window.limit is None:
                home.forget()

    def _update(
        self, optimizer: Any, params: list[Tensor], group: dict[str, Any],
        take: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        """The step of a bucket where it is: wholly, or not at all."""
        through, ids = self.steps_open[id(optimizer)].through, {id(param) for param in params}
        before = Before(optimizer, params)
        try:
            try:
                for window in self.windows:
                    window.begin_step(True)
                if take is None:
                    self._take(optimizer, params, group)
                else:
                    take()
                through.update(ids)
                self._end_bucket()
            except BaseException:
                self._take_back(before, ids <= through)
                raise
        except BaseException:  # perhaps while that was done
            self._take_back(before, ids <= through)
            raise

    def _take(self, optimizer: Any, params: list[Tensor], group: dict[str, Any]) -> None:
        if self.masters is None:
            optimizer._update(params, group)
        else:
            self.masters.update(optimizer, params, group)

    def _take_back(self, before: Before, is_through: bool) -> None:
        self._end_bucket()
        if not is_through:
            before.put_back()

    def _end_bucket(self) -> None:
        for window in self.windows:
            window.end_step()

    def _expect(self, optimizer: Any, params: list[Tensor]) -> None:
        """Has what the steps of parameters need come ahead of it."""
        weights = [home_of(param) for param in params]
        gradients = [home_of(param._grad) for param in params]
        self.weights.expect([home for home in weights if home is not None])
        self.gradients.expect([home for home in gradients if home is not None])
        self.states.expect(self.homes_ahead(optimizer, params))

    # ------------------------------------------------------------------ on the host

    def _on_host(self, optimizer: Any, group: Any, buckets: list[list[Tensor]]) -> None:
        """Steps of buckets; what the one that follows needs from the device leaves meanwhile. Those
        whose gradients were whole first come first: the device may be in backward still.
        """
        buckets = buckets[::-1]
        ahead = self.sent(optimizer, buckets[0]) if buckets else None
        for k, bucket in enumerate(buckets):
            now, ahead = ahead, None
            if k + 1 < len(buckets):
                ahead = self.sent(optimizer, buckets[k + 1])
            assert now is not None
            try:
                self.step_on_host(optimizer, group, bucket, now)
            finally:
                for home in now[1]:
                    home.release()

    def step_on_host(
        self, optimizer: Any, group: Any, bucket: list[Tensor], sent: Any, goes_on: bool = False
    ) -> None:  # fmt: skip
        """The step of a bucket of which all has been sent; what it changes on the host goes to the
        device at once, if that is where it is: as soon as that has read it, unless backward goes on
        and would have to wait.
        """
        homes, _, stay = sent
        there = [param for param in bucket if id(param) not in stay]
        moments = {HOMES[id(param)]: None if goes_on else self.moments.of(param) for param in there}
        try:
            if there:
                update = partial(self._update_on_host, optimizer, there, group)
                self._compute_on_host(homes, update, moments)
            if stay:
                rest = [param for param in bucket if id(param) in stay]
                self._update(optimizer, rest, group)
        finally:
            self.adopt(optimizer, bucket)
        weights = [home for home in homes if home.window is self.weights]
        self.weights.expect(self.weights.used_first(weights))

    def _compute_on_host(
        self, homes: list[Home], update: Callable[[], None], moments: dict[Home, Any]
    ) -> None:
        """Updates tensors in page-locked memory; then they are where they were, come what may.
        What the device has of weights is changed from their `moments` on.
        """
        try:
            try:
                for home in homes:
                    home.begin_on_host()
                for window in self.windows:
                    window.host_computes = True
                began = homes[0].backend.host_seconds()
                run_to_its_end(
                    partial(_update_whole, homes, update)
                )  # in a thread that no signal reaches
            except BaseException:
                self._end(homes, True, moments)
                raise
            self._end(homes, False, moments)
            self.computed.append((began, homes[0].backend.host_seconds()))
        except BaseException:  # perhaps while that was done
            self._end(homes, True, moments)
            raise

    def _update_on_host(
        self, optimizer: Any, params: list[Tensor], group: dict[str, Any]
    ) -> None:  # fmt: skip
        """The step of a bucket in page-locked memory. Nothing interrupts it; an error leaves each
        parameter as it was, or as it is behind the step.
        """
        through = self.steps_open[id(optimizer)].through
        if optimizer._notes and self.masters is None:
            optimizer._update_noting(params, group, through)
            return
        before = Before(optimizer, params, True)
        try:
            self._take(optimizer, params, group)
        except BaseException:
            before.put_back()
            raise
        through.update([id(param) for param in params])

    def _end(self, homes: list[Home], failed: bool, moments: dict[Home, Any]) -> None:
        for window in self.windows:
            window.host_computes = False
        for home in homes:
            if home.is_on_host:
                self._count(home)
                home.end_on_host(failed or home.window is self.states, moments.get(home))

    def _count(self, home: Home) -> None:
        """Counts what the host has read, and written if it is no gradient; a model of a device is
        told how long that takes.
        """
        nbytes = home.nbytes * (1 if home.window is self.gradients else 2)
        self.host_bytes += nbytes
        if hasattr(home.backend, "host_computed"):
            home.backend.host_computed(nbytes)

    def sent(self, optimizer: Any, params: list[Tensor]) -> tuple[list[Home], list[Home], set[int]]:
        """Sends what the steps of parameters need on the host. The homes of that; those of
        gradients, among them, that live on the device, and have one for the time of the step; and
        the ids of parameters for which there is no room, or a file, whose step is on the device.
        """
        every: list[Home] = []
        passing: list[Home] = []
        stay: set[int] = set()
        for param in params:
            home, gradient = home_of(param), home_of(param._grad)
            assert home is not None
            if gradient is None and param._grad is not None:
                gradient = self.place(param._grad, self.gradients, home.engine)
            if gradient is not None and gradient.window.limit is None:
                passing.append(gradient)
            homes = [home, gradient, *self.homes_of_states(optimizer, [param])]
            if all(each is not None and each.send_to_host() for each in homes):
                every += [each for each in homes if each is not None]
            else:
                stay.add(id(param))
        return every, passing, stay
