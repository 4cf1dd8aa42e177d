"""What of a model may be elsewhere, and the places that take least of the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...sizes import enough, free_host, size
from ...states.context import BEHIND, DURING
from ...states.masters import steps_by_buckets
from ...states.placed import tensors_in
from ...states.steps import home_of
from ..known_steps import BudgetError, named
from ..measuring import BLOCK
from ..rates import UNUSED
from .choosing import KINDS, PARTS, SHARE, STREAMED, Candidate, ModelPart, ModelParts
from .rehearsing import Rehearsals, host_rate, in_blocks

if TYPE_CHECKING:
    from ..context import budget

__all__ = ["Inventory", "check_elements"]

ALONE = 4  # of the largest tensor, in a window in which each comes alone
LEAST = 1 << 16  # bytes of a parameter that is placed, of any model of 32 MiB or more
ASIDE = 2  # times that a step within backward notes what stays on the device of a state: as it was
# before, and is behind it, a block each
PART = 512  # of the model's bytes: what is smaller than one of so many parts stays, at any limit


def check_elements(model: Any) -> None:
    """ValueError for parameters on the meta device."""
    if any(p.is_meta for p in model.parameters()):
        raise ValueError(
            "budget: got a model with parameters on the meta device, which have no elements; "
            "want memory.materialise(...), or model.to_empty(device='cpu') and values for them"
        )


class Inventory:
    """The parameters, gradients and states of a model, by their bytes."""

    layout: ModelParts

    def __init__(
        self, owner: budget, model: Any, optimizers: list[Any], disk: Any, has_masters: bool,
        step: str,
    ) -> None:  # fmt: skip
        self.owner, self.model, self.optimizers = owner, model, optimizers
        self.disk, self.has_masters, self.step = disk, has_masters, step
        self.least = 1  # bytes of a parameter that is placed
        self._host: float | None = None  # bytes a second
        self.params: list[tuple[int, int, bool]] = []
        self.aside = 0  # of that, what steps within backward put aside
        self.later = 0  # bytes of what stays that the first step begins without
        self.has_states = False  # whether the first step begins with states

    def count(self) -> None:
        """Bytes of each kind that may be elsewhere, and of what stays."""
        params = list(dict.fromkeys(self.model.parameters()))
        self.least = max(1, min(LEAST, sum([p.nbytes for p in params]) // PART))
        trained = {id(p): (o, g) for o in self.optimizers for g in o.param_groups
                   for p in g["params"]}  # fmt: skip
        is_host = self.owner.device.type == "cpu"
        block = 1 if is_host else BLOCK
        rehearsals = Rehearsals(self.owner._of_device, self.owner.device, self.has_masters)
        states = {id(p): rehearsals.of(*trained[id(p)], p) for p in params if id(p) in trained}
        self.params = [(id(p), p.nbytes, p.requires_grad) for p in params]
        fixed = sum([in_blocks(b.nbytes, block) for b in self.model.buffers()])
        parts, small = [], []
        coming = self.later = self.aside = 0
        for p in reversed(params):
            nbytes = in_blocks(p.nbytes, block)
            # of a master there are its gradient and what comes out, of twice the size each
            kept, numbers, work = states.get(id(p), (0, 0, 0))
            work += 4 * nbytes * (self.has_masters and p.itemsize == 2)
            work += block * (numbers > 0)  # of which a copy is made, too
            part = ModelPart(id(p), nbytes, nbytes * p.requires_grad, kept - numbers, work)
            if p.nbytes >= self.least:
                parts.append(part)
                stays, gradients = numbers, 0
                self.aside += ASIDE * block * (numbers > 0)
            else:
                stays, gradients = kept, part.gradients
                fixed += part.weights + gradients
                small.append(part)
            fixed += stays
            if not (id(p) in trained and trained[id(p)][0].state.get(p)):
                coming += stays
                self.later += stays
            self.later += gradients
        fixed += self.aside
        coming += self.aside
        self.later += self.aside
        in_pieces = not is_host and all(each._by_element for each in self.optimizers)
        self.layout = ModelParts(parts, fixed, in_pieces, is_host, coming, small)
        self.has_states = any(o.state.get(p) for o in self.optimizers for p in params)

    def resident_now(self) -> int:
        """Bytes of the model on its device that no window counts: one without a limit does not."""
        is_counted = lambda home: home is not None and home.window.limit is not None
        is_here: Any = lambda x: x.device == self.owner.device and not is_counted(home_of(x))
        every = [*self.model.buffers(), *self.model.parameters()]
        every += [p._grad for p in self.model.parameters() if p._grad is not None]
        every += tensors_in(
            [o.state.get(p) for o in self.optimizers for p in self.model.parameters()]
        )
        block = 1 if self.owner.device.type == "cpu" else BLOCK
        return sum([in_blocks(x.nbytes, block) for x in filter(is_here, every)])

    def _least_window(self, layout: ModelParts, count: int) -> int:
        """Bytes of each kind on the device, if so many parts are elsewhere and nothing is known: so
        few that each tensor comes alone, whatever the limit.
        """
        return max(1, layout.largest_whole(count) // ALONE)

    def is_least(self, chosen: Candidate) -> bool:
        """Whether no other places take less of the device in forward and backward."""
        least = self._least_window(chosen.layout, chosen.away)
        is_away = chosen.away == chosen.layout.count and "device" not in chosen.places.values()
        return is_away and chosen.window <= least

    def windows(self, places: dict[str, str], layout: ModelParts, count: int) -> list[int]:
        """Bytes of windows that places may have, the largest first."""
        largest, least = layout.most["weights"][count], layout.largest_whole(count)
        streams = places["states"] in ("stream", "disk")
        several = {max(k * largest, least) for k in (STREAMED if streams else PARTS)}
        several.add(self.owner.limit // SHARE)  # may be less than one tensor, which comes alone
        several.add(self._least_window(layout, count))
        return sorted(several, reverse=True)

    def at(
        self, places: dict[str, str], step: str, layout: ModelParts, count: int,
        window: int | None = None,
    ) -> Candidate:  # fmt: skip
        """Places for so many parts."""
        window = self._least_window(layout, count) if window is None else window
        return Candidate(places, step, layout, count, window)

    def choices(self) -> list[tuple[dict[str, str], str]]:
        """Places for the three kinds, with when the optimizer steps."""
        frugal = self._elsewhere()
        choices: list[tuple[dict[str, str], str]] = [(dict.fromkeys(KINDS, "device"), BEHIND)]
        parts = all(map(steps_by_buckets, self.optimizers))
        for kinds in (["states"], ["states", "gradients"], list(KINDS)):
            places = {k: frugal[k] if k in kinds else "device" for k in KINDS}
            several = [places]
            if parts and not self.layout.on_host and places["weights"] != "disk":
                if places["states"] == "disk":
                    several.append({**places, "states": "stream"})
                several.append({**places, "states": "host"})
            for each in several:
                choices.append((each, BEHIND))
                # its first step needs all gradients, for which the device may have no room
                if parts and self.step == DURING and each["gradients"] != "device":
                    choices.append((each, DURING))
        return choices

    def host_rate(self) -> float:
        """Bytes that the host reads and writes in a second: measured with one of each optimizer."""
        if self._host is None:
            model = self.owner._backend.model
            if self.layout.on_host:  # no choice has it step on what is elsewhere
                self._host = UNUSED
            elif model is None:
                self._host = min([host_rate(each) for each in self.optimizers])
            else:
                self._host = model.host / model.scale
        return self._host

    def room_of_host(self) -> int:
        return free_host() if self.owner.host_limit is None else self.owner.host_limit

    def _elsewhere(self) -> dict[str, str]:
        """Places of all three kinds that are not the device, on a disk where the host lacks room
        and there is one.
        """
        layout, room = self.layout, self.room_of_host()
        places = {"weights": "host", "gradients": "host", "states": "stream"}
        for kind in ("states", "weights"):
            if self.disk is not None and (layout.of_host(places, layout.count) > room
                                          or layout.on_host):  # fmt: skip
                places[kind] = "disk"
        return places

    def every(self) -> list[Candidate]:
        """Places that may take least of the device, for the first so many parts."""
        several, layout = [self._elsewhere()], self.layout
        if all(map(steps_by_buckets, self.optimizers)) and not layout.on_host:
            on_device = dict.fromkeys(KINDS, "device")
            several += [dict.fromkeys(KINDS, "host"), {**on_device, "states": "host"},
                        {**on_device, "states": "host", "gradients": "host"}]  # fmt: skip
        return [
            self.at(chosen, self.step, layout, k)
            for chosen in several for k in range(layout.count, -1, -1)
        ]  # fmt: skip

    def frugal(
        self, needs: Callable[[Candidate], int], when: str = "before a step has computed anything",
        may_need: Callable[[Candidate], int] | None = None,
    ) -> Candidate:  # fmt: skip
        """Places with the least of the device for which the host has room: what it steps on itself
        needs no window. `needs` are bytes of the device that a loop takes with some, as far as is
        known by then, and `may_need` those that are enough if it does what it may. BudgetError
        where the host has too little even for what the device has no room for, or the device for
        any of them.
        """
        every, room, limit = self.every(), self.room_of_host(), self.owner.limit
        taken = [needs(each) for each in every]
        allowed = [k for k, each in enumerate(every) if each.of_host <= room]
        best = min(allowed, key=taken.__getitem__)
        if 0 in allowed and taken[0] <= limit:  # with nothing computed on the host
            best = 0
        if taken[best] <= limit:
            return every[best]
        fitting = [each for each, nbytes in zip(every, taken) if nbytes <= limit]
        if fitting:
            # measured with other places they may take more: a tensor that comes where another is
            most = limit - max(limit >> 5, self.layout.largest_whole(self.layout.count))
            roomy = [each for each in fitting if may_need is not None and may_need(each) <= most]
            raise self._host_lacks(min(roomy or fitting, key=lambda each: each.of_host), room)
        foreseen = 0 if may_need is None else min([may_need(every[k]) for k in allowed])
        raise self._device_lacks(every[best], named(taken[best], foreseen), when)

    def _device_lacks(self, best: Candidate, least: int, when: str) -> BudgetError:
        """The error for a device that has no room for any places."""
        fixed, of_step = self.layout.fixed, best.in_step
        more = f", and {size(least - of_step)} what the loop has and computes beside that"
        return BudgetError(
            f"budget: {size(self.owner.limit)} are too few: {enough(least)} are needed {when}, of "
            f"which {size(fixed)} are buffers and parameters too small to move, with gradients and "
            f"states, and {size(of_step - fixed)} the largest parameter with its gradient and "
            f"states{more if least > of_step else ''}; raise the limit, or divide that parameter"
        )

    def _host_lacks(self, other: Candidate, room: int) -> BudgetError:
        """The error for a host that has no room for what the device has none for."""
        kinds = self.layout.kinds_of_host(other.places)
        kept = ", ".join([f"{size(self.layout.bytes_of(k, other.away))} of {k}" for k in kinds])
        whose = "free" if self.owner.host_limit is None else "allowed"
        advice = "" if self.disk is not None else ", or say disk=True"
        return BudgetError(
            f"budget: the host needs at least {enough(other.of_host)} ({kept}) for what "
            f"{size(self.owner.limit)} of the device have no room for, and {size(room)} are "
            f"{whose}; raise host_limit where there is more, or the limit{advice}"
        )
