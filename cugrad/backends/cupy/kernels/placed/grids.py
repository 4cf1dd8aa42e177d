"""Kernels that read the nearest element for each place of another grid, and add up what was read.

A grid has three dims, and lies as (planes, size, size, size, inner).
"""

from __future__ import annotations

from .. import PART, whole

__all__ = ["KERNELS", "NAMES", "SOURCE"]

_READS = r"""
struct Axis { int n, m; float step; };  // elements, places, and elements from one to the next

__device__ __forceinline__ int read_at(int place, Axis axis, float half)
{
    return (int)fminf(floorf(((float)place + half) * axis.step), (float)(axis.n - 1));
}
// The first place that reads the element p, or one behind it.
__device__ __forceinline__ int first_of(int p, Axis axis, float half)
{
    if (p >= axis.n) return axis.m;
    int place = (int)fminf(fmaxf(ceilf((float)p / axis.step - half), 0.0f), (float)axis.m);
    while (place > 0 && read_at(place - 1, axis, half) >= p) --place;
    while (place < axis.m && read_at(place, axis, half) < p) ++place;
    return place;
}
"""

_ARGUMENTS = (
    "i64 size, i64 inner, int n0, int n1, int n2, int m0, int m1, int m2,\n"
    "    float half, float step0, float step1, float step2"
)
_AXES = "{n0, m0, step0}, {n1, m1, step1}, {n2, m2, step2}"

KERNELS = {
    "upsample_nearest": _READS + PART + f"""
template <class I> __device__ __forceinline__ void read_nearest(
    const T* x, T* y, I i, I inner, Axis a, Axis b, Axis c, float half)
{{
    I rest = i / inner;
    const I column = i - rest * inner;
    const int at2 = (int)(rest % (I)c.m);
    rest /= (I)c.m;
    const int at1 = (int)(rest % (I)b.m);
    rest /= (I)b.m;
    const int at0 = (int)(rest % (I)a.m);
    const i64 line = ((i64)(rest / (I)a.m) * a.n + read_at(at0, a, half)) * b.n;
    const i64 from = (line + read_at(at1, b, half)) * c.n + read_at(at2, c, half);
    y[i] = x[from * (i64)inner + (i64)column];
}}
extern "C" __global__ void __launch_bounds__(256) upsample_nearest(
    const T* x, T* y, {_ARGUMENTS})
{{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= size) return;
    const Axis axes[3] = {{{_AXES}}};
    if (size > 0x7fffffff) read_nearest<i64>(x, y, i, inner, axes[0], axes[1], axes[2], half);
    else read_nearest<unsigned>(
        x, y, (unsigned)i, (unsigned)inner, axes[0], axes[1], axes[2], half);
}}
""",
    # Of a grid of places, what those have together that read an element, in their order.
    "upsample_nearest_backward": _READS + PART + f"""
extern "C" __global__ void __launch_bounds__(256) upsample_nearest_backward(
    const T* g, T* x, {_ARGUMENTS})
{{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= size) return;
    const Axis axes[3] = {{{_AXES}}};
    i64 rest = i / inner;
    const i64 column = i - rest * inner;
    int begin[3], end[3];
    for (int d = 2; d >= 0; --d) {{
        const int at = (int)(rest % axes[d].n);
        rest /= axes[d].n;
        begin[d] = first_of(at, axes[d], half);
        end[d] = first_of(at + 1, axes[d], half);
    }}
    A sum = 0;
    for (int a = begin[0]; a < end[0]; ++a)
        for (int b = begin[1]; b < end[1]; ++b) {{
            const i64 line = ((rest * m0 + a) * m1 + b) * m2;
            for (int c = begin[2]; c < end[2]; ++c) sum += (A)g[(line + c) * inner + column];
        }}
    x[i] = (T)sum;
}}
""",
}  # fmt: skip
NAMES = tuple(KERNELS)
SOURCE = whole(KERNELS)
