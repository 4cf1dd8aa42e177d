"""Products of cuBLAS that copy what is not aligned, where that is quicker: see `plan`."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import cupy

from ....runtime.kept import of_thread
from ...wanted import wanted
from ..arrays import form_of, new_array
from ..gemm_plan import Gemm
from ..kernels.placed.copies import lines_source
from ..launches.starting import StructKernel, not_noted
from .plan import BYTES, LEAST, RATES, Detour, LineCopy, detour, work_of

__all__ = ["aligned", "one_copy_of", "prefers_copies"]

Array = Any  # cupy.ndarray
Into = Callable[[int, int, int], None]  # the addresses of both operands, and of the result
Called = Callable[[Gemm, Any], Into]

CAPABLE = 80  # compute capability from which on the rates of `plan` hold in proportion
PART = 16  # of a device's memory: copies take at most that
STORED_AS = {2: "uint16", 4: "int32"}  # what only moves, by its bytes
BLOCK, NARROW = 256, 2**32 - 2**16


def aligned(gemm: Gemm, dtype: Any, called: Called) -> Into:
    """`called(gemm, dtype)`, or what takes aligned copies first, where that is quicker."""
    plain, rates = called(gemm, dtype), RATES.get(dtype.name)
    if rates is None or work_of(gemm) < LEAST * rates[1] or not _device_is_capable():
        return plain
    return _Choice(gemm, dtype, called, plain)


def prefers_copies(gemm: Gemm, dtype: Any, more: int) -> bool:
    """Whether copies, and so many bytes moved besides, are quicker than a product of operands that
    begin at multiples of 16 bytes.
    """
    if dtype.name == "float32" and not wanted.tf32:
        return False
    way = detour(gemm, dtype.name, dtype.itemsize, more=more)
    return way is not None and _device_is_capable() and _has_room(way, dtype)


def _device_is_capable() -> bool:
    return _of_device(cupy.cuda.runtime.getDevice())[0] >= CAPABLE


@cache
def _of_device(device: int) -> tuple[int, int]:
    """A device's compute capability, and the bytes of its memory."""
    capability = int(cupy.cuda.Device(device).compute_capability)
    return capability, cupy.cuda.runtime.memGetInfo()[1]


def _has_room(way: Detour, dtype: Any) -> bool:
    """By the device's memory, not by what is free of it: the same in every run."""
    memory = _of_device(cupy.cuda.runtime.getDevice())[1]
    return way.temporaries(dtype.itemsize) <= memory // PART


class _Choice:
    """A product that is large enough for copies, if they are needed: by where it all begins."""

    __slots__ = ("gemm", "dtype", "called", "plain", "ways")

    def __init__(self, gemm: Gemm, dtype: Any, called: Called, plain: Into) -> None:
        self.gemm, self.dtype, self.called, self.plain = gemm, dtype, called, plain
        self.ways: dict[Any, Into] = {}  # by addresses modulo 16

    def __call__(self, a: int, b: int, out: int) -> None:
        places = a % BYTES, b % BYTES, out % BYTES
        way = self.ways.get(places) or self._way(places)
        if way is not self.plain and self.dtype.name == "float32" and not wanted.tf32:
            way = self.plain  # no tensor cores
        way(a, b, out)

    def _way(self, places: tuple[int, int, int]) -> Into:
        dtype, way = self.dtype, self.plain
        plan = detour(self.gemm, dtype.name, dtype.itemsize, places)
        if plan is not None and _has_room(plan, dtype):
            way = _by_copies(plan, dtype, self.called(plan.gemm, dtype), self.plain)
        self.ways[places] = way
        return way


def _by_copies(plan: Detour, dtype: Any, product: Into, plain: Into) -> Into:
    """The detour; a device that is full computes the product as it is."""
    of_a, of_b, of_out = plan.a, plan.b, plan.out
    sizes = [None if x is None else x.size for x in (of_a, of_b)]
    sizes.append(None if of_out is None else plan.results)
    form_a, form_b, form_out = [None if n is None else form_of((n,), dtype) for n in sizes]

    def run(a: int, b: int, out: int) -> None:
        try:  # they are given back to this stream's arena, behind what reads them
            new_a = None if of_a is None else _copy_of(of_a, form_a, dtype, a)
            new_b = None if of_b is None else _copy_of(of_b, form_b, dtype, b)
            new_out = None if form_out is None else new_array(form_out)
        except MemoryError:
            plain(a, b, out)
            return
        a, b = a if new_a is None else new_a.data.ptr, b if new_b is None else new_b.data.ptr
        if of_out is None or new_out is None:
            product(a, b, out)
            return
        product(a, b, new_out.data.ptr)
        _copied(of_out, dtype, new_out.data.ptr, out)

    return run


class _Shared(threading.local):
    """The operand, by its address, of which this thread keeps the copies, by their form."""

    address = 0
    copies: dict[LineCopy, Array] | None = None


shared = of_thread(_Shared())


@contextmanager
def one_copy_of(operand: Array) -> Iterator[None]:
    """Products in the block that copy an operand alike share the copy; nothing changes it."""
    before = shared.address, shared.copies
    try:
        shared.address, shared.copies = operand.data.ptr, {}
        yield
    finally:
        shared.address, shared.copies = before


def _copy_of(copy: LineCopy, form: Any, dtype: Any, source: int) -> Array:
    kept = shared.copies if source == shared.address else None
    if kept is not None:
        not_noted()  # it is not of one product
        if copy in kept:
            return kept[copy]
    array = new_array(form)
    _copied(copy, dtype, source, array.data.ptr)
    if kept is not None:
        kept[copy] = array
    return array


_kernels: dict[Any, StructKernel] = {}


def _copied(copy: LineCopy, dtype: Any, source: int, target: int) -> int:
    """Copies lines from an address to another, which is returned."""
    itemsize = dtype.itemsize
    pack = BYTES // itemsize if target % BYTES == 0 else 1
    read = copy.pitch | copy.step | copy.columns | copy.to_columns | source // itemsize | pack
    wide = copy.size > NARROW
    key = itemsize, pack, read & -read, wide
    kernel = _kernels.get(key)
    if kernel is None:
        text = lines_source(STORED_AS[itemsize], pack, read & -read, wide)
        kernel = _kernels[key] = StructKernel(text, "copy_lines")
    sizes = copy.size, *copy[1:]
    told = struct.pack("2P7q", source, target, *sizes)
    kernel((-(-copy.size // (pack * BLOCK)),), (BLOCK,), told)
    return target
