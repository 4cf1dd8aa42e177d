"""Kernels of convolutions that are one launch each: products of tiles of 32 rows and 64 columns.

What a product reads of the planes is looked up where it lies: no columns are made in memory. A
block of 16 x 16 threads has a tile, and walks along what is summed, 16 numbers at a time; a thread
has 2 rows and 4 columns of it, 16 apart. Groups of channels are blocks side by side.
"""

from __future__ import annotations

from . import PART, whole
from .windows import WINDOW

__all__ = ["KERNELS", "NAMES", "SOURCE"]

_TILE = r"""
constexpr int TM = 32, TN = 64, TK = 16;

__device__ __forceinline__ void add_tile(
    A (&sum)[2][4], const A (*a)[TM + 1], const A (*b)[TN + 1], int ty, int tx)
{
#pragma unroll 4
    for (int k = 0; k < TK; ++k)
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) sum[i][j] += a[k][ty + 16 * i] * b[k][tx + 16 * j];
}
__device__ __forceinline__ int volume(const int* sizes)
{
    return sizes[0] * sizes[1] * sizes[2];
}
__device__ __forceinline__ Place place_among(unsigned i, const int* sizes)  // of all images
{
    Place p;
    const unsigned area = volume(sizes), rest = i % area, line = rest / sizes[2];
    p.plane = i / area;
    p.at[2] = rest % sizes[2], p.at[1] = line % sizes[1], p.at[0] = line / sizes[1];
    return p;
}
"""

KERNELS = {
    # y of x, or, BACK, the gradient of x of that of y. Rows are the channels of the result, columns
    # its places in all images; what is summed are the channels of the other at positions of the
    # kernel.
    "convolve": WINDOW
    + PART
    + _TILE
    + PART
    + r"""
__device__ __forceinline__ int looked_up(const Window& w, int d, int at, int position)
{
    return BACK ? window_of(w, d, at, position) : read_by(w, d, at, position);
}
extern "C" __global__ void __launch_bounds__(256) convolve(
    const T* x, const T* weight, const T* bias, T* y, const Window w, int columns, int rows,
    int others)
{
    __shared__ A a[TK][TM + 1], b[TK][TN + 1];
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16, group = blockIdx.z;
    const int taps = w.kernel[0] * w.kernel[1] * w.kernel[2], depth = others * taps;
    const int* const from_sizes = BACK ? w.outputs : w.size;
    const int* const to_sizes = BACK ? w.size : w.outputs;
    const int from_area = volume(from_sizes), to_area = volume(to_sizes);
    const int own = blockIdx.x * TN + threadIdx.x % TN;  // the column that this thread looks up
    const Place o = place_among(own < columns ? own : 0, to_sizes);
    const T* const from = x + (o.plane * gridDim.z + group) * others * from_area;
    A sum[2][4] = {};
    for (int start = 0; start < depth; start += TK) {
        __syncthreads();
        for (int i = 0; i < TK * TN / 256; ++i) {
            const int k = start + threadIdx.x / TN + i * (256 / TN);
            const int tap = k % taps, line = tap / w.kernel[2];
            const int p = looked_up(w, 0, o.at[0], line / w.kernel[1]);
            const int q = looked_up(w, 1, o.at[1], line % w.kernel[1]);
            const int r = looked_up(w, 2, o.at[2], tap % w.kernel[2]);
            const bool inside = own < columns && k < depth && p >= 0 && q >= 0 && r >= 0;
            const i64 at = (i64)(k / taps) * from_area + offset_in(from_sizes, p, q, r);
            b[k - start][threadIdx.x % TN] = inside ? (A)from[at] : A(0);
        }
        for (int i = 0; i < TK * TM / 256; ++i) {
            const int k = start + tx, row = blockIdx.y * TM + ty + 16 * i;
            const i64 first = BACK ? ((i64)group * others + k / taps) * rows + row
                                   : ((i64)group * rows + row) * others + k / taps;
            a[tx][ty + 16 * i] =
                row < rows && k < depth ? (A)weight[first * taps + k % taps] : A(0);
        }
        __syncthreads();
        add_tile(sum, a, b, ty, tx);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int row = blockIdx.y * TM + ty + 16 * i;
        if (row >= rows) continue;
        const A offset = bias == nullptr ? A(0) : (A)bias[group * rows + row];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int column = blockIdx.x * TN + tx + 16 * j;
            if (column >= columns) continue;
            const i64 plane = ((i64)(column / to_area) * gridDim.z + group) * rows + row;
            y[plane * to_area + column % to_area] = (T)(sum[i][j] + offset);
        }
    }
}
""",
    # The gradient of the weight. Rows are outputs, columns are inputs at positions of the kernel,
    # and what is summed are the places of all images: in parts, which the block that comes last
    # adds up in their order.
    "convolve_weight": WINDOW
    + PART
    + _TILE
    + PART
    + r"""
extern "C" __global__ void __launch_bounds__(256) convolve_weight(
    const T* g, const T* x, T* result, A* partial, unsigned* tickets, const Window w, int count,
    int rows, int channels, int groups, int part)
{
    __shared__ A a[TK][TM + 1], b[TK][TN + 1];
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const int group = blockIdx.z % groups, piece = blockIdx.z / groups, parts = gridDim.z / groups;
    const int taps = w.kernel[0] * w.kernel[1] * w.kernel[2], columns = channels * taps;
    const int area = volume(w.outputs), size = volume(w.size);
    const int end = count - piece * part < part ? count : (piece + 1) * part;
    A sum[2][4] = {};
    for (int start = piece * part; start < end; start += TK) {
        const int e = start + tx;
        const Place o = place_among(e < end ? e : 0, w.outputs);  // its plane is the image
        const i64 image = o.plane * groups + group;
        __syncthreads();
        for (int i = 0; i < 2; ++i) {
            const int row = blockIdx.y * TM + ty + 16 * i;
            const i64 at = (image * rows + row) * area +
                           offset_in(w.outputs, o.at[0], o.at[1], o.at[2]);
            a[tx][ty + 16 * i] = row < rows && e < end ? (A)g[at] : A(0);
        }
        for (int i = 0; i < 4; ++i) {
            const int column = blockIdx.x * TN + ty + 16 * i, tap = column % taps;
            const int p = read_by(w, 0, o.at[0], tap / w.kernel[2] / w.kernel[1]);
            const int q = read_by(w, 1, o.at[1], tap / w.kernel[2] % w.kernel[1]);
            const int r = read_by(w, 2, o.at[2], tap % w.kernel[2]);
            const bool inside = column < columns && e < end && p >= 0 && q >= 0 && r >= 0;
            const i64 at = (image * channels + column / taps) * size + offset_in(w.size, p, q, r);
            b[tx][ty + 16 * i] = inside ? (A)x[at] : A(0);
        }
        __syncthreads();
        add_tile(sum, a, b, ty, tx);
    }
    const i64 whole = (i64)groups * rows * columns;
    const i64 first = ((i64)group * rows + blockIdx.y * TM) * columns + blockIdx.x * TN;
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int row = ty + 16 * i, column = tx + 16 * j;
            if (blockIdx.y * TM + row >= rows || blockIdx.x * TN + column >= columns) continue;
            const i64 at = first + (i64)row * columns + column;
            if (parts > 1) partial[piece * whole + at] = sum[i][j];
            else result[at] = (T)sum[i][j];
        }
    if (parts == 1) return;
    if (!comes_last(tickets + (group * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x, parts))
        return;
    for (int e = threadIdx.x; e < TM * TN; e += blockDim.x) {
        const int row = e / TN, column = e % TN;
        if (blockIdx.y * TM + row >= rows || blockIdx.x * TN + column >= columns) continue;
        const i64 at = first + (i64)row * columns + column;
        A total = 0;
        for (int k = 0; k < parts; ++k) total += ((const volatile A*)partial)[k * whole + at];
        result[at] = (T)total;
    }
}
""",
}
NAMES = tuple(KERNELS)
SOURCE = whole(KERNELS, BACK=0)
