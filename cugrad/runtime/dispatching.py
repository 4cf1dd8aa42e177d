"""Calls of public functions that go to the class of an argument, or to a mode instead.

This is PyTorch's `__torch_function__`. It costs nothing until a program defines a subclass of
Tensor, or enters a `TorchFunctionMode`. Only then `overridable` gives each public function other
code. The function stays the same object, so the call is seen by whoever holds it, and the code that
it had goes on in a twin. `cugrad.overrides` says which functions these are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from types import CodeType, FunctionType
from typing import Any

from .kept import Switch, of_thread

__all__ = [
    "DisableTorchFunction", "DisableTorchFunctionSubclass", "OpByOp", "Unasked", "are_asked",
    "asked", "give_code", "gives_base", "here", "left_to_other", "meets", "newly_asked",
    "of_operand", "overloaded", "overridable", "overrides", "plainly", "switch_on",
    "taking_no_calls", "unasked", "when_switched_on", "worker_of",
]  # fmt: skip


class Unasked(TypeError):
    """An operand is no tensor, but its class takes calls. Functions now ask it: call again."""


def of_operand(error: TypeError) -> TypeError:
    """Marks an error as one of an operand's class: an operator asks that class then."""
    vars(error)["of_operand"] = True
    return error


def left_to_other(error: TypeError) -> Any:
    """What an operator returns where its other operand is of a class that an op does not take."""
    if "of_operand" not in vars(error):
        raise error
    return NotImplemented


class Here(threading.local):
    """What this thread has entered."""

    modes: tuple[Any, ...] = ()  # the innermost last
    subclasses = True  # whether classes of arguments are asked
    all = True  # whether modes are, too
    passing = False  # whether the next call asks neither
    op_by_op = False  # whether nothing is fused: modes saw each op when it ran first


here = of_thread(Here())
TWINS: dict[FunctionType, FunctionType] = {}  # by function: what does the work
# Classes whose values take no calls, and are met most.
BASIC = {int, float, bool, complex, str, type(None), type(...), slice, list, tuple, dict}
UNCONVERTED: set[Callable[..., Any]] = set()
_installers: list[Callable[[], None]] = []


def plainly(
    func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Any = None
) -> Any:
    """The `__torch_function__` of classes that take no calls, such as Parameter."""
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


def overrides(kind: type) -> bool:
    """Whether the values of a class take the calls of functions that get them."""
    if kind in BASIC:
        return False
    return getattr(kind, "__torch_function__", plainly) is not plainly


def taking_no_calls(kind: Any) -> Any:
    """Marks a class, but not its subclasses, as one whose values take no calls."""
    BASIC.add(kind)
    return kind


class DisableTorchFunctionSubclass(Switch):
    """A context in which the classes of arguments are not asked; modes are.

    >>> import cugrad as torch
    >>> class Named(torch.Tensor): pass
    >>> x = torch.ones(2).as_subclass(Named)
    >>> type(x + 1).__name__
    'Named'
    >>> with torch._C.DisableTorchFunctionSubclass():
    ...     type(x + 1).__name__
    'Tensor'
    """

    def as_is(self) -> Any:
        return here.subclasses, here.all

    def change(self, before: Any) -> None:
        vars(here).update(subclasses=False)

    def put_back(self, before: Any) -> None:
        vars(here).update(subclasses=before[0], all=before[1])


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """A context in which neither the classes of arguments nor modes are asked."""

    def change(self, before: Any) -> None:
        vars(here).update(subclasses=False, all=False)


def unasked(function: Callable[..., Any], *args: Any) -> Any:
    """The result of a function of the library, which asks neither classes nor modes within it."""
    if not TWINS:
        return function(*args)
    with DisableTorchFunction():
        return function(*args)


class _Without(Switch):
    """The modes outside of one, while that one has the call."""

    def __init__(self, modes: tuple[Any, ...]) -> None:
        self.modes = modes

    def as_is(self) -> Any:
        return here.modes

    def change(self, before: Any) -> None:
        vars(here).update(modes=self.modes)

    def put_back(self, before: Any) -> None:
        vars(here).update(modes=before)


class OpByOp(Switch):
    """Within it functions are fused, or not, as they were where it was made: under a mode, which
    sees each op, they are not.
    """

    def __init__(self) -> None:
        self.op_by_op = here.op_by_op or sees_ops()

    def as_is(self) -> Any:
        return here.op_by_op

    def change(self, before: Any) -> None:
        vars(here).update(op_by_op=self.op_by_op)

    def put_back(self, before: Any) -> None:
        vars(here).update(op_by_op=before)


# ---------------------------------------------------------------------- whom to ask


def sees_ops() -> bool:
    """Whether a mode takes calls now."""
    return bool(here.modes and here.all)


def are_asked(values: Iterable[Any]) -> bool:
    """Whether a mode, or the class of one of these values, takes calls now."""
    return sees_ops() or here.subclasses and any(overrides(type(x)) for x in values)


def overloaded(values: Iterable[Any]) -> list[Any]:
    """One value of each class that takes calls, those of subclasses before those of their bases.

    A value is also looked for in lists and tuples among the arguments.
    """
    chosen: list[Any] = []
    kinds: set[type] = set()
    for value in _flat(values):
        kind = type(value)
        if kind in kinds or kind in BASIC or not overrides(kind):
            continue
        kinds.add(kind)
        above = [i for i, other in enumerate(chosen) if issubclass(kind, type(other))]
        chosen.insert(above[0] if above else len(chosen), value)
    return chosen


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if type(value) in (list, tuple):
            yield from value
        else:
            yield value


def asked(
    function: Callable[..., Any], values: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """What modes, then the classes of the values, say to a call; TypeError where none answers."""
    types = tuple([getattr(type(x), "_usual", type(x)) for x in values])  # the user's class
    modes = here.modes if here.all else ()
    while modes:
        mode, modes = modes[-1], modes[:-1]
        with _Without(modes):
            result = mode.__torch_function__(function, types, args, kwargs)
        if result is not NotImplemented:
            return result
    for value in values:
        result = value.__torch_function__(function, types, args, kwargs)
        if result is not NotImplemented:
            return result
    name = f"{function.__module__}.{getattr(function, '__name__', function)}"
    told = f" and in modes {', '.join(type(m).__name__ for m in here.modes)}" if here.modes else ""
    raise of_operand(TypeError(
        f"no implementation found for '{name}' on types that implement __torch_function__: "
        f"[{', '.join(type(x).__name__ for x in values)}]{told}; return a value other than "
        "NotImplemented from one of them"
    ))  # fmt: skip


# ---------------------------------------------------------------------- the functions


def overridable(
    function: FunctionType, shown: Callable[..., Any] | None = None, aside: tuple[type, ...] = (),
    operator: bool = False,
) -> None:  # fmt: skip
    """Has all calls of a function go to the classes of arguments, and to modes, that want them.

    `shown` is what they get as the function; the classes of `aside`, if any, are not asked, within
    the function either. An `operator` leaves what none of them answers to its other operand.
    """
    if function in TWINS:
        return
    twin = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__,
        function.__closure__,
    )  # fmt: skip
    twin.__kwdefaults__ = function.__kwdefaults__
    twin.__dict__.update(function.__dict__)
    public = function if shown is None else shown

    def handle(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if here.passing:
            here.passing = False
            return twin(*args, **kwargs)
        if here.subclasses:
            values = overloaded((*args, *kwargs.values()) if kwargs else args)
            if aside:
                values = [x for x in values if not isinstance(x, aside)]
            if values:
                return asked(public, values, args, kwargs)
        if here.modes and here.all:
            return asked(public, [], args, kwargs)
        if not aside or not here.subclasses:
            return twin(*args, **kwargs)
        with DisableTorchFunctionSubclass():
            return twin(*args, **kwargs)

    def handle_operator(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return handle(args, kwargs)
        except TypeError as error:
            return left_to_other(error)

    TWINS[function] = twin
    function.__dict__.setdefault("__wrapped__", twin)  # whose signature `inspect` shows
    function.__code__ = _handing(function, handle_operator if operator else handle)


def _handing(function: FunctionType, handle: Callable[..., Any]) -> CodeType:
    """Code that hands a call to `handle`, for a function that keeps its cells."""
    own = function.__code__
    code = _calling(len(own.co_freevars))
    constants = tuple(handle if c == "handle" else c for c in code.co_consts)
    return code.replace(
        co_consts=constants, co_freevars=own.co_freevars, co_name=own.co_name,
        co_filename=own.co_filename, co_firstlineno=own.co_firstlineno,
    )  # fmt: skip


@cache
def _calling(cells: int) -> CodeType:
    """The code of `call` below in a function of so many cells.

    It is compiled with them, so that it takes them over as it begins: who looks at the locals of
    its frame, as debuggers do, reads them there.
    """
    names = [f"cell{k}" for k in range(cells)]
    lines = [
        "def outside():",
        *[f"    {name} = None" for name in names],
        "    def call(*args, **kwargs):",
        f"        if 0: {', '.join(names) or 'pass'}",
        "        handle = 'handle'",  # a constant, which is replaced by the function's own
        "        return handle(args, kwargs)",
        "    return call",
    ]
    names_of: dict[str, Any] = {}
    exec("\n".join(lines), names_of)
    code: CodeType = names_of["outside"]().__code__
    return code


def gives_base(function: Callable[..., Any]) -> bool:
    """Whether the results of a function are not made instances of a subclass."""
    return function in UNCONVERTED


def worker_of(function: FunctionType) -> FunctionType:
    """The function that does the work of one: it has other code than its own, where it asks."""
    return TWINS.get(function, function)


def give_code(function: FunctionType, code: CodeType) -> None:
    """Gives a function other code, as rows do when they are first called."""
    worker_of(function).__code__ = code


def when_switched_on(install: Callable[[], None]) -> Callable[[], None]:
    """Says what `switch_on` does when it is first called."""
    _installers.append(install)
    return install


def switch_on() -> None:
    """Makes public functions overridable, if none is yet."""
    while _installers:
        _installers.pop()()


def meets(kind: type) -> None:
    """Switches functions on if a subclass of Tensor takes calls."""
    if overrides(kind):
        switch_on()


def newly_asked(values: Iterable[Any]) -> bool:
    """Whether the class of a value takes calls of which it has got none: now it gets them.

    For classes that derive from nothing of the library, which are met in a call that has failed.
    """
    if TWINS or not overloaded(values):
        return False
    switch_on()
    return bool(TWINS)
