"""Kernels of one number of each row: the logarithm of its sum of exponentials, its variance, its
deviation. Rows are those of `scores.py`.
"""

from __future__ import annotations

from . import PART, whole
from .scores import ROW

__all__ = ["KERNELS", "KINDS", "NAMES", "SOURCE"]

KINDS = {"logsumexp": 0, "var": 1, "std": 2}

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
    const T* x, T* result, i64 rows, int n, int inner, int team, A freedom)
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
}  # fmt: skip
NAMES = tuple(KERNELS)
SOURCE = whole(KERNELS, ACROSS=0, KIND=0)
