"""Kernels that run along lines: sums, products and extrema up to each element, their gradients, and
the extreme of each line.

A line is walked by TEAM threads: one, where lines lie side by side and there are many, a warp, or a
block. Each has an element at a time; what they have is joined in the order of the line, always in
the same way, and with what is behind them.
"""

from __future__ import annotations

from . import whole

__all__ = ["KERNELS", "KINDS", "NAMES", "SOURCE"]

# What is joined. `affine` are functions b + a s of what comes later, `logs` the logarithms of the
# positive and of the negative part of a sum.
KINDS = {"sum": 0, "product": 1, "log": 2, "largest": 3, "least": 4, "affine": 5, "logs": 6}

KERNELS = {
    # x, or, of affine and logs, the gradient g, the input x and the result y; REVERSE from the end.
    "scan": r"""
struct State { A a, b; int at; };
constexpr bool HAS_B = KIND >= 5, HAS_AT = KIND == 3 || KIND == 4;

__device__ __forceinline__ A nothing() { return -(A)__int_as_float(0x7F800000); }
__device__ __forceinline__ A log_add(A a, A b)
{
    if (a == b) return a + (A)0.6931471805599453;  // of infinities, whose difference is nan
    const A d = a - b;
    return d > 0 ? a + log1p(exp(-d)) : d <= 0 ? b + log1p(exp(d)) : d;
}
__device__ __forceinline__ State join(const State& x, const State& y)  // x comes before y
{
    if constexpr (KIND == 0) return {x.a + y.a, 0, 0};
    if constexpr (KIND == 1) return {x.a * y.a, 0, 0};
    if constexpr (KIND == 2) return {log_add(x.a, y.a), 0, 0};
    if constexpr (KIND == 3) return y.a >= x.a || y.a != y.a ? y : x;  // of equals the last
    if constexpr (KIND == 4) return y.a <= x.a || y.a != y.a ? y : x;
    if constexpr (KIND == 5) return {y.a * x.a, y.b + y.a * x.b, 0};
    return {log_add(x.a, y.a), log_add(x.b, y.b), 0};
}
__device__ __forceinline__ State from_lane(const State& s, int lane)
{
    State found = s;
    found.a = __shfl_sync(0xffffffffu, s.a, lane);
    if constexpr (HAS_B) found.b = __shfl_sync(0xffffffffu, s.b, lane);
    if constexpr (HAS_AT) found.at = __shfl_sync(0xffffffffu, s.at, lane);
    return found;
}
__device__ __forceinline__ State read(const T* g, const T* x, const T* y, i64 at, int i, int n,
                                      i64 inner)
{
    if constexpr (KIND < 5) return {(A)x[at], 0, i};
    if constexpr (KIND == 5) return {i + 1 < n ? (A)x[at + inner] : A(0), (A)g[at], 0};
    const A slope = (A)g[at], shift = (A)y[at];
    if (shift == nothing()) return {nothing(), nothing(), 0};  // no small change alters it
    return {slope <= 0 ? nothing() : log(slope) - shift,
            slope >= 0 ? nothing() : log(-slope) - shift, 0};
}
__device__ __forceinline__ A result_of(const State& s, const T* x, const T* y, i64 at, int i,
                                       i64 inner)
{
    if constexpr (KIND == 5) return i > 0 ? s.b * (A)y[at - inner] : s.b;
    if constexpr (KIND == 6) return exp(s.a + (A)x[at]) - exp(s.b + (A)x[at]);
    return s.a;
}

extern "C" __global__ void __launch_bounds__(256) scan(
    const T* g, const T* x, const T* y, T* out, i64* indices, i64 lines, int n, i64 inner)
{
    __shared__ A parts[2][8];  // of warps
    __shared__ int places[8];
    const auto part = [&](int w) { return State{parts[0][w], parts[1][w], places[w]}; };
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i64 line = ((i64)blockIdx.x * 256 + threadIdx.x) / TEAM;
    const i64 base = line / inner * n * inner + line % inner;
    State carry = {};
    for (int start = 0; start < n; start += TEAM) {
        const int k = start + (int)(threadIdx.x % TEAM), i = REVERSE ? n - 1 - k : k;
        const bool is_there = line < lines && k < n;
        const i64 at = base + i * inner;
        State s = is_there ? read(g, x, y, at, i, n, inner) : State{};
        State whole = s;
        if constexpr (TEAM > 1) {
            for (int d = 1; d < 32; d *= 2) {
                const State before = from_lane(s, lane < d ? lane : lane - d);
                if (lane >= d) s = join(before, s);
            }
            whole = from_lane(s, 31);
        }
        if constexpr (TEAM == 256) {
            __syncthreads();  // who still reads the parts of the last elements
            if (lane == 31) parts[0][warp] = s.a, parts[1][warp] = s.b, places[warp] = s.at;
            __syncthreads();
            State before = whole = part(0);
            for (int w = 1; w < 8; ++w) {
                if (w == warp) before = whole;
                whole = join(whole, part(w));
            }
            if (warp > 0) s = join(before, s);
        }
        if (start > 0) s = join(carry, s), whole = join(carry, whole);
        carry = whole;
        if (!is_there) continue;
        out[at] = (T)result_of(s, x, y, at, i, inner);
        if constexpr (HAS_AT) indices[at] = s.at;
    }
}
""",
    # The largest, or LEAST, element of each line, and its index: of equals the first, nan before
    # all others.
    "extreme": r"""
struct Found { A value; int at; };
__device__ __forceinline__ Found better(const Found& x, const Found& y)
{
    if (x.at < 0 || y.at < 0) return x.at < 0 ? y : x;
    const bool no_x = x.value != x.value, no_y = y.value != y.value;
    if ((no_x && no_y) || x.value == y.value) return x.at < y.at ? x : y;
    if (no_x || no_y) return no_x ? x : y;
    return (LEAST ? x.value < y.value : x.value > y.value) ? x : y;
}
extern "C" __global__ void __launch_bounds__(256) extreme(
    const T* x, T* values, i64* indices, i64 lines, int n, i64 inner)
{
    __shared__ A parts[8];
    __shared__ int places[8];
    const i64 line = ((i64)blockIdx.x * 256 + threadIdx.x) / TEAM;
    const i64 base = line / inner * n * inner + line % inner;
    Found best = {0, -1};
    for (int k = threadIdx.x % TEAM; line < lines && k < n; k += TEAM)
        best = better(best, {(A)x[base + k * inner], k});
    if constexpr (TEAM > 1)
        for (int d = 16; d > 0; d /= 2) {
            Found other;
            other.value = (A)__shfl_xor_sync(0xffffffffu, best.value, d);
            other.at = __shfl_xor_sync(0xffffffffu, best.at, d);
            best = better(best, other);
        }
    if constexpr (TEAM == 256) {
        if (threadIdx.x % 32 == 0)
            parts[threadIdx.x / 32] = best.value, places[threadIdx.x / 32] = best.at;
        __syncthreads();
        for (int w = 0; w < 8; ++w) best = better(best, {parts[w], places[w]});
    }
    if (line >= lines || threadIdx.x % TEAM != 0) return;
    if (values) values[line] = (T)best.value;
    indices[line] = best.at;
}
""",
}  # fmt: skip
NAMES = tuple(KERNELS)
SOURCE = whole(KERNELS, KIND=0, REVERSE=0, TEAM=256, LEAST=0)
