"""The thread's recording mode: gradients on or off, observers, saved-tensor hooks."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast, overload

from ..runtime.contexts import Context, F, decorated
from ..runtime.kept import Switch, kept, of_thread

__all__ = ["no_grad", "enable_grad", "set_grad_enabled", "is_grad_enabled"]

# In PACKING, ops are recorded and hooks pack; in INFERRING, results are marked.
PLAIN, RECORDING, UNUSUAL, PACKING, INFERRING = range(5)


class Observer(Protocol):
    """Sees the four points of an op's life: NVTX ranges and profiles are observers."""

    def op_begin(self, name: str, seq: int, args: tuple[Any, ...]) -> None: ...
    def op_end(self, name: str, seq: int, result: Any) -> None: ...
    def node_begin(self, node: Any) -> None: ...
    def node_end(self, node: Any) -> None: ...


class RangeObserver(Observer, Protocol):
    """Sees what else takes time, too: modules, optimizers, copies, stalls, what the user names.

    `scope` is one of "user", "module", "optimizer", "copy", "stall", "prefetch", "recompute".
    `nbytes` is what a copy moves, `stream` where its device work is queued (the current stream if
    None), `owner` the module, or the text that the user gives with a name.
    """

    def range_begin(self, name: str, scope: str, nbytes: int, stream: Any, owner: Any) -> None: ...
    def range_end(self, name: str) -> None: ...


class Level:
    """One nesting of forward mode; `holders` are weak references to what has tangents of it.

    `owners` says of a tangent which tensor has it alone, so that a change of that may write to it.
    """

    __slots__ = ("asks_functions", "holders", "owners")

    def __init__(self) -> None:
        self.asks_functions = True  # for `setup_context`, where the level is that of a transform
        self.holders: list[weakref.ref[Any]] = []
        self.owners: dict[int, tuple[weakref.ref[Any], weakref.ref[Any]]] = {}  # by id of tangents


class Anomaly:
    """Whether anomaly detection is on, in all threads."""

    enabled = False
    check_nan = True


anomaly = Anomaly()


def _fast(unusual: bool, inference: bool, hooks: Any, recording: bool) -> int:
    """Which ways ops may go while no observer is there."""
    if unusual or anomaly.enabled:
        return UNUSUAL
    if inference:
        return INFERRING
    return (PACKING if hooks else RECORDING) if recording else PLAIN


class State(threading.local):
    """What this thread has switched on. One read of `fast` tells whether anything unusual is.

    `switch` alone changes a field. `kept` puts all of them back.
    """

    fast = RECORDING
    fast_cast = RECORDING  # `fast` of the rows that autocast casts: while it is on, UNUSUAL
    unobserved = RECORDING  # what `fast` would be without observers
    grad_enabled = True  # whether ops are recorded
    grad_mode = True  # what the user asked for; inference mode overrides it
    inference = False
    observers: tuple[Observer, ...] = ()
    ranges: tuple[RangeObserver, ...] = ()  # those observers that see ranges; also within an op
    hooks: tuple[tuple[Callable[..., Any], Callable[..., Any]], ...] = ()
    hooks_disabled: str | None = None
    before_write: Callable[[Any], None] | None = None  # sees tensors about to be changed in place
    saving: Any = None  # the node whose saved tensors are being packed
    saving_at = 0  # which of them
    call: Any = None  # what an observer sees begin: (op, args, params, whether in place)
    given: Sequence[Any] = ()  # the gradients of a node, while observers see it begin
    stand_in: Any = None  # the value of the next op, which need not be computed
    autocast: Callable[..., Any] | None = None  # (op, inputs): the inputs in the dtype to run in
    before_op: Callable[..., None] | None = None  # sees each op, its arguments, its parameters
    levels: tuple[Level, ...] = ()  # of forward mode, the innermost last
    evaluating: Any = None  # the node whose backward runs, while anomalies are looked for
    hidden: tuple[Level, ...] = ()  # what they are outside of inference mode
    dual: Level | None = None  # the one that `forward_ad.dual_level` has opened

    def switch(self, **changes: Any) -> None:
        """Changes fields and those derived from them at once: an interrupt finds all or none."""
        fields = vars(self)
        now = {**FIELDS, **fields, **changes}
        enabled = changes["grad_enabled"] = now["grad_mode"] and not now["inference"]
        watched = (now[name] is not None for name in ("stand_in", "before_op"))
        unusual = bool(now["levels"]) or any(watched)
        fast = changes["unobserved"] = _fast(unusual, now["inference"], now["hooks"], enabled)
        fast = changes["fast"] = UNUSUAL if now["observers"] else fast
        changes["fast_cast"] = fast if now["autocast"] is None else UNUSUAL
        fields.update(changes)

    @staticmethod
    def fast_of_new_threads() -> int:
        """What `fast` is in a thread that has switched nothing."""
        return UNUSUAL if anomaly.enabled else RECORDING


FIELDS = {k: v for k, v in vars(State).items() if not k.startswith("_") and not callable(v)}
state = of_thread(State())
writes_watched: list[Callable[[Any], None]] = []  # in all threads; for `watch_writes`


def watch_writes(watcher: Callable[[Any], None], watching: bool) -> None:
    """Shows, or no longer shows, tensors that are about to be changed in place to `watcher`."""
    if watching and watcher not in writes_watched:
        writes_watched.append(watcher)
    if not watching and watcher in writes_watched:
        writes_watched.remove(watcher)


def will_change(tensor: Any) -> None:
    """Tells all watchers that a tensor is about to be changed in place."""
    if state.before_write is not None:
        state.before_write(tensor)
    for watcher in tuple(writes_watched):
        watcher(tensor)


def is_grad_enabled() -> bool:
    """Whether ops on tensors that require gradients are recorded in this thread."""
    return state.grad_mode


def switch_grad(enabled: bool) -> bool:
    """Sets the grad mode; returns what it was."""
    was, fast = state.grad_mode, state.unobserved
    recording = enabled and not state.inference
    if fast != UNUSUAL and fast != INFERRING:
        fast = (PACKING if state.hooks else RECORDING) if recording else PLAIN
    now = UNUSUAL if state.observers else fast
    vars(state).update(
        grad_mode=enabled, grad_enabled=recording, unobserved=fast, fast=now,
        fast_cast=now if state.autocast is None else UNUSUAL,
    )  # fmt: skip
    return was


def switch_casts(autocast: Callable[..., Any] | None) -> None:
    """Sets what casts the inputs of rows that autocast casts."""
    vars(state).update(autocast=autocast, fast_cast=state.fast if autocast is None else UNUSUAL)


def unrecorded(run: Callable[[], Any]) -> Any:
    """What `run()` returns, with the grad mode off."""
    return in_grad_mode(False, run)


def in_grad_mode(enabled: bool, run: Callable[[], Any]) -> Any:
    """What `run()` returns, with the grad mode on or off: `kept`, of the grad mode alone."""
    was = state.grad_mode
    try:
        try:
            switch_grad(enabled)
            return run()
        finally:
            switch_grad(was)
    except BaseException:
        switch_grad(was)
        raise


def unseen(run: Callable[[], Any], recording: bool = False) -> Any:
    """What `run()` returns, with no hook, observer or autocast of this thread taking part: it is no
    part of what the program does.
    """

    def alone() -> Any:
        state.switch(hooks=(), observers=(), ranges=(), before_op=None, autocast=None,
                     grad_mode=recording)  # fmt: skip
        return run()

    return kept(alone)


def push_observer(observer: Observer) -> None:
    """Shows every op and node of this thread to `observer`, after those that are there."""
    ranges = state.ranges
    if hasattr(observer, "range_begin"):
        ranges = (*ranges, cast("RangeObserver", observer))
    try:
        state.switch(observers=(*state.observers, observer), ranges=ranges)
    except BaseException:  # an interrupt: the caller will not pop it
        pop_observer(observer)
        raise


def pop_observer(observer: Observer) -> None:
    """Takes an observer away, if it is there: a pass that it was added in may have ended."""
    was = state.observers
    observers, ranges = _without(was, observer), _without(state.ranges, observer)
    try:
        state.switch(observers=observers, ranges=ranges)
    except BaseException:  # again: see `kept`
        if state.observers is was:
            state.switch(observers=observers, ranges=ranges)
        raise


def show_node(observers: tuple[Observer, ...], node: Any, gradients: Sequence[Any]) -> None:
    """Tells observers that a node begins; `state.given` has its gradients meanwhile."""
    state.given = gradients
    try:
        for observer in observers:
            observer.node_begin(node)
    finally:
        state.given = ()


def _without(items: tuple[Any, ...], item: Any) -> tuple[Any, ...]:
    for i in range(len(items) - 1, -1, -1):
        if items[i] is item:
            return items[:i] + items[i + 1 :]
    return items


Hooks = tuple[Callable[..., Any], Callable[..., Any]]


def push_hooks(pair: Hooks) -> None:
    """Makes a pair of saved-tensor hooks the innermost one of this thread."""
    if state.hooks_disabled is not None:
        raise RuntimeError(state.hooks_disabled)
    state.switch(hooks=(*state.hooks, pair))


def pop_hooks(pair: Hooks) -> None:
    """Takes a pair of saved-tensor hooks away, if it is there, and all inside of it."""
    hooks = state.hooks
    for i in range(len(hooks) - 1, -1, -1):
        if hooks[i] is pair:
            return state.switch(hooks=hooks[:i])


def passing(run: Callable[[], Any]) -> Any:
    """`kept` for a backward pass. A context entered before it that a hook exits stays exited."""
    hooks, observers = state.hooks, state.observers
    ended: list[Any] = []

    def watched() -> Any:
        try:
            return run()
        finally:
            if state.observers is not observers:
                ended.extend([o for o in observers if o not in state.observers])
            if state.hooks is not hooks:
                ended.extend([pair for pair in hooks if pair not in state.hooks])

    try:
        return kept(watched)
    finally:
        for each in ended:
            pop_hooks(each) if type(each) is tuple else pop_observer(each)


class _GradMode(Switch, Context):
    """A context manager and decorator that sets the grad mode, as many times as it is entered."""

    enabled: bool

    def as_is(self) -> bool:
        return state.grad_mode

    def change(self, before: bool) -> None:
        switch_grad(self.enabled)

    def put_back(self, before: bool) -> None:
        switch_grad(before)


class no_grad(_GradMode):
    """Ops inside are not recorded: a context manager, and a decorator.

    >>> import cugrad as torch
    >>> x = torch.ones(3, requires_grad=True)
    >>> with torch.no_grad():
    ...     (x * 2).requires_grad
    False
    """

    enabled = False

    @overload
    def __new__(cls, orig_func: F) -> F: ...  # type: ignore[misc]
    @overload
    def __new__(cls, orig_func: None = None) -> no_grad: ...
    def __new__(cls, orig_func: Callable[..., Any] | None = None) -> Any:
        context = super().__new__(cls)
        return context if orig_func is None else decorated(cls, orig_func)


class enable_grad(_GradMode):
    """Ops inside are recorded again: the inverse of `no_grad`.

    >>> import cugrad as torch
    >>> x = torch.ones(3, requires_grad=True)
    >>> with torch.no_grad(), torch.enable_grad():
    ...     (x * 2).requires_grad
    True
    """

    enabled = True

    @overload
    def __new__(cls, orig_func: F) -> F: ...  # type: ignore[misc]
    @overload
    def __new__(cls, orig_func: None = None) -> enable_grad: ...
    def __new__(cls, orig_func: Callable[..., Any] | None = None) -> Any:
        context = super().__new__(cls)
        return context if orig_func is None else decorated(cls, orig_func)


class set_grad_enabled(_GradMode):
    """Turns recording on or off at once; as a context manager it goes back at the end.

    >>> import cugrad as torch
    >>> with torch.set_grad_enabled(False):
    ...     torch.is_grad_enabled()
    False
    >>> torch.is_grad_enabled()
    True
    """

    def __init__(self, mode: bool) -> None:
        if type(mode) is not bool:
            raise TypeError(
                "set_grad_enabled(): argument 'enabled' (position 1) must be bool, not "
                f"{type(mode).__name__}"
            )
        self.enabled = mode
        self._first = state.grad_mode
        self._fresh = True
        switch_grad(mode)

    def as_is(self) -> bool:
        return self._first if self._fresh else state.grad_mode

    def change(self, before: bool) -> None:
        self._fresh = False  # the constructor has switched already, the first time
        switch_grad(self.enabled)

    def __call__(self, function: Any) -> Any:
        if self._fresh:  # used as a decorator: undo the constructor's switch
            self._fresh = False
            switch_grad(self._first)
        return decorated(self.clone, function)

    def clone(self) -> set_grad_enabled:
        return set_grad_enabled(self.enabled)

    def __repr__(self) -> str:
        return f"torch.autograd.grad_mode.set_grad_enabled(mode={self.enabled})"
