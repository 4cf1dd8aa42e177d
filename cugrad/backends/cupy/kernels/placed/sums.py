"""Kernels that read where bits or indices say, write there, and add up what goes to one place."""

from __future__ import annotations

from .. import PART, whole

__all__ = ["KERNELS", "NAMED", "NAMES", "PLACES", "POINTERS", "SOURCE", "STEPS", "TOLD"]

NAMED = r"""
// In (outer, n, wide), the place that the index i of (outer, count, inner) names along n. Indices
// lie with steps of their own; `inner` is at most `wide`.
__device__ __forceinline__ i64 named_by(
    const W* indices, i64 i, i64 n, i64 count, i64 inner, i64 wide, i64 step0, i64 step1,
    i64 step2)
{
    const i64 outer = i / (count * inner), rest = i % (count * inner);
    const i64 column = rest % inner;
    i64 index = (i64)indices[outer * step0 + rest / inner * step1 + column * step2];
    if (index < 0 || index >= n) index = (index % n + n) % n;  // as CuPy does
    return (outer * n + index) * wide + column;
}
"""

# Where up to four arrays of indices, (.., size1, size2), lead together: to the sum of each, within
# its n, times its step. What is not there has no address.
POINTERS = "const W* i0, const W* i1, const W* i2, const W* i3"
STEPS = "i64 size1, i64 size2, " + ", ".join(
    f"i64 a{k}, i64 b{k}, i64 c{k}, i64 n{k}, i64 step{k}" for k in range(4)
)
TOLD = "i0, i1, i2, i3, " + STEPS.replace("i64 ", "")
PLACES = f"""
__device__ __forceinline__ i64 divided(i64 i, i64 by)
{{
    return i > 0x7fffffff || by > 0x7fffffff ? i / by : (i64)((unsigned)i / (unsigned)by);
}}
__device__ __forceinline__ i64 place_of(const W* indices, i64 i, i64 n, i64 step)
{{
    if (indices == nullptr) return 0;
    i64 index = (i64)indices[i];
    if (index < 0 || index >= n) index = (index % n + n) % n;  // as CuPy does
    return index * step;
}}
__device__ __forceinline__ i64 place_of_several(i64 i, {POINTERS}, {STEPS})
{{
    const i64 line = divided(i, size2), c = i - line * size2, a = divided(line, size1);
    const i64 b = line - a * size1;
    return place_of(i0, a * a0 + b * b0 + c * c0, n0, step0) +
           place_of(i1, a * a1 + b * b1 + c * c1, n1, step1) +
           place_of(i2, a * a2 + b * b2 + c * c2, n2, step2) +
           place_of(i3, a * a3 + b * b3 + c * c3, n3, step3);
}}
"""

# Where indices do not stand for rows of g in their order, but for those `of` says, times shares.
_OTHERS = r"""
__device__ __forceinline__ i64 row_of(const int* of, int k) { return OTHERS ? of[k] : k; }
__device__ __forceinline__ A share_of(const A* shares, int k, A factor)
{
    return OTHERS ? shares[k] : factor;
}
"""

KERNELS = {
    # Elements whose bit is 1, times a scale, and 0 for others; bits lie eight to a byte, the first
    # of them highest. CHANNELS: a bit is for `inner` neighbours.
    "keep_by_bits": r"""
extern "C" __global__ void __launch_bounds__(256) keep_by_bits(
    const T* x, const unsigned char* bits, T* y, i64 size, i64 inner, A scale)
{
    const i64 i = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (i >= size) return;
    Pack<T, PACK> v = load(x + i);
    const i64 bit = CHANNELS ? i / inner : i;
    const int byte = bits[bit / 8], first = 7 - (int)(bit % 8);  // a pack does not leave its byte
    for (int k = 0; k < PACK; ++k)  // 0 * x is nan for what is not finite, as in the row
        v.at[k] = (T)((A)v.at[k] * (byte >> (CHANNELS ? first : first - k) & 1 ? scale : A(0)));
    save(y + i, v);
}
""",
    # Of x, (outer, n, wide), the elements that indices, (outer, count, inner), name along n.
    "gather": NAMED + PART + r"""
extern "C" __global__ void __launch_bounds__(256) gather(
    const T* x, const W* indices, T* y, i64 size, i64 n, i64 count, i64 inner, i64 wide,
    i64 step0, i64 step1, i64 step2)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) y[i] = x[named_by(indices, i, n, count, inner, wide, step0, step1, step2)];
}
""",
    # The places that several arrays of indices name together.
    "places_of_several": PLACES + PART + f"""
extern "C" __global__ void __launch_bounds__(256) places_of_several(
    {POINTERS}, i64* places, i64 size, {STEPS})
{{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) places[i] = place_of_several(i, {TOLD});
}}
""",
    # The adjoint: a thread looks through the few indices that may name its element, in order. There
    # are indices for the first `outer` only, and for the first `inner` of `wide`.
    "gather_backward": r"""
extern "C" __global__ void __launch_bounds__(256) gather_backward(
    const T* g, const W* indices, T* x, i64 size, i64 n, i64 count, i64 inner, i64 wide,
    i64 step0, i64 step1, i64 step2, i64 outer)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const i64 own = i / wide % n, line = i / (n * wide), column = i % wide;
    const i64 from = line * count * inner + column;
    A sum = 0;
    for (i64 j = 0; j < count && line < outer && column < inner; ++j) {
        i64 index = (i64)indices[line * step0 + j * step1 + column * step2];
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
    # x, (outer, n, wide), at indices, (outer, count, inner), becomes what g has there, or 0; g is
    # as large as the indices, or, with a step of 0, a number.
    "put_by_index": NAMED + PART + r"""
extern "C" __global__ void __launch_bounds__(256) put_by_index(
    const T* g, const W* indices, T* x, i64 size, i64 step, i64 n, i64 count, i64 inner,
    i64 wide, i64 step0, i64 step1, i64 step2)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    x[named_by(indices, i, n, count, inner, wide, step0, step1, step2)] = g ? g[i * step] : (T)0;
}
""",
    # The bytes of n that indices name become 1, by atomics of words.
    "mark_named": r"""
extern "C" __global__ void __launch_bounds__(256) mark_named(
    const W* indices, int* marks, i64 count, i64 n)
{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= count) return;
    i64 index = (i64)indices[i];
    if (index < 0 || index >= n) index = (index % n + n) % n;
    atomicOr(marks + index / 4, 1 << index % 4 * 8);
}
""",
    # Along a last dim of n, 1 at the place that an index names, and 0 elsewhere.
    "one_hot": r"""
extern "C" __global__ void __launch_bounds__(256) one_hot(
    const W* indices, i64* y, i64 size, i64 n)
{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= size) return;
    const i64 line = i > 0x7fffffff ? i / n : (i64)((unsigned)i / (unsigned)n);
    y[i] = (i64)indices[line] == i - line * n;
}
""",
    # x, (outer, n, wide), += g where indices, (outer, count, inner), say, in any order.
    "add_by_index": NAMED + PART + r"""
extern "C" __global__ void __launch_bounds__(256) add_by_index(
    const T* g, const W* indices, T* x, i64 size, i64 n, i64 count, i64 inner, i64 wide,
    i64 step0, i64 step1, i64 step2)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    atomicAdd(x + named_by(indices, i, n, count, inner, wide, step0, step1, step2), g[i]);
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
}  # fmt: skip
NAMES = tuple(KERNELS)
SOURCE = whole(KERNELS, OTHERS=0, CHANNELS=0)
