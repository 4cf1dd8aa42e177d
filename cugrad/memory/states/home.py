"""Where the bytes of one weight, gradient or state are, and how they come and go."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ...autograd.mode import no_grad, unseen
from ...backends import backend_of
from ...backends.batched.arrays import plain
from ...device import device as Device
from ...tensor import Tensor, make
from ..geometry import array_at, memory_of, root_of
from ..offloading.engine import CopyEngine
from ..offloading.span import nothing
from .placed import FIELD, HOMES, Sent, alias_of, arm, can_be_placed, disarm, settle
from .roots import is_alone, lies_in, lies_nowhere

if TYPE_CHECKING:
    from .window import Window

__all__ = ["Home"]

#                 come                begin_on_host
#      AWAY ------------------> HERE ----------------> ON THE HOST
#        ^ <------------------   ^                         |
#        |      vacate           +-------------------------+
#        +-------------------------------------------------+
#                                        end_on_host
#
# HERE the tensor's field has its array on the device; `span` has the same bytes elsewhere, or bytes
# of an older version, or there is none yet. AWAY the field is empty, and only the span has them. ON
# THE HOST the field has an array of page-locked memory, for an optimizer that computes there.

Change: TypeAlias = Callable[[Tensor], object]  # in place


class Home:
    """The one owner of a placed tensor's bytes; `window` bounds how many of its kind are here.

    `form` has the tensor's shape, dtype and strides, and no bytes. `span` is what was sent last;
    `is_changed` says that the tensor has been written to since, where no version counts that. A
    step says that it will write to many tensors before it does: those are `is_announced`, and
    whoever has the array of one may write to it. What the device has `is_outdated` where the host
    has something newer, or a change has begun. `kept` is what the device has while the host
    computes, `root` the id of the array that owns the memory, `used` when it was asked for last.

    `pending` are changes in place of what is elsewhere, which are made where it is used next: until
    the tensor's `version` changes, the bytes of the span and these are what it is. `told` has what
    was computed of the elements at a version, by name. `writes` counts what no version counts.
    `lane` is the one in whose memory it is, of which `owner` is a weak reference; None: it is the
    compute stream's. Who looks at what a step `ahead` has made, has that taken back.
    """

    __slots__ = ("ref", "key", "window", "engine", "backend", "form", "nbytes", "span",
                 "is_changed", "is_announced", "is_outdated", "is_on_host", "kept", "root", "used",
                 "aliases", "pending", "version", "told", "gone", "lane", "owner", "writes",
                 "ahead", "__weakref__")  # fmt: skip

    def __init__(self, tensor: Tensor, window: Window, engine: CopyEngine, span: Any = None):
        self.key, self.window = id(tensor), window
        self.engine, self.backend = engine, engine.backend
        self.span: Any = None
        self.is_changed, self.is_announced, self.is_on_host = True, False, False
        self.is_outdated = False
        self.kept: Any = None
        self.aliases: list[Any] = []  # weak references to what `detach` has made
        self.pending: list[Change] = []
        self.version = 0
        self.writes = 0
        self.lane: Any = None
        self.owner: Any = None
        self.ahead: Any = None
        self.gone = ""  # what is said to those who ask for what is nowhere any more
        self.told: dict[Any, tuple[int, Tensor]] = {}
        self.root = self.used = 0
        self.ref: Any = weakref.ref(tensor, self._lose)  # once all is there that `_lose` reads
        array = tensor._array
        self._describe(array)
        arm(tensor, self)
        window.members[self] = None
        if span is not None:  # which has the bytes; the array has none
            FIELD.__set__(tensor, None)
            self.has_become(span)
        elif backend_of(array) is self.backend:
            self._is_here(array)
            window.has_come(self)
        else:
            self._move_in(tensor, array)

    def move(self, window: Window) -> None:
        """Makes the tensor one of another window's."""
        before, is_here = self.window, self in self.window.here
        if before is not window:
            if self.is_announced:
                self._has_changed()
                self.is_announced = False
            before.has_gone(self)
            before.members.pop(self, None)
            self.window = window
            window.takes_over(self, is_here)

    def _describe(self, array: Any) -> None:
        first = np.empty(1, array.dtype)
        self.form: Any = np.lib.stride_tricks.as_strided(first, array.shape, array.strides)
        self.nbytes: int = array.nbytes

    def _lose(self, ref: Any) -> None:
        """The tensor is gone. The garbage collector may call this anywhere."""
        if HOMES.get(self.key) is self:
            del HOMES[self.key]
        lies_nowhere(self)
        self._escapes()
        # else it would hold itself, by this method, and its window, which holds it: all that was
        # sent would be there until the collector came once more
        window, self.window, self.ref = self.window, self.window.nowhere, nothing
        self.told, self.pending = {}, []  # of what the window may note for longer
        window.lost.append(self)

    def _escapes(self) -> None:
        """Its memory may go back to a lane at any time."""
        if self.lane is not None:
            self.lane.escaped.append(self.owner)
            self.lane = None

    def _is_here(self, array: Any) -> None:
        lies_nowhere(self)
        lies_in(self, array)

    @property
    def array(self) -> Any:
        """What the tensor's field has."""
        tensor = self.ref()
        return None if tensor is None else FIELD.__get__(tensor)

    @property
    def is_here(self) -> bool:
        """Whether the device has the bytes, in the tensor's field."""
        return self.array is not None and not self.is_on_host

    @property
    def is_away(self) -> bool:
        """Whether the bytes are elsewhere, and wanted."""
        return HOMES.get(self.key) is self and not self.gone and self.array is None

    @property
    def is_coming(self) -> bool:
        """Whether the bytes are on their way back, or held on the device for that."""
        return self.span is not None and self.array is None and self.span.place.is_back

    @property
    def is_leaving(self) -> bool:
        """Whether the device's memory is held for a copy out."""
        return self.span is not None and self.span.held is not None

    @property
    def is_leaving_lane(self) -> bool:
        """Whether that memory is a lane's."""
        return self.is_leaving and self.span.lane is not None

    @property
    def _is_leaving_compute(self) -> bool:
        """Whether that memory is the compute stream's."""
        return self.is_leaving and not self.is_leaving_lane

    @property
    def device(self) -> Device:
        """The device of the tensor: the host's, while an optimizer computes there."""
        if self.is_on_host and self.window.host_computes:
            return Device("cpu")
        return Device(self.backend.device_type, self.engine.index)

    @property
    def is_up_to_date(self) -> bool:
        """Whether the span has the bytes as they are now."""
        span = self.span
        if span is None or self.is_changed:
            return False
        if self.pending:
            tensor = self.ref()
            return tensor is None or tensor.counter[0] == self.version
        return span.counter[0] == span.version

    # ------------------------------------------------------------------ asked for

    def asked(self, array: Any) -> Any:
        """The array, of which the tensor's field has this now."""
        if self.gone:
            raise RuntimeError(self.gone)
        if self.ahead is not None:
            self._is_seen()
            array = self.array
        if self.is_on_host:
            if self.window.host_computes:
                return array
            self.end_on_host(True)  # an interrupt has kept it from it
            array = self.array
        if self.is_outdated:
            self.refresh()
        array = self.window.bring(self) if array is None else self.window.use(self, array)
        if self.is_announced:
            self._has_changed()
        return array

    def _is_seen(self) -> None:
        if self.ahead is not None:
            self.ahead.take_back()

    def replaced(self, array: Any) -> None:
        """The tensor gets another array; it stays placed if that can be where this one was."""
        self._is_seen()
        tensor = self.ref()
        if self.is_on_host:
            FIELD.__set__(tensor, array)
            return
        same, self.pending = array is FIELD.__get__(tensor), []
        if not same and self._has_aliases():
            self._settle_aliases(tensor._array)
        lies_nowhere(self)
        if not same:
            self._escapes()
        FIELD.__set__(tensor, array)
        self._has_changed()
        if same:
            self._is_here(array)
            return
        self.window.has_gone(self)
        plain_tensor = make(array)
        if backend_of(plain(array)) is not self.backend or not can_be_placed(plain_tensor):
            self._leave_window(tensor)
            return
        self.span = None
        self._describe(array)
        self._is_here(array)
        self.window.has_come(self)

    def changes(self) -> None:
        """Someone will write to what is here."""
        self._has_changed()
        if self.window.is_stepping:
            self.is_announced = True
            self.window.announced.append(self)

    def _has_changed(self) -> None:
        self.is_changed, self.told = True, {}
        self.writes += 1

    def alias(self, tensor: Tensor) -> Any:
        """A tensor with the same elements, and no history, that does not hold them here."""
        self._has_aliases()
        alias = alias_of(tensor)
        self.aliases.append(weakref.ref(alias))
        return alias

    def _has_aliases(self) -> bool:
        self.aliases = [ref for ref in self.aliases if ref() is not None]
        return bool(self.aliases)

    def _settle_aliases(self, array: Any) -> None:
        """The aliases keep an array, whatever becomes of the tensor's."""
        for ref in self.aliases:
            alias = ref()
            if alias is not None:
                settle(alias, array)
        self.aliases = []

    def come(self) -> Any:
        """Brings the bytes in; the array."""
        with self.backend.use_device(self.engine.index):
            lane = self.window.lane_of(self.engine)
            if lane is not None and self.window.comes_again and self._is_leaving_compute:
                self.engine.let_state_go(self.span)  # else it would be compute's in each step
            flat = self.engine.bring_state(self.span, lane)
            self.lane = self.span.lane
            self.owner = None if self.lane is None else weakref.ref(root_of(flat))
            array = self._shown(self.backend.xp, flat)
            self._catch_up(array)
        self._is_here(array)
        FIELD.__set__(self.ref(), array)
        return array

    # ------------------------------------------------------------------ without coming

    def change(self, change: Change) -> None:
        """Changes the tensor in place: what is here now, what is elsewhere where it is used."""
        self._is_seen()
        self.told, tensor, array = {}, self.ref(), self.array
        if self.gone or self.is_on_host or not self.is_up_to_date:
            change(tensor)
            return
        counter = tensor.counter
        if self.span.counter is counter:  # its bytes are what they were: it keeps that version
            self.span.stand()
        self.is_outdated, self.pending = array is not None, [*self.pending, change]  # in order
        self.version = counter[0] = counter[0] + 1
        if array is not None:  # what is here need not be sent for that
            lies_nowhere(self)
            self._make([change], array)
            self._is_here(array)
        self.is_outdated = False

    def forget(self) -> None:
        """What was sent of a tensor that is here is needed no more."""
        if self.is_here and not self.is_outdated:
            self.span, self.is_changed = None, True

    def has_become(self, span: Any) -> None:
        """The tensor, which is away, was changed there: a span has the new bytes."""
        counter = self.ref().counter
        counter[0] += 1
        span.renew(counter)
        self.span, self.is_changed, self.pending, self.told = span, False, [], {}

    def spend(self, why: str) -> None:
        """Lets go of the elements, for good."""
        self.window.has_gone(self)
        lies_nowhere(self)
        self._escapes()
        FIELD.__set__(self.ref(), None)
        self.gone, self.span, self.pending, self.told = why, None, [], {}

    def _catch_up(self, array: Any) -> None:
        """Makes the changes that are pending in what has come, for an op that has begun."""
        if self.pending:
            unseen(lambda: self._make(self.pending, array))

    def _make(self, changes: list[Change], array: Any) -> None:
        """Makes changes in what is here. Of what is leaving this is to come back no more."""
        for change in changes:
            change(make(array))
        if self.is_leaving:
            self.engine.let_state_go(self.span)

    def catch_up_on_host(self) -> None:
        """Makes the changes that are pending in page-locked memory, which is what the tensor is
        from then on.
        """
        tensor = self.ref()
        while self.pending:
            self.pending[0](make(FIELD.__get__(tensor)))
            self.pending = self.pending[1:]
        self.span.renew(tensor.counter)

    def tell(self, name: Any, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """What `compute` makes of the tensor, computed once for each version of it."""
        tensor = self.ref()
        version, value = self.told.get(name, (-1, None))
        if value is None or version != tensor.counter[0] or self.is_changed:
            with no_grad():
                value = compute(make(tensor._array))
            self.told[name] = tensor.counter[0], value
        return value

    # ------------------------------------------------------------------ coming

    def _shown(self, xp: Any, flat: Any) -> Any:
        form = self.form
        strides = None if form.flags.c_contiguous else form.strides
        return array_at(xp, flat, 0, form.dtype, form.shape, strides)

    def expect(self) -> bool:
        """Starts to bring the bytes in, ahead of need; whether there was room. What is leaving the
        compute stream's memory leaves first, and comes to a lane's from then on.
        """
        lane = self.window.lane_of(self.engine)
        if lane is not None and self._is_leaving_compute:
            return False
        with self.backend.use_device(self.engine.index):
            return self.engine.expect_state(self.span, lane)

    # ------------------------------------------------------------------ leaving

    def send_to_host(self) -> bool:
        """As `send`; False, too, if they go to a file, where the host cannot change them."""
        return self.send() and self.engine.is_on_host(self.span)

    def send(self) -> bool:
        """Starts the copy out of bytes that are here; False if no place has room for them."""
        tensor = self.ref()
        if self.is_on_host and not self.window.host_computes:
            self.end_on_host(True)  # an interrupt has kept it from it
        if tensor is None or self.gone or self.is_on_host:
            return False
        if not self.is_up_to_date and self.is_here:
            with self.backend.use_device(self.engine.index):
                sent, options = Sent(tensor), self.window.options
                self.span = self.engine.send_state(sent, options, self.lane, self.span)
            self.is_changed, self.pending = False, []
        return self.span.stays is None

    @property
    def is_free(self) -> bool:
        """Whether no one but the tensor has its array, or a view of it."""
        tensor = self.ref()
        if tensor is None or self.is_on_host or FIELD.__get__(tensor) is None:
            return False
        return is_alone(tensor, self.root, self.is_leaving)

    def vacate(self, is_read: bool = True) -> bool:
        """Empties the field, if another place has the bytes and no one else the array, which may
        have been read since they were sent.
        """
        if not self.is_free or not self.is_up_to_date:
            return False
        with self.backend.use_device(self.engine.index):
            self.engine.drop_state(self.span, is_read)
        FIELD.__set__(self.ref(), None)
        self.lane, self.is_outdated = None, False
        lies_nowhere(self)
        return True

    def revert(self, span: Any, pending: list[Change]) -> None:
        """Takes back what was written since a span was sent, which has the bytes as they were,
        but for changes that were pending.
        """
        if self.span is not span:
            if self.is_coming:
                self.engine.drop_state(self.span)
                self.window.has_gone(self)
            self.span = span
        self.engine.let_state_go(span)  # what is leaving may have been written to
        self.pending, self.version, self.is_changed = pending, self.ref().counter[0], False
        span.renew()
        if self.array is not None:
            self.is_outdated = True
            if not self.window.leave(self):
                self.refresh()

    def release(self) -> None:
        """Makes the tensor an ordinary one on its device."""
        self._is_seen()
        tensor = self.ref()
        if tensor is None or self.gone or HOMES.get(self.key) is not self:
            return
        if FIELD.__get__(tensor) is None or self.is_on_host or self.is_outdated:
            assert tensor._array is not None
        self._settle_aliases(FIELD.__get__(tensor))
        self._leave_window(tensor)

    def _leave_window(self, tensor: Tensor) -> None:
        self.window.has_gone(self)
        self.window.members.pop(self, None)
        lies_nowhere(self)
        self._escapes()
        disarm(tensor)

    # ------------------------------------------------------------------ on the host

    def _move_in(self, tensor: Tensor, array: Any) -> None:
        """Takes over an array that the host has made."""
        engine = self.engine
        with self.backend.use_device(engine.index):
            self.span = engine.host_state(tensor.counter, self.nbytes, self.window.options)
            if self.span is None:
                array = self.backend.asarray(array)
                FIELD.__set__(tensor, array)
                self._describe(array)
                self._is_here(array)
                self.window.has_come(self)
                return
            engine.state_on_host(self.span, True)[:] = memory_of(np, array)
        self.is_changed = False
        FIELD.__set__(tensor, None)

    def begin_on_host(self) -> None:
        """The field has page-locked memory with the bytes until `end_on_host`."""
        tensor, kept = self.ref(), self.array
        with self.backend.use_device(self.engine.index):
            flat = self.engine.state_on_host(self.span, True)
            if kept is None:
                self.engine.drop_state(self.span)
        self.kept, self.is_on_host = kept, True
        FIELD.__set__(tensor, self._shown(np, flat))

    def end_on_host(self, is_changed: bool, after: Any = None) -> None:
        """The host has computed. What the device has of bytes that were changed goes, or, if others
        have it as well, is changed too: `after` an event, if compute is known not to use it between
        that and now. May be called again, should an interrupt come meanwhile.
        """
        if not self.is_on_host:
            return
        tensor, span = self.ref(), self.span
        if is_changed or span.counter[0] != span.version:
            self.is_outdated = self.kept is not None
        span.renew()
        FIELD.__set__(tensor, self.kept)
        self.is_on_host, self.kept = False, None
        if self.is_outdated and (after is not None or not self.window.leave(self)):
            self.refresh(after)

    def refresh(self, after: Any = None) -> None:
        """What the host has changed is changed on the device, unless that has just let go of it."""
        if (array := self.array) is not None:
            with self.backend.use_device(self.engine.index):
                self.engine.refresh_state(self.span, memory_of(self.backend.xp, array), after)
                self._catch_up(array)
        self.is_outdated = False
