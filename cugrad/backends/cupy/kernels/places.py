"""Kernels that read and write where bits or indices say, also to reduce what goes to one place.

Of products and extrema half precision is reduced in float32 and small integers in `int`: both are
what `S` is. nan has one bit pattern in `S`, so that floats are compared as the integers that their
bits are, by one atomic.
"""

from __future__ import annotations

from . import PART, whole

__all__ = ["KERNELS", "NAMED", "NAMES", "SOURCE"]

NAMED = r"""
// In (outer, n, inner), the place that the index i of (outer, count, inner) names along n. Indices
// lie with steps of their own.
__device__ __forceinline__ i64 named_by(
    const W* indices, i64 i, i64 n, i64 count, i64 inner, i64 step0, i64 step1, i64 step2)
{
    const i64 outer = i / (count * inner), rest = i % (count * inner);
    const i64 column = rest % inner;
    i64 index = (i64)indices[outer * step0 + rest / inner * step1 + column * step2];
    if (index < 0 || index >= n) index = (index % n + n) % n;  // as CuPy does
    return (outer * n + index) * inner + column;
}
"""

# Where indices do not stand for rows of g in their order, but for those `of` says, times shares.
_OTHERS = r"""
__device__ __forceinline__ i64 row_of(const int* of, int k) { return OTHERS ? of[k] : k; }
__device__ __forceinline__ A share_of(const A* shares, int k, A factor)
{
    return OTHERS ? shares[k] : factor;
}
"""

_REDUCED = r"""
template <int SMALL> struct Reduced { typedef A S; };  // HOW: 0 multiplies, 1 and 2 are extrema
template <> struct Reduced<1> { typedef int S; };
typedef Reduced<NARROW>::S S;
typedef unsigned long long u64;

__device__ __forceinline__ int bits_of(float v) { return __float_as_int(v); }
__device__ __forceinline__ i64 bits_of(double v) { return __double_as_longlong(v); }
__device__ __forceinline__ int bits_of(int v) { return v; }
__device__ __forceinline__ i64 bits_of(i64 v) { return v; }
__device__ __forceinline__ void value_of(int bits, float& v) { v = __int_as_float(bits); }
__device__ __forceinline__ void value_of(i64 bits, double& v) { v = __longlong_as_double(bits); }
__device__ __forceinline__ void value_of(int bits, int& v) { v = bits; }
__device__ __forceinline__ void value_of(i64 bits, i64& v) { v = bits; }

// A number as it is kept: nan is beyond all others on the side that is looked for.
__device__ __forceinline__ float known(float v)
{
    return v == v ? v : __int_as_float(HOW == 2 ? -1 : 0x7fffffff);
}
__device__ __forceinline__ double known(double v)
{
    return v == v ? v : __longlong_as_double(HOW == 2 ? -1 : 0x7fffffffffffffff);
}
__device__ __forceinline__ int known(int v) { return v; }
__device__ __forceinline__ i64 known(i64 v) { return v; }

__device__ __forceinline__ int swapped(int* p, int was, int is) { return atomicCAS(p, was, is); }
__device__ __forceinline__ i64 swapped(i64* p, i64 was, i64 is)
{
    return (i64)atomicCAS((u64*)p, (u64)was, (u64)is);
}
__device__ __forceinline__ float product(float a, float b) { return a * b; }
__device__ __forceinline__ double product(double a, double b) { return a * b; }
__device__ __forceinline__ int product(int a, int b) { return (int)((unsigned)a * (unsigned)b); }
__device__ __forceinline__ i64 product(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }

template <class E, class Bits> __device__ __forceinline__ void multiply(E* p, E v, Bits was)
{
    for (;;) {  // `was` is what is believed to be there
        E value;
        value_of(was, value);
        const Bits there = swapped((Bits*)p, was, bits_of(product(value, v)));
        if (there == was) return;
        was = there;
    }
}
__device__ __forceinline__ void larger(int* p, int v) { atomicMax(p, v); }
__device__ __forceinline__ void larger(i64* p, i64 v) { atomicMax(p, v); }
__device__ __forceinline__ void smaller(int* p, int v) { atomicMin(p, v); }
__device__ __forceinline__ void smaller(i64* p, i64 v) { atomicMin(p, v); }
// Of the bits of negative floats, as unsigned integers, the largest is the smallest float.
__device__ __forceinline__ void raise(int* p, int v) { atomicMax((unsigned*)p, (unsigned)v); }
__device__ __forceinline__ void raise(i64* p, i64 v) { atomicMax((u64*)p, (u64)v); }
__device__ __forceinline__ void lower(int* p, int v) { atomicMin((unsigned*)p, (unsigned)v); }
__device__ __forceinline__ void lower(i64* p, i64 v) { atomicMin((u64*)p, (u64)v); }

template <class E, class Bits> __device__ __forceinline__ void meet(E* p, E v, Bits bits)
{
    Bits* at = (Bits*)p;
    if (HOW == 0) return multiply(p, v, bits_of(E(1)));
    const bool turned = E(0.5) != E(0) && bits < 0;  // a negative float
    if (HOW == 1) turned ? lower(at, bits) : larger(at, bits);
    else turned ? raise(at, bits) : smaller(at, bits);
}
"""

KERNELS = {
    # Elements whose bit is 1, times a scale, and 0 for others; bits lie eight to a byte, the first
    # of them highest.
    "keep_by_bits": r"""
extern "C" __global__ void __launch_bounds__(256) keep_by_bits(
    const T* x, const unsigned char* bits, T* y, i64 size, A scale)
{
    const i64 i = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (i >= size) return;
    Pack<T, PACK> v = load(x + i);
    const int byte = bits[i / 8], first = 7 - (int)(i % 8);  // a pack does not leave its byte
    for (int k = 0; k < PACK; ++k)  // 0 * x is nan for what is not finite, as in the row
        v.at[k] = (T)((A)v.at[k] * (byte >> (first - k) & 1 ? scale : A(0)));
    save(y + i, v);
}
""",
    # Of x, (outer, n, inner), the elements that indices, (outer, count, inner), name along n.
    "gather": NAMED + PART + r"""
extern "C" __global__ void __launch_bounds__(256) gather(
    const T* x, const W* indices, T* y, i64 size, i64 n, i64 count, i64 inner, i64 step0,
    i64 step1, i64 step2)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) y[i] = x[named_by(indices, i, n, count, inner, step0, step1, step2)];
}
""",
    # Where several indices lead together, of arrays (.., size1, size2): to the sum of each, within
    # its n, times its step. What is not there has no address.
    "places_of_several": r"""
__device__ __forceinline__ i64 place_of(const W* indices, i64 i, i64 n, i64 step)
{
    if (indices == nullptr) return 0;
    i64 index = (i64)indices[i];
    if (index < 0 || index >= n) index = (index % n + n) % n;  // as CuPy does
    return index * step;
}
extern "C" __global__ void __launch_bounds__(256) places_of_several(
    const W* i0, const W* i1, const W* i2, const W* i3, i64* places, i64 size, i64 size1,
    i64 size2, i64 a0, i64 b0, i64 c0, i64 n0, i64 step0, i64 a1, i64 b1, i64 c1, i64 n1,
    i64 step1, i64 a2, i64 b2, i64 c2, i64 n2, i64 step2, i64 a3, i64 b3, i64 c3, i64 n3,
    i64 step3)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const i64 c = i % size2, b = i / size2 % size1, a = i / size2 / size1;
    places[i] = place_of(i0, a * a0 + b * b0 + c * c0, n0, step0) +
                place_of(i1, a * a1 + b * b1 + c * c1, n1, step1) +
                place_of(i2, a * a2 + b * b2 + c * c2, n2, step2) +
                place_of(i3, a * a3 + b * b3 + c * c3, n3, step3);
}
""",
    # The adjoint: a thread looks through the few indices that may name its element, in order. There
    # are indices for the first `outer` only.
    "gather_backward": r"""
extern "C" __global__ void __launch_bounds__(256) gather_backward(
    const T* g, const W* indices, T* x, i64 size, i64 n, i64 count, i64 inner, i64 step0,
    i64 step1, i64 step2, i64 outer)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const i64 own = i / inner % n, line = i / (n * inner);
    const i64 from = line * count * inner + i % inner;
    A sum = 0;
    for (i64 j = 0; j < count && line < outer; ++j) {
        i64 index = (i64)indices[line * step0 + j * step1 + i % inner * step2];
        if (index < 0 || index >= n) index = (index % n + n) % n;
        if (index == own) sum += (A)g[from + j * inner];
    }
    x[i] = (T)sum;
}
""",
    # Rows of g, times a factor, are added up by the index that they go to, in their order, by one
    # block each: that of the first row of an index; `begun`, to what is there. Rounded once.
    # Planes of `count` rows, in blockIdx.z, go to planes of n.
    "add_rows_by_index": _OTHERS + PART + r"""
extern "C" __global__ void __launch_bounds__(256) add_rows_by_index(
    const T* g, const W* indices, const int* of, const A* shares, T* x, int count, i64 width, i64 n,
    i64 left_out, int begun, A factor)
{
    __shared__ bool alike[256];
    i64 own = (i64)indices[blockIdx.x];
    if (own < 0 || own >= n) own = (own % n + n) % n;
    if (own == left_out) return;
    const i64 column = (i64)blockIdx.y * 1024 + threadIdx.x;
    g += blockIdx.z * count * width;
    x += (blockIdx.z * n + own) * width;
    A sums[4] = {};
    for (int start = 0; start < count; start += 256) {
        const int row = start + threadIdx.x;
        i64 index = row < count ? (i64)indices[row] : -1;
        if (row < count && (index < 0 || index >= n)) index = (index % n + n) % n;
        const bool same = row < count && index == own;
        if (__syncthreads_or(same && row < (int)blockIdx.x)) return;  // another block adds it
        alike[threadIdx.x] = same;
        if (!__syncthreads_or(same)) continue;
        for (int k = 0; k < 256; ++k)
            if (alike[k])
                for (int j = 0; j < 4; ++j)
                    if (column + 256 * j < width)
                        sums[j] += (A)g[row_of(of, start + k) * width + column + 256 * j] *
                                   share_of(shares, start + k, factor);
    }
    for (int j = 0; j < 4; ++j)
        if (column + 256 * j < width)
            x[column + 256 * j] = (T)(begun ? (A)x[column + 256 * j] + sums[j] : sums[j]);
}
""",
    # A copy of x, or zeros.
    "begin_with": r"""
extern "C" __global__ void __launch_bounds__(256) begin_with(const T* x, T* y, i64 size)
{
    const i64 i = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (i < size) save(y + i, x ? load(x + i) : Pack<T, PACK>{});
}
""",
    # x, (outer, n, inner), at indices, (outer, count, inner), becomes what g has there, or 0.
    "put_by_index": NAMED + PART + r"""
extern "C" __global__ void __launch_bounds__(256) put_by_index(
    const T* g, const W* indices, T* x, i64 size, i64 n, i64 count, i64 inner, i64 step0,
    i64 step1, i64 step2)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    x[named_by(indices, i, n, count, inner, step0, step1, step2)] = g ? g[i] : (T)0;
}
""",
    # x, (outer, n, inner), += g where indices, (outer, count, inner), say, in any order.
    "add_by_index": NAMED + PART + r"""
extern "C" __global__ void __launch_bounds__(256) add_by_index(
    const T* g, const W* indices, T* x, i64 size, i64 n, i64 count, i64 inner, i64 step0,
    i64 step1, i64 step2)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    atomicAdd(x + named_by(indices, i, n, count, inner, step0, step1, step2), g[i]);
}
""",
    # How often indices name each of n rows, and for each index how many have named its row before,
    # in any order; -1 for what is left out.
    "count_indices": r"""
extern "C" __global__ void __launch_bounds__(256) count_indices(
    const W* indices, int* counts, int* ranks, int count, i64 n, i64 left_out)
{
    const i64 j = (i64)blockIdx.x * 256 + threadIdx.x;
    if (j >= count) return;
    i64 index = (i64)indices[j];
    if (index < 0 || index >= n) index = (index % n + n) % n;
    ranks[j] = index == left_out ? -1 : atomicAdd(counts + index, 1);
}
""",
    # For each row a range of so many places, in any order; `counts` go on with how many are taken,
    # and how many rows have more than `most`: these are listed.
    "begin_ranges": r"""
extern "C" __global__ void __launch_bounds__(256) begin_ranges(
    int* counts, int* starts, int* long_rows, i64 n, int most)
{
    __shared__ int parts[8];
    const int lane = threadIdx.x % 32, line = threadIdx.x / 32;
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    const int own = i < n ? counts[i] : 0;
    int until = own;  // and with those of the lanes before
    for (int d = 1; d < 32; d *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, until, d);
        if (lane >= d) until += other;
    }
    if (lane == 31) parts[line] = until;
    __syncthreads();
    if (threadIdx.x == 0) {
        int sum = 0;
        for (int k = 0; k < 8; ++k) sum += parts[k];
        int begin = sum > 0 ? atomicAdd(counts + n, sum) : 0;
        for (int k = 0; k < 8; ++k) {
            const int part = parts[k];
            parts[k] = begin, begin += part;
        }
    }
    __syncthreads();
    if (i >= n) return;
    starts[i] = parts[line] + until - own;
    if (own > most) long_rows[atomicAdd(counts + n + 1, 1)] = (int)i;
}
""",
    # The indices of each row, in its range.
    "fill_ranges": r"""
extern "C" __global__ void __launch_bounds__(256) fill_ranges(
    const W* indices, const int* starts, const int* ranks, int* order, int count, i64 n)
{
    const i64 j = (i64)blockIdx.x * 256 + threadIdx.x;
    if (j >= count || ranks[j] < 0) return;
    i64 index = (i64)indices[j];
    if (index < 0 || index >= n) index = (index % n + n) % n;
    order[starts[index] + ranks[j]] = (int)j;
}
""",
    # Rows of y, planes of n, are those of x, or zeros, and the sums of the rows of g in their
    # ranges, times a factor; rounded once. `team` threads share a row. Rows with more than `most`
    # are left to others.
    "sum_ranges": _OTHERS + PART + r"""
extern "C" __global__ void __launch_bounds__(256) sum_ranges(
    const T* g, const T* x, const int* counts, const int* starts, const int* order, const int* of,
    const A* shares, T* y, i64 n, int count, i64 width, int team, int most, A factor)
{
    const i64 row = (i64)blockIdx.x * (256 / team) + threadIdx.x / team;
    if (row >= n) return;
    const int own = counts[row], begin = starts[row];
    if (own > most) return;
    g += (i64)blockIdx.z * count * width;
    const i64 place = ((i64)blockIdx.z * n + row) * width;
    i64 k = ((i64)blockIdx.y * team + threadIdx.x % team) * PACK;
    for (; k < width; k += (i64)gridDim.y * team * PACK) {
        A sums[PACK] = {};
        #pragma unroll 4
        for (int j = 0; j < own; ++j) {
            const int from = order[begin + j];
            const Pack<T, PACK> part = load(g + row_of(of, from) * width + k);
            const A share = share_of(shares, from, A(1));
            for (int p = 0; p < PACK; ++p) sums[p] += (A)part.at[p] * share;
        }
        Pack<T, PACK> result = {};
        if (x) result = load(x + place + k);
        for (int p = 0; p < PACK; ++p) result.at[p] = (T)((A)result.at[p] + sums[p] * factor);
        save(y + place + k, result);
    }
}
""",
    # The same for a row with more, by eight lines of 32 threads.
    "sum_long_ranges": _OTHERS + PART + r"""
extern "C" __global__ void __launch_bounds__(256) sum_long_ranges(
    const T* g, const T* x, const int* counts, const int* starts, const int* order,
    const int* long_rows, const int* of, const A* shares, T* y, i64 n, int count, i64 width,
    A factor)
{
    if ((int)blockIdx.x >= counts[n + 1]) return;
    const i64 row = long_rows[blockIdx.x];
    const int own = counts[row], begin = starts[row], line = threadIdx.x / 32;
    g += (i64)blockIdx.z * count * width;
    const i64 place = ((i64)blockIdx.z * n + row) * width;
    i64 start = (i64)blockIdx.y * 32 * PACK;
    for (; start < width; start += (i64)gridDim.y * 32 * PACK) {
        const i64 k = start + threadIdx.x % 32 * PACK;
        A sums[PACK] = {};
        #pragma unroll 4
        for (int j = line; j < own && k < width; j += 8) {
            const int from = order[begin + j];
            const Pack<T, PACK> part = load(g + row_of(of, from) * width + k);
            const A share = share_of(shares, from, A(1));
            for (int p = 0; p < PACK; ++p) sums[p] += (A)part.at[p] * share;
        }
        for (int p = 0; p < PACK; ++p) sums[p] = of_lines(sums[p], Sum());
        if (line > 0 || k >= width) continue;
        Pack<T, PACK> result = {};
        if (x) result = load(x + place + k);
        for (int p = 0; p < PACK; ++p) result.at[p] = (T)((A)result.at[p] + sums[p] * factor);
        save(y + place + k, result);
    }
}
""",
    # x as it is kept while it is reduced.
    "begin_reduction": _REDUCED + PART + r"""
extern "C" __global__ void __launch_bounds__(256) begin_reduction(const T* x, S* y, i64 size)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) y[i] = known((S)(A)x[i]);
}
""",
    # What leaves others as they are, where indices say: y is (outer, n, inner).
    "begin_neutral": _REDUCED + PART + NAMED + PART + r"""
extern "C" __global__ void __launch_bounds__(256) begin_neutral(
    const W* indices, S* y, i64 neutral, i64 size, i64 n, i64 count, i64 inner, i64 step0,
    i64 step1, i64 step2)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const i64 to = named_by(indices, i, n, count, inner, step0, step1, step2);
    if (sizeof(S) == 4) atomicExch((int*)y + to, (int)neutral);
    else atomicExch((u64*)y + to, (u64)neutral);
}
""",
    # y, (outer, n, inner), meets src, (outer, count, inner), where indices say, in any order.
    "reduce_by_index": _REDUCED + PART + NAMED + PART + r"""
extern "C" __global__ void __launch_bounds__(256) reduce_by_index(
    const T* src, const W* indices, S* y, i64 size, i64 n, i64 count, i64 inner, i64 step0,
    i64 step1, i64 step2)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const S v = known((S)(A)src[i]);
    meet(y + named_by(indices, i, n, count, inner, step0, step1, step2), v, bits_of(v));
}
""",
    # What was kept, as it is answered.
    "end_reduction": _REDUCED + PART + r"""
extern "C" __global__ void __launch_bounds__(256) end_reduction(const S* x, T* y, i64 size)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) y[i] = (T)x[i];
}
""",
    # For each place twice the number of src that are what has become of it; and 1 where an index
    # leads there, if `alone`: what was there takes no part then.
    "count_extrema": NAMED + PART + r"""
extern "C" __global__ void __launch_bounds__(256) count_extrema(
    const T* src, const T* result, const W* indices, int* counts, int alone, i64 size, i64 n,
    i64 count, i64 inner, i64 step0, i64 step1, i64 step2)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const i64 to = named_by(indices, i, n, count, inner, step0, step1, step2);
    if ((A)src[i] == (A)result[to]) atomicAdd(counts + to, 2);
    if (alone) atomicOr(counts + to, 1);
}
""",
    # Gradients of extrema: each of those that are one has its share of g.
    "share_extrema": NAMED + PART + r"""
extern "C" __global__ void __launch_bounds__(256) share_extrema(
    const T* g, const T* x, const T* src, const T* result, const W* indices, const int* counts,
    T* of_x, T* of_src, i64 size_x, i64 size, i64 n, i64 count, i64 inner, i64 step0, i64 step1,
    i64 step2)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, j = i - size_x;
    if (j >= size) return;
    const i64 to = j < 0 ? i : named_by(indices, j, n, count, inner, step0, step1, step2);
    const int counted = counts[to];
    const bool top = (A)x[to] == (A)result[to] && counted % 2 == 0;
    const bool mine = j < 0 ? top : (A)src[j] == (A)result[to];
    const A share = mine ? A(1) / (A)(counted / 2 + top) : A(0);
    (j < 0 ? of_x[i] : of_src[j]) = (T)((A)g[to] * share);
}
""",
    # Where products have to begin: 1, and no zero was met.
    "begin_products": r"""
extern "C" __global__ void __launch_bounds__(256) begin_products(A* products, int* zeros, i64 size)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) products[i] = 1, zeros[i] = 0;
}
""",
    # The products of those of src that are not 0, and twice the number of the others; `alone` as
    # above.
    "multiply_others": _REDUCED + PART + NAMED + PART + r"""
extern "C" __global__ void __launch_bounds__(256) multiply_others(
    const T* src, const W* indices, A* products, int* zeros, int alone, i64 size, i64 n, i64 count,
    i64 inner, i64 step0, i64 step1, i64 step2)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const i64 to = named_by(indices, i, n, count, inner, step0, step1, step2);
    const A v = (A)src[i];
    if (v == 0) atomicAdd(zeros + to, 2);
    else multiply(products + to, v, bits_of(A(1)));
    if (alone) atomicOr(zeros + to, 1);
}
""",
    # Gradients of products: g times what all the others are.
    "share_products": NAMED + PART + r"""
extern "C" __global__ void __launch_bounds__(256) share_products(
    const T* g, const T* x, const T* src, const T* result, const W* indices, const A* products,
    const int* zeros, T* of_x, T* of_src, i64 size_x, i64 size, i64 n, i64 count, i64 inner,
    i64 step0, i64 step1, i64 step2)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, j = i - size_x;
    if (j >= size) return;
    const i64 to = j < 0 ? i : named_by(indices, j, n, count, inner, step0, step1, step2);
    const bool alone = zeros[to] % 2 != 0;
    const int none = zeros[to] / 2;
    if (j < 0) {
        const A others = alone ? A(0) : products[to] * (none == 0 ? A(1) : A(0));
        of_x[i] = (T)((A)g[to] * others);
        return;
    }
    const A v = (A)src[j];
    A others;
    if (v == 0 && none == 1) others = (alone ? A(1) : (A)x[to]) * products[to];
    else others = (A)result[to] / (v == 0 ? A(1) : v);
    of_src[j] = (T)((A)g[to] * others);
}
""",
}  # fmt: skip
NAMES = tuple(KERNELS)
SOURCE = whole(KERNELS, HOW=1, NARROW=0, OTHERS=0)
