"""Kernels of layers that standardise: over rows, over groups of channels, over a batch.

`rows` of n elements lie one after another. A channel's elements are those of (N, C, L) that share
the second index; in `channel_sums` they have a mean and a factor each, which may be those of the
channel (batch_norm), of the row (layer_norm), or of a group of channels of a row (group_norm).
"""

from __future__ import annotations

from . import PART, whole

__all__ = ["KERNELS", "NAMES", "SOURCE"]


# Blocks walk over the elements of channels, of which there are `count` each, N * L. ACROSS: a block
# has 32 channels that are neighbours in memory, in 8 lines, for L = 1; else it has one channel.
_WALK = r"""
struct Walk {  // a thread's elements: from `begin`, every `step`th below `end`
    int channel, begin, end, step;
    bool leads;  // whether this thread writes what all have together
};
__device__ __forceinline__ Walk walk_of(int channels, int count, int part)
{
    const int lane = threadIdx.x % 32, line = threadIdx.x / 32, start = blockIdx.y * part;
    Walk w;
    w.channel = ACROSS ? blockIdx.x * 32 + lane : blockIdx.x;
    w.begin = start + (ACROSS ? line : threadIdx.x);
    w.end = w.channel < channels ? (count - start < part ? count : start + part) : 0;
    w.step = ACROSS ? 8 : blockDim.x;
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


_CHANNEL = r"""
__device__ __forceinline__ int channel_of(i64 i, int channels, int length)
{
    if (i > 0x7fffffff) return (int)((length == 1 ? i : i / length) % channels);
    const unsigned place = (unsigned)i;  // whose quotients are cheaper
    return (length == 1 ? place : place / length) % channels;
}
"""

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
    # Mean and 1 / sqrt(variance + eps) of each channel. A part of a channel has its own mean and
    # sum of squares about it; parts are joined as by Chan, Golub and LeVeque (1979). Running
    # statistics that are there go towards mean and unbiased variance, and batches are counted.
    "channel_moments": _WALK
    + PART
    + r"""
extern "C" __global__ void __launch_bounds__(256) channel_moments(
    const T* x, A* means, A* factors, W* running_mean, W* running_var, i64* batches, A* partial,
    unsigned* tickets, int channels, int count, int length, int part, A eps, A momentum)
{
    Walk w = walk_of(channels, count, part);
    A mean = 0, square = 0;
    for (int e = w.begin; e < w.end; e += w.step)
        mean += (A)x[place_of(e, w.channel, channels, length)];
    const int begin = blockIdx.y * part;
    mean = of_walk(mean, Sum()) / size_of(blockIdx.y, part, count);
    for (int e = w.begin; e < w.end; e += w.step) {
        const A c = (A)x[place_of(e, w.channel, channels, length)] - mean;
        square += c * c;
    }
    square = of_walk(square, Sum());
    if (gridDim.y > 1) {
        A* const left = partial + (i64)blockIdx.y * 2 * channels;
        if (w.leads) left[w.channel] = mean, left[channels + w.channel] = square;
        if (!comes_last(tickets + blockIdx.x, gridDim.y)) return;
        const int first = w.channel < channels ? w.begin - begin : gridDim.y;
        A total = 0;
        for (int k = first; k < (int)gridDim.y; k += w.step)
            total += of_part(partial, k, channels, w.channel) * size_of(k, part, count);
        mean = of_walk(total, Sum()) / count;
        total = 0;
        for (int k = first; k < (int)gridDim.y; k += w.step) {
            const A shift = of_part(partial, k, channels, w.channel) - mean;
            total += of_part(partial, k, channels, channels + w.channel);
            total += shift * shift * size_of(k, part, count);
        }
        square = of_walk(total, Sum());
    }
    if (w.leads) {
        means[w.channel] = mean;
        factors[w.channel] = 1 / sqrt(square / count + eps);
        if (running_mean != nullptr) {
            const A was = (A)running_mean[w.channel];
            running_mean[w.channel] = (W)(was + (mean - was) * momentum);
        }
        if (running_var != nullptr) {
            const A was = (A)running_var[w.channel];
            running_var[w.channel] = (W)(was + (square / (count - 1) - was) * momentum);
        }
        if (batches != nullptr && w.channel == 0) *batches += 1;
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
    int c = channel_of(i, channels, length);
    for (int k = 0; k < PACK; ++k) {  // neighbours are of one channel, or length is 1
        if (k > 0 && length == 1) c = c + 1 < channels ? c + 1 : 0;
        A r = ((A)v.at[k] - (parts & 4 ? means[c] : A(0))) * factor_of(factors[c], eps);
        if (parts & 1) r *= (A)weight[c];
        if (parts & 2) r += (A)bias[c];
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
    Walk w = walk_of(channels, count, part);
    A slope = 0, offset = 0;
    for (int e = w.begin; e < w.end; e += w.step) {
        const i64 at = place_of(e, w.channel, channels, length);
        const i64 row = (i64)(length == 1 ? e : e / length) * per_row + w.channel / shared;
        const A u = (A)g[at], centred = (A)x[at] - (parts & 4 ? means[row] : A(0));
        slope += u * (centred * factor_of(factors[row], eps));
        offset += u;
    }
    slope = of_walk(slope, Sum());
    offset = of_walk(offset, Sum());
    if (gridDim.y > 1) {
        A* const left = partial + (i64)blockIdx.y * 2 * channels;
        if (w.leads) left[w.channel] = slope, left[channels + w.channel] = offset;
        if (!comes_last(tickets + blockIdx.x, gridDim.y)) return;
        slope = offset = 0;
        if (w.channel < channels)
            for (int k = w.begin - (int)blockIdx.y * part; k < (int)gridDim.y; k += w.step) {
                slope += of_part(partial, k, channels, w.channel);
                offset += of_part(partial, k, channels, channels + w.channel);
            }
        slope = of_walk(slope, Sum());
        offset = of_walk(offset, Sum());
    }
    if (w.leads) {
        sums[w.channel] = slope, sums[channels + w.channel] = offset;
        if (parts & 1) slopes[w.channel] = (W)slope;
        if (parts & 2) offsets[w.channel] = (W)offset;
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
    int c = channel_of(i, channels, length);
    for (int k = 0; k < PACK; ++k) {
        if (k > 0 && length == 1) c = c + 1 < channels ? c + 1 : 0;
        const A z = ((A)v.at[k] - means[c]) * factors[c];
        const A h = (A)u.at[k] - sums[channels + c] / count - z * (sums[c] / count);
        r.at[k] = (T)(parts & 1 ? h * factors[c] * (A)weight[c] : h * factors[c]);
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
SOURCE = whole(KERNELS, ACROSS=0, GIVEN=0, HELD=4)
