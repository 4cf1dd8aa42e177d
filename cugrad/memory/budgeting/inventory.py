"""What of a model may be elsewhere, and the places that take least of the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..sizes import free_host, size
from ..states.masters import steps_by_buckets
from ..states.placed import tensors_in
from ..states.steps import home_of
from .choosing import KINDS, PARTS, SHARE, STREAMED, Candidate, ModelPart, ModelParts
from .known_steps import BudgetError
from .measuring import BLOCK
from .rehearsing import Rehearsals, in_blocks

if TYPE_CHECKING:
    from .context import budget

__all__ = ["Inventory", "check_elements"]

ALONE = 4  # of the largest tensor, in a window in which each comes alone
LEAST = 1 << 16  # bytes of a parameter that is placed, of any model of 32 MiB or more
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
        self.params: list[tuple[int, int, bool]] = []
        self.later = 0  # bytes of what stays that the first step begins without

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
        fixed, parts = sum([in_blocks(b.nbytes, block) for b in self.model.buffers()]), []
        coming = self.later = 0
        for p in reversed(params):
            nbytes = in_blocks(p.nbytes, block)
            # of a master there are its gradient and what comes out, of twice the size each
            kept, numbers, work = states.get(id(p), (0, 0, 0))
            work += 4 * nbytes * (self.has_masters and p.itemsize == 2)
            part = ModelPart(id(p), nbytes, nbytes * p.requires_grad, kept - numbers, work)
            if p.nbytes >= self.least:
                parts.append(part)
                stays, gradients = numbers, 0
            else:
                stays, gradients = kept, part.gradients
                fixed += part.weights + gradients
            fixed += stays
            if not (id(p) in trained and trained[id(p)][0].state.get(p)):
                coming += stays
                self.later += stays
            self.later += gradients
        in_pieces = not is_host and all(each._by_element for each in self.optimizers)
        self.layout = ModelParts(parts, fixed, in_pieces, is_host, coming)

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
        resident = layout.resident(places, count, window)
        return Candidate(places, step, layout, count, window, resident)

    def room_of_host(self) -> int:
        return free_host() if self.owner.host_limit is None else self.owner.host_limit

    def frugal(self, others: int = 0) -> Candidate:
        """Places with the least of the device, on which there are bytes of others. BudgetError
        where the host has too little even for what the device has no room for, or the device for
        the largest parameter.
        """
        layout, room, limit = self.layout, self.room_of_host(), self.owner.limit - others
        places = {"weights": "host", "gradients": "host", "states": "stream"}
        for kind in ("states", "weights"):
            if self.disk is not None and (layout.of_host(places, layout.count) > room
                                          or layout.on_host):  # fmt: skip
                places[kind] = "disk"
        counts = range(layout.count, -1, -1)
        there = next(k for k in counts if layout.of_host(places, k) <= room)
        chosen = self.at(places, self.step, layout, there)
        least = layout.least_of(there, chosen.window)
        if there == layout.count and least > limit:
            raise BudgetError(
                f"budget: {size(limit + others)} are too few: {size(least + others)} are needed "
                f"before a step has computed anything, of which {size(layout.fixed)} are buffers "
                "and parameters too small to move, with gradients and states, and "
                f"{size(least - layout.fixed)} the largest parameter with its gradient and states; "
                "raise the limit, or divide that parameter"
            )
        if there < layout.count and chosen.in_step > limit:
            return self._with_little_of_host(places, room, limit)
        return chosen

    def _with_little_of_host(self, places: dict[str, str], room: int, limit: int) -> Candidate:
        """Places with the least of the device for which the host has room: what it steps on itself
        needs no window. BudgetError if it has not even room for what the device has none for.
        """
        layout = self.layout
        several = [places]
        if all(map(steps_by_buckets, self.optimizers)) and not layout.on_host:
            on_device = dict.fromkeys(KINDS, "device")
            several += [{**on_device, "states": "host"},
                        {**on_device, "states": "host", "gradients": "host"}]  # fmt: skip
        least = lambda of: of.in_step if of.places["states"] == "host" else of.resident
        fitting = [
            each for chosen in several for k in range(layout.count + 1)
            if least(each := self.at(chosen, self.step, layout, k)) <= limit
        ] or [self.at(places, self.step, layout, layout.count)]  # fmt: skip
        allowed = [each for each in fitting if each.of_host <= room]
        if allowed:
            return min(allowed, key=lambda each: each.in_step)
        surely = [each for each in fitting if each.in_step <= limit] or fitting
        other = min(surely, key=lambda each: each.of_host)
        kinds = layout.kinds_of_host(other.places)
        kept = ", ".join([f"{size(layout.bytes_of(k, other.away))} of {k}" for k in kinds])
        whose = "free" if self.owner.host_limit is None else "allowed"
        advice = "" if self.disk is not None else ", or say disk=True"
        raise BudgetError(
            f"budget: the host needs at least {size(other.of_host)} ({kept}) for what "
            f"{size(self.owner.limit)} of the device have no room for, and {size(room)} are "
            f"{whose}; raise host_limit where there is more, or the limit{advice}"
        )
