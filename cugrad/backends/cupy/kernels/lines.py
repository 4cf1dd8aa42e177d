"""Copies of matrices whose lines lie at another pitch, with zeros where the copy is larger."""

from __future__ import annotations

from . import code

__all__ = ["KERNELS", "NAMES", "SOURCE", "source"]

KERNELS = {
    "copy_lines": r"""
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
}


def source(stored: str, pack: int, read: int, wide: bool) -> str:
    """The kernel for elements that are stored so: it writes `pack` at once, and reads `read`;
    `wide` says whether it counts beyond 32 bits.
    """
    index = f"typedef {'long long' if wide else 'unsigned'} Index;\n"
    return code(index + KERNELS["copy_lines"], stored, None, pack, READ=read)


NAMES = tuple(KERNELS)
SOURCE = source("uint16", 8, 1, False)
