"""Steps of parameters while backward goes on, each as soon as its gradient is whole."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from ....autograd.mode import no_grad, state
from ....tensor import Tensor
from ..home import Home
from ..pieces import PARTS
from ..placed import HOMES
from ..steps import StatesElsewhere
from ..unfinished import tell

__all__ = ["DuringBackward"]

LAG = 3  # buckets whose gradients are on their way while the host takes another one's step
INSTEAD = 'leave out step="during backward"'
REPLACED = (
    "offload_states: the gradient of a parameter was dropped or replaced between backward and "
    f"optimizer.step(), when its step had been taken within backward: {INSTEAD}"
)
SECOND = (
    "offload_states: a second backward pass reaches a parameter whose step was taken in the one "
    f"before; call optimizer.step() after each, or {INSTEAD}"
)


class DuringBackward:
    """Takes the steps of buckets within backward; `optimizer.step()` takes what is left.

    The first step is as without: it shows whether the loop does something between backward and the
    step for which all gradients are needed. If so, that step is refused, and nothing has changed.
    From then on a gradient is gone when its step has been taken; whoever asks for it is told.

    The host takes the step of a bucket when those of `LAG` more have been sent: so the gradients
    have arrived, and the device has work meanwhile.
    """

    def __init__(self, steps: StatesElsewhere) -> None:
        self.steps = steps
        self.groups: dict[int, tuple[Any, Any]] = {}  # optimizer and group, by id of the parameter
        self.on: set[int] = set()  # the ids of optimizers whose first step has ended
        self.problem = ""  # what the first step has shown
        self.seen: dict[int, Any] = {}  # by id of the parameter: whole gradients, and versions
        self.order: list[Tensor] = []  # in which gradients were whole in the step before
        self.now: list[Tensor] = []  # in this one
        self.bucket: list[Tensor] = []
        self.sent: deque[tuple[list[Tensor], list[Any], Any]] = deque()  # with gradients
        self.spent: dict[int, tuple[Tensor, Home]] = {}  # with a gradient that is gone, by id
        self.followed: dict[int, Any] = {}  # optimizers, by id
        self.hooked: dict[int, weakref.ref[Tensor]] = {}  # parameters, by id
        self.is_new = False  # whether no gradient has been whole since the last step

    def can_follow(self, optimizer: Any) -> bool:
        """Whether steps of an optimizer may be taken within backward."""
        return True

    def follow(self, optimizer: Any) -> list[Any]:
        """Handles of hooks of an optimizer's parameters that have none yet."""
        handles: list[Any] = []
        if not self.can_follow(optimizer):
            return handles
        self.followed[id(optimizer)] = optimizer
        for group in optimizer.param_groups:
            for param in group["params"]:
                ref = self.hooked.get(id(param))
                if ref is not None and ref() is param:
                    continue
                if id(param) in HOMES and param.requires_grad:
                    self.groups[id(param)] = optimizer, group
                    handles.append(param.register_post_accumulate_grad_hook(self._is_whole))
                    self.hooked[id(param)] = weakref.ref(param)
        return handles

    def _regroup(self) -> None:
        """Finds out which group each parameter is in, which may have changed."""
        self.is_new = False
        self.groups = {
            id(param): (optimizer, group)
            for optimizer in self.followed.values()
            for group in optimizer.param_groups
            for param in group["params"]
            if id(param) in self.hooked
        }

    def _group_of(self, param: Tensor) -> tuple[Any, Any]:
        """The optimizer and the group of a parameter; None and None if it has left them."""
        if self.is_new:
            self._regroup()
        return self.groups.get(id(param), (None, None))

    def _are_stepped(self, params: list[Tensor]) -> list[Tensor]:
        """Those of parameters, which have waited, that are still trained and placed."""
        return [p for p in params
                if id(p) in HOMES and p._grad is not None and id(p) in self.groups]  # fmt: skip

    def takes(self, param: Tensor) -> bool:
        """Whether the gradient of a parameter is used within backward, and need not leave."""
        optimizer, _ = self._group_of(param)
        return id(optimizer) in self.on and id(param) in HOMES and not state.grad_mode

    def _device_has_room(self, optimizer: Any, bucket: list[Tensor]) -> bool:
        """Whether the device has room for the step of a bucket while backward goes on: for what has
        to come for it, and what it computes in.
        """
        steps = self.steps
        if steps.states.watcher is None:
            return True
        homes = [HOMES.get(id(x)) for param in bucket for x in (param, param._grad)]
        comes = sum([home.nbytes for home in homes if home is not None and not home.is_here])
        if steps.passes_in_pieces(optimizer, bucket):
            comes += PARTS * steps.most[2]
        comes += sum([home.nbytes for home in steps.homes_ahead(optimizer, bucket)])
        return bool(steps.states.watcher.may_step(comes))

    def _leaves(self, params: Iterable[Tensor]) -> None:
        """Has gradients leave of which no step was taken."""
        for param in params:
            if param._grad is not None and id(param) in HOMES:
                self.steps.gradient_leaves(param._grad, HOMES[id(param)].engine)

    # ------------------------------------------------------------------ hooks

    def _is_whole(self, param: Tensor) -> None:
        optimizer, _ = self._group_of(param)
        if optimizer is None or param._grad is None:  # it is trained no more
            return
        if id(optimizer) not in self.on:
            if id(param) in self.seen:
                self.problem = "gradients are added up over several backward passes"
            self._learn(param)
            return
        if not self.takes(param):  # a graph is made of the gradients, or it is placed no more
            return
        step = self.steps.steps_open.get(id(optimizer))
        if step is not None and id(param) in step.through:
            self._refuse_second()
        if any(p is param for params, _, _ in self.sent for p in params):
            self._forget_sent()
        if self.steps.on_host:
            self.steps.moments.note(param)
        self._wait(param)

    def _learn(self, param: Tensor) -> None:
        """A gradient is whole in the first step."""
        grad: Any = param._grad
        self.seen[id(param)] = weakref.ref(grad), grad.counter[0]
        self.now.append(param)

    def _wait(self, param: Tensor) -> None:
        """A parameter may be stepped: its bucket waits until it is full."""
        self.now.append(param)
        if self.bucket and not self._fits(param):
            self.take_bucket()
        self.bucket.append(param)
        if self._is_seen(param) and self._is_full():
            self.take_bucket()

    def _is_seen(self, param: Tensor) -> bool:
        """Whether no other hook has yet to see the gradient of a parameter."""
        rare: Any = param._rare
        last = next(reversed(rare.post_hooks.values()))
        return last == self._is_whole and (rare.leaf is None or not rare.leaf.post_hooks)

    def _is_full(self) -> bool:
        """Whether the bucket need not wait for more."""
        return 2 * sum([param.nbytes for param in self.bucket]) >= self.steps.most[0]

    def _fits(self, param: Tensor) -> bool:
        optimizer, group = self._group_of(param)
        if self._group_of(self.bucket[0])[1] is not group:
            return False
        buckets = self.steps._buckets(optimizer, [*self.bucket, param])
        return len(next(buckets)) > len(self.bucket)

    def take_bucket(self) -> None:
        """Takes the steps of the parameters that wait."""
        bucket, self.bucket = self._are_stepped(self.bucket), []
        if not bucket:
            return
        optimizer, group = self.groups[id(bucket[0])]
        if not self.steps.on_host and not self._device_has_room(optimizer, bucket):
            self._leaves(bucket)  # the optimizer's own step takes it
            return
        step = self.steps.open_step(optimizer)
        step.is_early = True
        with self._told(optimizer), no_grad():
            if self.steps.on_host:
                self._send(optimizer, bucket)
                if len(self.sent) > LAG:
                    self._step_on_host(*self.sent.popleft())
            else:
                self.steps._on_device(optimizer, group, [bucket])
                self._spend(bucket)
                self._bring_next()

    @contextmanager
    def _told(self, optimizer: Any) -> Iterator[None]:
        """An error within says which parameters are through."""
        try:
            yield
        except BaseException as error:
            self.sent.clear()
            self.spent.clear()  # whoever drops gradients now ends the step that was left
            tell(error, self.steps.open_step(optimizer))
            raise

    def _step_on_host(
        self, params: list[Tensor], _: Any, sent: Any, goes_on: bool = True
    ) -> None:  # fmt: skip
        """The step of parameters of which all has been sent; whether backward goes on."""
        optimizer, group = self.groups[id(params[0])]
        self.steps.step_on_host(optimizer, group, params, sent, goes_on)
        self._spend(params)

    def _take_sent(self, optimizer: Any) -> None:
        """Takes the steps of an optimizer's parameters of which all has been sent, in that order.
        Its own step takes what is left.
        """
        several, self.sent = self.sent, deque()
        others = [None, optimizer]  # of what is trained no more nothing is kept
        self.sent += [each for each in several if self._group_of(each[0][0])[0] not in others]
        with self._told(optimizer), no_grad():
            for params, gradients, _ in several:
                groups = {id(self._group_of(param)[1]) for param in params}
                if self._group_of(params[0])[0] is not optimizer or len(groups) > 1:
                    continue
                if len(self._are_stepped(params)) == len(
                    params
                ):  # what was sent may have changed since
                    self._step_on_host(params, gradients, self.steps.sent(optimizer, params), False)

    def _send(self, optimizer: Any, bucket: list[Tensor]) -> None:
        """Has the gradients of a bucket leave for the host's step."""
        sent = self.steps.sent(optimizer, bucket)
        gradients = [param._grad for param in bucket]
        for gradient in gradients:
            home = HOMES.get(id(gradient))
            if home is not None:
                self.steps.gradients.leave(home)
        self.sent.append((bucket, gradients, sent))

    def _forget_sent(self) -> None:
        """Another backward pass has begun. RuntimeError if it adds to gradients that were sent."""
        if any(p._grad is g for params, grads, _ in self.sent for p, g in zip(params, grads)):
            self._refuse_second()
        self.sent.clear()

    def _refuse_second(self) -> NoReturn:
        """Another backward pass without a step: `optimizer.step()` may end that of the first."""
        self.spent.clear()
        raise RuntimeError(SECOND)

    def _bring_next(self) -> None:
        """Brings in the states of buckets that will be whole next, while backward goes on."""
        window = self.steps.states
        if window.limit is not None:
            through = self._through()
            rest = self._states_of([p for p in self.order if id(p) not in through])
            window.await_room(window.first(rest))

    def _through(self) -> set[int]:
        """The ids of parameters whose step has been taken."""
        steps = self.steps.steps_open.values()
        return set[int]().union(*[step.through for step in steps])

    def _states_of(self, params: list[Tensor]) -> list[Home]:
        homes: list[Home] = []
        for param in params:
            optimizer, _ = self._group_of(param)
            if optimizer is not None:
                homes += self.steps.homes_ahead(optimizer, [param])
        return homes

    def _spend(self, params: list[Tensor]) -> None:
        """Lets go of gradients whose step has been taken."""
        for param in params:
            grad, home = param._grad, HOMES[id(param)]
            if grad is None:
                continue
            gradient = HOMES.get(id(grad)) or self.steps.place(
                grad, self.steps.gradients, home.engine
            )
            if gradient is not None:
                self.spent[id(param)] = param, gradient
                gradient.spend(
                    "offload_states: this gradient is gone: the step of its parameter was taken "
                    "within backward. Clipping, GradScaler and sums over backward passes need all "
                    f"gradients before the step: {INSTEAD}"
                )

    # ------------------------------------------------------------------ steps

    def begin_step(self, optimizer: Any, has_closure: bool) -> None:
        """The optimizer's own step begins. RuntimeError in the first one if it needs gradients that
        will be gone.
        """
        self._regroup()
        if id(optimizer) in self.on and not has_closure:
            self._check_spent(optimizer)
            self.bucket = []  # the step takes them
            self._take_sent(optimizer)
            return
        self._look(optimizer, has_closure)
        if self.problem:
            raise RuntimeError(
                f'offload_states: step="during backward": got a step for which that cannot be: '
                f"{self.problem}; {INSTEAD}. Nothing has been changed by this step"
            )

    def _check_spent(self, optimizer: Any) -> None:
        """RuntimeError if a gradient that is gone is no longer where it was: without steps within
        backward this one would be of another gradient, or of none.
        """
        replaced = [
            key for key, (param, gradient) in self.spent.items()
            if self._group_of(param)[0] is optimizer
            and HOMES.get(id(param._grad)) is not gradient
        ]  # fmt: skip
        for key in replaced:  # the step goes on if it is called again
            del self.spent[key]
        if replaced:
            raise RuntimeError(REPLACED)

    def _look(self, optimizer: Any, has_closure: bool) -> None:
        """Finds out in the first step whether the loop needs all gradients before it."""
        if has_closure:
            self.problem = "it has a closure, which runs backward within it"
        params = [p for group in optimizer.param_groups for p in group["params"]]
        params = [p for p in params if id(p) in self.groups]
        if any(id(p) not in self.seen for p in params if p._grad is not None):
            self.problem = "there was no backward pass before it"
        for param in params:
            gradient = HOMES.get(id(param._grad))
            used = gradient is not None and (gradient.pending or gradient.window.tells)
            if used or not self._is_as_seen(param):
                self.problem = "gradients are clipped, unscaled or changed before it"

    def _is_as_seen(self, param: Tensor) -> bool:
        """Whether the gradient of a parameter is the one that was whole, and unchanged."""
        grad: Any = param._grad
        if id(param) not in self.seen:
            return True
        whole, version = self.seen[id(param)]
        return grad is not None and whole() is grad and bool(grad.counter[0] <= version)

    def end_step(self, optimizer: Any) -> None:
        """The optimizer's own step has ended: what backward asks for first comes meanwhile."""
        self.on.add(id(optimizer))
        self.spent = {
            key: spent for key, spent in self.spent.items()
            if self._group_of(spent[0])[0] not in (None, optimizer)
        }  # fmt: skip
        if self.now:
            self.order, self.now = self.now, []
        ahead = self._states_of(self.order)
        self.steps.states.await_room(self.steps.states.first(ahead))
        self.is_new = True

    def close(self) -> None:
        """Nothing is taken early any more; gradients that are gone are None."""
        self.bucket = []
        self.sent.clear()
        for ref in self.hooked.values():
            param = ref()
            gradient = None if param is None else HOMES.get(id(param._grad))
            if param is not None and gradient is not None and gradient.gone:
                param._grad = None
        self.spent = {}
