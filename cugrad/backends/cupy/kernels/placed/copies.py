"""Kernels that only move elements, whatever their dtype: 16 bytes at a time where they can."""

from __future__ import annotations

from .. import PART, code, whole
from .sums import PLACES, POINTERS, STEPS, TOLD

__all__ = [
    "JOINED", "KERNELS", "NAMES", "SOURCE", "joining", "lines_source",
]  # fmt: skip

JOINED = 16  # arrays that one kernel joins at most

_join = r"""
// Rows of {count} arrays, beside each other in rows of y. Widths, and steps between rows, are in
// elements; blocks from `begin` on have an array, four packs a thread.
extern "C" __global__ void __launch_bounds__(256) join_rows_{count}(
    {pointers}, T* y, i64 rows, i64 total, {numbers})
{{
    const T* x = x0;
    i64 width = width0, step = step0, to = to0;
    int begin = begin0;
{choices}
    const i64 packs = width / PACK, size = rows * packs;
    const i64 first = (i64)((int)blockIdx.x - begin) * 1024 + threadIdx.x;
    Pack<T, PACK> values[4];
    i64 places[4];
    #pragma unroll
    for (int j = 0; j < 4; ++j) {{
        const i64 e = first + 256 * j;
        if (e >= size) break;
        const i64 row = WIDE ? e / packs : (i64)((unsigned)e / (unsigned)packs);
        const i64 column = (e - row * packs) * PACK;
        places[j] = row * total + to + column;
        values[j] = load(x + row * step + column);
    }}
    #pragma unroll
    for (int j = 0; j < 4; ++j)
        if (first + 256 * j < size) save(y + places[j], values[j]);
}}
"""
_choice = """\
    if ((int)blockIdx.x >= begin{k})
        x = x{k}, width = width{k}, step = step{k}, to = to{k}, begin = begin{k};"""


def joining(count: int) -> str:
    """The kernel for so many arrays."""
    numbers = [f"i64 width{k}, i64 step{k}, i64 to{k}, int begin{k}" for k in range(count)]
    return _join.format(
        count=count, pointers=", ".join(f"const T* x{k}" for k in range(count)),
        numbers=", ".join(numbers),
        choices="\n".join(_choice.format(k=k) for k in range(1, count)),
    )  # fmt: skip


# Copies of matrices whose lines lie at another pitch, with zeros where the copy is larger.
_lines = r"""
struct Lines {
    const T* from;
    T* to;
    i64 size, lines, columns, pitch, step, to_lines, to_columns;
};

// What is read at once lies in one line; what is written goes on over the ends of lines, which
// follow one another. So rows of any length are written 16 bytes at a time.
extern "C" __global__ void __launch_bounds__(256) copy_lines(const Lines told)
{
    const Index size = (Index)told.size, columns = (Index)told.to_columns;
    const Index lines = (Index)told.to_lines;
    const Index begin = ((Index)blockIdx.x * 256 + threadIdx.x) * PACK;
    if (begin >= size) return;
    Index line = begin / columns, matrix = 0;
    Index column = begin - line * columns;
    if (line >= lines) {  // no division where there is one matrix
        matrix = line / lines;
        line -= matrix * lines;
    }
    Pack<T, PACK> values = {};
    #pragma unroll
    for (int k = 0; k < PACK; k += READ) {
        if (column >= columns) {
            column = 0;
            if (++line >= lines) {
                line = 0;
                ++matrix;
            }
        }
        if (begin + k < size && line < (Index)told.lines && column < (Index)told.columns) {
            const T* from = told.from + matrix * told.step + line * told.pitch + column;
            const Pack<T, READ> read = *(const Pack<T, READ>*)from;
            #pragma unroll
            for (int j = 0; j < READ; ++j) values.at[k + j] = read.at[j];
        }
        column += READ;
    }
    if (begin + PACK <= size) {
        save(told.to + begin, values);
        return;
    }
    for (int k = 0; k < PACK && begin + k < size; ++k) told.to[begin + k] = values.at[k];
}
"""

_ROWS = r"""
// A row of x, or the part of it that is the block's, for a team of threads.
__device__ __forceinline__ void copy_row(const T* x, T* y, i64 width, i64 step, int team)
{
    const i64 tile = (i64)team * PACK;
    i64 k = blockIdx.y * 4 * tile + threadIdx.x % team * PACK;
    for (; k < width; k += gridDim.y * 4 * tile) {
        Pack<T, PACK> values[4];
        #pragma unroll
        for (int j = 0; j < 4; ++j)
            if (k + j * tile < width) values[j] = load(x + (k + j * tile) * step);
        #pragma unroll
        for (int j = 0; j < 4; ++j)
            if (k + j * tile < width) save(y + k + j * tile, values[j]);
    }
}
"""

KERNELS = {
    # Rows of x, (planes, n, width), that indices name, `count` of each plane. Steps are in
    # elements; `team` threads share a row, and each copies four packs at once.
    "take_rows": _ROWS
    + PART
    + r"""
extern "C" __global__ void __launch_bounds__(256) take_rows(
    const T* x, const W* indices, T* y, i64 rows, i64 n, i64 count, i64 width, i64 plane_step,
    i64 row_step, i64 step, int team)
{
    const i64 row = (i64)blockIdx.x * (256 / team) + threadIdx.x / team;
    if (row >= rows) return;
    const i64 plane = rows > count ? row / count : 0;
    i64 index = (i64)indices[row - plane * count];
    if (index < 0 || index >= n) index = (index % n + n) % n;  // as CuPy does
    copy_row(x + plane * plane_step + index * row_step, y + row * width, width, step, team);
}
""",
    # The same where several arrays of indices name the rows together.
    "take_rows_of_several": _ROWS
    + PART
    + PLACES
    + PART
    + f"""
extern "C" __global__ void __launch_bounds__(256) take_rows_of_several(
    const T* x, {POINTERS}, T* y, i64 rows, i64 count, i64 width, i64 plane_step, i64 row_step,
    i64 step, int team, {STEPS})
{{
    const i64 row = (i64)blockIdx.x * (256 / team) + threadIdx.x / team;
    if (row >= rows) return;
    const i64 plane = rows > count ? divided(row, count) : 0;
    const i64 place = place_of_several(row - plane * count, {TOLD});
    copy_row(x + plane * plane_step + place * row_step, y + row * width, width, step, team);
}}
""",
    # Rows of y, (planes, n, width), that up to four arrays of indices name together become those of
    # g, (planes, count, width), or zeros: `size` elements, each of which may lie by itself.
    "put_rows": PLACES
    + PART
    + f"""
extern "C" __global__ void __launch_bounds__(256) put_rows(
    const T* g, {POINTERS}, T* y, i64 size, i64 count, i64 width, i64 plane_step, i64 row_step,
    i64 step, i64 g_plane, i64 g_row, i64 g_step, {STEPS})
{{
    const i64 i = ((i64)blockIdx.x * 256 + threadIdx.x) * PACK;
    if (i >= size) return;
    const i64 line = divided(i, width), k = i - line * width, plane = divided(line, count);
    const i64 row = line - plane * count;
    const i64 place = place_of_several(row, {TOLD});
    save(y + plane * plane_step + place * row_step + k * step,
         g ? load(g + plane * g_plane + row * g_row + k * g_step) : Pack<T, PACK>{{}});
}}
""",
    # Planes of x, (planes, rows, columns), up to a diagonal, or, `upper`, from it on; else zeros.
    # Elements are `EACH` words, and steps are in words.
    "keep_triangle": r"""
extern "C" __global__ void __launch_bounds__(256) keep_triangle(
    const T* x, T* y, i64 size, i64 rows, i64 columns, i64 plane_step, i64 row_step,
    i64 column_step, i64 diagonal, int upper)
{
    const i64 i = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (i >= size) return;
    const i64 width = columns * EACH;
    const i64 line = i > 0x7fffffff ? i / width : (i64)((unsigned)i / (unsigned)width);
    const i64 plane = line > 0x7fffffff ? line / rows : (i64)((unsigned)line / (unsigned)rows);
    const i64 row = line - plane * rows, word = i - line * width, edge = row + diagonal;
    const i64 first = word / EACH, last = (word + PACK - 1) / EACH;
    Pack<T, PACK> values = {};
    if (upper ? last >= edge : first <= edge)
        values = load(x + plane * plane_step + row * row_step + first * column_step + word % EACH);
    for (int k = 0; k < PACK; ++k) {
        const i64 column = (word + k) / EACH;
        if (upper ? column < edge : column > edge) values.at[k] = (T)0;
    }
    save(y + i, values);
}
""",
    "join_rows_2": joining(2),
    "join_rows_4": joining(4),
    "join_rows_16": joining(JOINED),
    "copy_lines": "typedef unsigned Index;\n" + _lines,
}
NAMES = tuple(KERNELS)
SOURCE = whole(KERNELS, EACH=1, WIDE=0, READ=1)


def lines_source(stored: str, pack: int, read: int, wide: bool) -> str:
    """`copy_lines` for elements that are stored so: it writes `pack` at once, and reads `read`;
    `wide` says whether it counts beyond 32 bits.
    """
    index = f"typedef {'long long' if wide else 'unsigned'} Index;\n"
    return code(index + _lines, stored, None, pack, READ=read)
