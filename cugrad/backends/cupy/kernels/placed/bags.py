"""Kernels of bags: sums, means and maxima of the rows of a matrix that bags of numbers name.

Bag `b` has the numbers from offsets[b] on, or, without offsets, `size` of them. Numbers that name
the row `left_out` do not count.
"""

from __future__ import annotations

from .. import PART, whole

__all__ = ["KERNELS", "MOST", "NAMES", "SOURCE"]

MEAN, MOST = 1, 2  # HOW; 0 of sums

_BAGS = r"""
__device__ __forceinline__ i64 named_row(const W* indices, i64 j, i64 n)
{
    const i64 index = (i64)indices[j], row = index < 0 ? index + n : index;
    return row < 0 ? 0 : row < n ? row : n - 1;  // others are errors
}
// Where a bag begins, or ends: where the next one does.
__device__ __forceinline__ i64 begin_of(const W* offsets, i64 bag, i64 bags, i64 size, i64 count)
{
    if (bag <= 0) return 0;
    if (bag >= bags) return count;
    const i64 begin = offsets ? (i64)offsets[bag] : bag * size;
    return begin < 0 ? 0 : begin < count ? begin : count;
}
"""

KERNELS = {
    # y, (bags, width), of weight, (n, width); of maxima the rows that they are from, n of none.
    "pool_bags": _BAGS + PART + r"""
extern "C" __global__ void __launch_bounds__(256) pool_bags(
    const T* weight, const W* indices, const W* offsets, const T* factors, T* y, i64* rows, i64 n,
    i64 count, i64 bags, i64 size, i64 width, i64 left_out, int team)
{
    const i64 bag = (i64)blockIdx.x * (256 / team) + threadIdx.x / team;
    if (bag >= bags) return;
    const i64 begin = begin_of(offsets, bag, bags, size, count);
    const i64 end = begin_of(offsets, bag + 1, bags, size, count);
    i64 k = ((i64)blockIdx.y * team + threadIdx.x % team) * PACK;
    for (; k < width; k += (i64)gridDim.y * team * PACK) {
        A values[PACK] = {};
        i64 from[PACK];
        for (int p = 0; p < PACK; ++p) from[p] = n;
        i64 counted = 0;
        #pragma unroll 4
        for (i64 j = begin; j < end; ++j) {
            const i64 row = named_row(indices, j, n);
            if (row == left_out) continue;
            const Pack<T, PACK> part = load(weight + row * width + k);
            const A factor = factors ? (A)factors[j] : A(1);
            for (int p = 0; p < PACK; ++p) {
                const A v = (A)part.at[p];
                if (HOW != 2) values[p] += v * factor;
                else if (counted == 0 || v > values[p] || (v != v && values[p] == values[p]))
                    values[p] = v, from[p] = row;
            }
            ++counted;
        }
        Pack<T, PACK> result;
        for (int p = 0; p < PACK; ++p)
            result.at[p] = (T)(HOW == 1 && counted > 1 ? values[p] / (A)counted : values[p]);
        save(y + bag * width + k, result);
        if (HOW == 2)
            for (int p = 0; p < PACK; ++p) rows[bag * width + k + p] = from[p];
    }
}
""",
    # The bag of each number, and what its row is multiplied by: a warp finds those of a bag.
    "bags_of_numbers": _BAGS + PART + r"""
extern "C" __global__ void __launch_bounds__(256) bags_of_numbers(
    const W* indices, const W* offsets, const T* factors, int* of, A* shares, i64 n, i64 count,
    i64 bags, i64 size, i64 left_out)
{
    const i64 bag = (i64)blockIdx.x * 8 + threadIdx.x / 32;
    if (bag >= bags) return;
    const i64 begin = begin_of(offsets, bag, bags, size, count);
    const i64 end = begin_of(offsets, bag + 1, bags, size, count);
    A counted = 0;
    if (HOW == 1) {
        for (i64 j = begin + threadIdx.x % 32; j < end; j += 32)
            counted += named_row(indices, j, n) != left_out;
        for (int d = 16; d > 0; d /= 2) counted += __shfl_xor_sync(0xffffffffu, counted, d);
    }
    for (i64 j = begin + threadIdx.x % 32; j < end; j += 32) {
        const A factor = factors ? (A)factors[j] : A(1);
        of[j] = (int)bag, shares[j] = counted > 1 ? factor / counted : factor;
    }
}
""",
    # For each number the product of its row of weight and the row of g of its bag: a warp adds one
    # up, and looks for the bag, the last one that begins before.
    "products_of_bags": _BAGS + PART + r"""
extern "C" __global__ void __launch_bounds__(256) products_of_bags(
    const T* g, const T* weight, const W* indices, const W* offsets, T* y, i64 n, i64 count,
    i64 bags, i64 size, i64 width, i64 left_out)
{
    const i64 j = (i64)blockIdx.x * 8 + threadIdx.x / 32;
    if (j >= count) return;
    const int lane = threadIdx.x % 32;
    i64 bag = 0, above = bags;  // it is one of bag .. above - 1
    while (bag + 1 < above) {
        const i64 middle = (bag + above) / 2;
        if (begin_of(offsets, middle, bags, size, count) <= j) bag = middle;
        else above = middle;
    }
    const i64 row = named_row(indices, j, n);
    A sum = 0, counted = 0;
    if (row != left_out) {
        for (i64 k = lane * PACK; k < width; k += 32 * PACK) {
            const Pack<T, PACK> a = load(g + bag * width + k), b = load(weight + row * width + k);
            for (int p = 0; p < PACK; ++p) sum += (A)a.at[p] * (A)b.at[p];
        }
        if (HOW == 1) {
            const i64 end = begin_of(offsets, bag + 1, bags, size, count);
            i64 other = begin_of(offsets, bag, bags, size, count) + lane;
            for (; other < end; other += 32) counted += named_row(indices, other, n) != left_out;
        }
    }
    for (int d = 16; d > 0; d /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, d);
        counted += __shfl_xor_sync(0xffffffffu, counted, d);
    }
    if (lane == 0) y[j] = (T)(counted > 1 ? sum / counted : sum);
}
""",
}  # fmt: skip
NAMES = tuple(KERNELS)
SOURCE = whole(KERNELS, HOW=MEAN)
