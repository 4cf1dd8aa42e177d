"""Where a budget puts weights, gradients and optimizer states: together with what a step saves."""

from __future__ import annotations

import copy
import weakref
from collections import defaultdict
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ...autograd.mode import no_grad
from ...functions.creation.factories import ones
from ...tensor import Tensor
from ..sizes import free_host, size
from ..states.context import BEHIND, DURING, offload_states
from ..states.masters import steps_by_buckets
from ..states.reporting.bound import least_seconds
from .known_steps import BudgetError, first_plan, moved
from .rates import rates_of

if TYPE_CHECKING:
    from .context import budget

__all__ = ["StatesOfBudget"]

KINDS = ("weights", "gradients", "states")
LEAST = 1 << 16  # bytes of a parameter that is placed, under any limit of 64 MiB or more
PIECES = 3  # of a window, in which states pass that are more than half of it
SHARE = 16  # of the limit that a window may have, one part
PARTS = 4  # of the largest tensors, in a window
SAMPLE = 64  # elements of each dim of a parameter by which states are foreseen
TIMED = 1 << 22  # elements of the parameter by whose step the host is timed


class Candidate(NamedTuple):
    """Places for the three kinds, when the optimizer steps, and what that costs."""

    places: dict[str, str]
    step: str
    resident: int  # bytes of the three kinds on the device
    seconds: float  # of a step, with the optimizer's
    peak: int  # of forward and backward

    def __str__(self) -> str:
        places = ", ".join([f"{kind} {self.places[kind]}" for kind in KINDS])
        return places if self.step == BEHIND else f"{places}, {self.step}"


class Known(NamedTuple):
    """What a budget has chosen for a model, and for which optimizers and parameters."""

    optimizers: list[weakref.ref[Any]]
    params: list[tuple[int, int, bool]]
    chosen: Candidate
    tried: list[Candidate]
    window: int


# by model, and by the arguments of the budget: the next one need not measure
_known: weakref.WeakKeyDictionary[Any, dict[Any, Known]] = weakref.WeakKeyDictionary()


class StatesOfBudget:
    """The training states of one model within a budget.

    The first step runs with all of them elsewhere, as with what is saved: that takes least, and is
    measured. Then each choice of places is forecast with the best plan for what is saved beside it,
    and the fastest that fits is taken.
    """

    def __init__(
        self, owner: budget, model: Any, optimizer: Any, disk: Any, masters: str | None, step: str
    ) -> None:
        self.owner, self.model, self.optimizer, self.disk = owner, model, optimizer, disk
        self.least = min(LEAST, owner.limit >> 10)
        several = optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]
        self.optimizers = [each for each in several if each is not None]
        if not self.optimizers:
            raise ValueError(
                "budget: got a model and no optimizer, whose step says when a step has ended; want "
                "optimizer=..., or leave out the model, of which all stays on the device then"
            )
        self.masters, self.step = masters, step
        on_host = any(p.device.type == "cpu" for p in model.parameters())
        self.device = owner.device if on_host and owner.device.type != "cpu" else None
        offload_states(model, self.optimizers, masters=masters, step=step)  # checks them
        self.context: Any = None
        self.chosen: Candidate | None = None
        self.tried: list[Candidate] = []
        self._handles: list[Any] = []
        self._host: float | None = None  # seconds

    # ------------------------------------------------------------------ what there is

    def _count(self) -> None:
        """Bytes of each kind that may be elsewhere, and of what stays."""
        params = list(dict.fromkeys(self.model.parameters()))
        trained = {id(p): (o, g) for o in self.optimizers for g in o.param_groups
                   for p in g["params"]}  # fmt: skip
        moving = [p for p in params if p.nbytes >= self.least]
        states = {id(p): _bytes_of_states(*trained[id(p)], p, self.masters is not None)
                  for p in params if id(p) in trained}  # fmt: skip
        self.params = [(id(p), p.nbytes, p.requires_grad) for p in params]
        self.bytes = {
            "weights": sum([p.nbytes for p in moving]),
            "gradients": sum([p.nbytes for p in moving if p.requires_grad]),
            "states": sum([states.get(id(p), 0) for p in moving]),
        }
        small = [p for p in params if p.nbytes < self.least]
        self.fixed = sum([p.nbytes * (1 + p.requires_grad) + states.get(id(p), 0) for p in small])
        self.fixed += sum([b.nbytes for b in self.model.buffers()])
        self.largest = {
            "weights": max([p.nbytes for p in moving], default=0),
            "gradients": max([p.nbytes for p in moving], default=0),
            "states": max([states.get(id(p), 0) for p in moving], default=0),
        }
        self.largest_states = self.largest["states"]
        most = self._largest_at_once()
        self._set_window(max(PARTS * self.largest["weights"], most, self.owner.limit // SHARE))
        if self.fixed + 3 * self.window > self.owner.limit // 2:
            self._set_window(most)

    def _largest_at_once(self) -> int:
        """Bytes of the largest tensors that pass the device whole, of one kind."""
        passes = self.owner.device.type != "cpu" and all(
            each._by_element for each in self.optimizers
        )
        return self.largest["weights"] if passes else max(self.largest.values())

    def _beside(self) -> int:
        """Bytes that the step of a piece takes beside all that."""
        in_pieces = self._largest_at_once() < self.largest_states
        return self.largest["weights"] // PIECES if in_pieces else 0

    def _set_window(self, nbytes: int) -> None:
        """Bytes of each kind; states of which half a window has no room pass it in pieces."""
        self.window = nbytes
        if self._largest_at_once() < self.largest_states:
            at_once = max(nbytes // 2, self.largest["weights"])
            self.largest["states"] = min(self.largest_states, at_once)

    def _resident(self, places: dict[str, str]) -> int:
        """Bytes of the three kinds that are on the device at a time."""
        return self.fixed + sum([
            self.bytes[kind] if places[kind] == "device" else self._in_window(kind)
            for kind in KINDS
        ])  # fmt: skip

    def _in_window(self, kind: str) -> int:
        """Bytes of a kind that is elsewhere, on the device at most: one more than fits may be used
        while another leaves.
        """
        return min(self.bytes[kind], self.window + self.largest[kind])

    def _more(self, places: dict[str, str]) -> int:
        """Bytes on the device at most beyond those of the first step, which had no states yet."""
        more = self._in_window("states")
        for kind in KINDS:
            if places[kind] == "device":
                more += self.bytes[kind] - (self._in_window(kind) if kind == "states" else 0)
        return more

    def _frugal(self) -> dict[str, str]:
        """Places with the least of the device. BudgetError where the host has too little."""
        host = self.owner.host_limit
        room, whose = (free_host(), "free") if host is None else (host, "allowed")
        places = {"weights": "host", "gradients": "host", "states": "stream"}
        for kind in ("states", "weights"):
            there = self._of_host(places)
            if there <= room:
                break
            if self.disk is not None:
                places[kind] = "disk"
        there = self._of_host(places)
        if there > room:
            kept = ", ".join([f"{size(self.bytes[k])} of {k}" for k in KINDS
                              if places[k] in ("host", "stream")])  # fmt: skip
            advice = "" if self.disk is not None else ", or say disk=True"
            raise BudgetError(
                f"budget: the host needs at least {size(there)} ({kept}), and {size(room)} are "
                f"{whose}; raise host_limit where there is more{advice}"
            )
        return places

    def _of_host(self, places: dict[str, str]) -> int:
        return sum([self.bytes[k] for k in KINDS if places[k] in ("host", "stream")])

    def _check_device(self) -> None:
        """BudgetError if the limit is too small whatever the step computes."""
        limit, largest = self.owner.limit, self.largest
        least = self.fixed + sum(largest.values()) + self._beside()
        if self.fixed + 3 * self.window > limit:
            self._set_window(self._largest_at_once())
        if least > limit:
            raise BudgetError(
                f"budget: {size(limit)} are too few: {size(least)} are needed before a step has "
                f"computed anything, of which {size(self.fixed)} are buffers and parameters too "
                f"small to move, with gradients and states, and {size(least - self.fixed)} the "
                "largest parameter with its gradient and states; raise the limit, or divide that "
                "parameter"
            )

    # ------------------------------------------------------------------ begin and end

    def begin(self) -> None:
        """Sends away what can be, as long as nothing is known of the step."""
        if self.chosen is None:
            self._count()
            places = self._frugal()
            self._check_device()
            self.chosen = Candidate(places, self.step, self._resident(places), 0.0, 0)
            self._recall()
        if self.masters is not None or set(self.chosen.places.values()) != {"device"}:
            self._enter(self.chosen.places)

    def _key(self) -> Any:
        owner = self.owner
        return (owner.limit, owner.placements, owner.lossless, owner.host_limit, str(self.disk),
                self.masters, self.step, str(owner.device))  # fmt: skip

    def _recall(self) -> None:
        """Takes what a budget of these arguments has chosen for this model."""
        choice = _known.get(self.model, {}).get(self._key())
        if choice is None or choice.params != self.params:
            return
        if [ref() for ref in choice.optimizers] == self.optimizers:
            self.chosen, self.tried, self.window = choice.chosen, list(choice.tried), choice.window

    def _remember(self) -> None:
        assert self.chosen is not None
        choice = Known(
            [weakref.ref(each) for each in self.optimizers], self.params, self.chosen,
            list(self.tried), self.window,
        )  # fmt: skip
        _known.setdefault(self.model, {})[self._key()] = choice

    def _enter(self, places: dict[str, str]) -> None:
        assert self.chosen is not None
        self.context = offload_states(
            self.model, self.optimizers, window=self.window, min_bytes=self.least, **places,
            step=self.chosen.step,
            host_limit=self.owner.host_limit, bring_back=False, masters=self.masters,
            device=self.device,
            directory=None if self.disk in (None, True) else self.disk,
        )  # fmt: skip
        self.context.__enter__()
        if not self.tried:
            self._handles = [
                each.register_step_post_hook(self._after_step) for each in self.optimizers
            ]

    def end(self) -> None:
        """Leaves all where it is."""
        while self._handles:
            self._handles.pop().remove()
        context, self.context = self.context, None
        if context is not None:
            context.__exit__(None, None, None)

    def _after_step(self, *args: Any) -> None:
        """The first step has ended: what it has taught says where all goes."""
        if self.tried or self.context is None:
            return
        self.owner._end()
        seen = self.owner.last
        if seen is None:
            return
        self._choose(seen.now.step)
        assert self.chosen is not None and self.context is not None
        self._remember()
        elsewhere = set(self.chosen.places.values()) != {"device"}
        self.context.bring_back = not elsewhere
        self.end()
        if elsewhere or self.masters is not None:
            self._enter(self.chosen.places)

    # ------------------------------------------------------------------ the choice

    def _choose(self, step: Any) -> None:
        """Takes the fastest places with which a plan for what is saved fits."""
        before = self.chosen
        assert before is not None
        frugal, owner = before.places, self.owner
        rates = rates_of(owner._backend, owner._index, owner.limit // 32, owner.placements)
        plans: dict[int, tuple[Any, Any]] = {}  # by the bytes that are there beside the step's
        for places, when in self._choices(frugal):
            resident, shift = self._resident(places), self._more(places)
            if resident + self._bucket() > owner.limit:
                continue
            if shift not in plans:
                moved_step = moved(step, shift)
                _, plan = first_plan(moved_step, owner.limit, owner.placements)
                plans[shift] = plan, sum([e.seconds for e in step.events[: step.forward]])
            plan, forward = plans[shift]
            if plan.forecast.peak <= owner.limit or places == frugal:
                seconds = self._seconds(places, when, plan.forecast.seconds, forward, rates)
                self.tried.append(Candidate(places, when, resident, seconds, plan.forecast.peak))
        if not self.tried:
            self.tried.append(before._replace(step=BEHIND))
        self.chosen = min(self.tried, key=lambda each: each.seconds)

    def _choices(self, frugal: dict[str, str]) -> list[tuple[dict[str, str], str]]:
        """Places for the three kinds, with when the optimizer steps. Of two that cost the same the
        first is taken, whose arithmetic is the device's.
        """
        choices: list[tuple[dict[str, str], str]] = [(dict.fromkeys(KINDS, "device"), BEHIND)]
        parts = all(map(steps_by_buckets, self.optimizers))
        for kinds in (["states"], ["states", "gradients"], list(KINDS)):
            places = {k: frugal[k] if k in kinds else "device" for k in KINDS}
            several = [places]
            if parts and places["states"] == "stream":  # the host has room for them
                several.append({**places, "states": "host"})
            for each in several:
                choices.append((each, BEHIND))
                # its first step needs all gradients, for which the device may have no room
                if parts and self.step == DURING and each["gradients"] != "device":
                    choices.append((each, DURING))
        return choices

    def _bucket(self) -> int:
        """Bytes that the step of a bucket takes beside that: a copy of what it changes."""
        return self.largest["weights"]

    def _seconds(
        self, places: dict[str, str], when: str, computing: float, forward: float, rates: Any
    ) -> float:  # fmt: skip
        """Seconds of a step: of what takes longest of all that goes on at once, and, where the step
        waits for all of backward, of that behind it. docs/larger-than-the-gpu.md has the table.
        """
        weights, gradients, states = (
            self.bytes[kind] if places[kind] != "device" else 0 for kind in KINDS
        )
        back, out = max(rates.back, 1.0), max(rates.out, 1.0)
        into, leaves = max(0, 2 * weights - self.window) / back, gradients / out
        if places["states"] == "host":
            host = self._host_seconds()
            changed, sent = self.bytes["weights"] / back, self.bytes["gradients"] / out
            if when == DURING or self._goes_on:
                return least_seconds(computing, into or changed, sent, [(forward, host)])
            return max(computing, into, leaves) + max(host, 0 if gradients else max(changed, sent))
        slow = places["states"] == "disk" and rates.disk_back < 1e29
        come = states / (rates.disk_back if slow else back)
        go = states / (rates.disk_out if slow else out)
        if when == DURING:
            return least_seconds(computing, into + come, go + weights / out)
        if self._goes_on and places["states"] == "stream":
            if weights and gradients and self._has_room_for_both():
                return least_seconds(computing, into + come, go + weights / out + leaves)
            if not weights and not gradients:
                return least_seconds(computing, come, go)
        once_more = sum([max(0, each - self.window) for each in (weights, gradients)]) / back
        return max(computing, into, leaves) + max(come + once_more, go + weights / out)

    @property
    def _goes_on(self) -> bool:
        """Whether steps may begin within backward, as far as the first one has shown."""
        return self.context is None or not self.context.waits_for_backward

    def _has_room_for_both(self) -> bool:
        """Whether the host has room for weights and states before a step and behind it."""
        host = self.owner.host_limit
        both = self.bytes["gradients"] + 2 * (self.bytes["weights"] + self.bytes["states"])
        return both <= (free_host() if host is None else host)

    def _host_seconds(self) -> float:
        """Of a step of all parameters on the host: measured with one of each optimizer."""
        if self._host is None:
            model = self.owner._backend.model
            nbytes = 2 * self.bytes["weights"] + self.bytes["gradients"] + 2 * self.bytes["states"]
            rates = [_host_rate(each) for each in self.optimizers] if model is None else []
            self._host = nbytes / min(rates or [model.host / model.scale])
        return self._host

    def told(self) -> dict[str, Any]:
        """For the report: the places, and bytes by kind and place."""
        assert self.chosen is not None
        report = {} if self.context is None else self.context.report()
        return {
            "places": dict(self.chosen.places), "step": self.chosen.step,
            "bytes": dict(self.bytes), "window": self.window, "moved": report,
            "candidates": [(str(c), c.seconds, c.peak) for c in self.tried],
        }  # fmt: skip


def _bytes_of_states(
    optimizer: Any, group: dict[str, Any], param: Tensor, has_masters: bool
) -> int:
    """Bytes that an optimizer keeps of a parameter, or will keep after its first step, and those
    of a master.
    """
    state = optimizer.state.get(param)
    has_masters = has_masters and param.itemsize == 2
    if not state or has_masters and "master" not in state:
        sample = param.detach().new_zeros([min(n, SAMPLE) for n in param.shape], device="cpu")
        sample = sample.float() if has_masters else sample
        sample.requires_grad_()
        sample.grad = sample.detach().clone()
        try:
            state = _rehearsed(optimizer, group, sample)[0]
        except (RuntimeError, NotImplementedError, AssertionError):  # one that has its own step
            return 2 * param.nbytes
        nbytes = sum([_bytes(each) for each in state.values()])
        return (nbytes + has_masters * sample.nbytes) * param.numel() // sample.numel()
    return sum([_bytes(each) for each in state.values()])


def _rehearsed(optimizer: Any, group: Any, sample: Tensor, times: int = 1) -> tuple[Any, float]:
    """The state that an optimizer makes of a parameter that is not its own, which has a gradient,
    and the seconds of the last step.
    """
    rehearsal, seconds = copy.copy(optimizer), 0.0
    vars(rehearsal).update(state=defaultdict(dict), param_groups=[group], _elsewhere=None)
    with no_grad():
        for _ in range(times):
            began = perf_counter()
            rehearsal._update([sample], {**group, "fused": None, "capturable": False})
            seconds = perf_counter() - began
    return rehearsal.state.get(sample) or {}, seconds


def _host_rate(optimizer: Any) -> float:
    """Bytes that the host reads and writes in a second, in steps of an optimizer."""
    sample = ones(TIMED, device="cpu").requires_grad_()
    sample.grad = sample.detach().clone()
    state, seconds = _rehearsed(optimizer, optimizer.param_groups[0], sample, 3)
    nbytes = 3 * sample.nbytes + 2 * sum([_bytes(each) for each in state.values()])
    return nbytes / max(seconds, 1e-9)


def _bytes(value: Any) -> int:
    return value.nbytes if isinstance(value, Tensor) and value.numel() > 1 else 0
