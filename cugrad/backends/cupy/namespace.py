"""CuPy's functions under NumPy's names, with the few that half precision or CuPy's gaps ask to be
otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from math import sqrt
from types import SimpleNamespace
from typing import Any

import cupy
import numpy as np

from ..features import Features
from ..wanted import wanted
from ..written_to import may_write
from .arrays import empty_like, zeros_like
from .capture import capturing
from .codecs import CodecKernels
from .cusparse import sparse_product
from .fused.copies import copyto, dense, ones_like
from .fused.rows import mean_of
from .gemm import CheckedLinalg, matmul
from .launches import order
from .windows import as_strided
from .written import cells
from .written.norms import track_moment
from .written.placed.puts import put_at
from .written.placed.several import added_at
from .written.placed.sums import gather
from .written.totals import sum_over

__all__ = ["CupyNamespace"]

Array = Any  # cupy.ndarray

# What CUDA's atomicAdd, and with it each CuPy's add.at, does at full precision.
ATOMIC = frozenset(["int32", "uint32", "uint64", "float32", "float64"])


def is_half(dtype: np.dtype[Any]) -> bool:
    """Whether sums of this dtype must be told to accumulate in float32."""
    return dtype.name in ("float16", "bfloat16")


class CupyxSpecial:
    """cupyx.scipy.special, imported when the first of its functions is asked for."""

    def __getattr__(self, name: str) -> Any:
        import cupyx.scipy.special

        value = getattr(cupyx.scipy.special, name, None)
        if value is None:
            raise NotImplementedError(
                f"CuPy has no {name} among its special functions; compute it on the CPU: "
                'x.to("cpu")'
            )
        self.__dict__[name] = value  # found without this detour from now on
        return value


MOST_TOLD = 8  # arrays that CuPy concatenates by copies alone


class KeptFFT:
    """cupy.fft; a graph that is captured keeps the plans."""

    def __getattr__(self, name: str) -> Any:
        function = getattr(cupy.fft, name)

        @wraps(function)  # its name says to a vmap whether it has one axis or several
        def keeping(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            if capturing.now is not None:
                capturing.now.keep_plans()
            return result

        self.__dict__[name] = keeping
        return keeping


class CupyNamespace(Features):
    """`xp` of the CuPy backend: what is not defined here is CuPy's own."""

    sorts_at_once = True
    workspace_bytes = 256 << 20  # what an op may borrow to launch fewer, larger kernels

    codecs = CodecKernels()
    matmul = staticmethod(matmul)
    copied, copyto = staticmethod(order.copied), staticmethod(copyto)
    in_memory_order = staticmethod(order.in_memory_order)
    linalg, fft = CheckedLinalg(), KeptFFT()
    lib = SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=as_strided))
    special = CupyxSpecial()
    track_moment = staticmethod(track_moment)
    sparse_product = staticmethod(sparse_product)
    put_at = staticmethod(put_at)
    lstm_step, lstm_back = staticmethod(cells.lstm_step), staticmethod(cells.lstm_back)
    lstm_slopes, gru_slopes = staticmethod(cells.lstm_slopes), staticmethod(cells.gru_slopes)
    ascontiguousarray = staticmethod(dense)
    gru_step, gru_back = staticmethod(cells.gru_step), staticmethod(cells.gru_back)
    empty_like = staticmethod(empty_like)
    ones_like, zeros_like = staticmethod(ones_like), staticmethod(zeros_like)

    def __getattr__(self, name: str) -> Any:
        value = getattr(cupy, name)
        self.__dict__[name] = value  # found without this detour from now on
        return value

    @staticmethod
    def concatenate(arrays: Sequence[Array], axis: int = 0) -> Array:
        """As NumPy's. Of more arrays than MOST_TOLD, CuPy copies the addresses from the host, which
        a graph cannot: while one is captured they are joined by so many.
        """
        if len(arrays) <= MOST_TOLD or not cupy.cuda.get_current_stream().is_capturing():
            return cupy.concatenate(arrays, axis)
        starts = range(0, len(arrays), MOST_TOLD)
        parts = [cupy.concatenate(arrays[i : i + MOST_TOLD], axis) for i in starts]
        return CupyNamespace.concatenate(parts, axis)

    @staticmethod
    def stack(arrays: Sequence[Array], axis: int = 0) -> Array:
        """As NumPy's, by the above."""
        if len(arrays) <= MOST_TOLD:
            return cupy.stack(arrays, axis)
        return CupyNamespace.concatenate([cupy.expand_dims(x, axis) for x in arrays], axis)

    @staticmethod
    def index_add(array: Array, index: Any, values: Any) -> None:
        """`array[index] += values` in place, where duplicates in `index` add up.

        The order of the additions, and so the last bits of a float result, differ from run to run,
        unless they are few, or the user wants deterministic results.
        """
        if added_at(array, index, values):
            return
        if wanted.deterministic and array.dtype.kind not in "iub":
            CupyNamespace._reduce_sorted(array, index, values, "add")
        elif array.dtype.name in ATOMIC:
            cupy.add.at(array, index, values)
        elif array.dtype.name == "int64":  # of which CuPy 14.0 has none: the bits are the same
            whole = cupy.asarray(values, np.int64).view(np.uint64)
            cupy.add.at(array.view(np.uint64), index, whole)
        elif array.dtype.kind == "c":
            values = cupy.asarray(values, array.dtype)
            cupy.add.at(array.real, index, values.real)
            cupy.add.at(array.imag, index, values.imag)
        else:  # no such atomic, or one that rounds after every addition
            wide = array.astype(np.float32 if is_half(array.dtype) else np.int32)
            cupy.add.at(wide, index, cupy.asarray(values, wide.dtype))
            array[...] = wide

    @staticmethod
    def index_reduce(array: Array, index: Any, values: Any, how: str) -> None:
        """`array[index] = how(array[index], values)` in place, for every duplicate in `index`; the
        last of them with `how` "last".
        """
        if how == "add":
            CupyNamespace.index_add(array, index, values)
        else:
            CupyNamespace._reduce_sorted(array, index, values, how)

    @staticmethod
    def _reduce_sorted(array: Array, index: Any, values: Any, how: str) -> None:
        """index_reduce by pairs, in an order that is the same in each run.

        Sorted by where they go, values meet their neighbours at a distance of 1, 2, 4, ...; the
        last of each run then holds the run's total; with "last" it is what it was. CuPy's sort is
        stable. Nothing waits, and every dtype is served.
        """
        if not array.size:
            return
        places = cupy.arange(array.size).reshape(array.shape)[index]
        ufunc = None if how == "last" else getattr(cupy, how)
        kind = np.dtype(np.float32) if is_half(array.dtype) else array.dtype
        wide = cupy.broadcast_to(cupy.asarray(values), places.shape).astype(kind).reshape(-1)
        places = places.reshape(-1)
        order = cupy.argsort(places)
        places, wide = places[order], wide[order]
        distance = 1
        while ufunc is not None and distance < places.size:
            alike = places[distance:] == places[:-distance]
            met = ufunc(wide[distance:], wide[:-distance])
            wide[distance:] = cupy.where(alike, met, wide[distance:])
            distance *= 2
        flat = cupy.concatenate([array.reshape(-1).astype(kind), cupy.zeros(1, kind)])
        end = cupy.ones(int(places.size > 0), "?")
        is_last = cupy.concatenate([places[1:] != places[:-1], end])
        places = cupy.where(is_last, places, array.size)  # all others go to a place beyond
        flat[places] = wide if ufunc is None else ufunc(flat[places], wide)
        array[...] = flat[:-1].reshape(array.shape)

    @staticmethod
    def bincount(x: Array, weights: Array | None = None, minlength: int = 0) -> Array:
        """Waits once, for the largest; CuPy's waits for the least, too."""
        size = max(minlength, int(x.max()) + 1 if x.size else 0)
        return CupyNamespace.counts(x, weights, size)

    @staticmethod
    def counts(x: Array, weights: Array | None, size: int) -> Array:
        """How often each number below `size` occurs, or its weights; there is no other number."""
        x = x.astype(np.int64, copy=False)
        if weights is None:
            out = cupy.zeros(size, np.uint64)
            cupy.add.at(out, x, cupy.ones(x.shape, np.uint64))
            return out.view(np.int64)
        out = cupy.zeros(size, np.float64)
        if wanted.deterministic:  # atomics add in any order
            CupyNamespace.index_add(out, x, weights)
        else:
            cupy.add.at(out, x, weights)
        return out

    @staticmethod
    def where(condition: Array, x: Any = None, y: Any = None) -> Any:
        """NumPy's where; CuPy's has no bfloat16 loop and would answer float32, so bits are
        chosen.
        """
        dtypes = {v.dtype for v in (x, y) if hasattr(v, "dtype")}
        if len(dtypes) != 1 or next(iter(dtypes)).name != "bfloat16":
            return cupy.where(condition, x, y)
        bfloat16 = dtypes.pop()
        chosen = cupy.where(condition, _bits(x, bfloat16), _bits(y, bfloat16))
        return chosen.view(bfloat16)

    @staticmethod
    def clip(a: Array, a_min: Any = None, a_max: Any = None) -> Array:
        """NumPy's clip; CuPy's has no bfloat16 loop."""
        if a.dtype.name != "bfloat16":
            return cupy.clip(a, a_min, a_max)
        out = a if a_min is None else cupy.maximum(a, a_min)
        out = out if a_max is None else cupy.minimum(out, a_max)
        return out.astype(a.dtype)

    @staticmethod
    def tril(m: Array, k: int = 0) -> Array:
        """NumPy's tril; CuPy's answers float32 for bfloat16."""
        kept = cupy.tri(*m.shape[-2:], k, bool)
        return CupyNamespace.where(kept, m, m.dtype.type(0))

    @staticmethod
    def triu(m: Array, k: int = 0) -> Array:
        """NumPy's triu; CuPy's answers float32 for bfloat16."""
        left_out = cupy.tri(*m.shape[-2:], k - 1, bool)
        return CupyNamespace.where(left_out, m.dtype.type(0), m)

    @staticmethod
    @may_write
    def round(a: Array, decimals: int = 0) -> Array:
        """NumPy's round; CuPy's answers float32 for bfloat16."""
        if decimals == 0 and a.dtype.kind not in "iub":
            return cupy.rint(a)
        return cupy.round(a, decimals).astype(a.dtype, copy=False)

    @staticmethod
    def logical_and(x1: Any, x2: Any) -> Array:
        """Whether both are not 0; CuPy has no loops for complex numbers."""
        return cupy.logical_and(_is_true(x1), _is_true(x2))

    @staticmethod
    def logical_or(x1: Any, x2: Any) -> Array:
        """Whether one is not 0; CuPy has no loops for complex numbers."""
        return cupy.logical_or(_is_true(x1), _is_true(x2))

    @staticmethod
    def logical_xor(x1: Any, x2: Any) -> Array:
        """Whether just one is not 0; CuPy has no loops for complex numbers."""
        return cupy.logical_xor(_is_true(x1), _is_true(x2))

    @staticmethod
    def logical_not(x: Array) -> Array:
        """Whether it is 0; CuPy has no loops for complex numbers."""
        return cupy.logical_not(_is_true(x))

    @staticmethod
    def remainder(x1: Any, x2: Any) -> Array:
        """NumPy's remainder. CuPy's is x1 - floor(x1 / x2) * x2: nan for a divisor that is
        infinite, and out of range where the quotient is not exact.
        """
        rest = cupy.fmod(x1, x2)
        if rest.dtype.kind in "iub":
            return cupy.remainder(x1, x2)
        other_side = (rest != 0) & ((rest < 0) != (x2 < 0))
        return CupyNamespace.where(other_side, rest + x2, rest)

    @staticmethod
    def floor_divide(x1: Any, x2: Any) -> Array:
        """NumPy's floor_divide, which is exact. CuPy's is floor(x1 / x2), where the quotient has
        been rounded, perhaps up to the next whole number.
        """
        rest = cupy.fmod(x1, x2)
        if rest.dtype.kind in "iub":
            return cupy.floor_divide(x1, x2)
        if is_half(rest.dtype):  # as PyTorch, which rounds once
            wide = [x.astype(np.float32) if hasattr(x, "dtype") else x for x in (x1, x2)]
            return CupyNamespace.floor_divide(*wide).astype(rest.dtype)
        exact = (x1 - rest) / x2
        exact = exact - ((rest != 0) & ((rest < 0) != (x2 < 0)))
        whole = cupy.floor(exact)
        whole = whole + (exact - whole > 0.5)
        rounded = cupy.true_divide(x1, x2)
        whole = CupyNamespace.where(exact == 0, cupy.copysign(whole * 0, rounded), whole)
        if not hasattr(x2, "dtype"):
            return rounded if x2 == 0 else whole
        return CupyNamespace.where(x2 == 0, rounded, whole)

    @staticmethod
    def take_along_axis(a: Array, indices: Array, axis: int | None = -1) -> Array:
        """NumPy's, by one kernel, where CuPy's makes an index for each dim."""
        if wanted.fused and axis is not None and type(a) is type(indices) is cupy.ndarray:
            result = gather(a, indices, axis % max(a.ndim, 1))
            if result is not None:
                return result
        return cupy.take_along_axis(a, indices, axis)

    @staticmethod
    def argpartition(a: Array, kth: int, axis: int = -1) -> Array:
        """NumPy's argpartition along an axis, where nan is the largest number: CuPy's compares with
        < alone.

        CuPy's is fast where `kth` is small: from the far half it counts from the other end.
        """
        keys, n = _order_keys(a), a.shape[axis]
        if 2 * kth < n:
            return cupy.argpartition(keys, kth, axis)
        return cupy.flip(cupy.argpartition(~keys, n - 1 - kth, axis), axis)

    @staticmethod
    def partition(a: Array, kth: int, axis: int = -1) -> Array:
        """NumPy's partition along an axis: a sort, as CuPy's about the middle is, and which does
        not wait for the device as CuPy's does.
        """
        return CupyNamespace.sort(a, axis)

    @staticmethod
    @may_write
    def erf(x: Array) -> Array:
        """The error function, elementwise; half precision goes through float32."""
        from cupyx.scipy.special import erf

        return erf(x.astype(np.float32)).astype(x.dtype) if is_half(x.dtype) else erf(x)

    @staticmethod
    @may_write
    def erfc(x: Array) -> Array:
        """1 - erf, without its cancellation; half precision goes through float32."""
        from cupyx.scipy.special import erfc

        return erfc(x.astype(np.float32)).astype(x.dtype) if is_half(x.dtype) else erfc(x)

    @staticmethod
    def positive_part(x: Array, out: Array | None = None) -> Array:
        """The numbers above 0, and 0 for others."""
        return cupy.maximum(x, 0, out=out)

    @staticmethod
    @may_write
    def normal_cdf(x: Array) -> Array:
        """The probability of a number below x, of those from the standard normal distribution; of
        half precision in float32.
        """
        wide = x.astype(np.float32) if is_half(x.dtype) else x
        return (0.5 * (1 + CupyNamespace.erf(sqrt(0.5) * wide))).astype(x.dtype, copy=False)

    @staticmethod
    def quick_exp(x: Array, factor: float = 1.0, out: Array | None = None) -> Array:
        """e^(x * factor)."""
        return cupy.exp(x if factor == 1 else x * factor, out=out)

    @staticmethod
    def sliding_window_view(x: Array, window_shape: Any, axis: Any = None) -> Array:
        """NumPy's sliding_window_view; CuPy's own copies the window's sizes from the device, which
        waits.
        """
        windows = window_shape if isinstance(window_shape, tuple) else (window_shape,)
        if axis is None:
            axes = tuple(range(x.ndim))
        else:
            axes = axis if isinstance(axis, tuple) else (axis,)
        if len(windows) != len(axes):
            raise ValueError(f"sliding_window_view: got window {windows} for axes {axes}")
        shape = list(x.shape)
        for window, a in zip(windows, axes):
            if not 0 <= window <= shape[a]:
                raise ValueError(f"sliding_window_view: window {window} is longer than {shape[a]}")
            shape[a] -= window - 1
        strides = x.strides + tuple([x.strides[a] for a in axes])
        return as_strided(x, (*shape, *windows), strides)

    @staticmethod
    def sum(a: Array, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
        if dtype is None:
            sums = sum_over(a, axis, keepdims)
            if sums is not None:
                return sums
        return _reduce(cupy.sum, a, axis, dtype, keepdims)

    @staticmethod
    def prod(a: Array, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
        return _reduce(cupy.prod, a, axis, dtype, keepdims)

    @staticmethod
    def mean(a: Array, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
        if dtype is None:
            mean = mean_of(a, axis, keepdims)
            if mean is not None:
                return mean
        return _reduce(cupy.mean, a, axis, dtype, keepdims)

    @staticmethod
    def cumsum(a: Array, axis: int | None = None, dtype: Any = None) -> Array:
        return _scan(cupy.cumsum, a, axis, dtype)

    @staticmethod
    def accumulate(function: str, a: Array, axis: int) -> Array:
        """Running results of an associative function of two arrays, by its name, along an axis.

        CuPy accumulates sums and products only: spans of 1, 2, 4, ... elements are joined.
        """
        join, out, span, n = getattr(cupy, function), a.copy(), 1, a.shape[axis]
        lead = (slice(None),) * axis
        while span < n:
            late = (*lead, slice(span, n))
            out[late] = join(out[(*lead, slice(0, n - span))], out[late])
            span *= 2
        return out

    @staticmethod
    def cumprod(a: Array, axis: int | None = None, dtype: Any = None) -> Array:
        return _scan(cupy.cumprod, a, axis, dtype)

    @staticmethod
    def sort(a: Array, axis: int = -1) -> Array:
        """A sorted copy; half precision is sorted as float32, which keeps its order."""
        if is_half(a.dtype):
            return cupy.sort(a.astype(np.float32), axis).astype(a.dtype)
        return cupy.sort(a, axis)

    @staticmethod
    def argsort(a: Array, axis: int = -1, kind: str | None = None, stable: bool = False) -> Array:
        """Indices that sort; CuPy's sort is stable whatever is asked for."""
        return cupy.argsort(a.astype(np.float32) if is_half(a.dtype) else a, axis)


def _is_true(value: Any) -> Any:
    """Complex numbers as whether they are not 0; anything else as it is."""
    return value != 0 if getattr(value, "dtype", np.dtype(bool)).kind == "c" else value


def _order_keys(a: Array) -> Array:
    """Integers in the order of an array's numbers, with nan above all.

    As integers the bits of positive floats are in order; those of negative ones are, once all but
    the sign are turned around.
    """
    if a.dtype.kind in "iub":
        return a
    wide = a.astype(np.float32) if is_half(a.dtype) else a
    whole = np.dtype(f"i{wide.itemsize}")
    bits, largest = wide.view(whole), np.iinfo(whole).max
    keys = cupy.where(bits < 0, bits ^ largest, bits)
    return cupy.where(wide == wide, keys, largest)


def _bits(value: Any, bfloat16: np.dtype[Any]) -> Any:
    """The bit pattern of a bfloat16 array, or of a number as bfloat16: a Python int, which promotes
    nothing."""
    if hasattr(value, "dtype"):
        return value.view(np.uint16)
    return int(np.asarray(value, bfloat16).view(np.uint16))


def _reduce(reduction: Any, a: Array, axis: Any, dtype: Any, keepdims: bool) -> Array:
    """A reduction of half precision that accumulates in float32: CuPy's fast path for a dense
    float16 array (CUB) would accumulate in float16, and naming another dtype turns that path off.
    """
    if dtype is None and is_half(a.dtype):
        return reduction(a, axis=axis, dtype=np.float32, keepdims=keepdims).astype(a.dtype)
    return reduction(a, axis=axis, dtype=dtype, keepdims=keepdims)


def _scan(scan: Any, a: Array, axis: int | None, dtype: Any) -> Array:
    if is_half(a.dtype) and dtype in (None, a.dtype):
        wide = a.astype(np.float32) if axis is None else a  # whose kernel reads no bfloat16
        return scan(wide, axis=axis, dtype=np.float32).astype(a.dtype)
    return scan(a, axis=axis, dtype=dtype)
