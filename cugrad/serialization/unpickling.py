"""Reads pickles of tensors and plain Python objects, and runs nothing that a file names."""

from __future__ import annotations

import pickle
import struct
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

from ..autograd.recording.node import HookDict
from .checked import Allowance, shown
from .names import CALLS, VALUES

__all__ = ["PickleMachine", "SafeGlobals", "unpickled"]

BLOCKED = ("sys", "os", "posix", "nt")  # modules that cannot be allowed
_OLD_NAMES = {"__builtin__": "builtins", "copy_reg": "copyreg"}  # Python 2's, in protocol 2
_MARK: Any = object()
Safe = dict[str, Any]


class SafeGlobals:
    """The classes and functions that the user allows files to name and to call."""

    def __init__(self) -> None:
        self.entries: list[Any] = []

    def by_name(self) -> Safe:
        """The entries by full name; an entry is the thing, or a pair of it and a name for it."""
        safe: Safe = {}
        for entry in self.entries:
            if not isinstance(entry, tuple):
                safe[f"{entry.__module__}.{entry.__qualname__}"] = entry
                continue
            if len(entry) != 2:
                raise ValueError(
                    "Expected tuple of length 2 (global, str of callable full path), but got tuple "
                    f"of length: {len(entry)}"
                )
            if type(entry[1]) is not str:
                raise TypeError(
                    "Expected second item in tuple to be str of callable full path, but got: "
                    f"{type(entry[1])}"
                )
            safe[entry[1]] = entry[0]
        return safe


def unpickled(machine: PickleMachine) -> Any:
    """The object of its pickle. UnpicklingError for anything that is not plain or allowed."""
    try:
        return machine.run()
    except pickle.UnpicklingError:
        raise
    except _OfStorage as error:
        raise error.__cause__ or error from None
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, struct.error,
            EOFError, RecursionError) as error:  # fmt: skip
        raise pickle.UnpicklingError(
            f"the pickle is damaged, or none that save() wrote, at byte {machine.at}: {error}"
        ) from error


class _OfStorage(Exception):
    """An error that has its own words: the storage, not the pickle, is to blame."""


class PickleMachine:
    """The stack machine that a pickle is a program for; it knows no way to import."""

    def __init__(
        self, data: bytes, load_storage: Callable[[Any], Any], safe: Safe, at: int = 0
    ) -> None:
        self.data, self.at, self.load_storage, self.safe = data, at, load_storage, safe
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.calls = {id(value): call for value, call in CALLS.values()}
        self.allowed = {id(value): value for value in safe.values()}
        self.allowance = Allowance(len(data))

    def run(self) -> Any:
        stack, data = self.stack, self.data
        while True:
            if self.at >= len(data):
                raise EOFError("it ends before its STOP")
            code = data[self.at]
            self.at += 1
            if code == 0x2E:  # STOP
                result = self.pop()
                if stack:
                    raise ValueError(f"{len(stack)} values too many at its end")
                return result
            action = ACTIONS.get(code)
            if action is None:
                raise pickle.UnpicklingError(f"Unsupported operand {code}")
            action(self)

    def take(self, count: int) -> bytes:
        end = self.at + count
        if count < 0 or end > len(self.data):
            raise EOFError(f"it ends within {count} bytes")
        chunk, self.at = self.data[self.at : end], end
        return chunk

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self) -> str:
        end = self.data.index(b"\n", self.at)
        text, self.at = self.data[self.at : end], end + 1
        return text.decode("utf-8")

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop_mark(self) -> list[Any]:
        """What was pushed since the last mark."""
        stack = self.stack
        for at in range(len(stack) - 1, -1, -1):
            if stack[at] is _MARK:
                items = stack[at + 1 :]
                del stack[at:]
                return items
        raise IndexError("no mark on the stack")

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise IndexError("a mark where a value should be")
        return value

    # ------------------------------------------------------------------ names, calls, state

    def named(self, module: str, name: str) -> None:
        module = _OLD_NAMES.get(module, module)
        full = f"{module}.{name}"
        if module.partition(".")[0] in BLOCKED:
            raise pickle.UnpicklingError(
                f"Trying to load unsupported GLOBAL {full} whose module {module} is blocked."
            )
        if full in CALLS:
            self.push(CALLS[full][0])
        elif full in VALUES:
            self.push(VALUES[full])
        elif full in self.safe:
            self.push(self.safe[full])
        else:
            full = full.removeprefix("builtins.")
            raise pickle.UnpicklingError(
                f"Unsupported global: GLOBAL {full} was not an allowed global by default. Please "
                f"use `torch.serialization.add_safe_globals([{full}])` or the "
                f"`torch.serialization.safe_globals([{full}])` context manager to allowlist this "
                "global if you trust this class/function."
            )

    def call(self, function: Any, args: Any, new: bool) -> Any:
        if type(args) is not tuple:
            raise TypeError(f"a call with {type(args).__name__} for its arguments")
        rebuild = self.calls.get(id(function))
        if rebuild is not None:
            self.allowance.copy(args)
            for key in self.keys_of(function, args):
                self.allowance.key(key, args[0], self.allowed)
            return rebuild(*args)
        if id(function) in self.allowed:
            return function.__new__(function, *args) if new else function(*args)
        said = function if callable(function) else shown(function)
        if new:
            raise pickle.UnpicklingError(
                "Can only create new object for nn.Parameter or classes allowlisted via "
                f"`add_safe_globals` but got {said}"
            )
        raise pickle.UnpicklingError(f"Trying to call reduce for unrecognized function {said}")

    def keys_of(self, function: Any, args: tuple[Any, ...]) -> list[Any]:
        """What a call is going to hash."""
        if function is set:
            return list(args[0]) if args else []
        if function in (OrderedDict, Counter) and args and type(args[0]) in (list, tuple):
            return [pair[0] for pair in args[0]]
        return []

    def build(self) -> None:
        state, target = self.pop(), self.stack[-1]
        self.allowance.copy((state,))
        if type(target) is OrderedDict:
            if type(state) is not dict or not all(type(name) is str for name in state):
                raise TypeError("the attributes of an OrderedDict are no dict")
            target.__dict__.update(state)
        elif id(type(target)) in self.allowed:
            _set_state(target, state)
        else:
            raise pickle.UnpicklingError(
                "Can only build Tensor, Parameter, OrderedDict or types allowlisted via "
                f"`add_safe_globals`, but got {type(target)}"
            )

    def persistent(self) -> None:
        name = self.pop()
        if type(name) is not tuple or not name or name[0] != "storage":
            raise pickle.UnpicklingError(
                f"Only persistent_load of storage is allowed, but got {type(name)}"
            )
        try:
            self.push(self.load_storage(name))
        except Exception as error:
            raise _OfStorage from error

    # ------------------------------------------------------------------ containers

    def set_items(self, pairs: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) not in (dict, OrderedDict, Counter, HookDict):
            raise pickle.UnpicklingError(
                "Can only SETITEMS for dict, collections.OrderedDict, collections.Counter, but got "
                f"{type(target)}"
            )
        if len(pairs) % 2:
            raise ValueError("a key without a value")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            self.allowance.key(key, target, self.allowed)
            target[key] = value

    def append(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not list:
            raise pickle.UnpicklingError(f"Can only extend lists, but got {type(target)}")
        target.extend(items)

    def add(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not set:
            raise pickle.UnpicklingError(f"Can only add to sets, but got {type(target)}")
        for item in items:
            self.allowance.key(item, target, self.allowed)
        target.update(items)

    def make_tuple(self, count: int) -> None:
        items = self.stack[len(self.stack) - count :]
        if len(items) != count or any(item is _MARK for item in items):
            raise IndexError("too few entries for a tuple")
        del self.stack[len(self.stack) - count :]
        self.push(tuple(items))

    def reduce(self, new: bool) -> None:
        args = self.pop()
        self.push(self.call(self.pop(), args, new))


def _set_state(target: Any, state: Any) -> None:
    """What pickle does with the state of an object of the user's."""
    if hasattr(target, "__setstate__"):
        target.__setstate__(state)
        return
    slots = None
    if type(state) is tuple and len(state) == 2:
        state, slots = state
    if state:
        target.__dict__.update(state)
    for name, value in (slots or {}).items():
        setattr(target, name, value)


def _text(form: str) -> Callable[[PickleMachine], None]:
    return lambda m: m.push(str(m.take(m.number(form)), "utf-8", "surrogatepass"))


def _data(form: str) -> Callable[[PickleMachine], None]:
    return lambda m: m.push(m.take(m.number(form)))


def _integer(form: str) -> Callable[[PickleMachine], None]:
    return lambda m: m.push(int.from_bytes(m.take(m.number(form)), "little", signed=True))


def _remember(index: Callable[[PickleMachine], int]) -> Callable[[PickleMachine], None]:
    def action(m: PickleMachine) -> None:
        value = m.pop()
        m.push(value)
        m.memo[index(m)] = value

    return action


def _protocol(m: PickleMachine) -> None:
    version = m.number("B")
    if version > pickle.HIGHEST_PROTOCOL:
        raise ValueError(f"protocol {version}, which Python {sys.version_info[:2]} does not know")


def _stack_global(m: PickleMachine) -> None:
    name, module = m.pop(), m.pop()
    if type(name) is not str or type(module) is not str:
        raise TypeError("the name of a global is no text")
    m.named(module, name)


def _pair(m: PickleMachine) -> list[Any]:
    value, key = m.pop(), m.pop()
    return [key, value]


_BY_OPCODE: dict[bytes, Callable[[PickleMachine], Any]] = {
    pickle.PROTO: _protocol,
    pickle.FRAME: lambda m: m.number("<Q"),
    pickle.GLOBAL: lambda m: m.named(m.line(), m.line()),
    pickle.STACK_GLOBAL: _stack_global,
    pickle.REDUCE: lambda m: m.reduce(False),
    pickle.NEWOBJ: lambda m: m.reduce(True),
    pickle.BUILD: PickleMachine.build,
    pickle.BINPERSID: PickleMachine.persistent,
    pickle.MARK: lambda m: m.push(_MARK),
    pickle.POP: lambda m: m.stack.pop(),
    pickle.POP_MARK: PickleMachine.pop_mark,
    pickle.NONE: lambda m: m.push(None),
    pickle.NEWTRUE: lambda m: m.push(True),
    pickle.NEWFALSE: lambda m: m.push(False),
    pickle.BININT: lambda m: m.push(m.number("<i")),
    pickle.BININT1: lambda m: m.push(m.number("B")),
    pickle.BININT2: lambda m: m.push(m.number("<H")),
    pickle.LONG1: _integer("B"),
    pickle.LONG4: _integer("<i"),
    pickle.BINFLOAT: lambda m: m.push(m.number(">d")),
    pickle.BINUNICODE: _text("<I"),
    pickle.SHORT_BINUNICODE: _text("B"),
    pickle.BINUNICODE8: _text("<Q"),
    pickle.SHORT_BINSTRING: _text("B"),
    pickle.BINBYTES: _data("<I"),
    pickle.SHORT_BINBYTES: _data("B"),
    pickle.BINBYTES8: _data("<Q"),
    pickle.BYTEARRAY8: lambda m: m.push(bytearray(m.take(m.number("<Q")))),
    pickle.EMPTY_LIST: lambda m: m.push([]),
    pickle.EMPTY_DICT: lambda m: m.push({}),
    pickle.EMPTY_SET: lambda m: m.push(set()),
    pickle.EMPTY_TUPLE: lambda m: m.push(()),
    pickle.TUPLE: lambda m: m.push(tuple(m.pop_mark())),
    pickle.TUPLE1: lambda m: m.make_tuple(1),
    pickle.TUPLE2: lambda m: m.make_tuple(2),
    pickle.TUPLE3: lambda m: m.make_tuple(3),
    pickle.APPEND: lambda m: m.append([m.pop()]),
    pickle.APPENDS: lambda m: m.append(m.pop_mark()),
    pickle.ADDITEMS: lambda m: m.add(m.pop_mark()),
    pickle.SETITEM: lambda m: m.set_items(_pair(m)),
    pickle.SETITEMS: lambda m: m.set_items(m.pop_mark()),
    pickle.BINGET: lambda m: m.push(m.memo[m.number("B")]),
    pickle.LONG_BINGET: lambda m: m.push(m.memo[m.number("<I")]),
    pickle.BINPUT: _remember(lambda m: m.number("B")),
    pickle.LONG_BINPUT: _remember(lambda m: m.number("<I")),
    pickle.MEMOIZE: _remember(lambda m: len(m.memo)),
}
ACTIONS = {code[0]: action for code, action in _BY_OPCODE.items()}
