"""Who holds a device's memory, asked when it is full: parameters, gradients, nodes, the program."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ...backends import BY_ARRAY_TYPE
from ...backends.owners import root_of
from ...errors import FULL_WORDS, OutOfMemoryError
from ...runtime.frames import called
from ...tensor import Tensor
from .op_node import OpNode

__all__ = ["out_of_memory", "tell"]

PACKAGE = __name__.partition(".")[0]
# Who asks for memory, which CuPy does in between, and how that comes here.
BELOW = (f"{PACKAGE}.backends", f"{PACKAGE}.autograd.recording.operands", __name__)
LINES = 6  # of holders, and of the largest arrays
# as it is: `tensor._array` of one that is elsewhere would have it come, to a device that is full
_ARRAY = Tensor.__dict__["_array"]


def out_of_memory(op: str, backend: Any, error: MemoryError) -> OutOfMemoryError:
    """The error for an op that found a device full: what it wanted, and who holds the memory."""
    if isinstance(error, OutOfMemoryError) and error.is_told:
        return error
    words = getattr(error, "wanted", "") or str(error).removeprefix(FULL_WORDS)
    held = getattr(error, "held", "") or holders(backend)
    told = OutOfMemoryError(f"{FULL_WORDS}{op}: {words}\n{held}")
    told.is_told = True
    return told


def tell(error: Any, kind: type) -> None:
    """Writes into the error of a full device which function wanted the memory, and who holds it."""
    if getattr(error, "held", ""):
        return
    name = called(BELOW)
    error.wanted = str(error).removeprefix(FULL_WORDS)
    backend = next(owner for array, owner in BY_ARRAY_TYPE.items() if issubclass(array, kind))
    error.held = holders(backend)
    first = f"{name}: {error.wanted}" if name else error.wanted
    error.args = (f"{FULL_WORDS}{first}\n{error.held}",)


def holders(backend: Any) -> str:
    """The bytes of arrays that are alive, by who holds them, and the largest ones."""
    kinds = tuple([kind for kind, other in BY_ARRAY_TYPE.items() if other is backend])
    held: dict[int, tuple[int, str, Any]] = {}  # by owner of the memory: the first who is named
    for who, array in sorted(_holdings(), key=lambda pair: _rank(pair[0])):
        if isinstance(array, kinds):
            owner = root_of(array)
            held.setdefault(id(owner), (owner.nbytes, who, owner))
    sums: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for nbytes, who, _ in held.values():
        sums[who] += nbytes
        counts[who] += 1
    lines = [
        f"  {_spelled(n)} in {counts[who]} arrays: {who}" for who, n in sums.most_common(LINES)
    ]
    largest = sorted(held.values(), key=lambda each: -each[0])[:LINES]
    lines.append("The largest arrays:")
    lines += [f"  {_spelled(n)}: {tuple(x.shape)} {x.dtype}, {who}" for n, who, x in largest]
    return "\n".join(["Held by:", *lines])


def _holdings() -> Iterator[tuple[str, Any]]:
    """Arrays that tensors and nodes have, each with who that is."""
    for thing in gc.get_objects():
        if isinstance(thing, OpNode):
            name = f"saved for {thing.name()}"
            for array in _arrays_in(getattr(thing, "saved", None)):
                yield name, array
        elif isinstance(thing, Tensor):
            array = _array_of(thing)
            is_leaf = getattr(thing, "_node", None) is None
            who = "parameters" if is_leaf and thing._requires_grad else "tensors of the program"
            yield who, array
            if isinstance(thing._grad, Tensor):
                yield "gradients", _array_of(thing._grad)


def _array_of(tensor: Tensor) -> Any:
    """The array that a tensor has here, if any."""
    try:
        return _ARRAY.__get__(tensor)
    except AttributeError:  # of a lazy parameter
        return None


def _arrays_in(saved: Any) -> Iterator[Any]:
    for value in saved if type(saved) is tuple else ():  # not of a node that was freed
        if isinstance(value, Tensor):
            yield _array_of(value)
        elif isinstance(value, tuple):
            yield from value[:1]
        else:
            yield value


def _rank(who: str) -> int:
    order = ("parameters", "gradients")
    return order.index(who) if who in order else 2 + (who == "tensors of the program")


def _spelled(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.2f} MiB"
