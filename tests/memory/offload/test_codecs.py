"""Codecs: what comes back is as near as theory says, and roundings are ml_dtypes', bit by bit."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

from cugrad import backends
from cugrad.memory.codecs import CODECS, LARGEST, codec_of, measured_error
from tests.conftest import usable_devices

hypothesis = pytest.importorskip("hypothesis")
ml_dtypes = pytest.importorskip("ml_dtypes")
given, settings, st = hypothesis.given, hypothesis.settings, hypothesis.strategies

Host = np.ndarray[Any, Any]
HOST = backends.get("cpu").xp
BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(np.float16), BF16, np.dtype(np.float32), np.dtype(np.float64)]
PAIRS = [(c, d) for c in CODECS for d in DTYPES if CODECS[c].applies(d)]
over_pairs = pytest.mark.parametrize("name, dtype", PAIRS, ids=[f"{c}-{d.name}" for c, d in PAIRS])
# nan and overflow are what much of this is about; codecs themselves warn of nothing
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
over_devices = pytest.mark.parametrize("place", usable_devices())


def through(name: str, array: Host, place: str = "cpu") -> Host:
    """An array encoded and decoded, with what every payload and result must be."""
    backend, codec = backends.get(place), codec_of(name)
    x = backend.asarray(array)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        payload = codec.encode(backend.xp, x)
        back = codec.decode(backend.xp, payload, array.dtype, array.shape)
    assert type(payload) is type(x) and payload.dtype == np.uint8 and payload.ndim == 1
    assert type(back) is type(x) and back.dtype == array.dtype and back.shape == array.shape
    assert back.flags.c_contiguous and payload.flags.c_contiguous
    return np.array(backend.to_host(back))


def bits_of(array: Host) -> Host:
    return array.view(f"u{array.dtype.itemsize}")


def all_halves(dtype: Any = np.float16) -> Host:
    return np.arange(1 << 16, dtype=np.uint16).view(dtype)


def random_floats(dtype: Any, n: int = 200_000, seed: int = 0) -> Host:
    """Floats of random bits: all exponents alike, both signs, nan and infinities among them."""
    size = np.dtype(dtype).itemsize
    raw = np.random.default_rng(seed).bytes(n * size)
    return np.frombuffer(raw, f"u{size}").view(dtype)


def ordinary(shape: Any, dtype: Any, seed: int = 0) -> Host:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def same(a: Host, b: Host) -> None:
    """Equal bit by bit, but for which nan a nan is."""
    nan = np.isnan(a.astype(np.float64))
    assert np.array_equal(nan, np.isnan(b.astype(np.float64)))
    assert np.array_equal(bits_of(a)[~nan], bits_of(b)[~nan])


# The halves -----------------------------------------------------------------------------------


def rounded_to_bfloat16(x: Host) -> Host:
    """ml_dtypes' rounding of float32 and halves, which this library saturates."""
    finite = np.isfinite(x)
    found = np.clip(x, -LARGEST["bfloat16"], LARGEST["bfloat16"]).astype(x.dtype)
    return np.where(finite, found, x).astype(BF16)


@over_devices
def test_bf16_rounds_as_ml_dtypes_does(place: str) -> None:
    near_ties = bits_of(all_halves(BF16)).astype(np.uint32)[:, None] << 16 | np.array(
        [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32
    )
    for x in (
        all_halves().astype(np.float32), all_halves(BF16).astype(np.float32),
        near_ties.view(np.float32), random_floats(np.float32),
    ):  # fmt: skip
        same(through("bf16", x, place), rounded_to_bfloat16(x).astype(np.float32))


@over_devices
def test_fp16_rounds_as_numpy_does(place: str) -> None:
    halves = all_halves().astype(np.float32)
    middles = ((halves[:-1].astype(np.float64) + halves[1:]) / 2).astype(np.float32)
    for x in (halves, middles, all_halves(BF16).astype(np.float32), random_floats(np.float32)):
        wanted = np.where(np.isinf(x), x, np.clip(x, -65504, 65504)).astype(np.float16)
        same(through("fp16", x, place), wanted.astype(np.float32))


@pytest.mark.parametrize("name, digits, least", [("bf16", 8, -133), ("fp16", 11, -24)])
def test_float64_is_rounded_once(name: str, digits: int, least: int) -> None:
    """Beside a tie of the half, by less than a float32 can tell, nearest is another neighbour."""
    rng = np.random.default_rng(1)
    exponent = rng.integers(least - 3, 16, 20_000).astype(np.float64)
    step = 2.0 ** np.maximum(exponent - digits + 1, least)
    middle = (rng.integers(0, 2**digits, 20_000) + 0.5) * step
    middle = middle[middle < 60_000]
    for x in (middle, np.nextafter(middle, 0), np.nextafter(middle, np.inf)):
        grid = 2.0 ** np.maximum(np.floor(np.log2(x)) - digits + 1, least)
        assert np.array_equal(through(name, x), np.rint(x / grid) * grid)


@pytest.mark.parametrize("name", ["bf16", "fp16"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_of_the_half_come_back_exactly(name: str, dtype: Any) -> None:
    x = all_halves(BF16 if name == "bf16" else np.float16).astype(dtype)
    same(through(name, x), x)


# fp8 ------------------------------------------------------------------------------------------


def block_of(x: Host, top: float) -> Host:
    """`x` in blocks of 127, with one more element that decides the block's power of two."""
    missing = -x.size % 127
    rows = np.concatenate([x, np.zeros(missing, x.dtype)]).reshape(-1, 127)
    return np.concatenate([rows, np.full((len(rows), 1), top, x.dtype)], 1)


@over_devices
@pytest.mark.parametrize("power", [-90, -12, 0, 3, 100])
def test_fp8_rounds_as_ml_dtypes_does(place: str, power: int) -> None:
    """With 448 in the block its power is 0, and codes are those of float8_e4m3fn."""
    e4m3 = ml_dtypes.float8_e4m3fn
    codes = np.arange(256, dtype=np.uint8).view(e4m3).astype(np.float64)
    codes = np.sort(codes[np.isfinite(codes)])
    middles = (codes[1:] + codes[:-1]) / 2
    halves = all_halves().astype(np.float32)
    near = np.concatenate([codes, middles, middles * (1 + 2**-20), middles * (1 - 2**-20)])
    for x in (near.astype(np.float32), halves[np.abs(halves) <= 448],
              random_floats(np.float32)):  # fmt: skip
        x = x[(np.abs(x) <= 448) | ~np.isfinite(x)]
        wanted = block_of(x, 448.0).astype(e4m3).astype(np.float32)
        scaled, wanted = (np.ldexp(a, power) for a in (block_of(x, 448.0), wanted))
        if power >= -12:
            same(through("fp8", scaled, place), wanted)
        else:  # the smallest of them are no float32 after the power
            found = through("fp8", scaled, place)
            clear = np.abs(scaled) > 2.0**-120
            assert np.array_equal(found[clear], wanted[clear])


def test_fp8_rounds_float64_once() -> None:
    e4m3 = ml_dtypes.float8_e4m3fn
    codes = np.arange(256, dtype=np.uint8).view(e4m3).astype(np.float64)
    codes = np.sort(codes[codes > 0])
    middles = (codes[1:] + codes[:-1]) / 2
    for far, x in ((0, np.nextafter(middles, 0)), (1, np.nextafter(middles, 500))):
        wanted = codes[far:][: len(middles)]
        for power in (-900, -200, 0, 900):
            found = through("fp8", np.ldexp(block_of(x, 448.0), power))
            found = np.ldexp(found, -power)[:, :127].reshape(-1)[: len(x)]
            assert np.array_equal(found, wanted), power


def test_fp8_of_all_halves_as_one_tensor() -> None:
    for dtype in (np.dtype(np.float16), BF16):
        x = all_halves(dtype)
        back = through("fp8", x).astype(np.float64)
        wide = x.astype(np.float64)
        finite = np.isfinite(wide)
        assert np.isnan(back[~finite]).all() and np.isfinite(back[finite]).all()
        groups = np.abs(np.where(finite, wide, 0)).reshape(-1, 128).max(1, keepdims=True)
        bound = np.maximum(np.abs(wide) * 2.0**-4, np.maximum(groups * 2.0**-17, 2.0**-130)
                           .repeat(128, 1).reshape(-1))  # fmt: skip
        assert (np.abs(back - wide) <= bound)[finite].all()


# int8 -----------------------------------------------------------------------------------------


@over_devices
def test_int8_is_within_half_a_scale(place: str) -> None:
    for shape in ((7, 64), (3, 5, 100), (1000,), (6, 33)):
        x = ordinary(shape, np.float32) * 10
        length = shape[-1] if len(shape) > 1 and shape[-1] >= 64 else 128
        flat = np.concatenate([x.reshape(-1), np.zeros(-x.size % length, np.float32)])
        rows = np.abs(flat.reshape(-1, length))
        half = rows.max(1) / 127 / 2 * (1 + 2.0**-16)
        error = np.abs(through("int8", x, place).reshape(-1).astype(np.float64) - x.reshape(-1))
        assert (error <= half.repeat(length)[: x.size]).all()


def test_int8_rounds_half_to_even() -> None:
    x = np.array([127, 0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 63.49, *np.zeros(120)], np.float32)
    assert through("int8", x)[:8].tolist() == [127, 0, 2, 2, -0.0, -2, 126, 63]


def test_int8_integers_come_back_exactly() -> None:
    for dtype in DTYPES:
        x = np.concatenate([np.arange(-127, 1), np.arange(128)]).astype(dtype)
        assert np.array_equal(through("int8", x), x)


def test_int8_rows_have_scales_of_their_own() -> None:
    x = ordinary((4, 256), np.float32) * np.array([[1e-20], [1], [1e6], [0]], np.float32)
    back = through("int8", x)
    error = np.abs(back - x).max(1) / np.maximum(np.abs(x).max(1), 1e-30)
    assert (error <= 0.5 / 127 * 1.001).all() and not back[3].any()


# All of them ----------------------------------------------------------------------------------


def bound_of(name: str, x: Host) -> Any:
    """The largest error that the codec's docstring allows, by element."""
    size = np.abs(x)
    if name == "bf16":
        return np.maximum(size * 2.0**-8, 2.0**-134)
    if name == "fp16":
        return np.maximum(np.maximum(size * 2.0**-11, 2.0**-25), size - 65504)
    top = np.max(size) if size.size else 0.0  # one block
    if name == "fp8":
        return np.maximum(size * 2.0**-4, max(top * 2.0**-17, 2.0**-130))
    return max(top / 127, 2.0**-126) / 2 * (1 + 2.0**-16) + size * 2.0**-7 * (top > 0)


def floats(dtype: Any) -> Any:
    """Finite values of a dtype; of float64 those in the range of float32, as bf16's is."""
    top = min(LARGEST[np.dtype(dtype).name], 2.0**120)
    return st.floats(-top, top, width=64)


@over_pairs
@settings(max_examples=60)
@given(data=st.data())
def test_errors_are_within_what_theory_says(name: str, dtype: Any, data: Any) -> None:
    values = data.draw(st.lists(floats(dtype), max_size=128))
    x = np.array(values, np.float64).astype(dtype)
    back = through(name, x).astype(np.float64)
    wide = x.astype(np.float64)
    assert np.isfinite(back).all()
    assert (np.abs(back - wide) <= bound_of(name, wide)).all()


# int8 of a half rounds again: a product of a code and a scale is no half
@pytest.mark.parametrize("name, dtype", [p for p in PAIRS if p[0] != "int8" or p[1].itemsize > 2])
@settings(max_examples=40)
@given(data=st.data())
def test_twice_is_as_once(name: str, dtype: Any, data: Any) -> None:
    values = data.draw(st.lists(floats(dtype), max_size=300))
    once = through(name, np.array(values, np.float64).astype(dtype))
    same(through(name, once), once)


@over_pairs
@over_devices
def test_what_is_not_finite(name: str, dtype: Any, place: str) -> None:
    """nan stays nan, infinities stay or are nan, and their neighbours are as without them."""
    x = ordinary((3, 100), dtype)
    clean = through(name, np.where(np.arange(300).reshape(3, 100) % 37 == 5, 0, x).astype(dtype))
    dirty = x.copy()
    spots = np.flatnonzero(np.arange(300) % 37 == 5)
    dirty.reshape(-1)[spots] = np.resize([np.nan, np.inf, -np.inf], len(spots)).astype(dtype)
    back = through(name, dirty, place).reshape(-1)
    special, wide = back[spots].astype(np.float64), dirty.reshape(-1)[spots].astype(np.float64)
    if name in ("bf16", "fp16"):
        assert np.array_equal(special, wide, equal_nan=True)
    else:
        assert np.isnan(special).all()
    rest = np.delete(np.arange(300), spots)
    assert np.array_equal(bits_of(back)[rest], bits_of(clean.reshape(-1))[rest])


@over_pairs
@over_devices
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (127,), (129,), (2, 64), (5, 3, 7)])
def test_any_shape(name: str, dtype: Any, place: str, shape: tuple[int, ...]) -> None:
    x = ordinary(shape, np.float64).astype(dtype) if shape else np.array(0.3, dtype)
    back = through(name, x, place)
    assert np.array_equal(back.astype(np.float64), through(name, x).astype(np.float64))
    assert np.allclose(back.astype(np.float64), x.astype(np.float64), 0.07, 0.02)


@over_pairs
def test_zeros_and_their_signs(name: str, dtype: Any) -> None:
    x = np.array([0.0, -0.0, 1.0, 0.0], dtype)
    for zeros in (x, x * 0):
        back = through(name, zeros)
        assert np.array_equal(back == 0, zeros == 0)
        if name != "int8":
            assert np.array_equal(np.signbit(back), np.signbit(zeros))


@over_pairs
def test_the_largest_stays_finite(name: str, dtype: Any) -> None:
    top = LARGEST[dtype.name]
    back = through(name, np.array([top, -top, top / 2], np.float64).astype(dtype))
    assert np.isfinite(back.astype(np.float64)).all()
    assert back[0] > 0 > back[1]


@over_pairs
def test_strided_and_transposed_arrays(name: str, dtype: Any) -> None:
    x = ordinary((70, 66), dtype)
    for view in (x.T, x[::2, ::-1], np.broadcast_to(x[:1], x.shape)):
        assert np.array_equal(through(name, view), through(name, np.ascontiguousarray(view)))


@over_pairs
def test_bytes(name: str, dtype: Any) -> None:
    for shape in ((1000, 64), (64_000,), (16, 4000)):
        payload = CODECS[name].encode(HOST, ordinary(shape, dtype))
        each = payload.nbytes / 64_000
        assert each == 2 if name in ("bf16", "fp16") else 1 < each <= (1.02, 1.0625)[name == "int8"]


@pytest.mark.parametrize("name", CODECS)
def test_what_is_refused(name: str) -> None:
    codec = codec_of(name)
    for dtype in (bool, np.int8, np.uint8, np.int64, np.complex64, np.complex128):
        assert not codec.applies(np.dtype(dtype))
        with pytest.raises(TypeError, match=f"codec '{name}': got an array of {np.dtype(dtype)}"):
            codec.encode(HOST, np.zeros(3, dtype))
    halves = [codec.applies(d) for d in (np.dtype(np.float16), BF16)]
    assert halves == [name in ("fp8", "int8")] * 2  # the others would save nothing


class Truncated:
    """A codec of one's own."""

    name = "truncated"

    def applies(self, dtype: Any) -> bool:
        return bool(dtype == np.float32)

    def encode(self, xp: Any, array: Any) -> Any:
        return xp.trunc(array).reshape(-1).astype(np.int8).view(np.uint8)

    def decode(self, xp: Any, payload: Any, dtype: Any, shape: Any) -> Any:
        return payload.view(np.int8).astype(dtype).reshape(shape)


def test_codec_of() -> None:
    own = Truncated()
    assert codec_of(own) is own
    for name, codec in CODECS.items():
        assert codec_of(name) is codec and codec.name == name and codec_of(codec) is codec
    with pytest.raises(ValueError, match="compress: got 'zip', want one of 'bf16', 'fp16', 'fp8'"):
        codec_of("zip")
    for wrong in (8, None, object(), Truncated, lambda t: t):
        with pytest.raises(TypeError, match="want one of 'bf16', .* or an object with a str `name"):
            codec_of(wrong)
    own.name = 3  # type: ignore[assignment]
    with pytest.raises(TypeError, match="it lacks name"):
        codec_of(own)


# The measured error -----------------------------------------------------------------------------


@over_devices
def test_measured_error(place: str) -> None:
    backend = backends.get(place)
    x = ordinary((40, 100), np.float32)
    for name in CODECS:
        back = through(name, x).astype(np.float64)
        error = measured_error(backend.xp, backend.asarray(x), codec_of(name))
        assert error.largest == np.abs(back - x).max()
        wanted = np.sqrt(((back - x) ** 2).sum() / (x.astype(np.float64) ** 2).sum())
        assert math.isclose(error.relative, wanted, rel_tol=1e-12)


def test_measured_error_of_odd_arrays() -> None:
    bf16, int8 = codec_of("bf16"), codec_of("int8")
    assert measured_error(HOST, np.zeros((0, 3), np.float32), bf16) == (0, 0)
    assert measured_error(HOST, np.array([1, np.inf, np.nan], np.float32), bf16) == (0, 0)
    largest = np.full(3, LARGEST["float64"])
    assert measured_error(HOST, largest, int8).relative == pytest.approx(1, rel=1e-6)
    assert measured_error(HOST, np.array([2.0**-130], np.float32), int8) == (2.0**-130, 1.0)
    halves = measured_error(HOST, ordinary(300, np.float16), int8)
    assert 0 < halves.largest < 0.03 and 0 < halves.relative < 0.02


@over_pairs
@over_devices
def test_large_arrays_are_taken_in_parts(
    name: str, dtype: Any, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bytes, whatever the parts."""
    backend, codec = backends.get(place), codec_of(name)
    for shape in ((1000,), (9, 100), (3, 700)):
        x = backend.asarray(ordinary(shape, dtype))
        payload = codec.encode(backend.xp, x)
        back = codec.decode(backend.xp, payload, x.dtype, shape)
        with monkeypatch.context() as patch:
            patch.setattr(type(codec), "part", 300)
            patch.setattr(type(codec), "part_on_host", 300)
            parts = codec.encode(backend.xp, x)
            again = codec.decode(backend.xp, payload, x.dtype, shape)
        assert backend.to_host(parts).tobytes() == backend.to_host(payload).tobytes()
        assert backend.to_host(again).tobytes() == backend.to_host(back).tobytes()


def test_of_many_elements_some_are_measured() -> None:
    x = ordinary((3, 1 << 20), np.float32)
    whole = measured_error(HOST, x[0], codec_of("fp8"))
    part = measured_error(HOST, x, codec_of("fp8"))
    assert part.relative == pytest.approx(whole.relative, rel=0.01)
