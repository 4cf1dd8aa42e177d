"""Kernels that run along lines: sums, products and extrema up to each element, their gradients, the
gradient of a line's product, and the extreme of each line.

A line is walked by TEAM threads: one, where lines lie side by side and there are many, a warp, or a
block. Each has an element at a time; what they have is joined in the order of the line, always in
the same way, and with what is behind them.
"""

from __future__ import annotations

from . import PART, whole

__all__ = ["KERNELS", "KINDS", "NAMES", "SOURCE"]

# What is joined. `affine` are functions b + a s of what comes later, `logs` the logarithms of the
# positive and of the negative part of a sum.
KINDS = {"sum": 0, "product": 1, "log": 2, "largest": 3, "least": 4, "affine": 5, "logs": 6}

_LINES = r"""
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
// Along each line, BACK from its end: `read(at, i)` is what the element i of a line has, which lies
// at `at`, and `keep(at, i, s)` gets what it has together with those before. All threads call it.
template <bool BACK, class Read, class Keep> __device__ __forceinline__ void walk(
    i64 lines, int n, i64 inner, Read read, Keep keep)
{
    __shared__ A parts[2][8];  // of warps
    __shared__ int places[8];
    const auto part = [&](int w) { return State{parts[0][w], parts[1][w], places[w]}; };
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i64 line = ((i64)blockIdx.x * 256 + threadIdx.x) / TEAM;
    const i64 base = line / inner * n * inner + line % inner;
    State carry = {};
    for (int start = 0; start < n; start += TEAM) {
        const int k = start + (int)(threadIdx.x % TEAM), i = BACK ? n - 1 - k : k;
        const bool is_there = line < lines && k < n;
        const i64 at = base + i * inner;
        State s = is_there ? read(at, i) : State{};
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
        if (is_there) keep(at, i, s);
    }
}
"""

KERNELS = {
    # x, or, of affine and logs, the gradient g, the input x and the result y; REVERSE from the end.
    "scan": _LINES + PART + r"""
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
    const auto known = [&](i64 at, int i) { return read(g, x, y, at, i, n, inner); };
    walk<REVERSE>(lines, n, inner, known, [&](i64 at, int i, const State& s) {
        out[at] = (T)result_of(s, x, y, at, i, inner);
        if constexpr (HAS_AT) indices[at] = s.at;
    });
}
""",
    # The gradient of each line's product: g, which each line has one of, times what all others are.
    # `before` is memory for the products of those before, which may be that of `out`.
    "gradient_of_product": _LINES + PART + r"""
extern "C" __global__ void __launch_bounds__(256) gradient_of_product(
    const T* g, const T* x, A* before, T* out, i64 lines, int n, i64 inner)
{
    const i64 line = ((i64)blockIdx.x * 256 + threadIdx.x) / TEAM;
    const A slope = line < lines ? (A)g[line] : A(0);
    const auto last = [&](i64 at, int i) { return State{i > 0 ? (A)x[at - inner] : A(1), 0, 0}; };
    walk<false>(lines, n, inner, last, [&](i64 at, int, const State& s) { before[at] = s.a; });
    __syncthreads();  // what one thread has kept another one reads
    const auto next = [&](i64 at, int i) {
        return State{i + 1 < n ? (A)x[at + inner] : A(1), 0, 0};
    };
    walk<true>(lines, n, inner, next, [&](i64 at, int, const State& s) {
        out[at] = (T)(slope * (before[at] * s.a));
    });
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
