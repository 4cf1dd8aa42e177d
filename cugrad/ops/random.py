"""Random arrays: what is drawn from a source, one source per device unless a caller brings one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import backends
from ..backends.batched import random as batched_random
from ..backends.forks import kept_over_forks
from ..backends.wanted import wanted
from ..device import device as Device
from ..runtime.kept import Switch, of_thread

__all__ = [
    "NORMAL", "UNIFORM", "Source", "bernoulli", "bernoulli_bits", "binomial", "default_source",
    "drawn", "drawn_again", "exponential", "integers", "normal", "normal_around", "noted",
    "permutation", "poisson", "seed_everything", "uniform",
]  # fmt: skip

Array = Any
Shape = tuple[int, ...]
Dtype = np.dtype[Any]
Law = tuple[Any, ...]  # see `drawn`
UNIFORM: Law = ("uniform",)
NORMAL: Law = ("normal",)
BOOL, INT64 = np.dtype("bool"), np.dtype("int64")


class Streams(dict["Source", Any]):
    """What stands in for sources: the state in which it begins, or the stream once it was used.

    A source that is not there is met with the state that it has `outer`, where it stays as it is.
    """

    outer: Streams | None = None


class ReplayedRandom(threading.local):
    """What this thread draws from in the place of sources, and what is to be drawn again.

    `noting` are the books that want the state in which they first find a source.
    """

    streams: Streams | None = None
    noting: tuple[dict[Source, Any], ...] = ()


replayed = of_thread(ReplayedRandom())


class Source:
    """A stream of random numbers on one device; the device is touched at the first draw."""

    def __init__(self, device: Device, seed: int) -> None:
        self.device = device
        self._seed = seed
        self._rng: Any = None

    @property
    def rng(self) -> Any:
        """The backend's stream, or this thread's own where numbers are drawn again."""
        stream = self._stream(replayed.streams)
        for book in replayed.noting:
            if self not in book:
                book[self] = stream.get_state()
        return stream

    def _stream(self, streams: Streams | None) -> Any:
        if streams is None:
            if self._rng is None:
                self._rng = self._new(self._seed)
            return self._rng
        rng = streams.get(self)
        if rng is None:
            rng = self._stream(streams.outer).get_state()
        if isinstance(rng, np.ndarray):
            state, rng = rng, self._new(0)
            rng.set_state(state)
            streams[self] = rng
        return rng

    def _new(self, seed: int) -> Any:
        return backends.get(self.device.type).rng(seed)

    @property
    def seed(self) -> int:
        """The seed of the stream as it is now."""
        if self._rng is None and replayed.streams is None:
            return self._seed
        return self.rng.seed

    def reseed(self, seed: int) -> None:
        """Starts the stream of `seed`."""
        if replayed.noting and self._rng is not None:
            self.rng  # noqa: B018 it is to be as it was, not as it will be, when drawn again
        if replayed.streams is not None:
            replayed.streams[self] = self._new(seed)
        elif hasattr(self._rng, "restart"):  # a graph that was captured draws from this object
            self._seed = seed
            self._rng.restart(seed)
        else:
            self._seed, self._rng = seed, None


class noted(Switch):
    """Within it the states of all sources that this thread comes to are written into a book.

    A state is noted when it is first drawn from; a generator that is not used costs nothing.
    """

    def __init__(self, book: dict[Source, Any]) -> None:
        self._book = book

    def as_is(self) -> Any:
        return replayed.noting

    def change(self, before: Any) -> None:
        replayed.noting = (*before, self._book)

    def put_back(self, before: Any) -> None:
        replayed.noting = before


class drawn_again(Switch):
    """Within it this thread draws from streams of its own, which begin as a book says.

    The sources, from which other threads draw meanwhile, are left as they are.
    """

    def __init__(self, book: dict[Source, Any]) -> None:
        self._book = book

    def as_is(self) -> Any:
        return replayed.streams, replayed.noting

    def change(self, before: Any) -> None:
        streams = Streams(self._book)
        streams.outer, _ = before
        replayed.streams, replayed.noting = streams, ()  # what is drawn again is not noted

    def put_back(self, before: Any) -> None:
        replayed.streams, replayed.noting = before


def fresh_seed() -> int:
    """64 bits that cannot be predicted."""
    return int.from_bytes(os.urandom(8), "little")


_sources: dict[tuple[str, int | None], Source] = {}
_lock = threading.Lock()
kept_over_forks.add(_lock)
_seed: int = fresh_seed()  # what a device's source starts with


def default_source(device: Device) -> Source:
    """The source of a device that all draws share which name none."""
    index = device.index
    if device.type == "cpu":
        index = None
    elif index is None:
        index = backends.get(device.type).current_device()
    key = (device.type, index)
    source = _sources.get(key)
    if source is None:
        with _lock:
            source = _sources.setdefault(key, Source(Device(*key), _seed))
    return source


def seed_everything(seed: int) -> None:
    """Seeds every device's source, also those that no draw has asked for yet."""
    global _seed
    with _lock:
        _seed = seed
        for source in _sources.values():
            source.reseed(seed)


def _on(source: Source | None, device: Device) -> tuple[Any, Any]:
    """The stream to draw from, and the backend whose current device the caller must set."""
    if source is None:
        source = default_source(device)
    elif source.device.type != device.type:
        raise RuntimeError(
            f"Expected a '{device.type}' device type for generator but found '{source.device.type}'"
        )
    rng = source.rng
    if batched_random.open_levels():
        rng = batched_random.BatchedRng(rng)
    return rng, backends.get(device.type)


def drawn(
    source: Source | None, law: Law, shape: Shape, kind: Dtype, device: Device,
    function: Callable[..., Array] | None = None, arrays: Sequence[Array] = (),
    numbers: Sequence[Any] = (), dtype: Dtype | None = None, out: Array | None = None,
) -> Array:  # fmt: skip
    """Numbers of a law, in the dtype `kind`, or `function(xp, drawn, *arrays, *numbers)` of them,
    element by element; cast to `dtype`.

    A law is the name of a method of streams, and what this is told before a shape and a dtype. A
    device that makes kernels does all in one, and may then write to `out`, which is answered.
    """
    rng, backend = _on(source, device)
    dtype = kind if dtype is None else dtype
    with backend.use_device(device.index):
        if rng.made_of is not None and wanted.fused:
            array = rng.made_of(law, shape, kind, function, arrays, numbers, dtype, out)
            if array is not None:
                return array
        name, *told = law
        x = getattr(rng, name)(*told, shape, kind)
        if function is not None:
            x = function(backends.backend_of(x).xp, x, *arrays, *numbers)
        return x.astype(dtype, copy=False)


def uniform(
    source: Source | None, shape: Shape, dtype: Dtype, device: Device, low: float = 0.0,
    high: float = 1.0, out: Array | None = None,
) -> Array:  # fmt: skip
    """Uniform on [low, high); a complex dtype has both parts so."""
    if dtype.kind == "c":
        x = _of_parts(drawn(source, UNIFORM, (*shape, 2), _part(dtype), device), dtype)
        return x if (low, high) == (0.0, 1.0) else _moved(x, high - low, low, device)
    if (low, high) == (0.0, 1.0):
        return drawn(source, UNIFORM, shape, dtype, device, out=out)
    stretch = high - low, low
    return drawn(source, UNIFORM, shape, dtype, device, _stretched, (), stretch, out=out)


def normal(
    source: Source | None, shape: Shape, dtype: Dtype, device: Device, mean: float = 0.0,
    std: float = 1.0, out: Array | None = None,
) -> Array:  # fmt: skip
    """Normal; a complex dtype has variance std² in all, half of it in each part."""
    if dtype.kind == "c":
        half, kind = (0.5**0.5,), _part(dtype)
        x = drawn(source, NORMAL, (*shape, 2), kind, device, _scaled, (), half)
        x = _of_parts(x, dtype)
        return x if (mean, std) == (0.0, 1.0) else _moved(x, std, mean, device)
    if (mean, std) == (0.0, 1.0):
        return drawn(source, NORMAL, shape, dtype, device, out=out)
    return drawn(source, NORMAL, shape, dtype, device, _stretched, (), (std, mean), out=out)


def normal_around(
    source: Source | None, shape: Shape, dtype: Dtype, device: Device, mean: float | Array,
    std: float | Array,
) -> Array:  # fmt: skip
    """Normal, with a mean and a standard deviation for each element: arrays, or one a number."""
    if dtype.kind == "c":
        return _moved(normal(source, shape, dtype, device), std, mean, device)
    told = source, NORMAL, shape, dtype, device
    if not hasattr(std, "dtype"):
        return drawn(*told, _shifted, (mean,), (std,))
    if not hasattr(mean, "dtype"):
        return drawn(*told, _stretched, (std,), (mean,))
    return drawn(*told, _stretched, (std, mean))


def _shifted(xp: Any, x: Array, shift: Array, by: float) -> Array:
    return x * by + shift


def _stretched(xp: Any, x: Array, by: float, shift: float) -> Array:
    return x * by + shift


def _moved(x: Array, by: Any, shift: Any, device: Device) -> Array:
    with backends.get(device.type).use_device(device.index):
        return (x * by + shift).astype(x.dtype, copy=False)


def _scaled(xp: Any, x: Array, by: float) -> Array:
    return x * by


def _part(dtype: Dtype) -> Dtype:
    """The dtype of the parts of complex numbers."""
    return np.empty(0, dtype).real.dtype


def _of_parts(x: Array, dtype: Dtype) -> Array:
    """Complex numbers, of an array with both parts in its last dim."""
    return x.view(dtype).reshape(x.shape[:-1])


def exponential(
    source: Source | None, shape: Shape, dtype: Dtype, device: Device, rate: float = 1.0,
    out: Array | None = None,
) -> Array:  # fmt: skip
    """Exponential with mean 1 / rate, and never 0, so that it has a logarithm in a half, too."""
    wide: Any = np.dtype(np.float64 if dtype == np.float64 else np.float32)
    numbers = float(np.finfo(wide).eps) / 2, 1.0 / rate
    return drawn(source, UNIFORM, shape, wide, device, _exponential, (), numbers, dtype, out)


def _exponential(xp: Any, x: Array, least: float, mean: float) -> Array:
    return xp.maximum(-xp.log1p(-x), least) * mean


def integers(
    source: Source | None, low: int, high: int, shape: Shape, dtype: Dtype, device: Device,
    out: Array | None = None,
) -> Array:  # fmt: skip
    """Integers in [low, high), of any dtype that holds them."""
    law = "integers", low, high
    return drawn(source, law, shape, INT64, device, dtype=dtype, out=out)


def permutation(source: Source | None, n: int, dtype: Dtype, device: Device) -> Array:
    """0 to n-1 in random order."""
    rng, backend = _on(source, device)
    with backend.use_device(device.index):
        return rng.permutation(n, dtype)


def bernoulli(
    source: Source | None, p: float | Array, shape: Shape, device: Device,
    dtype: Dtype = BOOL, out: Array | None = None,
) -> Array:  # fmt: skip
    """Ones with probability `p`, a number or an array of them, and zeros: booleans by default."""
    kind = np.dtype(np.float64 if getattr(p, "dtype", None) == np.float64 else np.float32)
    arrays, numbers = ((p,), ()) if hasattr(p, "dtype") else ((), (p,))
    return drawn(source, UNIFORM, shape, kind, device, _below, arrays, numbers, dtype, out)


def _below(xp: Any, x: Array, p: Any) -> Array:
    return x < p


def bernoulli_bits(source: Source | None, p: float, shape: Shape, device: Device) -> Array:
    """What `bernoulli` draws, flat and eight to a byte."""
    rng, backend = _on(source, device)
    with backend.use_device(device.index):
        return rng.bits(p, shape)


def poisson(source: Source | None, rate: Array, device: Device) -> Array:
    """Poisson counts, in int64."""
    rng, backend = _on(source, device)
    with backend.use_device(device.index):
        return rng.poisson(rate.astype(np.float64))


def binomial(source: Source | None, count: Array, chance: Array, device: Device) -> Array:
    """Successes in `count` trials, in int64; counts below 0 are 0, chances are cut to [0, 1]."""
    rng, backend = _on(source, device)
    with backend.use_device(device.index):
        xp, of_chance = (backends.backend_of(x).xp for x in (count, chance))
        trials = xp.maximum(xp.floor(count.astype(np.float64)), 0).astype(np.int64)
        return rng.binomial(trials, of_chance.clip(chance.astype(np.float64), 0.0, 1.0))
