"""Where weights, gradients and states may be, what of them the device has then, and for how long a
step takes. Knows bytes and seconds, and no tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from ...states.context import BEHIND, DURING
from ...states.reporting.bound import end_of, least_seconds
from ...states.steps import BUCKETS, SMALL
from ...states.within_backward.early import LAG
from ..rates import UNUSED

__all__ = ["Candidate", "KINDS", "Forecasts", "MeasuredStep", "ModelParts",
           "ModelPart"]  # fmt: skip

KINDS = ("weights", "gradients", "states")
# of the largest tensors in a window: copies and computing go on at once in the first of them
PARTS, STREAMED = (4, 3, 2, 1), (12, 6, 4, 3, 2, 1)
# the part of the copies that does not go on beside the rest, by windows of so many of the largest
# tensors: as `offload_states(window=...)` shows on the simulated device; states that have no room
# in half a window, which is four tensors, pass in pieces
LOST = (1.0, 0.3, 0.0, 0.0, 0.0, 0.0)
LOST_OF_STREAMS = (0.2, 0.2, 0.2, 0.03, 0.02, 0.0)
PIECES = 3  # of a window, in which states pass that are more than half of it
ISSUED = 2, 4  # things that the host gives the device for each piece, and for each state in it
SHARE = 16  # of the limit that a window may have, one part
AS_FAST = 1.02  # of the time of the fastest: as fast as can be told


class ModelPart(NamedTuple):
    """A parameter that may be elsewhere: its bytes, with its gradient and states."""

    key: int
    weights: int
    gradients: int
    states: int
    work: int  # bytes that its step computes in, beside them
    whole: int = -1  # the event of the step in which its gradient was whole


class Candidate(NamedTuple):
    """Places for the three kinds, for how many parts, when the optimizer steps, and what that
    costs. The parts beyond the first `away` are on the device, with all that belongs to them.
    """

    places: dict[str, str]
    step: str
    layout: ModelParts
    away: int  # parts that are elsewhere
    window: int  # bytes of each kind
    seconds: float = 0.0  # of a step, with the optimizer's
    busy: float = 0.0  # seconds of what is not computing: of the link, or of the host
    peak: int = 0  # of forward and backward

    def __str__(self) -> str:
        places = ", ".join([f"{kind} {self.places[kind]}" for kind in KINDS])
        if not self.is_on_device and self.away < self.layout.count:
            places += f", of {self.away} of {self.layout.count} tensors"
        return places if self.step == BEHIND else f"{places}, {self.step}"

    @property
    def is_on_device(self) -> bool:
        """Whether nothing is elsewhere."""
        return not self.away or set(self.places.values()) == {"device"}

    @property
    def weights_stay(self) -> bool:
        """Whether no weight comes when an op wants it."""
        return not self.away or self.places["weights"] == "device"

    def is_like(self, other: Candidate) -> bool:
        """Whether the same is elsewhere, with the same windows."""
        return (self.places, self.away, self.window) == (other.places, other.away, other.window)

    def is_same(self, other: Candidate) -> bool:
        """Whether that is of the same parts, too, which are stepped at the same time."""
        return self.is_like(other) and (self.step, self.stay) == (other.step, other.stay)

    @property
    def stay(self) -> set[int]:
        """The keys of parts that are on the device, where some are not."""
        rest = self.layout.parts[self.away :]
        return set() if self.is_on_device else {part.key for part in rest}

    def elsewhere(self, kind: str) -> int:
        """Bytes of a kind that are not on the device."""
        return 0 if self.places[kind] == "device" else self.layout.bytes_of(kind, self.away)

    @property
    def of_host(self) -> int:
        """Bytes of the host that are taken."""
        return self.layout.of_host(self.places, self.away)

    @property
    def beside_step(self) -> int:
        """Bytes that the optimizer's step takes beside those."""
        return self.layout.beside_step(self.places, self.away, self.window)

    @property
    def in_step(self) -> int:
        """Bytes that the device has of all that, at least, in the optimizer's step."""
        return self.layout.in_step(self.places, self.away, self.window)

    @property
    def with_windows(self) -> int:
        """The same with windows that are full, where nothing in them has to leave."""
        kinds = [
            self.layout.bytes_of(kind) - self.layout.bytes_of(kind, self.away)
            + self.layout.in_window(kind, self.places[kind], self.away, self.window)
            for kind in KINDS
        ]  # fmt: skip
        return self.layout.fixed + sum(kinds) + self.beside_step

    def placed(self, events: int, adds: bool = False) -> Any:
        """Bytes at most of what is placed, of each kind, that are on the device in each event of a
        step that begins with no gradients, or with those of a pass before, to which it adds.
        """
        layout, count, places = self.layout, self.away, self.places
        most = [layout.in_window(kind, places[kind], count, self.window) for kind in KINDS]
        placed = np.empty((events, len(KINDS)), np.int64)
        placed[:] = most
        whole = layout.whole(0, count, events, adds)
        placed[:, 1] = whole if layout.on_host else whole.clip(max=most[1])
        return placed

    def of_those_that_stay(self, events: int, has_states: bool = True, adds: bool = False) -> Any:
        """Bytes of what is not placed that are on the device in each event of such a step; a first
        one may have no states yet.
        """
        layout, count = self.layout, self.away
        kinds = ("weights", "states") if has_states else ("weights",)
        others = sum([layout.bytes_of(kind) - layout.bytes_of(kind, count) for kind in kinds])
        others -= 0 if has_states else layout.coming
        small = layout.made_small(events)
        to_come = 0 if adds else small.sum() - np.cumsum(small)
        return layout.whole(count, layout.count, events, adds) + (layout.fixed + others) - to_come

    def made_here(self, events: int) -> Any:
        """Bytes of the gradients that become whole in each event and stay on the device."""
        away = 0 if self.places["gradients"] == "device" else self.away
        large = self.layout.made(self.layout.count, events) - self.layout.made(away, events)
        return large + self.layout.made_small(events)

    def in_no_window(self, events: int, adds: bool) -> int:
        """Bytes of them, and of what is placed on the device, as such a step begins."""
        on_device = [self.places[kind] == "device" for kind in KINDS]
        stay = self.of_those_that_stay(events, adds=adds)[0]
        return int(stay + self.placed(events, adds)[0][on_device].sum())


class ModelParts:
    """Bytes of a model's parts, those that may be elsewhere first. `fixed` bytes stay whatever is
    chosen, of which those of `small` parts have gradients, too. Where the budget is the host's,
    only what a disk has is elsewhere.
    """

    def __init__(
        self, parts: Sequence[ModelPart], fixed: int, in_pieces: bool, on_host: bool,
        coming: int = 0, small: Sequence[ModelPart] = (),
    ) -> None:  # fmt: skip
        self.parts, self.fixed, self.in_pieces = list(parts), fixed, in_pieces
        self.small = small
        self.on_host = on_host
        self.coming = coming  # of the fixed bytes those of states that the first step makes
        self._whole = np.array([max(p.whole, 0) for p in parts], np.int64)
        self._gradients = np.array([p.gradients for p in parts], np.int64)
        self.sums = {k: [0, *accumulate([getattr(p, k) for p in parts])] for k in KINDS}
        self.most = {k: [0, *accumulate([getattr(p, k) for p in parts], max)] for k in KINDS}
        stay = [p.weights + p.states + p.work for p in reversed(parts)]
        self.most_work = [0, *accumulate([p.work for p in parts], max)]
        self.largest_that_stays = [*reversed([0, *accumulate(stay, max)])]

    @property
    def count(self) -> int:
        return len(self.parts)

    def sorted(self, key: Any) -> ModelParts:
        """The same, in another order."""
        return self.with_parts(sorted(self.parts, key=key))

    def with_parts(
        self, parts: Sequence[ModelPart], small: Sequence[ModelPart] | None = None
    ) -> ModelParts:
        """The same beside other parts."""
        small = self.small if small is None else small
        return ModelParts(parts, self.fixed, self.in_pieces, self.on_host, self.coming, small)

    def when_whole(self, events: dict[int, int], last: int) -> ModelParts:
        """The same, of which the gradients were whole in these events, by key, or in the last."""
        noted = lambda each: each._replace(whole=events.get(each.key, last))
        return self.with_parts([*map(noted, self.parts)], [*map(noted, self.small)])

    def made_small(self, events: int) -> Any:
        """Bytes of the small parts' gradients that become whole in each event."""
        whole = np.zeros(events, np.int64)
        for part in self.small:
            whole[min(part.whole, events - 1)] += part.gradients
        return whole

    def whole(self, first: int, last: int, events: int, adds: bool) -> Any:
        """Bytes of the gradients of some parts that are there, by event: those that are whole, or
        all, if the step adds to those of a pass before.
        """
        if adds:
            return np.full(events, self._gradients[first:last].sum(), np.int64)
        return np.cumsum(self.made(last, events) - self.made(first, events))

    def made(self, count: int, events: int) -> Any:
        """Bytes of the gradients of the first parts that become whole in each event."""
        when = np.minimum(self._whole[:count], events - 1)
        return np.bincount(when, self._gradients[:count], events).astype(np.int64)

    def bytes_of(self, kind: str, count: int | None = None) -> int:
        """Of the first parts, or of all."""
        return self.sums[kind][self.count if count is None else count]

    def largest_whole(self, count: int) -> int:
        """Bytes of the largest tensors that pass the device whole, of one kind."""
        kinds = KINDS[:2] if self.in_pieces else KINDS
        return max([self.most[kind][count] for kind in kinds])

    def _largest(self, kind: str, count: int, window: int) -> int:
        """Bytes of a kind that are on the device for one parameter; states of which half a window
        has no room pass it in pieces.
        """
        largest = self.most[kind][count]
        if kind == "states" and self.in_pieces and largest > self.largest_whole(count):
            return min(largest, max(window // 2, self.largest_whole(count)))
        return largest

    def in_window(self, kind: str, place: str, count: int, window: int) -> int:
        """Bytes of a kind that is elsewhere, on the device at most: one more than fits may be used
        while another leaves. A host that steps has states for itself.
        """
        if place == "device" or self.on_host and place != "disk":
            return self.sums[kind][count]
        if kind == "states" and place == "host":
            return 0
        largest = self._largest(kind, count, window)
        if kind == "weights":  # what is only read leaves at once
            return min(self.sums[kind][count], max(window, 2 * largest))
        return min(self.sums[kind][count], window + largest)

    def kinds_of_host(self, places: dict[str, str]) -> list[str]:
        """What the host has of the first parts: what lives there, and, where it steps itself, what
        it has changed of weights.
        """
        steps = places["states"] == "host" and not self.on_host
        return [kind for kind in KINDS
                if places[kind] in ("host", "stream") or steps and kind == "weights"]  # fmt: skip

    def of_host(self, places: dict[str, str], count: int) -> int:
        """Bytes of the host that the first parts take. Where it steps itself, gradients pass it, of
        one bucket at least.
        """
        kinds, passing = self.kinds_of_host(places), 0
        if "weights" in kinds and "gradients" not in kinds:
            bucket = max(self.most["gradients"][count], self.sums["gradients"][-1] // BUCKETS)
            passing = min(self.sums["gradients"][count], bucket)
        return passing + sum([self.sums[kind][count] for kind in kinds])

    def beside_step(self, places: dict[str, str], count: int, window: int) -> int:
        """Bytes that a step takes beside what is placed."""
        return max(self._beside_bucket(places, count, window), self._beside_rest(count))

    def _beside_bucket(self, places: dict[str, str], count: int, window: int) -> int:
        """Bytes that a bucket computes in, and a copy of what it changes, where that has no other
        place. If the host steps, a weight comes anew.
        """
        if places["states"] == "device":
            return self.most_work[count]
        anew = self.most["weights"][count] if places["weights"] == "device" else 0
        if places["states"] == "host":
            return anew
        if self.in_pieces and 2 * self.most["states"][count] > window:
            return self.most["weights"][count] // PIECES
        return self._together(count, window, self.most_work[count] + anew)

    def _beside_rest(self, count: int) -> int:
        """The same of what stays on the device."""
        if not count:
            return self.most_work[-1]
        together = min(SMALL, self.sums["weights"][-1] // BUCKETS) if count < self.count else 0
        return max(2 * together, self.largest_that_stays[count])

    def _together(self, count: int, window: int, nbytes: int) -> int:
        """Bytes of the parameters that step at once, of so many for the largest."""
        most = min(window // PIECES, self.sums["weights"][-1] // BUCKETS)
        return max(nbytes, nbytes * most // max(self.most["weights"][count], 1))

    def in_step(self, places: dict[str, str], count: int, window: int) -> int:
        """Bytes that the device has at least in the optimizer's step: what stays, and a bucket of
        what does not, or of what does, for which what came ahead of need leaves.
        """
        steps = places["states"] == "host" and not self.on_host
        stay, bucket = self.fixed, self._beside_bucket(places, count, window)
        for kind in KINDS:
            there = places[kind] == "device" or self.on_host and places[kind] != "disk"
            stay += self.sums[kind][-1] - (0 if there else self.sums[kind][count])
            if not there and not (steps and kind == "states"):  # others are there for backward
                bucket += self._together(count, window, self._largest(kind, count, window))
        return stay + max(bucket, self._beside_rest(count))


class MeasuredStep:
    """What the first step has shown, with the places `before`: of the bytes of the three kinds that
    the device had, by event, those that `stay`, and those `placed`, for each kind; and the `least`
    that it has there of everything, with all away that it saves.
    """

    def __init__(
        self, step: Any, passes: int, before: Candidate, stay: Any, placed: Any, least: Any,
        added: bool,
    ) -> None:  # fmt: skip
        self.step, self.passes, self.before = step, passes, before
        self.added = added  # whether it added to gradients, as it was measured
        self.zeroed = False  # whether steps begin with gradients, which were set to zero
        self.stay, self.placed, self.least = stay, placed, least
        self.told = 0  # bytes of what is computed of gradients before they leave
        self.there = stay + placed.sum(axis=1)
        # where gradients are added to, those are there beside what becomes them in a first pass
        self.beside = before.made_here(len(self.there)) * (not added)
        self.computing = sum([event.seconds for event in step.events])
        self.misses = self.less = 0  # steps over the limit, by so many bytes in all

    @property
    def adds(self) -> bool:
        """Whether passes begin with gradients, to which they add."""
        return self.passes > 1 or self.zeroed

    def shifts(self, candidate: Candidate) -> Any:
        """Bytes that are in use beyond those, by event, with other places."""
        events, before, adds = len(self.there), self.before, self.adds
        placed = candidate.placed(events, adds)
        if candidate.is_like(before):  # what has come ahead leaves where others need the room
            placed = self.placed.copy()
            if adds and not self.added:
                added = candidate.layout.made(candidate.away, events)
                placed[:, 1] += added.clip(max=candidate.placed(1, True)[0, 1])
        elif (candidate.window, candidate.away) == (before.window, before.away):
            # as measured, but for gradients where it adds to them now
            for k, kind in enumerate(KINDS[: 2 if adds == self.added else 1]):
                if candidate.places[kind] == before.places[kind]:
                    placed[:, k] = np.minimum(placed[:, k], self.placed[:, k])
        told = 0 if candidate.places["gradients"] == "device" else self.told
        stay = candidate.of_those_that_stay(events, adds=adds) + told
        return stay + placed.sum(axis=1) - self.there + (self.beside if adds else 0)


class Forecasts:
    """Seconds of steps by measured rates: of what takes longest of all that goes on at once, and,
    where the step waits for all of backward, of that behind it. docs/larger-than-the-gpu.md has the
    table.

    `clock` has the seconds of the step that was measured until the end of each of its events;
    `passes` how often that is done for a step of the optimizer.
    """

    def __init__(
        self, clock: Sequence[float], rates: Any, host_rate: float, passes: int, goes_on: bool,
        room_for_both: bool,
    ) -> None:  # fmt: skip
        self.clock, self.rates, self.host_rate, self.passes = clock, rates, host_rate, passes
        self.goes_on = goes_on  # whether steps may begin within backward, as far as is known
        self.room_for_both = room_for_both  # for states before a step and behind it, on the host

    def of(self, candidate: Candidate, computing: float, peak: int) -> Candidate:
        """A choice with the seconds of a step whose forward and backward compute for so many, those
        of what is busiest beside that, and the peak.
        """
        seconds, busy = computing * self.passes, 0.0
        if not candidate.is_on_device:
            seconds, busy = _StepForecast(self, candidate, computing).seconds()
        return candidate._replace(seconds=seconds, busy=busy, peak=peak)


class _StepForecast:
    """The forecast of one choice: the bytes of each part that move."""

    def __init__(self, of: Forecasts, candidate: Candidate, computing: float) -> None:
        self.of, self.places, self.step = of, candidate.places, candidate.step
        self.parts, self.window = candidate.layout.parts[: candidate.away], candidate.window
        self.in_pieces = candidate.layout.in_pieces
        most = {kind: candidate.layout.most[kind][candidate.away] for kind in KINDS}
        self.held = self.window / max(most["weights"], 1)
        # of Adam the states of a tensor are two; those of others are in pieces in other windows
        self.held_of_states = 2 * self.window / (most["states"] or 2 * max(most["weights"], 1))
        times, last = computing / (of.clock[-1] or 1.0), len(of.clock) - 1
        before = computing * (of.passes - 1)  # passes whose gradients are added to
        self.computing = computing * of.passes
        self.whole = [before + times * of.clock[min(p.whole, last)] for p in self.parts]
        self.back, self.out = max(of.rates.back, 1.0), max(of.rates.out, 1.0)
        self.weights, self.gradients, self.states = (
            sum([getattr(part, kind) for part in self.parts])
            if self.places[kind] != "device" else 0 for kind in KINDS
        )  # fmt: skip
        self.into = of.passes * max(0, 2 * self.weights - self.window) / self.back
        self.into += (of.passes - 1) * self.gradients / self.back
        self.leaves = of.passes * self.gradients / self.out

    def seconds(self) -> tuple[float, float]:
        """Of a step, and of what is busiest beside computing."""
        at_once = [*reversed(STREAMED)]
        if self.places["states"] == "host":
            seconds, busy = self._on_host()
            come, go, lost = self.into if self.weights else 0.0, self.leaves, LOST
            held = self.held
        else:
            seconds, busy, come, go = self._on_device()
            held, lost = self.held_of_states, LOST_OF_STREAMS
        longest = max(self.computing, come, go)  # which never waits for long
        beside = min(self.computing + come + go - longest, self.computing + longest / 2)
        seconds += beside * float(np.interp(held, at_once, lost))
        return max(seconds, self._issuing()), busy

    def _passes_in_pieces(self, part: ModelPart) -> bool:
        return self.in_pieces and bool(self.states) and 2 * part.states > self.window

    def _issuing(self) -> float:
        """Seconds in which the host gives the device what is to be done for states in pieces: the
        smaller these are, the more there are, and each takes as long as a copy of next to nothing.
        """
        if not self.states or self.places["states"] == "host" or not self.in_pieces:
            return 0.0
        passing = [*filter(self._passes_in_pieces, self.parts)]
        pieces = sum([PIECES * p.states // self.window + 1 for p in passing])
        several = sum([PIECES * p.states / self.window * p.states / p.weights for p in passing])
        return (pieces * ISSUED[0] + several * ISSUED[1]) * self.of.rates.copy

    def _on_device(self) -> tuple[float, float, float, float]:
        """Of steps that states pass the device for, and of copies in and out."""
        places, of = self.places, self.of
        slow = places["states"] == "disk" and of.rates.disk_back < UNUSED / 10
        come = self.states / (of.rates.disk_back if slow else self.back)
        out = of.rates.disk_out if slow else self.out
        # a weight that is here leaves too, to be put back, before its states pass in pieces
        each = [
            part.states / out * bool(self.states)
            + part.weights / self.out * (bool(self.weights) or self._passes_in_pieces(part))
            for part in self.parts
        ]
        go = sum(each)
        copies = self.into + come, go + self.leaves
        if self.step == DURING:
            return *self._within(self.into + come, go, each), *copies
        if of.goes_on and places["states"] == "stream":
            if self.weights and self.gradients and of.room_for_both:
                each = [a + part.gradients / self.out for a, part in zip(each, self.parts)]
                return *self._within(self.into + come, go + self.leaves, each), *copies
            if not self.weights and not self.gradients:
                return *self._within(come, go, each), *copies
        once_more = sum([max(0, n - self.window) for n in (self.weights, self.gradients)])
        behind = max(come + once_more / self.back, go)
        busy = max(self.into, self.leaves)
        return max(self.computing, busy) + behind, busy + behind, 0.0, 0.0

    def _within(self, come: float, go: float, each: list[float]) -> tuple[float, float]:
        """Of steps within backward. What leaves does so from when the gradient is whole on; as much
        as the windows of weights and of states hold may be there still when backward ends.
        """
        kinds = [bool(self.weights), bool(self.states)]
        kept = min(self.window / self.out * sum(kinds), go)
        late = end_of(zip(self.whole, each)) - kept
        return max(self.computing, come, go, late), max(come, go)

    def _on_host(self) -> tuple[float, float]:
        of, parts = self.of, self.parts
        host = [(2 * p.weights + p.gradients + 2 * p.states) / of.host_rate for p in parts]
        changed = sum([p.weights for p in parts]) / self.back
        sent = max(self.leaves, sum([p.gradients for p in parts]) / self.out)
        busy = max(sum(host), self.into or changed, sent)
        if self.step == DURING or of.goes_on:
            arrive = sorted([w + p.gradients / self.out for w, p in zip(self.whole, parts)])
            if self.step == DURING:  # those of a few more buckets are sent before
                arrive = [*arrive[LAG:], *arrive[-1:] * LAG][: len(arrive)]
            order = sorted(range(len(parts)), key=lambda k: self.whole[k])
            work = [(when, host[k]) for when, k in zip(arrive, order)]
            return least_seconds(self.computing, self.into or changed, sent, work), busy
        behind = max(sum(host), 0.0 if self.gradients else max(changed, sent))
        return max(self.computing, self.into, self.leaves) + behind, busy
