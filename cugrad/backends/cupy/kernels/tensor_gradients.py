"""The gradients of attention on tensor cores; see `tensor_cores.py`.

A block of `tensor_attention_queries` owns queries, one of `tensor_attention_keys` keys, so that one
block sums up a gradient, in one order; the products of queries and keys are computed twice.
"""

from __future__ import annotations

from . import PART, code
from .tensor_cores import HEAD, LEAST

__all__ = ["KERNELS", "LEAST", "NAMES", "SOURCE"]

KERNELS = {
    # The gradient of the queries, and g · o of each of them.
    "tensor_attention_queries": HEAD + r"""
extern "C" __global__ void __launch_bounds__(THREADS) tensor_attention_queries(
    const T* g, const T* q, const T* k, const T* v, const W* mask, const unsigned char* bits,
    const T* o, const A* logs, T* dq, A* deltas, const Attention a)
{
    __shared__ uint4 memory[STAGES * PAIR / PIECE], others[OWN * ROW / PIECE];
    T *const tiles = (T*)memory, *const slopes = (T*)others;
    const int warp = threadIdx.x / 32, t = threadIdx.x % 4;
    int plane;
    const int first = (a.tiles - 1 - row_of_blocks(a, a.tiles, plane)) * OWN;
    const int least_query = first + warp * BANDS * 16;
    const int own_query = least_query + threadIdx.x % 32 / 4;
    const i64 b = plane / a.heads, h = plane % a.heads;
    k += b * a.k[0] + h / a.groups * a.k[1];
    v += b * a.v[0] + h / a.groups * a.v[1];
    g += b * a.g[0] + h * a.g[1];
    o += b * a.o[0] + h * a.o[1];
    mask += b * a.mask[0] + h * a.mask[1];
    const int seen = a.causal ? first + OWN + a.start : a.keys, end = seen < a.keys ? seen : a.keys;
    const T* const from = q + b * a.q[0] + h * a.q[1] + first * a.q[2];
    T* const place = ROOM ? tiles + (STAGES - 1) * PAIR : slopes;
    fetch<OWN>(place, from, a.q[2], a.length - first, a.width);
    if (ROOM) fetch<OWN>(slopes, g + first * a.g[2], a.g[2], a.length - first, a.value_width);
    if (STAGES == 2) {
        fetch<TILE>(tiles, k, a.k[2], a.keys, a.width);
        fetch<TILE>(tiles + PAIR / 2, v, a.v[2], a.keys, a.value_width);
    }
    float out[BANDS][D / 8][4] = {}, shift[BANDS][2] = {}, delta[BANDS][2] = {};
#pragma unroll
    for (int m = 0; m < BANDS; ++m)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int query = own_query + m * 16 + i * 8;
            const bool is_there = query < a.length;
            for (int d = t * PACK; d < a.value_width; d += 4 * PACK)
                if (is_there) {
                    const auto slope = load(g + query * a.g[2] + d);
                    const auto value = load(o + query * a.o[2] + d);
                    for (int e = 0; e < PACK; ++e)
                        delta[m][i] += (float)slope.at[e] * (float)value.at[e];
                }
            delta[m][i] = of_four(delta[m][i], Sum());
            if (is_there) shift[m][i] = logs[(i64)plane * a.length + query] * LOG2E;
            if (is_there && t == 0) deltas[(i64)plane * a.length + query] = delta[m][i];
        }
    await_copies();
    __syncthreads();
    unsigned own[BANDS][CHUNKS][4], own_slopes[BANDS][CHUNKS][4];
    hold(own, place);
    if constexpr (!ROOM) {
        __syncthreads();
        fetch<OWN>(slopes, g + first * a.g[2], a.g[2], a.length - first, a.value_width);
        await_copies();
        __syncthreads();
    }
    if constexpr (HELD) hold(own_slopes, slopes);
    const float scale = a.scale * LOG2E;
    T* tile = tiles;
    for (int start = 0; start < end; start += TILE) {
        const int next = STAGES == 2 ? start + TILE : start;
        if (STAGES == 1) __syncthreads();
        if (STAGES == 2) await_copies(), __syncthreads();
        T* const other = STAGES == 2 ? tiles + (PAIR - (tile - tiles)) : tile;
        if (next < end) {
            fetch<TILE>(other, k + next * a.k[2], a.k[2], a.keys - next, a.width);
            fetch<TILE>(other + PAIR / 2, v + next * a.v[2], a.v[2], a.keys - next, a.value_width);
        }
        if (STAGES == 1) await_copies(), __syncthreads();
        float s[BANDS][TILE / 8][4] = {}, slope[BANDS][TILE / 8][4] = {}, factor = scale;
        multiply<true>(s, own, nullptr, tile);
        multiply<HELD>(slope, own_slopes, slopes, tile + PAIR / 2);
        const bool all_seen = MASK == 0 && start + TILE <= a.keys &&
                              (!a.causal || start + TILE <= least_query + a.start + 1);
        if (!all_seen) {
            factor = 1;
#pragma unroll
            for (int m = 0; m < BANDS; ++m)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int query = own_query + m * 16 + i / 2 * 8, limit = limit_of(a, query);
#pragma unroll
                    for (int j = 0; j < TILE / 8; ++j) {
                        const int key = start + j * 8 + t * 2 + i % 2;
                        float& score = s[m][j][i];
                        score = seen_of(a, mask, score * scale, query, key, key < limit);
                    }
                }
        }
#pragma unroll
        for (int m = 0; m < BANDS; ++m)
#pragma unroll
            for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const float kept = kept_or_one(a, bits, plane, own_query + m * 16 + i / 2 * 8,
                                                   start + j * 8 + t * 2 + i % 2);
                    s[m][j][i] = exp2f(s[m][j][i] * factor - shift[m][i / 2]) *
                                 (slope[m][j][i] * kept - delta[m][i / 2]);
                }
        add_rows(out, s, tile);
        tile = other;
    }
    dq += b * a.dq[0] + h * a.dq[1];
#pragma unroll
    for (int m = 0; m < BANDS; ++m)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int query = own_query + m * 16 + i * 8;
            if (query < a.length) save_row(dq + query * a.dq[2], out[m], i, a.scale, a.width);
        }
}
""",
    # The gradients of keys and values, of all heads of queries that have them.
    "tensor_attention_keys": HEAD + r"""
extern "C" __global__ void __launch_bounds__(THREADS) tensor_attention_keys(
    const T* g, const T* q, const T* k, const T* v, const W* mask, const unsigned char* bits,
    const A* logs, const A* deltas, T* dk, T* dv, const Attention a)
{
    __shared__ uint4 memory[STAGES * PAIR / PIECE], others[OWN * ROW / PIECE];
    __shared__ float numbers[STAGES * 2 * TILE];  // of each query
    T *const tiles = (T*)memory, *const values = (T*)others;
    const int warp = threadIdx.x / 32, t = threadIdx.x % 4, count = a.heads / a.groups;
    int both;
    const int first = row_of_blocks(a, (a.keys + OWN - 1) / OWN, both) * OWN;
    const int least_key = first + warp * BANDS * 16, own_key = least_key + threadIdx.x % 32 / 4;
    const int b = both / count, shared = both % count;
    k += b * a.k[0] + shared * a.k[1] + first * a.k[2];
    v += b * a.v[0] + shared * a.v[1] + first * a.v[2];
    const int least = a.causal && first > a.start ? (first - a.start) / TILE * TILE : 0;
    int head = 0, stage = 0;
    auto fetch_queries = [&](int stage, int head, int start) {
        const int h = shared * a.groups + head, plane = b * a.heads + h;
        T* const to = tiles + stage * PAIR;
        const T* const from = q + b * a.q[0] + h * a.q[1] + start * a.q[2];
        const T* const slopes = g + b * a.g[0] + h * a.g[1] + start * a.g[2];
        fetch<TILE>(to, from, a.q[2], a.length - start, a.width);
        fetch<TILE>(to + PAIR / 2, slopes, a.g[2], a.length - start, a.value_width);
        if (threadIdx.x < 2 * TILE) {
            const int e = threadIdx.x, query = start + e % TILE;
            const A* const place = (e < TILE ? logs : deltas) + (i64)plane * a.length;
            const bool is_there = query < a.length;
            copy_later<4>(numbers + stage * 2 * TILE + e, place + is_there * query, is_there);
        }
    };
    T* const place = ROOM ? tiles + (STAGES - 1) * PAIR : values;
    fetch<OWN>(place, k, a.k[2], a.keys - first, a.width);
    if (ROOM) fetch<OWN>(values, v, a.v[2], a.keys - first, a.value_width);
    if (STAGES == 2 && least < a.length) fetch_queries(0, 0, least);
    await_copies();
    __syncthreads();
    unsigned own[BANDS][CHUNKS][4], own_values[BANDS][CHUNKS][4];
    hold(own, place);
    if constexpr (!ROOM) {
        __syncthreads();
        fetch<OWN>(values, v, a.v[2], a.keys - first, a.value_width);
        await_copies();
        __syncthreads();
    }
    if constexpr (HELD) hold(own_values, values);
    const float scale = a.scale * LOG2E;
    float out[BANDS][D / 8][4] = {}, turned[BANDS][D / 8][4] = {};

    for (int start = least; start < a.length && head < a.groups;) {
        if (STAGES == 2) {
            await_copies(), __syncthreads();
            const bool is_last = start + TILE >= a.length;
            if (head + is_last < a.groups)
                fetch_queries(stage ^ 1, head + is_last, is_last ? least : start + TILE);
        } else {
            __syncthreads();
            fetch_queries(0, head, start);
            await_copies(), __syncthreads();
        }
        const T* const tile = tiles + stage * PAIR;
        const float* const shifts = numbers + stage * 2 * TILE;  // and as many of g · o
        float s[BANDS][TILE / 8][4] = {}, u[BANDS][TILE / 8][4] = {}, factor = scale;
        multiply<true>(s, own, nullptr, tile);
        multiply<HELD>(u, own_values, values, tile + PAIR / 2);
        const bool all_seen = MASK == 0 && start + TILE <= a.length &&
                              (!a.causal || least_key + BANDS * 16 - 1 <= start + a.start);
        const int h = shared * a.groups + head, plane = b * a.heads + h;
        if (!all_seen) {
            const W* const mask_here = mask + b * a.mask[0] + h * a.mask[1];
            factor = 1;
#pragma unroll
            for (int m = 0; m < BANDS; ++m)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int key = own_key + m * 16 + i / 2 * 8;
                    const int from = a.causal ? key - a.start : 0;
#pragma unroll
                    for (int j = 0; j < TILE / 8; ++j) {
                        const int query = start + j * 8 + t * 2 + i % 2;
                        // without a mask, what lies outside of both is 0, and stays so
                        const bool is_there = MASK == 0 || (query < a.length && key < a.keys);
                        float& score = s[m][j][i];
                        score = seen_of(a, mask_here, score * scale, query, key,
                                        is_there && query >= from);
                    }
                }
        }
#pragma unroll
        for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int at = j * 8 + t * 2 + i, query = start + at;
                const float shift = shifts[at] * LOG2E, slope = shifts[TILE + at];
#pragma unroll
                for (int m = 0; m < BANDS; ++m)
#pragma unroll
                    for (int r = i; r < 4; r += 2) {
                        const int key = own_key + m * 16 + r / 2 * 8;
                        const float p = exp2f(s[m][j][r] * factor - shift);
                        const float kept = kept_or_one(a, bits, plane, query, key);
                        s[m][j][r] = p * kept;
                        u[m][j][r] = p * (u[m][j][r] * kept - slope);
                    }
            }
        add_rows(turned, s, tile + PAIR / 2);
        add_rows(out, u, tile);
        start += TILE;
        if (start >= a.length) start = least, ++head;
        if (STAGES == 2) stage ^= 1;
    }
    dk += b * a.dk[0] + shared * a.dk[1];
    dv += b * a.dv[0] + shared * a.dv[1];
#pragma unroll
    for (int m = 0; m < BANDS; ++m)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int key = own_key + m * 16 + i * 8;
            if (key >= a.keys) continue;
            save_row(dk + key * a.dk[2], out[m], i, a.scale, a.width);
            save_row(dv + key * a.dv[2], turned[m], i, 1, a.value_width);
        }
}
""",
}  # fmt: skip
NAMES = tuple(KERNELS)
SOURCE = code(
    "".join(dict.fromkeys(part for text in KERNELS.values() for part in text.split(PART))),
    "bfloat16", None, 8, D=64, TILE=32, WARPS=4, BANDS=1, OTHERS=1, MASK=0, DROPPED=0, BFLOAT=1,
)  # fmt: skip
