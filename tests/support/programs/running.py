"""Runs a program with a library, writes down what can be seen of it, and compares two of these."""

from __future__ import annotations

import functools
import re
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np

from tests.support.patience import patient

from .text import helper_code, names_of_helpers

FILE = "<program>"
SECONDS = 10  # a program that takes longer hangs

# How far two results may be apart, as a share of the largest element or of 1: by the narrowest
# floating point type that a program has, for what it rounds is seen in the results of wider ones.
TOLERANCE = {"float64": 1e-7, "complex128": 1e-7, "float32": 2e-3, "complex64": 2e-3,
             "float16": 0.05, "bfloat16": 0.25}  # fmt: skip
NARROWNESS = ("bfloat16", "float16", "complex64", "float32", "complex128", "float64")


class Unfit(Exception):
    """What a program computes says nothing: a tie, a kink, or a number that is too large."""


class Hang(Exception):
    """A program took longer than any should."""


@dataclass(frozen=True)
class Failure:
    """An error: where in the program it was raised, its types and a word for its message."""

    line: int
    types: tuple[str, ...]
    word: str
    text: str


# What messages are compared by: errors with one of these words must have it in both libraries.
WORDS = {
    "changed": "modified by an inplace operation",
    "freed": "backward through the graph a second time",
    "leaf": "a leaf Variable that requires grad",
    "no graph": "does not require grad",
    "unused": "appears to not have been used in the graph",
    "made under no_grad": "in no_grad mode",
    "several views": "multiple views",
    "inference": "nference",
    "twice": "trying to differentiate twice",
    "detached": "that has been detached in-place",
    "reentrant": "torch.utils.checkpoint is incompatible with .grad()",
}


NO_GRAPH = re.compile("no graph|NoneType|none of output has")
# said of a line with another fault
ONE_OF_TWO = {"leaf", "several views", "freed", "inference", "reentrant", "detached", "twice"}


@dataclass
class Seen:
    """What can be seen of a program once it has run."""

    tensors: dict[str, dict[str, Any]] = field(default_factory=dict)
    aliases: frozenset[tuple[str, str]] = frozenset()
    log: tuple[str, ...] = ()
    versions: list[dict[str, int]] = field(default_factory=list)  # behind each statement
    outgrown: set[str] = field(default_factory=set)
    unplaced: set[str] = field(default_factory=set)  # which have no address
    failure: Failure | None = None
    unfit: str = ""
    strides: list[tuple[int, ...]] = field(default_factory=list)  # that `laid` has met
    named: frozenset[str] = frozenset()  # the dtypes that the program's text names


@dataclass(frozen=True)
class Difference:
    """What two runs do not agree on: `kind` and `what` say of which sort, for the shrinker."""

    kind: str
    what: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind} {self.what}: {self.text}"


def run(
    lib: Any, source: str, names: dict[str, Any] | None = None, *,
    context: Callable[[dict[str, Any]], AbstractContextManager[Any]] = nullcontext,
    around: Callable[[], AbstractContextManager[Any]] = nullcontext, thread: bool = False,
) -> Seen:  # fmt: skip
    """Runs a program's text; `context`, of its names, is what it calls so; `around` holds all."""
    env: dict[str, Any] = {"t": lib, "log": [], "np": np, **(names or {})}
    env["context"] = functools.partial(context, env)
    named = re.findall(r"\bt\.(b?float\d+|complex\d+)", source)
    single = "t.int64" in source or ".float()" in source
    seen = Seen(named=frozenset(named + ["float32"] * single))
    env["strides"] = seen.strides

    def probe() -> None:
        found = [
            (name, x) for name, x in env.items() if name[0] == "v" and isinstance(x, lib.Tensor)
        ]
        seen.versions.append({name: x._version for name, x in found if not x.is_inference()})

    env["probe"] = probe

    def body() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                for name in names_of_helpers(source):
                    exec(helper_code(name), env)
                exec(compiled(source), env)
            except Unfit as error:
                seen.unfit = str(error) or "unfit"
            except Hang:
                raise
            except Exception as error:
                seen.failure = failure_of(error)

    with around():
        with limited():
            if thread:
                worker = threading.Thread(target=body)
                worker.start()
                worker.join(patient())
                if worker.is_alive():
                    raise Hang("a thread")
            else:
                body()
        seen.log = tuple(map(str, env["log"]))
        look(seen, env)
    return seen


@functools.lru_cache(2000)
def compiled(text: str) -> Any:
    return compile(text, FILE, "exec")


@contextmanager
def limited() -> Iterator[None]:
    """Raises Hang in the main thread when the time is up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise Hang(f"took longer than {SECONDS} s")

    # of processor time, and for what waits for ever of time
    timers = ((signal.SIGPROF, signal.ITIMER_PROF, SECONDS),
              (signal.SIGALRM, signal.ITIMER_REAL, patient()))  # fmt: skip
    before = [signal.signal(number, stop) for number, *_ in timers]
    try:
        for _, timer, seconds in timers:
            signal.setitimer(timer, seconds)
        yield
    finally:
        for (number, timer, _), handler in zip(timers, before):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def failure_of(error: Exception) -> Failure:
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            line = trace.tb_lineno
            break
        trace = trace.tb_next
    text = str(error)
    plain = text.replace("doesn't", "does not")
    for other in ("has requires_grad=False", "'NoneType' object has no attribute 'register_"):
        plain = plain.replace(other, WORDS["no graph"])  # as has a node that is not there
    word = next((word for word, part in WORDS.items() if part in plain), "")
    types = tuple(k.__name__ for k in type(error).__mro__ if k.__module__ == "builtins")
    return Failure(
        line, types, word, f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"
    )


# Looking at tensors -------------------------------------------------------------------------------


def look(seen: Seen, env: dict[str, Any]) -> None:
    """Writes down the tensors that a program has left, their gradients, and who shares memory."""
    tensor_type = env["t"].Tensor
    places: list[tuple[str, int, int]] = []
    found: list[tuple[str, Any]] = []
    for name in sorted(env):
        if name[0] not in "vg" or not name[1:].isdigit():
            continue
        value = env[name]
        if isinstance(value, tensor_type):
            found.append((name, value))
        elif isinstance(value, (tuple, list)):
            found.extend(
                (f"{name}[{i}]", x) for i, x in enumerate(value) if isinstance(x, tensor_type)
            )
            seen.tensors.update(
                {f"{name}[{i}]": {"value": None} for i, x in enumerate(value) if x is None}
            )
    for name, x in found:
        try:
            facts = facts_of(x)
        except RuntimeError as error:  # a view that is no longer one, or none that can be made anew
            seen.tensors[name] = {}
            if re.search(
                "cannot reshape|another shape", str(error)
            ):  # of what `out=` has given another shape
                seen.outgrown.add(name)
            continue
        if seen.failure is None and (x.retains_grad or x.is_leaf and not x._is_view()):
            facts["grad"] = value_of(x.grad)
            facts["grad_is_sparse"] = x.grad is not None and x.grad.is_sparse
        seen.tensors[name] = facts
        if x.numel() and name[0] == "v" and not x.is_sparse:
            try:
                start, reach = x.data_ptr(), sum((n - 1) * s for n, s in zip(x.shape, x.stride()))
            except RuntimeError as error:
                if "has no place in that" not in str(error):  # a part of scattered conjugates
                    raise
                seen.unplaced.add(name)
                continue
            places.append((name, start, start + (reach + 1) * x.element_size()))
    seen.aliases = frozenset(
        (a, b) for a, low, high in places for b, begin, end in places
        if a < b and low < end and begin < high
    )  # fmt: skip
    of_leaves = {
        b for a, b in seen.aliases | {(b, a) for a, b in seen.aliases} if is_own(env.get(a))
    }
    # what an op returns that shares memory with no operand may be a view of what it made within
    shared = {max(pair, key=lambda name: int(name[1:].partition("[")[0])) for pair in seen.aliases}
    for name, x in found:
        if name in shared and (x.is_floating_point() or x.is_complex()):
            seen.tensors[name]["is_view"] = x._is_view()
        if name in of_leaves:  # the layouts of what ops return are open
            seen.tensors[name]["strides"] = strides_of(x)


def is_own(x: Any) -> bool:
    """Whether this is a leaf that the program made of a literal."""
    return hasattr(x, "is_leaf") and x.is_leaf and x.requires_grad and not x._is_view()


def facts_of(x: Any) -> dict[str, Any]:
    facts = {
        "value": value_of(x),
        "dtype": str(x.dtype).partition(".")[2],
        "shape": tuple(x.shape),
        "requires_grad": x.requires_grad,
        "is_leaf": x.is_leaf,
        "is_sparse": x.is_sparse,
        "class": type(x).__name__,
    }
    return facts


def strides_of(x: Any) -> tuple[int, ...]:
    """The strides that matter: of dims with several elements, of tensors that have some."""
    return tuple(s for n, s in zip(x.shape, x.stride()) if n > 1) if x.numel() else ()


def value_of(x: Any) -> Any:
    """The elements, as NumPy has them; bfloat16 as float32."""
    if x is None:
        return None
    x = x.detach()
    x = x.to_dense() if x.is_sparse else x
    if getattr(x, "_is_zerotensor", bool)():  # PyTorch's zeros without memory
        x = x.clone()
    if "bfloat16" in str(x.dtype):
        x = x.float()
    x = x.cpu()
    if hasattr(x, "resolve_conj"):
        x = x.resolve_conj().resolve_neg()
    return np.array(x.numpy())


# Comparing ----------------------------------------------------------------------------------------


def differences(want: Seen, got: Seen, bits: bool, derives: bool = False) -> Iterator[Difference]:
    """What differs between two runs; `bits`: values must be equal bit by bit.

    `derives`: derivatives that are zero may be there or not, with a graph or without.
    """
    if want.failure is not None or got.failure is not None:
        difference = failures_differ(want.failure, got.failure)
        # no graph: no `grad_fn`, and None for a gradient that is zero
        if difference is not None and not (
            derives and NO_GRAPH.search(difference.text + difference.what)
        ):
            yield difference
        return
    if want.log != got.log:
        yield Difference("log", "", f"want {want.log}, got {got.log}")
    names = sorted(want.tensors.keys() ^ got.tensors.keys())
    alone = [(seen.tensors.get(name) or {}).get("value") for name in names for seen in (want, got)]
    if names and not (derives and all(map(is_nothing, alone))):
        yield Difference("tensors", "", f"{names} in one of the two only")
        return
    skipped = ("requires_grad", "is_leaf", "is_view", "class") if derives else ()
    tolerance = 0.0 if bits else tolerance_of(want)
    for name, facts in want.tensors.items():
        if name in names or name in got.outgrown:
            continue
        for fact, value in facts.items():
            other = got.tensors[name].get(fact)
            if fact in ("is_view", "strides", "grad_is_sparse") and other is None:
                continue
            if derives and (fact in skipped or is_nothing(value) and is_nothing(other)):
                continue
            if not same(value, other, tolerance):
                said = f"want {short(value)}, got {short(other)}{apart_by(value, other)}"
                yield Difference(fact, kind_of(value, other), f"{name}: {said}")
    yield from versions_differ(want.versions, got.versions)
    for pair in sorted(want.aliases ^ got.aliases):
        if not all(seen.tensors.get(name) for name in pair for seen in (want, got)):
            continue  # a view that is no longer one
        if want.unplaced & {*pair} or got.unplaced & {*pair}:
            continue
        yield Difference("alias", "yes" if pair in got.aliases else "no", " and ".join(pair))


def versions_differ(want: list[dict[str, int]], got: list[dict[str, int]]) -> Iterator[Difference]:
    """Which statement changes which tensor, and how often: what a new tensor begins at is open."""
    for number in range(1, min(len(want), len(got))):
        for name in (
            want[number].keys()
            & want[number - 1].keys()
            & got[number].keys()
            & got[number - 1].keys()
        ):
            one, two = (v[number][name] - v[number - 1][name] for v in (want, got))
            if one != two:
                yield Difference(
                    "version",
                    f"{min(one, 1)} {min(two, 1)}",
                    f"{name}: statement {number} adds {one}, got {two}",
                )


def failures_differ(want: Failure | None, got: Failure | None) -> Difference | None:
    said = f"want {want.text if want else 'none'}, got {got.text if got else 'none'}"
    if want is None or got is None:
        one = want or got
        assert one is not None
        where = "missing" if want else "raised"
        return Difference("error", f"{where} {sort_of(one)}", f"line {one.line}: {said}")
    if want.line != got.line:
        return Difference(
            "error",
            f"elsewhere {sort_of(want)}, {sort_of(got)}",
            f"line {want.line}, {got.line}: {said}",
        )
    # of two faults at once either may be named
    words = want.word == got.word or ONE_OF_TWO & {want.word, got.word}
    shapes = {"IndexError", "RuntimeError"}
    types = want.types[0] in got.types or {want.types[0], got.types[0]} == shapes
    if not types or not words:
        return Difference("error", f"{sort_of(want)}, {sort_of(got)}", said)
    return None


def sort_of(failure: Failure) -> str:
    """Type, word and beginning of an error, so that the shrinker does not come upon another one."""
    return f"{failure.types[0]} {failure.word or re.sub('[^a-z ]', '', failure.text)[:40]}"


def tolerance_of(seen: Seen) -> float:
    dtypes = {facts.get("dtype") for facts in seen.tensors.values()} | seen.named
    return next((TOLERANCE[d] for d in NARROWNESS if d in dtypes), 1e-7)


def same(want: Any, got: Any, tolerance: float) -> bool:
    if not isinstance(want, np.ndarray) or not isinstance(got, np.ndarray):
        return type(want) is type(got) and want == got
    if want.shape != got.shape or want.dtype != got.dtype:
        return False
    if not tolerance:
        return want.tobytes() == got.tobytes() or bool(np.array_equal(want, got, equal_nan=True))
    if want.dtype.kind not in "fc":
        return bool(np.array_equal(want, got))
    finite = np.isfinite(want)
    if not np.array_equal(finite, np.isfinite(got)):
        return False
    if not finite.all():
        return same(want[finite], got[finite], tolerance)
    wide = complex if want.dtype.kind == "c" else float
    want, got = want.astype(wide), got.astype(wide)
    scale = max(1.0, float(np.abs(want).max(initial=0)))
    return bool(np.abs(want - got).max(initial=0) <= tolerance * scale)


def apart_by(want: Any, got: Any) -> str:
    """How far apart two numbers are, as a share of the largest element or of 1."""
    if not isinstance(want, np.ndarray) or not isinstance(got, np.ndarray):
        return ""
    if want.shape != got.shape or not all(x.size and x.dtype.kind in "fc" for x in (want, got)):
        return ""
    scale = max(1.0, float(np.abs(want).max()))
    return f"; apart by {float(np.abs(want - got).max()) / scale:.0e}"


def is_nothing(value: Any) -> bool:
    return value is None or isinstance(value, np.ndarray) and not value.any()


def kind_of(want: Any, got: Any) -> str:
    """Nothing where a number differs; which way, where a gradient is missing."""
    if (want is None) != (got is None):
        return "missing" if got is None else "extra"
    return ""


def short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return (
            f"{value.dtype}{np.array2string(value, precision=6, threshold=12).replace(chr(10), '')}"
        )
    return str(value)


# What programs call to say that a result would say nothing ----------------------------------------


def clear(x: Any, *kinks: float) -> None:
    """No element is near a kink: integers are at it, or are not."""
    values = value_of(x)
    for kink in kinks if values.dtype.kind in "fc" else ():
        if values.size and np.abs(values - kink).min() < margin_of(x):
            raise Unfit(f"near {kink}")


def apart(x: Any) -> None:
    """No two elements are nearly equal, and none is nearly nothing."""
    values = np.sort(np.abs(value_of(x)).ravel())
    if values.size and (values[0] < margin_of(x) or np.diff(values).min(initial=1) < margin_of(x)):
        raise Unfit("a tie")


def margin_of(x: Any) -> float:
    narrow = str(x.dtype).partition(".")[2]
    return {"float64": 1e-4, "complex128": 1e-4, "float32": 5e-3, "complex64": 5e-3}.get(
        narrow, 0.1
    )


def tame(x: Any, most: float = 60) -> None:
    """The elements are numbers, and not large."""
    values = value_of(x)
    if values.size and values.dtype.kind in "fc" and not np.abs(values).max() < most:
        raise Unfit("too large")


def own(x: Any) -> None:
    """It is a leaf made of a literal, whose layout is known."""
    if x._is_view() or not x.is_leaf:
        raise Unfit("a layout that is open")


def two(x: Any, y: Any) -> None:
    """They are not one tensor: derivatives that cancel leave what was rounded of them."""
    if x is y:
        raise Unfit("a derivative that cancels")


def dense(x: Any) -> None:
    """No element is shown twice: PyTorch copies what overlaps so that the copy overlaps."""
    if overlaps(x):
        raise Unfit("elements overlap")


def overlaps(x: Any) -> bool:
    """Whether two elements of a tensor are one place in memory."""
    places = np.zeros(x.shape, np.int64)
    for dim, (size, stride) in enumerate(zip(x.shape, x.stride())):
        places += (np.arange(size) * stride).reshape(-1, *[1] * (x.ndim - 1 - dim))
    return np.unique(places).size < places.size


GUARDS: dict[str, Any] = {
    "clear": clear, "apart": apart, "tame": tame, "own": own, "dense": dense, "two": two,
}  # fmt: skip
