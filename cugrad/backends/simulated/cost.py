"""What work costs on a GPU, in seconds of virtual time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod
from typing import Any

from .links import HDR_NVLINK3, NDR_NVLINK4, Links
from .memory import address_of

__all__ = ["A100", "GH200", "H100", "H200", "PRESETS", "Model", "Resource", "Traffic", "flops_of",
           "preset", "products_of", "traffic_of"]  # fmt: skip


@dataclass(frozen=True)
class Model:
    """A device: memory, rates in bytes/s and flop/s, latencies in seconds.

    `to_host` and `to_device` are the link's two directions; without `duplex` they share one wire.
    `launch` is the host's time for one launch, `latency` the least time of a kernel or copy on the
    device. `pageable` is the part of the link's rate that ordinary host memory gets, `host` the
    rate at which the host reads and writes its own memory, when it computes. `scale` makes each
    byte and flop count so many times, so that a small network stands for a large one. `links` are
    those to other devices.
    """

    name: str
    capacity: int
    memory: float
    to_host: float
    to_device: float
    flops: dict[str, float] = field(default_factory=dict)
    duplex: bool = True
    launch: float = 5e-6
    latency: float = 2e-6
    pageable: float = 0.4
    host: float = 200e9
    scale: float = 1.0
    links: Links = NDR_NVLINK4

    def rate(self, dtype: str) -> float:
        """Flop/s of products in a dtype."""
        wide = {"complex64": "float32", "complex128": "float64", "float64": "float64",
                "float16": "float16", "bfloat16": "float16"}  # fmt: skip
        return self.flops[wide.get(dtype, "float32")]

    def kernel(self, nbytes: int, flops: float, dtype: str) -> float:
        """Seconds of a kernel that moves `nbytes` and computes `flops`."""
        busy = max(nbytes / self.memory, flops / self.rate(dtype))
        return self.latency + busy * self.scale

    def copy(self, nbytes: int, kind: str, pageable: bool = False) -> float:
        """Seconds of a copy: kind "d2h", "h2d" or "d2d" (which reads and writes device memory)."""
        rate = {"d2h": self.to_host, "h2d": self.to_device, "d2d": self.memory / 2}[kind]
        return self.latency + nbytes * self.scale / (rate * (self.pageable if pageable else 1))


def _model(
    name: str, gib: int, memory: float, link: tuple[float, float], *tera: float,
    links: Links = NDR_NVLINK4,
) -> Model:  # fmt: skip
    rates = dict(zip(("float64", "float32", "float16"), [t * 1e12 for t in tera]))
    return Model(name, gib << 30, memory * 1e9, link[0] * 1e9, link[1] * 1e9, rates, links=links)


# Rates that large kernels and copies reach, not those of the data sheets' first page: link rates
# as nvbandwidth measures them; GH200's two directions differ.
A100 = _model("A100-PCIe4", 80, 1750, (24.5, 24.5), 9.0, 18.0, 230.0, links=HDR_NVLINK3)
H100 = _model("H100-PCIe5", 80, 3000, (52.0, 54.0), 50.0, 50.0, 600.0)
H200 = _model("H200-PCIe5", 141, 4200, (52.0, 54.0), 50.0, 50.0, 600.0)
GH200 = _model("GH200", 96, 3600, (170.0, 411.0), 50.0, 50.0, 650.0)
PRESETS = {"a100": A100, "h100": H100, "h200": H200, "gh200": GH200}


def preset(name: str, **changes: Any) -> Model:
    """A preset by name (A100, H100, H200, GH200), with fields changed.

    >>> preset("A100", duplex=False).duplex
    False
    """
    model = PRESETS.get(name.lower())
    if model is None:
        names = ", ".join(m.upper() for m in PRESETS)
        raise ValueError(f"simulated.preset: got {name!r}, want one of {names}")
    return replace(model, **changes)


class Resource:
    """Something that one operation at a time can use: a direction of the link, the processors."""

    __slots__ = ("_starts", "_ends")

    def __init__(self) -> None:
        self._starts: list[float] = []
        self._ends: list[float] = []

    def take(self, ready: float, seconds: float, now: float = 0.0) -> float:
        """Books the earliest gap of `seconds` that does not begin before `ready`; its beginning.

        Nothing can start before `now`, so what has ended by then is forgotten.
        """
        starts, ends = self._starts, self._ends
        if len(starts) >= 64 and ends[31] <= now:
            past = bisect_right(ends, now)
            del starts[:past], ends[:past]
        if not ends or ready >= ends[-1]:
            at, i = ready, len(starts)
        else:
            i = bisect_left(ends, ready)
            at = ready
            while i < len(starts) and starts[i] - at < seconds:
                at = max(at, ends[i])
                i += 1
        starts.insert(i, at)
        ends.insert(i, at + seconds)
        if len(starts) > 4096:
            del starts[:2048], ends[:2048]
        return at

    def cut_in(self, ready: float, seconds: float, now: float = 0.0) -> tuple[float, float]:
        """Books `seconds` for who goes before others, from `ready` on or, where one of them runs,
        from its end: the beginning. What that displaces is done behind all that is booked, the end
        of which is the second value, or 0.0: so all of it takes as long as it would in order.
        """
        starts, ends = self._starts, self._ends
        at, i = ready, bisect_right(ends, ready)
        if i < len(starts) and starts[i] < ready:
            at, i = ends[i], i + 1
        if i == len(starts) or starts[i] - at >= seconds:
            return self.take(at, seconds, now), 0.0
        self.take(ends[-1], seconds, now)
        return at, ends[-1]


# Kernels that read, or write, of their first array only what the others ask for.
GATHERS = frozenset(["getitem", "take", "take_along_axis", "choose"])
SCATTERS = frozenset(["index_add", "index_reduce", "put", "put_along_axis"])
PRODUCTS = frozenset(["matmul", "dot", "__matmul__"])
CONTRACTIONS = frozenset(["tensordot", "einsum", "inner"])
# Products of queries and keys that a kernel of attention computes: along heads, and along values.
ATTENTION = {"attention": (1, 1), "attention_queries": (2, 1), "attention_keys": (2, 2),
             "attention_mask": (1, 1)}  # fmt: skip


def traffic_of(
    name: str, inputs: Sequence[Any], outputs: Sequence[Any]
) -> tuple[list[int], list[int]]:
    """Bytes of each array that a kernel by NumPy's name reads, and that it writes: what is
    repeated is read once.
    """
    read, written = [_bytes_of(a) for a in inputs], [_bytes_of(a) for a in outputs]
    if name in GATHERS and read:
        read[0] = min(read[0], sum(written))
    if name in SCATTERS and read and written:
        written[0] = min(written[0], 2 * max(read))
    return read, written


def _bytes_of(array: Any) -> int:
    host = array._host
    nbytes: int = host.nbytes
    if nbytes and 0 in host.strides:
        nbytes //= prod([n for n, step in zip(host.shape, host.strides) if step == 0])
    return nbytes


class Traffic:
    """What kernels that a GPU has in one, or in few, read, write and compute together.

    What is read again is read once, and what is made and dropped among them is in no memory:
    allocations are known by their numbers, those that are made meanwhile by larger ones.
    """

    __slots__ = ("first", "kernels", "read", "sizes", "written", "flops", "dtype")

    def __init__(self, first: int) -> None:
        self.first, self.kernels, self.flops, self.dtype = first, 0, 0.0, "float32"
        self.read: dict[tuple[int, int], int] = {}  # bytes, by allocation and where a view begins
        self.sizes: dict[int, int] = {}  # of all of what is read of
        self.written: dict[int, int] = {}  # of what was there before

    def add(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """A kernel by NumPy's name that has run among them."""
        self.kernels += 1
        first, parts = self.first, name in GATHERS or name in SCATTERS
        read, written = traffic_of(name, inputs, outputs) if parts else ((), ())
        for k, array in enumerate(inputs):
            number = array._allocation.number
            if number < first and number not in self.written:
                base = array if array._base is None else array._base
                view = number, 0 if base is array else address_of(array._host)
                nbytes = read[k] if parts else _bytes_of(array)
                self.read[view] = max(nbytes, self.read.get(view, 0))
                self.sizes[number] = base._host.nbytes
        for k, array in enumerate(outputs):
            number = array._allocation.number
            if number < first:
                nbytes = written[k] if parts else _bytes_of(array)
                self.written[number] = max(nbytes, self.written.get(number, 0))
        flops = products_of(name, inputs, outputs)
        if flops:
            self.flops += flops
            self.dtype = outputs[0].dtype.name

    def bytes_of(self, results: Any) -> tuple[int, int]:
        """Bytes that are read, and that are written where `results` is what is left of it all."""
        read = dict.fromkeys(self.sizes, 0)
        for (number, _), nbytes in self.read.items():
            read[number] = min(read[number] + nbytes, self.sizes[number])
        sizes = {a._allocation.number: a._host.nbytes for a in _arrays_in(results)}
        new = sum([nbytes for number, nbytes in sizes.items() if number >= self.first])
        return sum(read.values()), sum(self.written.values()) + new


def _arrays_in(results: Any) -> Iterator[Any]:
    if type(results) in (tuple, list):
        for part in results:
            yield from _arrays_in(part)
    elif hasattr(results, "_allocation"):
        yield results


def flops_of(name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> float:
    """Floating-point operations of a kernel by NumPy's name, one an element where unknown."""
    return products_of(name, inputs, outputs) or float(
        max([a._host.size for a in (*inputs, *outputs)], default=0)
    )


def products_of(name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> float:
    """Floating-point operations of products of matrices, and of what is made of such; else 0."""
    if not _is_product(name):
        return 0.0
    kernel = name.removeprefix("causal ")
    if kernel in ATTENTION:
        return _attention_flops(kernel, inputs) * (0.5 if kernel != name else 1.0)
    base = name.rpartition(".")[2]
    if base in PRODUCTS and len(inputs) > 1 and inputs[0].ndim:
        return 2.0 * outputs[0].size * inputs[0].shape[-1]
    if base in CONTRACTIONS and len(inputs) > 1 and outputs[0].size:
        summed = inputs[0].size * inputs[1].size / outputs[0].size
        return 2.0 * outputs[0].size * max(1.0, summed) ** 0.5
    if name.startswith("linalg.") and inputs and inputs[0].ndim >= 2:
        n = min(inputs[0].shape[-2:])
        return 10.0 * prod(inputs[0].shape) * n
    return 0.0


def _attention_flops(kernel: str, inputs: Sequence[Any]) -> float:
    query, key, value = inputs[:3]
    along = ATTENTION[kernel]
    each = along[0] * query.shape[-1] + along[1] * value.shape[-1]
    return 2.0 * prod(query.shape[:-1]) * key.shape[-2] * each


@cache
def _is_product(name: str) -> bool:
    if name.removeprefix("causal ") in ATTENTION:
        return True
    base = name.rpartition(".")[2]
    return base in PRODUCTS or base in CONTRACTIONS or name.startswith("linalg.")
