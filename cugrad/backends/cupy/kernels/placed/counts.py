"""Kernels that count how many elements lie in each part of a range."""

from __future__ import annotations

from .. import whole

__all__ = ["BINS", "KERNELS", "NAMES", "SOURCE"]

BINS = 2048  # that a block counts by itself

KERNELS = {
    # How many of x lie in each of `bins` equal parts of [low, high]; a block counts by itself
    # first, where there are few.
    "count_in_bins": rf"""
extern "C" __global__ void __launch_bounds__(256) count_in_bins(
    const T* x, int* counts, i64 size, int bins, A low, A high, A scale)
{{
    __shared__ int own[{BINS}];
    const bool few = bins <= {BINS};
    for (int k = threadIdx.x; k < bins && few; k += 256) own[k] = 0;
    __syncthreads();
    i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    for (; i < size; i += (i64)gridDim.x * 256) {{
        const A v = (A)x[i];
        if (!(v >= low && v <= high)) continue;
        const i64 place = (i64)((v - low) * scale);
        atomicAdd((few ? own : counts) + (place < bins ? place : bins - 1), 1);
    }}
    __syncthreads();
    for (int k = threadIdx.x; k < bins && few; k += 256)
        if (own[k]) atomicAdd(counts + k, own[k]);
}}
""",
    "numbers_of_counts": r"""
extern "C" __global__ void __launch_bounds__(256) numbers_of_counts(
    const int* counts, T* y, int size)
{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i < size) y[i] = (T)(A)counts[i];
}
""",
}
NAMES = tuple(KERNELS)
SOURCE = whole(KERNELS)
