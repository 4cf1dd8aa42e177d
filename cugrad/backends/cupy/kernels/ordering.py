"""Kernels that put short lines in order, and sums by an order of indices.

A block sorts lines in shared memory, by a network of comparisons (Batcher's bitonic sort, 1968): P
places for each, a power of two, of which what a line does not have stands behind all others. R
lines together give each thread of the block a pair to compare.
"""

from __future__ import annotations

from . import PART, whole

__all__ = ["KERNELS", "NAMES", "SOURCE"]

_NETWORK = r"""
// What is compared are a key and its place in the line: of equals the first stays first.
template <class K, class Before> __device__ __forceinline__ void put_in_order(
    K* keys, int* places, Before before)
{
    for (int size = 2; size <= P; size *= 2)
        for (int stride = size / 2; stride > 0; stride /= 2) {
            __syncthreads();
            const int i = threadIdx.x / stride * 2 * stride + threadIdx.x % stride, j = i + stride;
            const bool up = (i % P & size) == 0;
            if (up ? before(keys[j], places[j], keys[i], places[i])
                   : before(keys[i], places[i], keys[j], places[j])) {
                const K key = keys[i];
                const int place = places[i];
                keys[i] = keys[j], places[i] = places[j];
                keys[j] = key, places[j] = place;
            }
        }
    __syncthreads();
}
"""

KERNELS = {
    # Of lines of n elements, `inner` apart, or of `chunks` of each, `count` elements of the order
    # from `first` on, and their indices. `names` are the indices of elements, or -1 for none, where
    # the lines are what chunks had. MEDIAN: the one at `first`, or the first nan, if there is one.
    "order": _NETWORK + PART + r"""
__device__ __forceinline__ bool comes_before(A a, int i, A b, int j)
{
    if (i >= P || j >= P) return i < j;  // there is none
    const bool no_a = a != a, no_b = b != b;
    if (no_a || no_b) return no_a && no_b ? i < j : DOWN ? no_a : no_b;  // nan is the largest
    if (a == b) return i < j;
    return DOWN ? a > b : a < b;
}
extern "C" __global__ void __launch_bounds__(1024) order(
    const T* x, const i64* names, T* values, i64* indices, i64 rows, i64 n, i64 inner, int chunk,
    int chunks, int first, int count)
{
    __shared__ A keys[P * R];
    __shared__ int places[P * R];
    for (int e = threadIdx.x; e < P * R; e += blockDim.x) {
        const i64 row = (i64)blockIdx.x * R + e / P, line = row / chunks;
        const int slot = e % P;
        const i64 k = row % chunks * chunk + slot;
        const i64 at = line / inner * n * inner + line % inner + k * inner;
        const bool is_there = row < rows && slot < chunk && k < n && (!names || names[at] >= 0);
        keys[e] = is_there ? (A)x[at] : A(0);
        places[e] = is_there ? slot : P + slot;
    }
    put_in_order(keys, places, comes_before);
    for (int e = threadIdx.x; e < count * R; e += blockDim.x) {
        const i64 row = (i64)blockIdx.x * R + e / count, line = row / chunks;
        if (row >= rows) continue;
        int from = e / count * P + first + e % count;
        if constexpr (MEDIAN) {
            const int begin = e / count * P;
            int last = begin + (int)n - 1;
            if (keys[last] != keys[last]) {
                while (last > begin && keys[last - 1] != keys[last - 1]) --last;
                from = last;
            }
        }
        const i64 k = row % chunks * chunk + places[from];
        const i64 at = line / inner * n * inner + line % inner + k * inner;
        const i64 to = (line / inner * chunks * count + row % chunks * count + e % count) * inner +
                       line % inner;
        const bool is_there = places[from] < P;
        if (values) values[to] = (T)keys[from];
        indices[to] = !is_there ? -1 : names ? names[at] : k;
    }
}
""",
    # Of x, (outer, n, inner), or of zeros, sums with g where indices, (outer, count, inner), say:
    # a block has a line, puts the indices in order, and adds up in that order. There are indices
    # for the first `with_indices` lines only.
    "add_in_order": _NETWORK + PART + r"""
__device__ __forceinline__ bool index_before(i64 a, int i, i64 b, int j)
{
    return i >= P || j >= P || a == b ? i < j : a < b;
}
extern "C" __global__ void __launch_bounds__(1024) add_in_order(
    const T* x, const T* g, const W* indices, T* out, i64 n, int count, i64 inner,
    i64 with_indices)
{
    __shared__ i64 keys[P];
    __shared__ int places[P];
    const i64 line = blockIdx.x, from = line / inner * count * inner + line % inner;
    const i64 base = line / inner * n * inner + line % inner;
    const bool has_indices = line < with_indices;
    for (int e = threadIdx.x; e < P; e += blockDim.x) {
        i64 index = has_indices && e < count ? (i64)indices[from + e * inner] : 0;
        if (index < 0 || index >= n) index = (index % n + n) % n;  // as CuPy does
        keys[e] = index, places[e] = has_indices && e < count ? e : P + e;
    }
    put_in_order(keys, places, index_before);
    for (i64 k = threadIdx.x; k < n; k += blockDim.x)
        out[base + k * inner] = x ? x[base + k * inner] : (T)0.0f;
    __syncthreads();
    for (int e = threadIdx.x; e < P; e += blockDim.x) {
        if (places[e] >= P || (e > 0 && keys[e - 1] == keys[e])) continue;
        const i64 at = base + keys[e] * inner;
        A sum = x ? (A)x[at] : A(0);
        for (int k = e; k < P && places[k] < P && keys[k] == keys[e]; ++k)
            sum += (A)g[from + places[k] * inner];
        out[at] = (T)sum;
    }
}
""",
}  # fmt: skip
NAMES = tuple(KERNELS)
SOURCE = whole(KERNELS, P=2048, R=1, DOWN=0, MEDIAN=0)
