"""Kernels of scores of classes: softmax, its logarithm, and cross entropy.

Scores are (N, n, R) in memory, and a row has the n of them that share the other two indices. Of
neighbours, R = 1, a row has a team of threads; else, ACROSS, a block has 32 rows in 8 lines.
"""

from __future__ import annotations

from . import PART, whole

__all__ = ["KERNELS", "NAMES", "ROW", "SOURCE"]

ROW = r"""
struct Row {  // `step` elements on from `begin`, below `end`; element j is at base + j * inner
    i64 number, base;
    int begin, end, step;
    bool leads, is_there;
};
__device__ __forceinline__ Row row_of(i64 rows, int n, int inner, int team)
{
    Row r;
    const int lane = threadIdx.x % 32, line = threadIdx.x / 32;
    r.number = ACROSS ? (i64)blockIdx.x * 32 + lane
                      : (i64)blockIdx.x * (blockDim.x / team) + threadIdx.x / team;
    r.is_there = r.number < rows;
    r.base = inner == 1 ? r.number * n : r.number / inner * n * inner + r.number % inner;
    r.begin = ACROSS ? line : threadIdx.x % team * PACK;
    r.end = r.is_there ? n : 0;
    r.step = ACROSS ? 8 : team * PACK;
    r.leads = r.is_there && (ACROSS ? line == 0 : threadIdx.x % team == 0);
    return r;
}
template <class Join> __device__ A of_row(A value, int team, Join join)
{
    if constexpr (ACROSS != 0) return of_lines(value, join);
    else return of_team(value, team, join);
}
__device__ __forceinline__ A infinity() { return (A)__int_as_float(0x7F800000); }
"""

_EACH = r"""
// What a thread has of a row, one after another; LOOSE: the row begins where no pack does, so
// elements before the first pack, and behind the last, are read one by one.
template <class Visit> __device__ __forceinline__ void each_of(
    const T* x, const Row& r, int inner, int team, Visit visit)
{
    const T* from = x + r.base;
    int begin = r.begin, end = r.end;
    if constexpr (LOOSE != 0) {
        const int rank = threadIdx.x % team;
        int head = (PACK - (int)((unsigned long long)from / sizeof(T) % PACK)) % PACK;
        head = head < end ? head : end;
        end = head + (end - head) / PACK * PACK;
        begin += head;
        if (rank < head) visit(rank, (A)from[rank]);
        if (end + rank < r.end) visit(end + rank, (A)from[end + rank]);
    }
    #pragma unroll 4
    for (int j = begin; j < end; j += r.step) {
        const Pack<T, PACK> v = load(from + (i64)j * inner);
        for (int k = 0; k < PACK; ++k) visit(j + k, (A)v.at[k]);
    }
}
"""

_HELD = r"""
// HELD packs, which are all that a thread has of a row, read at once; beyond the row is `other`.
__device__ __forceinline__ void hold(A* held, const T* x, const Row& r, A other)
{
    #pragma unroll
    for (int i = 0; i < HELD; ++i) {
        const int j = r.begin + i * r.step;
        Pack<T, PACK> v = {};
        if (j < r.end) v = load(x + r.base + j);
        for (int k = 0; k < PACK; ++k) held[i * PACK + k] = j < r.end ? (A)v.at[k] : other;
    }
}
"""

_CLASS = r"""
struct Class {  // what a target says: a class, what it weighs, and whether it is left out
    i64 label;
    A weight;
    bool ignored;
};
__device__ __forceinline__ Class class_of(
    const Row& r, const i64* target, const W* weight, int n, i64 ignore_index, int weighed)
{
    Class c = {0, 0, true};
    if (!r.is_there || target[r.number] == ignore_index) return c;
    c.label = target[r.number];
    c.ignored = false;
    c.weight = 1;
    if (c.label < 0 || c.label >= n) c.weight = (A)__int_as_float(0x7FC00000);  // there is none
    else if (weighed) c.weight = (A)weight[c.label];
    return c;
}
"""

_TOTAL = r"""
// The sums of losses and weights over all threads: the block that comes last has them.
__device__ __forceinline__ void add_up(
    A mine, A size, T* loss, T* total_weight, A* partial, unsigned* tickets, int how)
{
    mine = of_team(mine, blockDim.x, Sum());
    size = of_team(size, blockDim.x, Sum());
    if (threadIdx.x == 0) partial[blockIdx.x] = mine, partial[gridDim.x + blockIdx.x] = size;
    if (!comes_last(tickets, gridDim.x)) return;
    mine = size = 0;
    for (int k = threadIdx.x; k < (int)gridDim.x; k += blockDim.x) {
        mine += ((const volatile A*)partial)[k];
        size += ((const volatile A*)partial)[gridDim.x + k];
    }
    mine = of_team(mine, blockDim.x, Sum());
    size = of_team(size, blockDim.x, Sum());
    if (threadIdx.x == 0) {
        *loss = (T)(how == 2 ? (size == 0 ? size : mine) / size : mine);
        *total_weight = (T)size;
    }
}
"""

KERNELS = {
    # exp(x - maximum) over its sum; LOG: the logarithm of that.
    "softmax": ROW + PART + _HELD + PART + r"""
extern "C" __global__ void __launch_bounds__(1024) softmax(
    const T* x, T* y, i64 rows, int n, int inner, int team)
{
    const Row r = row_of(rows, n, inner, team);
    A top = -infinity(), sum = 0;
    if constexpr (HELD > 0) {
        A held[HELD > 0 ? HELD * PACK : 1];
        hold(held, x, r, top);
        #pragma unroll
        for (int k = 0; k < HELD * PACK; ++k) top = Largest()(top, held[k]);
        top = of_row(top, team, Largest());
        #pragma unroll
        for (int k = 0; k < HELD * PACK; ++k) {
            held[k] -= top;
            const A power = exp(held[k]);
            sum += power;
            if constexpr (!LOG) held[k] = power;
        }
        sum = of_row(sum, team, Sum());
        const A shift = LOG ? log(sum) : A(0);
        #pragma unroll
        for (int i = 0; i < HELD; ++i) {
            const int j = r.begin + i * r.step;
            Pack<T, PACK> v;
            for (int k = 0; k < PACK; ++k) {
                const A c = held[i * PACK + k];
                v.at[k] = (T)(LOG ? c - shift : c / sum);
            }
            if (j < r.end) save(y + r.base + j, v);
        }
        return;
    }
    for (int j = r.begin; j < r.end; j += r.step) {
        const Pack<T, PACK> v = load(x + r.base + (i64)j * inner);
        for (int k = 0; k < PACK; ++k) top = Largest()(top, (A)v.at[k]);
    }
    top = of_row(top, team, Largest());
    for (int j = r.begin; j < r.end; j += r.step) {
        const Pack<T, PACK> v = load(x + r.base + (i64)j * inner);
        for (int k = 0; k < PACK; ++k) sum += exp((A)v.at[k] - top);
    }
    sum = of_row(sum, team, Sum());
    const A shift = LOG ? log(sum) : A(0);
    for (int j = r.begin; j < r.end; j += r.step) {
        Pack<T, PACK> v = load(x + r.base + (i64)j * inner);
        for (int k = 0; k < PACK; ++k) {
            const A c = (A)v.at[k] - top;
            v.at[k] = (T)(LOG ? c - shift : exp(c) / sum);
        }
        save(y + r.base + (i64)j * inner, v);
    }
}
""",
    # y g - y sum(y g); LOG: g - exp(y) sum(g).
    "softmax_backward": ROW + PART + _HELD + PART + r"""
extern "C" __global__ void __launch_bounds__(1024) softmax_backward(
    const T* g, const T* y, T* x, i64 rows, int n, int inner, int team)
{
    const Row r = row_of(rows, n, inner, team);
    A sum = 0;
    if constexpr (HELD > 0) {
        A a[HELD > 0 ? HELD * PACK : 1], b[HELD > 0 ? HELD * PACK : 1];
        hold(a, g, r, 0);
        hold(b, y, r, 0);
        #pragma unroll
        for (int k = 0; k < HELD * PACK; ++k) sum += LOG ? a[k] : a[k] * b[k];
        sum = of_row(sum, team, Sum());
        #pragma unroll
        for (int i = 0; i < HELD; ++i) {
            const int j = r.begin + i * r.step;
            Pack<T, PACK> u;
            for (int k = 0; k < PACK; ++k) {
                const A c = a[i * PACK + k], d = b[i * PACK + k];
                u.at[k] = (T)(LOG ? c - exp(d) * sum : d * c - d * sum);
            }
            if (j < r.end) save(x + r.base + j, u);
        }
        return;
    }
    for (int j = r.begin; j < r.end; j += r.step) {
        const Pack<T, PACK> u = load(g + r.base + (i64)j * inner);
        const Pack<T, PACK> v = load(y + r.base + (i64)j * inner);
        for (int k = 0; k < PACK; ++k) sum += LOG ? (A)u.at[k] : (A)u.at[k] * (A)v.at[k];
    }
    sum = of_row(sum, team, Sum());
    for (int j = r.begin; j < r.end; j += r.step) {
        Pack<T, PACK> u = load(g + r.base + (i64)j * inner);
        const Pack<T, PACK> v = load(y + r.base + (i64)j * inner);
        for (int k = 0; k < PACK; ++k) {
            const A a = (A)u.at[k], b = (A)v.at[k];
            u.at[k] = (T)(LOG ? a - exp(b) * sum : b * a - b * sum);
        }
        save(x + r.base + (i64)j * inner, u);
    }
}
""",
    # The loss of each row; how: 0 as they are, 1 their sum, 2 that over the sum of the weights.
    # `tops` and `logs` are the maximum of each row and log sum exp(x - maximum).
    "cross_entropy": ROW + PART + _EACH + PART + _CLASS + PART + _TOTAL + PART + r"""
extern "C" __global__ void __launch_bounds__(1024) cross_entropy(
    const T* x, const i64* target, const W* weight, T* loss, T* total_weight, A* tops, A* logs,
    A* partial, unsigned* tickets, i64 rows, int n, int inner, int team, int how, int weighed,
    i64 ignore_index, A smoothing)
{
    const Row r = row_of(rows, n, inner, team);
    A top = -infinity(), sum = 0, weights = 0, dot = 0;
    each_of(x, r, inner, team, [&](int, A value) { top = Largest()(top, value); });
    top = of_row(top, team, Largest());
    each_of(x, r, inner, team, [&](int j, A value) {
        sum += exp(value - top);
        if (smoothing == 0) return;
        const A w = weighed ? (A)weight[j] : A(1);
        weights += w;
        dot += w * value;
    });
    const A log_sum = log(of_row(sum, team, Sum()));
    if (smoothing != 0) {
        weights = of_row(weights, team, Sum());
        dot = of_row(dot, team, Sum());
    }
    const Class c = class_of(r, target, weight, n, ignore_index, weighed);
    A mine = 0, size = 0;
    if (r.leads) {
        tops[r.number] = top;
        logs[r.number] = log_sum;
        if (!c.ignored) {
            const i64 label = c.label >= 0 && c.label < n ? c.label : 0;
            mine = -((A)x[r.base + label * inner] - top - log_sum) * c.weight;
        }
        if (smoothing != 0 && !c.ignored)
            mine = (1 - smoothing) * mine + (weights * (top + log_sum) - dot) * (smoothing / n);
        size = c.weight;
        if (how == 0) loss[r.number] = (T)mine;
    }
    if (how == 0) {
        if (blockIdx.x == 0 && threadIdx.x == 0) *total_weight = (T)0.0f;
        return;
    }
    add_up(mine, size, loss, total_weight, partial, tickets, how);
}
""",
    # The gradient in x: g of each row, or one for all.
    "cross_entropy_backward": ROW + PART + _CLASS + PART + r"""
extern "C" __global__ void __launch_bounds__(1024) cross_entropy_backward(
    const T* g, const T* x, const i64* target, const W* weight, const T* total_weight,
    const A* tops, const A* logs, T* out, i64 rows, int n, int inner, int team, int how,
    int weighed, i64 ignore_index, A smoothing)
{
    const Row r = row_of(rows, n, inner, team);
    const Class c = class_of(r, target, weight, n, ignore_index, weighed);
    A slope = r.is_there ? (A)g[how == 0 ? r.number : 0] : A(0), weights = n;
    if (how == 2) slope /= (A)*total_weight;
    const A smooth = smoothing != 0 && !c.ignored ? slope * (smoothing / n) : A(0);
    if (smoothing != 0 && weighed) {
        weights = 0;
        for (int j = r.begin; j < r.end; j += r.step)
            for (int k = 0; k < PACK; ++k) weights += (A)weight[j + k];
        weights = of_row(weights, team, Sum());
    }
    slope = c.ignored ? A(0) : slope * c.weight * (1 - smoothing);
    const A scale = slope + smooth * weights, shift = r.is_there ? logs[r.number] : A(0);
    const A top = r.is_there ? tops[r.number] : A(0);
    for (int j = r.begin; j < r.end; j += r.step) {
        Pack<T, PACK> v = load(x + r.base + (i64)j * inner);
        for (int k = 0; k < PACK; ++k) {
            A d = exp((A)v.at[k] - top - shift) * scale;
            if (smoothing != 0) d -= (weighed ? (A)weight[j + k] : A(1)) * smooth;
            v.at[k] = (T)(j + k == c.label ? d - slope : d);
        }
        save(out + r.base + (i64)j * inner, v);
    }
}
""",
    # -weight[target] x[target] of each row, as `cross_entropy` has them: a thread has a row.
    "nll_loss": ROW + PART + _CLASS + PART + _TOTAL + PART + r"""
extern "C" __global__ void __launch_bounds__(256) nll_loss(
    const T* x, const i64* target, const W* weight, T* loss, T* total_weight, A* partial,
    unsigned* tickets, i64 rows, int n, int inner, int how, int weighed, i64 ignore_index)
{
    const Row r = row_of(rows, n, inner, 1);
    const Class c = class_of(r, target, weight, n, ignore_index, weighed);
    A mine = 0;
    if (!c.ignored)
        mine = -(A)x[r.base + (c.label >= 0 && c.label < n ? c.label : 0) * inner] * c.weight;
    if (how == 0) {
        if (r.is_there) loss[r.number] = (T)mine;
        if (r.number == 0) *total_weight = (T)0.0f;
        return;
    }
    add_up(mine, c.weight, loss, total_weight, partial, tickets, how);
}
""",
    # Its gradient in x: a thread has an element.
    "nll_loss_backward": ROW + PART + _CLASS + PART + r"""
extern "C" __global__ void __launch_bounds__(256) nll_loss_backward(
    const T* g, const i64* target, const W* weight, const T* total_weight, T* out, i64 rows, int n,
    int inner, int how, int weighed, i64 ignore_index)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    Row r = {};
    r.number = i / ((i64)n * inner) * inner + i % inner;
    r.is_there = r.number < rows && i < rows * n;
    const Class c = class_of(r, target, weight, n, ignore_index, weighed);
    if (!r.is_there) return;
    const bool own = !c.ignored &&
                     i / inner % n == (c.label >= 0 && c.label < n ? c.label : 0);
    const A slope = (A)g[how == 0 ? r.number : 0] / (how == 2 ? (A)*total_weight : A(1));
    out[i] = own ? (T)(-slope * c.weight) : (T)0.0f;
}
""",
}  # fmt: skip
NAMES = tuple(KERNELS)
SOURCE = whole(KERNELS, ACROSS=0, LOG=0, LOOSE=0, HELD=4)
