"""Kernels of vectors of three elements."""

from __future__ import annotations

from . import whole

__all__ = ["KERNELS", "NAMES", "SOURCE"]

KERNELS = {
    # a x b of (outer, 3, inner); a thread has a vector.
    "cross": r"""
extern "C" __global__ void __launch_bounds__(256) cross(
    const T* a, const T* b, T* y, i64 vectors, i64 inner)
{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= vectors) return;
    const i64 at = i / inner * 3 * inner + i % inner;
    const A a0 = (A)a[at], a1 = (A)a[at + inner], a2 = (A)a[at + 2 * inner];
    const A b0 = (A)b[at], b1 = (A)b[at + inner], b2 = (A)b[at + 2 * inner];
    y[at] = (T)(a1 * b2 - a2 * b1);
    y[at + inner] = (T)(a2 * b0 - a0 * b2);
    y[at + 2 * inner] = (T)(a0 * b1 - a1 * b0);
}
""",
}
NAMES = tuple(KERNELS)
SOURCE = whole(KERNELS)
