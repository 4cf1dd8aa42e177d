"""Kernels of layers that standardise: over rows, over groups of channels, over a batch.

`rows` of n elements lie one after another. A channel's elements are those of (N, C, L) that share
the second index; in `channel_sums` they have a mean and a factor each, which may be those of the
channel (batch_norm), of the row (layer_norm), or of a group of channels of a row (group_norm).
"""

from __future__ import annotations

from . import PART, whole

__all__ = ["KERNELS", "NAMES", "SOURCE"]


# Blocks walk over the elements of channels, of which there are `count` each, N * L. A thread reads
# LINES packs at a time, so that many loads are under way. ACROSS: a pack has neighbouring channels,
# for L = 1, and a block has 32 packs of them in 8 lines; else pack and block are of one channel.
_OWN = r"""
constexpr int OWN = ACROSS ? PACK : 1;   // channels of a thread
constexpr int EACH = ACROSS ? 1 : PACK;  // elements of each in a pack
"""

_WALK = (
    _OWN
    + PART
    + r"""
struct Walk {  // a thread's packs: from `begin`, every `step` elements below `end`
    int channel, begin, end, step;
    int first, turns;  // of what blocks have left: from `first`, every so many
    bool leads;        // whether this thread writes what all have together
};
__device__ __forceinline__ Walk walk_of(int channels, int count, int part)
{
    const int lane = threadIdx.x % 32, line = threadIdx.x / 32, start = blockIdx.y * part;
    Walk w;
    w.channel = ACROSS ? (blockIdx.x * 32 + lane) * PACK : blockIdx.x;
    w.begin = start + (ACROSS ? line : threadIdx.x * PACK);
    w.end = w.channel < channels ? (count - start < part ? count : start + part) : 0;
    w.step = ACROSS ? 8 : blockDim.x * PACK;
    w.first = w.channel < channels ? (ACROSS ? line : threadIdx.x) : gridDim.y;
    w.turns = ACROSS ? 8 : blockDim.x;
    w.leads = w.channel < channels && (ACROSS ? line == 0 : threadIdx.x == 0);
    return w;
}
__device__ __forceinline__ i64 place_of(int e, int channel, int channels, int length)
{
    return length == 1 ? (i64)e * channels + channel
                       : ((i64)(e / length) * channels + channel) * length + e % length;
}
__device__ __forceinline__ int size_of(int k, int part, int count)
{
    return count - k * part < part ? count - k * part : part;
}
__device__ __forceinline__ A of_part(const A* partial, int k, int channels, int channel)
{
    return ((const volatile A*)partial)[(i64)k * 2 * channels + channel];
}
template <class Join> __device__ A of_walk(A value, Join join)
{
    if constexpr (ACROSS != 0) return of_lines(value, join);
    else return of_team(value, blockDim.x, join);
}
"""
)


_CHANNEL = (
    _OWN
    + PART
    + r"""
// What the channels of a thread have, which are neighbours from `from` on.
__device__ __forceinline__ Pack<A, OWN> owned(const A* from)
{
    return *(const Pack<A, OWN>*)from;
}
__device__ __forceinline__ int channel_of(i64 i, int channels, int length)
{
    if (i > 0x7fffffff) return (int)((length == 1 ? i : i / length) % channels);
    const unsigned place = (unsigned)i;  // whose quotients are cheaper
    return (length == 1 ? place : place / length) % channels;
}
"""
)

# GIVEN: what is there is a variance, whose factor is 1 / sqrt(variance + eps).
_FACTOR = r"""
__device__ __forceinline__ A factor_of(A kept, A eps)
{
    return GIVEN ? 1 / sqrt(kept + eps) : kept;
}
"""

KERNELS = {
    # y = (x - mean) * rstd * weight + bias of each row. Element j has weight j, or, where rows are
    # groups of channels, that of its channel: `spread` elements share one. `parts`: 1 there is a
    # weight, 2 there is a bias, 4 the mean is subtracted.
    "norm_rows": r"""
extern "C" __global__ void __launch_bounds__(1024) norm_rows(
    const T* x, const W* weight, const W* bias, T* y, A* means, A* factors, i64 rows, int n,
    int team, int parts, int groups, int spread, A eps)
{
    const i64 row = (i64)blockIdx.x * (blockDim.x / team) + threadIdx.x / team;
    const int rank = threadIdx.x % team, end = row < rows ? n : 0;
    const T* from = x + row * n;
    const int first = (int)(row % groups) * (n / spread);
    A mean = 0;
    if constexpr (HELD > 0) {
        A held[HELD > 0 ? HELD * PACK : 1];
        #pragma unroll
        for (int i = 0; i < HELD; ++i) {
            const int j = (i * team + rank) * PACK;
            Pack<T, PACK> v = {};
            if (j < end) v = load(from + j);
            for (int k = 0; k < PACK; ++k) held[i * PACK + k] = (A)v.at[k], mean += (A)v.at[k];
        }
        mean = parts & 4 ? of_team(mean, team, Sum()) / n : A(0);
        A square = 0;
        #pragma unroll
        for (int i = 0; i < HELD; ++i)
            for (int k = 0; k < PACK; ++k) {
                const A c = held[i * PACK + k] -= mean;
                if ((i * team + rank) * PACK < end) square += c * c;
            }
        const A factor = 1 / sqrt(of_team(square, team, Sum()) / n + eps);
        #pragma unroll
        for (int i = 0; i < HELD; ++i) {
            const int j = (i * team + rank) * PACK;
            if (j >= end) break;
            Pack<T, PACK> out;
            for (int k = 0; k < PACK; ++k) {
                const int c = first + (spread == 1 ? j + k : j / spread);
                A r = held[i * PACK + k] * factor;
                if (parts & 1) r *= (A)weight[c];
                if (parts & 2) r += (A)bias[c];
                out.at[k] = (T)r;
            }
            save(y + row * n + j, out);
        }
        if (end > 0 && rank == 0) {
            if (parts & 4) means[row] = mean;
            factors[row] = factor;
        }
        return;
    }
    if (parts & 4) {
        for (int j = rank * PACK; j < end; j += team * PACK) {
            const Pack<T, PACK> v = load(from + j);
            for (int k = 0; k < PACK; ++k) mean += (A)v.at[k];
        }
        mean = of_team(mean, team, Sum()) / n;
    }
    A square = 0;
    for (int j = rank * PACK; j < end; j += team * PACK) {
        const Pack<T, PACK> v = load(from + j);
        for (int k = 0; k < PACK; ++k) {
            const A c = (A)v.at[k] - mean;
            square += c * c;
        }
    }
    const A factor = 1 / sqrt(of_team(square, team, Sum()) / n + eps);
    for (int j = rank * PACK; j < end; j += team * PACK) {
        const Pack<T, PACK> v = load(from + j);
        Pack<T, PACK> out;
        for (int k = 0; k < PACK; ++k) {
            const int c = first + (spread == 1 ? j + k : j / spread);
            A r = ((A)v.at[k] - mean) * factor;
            if (parts & 1) r *= (A)weight[c];
            if (parts & 2) r += (A)bias[c];
            out.at[k] = (T)r;
        }
        save(y + row * n + j, out);
    }
    if (end > 0 && rank == 0) {
        if (parts & 4) means[row] = mean;
        factors[row] = factor;
    }
}
""",
    # The gradient of the above in x: (h - mean of h - z * mean of h z) * rstd, where h is
    # g * weight and z is what was standardised; without a mean, without the mean of h.
    "norm_rows_backward": r"""
extern "C" __global__ void __launch_bounds__(1024) norm_rows_backward(
    const T* g, const T* x, const W* weight, const A* means, const A* factors, T* out, i64 rows,
    int n, int team, int parts, int groups, int spread)
{
    const i64 row = (i64)blockIdx.x * (blockDim.x / team) + threadIdx.x / team;
    const int rank = threadIdx.x % team, end = row < rows ? n : 0;
    const int first = (int)(row % groups) * (n / spread);
    const A mean = end > 0 && (parts & 4) ? means[row] : A(0);
    const A factor = end > 0 ? factors[row] : A(0);
    A offset = 0, slope = 0;
    for (int j = rank * PACK; j < end; j += team * PACK) {
        const Pack<T, PACK> u = load(g + row * n + j), v = load(x + row * n + j);
        for (int k = 0; k < PACK; ++k) {
            const int c = first + (spread == 1 ? j + k : j / spread);
            const A h = parts & 1 ? (A)u.at[k] * (A)weight[c] : (A)u.at[k];
            offset += h;
            slope += h * (((A)v.at[k] - mean) * factor);
        }
    }
    slope = of_team(slope, team, Sum()) / n;
    offset = parts & 4 ? of_team(offset, team, Sum()) / n : A(0);
    for (int j = rank * PACK; j < end; j += team * PACK) {
        const Pack<T, PACK> u = load(g + row * n + j), v = load(x + row * n + j);
        Pack<T, PACK> r;
        for (int k = 0; k < PACK; ++k) {
            const int c = first + (spread == 1 ? j + k : j / spread);
            const A h = parts & 1 ? (A)u.at[k] * (A)weight[c] : (A)u.at[k];
            r.at[k] = (T)((h - offset - ((A)v.at[k] - mean) * factor * slope) * factor);
        }
        save(out + row * n + j, r);
    }
}
""",
    # Mean and 1 / sqrt(variance + eps) of each channel, which is read once. What a thread reads at
    # a time has its own mean and sum of squares about it, and so have the thread and the block;
    # they are joined as by Chan, Golub and LeVeque (1979). Running statistics that are there go
    # towards mean and unbiased variance, and batches are counted.
    "channel_moments": _WALK
    + PART
    + r"""
extern "C" __global__ void __launch_bounds__(256) channel_moments(
    const T* x, A* means, A* factors, W* running_mean, W* running_var, i64* batches, A* partial,
    unsigned* tickets, int channels, int count, int length, int part, A eps, A momentum)
{
    const Walk w = walk_of(channels, count, part);
    A mean[OWN] = {}, square[OWN] = {};
    int seen = 0;  // of each channel
    for (int e = w.begin; e < w.end; e += w.step * LINES) {
        Pack<T, PACK> v[LINES];
        int packs = 0;
#pragma unroll
        for (int u = 0; u < LINES; ++u)
            if (e + u * w.step < w.end) {
                v[u] = load(x + place_of(e + u * w.step, w.channel, channels, length));
                packs = u + 1;
            }
        const int fresh = packs * EACH;
        const A one = A(1) / fresh, share = (A)fresh / (seen + fresh);
#pragma unroll
        for (int j = 0; j < OWN; ++j) {
            A middle = 0, spread = 0;
#pragma unroll
            for (int u = 0; u < LINES; ++u)
#pragma unroll
                for (int k = 0; k < EACH; ++k)
                    if (u < packs) middle += (A)v[u].at[j + k];
            middle *= one;
#pragma unroll
            for (int u = 0; u < LINES; ++u)
#pragma unroll
                for (int k = 0; k < EACH; ++k) {
                    const A c = (A)v[u].at[j + k] - middle;
                    if (u < packs) spread += c * c;
                }
            const A shift = middle - mean[j];
            mean[j] += shift * share;
            square[j] += spread + shift * shift * share * seen;
        }
        seen += fresh;
    }
#pragma unroll
    for (int j = 0; j < OWN; ++j) {
        const A all = of_walk(mean[j] * seen, Sum()) / size_of(blockIdx.y, part, count);
        const A shift = mean[j] - all;
        square[j] = of_walk(seen > 0 ? square[j] + shift * shift * seen : 0, Sum());
        mean[j] = all;
    }
    if (gridDim.y > 1) {
        A* const left = partial + (i64)blockIdx.y * 2 * channels + w.channel;
        if (w.leads)
            for (int j = 0; j < OWN; ++j) left[j] = mean[j], left[channels + j] = square[j];
        if (!comes_last(tickets + blockIdx.x, gridDim.y)) return;
#pragma unroll
        for (int j = 0; j < OWN; ++j) {
            const int channel = w.channel + j;
            A total = 0;
#pragma unroll 4
            for (int k = w.first; k < (int)gridDim.y; k += w.turns)
                total += of_part(partial, k, channels, channel) * size_of(k, part, count);
            mean[j] = of_walk(total, Sum()) / count;
            total = 0;
#pragma unroll 4
            for (int k = w.first; k < (int)gridDim.y; k += w.turns) {
                const A shift = of_part(partial, k, channels, channel) - mean[j];
                total += of_part(partial, k, channels, channels + channel);
                total += shift * shift * size_of(k, part, count);
            }
            square[j] = of_walk(total, Sum());
        }
    }
    if (!w.leads) return;
    for (int j = 0; j < OWN; ++j) {
        const int channel = w.channel + j;
        means[channel] = mean[j];
        factors[channel] = 1 / sqrt(square[j] / count + eps);
        if (running_mean != nullptr) {
            const A was = (A)running_mean[channel];
            running_mean[channel] = (W)(was + (mean[j] - was) * momentum);
        }
        if (running_var != nullptr) {
            const A was = (A)running_var[channel];
            running_var[channel] = (W)(was + (square[j] / (count - 1) - was) * momentum);
        }
        if (batches != nullptr && channel == 0) *batches += 1;
    }
}
""",
    # Means as sums are kept, and the factors of variances.
    "channel_factors": r"""
extern "C" __global__ void __launch_bounds__(256) channel_factors(
    const W* mean, const W* var, A* means, A* factors, int channels, A eps)
{
    const int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= channels) return;
    means[c] = (A)mean[c];
    factors[c] = 1 / sqrt((A)var[c] + eps);
}
""",
    # y = (x - mean) * factor * weight + bias, a mean and a factor for each channel. `parts` are
    # those of norm_rows: without a mean none is subtracted.
    "channel_apply": _CHANNEL
    + PART
    + _FACTOR
    + PART
    + r"""
extern "C" __global__ void __launch_bounds__(256) channel_apply(
    const T* x, const W* weight, const W* bias, const A* means, const A* factors, T* y, i64 size,
    int channels, int length, int parts, A eps)
{
    const i64 i = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (i >= size) return;
    const Pack<T, PACK> v = load(x + i);
    Pack<T, PACK> out;
    const int c = channel_of(i, channels, length);
    const Pack<A, OWN> mean = parts & 4 ? owned(means + c) : Pack<A, OWN>{};
    Pack<A, OWN> factor = owned(factors + c);
    for (int j = 0; j < OWN; ++j) factor.at[j] = factor_of(factor.at[j], eps);
#pragma unroll
    for (int k = 0; k < PACK; ++k) {
        const int j = ACROSS ? k : 0;
        A r = ((A)v.at[k] - mean.at[j]) * factor.at[j];
        if (parts & 1) r *= (A)weight[c + j];
        if (parts & 2) r += (A)bias[c + j];
        out.at[k] = (T)r;
    }
    save(y + i, out);
}
""",
    # Of each channel the sum of g * (x - mean) * factor, and that of g. Element (n, c, l) has mean
    # and factor number n * per_row + c / shared. `parts`: 1 the first is asked for as W, 2 the
    # second, 4 the mean is subtracted.
    "channel_sums": _WALK
    + PART
    + _FACTOR
    + PART
    + r"""
extern "C" __global__ void __launch_bounds__(256) channel_sums(
    const T* g, const T* x, const A* means, const A* factors, W* slopes, W* offsets, A* sums,
    A* partial, unsigned* tickets, int channels, int count, int length, int part, int per_row,
    int shared, int parts, A eps)
{
    const Walk w = walk_of(channels, count, part);
    A slope[OWN] = {}, offset[OWN] = {}, mean[OWN] = {}, factor[OWN] = {};
    int row[OWN];
#pragma unroll
    for (int j = 0; j < OWN; ++j) {
        row[j] = (w.channel + j) / shared;
        if (per_row > 0 || w.begin >= w.end) continue;  // the same for all elements of a channel
        mean[j] = parts & 4 ? means[row[j]] : A(0);
        factor[j] = factor_of(factors[row[j]], eps);
    }
    for (int e = w.begin; e < w.end; e += w.step * LINES) {
        Pack<T, PACK> u[LINES], v[LINES];
#pragma unroll
        for (int l = 0; l < LINES; ++l)
            if (e + l * w.step < w.end) {
                const i64 at = place_of(e + l * w.step, w.channel, channels, length);
                u[l] = load(g + at), v[l] = load(x + at);
            }
#pragma unroll
        for (int l = 0; l < LINES; ++l) {
            const int now = e + l * w.step;
            if (now >= w.end) continue;
            const i64 before = (i64)(length == 1 ? now : now / length) * per_row;
#pragma unroll
            for (int j = 0; j < OWN; ++j) {
                if (per_row > 0 && j > 0 && row[j] == row[0]) {
                    mean[j] = mean[0], factor[j] = factor[0];
                } else if (per_row > 0) {
                    mean[j] = parts & 4 ? means[before + row[j]] : A(0);
                    factor[j] = factor_of(factors[before + row[j]], eps);
                }
#pragma unroll
                for (int k = 0; k < EACH; ++k) {
                    const A h = (A)u[l].at[j + k];
                    slope[j] += h * (((A)v[l].at[j + k] - mean[j]) * factor[j]);
                    offset[j] += h;
                }
            }
        }
    }
#pragma unroll
    for (int j = 0; j < OWN; ++j)
        slope[j] = of_walk(slope[j], Sum()), offset[j] = of_walk(offset[j], Sum());
    if (gridDim.y > 1) {
        A* const left = partial + (i64)blockIdx.y * 2 * channels + w.channel;
        if (w.leads)
            for (int j = 0; j < OWN; ++j) left[j] = slope[j], left[channels + j] = offset[j];
        if (!comes_last(tickets + blockIdx.x, gridDim.y)) return;
#pragma unroll
        for (int j = 0; j < OWN; ++j) {
            slope[j] = offset[j] = 0;
#pragma unroll 4
            for (int k = w.first; k < (int)gridDim.y; k += w.turns) {
                slope[j] += of_part(partial, k, channels, w.channel + j);
                offset[j] += of_part(partial, k, channels, channels + w.channel + j);
            }
            slope[j] = of_walk(slope[j], Sum());
            offset[j] = of_walk(offset[j], Sum());
        }
    }
    if (!w.leads) return;
    for (int j = 0; j < OWN; ++j) {
        const int channel = w.channel + j;
        sums[channel] = slope[j], sums[channels + channel] = offset[j];
        if (parts & 1) slopes[channel] = (W)slope[j];
        if (parts & 2) offsets[channel] = (W)offset[j];
    }
}
""",
    # The gradient of channel_apply in x, where mean and factor are those of x itself.
    "channel_backward": _CHANNEL
    + PART
    + r"""
extern "C" __global__ void __launch_bounds__(256) channel_backward(
    const T* g, const T* x, const W* weight, const A* means, const A* factors, const A* sums,
    T* out, i64 size, int channels, int length, int parts, A count)
{
    const i64 i = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    if (i >= size) return;
    const Pack<T, PACK> u = load(g + i), v = load(x + i);
    Pack<T, PACK> r;
    const int c = channel_of(i, channels, length);
    const Pack<A, OWN> mean = owned(means + c), factor = owned(factors + c);
    const Pack<A, OWN> slope = owned(sums + c), offset = owned(sums + channels + c);
    const A share = 1 / count;
#pragma unroll
    for (int k = 0; k < PACK; ++k) {
        const int j = ACROSS ? k : 0;
        const A z = ((A)v.at[k] - mean.at[j]) * factor.at[j];
        const A h = (A)u.at[k] - (offset.at[j] + z * slope.at[j]) * share;
        r.at[k] = (T)(parts & 1 ? h * factor.at[j] * (A)weight[c + j] : h * factor.at[j]);
    }
    save(out + i, r);
}
""",
    # running += momentum * (towards - running), towards the statistic; `is_factor`: that is
    # 1 / sqrt(variance + eps), and it goes towards scale * variance.
    "track_moment": r"""
extern "C" __global__ void __launch_bounds__(256) track_moment(
    T* running, const W* statistic, int count, int is_factor, A momentum, A eps, A scale)
{
    const int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= count) return;
    const A s = (A)statistic[c], now = (A)running[c];
    const A towards = is_factor ? (1 / (s * s) - eps) * scale : s;
    running[c] = (T)(now + (towards - now) * momentum);
}
""",
}
NAMES = tuple(KERNELS)
SOURCE = whole(KERNELS, ACROSS=0, LINES=4, GIVEN=0, HELD=4)
