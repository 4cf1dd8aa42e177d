"""Kernels that put short lines in order, and sums by an order of indices.

A block sorts lines in shared memory, by a network of comparisons (Batcher's bitonic sort, 1968): P
places for each, a power of two, of which what a line does not have stands behind all others. R
lines together give each thread of the block a pair to compare. Elements of four bytes or less are
words together with their places, which threads keep in registers.
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

_WORDS = r"""
// A key and its place in one word: as whole numbers these are in the order of the elements. The
// keys of floats are their bits, turned around so; all nan are one, and so are both zeros.
template <int SIZE> struct WordOf { typedef unsigned long long Word; typedef unsigned Bits; };
template <> struct WordOf<2> { typedef unsigned Word; typedef unsigned short Bits; };
template <> struct WordOf<1> { typedef unsigned Word; typedef unsigned char Bits; };
typedef WordOf<sizeof(T)>::Word Word;
typedef WordOf<sizeof(T)>::Bits Bits;
constexpr int SHIFT = sizeof(Word) * 4;
constexpr unsigned SIGN = 1u << (8 * sizeof(T) - 1), ALL = SIGN - 1 + SIGN;

__device__ __forceinline__ unsigned key_of(const T* x)
{
    const unsigned bits = *(const Bits*)x, size = bits & (SIGN - 1);
    unsigned key = bits;
    if constexpr (INFINITE > 0)
        key = size > INFINITE ? ALL : size == 0 ? SIGN : bits & SIGN ? ALL - bits : bits | SIGN;
    else if constexpr (sizeof(T) == 4)
        key = bits ^ SIGN;
    return DOWN ? ALL - key : key;
}
// In order: EACH words of a thread, of a line of P that P / EACH neighbouring threads have.
// Batcher's network: near words meet in registers, those of a warp by shuffles, others in shared
// memory.
__device__ __forceinline__ void meet(Word& word, Word other, bool takes_less)
{
    word = (other < word) == takes_less ? other : word;
}
__device__ __forceinline__ void words_in_order(Word* words, Word* shared)
{
    const int first = threadIdx.x * EACH % P;
    for (int size = 2; size <= P; size *= 2) {
        int stride = size / 2;
        for (; stride >= 32 * EACH; stride /= 2) {
            __syncthreads();
            #pragma unroll
            for (int i = 0; i < EACH; ++i) shared[i * blockDim.x + threadIdx.x] = words[i];
            __syncthreads();
            const int partner = threadIdx.x ^ stride / EACH;
            const bool less = ((first & size) == 0) == ((first & stride) == 0);
            #pragma unroll
            for (int i = 0; i < EACH; ++i)
                meet(words[i], shared[i * blockDim.x + partner], less);
        }
        for (; stride >= EACH; stride /= 2) {
            const bool less = ((first & size) == 0) == ((first & stride) == 0);
            #pragma unroll
            for (int i = 0; i < EACH; ++i)
                meet(words[i], __shfl_xor_sync(0xffffffffu, words[i], stride / EACH), less);
        }
        #pragma unroll
        for (int near = EACH / 2; near > 0; near /= 2) {
            if (near >= size) continue;
            #pragma unroll
            for (int i = 0; i < EACH; ++i) {
                if (i & near) continue;
                const bool up = (first + i & size) == 0;
                const Word a = words[i], b = words[i + near];
                const bool turn = (b < a) == up && a != b;
                words[i] = turn ? b : a, words[i + near] = turn ? a : b;
            }
        }
    }
}
"""

KERNELS = {
    # As `order`, of elements of four bytes or less.
    "order_words": _WORDS + PART + r"""
extern "C" __global__ void __launch_bounds__(256) order_words(
    const T* x, const i64* names, T* values, i64* indices, i64 rows, i64 n, i64 inner, int chunk,
    int chunks, int first, int count)
{
    __shared__ Word shared[P * R];
    Word words[EACH];
    constexpr int TEAM = P / EACH;
    {
        const i64 row = (i64)blockIdx.x * R + threadIdx.x / TEAM, line = row / chunks;
        const i64 base = line / inner * n * inner + line % inner, start = row % chunks * chunk;
        #pragma unroll
        for (int i = 0; i < EACH; ++i) {  // in any order: their places say in which they were
            const int slot = i * TEAM + threadIdx.x % TEAM;
            const i64 k = start + slot, at = base + k * inner;
            const bool is_there = row < rows && slot < chunk && k < n && (!names || names[at] >= 0);
            const unsigned key = is_there ? key_of(x + at) : ALL;
            words[i] = (Word)key << SHIFT | (unsigned)(is_there ? slot : P + slot);
        }
    }
    words_in_order(words, shared);
    __syncthreads();
    for (int i = 0; i < EACH; ++i) shared[threadIdx.x * EACH + i] = words[i];
    __syncthreads();
    for (int e = threadIdx.x; e < count * R; e += blockDim.x) {
        const i64 row = (i64)blockIdx.x * R + e / count, line = row / chunks;
        if (row >= rows) continue;
        int from = e / count * P + first + e % count;
        if constexpr (MEDIAN) {
            const int begin = e / count * P;
            int last = begin + (int)n - 1;
            if (INFINITE > 0 && (unsigned)(shared[last] >> SHIFT) == ALL) {
                while (last > begin && (unsigned)(shared[last - 1] >> SHIFT) == ALL) --last;
                from = last;
            }
        }
        const int place = (int)(shared[from] & (((Word)1 << SHIFT) - 1));
        const bool is_there = place < P;
        const i64 k = row % chunks * chunk + (is_there ? place : 0);
        const i64 at = line / inner * n * inner + line % inner + k * inner;
        const i64 to = (line / inner * chunks * count + row % chunks * count + e % count) * inner +
                       line % inner;
        if (values) values[to] = x[at];
        indices[to] = !is_there ? -1 : names ? names[at] : k;
    }
}
""",
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
    # Of x, (outer, n, wide), or of zeros, sums with g where indices, (outer, count, inner), say:
    # a block has a line, puts the indices in order, and adds up in that order. There are indices
    # for the first `outer` only, and for the first `inner` of `wide`.
    "add_in_order": _NETWORK + PART + r"""
__device__ __forceinline__ bool index_before(i64 a, int i, i64 b, int j)
{
    return i >= P || j >= P || a == b ? i < j : a < b;
}
extern "C" __global__ void __launch_bounds__(1024) add_in_order(
    const T* x, const T* g, const W* indices, T* out, i64 n, int count, i64 inner, i64 wide,
    i64 step0, i64 step1, i64 step2, i64 outer)
{
    __shared__ i64 keys[P];
    __shared__ int places[P];
    const i64 line = blockIdx.x / wide, column = blockIdx.x % wide;
    const i64 from = line * count * inner + column, base = line * n * wide + column;
    const W* own = indices + line * step0 + column * step2;
    const bool has_indices = line < outer && column < inner;
    for (int e = threadIdx.x; e < P; e += blockDim.x) {
        i64 index = has_indices && e < count ? (i64)own[e * step1] : 0;
        if (index < 0 || index >= n) index = (index % n + n) % n;  // as CuPy does
        keys[e] = index, places[e] = has_indices && e < count ? e : P + e;
    }
    put_in_order(keys, places, index_before);
    for (i64 k = threadIdx.x; k < n && x != out; k += blockDim.x)
        out[base + k * wide] = x ? x[base + k * wide] : (T)0.0f;
    __syncthreads();
    for (int e = threadIdx.x; e < P; e += blockDim.x) {
        if (places[e] >= P || (e > 0 && keys[e - 1] == keys[e])) continue;
        const i64 at = base + keys[e] * wide;
        A sum = x ? (A)x[at] : A(0);
        for (int k = e; k < P && places[k] < P && keys[k] == keys[e]; ++k)
            sum += (A)g[from + places[k] * inner];
        out[at] = (T)sum;
    }
}
""",
}  # fmt: skip
NAMES = tuple(KERNELS)
SOURCE = whole(KERNELS, P=2048, R=1, DOWN=0, MEDIAN=0, EACH=8, INFINITE=0x7F800000)
