"""Codecs: lossy formats in which saved floating-point tensors take fewer bytes.

A codec turns an array into a payload of bytes on the same device, and back. All of them keep what
is finite finite: a value beyond the format's range becomes the largest that it has.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np

__all__ = ["CODECS", "Codec", "CodecError", "codec_of", "measured_error"]

Array = Any
LARGEST = {
    "float16": 65504.0, "bfloat16": (2 - 2**-7) * 2.0**127, "float32": (2 - 2**-23) * 2.0**127,
    "float64": (2 - 2**-52) * 2.0**1023,
}  # fmt: skip
BYTES = np.dtype(np.uint8)
MEASURED = 1 << 20  # elements of an array whose errors are looked at


class Codec(Protocol):
    """What an object must have to be a codec: a name, and three methods without state.

    `applies` says whether arrays of a NumPy dtype can be encoded, and shrink. `encode` gives a
    one-dimensional contiguous uint8 array on the device of `array`, with everything that `decode`
    needs besides dtype and shape; `decode` gives a new C-contiguous array of these. Both are run on
    the current stream, and must not make the host wait.
    """

    name: str

    def applies(self, dtype: Any) -> bool: ...
    def encode(self, xp: Any, array: Array) -> Array: ...
    def decode(self, xp: Any, payload: Array, dtype: Any, shape: tuple[int, ...]) -> Array: ...


class _Float:
    """What the built-in codecs share: rows of `length` elements, which may have a scale each.

    The payload has the scales first, where they are aligned, then the codes. Large arrays are taken
    in parts, because a part needs some ten times its size for a moment.
    """

    name: str
    takes: tuple[str, ...]
    code: np.dtype[Any]
    scale: np.dtype[Any] | None = None
    part = 1 << 22  # elements
    part_on_host = 1 << 16  # fits its cache: three times as fast

    def applies(self, dtype: Any) -> bool:
        return np.dtype(dtype).name in self.takes

    def _length(self, shape: tuple[int, ...]) -> int:
        return 1

    def _coded(self, xp: Any, rows: Array) -> tuple[Array, Array | None]:
        """The codes of rows of float32 or float64, and their scales."""
        raise NotImplementedError

    def _valued(self, xp: Any, codes: Array, scales: Array | None, dtype: Any) -> Array:
        """What rows of codes stand for, in float32, or float64 where that is `dtype`."""
        raise NotImplementedError

    def _parts(self, payload: Array, size: int, length: int) -> tuple[Array, Array | None]:
        """The codes and the scales of a payload, as views."""
        head = 0 if self.scale is None else -(-size // length) * self.scale.itemsize
        scales = None if self.scale is None else payload[:head].view(self.scale)
        return payload[head:].view(self.code), scales

    def _spans(self, array: Array, size: int, length: int) -> list[tuple[slice, slice]]:
        """The parts of an array: which elements, and which rows."""
        part = self.part_on_host if isinstance(array, np.ndarray) else self.part
        rows = max(1, part // length)
        return [
            (slice(k * length, min((k + rows) * length, size)),
             slice(k, min(k + rows, -(-size // length))))
            for k in range(0, -(-size // length), rows)
        ]  # fmt: skip

    def encode(self, xp: Any, array: Array) -> Array:
        return xp.one_kernel(f"encode {self.name}", lambda: self._encode(xp, array))

    def decode(self, xp: Any, payload: Array, dtype: Any, shape: tuple[int, ...]) -> Array:
        run = lambda: self._decode(xp, payload, dtype, shape)
        return xp.one_kernel(f"decode {self.name}", run)

    def _encode(self, xp: Any, array: Array) -> Array:
        if not self.applies(array.dtype):
            raise TypeError(
                f"codec {self.name!r}: got an array of {array.dtype.name}, want one of "
                f"{', '.join(self.takes)}; applies(dtype) tells"
            )
        flat, length = xp.ascontiguousarray(array).reshape(-1), self._length(array.shape)
        head = 0 if self.scale is None else -(-flat.size // length) * self.scale.itemsize
        payload = xp.empty(head + flat.size * self.code.itemsize, BYTES)
        codes, scales = self._parts(payload, flat.size, length)
        with np.errstate(all="ignore"):  # infinities are values
            for some, rows in self._spans(flat, flat.size, length):
                part, fused = _widened(flat[some]), xp.codecs
                if fused is not None and part.dtype == np.float32:  # in one pass, not twenty
                    scale = None if scales is None else scales[rows]
                    fused.encode(self.name, part, length, codes[some], scale)
                    continue
                coded, scale = self._coded(xp, _grouped(xp, part, length))
                codes[some] = coded.reshape(-1)[: some.stop - some.start]
                if scales is not None and scale is not None:
                    scales[rows] = scale.reshape(-1)
        return payload

    def _decode(self, xp: Any, payload: Array, dtype: Any, shape: tuple[int, ...]) -> Array:
        dtype, size, length = np.dtype(dtype), math.prod(shape), self._length(shape)
        codes, scales = self._parts(payload, size, length)
        out = xp.empty(size, dtype)
        with np.errstate(all="ignore"):  # infinities are values
            for some, rows in self._spans(payload, size, length):
                scale = None if scales is None else scales[rows].reshape(-1, 1)
                fused = xp.codecs
                if fused is not None and dtype.name != "float64":
                    largest = LARGEST[dtype.name]
                    value = fused.decode(self.name, codes[some], scale, length, largest)
                    out[some] = value.astype(dtype, copy=False)
                    continue
                value = self._valued(xp, _grouped(xp, codes[some], length), scale, dtype)
                value = value.reshape(-1)[: some.stop - some.start]
                out[some] = value.astype(dtype, copy=False)
        return out.reshape(shape)

    def __repr__(self) -> str:
        return f"<codec {self.name}>"


def _widened(flat: Array) -> Array:
    """float32 of halves, which is exact; float32 and float64 as they are."""
    if flat.dtype.name == "bfloat16":
        return (flat.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return flat if flat.dtype.itemsize > 2 else flat.astype(np.float32)


def _grouped(xp: Any, flat: Array, length: int) -> Array:
    """The elements as rows of `length`, the last one filled up with zeros."""
    missing = -flat.size % length
    if missing:
        flat = xp.concatenate([flat, xp.zeros((missing,), flat.dtype)])
    return flat.reshape(-1, length)


def _narrowed(xp: Any, rows: Array) -> Array:
    """float32 of float64 that rounds to a half as the float64 would have: the bits that float32
    lacks are remembered in the last of 14 that are kept ("round to odd"), so none is rounded twice.
    """
    if rows.dtype == np.float32:
        return rows
    bits, largest = rows.view(np.int64), LARGEST["float32"]
    dropped = (1 << 39) - 1
    odd = ((bits & dropped) != 0).astype(np.int64) << 39
    kept = ((bits & ~dropped) | odd).view(np.float64)
    return xp.where(xp.isfinite(rows), xp.clip(kept, -largest, largest), rows).astype(np.float32)


def _within(xp: Any, rows: Array, lost: Array, dtype: Any) -> Array:
    """Decoded values without overflow, where the largest was rounded up; nan where `lost`."""
    largest = LARGEST[dtype.name]
    return xp.where(lost, math.nan, xp.clip(rows, -largest, largest))


class BFloat16(_Float):
    """The upper half of a float32, rounded to nearest even: relative error at most 2**-8.

    Infinities and nan stay. Denormal numbers are kept as bfloat16 has them.
    """

    name, takes = "bf16", ("float32", "float64")
    code = np.dtype(np.uint16)

    def _coded(self, xp: Any, rows: Array) -> tuple[Array, Array | None]:
        bits = _narrowed(xp, rows).view(np.uint32)
        upper = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        was = bits & 0x7FFFFFFF
        magnitude = xp.where(was < 0x7F800000, xp.minimum(upper & 0x7FFF, 0x7F7F), 0x7F80)
        magnitude = xp.where(was > 0x7F800000, 0x7FC0, magnitude)
        return (magnitude | ((bits >> 16) & 0x8000)).astype(self.code), None

    def _valued(self, xp: Any, codes: Array, scales: Array | None, dtype: Any) -> Array:
        return (codes.astype(np.uint32) << 16).view(np.float32)


class Float16(_Float):
    """IEEE half precision, rounded to nearest even: relative error at most 2**-11 from 2**-14 to
    65504, absolute error at most 2**-25 below.

    Infinities and nan stay; larger finite values become 65504.
    """

    name, takes = "fp16", ("float32", "float64")
    code = np.dtype(np.float16)

    def _coded(self, xp: Any, rows: Array) -> tuple[Array, Array | None]:
        rows, largest = _narrowed(xp, rows), LARGEST["float16"]
        within = xp.clip(rows, -largest, largest)
        return xp.where(xp.isinf(rows), rows, within).astype(self.code), None

    def _valued(self, xp: Any, codes: Array, scales: Array | None, dtype: Any) -> Array:
        return codes.astype(np.float32)


class Float8(_Float):
    """E4M3 (four bits of exponent, three of mantissa) times a power of two for each 128 elements.

    The power puts the largest element of a block into the top of the range, so nothing saturates.
    Elements down to 2**-13 of the largest have a relative error of at most 2**-4; smaller ones an
    absolute error of at most 2**-17 of the largest, or 2**-130. Infinities and nan come back as
    nan, and do not disturb their neighbours. 1.016 bytes an element. The format is that of
    Micikevicius et al., "FP8 formats for deep learning", 2022.
    """

    name, takes = "fp8", ("float16", "bfloat16", "float32", "float64")
    code, scale = BYTES, np.dtype(np.int16)

    def _length(self, shape: tuple[int, ...]) -> int:
        return 128

    def _coded(self, xp: Any, rows: Array) -> tuple[Array, Array | None]:
        if rows.dtype == np.float32:
            bias, inf, bits = 127, 0x7F800000, rows.view(np.int32)
            negative, key = bits < 0, bits & 0x7FFFFFFF
        else:  # as if of 23 bits of mantissa, the last of which remembers the 29 below
            bias, inf, bits = 1023, 0x7FF << 23, rows.view(np.int64)
            below = ((bits & 0x1FFFFFFF) != 0).astype(np.int64)
            negative, key = bits < 0, ((bits & 0x7FFFFFFFFFFFFFFF) >> 29) | below
        finite = key < inf
        top = xp.max(xp.where(finite, key, 0), axis=1, keepdims=True)
        above = (top & 0x7FFFFF) > 0x680000  # rounds to more than 1.75, which is 448's mantissa
        power = xp.maximum((top >> 23) - 8 + above, 7) - bias
        exponent = (key >> 23).astype(np.int32)
        mantissa = (key & 0x7FFFFF).astype(np.int32) | ((exponent > 0).astype(np.int32) << 23)
        target = xp.maximum(exponent, 1) - (power + (bias - 7)).astype(np.int32)
        shift = 20 + xp.clip(1 - target, 0, 6)  # 3 bits after the first; fewer of denormal numbers
        halfway = (1 << (shift - 1)) - 1 + ((mantissa >> shift) & 1)
        code = ((mantissa + halfway) >> shift) + ((xp.maximum(target, 1) - 1) << 3)
        code = xp.where(finite, code, 0x7F) | (negative.astype(np.int32) << 7)
        return code.astype(self.code), power.astype(self.scale)

    def _valued(self, xp: Any, codes: Array, scales: Array | None, dtype: Any) -> Array:
        wide = np.float64 if dtype.name == "float64" else np.float32
        code = codes.astype(np.int32)
        exponent = (code >> 3) & 15
        mantissa = ((code & 7) | ((exponent > 0).astype(np.int32) << 3)).astype(wide)
        signed = xp.where(code > 0x7F, -mantissa, mantissa)
        value = xp.ldexp(signed, xp.maximum(exponent, 1) - 10 + scales)
        return _within(xp, value, (code & 0x7F) == 0x7F, dtype)


class Int8(_Float):
    """Integers from -127 to 127 times a float32 scale for each row, rounded half to even.

    A row is the last dimension where that is 64 to 4096 long, else 128 elements in order. The scale
    is the row's largest magnitude / 127, rounded up to 17 bits so that products with it are exact:
    the error is at most half a scale. Infinities and nan come back as nan, and do not disturb their
    neighbours. 1.03 bytes an element or less, 1.06 in the shortest rows.
    """

    name, takes = "int8", ("float16", "bfloat16", "float32", "float64")
    code, scale = np.dtype(np.int8), np.dtype(np.float32)

    def _length(self, shape: tuple[int, ...]) -> int:
        return shape[-1] if len(shape) > 1 and 64 <= shape[-1] <= 4096 else 128

    def _coded(self, xp: Any, rows: Array) -> tuple[Array, Array | None]:
        finite = xp.isfinite(rows)
        rows = xp.where(finite, rows, 0)
        top = xp.max(xp.abs(rows), axis=1, keepdims=True) / 127
        top = xp.clip(top, 2.0**-126, 2.0**127).astype(self.scale)
        scale = ((top.view(np.int32) + 0x7F) & ~0x7F).view(self.scale)
        code = xp.clip(xp.rint(rows / scale), -127, 127)
        return xp.where(finite, code, -128).astype(self.code), scale

    def _valued(self, xp: Any, codes: Array, scales: Array | None, dtype: Any) -> Array:
        wide = np.float64 if dtype.name == "float64" else np.float32
        return _within(xp, codes.astype(wide) * scales, codes == -128, dtype)


CODECS: dict[str, Codec] = {c.name: c for c in (BFloat16(), Float16(), Float8(), Int8())}


def codec_of(spec: Any) -> Codec:
    """The codec of a name ("bf16", "fp16", "fp8", "int8"), or the codec that `spec` is itself.

    >>> codec_of("int8")
    <codec int8>
    >>> codec_of("zip")
    Traceback (most recent call last):
    ValueError: compress: got 'zip', want one of 'bf16', 'fp16', 'fp8', 'int8', or a codec
    """
    if isinstance(spec, str):
        if spec not in CODECS:
            names = ", ".join(map(repr, CODECS))
            raise ValueError(f"compress: got {spec!r}, want one of {names}, or a codec")
        return CODECS[spec]
    lacking = [m for m in ("applies", "encode", "decode") if not callable(getattr(spec, m, None))]
    if not isinstance(getattr(spec, "name", None), str):
        lacking.insert(0, "name")
    if lacking or isinstance(spec, type):
        raise TypeError(
            f"compress: got {spec!r}, want one of {', '.join(map(repr, CODECS))}, or an object "
            "with a str `name` and the methods applies(dtype), encode(xp, array) and "
            "decode(xp, payload, dtype, shape)"
            + (f"; it lacks {', '.join(lacking)}" if lacking else "; it is a class")
        )
    codec: Codec = spec
    return codec


class CodecError(NamedTuple):
    """How far an array comes back from where it was: of its finite elements."""

    largest: float  # magnitude of a difference
    relative: float  # root of the sum of squared differences over that of the squared elements


def measured_error(xp: Any, array: Array, codec: Codec) -> CodecError:
    """What `codec` does to the values of an array, of which it looks at a million or two.

    The host waits for the answer.

    >>> from cugrad.backends import get
    >>> xp = get("cpu").xp
    >>> measured_error(xp, xp.asarray([1.0, 1 / 3], "float32"), codec_of("bf16"))
    CodecError(largest=0.000651..., relative=0.000617...)
    """
    back = codec.decode(xp, codec.encode(xp, array), array.dtype, array.shape)
    return error_of([error_terms(xp, array, back)])


def error_terms(xp: Any, before: Array, after: Array) -> tuple[Array, Array, Array, Array]:
    """What `error_of` sums up, as 0-d arrays: the host waits for nothing.

    The largest difference; a unit; sums of squares of the differences and of the elements, in that
    unit, because squares of the largest float64 would overflow. Of many elements every nth is
    looked at: there may be no room for all of them in float64.
    """
    every = max(1, before.size // MEASURED)
    before, after = before.reshape(-1)[::every], after.reshape(-1)[::every]
    if before.size == 0:
        zero = xp.zeros((), np.float64)
        return zero, zero, zero, zero
    wide = np.complex128 if before.dtype.kind == "c" else np.float64
    before, after = before.astype(wide), after.astype(wide)
    finite = xp.isfinite(before) & xp.isfinite(after)
    before = xp.where(finite, before, 0)
    difference, size = xp.abs(xp.where(finite, after, 0) - before), xp.abs(before)
    largest = xp.max(difference)
    unit = xp.maximum(xp.max(size), largest)
    unit = xp.where(unit > 0, unit, 1.0)
    lost, whole = (xp.sum(xp.square(part / unit)) for part in (difference, size))
    return largest, unit, lost, whole


def error_of(terms: list[tuple[Array, Array, Array, Array]]) -> CodecError:
    """The error of several arrays taken together; the host waits."""
    numbers = [tuple([float(x) for x in each]) for each in terms]
    largest = max([n[0] for n in numbers], default=0.0)
    if not largest:
        return CodecError(0.0, 0.0)
    unit = max(n[1] for n in numbers)
    lost, whole = (sum(n[i] * (n[1] / unit) ** 2 for n in numbers) for i in (2, 3))
    return CodecError(largest, math.sqrt(lost / whole) if whole else math.inf)
