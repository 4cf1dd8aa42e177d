"""Kernels of one number of each row: the logarithm of its sum of exponentials, its variance, its
deviation, its sum, its mean, its extremes, its length, its squares. Rows are those of `scores.py`.
"""

from __future__ import annotations

from . import PART, whole
from .scores import ROW

__all__ = ["KERNELS", "KINDS", "NAMES", "SOURCE", "TOTALS"]

KINDS = {"logsumexp": 0, "var": 1, "std": 2}
TOTALS = {"sum": 0, "mean": 1, "amax": 2, "amin": 3, "norm": 4, "squares": 5, "mean square": 6,
          "sizes": 7, "largest": 8, "smallest": 9}  # fmt: skip

_TOTAL = r"""
struct Total {
    __device__ A operator()(A a, A b) const
    {
        if constexpr (KIND == 2 || KIND == 8) return a >= b || a != a ? a : b;  // nan is beyond all
        if constexpr (KIND == 3 || KIND == 9) return a <= b || a != a ? a : b;
        return a + b;
    }
};
__device__ __forceinline__ A nothing()
{
    const A infinite = (A)__int_as_float(0x7F800000);
    return KIND == 2 || KIND == 8 ? -infinite : KIND == 3 || KIND == 9 ? infinite : A(0);
}
__device__ __forceinline__ A part_of(A value)
{
    return KIND >= 7 ? (value <= 0 ? 0 - value : value) : KIND >= 4 ? value * value : value;
}
__device__ __forceinline__ A made_of(A total, i64 n)
{
    return KIND == 1 || KIND == 6 ? total / n : KIND == 4 ? sqrt(total) : total;
}
__device__ __forceinline__ A joined(A value, const T* x)
{
    const Pack<T, PACK> v = load(x);
    for (int k = 0; k < PACK; ++k) value = Total()(value, part_of((A)v.at[k]));
    return value;
}
"""

_MEAN = r"""
__device__ A mean_of(const T* x, const Row& r, int n, int inner, int team)
{
    A sum = 0;
    for (int j = r.begin; j < r.end; j += r.step) {
        const Pack<T, PACK> v = load(x + r.base + (i64)j * inner);
        for (int k = 0; k < PACK; ++k) sum += (A)v.at[k];
    }
    return of_row(sum, team, Sum()) / n;
}
"""

KERNELS = {
    "row_statistic": ROW + PART + _MEAN + PART + r"""
extern "C" __global__ void __launch_bounds__(1024) row_statistic(
    const T* x, T* result, T* mean, i64 rows, int n, int inner, int team, A freedom)
{
    const Row r = row_of(rows, n, inner, team);
    A shift = -infinity(), sum = 0;
    if constexpr (KIND == 0) {
        for (int j = r.begin; j < r.end; j += r.step) {
            const Pack<T, PACK> v = load(x + r.base + (i64)j * inner);
            for (int k = 0; k < PACK; ++k) shift = Largest()(shift, (A)v.at[k]);
        }
        shift = of_row(shift, team, Largest());
        if (!(shift > -infinity() && shift < infinity())) shift = 0;
    } else {
        shift = mean_of(x, r, n, inner, team);
    }
    for (int j = r.begin; j < r.end; j += r.step) {
        const Pack<T, PACK> v = load(x + r.base + (i64)j * inner);
        for (int k = 0; k < PACK; ++k) {
            const A d = (A)v.at[k] - shift;
            sum += KIND == 0 ? exp(d) : d * d;
        }
    }
    sum = of_row(sum, team, Sum());
    if (!r.leads) return;
    if constexpr (KIND == 0) result[r.number] = (T)(log(sum) + shift);
    if constexpr (KIND == 1) result[r.number] = (T)(sum / freedom);
    if constexpr (KIND == 2) result[r.number] = (T)sqrt(sum / freedom);
    if (mean) mean[r.number] = (T)shift;
}
""",
    "row_statistic_backward": ROW + PART + _MEAN + PART + r"""
extern "C" __global__ void __launch_bounds__(1024) row_statistic_backward(
    const T* g, const T* x, const T* result, T* out, i64 rows, int n, int inner, int team,
    A freedom)
{
    const Row r = row_of(rows, n, inner, team);
    A slope = r.is_there ? (A)g[r.number] : A(0), shift = 0;
    if constexpr (KIND == 0) {
        shift = r.is_there ? (A)result[r.number] : A(0);
    } else {
        shift = mean_of(x, r, n, inner, team);
        slope = slope * 2 / freedom;
    }
    if constexpr (KIND == 2) {  // of a deviation of 0 it is taken to be 0
        const A size = r.is_there ? (A)result[r.number] : A(0);
        slope = size == 0 ? A(0) : slope / (size * 2);
    }
    for (int j = r.begin; j < r.end; j += r.step) {
        Pack<T, PACK> v = load(x + r.base + (i64)j * inner);
        for (int k = 0; k < PACK; ++k) {
            const A d = (A)v.at[k] - shift;
            v.at[k] = (T)(slope * (KIND == 0 ? exp(d) : d));
        }
        save(out + r.base + (i64)j * inner, v);
    }
}
""",
    # The sum, the mean, the extreme or the length of each row.
    "row_total": ROW + PART + _TOTAL + PART + r"""
extern "C" __global__ void __launch_bounds__(1024) row_total(
    const T* x, T* result, i64 rows, int n, int inner, int team)
{
    const Row r = row_of(rows, n, inner, team);
    A total = nothing();
    #pragma unroll 4
    for (int j = r.begin; j < r.end; j += r.step)
        total = joined(total, x + r.base + (i64)j * inner);
    total = of_row(total, team, Total());
    if (r.leads) result[r.number] = (T)made_of(total, n);
}
""",
    # The same of a few long rows, gridDim.x blocks for each: the one that comes last joins what
    # they have, in their order.
    "long_total": _TOTAL + PART + r"""
extern "C" __global__ void __launch_bounds__(512) long_total(
    const T* x, T* result, A* partial, unsigned* tickets, i64 n)
{
    x += blockIdx.y * n;
    A total = nothing();
    const i64 step = (i64)gridDim.x * 512 * PACK, packed = n / PACK * PACK;
    #pragma unroll 4
    for (i64 j = ((i64)blockIdx.x * 512 + threadIdx.x) * PACK; j < packed; j += step)
        total = joined(total, x + j);
    if (blockIdx.x == 0 && threadIdx.x < n - packed)
        total = Total()(total, part_of((A)x[packed + threadIdx.x]));
    total = of_team(total, 512, Total());
    A* parts = partial + blockIdx.y * gridDim.x;
    if (threadIdx.x == 0) parts[blockIdx.x] = total;
    if (!comes_last(tickets + blockIdx.y, gridDim.x)) return;
    total = nothing();
    for (int k = threadIdx.x; k < (int)gridDim.x; k += 512)
        total = Total()(total, ((const volatile A*)parts)[k]);
    total = of_team(total, 512, Total());
    if (threadIdx.x == 0) result[blockIdx.y] = (T)made_of(total, n);
}
""",
    # The gradient of an extreme y: g, or 1, is shared by the elements that equal it, or are nan as
    # it is.
    "row_extreme_backward": ROW + PART + r"""
__device__ __forceinline__ bool equals(A x, A y) { return x == y || (x != x && y != y); }
extern "C" __global__ void __launch_bounds__(1024) row_extreme_backward(
    const T* g, const T* x, const T* y, T* out, i64 rows, int n, int inner, int team)
{
    const Row r = row_of(rows, n, inner, team);
    const A top = r.is_there ? (A)y[r.number] : A(0);
    A ties = 0;
    #pragma unroll 4
    for (int j = r.begin; j < r.end; j += r.step) {
        const Pack<T, PACK> v = load(x + r.base + (i64)j * inner);
        for (int k = 0; k < PACK; ++k) ties += equals((A)v.at[k], top) ? A(1) : A(0);
    }
    ties = of_row(ties, team, Sum());
    const A whole = r.is_there && g ? (A)g[r.number] : A(1);
    const T share = (T)(r.is_there && ties > 0 ? whole / ties : A(0));
    for (int j = r.begin; j < r.end; j += r.step) {
        Pack<T, PACK> v = load(x + r.base + (i64)j * inner);
        for (int k = 0; k < PACK; ++k) v.at[k] = equals((A)v.at[k], top) ? share : (T)0.0f;
        save(out + r.base + (i64)j * inner, v);
    }
}
""",
}  # fmt: skip
NAMES = tuple(KERNELS)
SOURCE = whole(KERNELS, ACROSS=0, KIND=0)
