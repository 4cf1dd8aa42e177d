"""Kernels of borders that are made of the tensor itself, of where maxima of windows lie, and of
windows along a dim that are added where they were.

Planes have three dims, of which the first ones may be 1. MODE 0 reflects without repeating the
edge, 1 repeats the edge, 2 wraps around. A kernel that goes back adds up in one order.
"""

from __future__ import annotations

from .. import PART, whole
from ..windows import WINDOW

__all__ = ["KERNELS", "MODES", "NAMES", "SOURCE"]

MODES = {"reflect": 0, "replicate": 1, "circular": 2}

_SPLIT = r"""
struct Spot { i64 outer, at0, at1, at2; };
__device__ __forceinline__ i64 divided(i64 i, i64 by)
{
    return i > 0x7fffffff || by > 0x7fffffff ? i / by : (i64)((unsigned)i / (unsigned)by);
}
__device__ __forceinline__ Spot spot_of(i64 i, i64 n0, i64 n1, i64 n2)
{
    const i64 line = divided(i, n2), plane = divided(line, n1), outer = divided(plane, n0);
    return {outer, plane - outer * n0, line - plane * n1, i - line * n2};
}
"""

_SOURCE = r"""
// The element that an output of a dim of n elements, `before` of its border before them, shows.
__device__ __forceinline__ i64 shown_by(i64 out, i64 n, i64 before)
{
    i64 i = out - before;
    if constexpr (MODE == 0) i = i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
    if constexpr (MODE == 1) i = i < 0 ? 0 : i >= n ? n - 1 : i;
    if constexpr (MODE == 2) i = i < 0 ? i + n : i >= n ? i - n : i;
    return i;
}
"""

_SHOWS = r"""
// How many outputs may show an element, and the one of number k: -1 for one that does not.
__device__ __forceinline__ i64 most_that_show(i64 i, i64 n, i64 before, i64 after)
{
    if constexpr (MODE != 1) return before || after ? 3 : 1;
    return 1 + (i == 0 ? before : 0) + (i == n - 1 ? after : 0);
}
__device__ __forceinline__ i64 that_shows(i64 k, i64 i, i64 n, i64 before, i64 after)
{
    if constexpr (MODE == 1) return k + (i == 0 ? 0 : before + i);
    if (k == 0) return before + i;
    if constexpr (MODE == 0) {
        if (k == 1) return i > 0 && i <= before ? before - i : -1;
        return i < n - 1 && n - 1 - i <= after ? before + 2 * (n - 1) - i : -1;
    }
    if (k == 1) return i - n + before >= 0 ? i - n + before : -1;
    return i < after ? before + n + i : -1;
}
"""

KERNELS = {
    # x, (outer, n0, n1, n2), with a border: (outer, m0, m1, m2).
    "pad_edges": _SPLIT + PART + _SOURCE + PART + r"""
extern "C" __global__ void __launch_bounds__(256) pad_edges(
    const T* x, T* y, i64 size, i64 n0, i64 n1, i64 n2, i64 m0, i64 m1, i64 m2, i64 before0,
    i64 before1, i64 before2)
{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= size) return;
    const Spot s = spot_of(i, m0, m1, m2);
    const i64 at0 = shown_by(s.at0, n0, before0), at1 = shown_by(s.at1, n1, before1);
    y[i] = x[((s.outer * n0 + at0) * n1 + at1) * n2 + shown_by(s.at2, n2, before2)];
}
""",
    # The adjoint: an element of x gets the sum of all that show it.
    "pad_edges_backward": _SPLIT + PART + _SHOWS + PART + r"""
extern "C" __global__ void __launch_bounds__(256) pad_edges_backward(
    const T* g, T* x, i64 size, i64 n0, i64 n1, i64 n2, i64 m0, i64 m1, i64 m2, i64 before0,
    i64 before1, i64 before2)
{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= size) return;
    const Spot s = spot_of(i, n0, n1, n2);
    const i64 after0 = m0 - n0 - before0, after1 = m1 - n1 - before1, after2 = m2 - n2 - before2;
    const i64 most0 = most_that_show(s.at0, n0, before0, after0);
    const i64 most1 = most_that_show(s.at1, n1, before1, after1);
    const i64 most2 = most_that_show(s.at2, n2, before2, after2);
    A sum = 0;
    for (i64 a = 0; a < most0; ++a) {
        const i64 at0 = that_shows(a, s.at0, n0, before0, after0);
        for (i64 b = 0; at0 >= 0 && b < most1; ++b) {
            const i64 at1 = that_shows(b, s.at1, n1, before1, after1);
            for (i64 c = 0; at1 >= 0 && c < most2; ++c) {
                const i64 at2 = that_shows(c, s.at2, n2, before2, after2);
                if (at2 >= 0) sum += (A)g[((s.outer * m0 + at0) * m1 + at1) * m2 + at2];
            }
        }
    }
    x[i] = (T)sum;
}
""",
    # x, (outer, n, inner), of windows that lie `step` apart along n: the sum of what g, (outer,
    # count, inner, window), has of each element.
    "unfold_backward": _SPLIT + PART + r"""
extern "C" __global__ void __launch_bounds__(256) unfold_backward(
    const T* g, T* x, i64 size, i64 n, i64 inner, i64 count, i64 window, i64 step)
{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= size) return;
    const Spot s = spot_of(i, 1, n, inner);
    i64 first = s.at1 < window ? 0 : (s.at1 - window) / step + 1;
    A sum = 0;
    for (i64 k = first; k < count && k * step <= s.at1; ++k)
        sum += (A)g[((s.outer * count + k) * inner + s.at2) * window + s.at1 - k * step];
    x[i] = (T)sum;
}
""",
    # Where in its plane the element of a window lies whose number in the window is known.
    "max_pool_indices": WINDOW + PART + r"""
extern "C" __global__ void __launch_bounds__(256) max_pool_indices(
    const W* offsets, i64* indices, const Window w, i64 size)
{
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= size) return;
    const Place p = place_in(i, w.outputs);
    const Place k = place_in((i64)offsets[i], w.kernel);
    i64 index = 0;
    for (int d = 0; d < 3; ++d)
        index = index * w.size[d] + p.at[d] * w.stride[d] - w.padding[d] +
                k.at[d] * w.dilation[d];
    indices[i] = index;
}
""",
}  # fmt: skip
NAMES = tuple(KERNELS)
SOURCE = whole(KERNELS, MODE=0)
