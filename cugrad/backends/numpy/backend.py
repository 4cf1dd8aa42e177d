"""The NumPy backend: the host, where every stream has always just finished."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from math import inf, prod, sqrt
from time import perf_counter
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ...runtime.kept import NOTHING
from ..features import Features
from ..forks import kept_over_forks, unforked
from ..moments import track_moment
from ..owners import root_of
from ..written_to import may_write
from .blocks import LEAST, along_rows, ascontiguousarray, copied, copyto
from .choosing import tril, triu, where
from .erf import erf_float32, normal_cdf_float32
from .exponential import quick_exp
from .half import SINGLE, cast, is_half, positive_part
from .index import index_add, index_reduce
from .integers import divider
from .rows import forward_of, gradients_of
from .sparse import sampled_product, sparse_product
from .special import ScipySpecial, by_number
from .sums import (
    MANY,
    multiplied_in_lanes,
    reduced,
    summed_at_once,
    summed_at_the_end,
    summed_by_blas,
)  # fmt: skip

Array = np.ndarray[Any, Any]
# Without the detours of np.sum and np.max, which take longer than few numbers.
TOTAL: Any = np.add.reduce
LARGEST: Any = np.maximum.reduce
SMALLEST: Any = np.minimum.reduce

# Overflow and division by zero are values, as on a GPU, not warnings. Setting NumPy's error state
# around each op would cost four times the op. Where warnings are errors, ops run again in quiet().
warnings.filterwarnings(
    "ignore", "(divide by zero|overflow|underflow|invalid value) encountered", RuntimeWarning,
    r"cugrad\."
)  # fmt: skip


def address_of(array: Array) -> int:
    """Where the first element lies in memory."""
    address: int = array.__array_interface__["data"][0]
    return address


def as_strided(x: Array, shape: Any = None, strides: Any = None) -> Array:
    """The view of `x` that has this shape and these strides, in bytes, from its first element.

    NumPy's own reads whatever memory it is led to; this is a ValueError outside of the array's.
    """
    root = root_of(x)
    if not root.flags.forc:  # a part of memory that another library owns
        return np.lib.stride_tricks.as_strided(x, shape, strides)
    view: Array = np.ndarray(
        x.shape if shape is None else tuple(shape), x.dtype, root, address_of(x) - address_of(root),
        x.strides if strides is None else tuple(strides),
    )  # fmt: skip
    view.flags.writeable = x.flags.writeable
    return view


class NumpyNamespace(Features):
    """NumPy's functions, with the few that half precision or 0-d results ask to be otherwise."""

    lib = SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=as_strided))
    special = ScipySpecial()
    counts = staticmethod(np.bincount)  # of numbers below the third argument
    sliding_window_view = staticmethod(sliding_window_view)
    track_moment = staticmethod(track_moment)
    floor_divide = staticmethod(divider(np.floor_divide))
    remainder = staticmethod(divider(np.remainder))
    fmod = staticmethod(divider(np.fmod))
    sums_by_blas = True  # on the simulated device, too

    def __init__(self, cache_elements: int | None = None) -> None:
        self.cache_elements = cache_elements

    def __getattr__(self, name: str) -> Any:
        value = getattr(np, name)
        self.__dict__[name] = value  # found without this detour from now on
        return value

    cast = staticmethod(cast)
    index_add = staticmethod(index_add)
    index_reduce = staticmethod(index_reduce)
    quick_exp = staticmethod(quick_exp)
    sparse_product = staticmethod(sparse_product)
    sampled_product = staticmethod(sampled_product)
    along_rows = staticmethod(along_rows)
    copied, copyto = staticmethod(copied), staticmethod(copyto)
    ascontiguousarray = staticmethod(ascontiguousarray)
    where, tril, triu = staticmethod(where), staticmethod(tril), staticmethod(triu)

    @staticmethod
    def broadcast_to(array: Array, shape: Any) -> Array:
        """A view with repeated elements: read-only in NumPy, but a part without any may change."""
        if not array.ndim and type(shape) is tuple and array.flags.c_contiguous:
            return np.ndarray(shape, array.dtype, array, 0, (0,) * len(shape))  # much quicker
        view = np.broadcast_to(array, shape)
        if array.flags.writeable:
            view.flags.writeable = True
        return view

    @staticmethod
    @may_write
    def erf(x: Array) -> Array:
        if x.dtype == np.float32 or is_half(x.dtype):
            return erf_float32(x.astype(np.float32, copy=False)).astype(x.dtype, copy=False)
        return by_number("erf", x)

    @staticmethod
    @may_write
    def erfc(x: Array) -> Array:
        return by_number("erfc", x)

    @staticmethod
    def positive_part(x: Array, out: Array | None = None) -> Array:
        if x.dtype.kind == "f" and x.dtype.itemsize > 2:
            return np.clip(x, 0, inf, out)  # half the time of NumPy's maximum
        if is_half(x.dtype):
            return may_write(positive_part)(x, out=out)
        return np.maximum(x, 0, out=out)

    @staticmethod
    @may_write
    def normal_cdf(x: Array) -> Array:
        if x.dtype == np.float32 or is_half(x.dtype):
            return normal_cdf_float32(x.astype(np.float32, copy=False)).astype(x.dtype, copy=False)
        return NumpyNamespace.erfc(x * -sqrt(0.5)) * 0.5

    @staticmethod
    def matmul(a: Array, b: Array) -> Array:
        if is_half(a.dtype):
            return cast(np.matmul(cast(a, SINGLE), cast(b, SINGLE)), a.dtype)
        return np.matmul(a, b)

    @staticmethod
    def max(a: Array, axis: Any = None, keepdims: bool = False) -> Array:
        return LARGEST(a, axis, None, None, keepdims)

    @staticmethod
    def min(a: Array, axis: Any = None, keepdims: bool = False) -> Array:
        return SMALLEST(a, axis, None, None, keepdims)

    @staticmethod
    def sum(a: Array, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
        if a.size < MANY and dtype is None and a.dtype.char in "fd":
            return TOTAL(a, axis, None, None, keepdims)
        if dtype is None and a.size >= MANY and a.dtype.char in "fd" and a.flags.c_contiguous:
            everything = axis is None or type(axis) is tuple and len(axis) == a.ndim
            if everything and a.size >= 16 * MANY:
                return summed_at_once(a, keepdims)
            if axis in (a.ndim - 1, -1, (a.ndim - 1,), (-1,)) and a.shape[-1] <= MANY:
                return summed_by_blas(a, keepdims)
            if type(axis) is tuple and axis[-1] == a.ndim - 1 and a.shape[-1] <= MANY:
                a, axis = summed_at_the_end(a, axis)
        return reduced(np.add.reduce, a, axis, dtype, keepdims)

    @staticmethod
    def prod(a: Array, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
        if dtype is None and a.dtype.char in "fd" and axis in (None, a.ndim - 1):
            a = multiplied_in_lanes(a, axis is None and not keepdims)
        return reduced(np.multiply.reduce, a, axis, dtype, keepdims)

    @staticmethod
    def mean(a: Array, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
        # not np.mean: its warnings, of empty slices and infinities, come from a file of NumPy's
        half = is_half(a.dtype)
        total = NumpyNamespace.sum(cast(a, SINGLE) if half else a, axis, dtype, keepdims)
        mean = total / (a.size // total.size if total.size else 1)
        return mean.astype(a.dtype) if half else mean

    @staticmethod
    def cumsum(a: Array, axis: int | None = None, dtype: Any = None) -> Array:
        if is_half(a.dtype):
            return cast(np.cumsum(cast(a, SINGLE), axis, dtype), dtype or a.dtype)
        return np.cumsum(a, axis, dtype)

    @staticmethod
    def accumulate(function: str, a: Array, axis: int) -> Array:
        """Running results of an associative function of two arrays, by its name, along an axis."""
        return getattr(np, function).accumulate(a, axis)

    @staticmethod
    def cumprod(a: Array, axis: int | None = None, dtype: Any = None) -> Array:
        if is_half(a.dtype):
            return cast(np.cumprod(cast(a, SINGLE), axis, dtype), dtype or a.dtype)
        return np.cumprod(a, axis, dtype)


LARGE = (1 << 25) - (1 << 16)  # bytes: of blocks that are freed, the largest that glibc learns from
PAIRS = 1 << 16  # normal numbers that are drawn at a time: another number draws others


class HostStream:
    """A stream of the host: every operation is finished when the call returns."""

    ptr = 0

    def wait_event(self, event: Any) -> None:
        """Waits for the event now; the host's own have happened, a thread's may not have."""
        event.synchronize()

    def record_event(self, event: HostEvent | None = None) -> HostEvent:
        event = event or HostEvent()
        event.record(self)
        return event

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False


HOST_STREAM = HostStream()


class HostEvent:
    """An event of the host: it has always happened; it keeps the time when it was recorded."""

    time = 0.0

    def record(self, stream: HostStream | None = None) -> None:
        from time import perf_counter

        self.time = perf_counter()

    def wait(self, stream: HostStream | None = None) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, end_event: HostEvent) -> float:
        """Milliseconds from this event to `end_event`."""
        return (end_event.time - self.time) * 1e3


# The bits of a draw that a narrower float holds exactly, so that rounding never reaches 1.0.
MANTISSA = {"float16": 11, "bfloat16": 8}


class HostRng:
    """Random numbers of the host, from NumPy's counter-based Philox generator."""

    made_of: Any = None  # no kernels are made

    def __init__(self, seed: int) -> None:
        self.seed = seed
        with unforked:  # NumPy imports its generators when they are first asked for
            self._generator = np.random.Generator(np.random.Philox(seed % 2**64))
        kept_over_forks.add(self.lock)

    @property
    def lock(self) -> Any:
        """What NumPy holds while it draws."""
        return self._generator.bit_generator.lock

    def uniform(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        narrow = dtype if dtype in (np.float32, np.float64) else np.dtype("float32")
        drawn = np.asarray(self._generator.random(shape, narrow))
        if dtype.name in MANTISSA:
            steps = 2.0 ** MANTISSA[dtype.name]
            drawn = np.floor(drawn * steps) / steps
        return drawn.astype(dtype, copy=False)

    def normal(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        narrow = dtype if dtype in (np.float32, np.float64) else np.dtype("float32")
        if narrow == np.float32 and prod(shape) >= MANY:
            return self._normal_pairs(prod(shape)).reshape(shape).astype(dtype, copy=False)
        return np.asarray(self._generator.standard_normal(shape, narrow)).astype(dtype, copy=False)

    def _normal_pairs(self, n: int) -> Array:
        """Many of float32, in pairs, whose angle and distance from 0 are drawn (Box and Muller).

        It takes half the time of NumPy's own way, which is by cases.
        """
        out = np.empty(n + n % 2, np.float32)
        for pairs in np.split(out, range(PAIRS, out.size, PAIRS)):
            m = pairs.size // 2
            distance = np.log(1 - self._generator.random(m, np.float32))
            distance *= -2
            np.sqrt(distance, out=distance)
            angle = self._generator.random(m, np.float32)
            angle *= np.float32(2 * np.pi)
            np.multiply(distance, np.cos(angle), out=pairs[:m])
            np.multiply(distance, np.sin(angle, out=angle), out=pairs[m:])
        return out[:n]

    def integers(self, low: int, high: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return np.asarray(self._generator.integers(low, high, shape)).astype(dtype, copy=False)

    def bits(self, p: float, shape: tuple[int, ...]) -> Array:
        """Eight to a byte, flat: whether uniform numbers of float32 are below p."""
        return np.packbits(self.uniform(shape, np.dtype("float32")).reshape(-1) < p)

    def permutation(self, n: int, dtype: np.dtype[Any]) -> Array:
        return self._generator.permutation(n).astype(dtype, copy=False)

    def poisson(self, rate: Array) -> Array:
        return np.asarray(self._generator.poisson(rate))

    def binomial(self, count: Array, chance: Array) -> Array:
        return np.asarray(self._generator.binomial(count, chance))

    def get_state(self) -> Array:
        state: Any = self._generator.bit_generator.state
        words = [
            self.seed % 2**64, *state["state"]["key"], *state["state"]["counter"],
            *state["buffer"], state["buffer_pos"], state["has_uint32"], state["uinteger"],
        ]  # fmt: skip
        return np.array(words, np.uint64).view(np.uint8)

    def set_state(self, state: Array) -> None:
        words = np.ascontiguousarray(state, np.uint8)
        if words.size != 8 * 14:
            raise RuntimeError(
                f"RNG state of the CPU is wrong size: got {words.size} bytes, want {8 * 14}"
            )
        w = words.view(np.uint64)
        self.seed = int(w[0])
        self._generator.bit_generator.state = {
            "bit_generator": "Philox",
            "state": {"key": w[1:3].copy(), "counter": w[3:7].copy()},
            "buffer": w[7:11].copy(),
            "buffer_pos": int(w[11]),
            "has_uint32": int(w[12]),
            "uinteger": int(w[13]),
        }


def _tracer() -> Any:
    """tracemalloc, imported when it is first asked: `import cugrad` is quicker without it."""
    import tracemalloc

    return tracemalloc


class NumpyBackend:
    """Tensors in host memory."""

    name = "numpy"
    readable, runs_rows, makes_kernels, stands_in = True, True, False, False
    keeps_launches = False
    least, widens = LEAST, True  # elementwise rows of half precision are computed in float32
    device_type = "cpu"
    array_types: tuple[type, ...] = (np.ndarray, np.generic)
    xp = NumpyNamespace(cache_elements=Features.block_elements)
    attention: Any = None  # by rows
    grid_sample: Any = None
    ctc_loss: Any = None
    model: Any = None
    host_seconds = staticmethod(perf_counter)

    def __init__(self) -> None:
        # glibc gives freed memory back to the system at once, page by page, until it has seen a
        # large block freed. This one is never touched. Arrays of a step find their memory again.
        np.empty(LARGE, np.uint8)
        self._rows: dict[Any, Callable[..., Any]] = {}  # by op

    def row_function(self, op: Any) -> Callable[..., Any]:
        """A row's forward, see `rows.forward_of`."""
        function = self._rows.get(op)
        if function is None:
            function = self._rows[op] = forward_of(op, self.xp)
        return function

    def run_row(
        self, op: Any, operands: Any, params: dict[str, Any], home: Array | None = None
    ) -> Any:
        """The result of a row, in an array of its own."""
        return self.row_function(op)(*operands, **params)

    def gradients_function(self, op: Any, mask: int, raw: Any) -> Callable[..., Any] | None:
        """The gradients of a node at once, see `rows.gradients_of`."""
        return gradients_of(op, mask, raw)

    def wrap(self, value: Any) -> Array:
        """NumPy answers scalars where the result is 0-d: this is where they become arrays again."""
        return np.asarray(value) if isinstance(value, np.generic) else value

    def asarray(self, value: Any, dtype: np.dtype[Any] | None = None) -> Array:
        return np.asarray(value, dtype)

    def to_host(self, array: Array) -> Array:
        return array

    def device_index(self, array: Array) -> int | None:
        return None

    def holder_of(self, array: Array) -> Any:
        """Nothing: no pool has its memory."""
        return None

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int | None:
        return None

    def use_device(self, index: int | None) -> AbstractContextManager[Any]:
        return NOTHING

    def stream(self, priority: int = 0) -> HostStream:
        return HostStream()

    def current_stream(self) -> HostStream:
        return HOST_STREAM

    def use_stream(self, stream: HostStream) -> AbstractContextManager[Any]:
        return nullcontext(stream)

    def event(self, timing: bool = False) -> HostEvent:
        return HostEvent()

    def empty_pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return np.empty(shape, dtype)

    def is_pinned(self, array: Array) -> bool:
        return False

    def copy_async(self, dst: Array, src: Array, stream: HostStream) -> None:
        np.copyto(dst, src)

    def synchronize(self) -> None:
        pass

    def memory_allocated(self) -> int:
        """Bytes that Python and NumPy hold, as tracemalloc counts; 0 when it does not trace."""
        return _tracer().get_traced_memory()[0]

    def max_memory_allocated(self) -> int:
        return _tracer().get_traced_memory()[1]

    def memory_reserved(self) -> int:
        return self.memory_allocated()

    def max_memory_reserved(self) -> int:
        return self.max_memory_allocated()

    def reset_peak_memory_stats(self) -> None:
        if _tracer().is_tracing():
            _tracer().reset_peak()

    watch_peak, watched_peak = reset_peak_memory_stats, max_memory_allocated  # there is one

    def raise_watched_peak(self, nbytes: int) -> None:
        """Nothing: tracemalloc cannot be told."""

    def empty_cache(self) -> None:
        pass

    def on_out_of_memory(self, reclaim: Callable[[], bool]) -> None:
        """The host's memory has no moment in which it is full and more could be made free."""

    def on_count(self, settle: Callable[[], bool]) -> None:
        """Nothing that is counted here is let go of late."""

    def made_room(self, error: Exception) -> bool:
        return False

    def quiet(self) -> AbstractContextManager[Any]:
        """Arithmetic that overflows or divides by zero says nothing, as on a GPU."""
        return np.errstate(all="ignore")

    def rng(self, seed: int) -> HostRng:
        return HostRng(seed)

    def capture(self, pool: Any, handle: tuple[int, int]) -> NoReturn:
        """NotImplementedError."""
        raise NotImplementedError("cuda graph: the CPU has no CUDA graphs")
