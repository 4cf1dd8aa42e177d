"""Whether a product is quicker by copies of its operands, in which each line begins at a multiple
of 16 bytes, and what those copies are.

NVIDIA's documentation (cuBLAS, "Tensor Core Usage") names what such products want: addresses,
leading dimensions, and the sizes of the dims that lie dense, all multiples of 16 bytes. So these
dims are rounded up, and what is added to k is zeros in both operands. Pure arithmetic, so tests
prove it without a GPU.
"""

from __future__ import annotations

from typing import NamedTuple

from ..gemm_plan import Gemm

__all__ = ["BYTES", "LEAST", "RATES", "Detour", "LineCopy", "detour"]

BYTES = 16  # what addresses and lines are multiples of

# Operations a second on an H100, by the elements to whose multiples all lies; the last are aligned.
# Measured on the products of GPT-2's 50257 words with 768 features and 8192 rows in bfloat16: 95,
# 140 and 147e12 where rows are odd; aligned ones of like sizes reached 600 to 700e12. Rows that are
# multiples of 2 or 4 elements are taken to be in proportion, and TF32 to have half of the rates.
RATES: dict[str, dict[int, float]] = {
    "float16": {1: 110e12, 2: 220e12, 4: 440e12, 8: 600e12},
    "bfloat16": {1: 110e12, 2: 220e12, 4: 440e12, 8: 600e12},
    "float32": {1: 55e12, 2: 110e12, 4: 300e12},
}
MEMORY = 2.5e12  # bytes a second that an H100's copies read and write
LAUNCH = 5e-6  # seconds that one more launch takes of the host, or of an idle device
LEAST = 50e-6  # seconds: a product that takes less is left as it is
SURE = 0.8  # of the time as it is, which the detour may take at most: these are estimates

Places = tuple[int, int, int]


class LineCopy(NamedTuple):
    """A copy of matrices, line by line, to matrices of other sizes that lie dense: lines
    and columns that are more are zeros, and those that are fewer are left out. In elements.
    """

    matrices: int
    lines: int
    columns: int
    pitch: int
    step: int  # from matrix to matrix
    to_lines: int
    to_columns: int

    @property
    def size(self) -> int:
        return self.matrices * self.to_lines * self.to_columns

    @property
    def source(self) -> int:
        return self.matrices * self.lines * self.columns


class Detour(NamedTuple):
    """The product of aligned copies: `gemm` takes them where `a`, `b` or `out` is not None."""

    gemm: Gemm
    a: LineCopy | None
    b: LineCopy | None
    out: LineCopy | None

    @property
    def copies(self) -> list[LineCopy]:
        return [x for x in (self.a, self.b, self.out) if x is not None]

    def temporaries(self, itemsize: int) -> int:
        """The bytes of memory that it needs besides operands and result."""
        operands = sum(x.size for x in (self.a, self.b) if x is not None)
        return (operands + (0 if self.out is None else self.results)) * itemsize

    @property
    def results(self) -> int:
        """The elements of the result of `gemm`."""
        return self.gemm.m * self.gemm.n * self.gemm.batch


def detour(
    gemm: Gemm, dtype: str, itemsize: int, places: Places = (0, 0, 0), more: int = 0
) -> Detour | None:
    """The way by copies for a product of such operands; None where it is not the quicker one.

    `places` are the addresses of both operands and the result, or what they are modulo 16; `more`
    are bytes that are moved besides, if the product takes it.

    >>> way = detour(Gemm(True, False, 50257, 8192, 768, 768, 0, 768, 0, 1), "bfloat16", 2)
    >>> way.gemm.m, way.a, way.b
    (50264, None, LineCopy(matrices=1, lines=50257, columns=768, pitch=768, step=0, to_lines=50264,
     to_columns=768))
    """
    rates = RATES.get(dtype)
    if rates is None or work_of(gemm) < LEAST * rates[1]:
        return None
    multiple = _multiple(gemm, itemsize, places)
    if multiple == BYTES // itemsize:
        return None
    way = _way(gemm, BYTES // itemsize, tuple([place % BYTES > 0 for place in places]))
    if not way.gemm.fits:
        return None
    as_it_is = _seconds(gemm, itemsize, rates[multiple])
    moved = more + sum(x.source + x.size for x in way.copies) * itemsize
    by_copies = _seconds(way.gemm, itemsize, rates[BYTES // itemsize]) + moved / MEMORY
    by_copies += LAUNCH * (len(way.copies) + (more > 0))
    return way if as_it_is >= LEAST and by_copies < SURE * as_it_is else None


def work_of(gemm: Gemm) -> int:
    """Operations: a multiplication and a sum for each element of the result, and of k."""
    return 2 * gemm.m * gemm.n * gemm.k * gemm.batch


def _seconds(gemm: Gemm, itemsize: int, rate: float) -> float:
    """What a product takes: its operations, or its memory, once."""
    elements = gemm.m * gemm.n + gemm.k * gemm.m + gemm.k * gemm.n
    return max(work_of(gemm) / rate, elements * gemm.batch * itemsize / MEMORY)


def _multiple(gemm: Gemm, itemsize: int, places: Places) -> int:
    """The elements, a power of 2, of which addresses, leading dimensions, steps and dense dims are
    all multiples; at most those of 16 bytes.
    """
    first = gemm.k if gemm.first_transposed else gemm.m
    second = gemm.n if gemm.second_transposed else gemm.k
    sizes = [gemm.m, first, second, gemm.first_ld, gemm.second_ld]
    if gemm.batch > 1:
        sizes += [gemm.first_stride, gemm.second_stride]
    bits = BYTES // itemsize
    for size in (*sizes, *[place // itemsize for place in places]):
        bits |= size
    return bits & -bits


def _way(gemm: Gemm, elements: int, away: tuple[bool, ...]) -> Detour:
    """Each dim that lies dense somewhere is rounded up to a multiple of `elements`; `away` are the
    operands, and the result, that begin elsewhere.
    """
    m, n, k, batch = gemm.m, gemm.n, gemm.k, gemm.batch
    first_t, second_t = gemm.first_transposed, gemm.second_transposed
    to_m, to_n, to_k = -(-m // elements) * elements, n, k
    if first_t or not second_t:
        to_k = -(-k // elements) * elements
    if second_t:
        to_n = -(-n // elements) * elements
    b = _operand(
        (m, k) if first_t else (k, m), (to_m, to_k) if first_t else (to_k, to_m), elements,
        gemm.first_ld, gemm.first_stride, batch, away[1],
    )  # fmt: skip
    a = _operand(
        (k, n) if second_t else (n, k), (to_k, to_n) if second_t else (to_n, to_k), elements,
        gemm.second_ld, gemm.second_stride, batch, away[0],
    )  # fmt: skip
    out = None
    if (to_n, to_m) != (n, m) or away[2]:
        out = LineCopy(batch, n, m, to_m, to_n * to_m if batch > 1 else 0, n, m)
    first_ld, first_stride = _lies(b, gemm.first_ld, gemm.first_stride)
    second_ld, second_stride = _lies(a, gemm.second_ld, gemm.second_stride)
    padded = Gemm(
        first_t, second_t, to_m, to_n, to_k, first_ld, first_stride, second_ld, second_stride, batch
    )
    return Detour(padded, a, b, out)


def _operand(
    shape: tuple[int, int], to: tuple[int, int], elements: int, pitch: int, step: int, batch: int,
    away: bool,
) -> LineCopy | None:  # fmt: skip
    """The copy of an operand whose lines have `shape`; None where it lies well."""
    steps = step % elements if batch > 1 else 0
    if shape == to and not (away or pitch % elements or steps):
        return None
    count = batch if step else 1
    return LineCopy(count, *shape, pitch, step if count > 1 else 0, *to)


def _lies(copy: LineCopy | None, pitch: int, step: int) -> tuple[int, int]:
    """The leading dimension of an operand, and its step from matrix to matrix."""
    if copy is None:
        return pitch, step
    return copy.to_columns, copy.to_lines * copy.to_columns if copy.matrices > 1 else 0
