"""Attention in half precision on tensor cores, and what the lanes of a warp hold for them.

A block of 4 warps owns 64 queries, or 64 keys, and walks over the others, TILE at a time; D is the
width of a head, rounded up to 16. A warp has 16 of the 64: their scores, the exponentials of these
and what is summed stay in registers, since the result of one product is laid out as the first
operand of the next (FlashAttention-2, Dao, 2023, https://arxiv.org/abs/2307.08691). Sums are of
float32. Rows in shared memory have 8 numbers to spare, so that the eight rows of a small matrix lie
in different banks.
"""

from __future__ import annotations

from . import PART, code
from .attention import ATTENTION

__all__ = ["KERNELS", "LEAST", "NAMES", "SOURCE", "TENSOR_CORES"]

LEAST = "80"  # the first architecture that has these instructions

# The fragments are those of the PTX ISA under "Matrix Fragments for mma.m16n8k16 with floating
# point type" and "ldmatrix". A register has two numbers of 16 bits, the first in its lower half.
# Lane l, with g = l / 4 and t = l % 4, has of
#   a, 16 x 16: in register r row g + r % 2 * 8, columns 2t and 2t + 1, + r / 2 * 8;
#   b, 16 x 8:  in register r rows 2t and 2t + 1, + r * 8, column g;
#   d, 16 x 8:  in number i row g + i / 2 * 8, column 2t + i % 2.
# A small matrix of ldmatrix is 8 x 8; lanes 8m to 8m + 7 bring the addresses of the rows of matrix
# m, and register m of lane l has row g, columns 2t and 2t + 1, of it, or, turned, column g, rows 2t
# and 2t + 1.
TENSOR_CORES = r"""
#ifndef CUDA_ON_CPU  // tests/support/cuda_on_cpu/words.h says what they compute
template <class E> __device__ __forceinline__ unsigned pair_of(float first, float second)
{
    unsigned pair;
#define CVT(kind) asm("cvt.rn." kind "x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first))
    if constexpr (BFLOAT) CVT("bf16");
    else CVT("f16");
    return pair;
}
#define MMA(kind)                                                                          \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." kind "." kind ".f32 "            \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"         \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
template <class E> __device__ __forceinline__ void add_product(
    float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    if constexpr (BFLOAT) MMA("bf16");
    else MMA("f16");
}
#define LDMATRIX(how)                                                                      \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" how ".shared.b16 {%0, %1, %2, %3}, [%4];" \
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])                      \
                 : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory")
__device__ __forceinline__ void load_matrices(unsigned (&to)[4], const void* row)
{
    LDMATRIX("");
}
__device__ __forceinline__ void load_turned(unsigned (&to)[4], const void* row)
{
    LDMATRIX(".trans");
}
#endif
"""

_TILES = r"""
constexpr int OWN = 64, ROW = D + 8, CHUNKS = D / 16;
constexpr float LOG2E = 1.4426950408889634f;  // exponentials are of 2: one instruction

// N rows from memory to shared memory, 0 where there are none.
template <int N> __device__ __forceinline__ void fetch(
    uint4* shared, const T* from, i64 step, int first, int count, int width)
{
    constexpr int PIECES = D / PACK;
    T* const to = (T*)shared;
    for (int e = threadIdx.x; e < N * PIECES; e += 128) {
        const int r = e / PIECES, d = e % PIECES * PACK;
        Pack<T, PACK> piece = {};
        if (first + r < count && d < width) piece = load(from + (first + r) * step + d);
        save(to + r * ROW + d, piece);
    }
}

// The 16 rows of a warp, among those in shared memory, as first operands: of one chunk of 16
// columns, and of all.
__device__ __forceinline__ void hold_chunk(unsigned (&a)[4], const uint4* shared, int chunk)
{
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane % 16;
    load_matrices(a, (const T*)shared + row * ROW + chunk * 16 + lane / 16 * 8);
}
__device__ __forceinline__ void hold(unsigned (&own)[CHUNKS][4], const uint4* shared)
{
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) hold_chunk(own[c], shared, c);
}

// s += a · rowsᵀ of one chunk of columns, for N rows in shared memory.
template <int N> __device__ __forceinline__ void multiply_chunk(
    float (&s)[N / 8][4], const unsigned (&a)[4], const uint4* shared, int chunk)
{
    const int lane = threadIdx.x % 32, row = lane / 16 * 8 + lane % 8;
    const T* const rows = (const T*)shared + row * ROW + chunk * 16 + lane / 8 % 2 * 8;
#pragma unroll
    for (int j = 0; j < N / 16; ++j) {
        unsigned b[4];
        load_matrices(b, rows + j * 16 * ROW);
        add_product<T>(s[2 * j], a, b[0], b[1]);
        add_product<T>(s[2 * j + 1], a, b[2], b[3]);
    }
}
template <int N> __device__ __forceinline__ void multiply(
    float (&s)[N / 8][4], const unsigned (&own)[CHUNKS][4], const uint4* shared)
{
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) multiply_chunk<N>(s, own[c], shared, c);
}
template <int N> __device__ __forceinline__ void multiply_shared(  // its own are shared, too
    float (&s)[N / 8][4], const uint4* own, const uint4* shared)
{
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        unsigned a[4];
        hold_chunk(a, own, c);
        multiply_chunk<N>(s, a, shared, c);
    }
}

// out += weights · rows, for N rows in shared memory: weights are rounded to half precision.
template <int N> __device__ __forceinline__ void add_rows(
    float (&out)[D / 8][4], const float (&weights)[N / 8][4], const uint4* shared)
{
    const int lane = threadIdx.x % 32;
    const T* const rows = (const T*)shared + lane % 16 * ROW + lane / 16 * 8;
#pragma unroll
    for (int c = 0; c < N / 16; ++c) {
        const unsigned a[4] = {
            pair_of<T>(weights[2 * c][0], weights[2 * c][1]),
            pair_of<T>(weights[2 * c][2], weights[2 * c][3]),
            pair_of<T>(weights[2 * c + 1][0], weights[2 * c + 1][1]),
            pair_of<T>(weights[2 * c + 1][2], weights[2 * c + 1][3])};
#pragma unroll
        for (int j = 0; j < CHUNKS; ++j) {
            unsigned b[4];
            load_turned(b, rows + c * 16 * ROW + j * 16);
            add_product<T>(out[2 * j], a, b[0], b[1]);
            add_product<T>(out[2 * j + 1], a, b[2], b[3]);
        }
    }
}

// Of a row of 16 x 8, what its four lanes have together.
template <class Join> __device__ __forceinline__ float of_four(float value, Join join)
{
    value = join(value, __shfl_xor_sync(0xffffffffu, value, 1));
    return join(value, __shfl_xor_sync(0xffffffffu, value, 2));
}
__device__ __forceinline__ float kept_or_one(
    const Attention& a, const unsigned char* bits, i64 plane, int query, int key)
{
    if constexpr (DROPPED) return kept_of(a, bits, plane, query, key);
    return 1;
}
__device__ __forceinline__ void save_row(
    T* to, const float (&values)[D / 8][4], int half, float factor, int width)
{
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < D / 8; ++j) {
        const int d = j * 8 + t * 2;
        const float first = values[j][half * 2] * factor, second = values[j][half * 2 + 1] * factor;
        if constexpr (PACK > 1) {
            if (d < width) *(unsigned*)(to + d) = pair_of<T>(first, second);
        } else {
            if (d < width) to[d] = (T)first;
            if (d + 1 < width) to[d + 1] = (T)second;
        }
    }
}
"""

_HEAD = ATTENTION + PART + TENSOR_CORES + PART + _TILES + PART

KERNELS = {
    # softmax(q kᵀ scale + mask) v, and of each query the logarithm of the sum of its exponentials.
    "tensor_attention": _HEAD + r"""
extern "C" __global__ void __launch_bounds__(128) tensor_attention(
    const T* q, const T* k, const T* v, const W* mask, const unsigned char* bits, T* o, A* logs,
    const Attention a)
{
    __shared__ uint4 tiles[2][TILE * ROW / 8];
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int first = (a.tiles - 1 - (int)(blockIdx.x % a.tiles)) * OWN;  // the longest go first
    const int own_query = first + warp * 16 + g;  // and 8 rows below it
    const i64 plane = blockIdx.x / a.tiles, b = plane / a.heads, h = plane % a.heads;
    k += b * a.k[0] + h / a.groups * a.k[1];
    v += b * a.v[0] + h / a.groups * a.v[1];
    mask += b * a.mask[0] + h * a.mask[1];
    unsigned own[CHUNKS][4];
    fetch<OWN>(tiles[0], q + b * a.q[0] + h * a.q[1], a.q[2], first, a.length, a.width);
    __syncthreads();
    hold(own, tiles[0]);
    float out[D / 8][4] = {}, top[2] = {-infinite(), -infinite()}, sum[2] = {};
    const int seen = a.causal ? first + OWN + a.start : a.keys;
    for (int start = 0; start < (seen < a.keys ? seen : a.keys); start += TILE) {
        __syncthreads();
        fetch<TILE>(tiles[0], k, a.k[2], start, a.keys, a.width);
        fetch<TILE>(tiles[1], v, a.v[2], start, a.keys, a.value_width);
        __syncthreads();
        float s[TILE / 8][4] = {}, most[2] = {top[0], top[1]}, shift[2], before[2];
        multiply<TILE>(s, own, tiles[0]);
        const bool all_seen = MASK == 0 && start + TILE <= a.keys && first + OWN <= a.length &&
                              (!a.causal || start + TILE <= first + warp * 16 + a.start + 1);
#pragma unroll
        for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int key = start + j * 8 + t * 2 + i % 2;
                if (all_seen) s[j][i] *= a.scale;
                else s[j][i] = score_of(a, mask, s[j][i], own_query + i / 2 * 8, key);
                most[i / 2] = fmaxf(most[i / 2], s[j][i]);
            }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            most[i] = of_four(most[i], Largest());
            before[i] = top[i] == most[i] ? 1.0f : exp2f((top[i] - most[i]) * LOG2E);
            top[i] = most[i];
            shift[i] = most[i] == -infinite() ? 0.0f : most[i] * LOG2E;
            sum[i] *= before[i];
        }
#pragma unroll
        for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int key = start + j * 8 + t * 2 + i % 2;
                const float p = exp2f(s[j][i] * LOG2E - shift[i / 2]);
                sum[i / 2] += p;
                s[j][i] = p * kept_or_one(a, bits, plane, own_query + i / 2 * 8, key);
            }
#pragma unroll
        for (int j = 0; j < D / 8; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) out[j][i] *= before[i / 2];
        add_rows<TILE>(out, s, tiles[1]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const float total = of_four(sum[i], Sum());
        const int query = own_query + i * 8;
        if (query >= a.length) continue;
        T* const to = o + b * a.o[0] + h * a.o[1] + query * a.o[2];
        save_row(to, out, i, total == 0 ? 0.0f : 1 / total, a.value_width);
        if (t == 0)  // a query that sees no key has 0
            logs[plane * a.length + query] = total == 0 ? infinite() : top[i] + logf(total);
    }
}
""",
    # The gradient of the queries, and g · o of each of them.
    "tensor_attention_queries": _HEAD + r"""
extern "C" __global__ void __launch_bounds__(128) tensor_attention_queries(
    const T* g, const T* q, const T* k, const T* v, const W* mask, const unsigned char* bits,
    const T* o, const A* logs, T* dq, A* deltas, const Attention a)
{
    __shared__ uint4 tiles[2][TILE * ROW / 8], slopes[OWN * ROW / 8];
    const int warp = threadIdx.x / 32, t = threadIdx.x % 4;
    const int first = (a.tiles - 1 - (int)(blockIdx.x % a.tiles)) * OWN;
    const int own_query = first + warp * 16 + threadIdx.x % 32 / 4;
    const i64 plane = blockIdx.x / a.tiles, b = plane / a.heads, h = plane % a.heads;
    k += b * a.k[0] + h / a.groups * a.k[1];
    v += b * a.v[0] + h / a.groups * a.v[1];
    g += b * a.g[0] + h * a.g[1];
    o += b * a.o[0] + h * a.o[1];
    mask += b * a.mask[0] + h * a.mask[1];
    unsigned own[CHUNKS][4];
    fetch<OWN>(tiles[0], q + b * a.q[0] + h * a.q[1], a.q[2], first, a.length, a.width);
    fetch<OWN>(slopes, g, a.g[2], first, a.length, a.value_width);
    __syncthreads();
    hold(own, tiles[0]);
    float out[D / 8][4] = {}, shift[2] = {}, delta[2] = {};
    for (int i = 0; i < 2; ++i) {
        const int query = own_query + i * 8;
        const bool is_there = query < a.length;
        for (int d = t * PACK; d < a.value_width; d += 4 * PACK)
            if (is_there) {
                const auto slope = load(g + query * a.g[2] + d);
                const auto value = load(o + query * a.o[2] + d);
                for (int e = 0; e < PACK; ++e) delta[i] += (float)slope.at[e] * (float)value.at[e];
            }
        delta[i] = of_four(delta[i], Sum());
        if (is_there) shift[i] = logs[plane * a.length + query] * LOG2E;
        if (is_there && t == 0) deltas[plane * a.length + query] = delta[i];
    }
    const int seen = a.causal ? first + OWN + a.start : a.keys;
    for (int start = 0; start < (seen < a.keys ? seen : a.keys); start += TILE) {
        __syncthreads();
        fetch<TILE>(tiles[0], k, a.k[2], start, a.keys, a.width);
        fetch<TILE>(tiles[1], v, a.v[2], start, a.keys, a.value_width);
        __syncthreads();
        float s[TILE / 8][4] = {}, slope[TILE / 8][4] = {};
        multiply<TILE>(s, own, tiles[0]);
        multiply_shared<TILE>(slope, slopes, tiles[1]);
        const bool all_seen = MASK == 0 && start + TILE <= a.keys && first + OWN <= a.length &&
                              (!a.causal || start + TILE <= first + warp * 16 + a.start + 1);
#pragma unroll
        for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int query = own_query + i / 2 * 8, key = start + j * 8 + t * 2 + i % 2;
                const float score =
                    all_seen ? s[j][i] * a.scale : score_of(a, mask, s[j][i], query, key);
                const float kept = kept_or_one(a, bits, plane, query, key);
                s[j][i] = exp2f(score * LOG2E - shift[i / 2]) * (slope[j][i] * kept - delta[i / 2]);
            }
        add_rows<TILE>(out, s, tiles[0]);
    }
    dq += b * a.dq[0] + h * a.dq[1];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int query = own_query + i * 8;
        if (query < a.length) save_row(dq + query * a.dq[2], out, i, a.scale, a.width);
    }
}
""",
    # The gradients of keys and values, of all heads of queries that have them.
    "tensor_attention_keys": _HEAD + r"""
extern "C" __global__ void __launch_bounds__(128) tensor_attention_keys(
    const T* g, const T* q, const T* k, const T* v, const W* mask, const unsigned char* bits,
    const A* logs, const A* deltas, T* dk, T* dv, const Attention a)
{
    __shared__ uint4 tiles[2][TILE * ROW / 8], values[OWN * ROW / 8];
    __shared__ float shifts[TILE], delta[TILE];
    const int warp = threadIdx.x / 32, t = threadIdx.x % 4, count = a.heads / a.groups;
    const int blocks = (a.keys + OWN - 1) / OWN, first = (int)(blockIdx.x % blocks) * OWN;
    const int own_key = first + warp * 16 + threadIdx.x % 32 / 4;
    const int both = blockIdx.x / blocks, b = both / count, shared = both % count;
    unsigned own[CHUNKS][4];
    fetch<OWN>(tiles[0], k + b * a.k[0] + shared * a.k[1], a.k[2], first, a.keys, a.width);
    fetch<OWN>(values, v + b * a.v[0] + shared * a.v[1], a.v[2], first, a.keys, a.value_width);
    __syncthreads();
    hold(own, tiles[0]);
    float out[D / 8][4] = {}, turned[D / 8][4] = {};
    const int least = a.causal && first > a.start ? (first - a.start) / TILE * TILE : 0;
    for (int head = 0; head < a.groups; ++head) {
        const i64 h = shared * a.groups + head, plane = b * a.heads + h;
        const T* const from = q + b * a.q[0] + h * a.q[1];
        const T* const slopes = g + b * a.g[0] + h * a.g[1];
        const W* const mask_here = mask + b * a.mask[0] + h * a.mask[1];
        for (int start = least; start < a.length; start += TILE) {
            __syncthreads();
            fetch<TILE>(tiles[0], from, a.q[2], start, a.length, a.width);
            fetch<TILE>(tiles[1], slopes, a.g[2], start, a.length, a.value_width);
            if (threadIdx.x < TILE) {
                const int query = start + threadIdx.x;
                const bool is_there = query < a.length;
                shifts[threadIdx.x] = is_there ? logs[plane * a.length + query] * LOG2E : 0.0f;
                delta[threadIdx.x] = is_there ? deltas[plane * a.length + query] : 0.0f;
            }
            __syncthreads();
            float s[TILE / 8][4] = {}, u[TILE / 8][4] = {};
            multiply<TILE>(s, own, tiles[0]);
            multiply_shared<TILE>(u, values, tiles[1]);
            const bool all_seen = MASK == 0 && start + TILE <= a.length && first + OWN <= a.keys &&
                                  (!a.causal || first + warp * 16 + 15 <= start + a.start);
#pragma unroll
            for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int at = j * 8 + t * 2 + i % 2, query = start + at;
                    const int key = own_key + i / 2 * 8;
                    const float score =
                        all_seen ? s[j][i] * a.scale : score_of(a, mask_here, s[j][i], query, key);
                    const float p = exp2f(score * LOG2E - shifts[at]);
                    const float kept = kept_or_one(a, bits, plane, query, key);
                    s[j][i] = p * kept;
                    u[j][i] = p * (u[j][i] * kept - delta[at]);
                }
            add_rows<TILE>(turned, s, tiles[1]);
            add_rows<TILE>(out, u, tiles[0]);
        }
    }
    dk += b * a.dk[0] + shared * a.dk[1];
    dv += b * a.dv[0] + shared * a.dv[1];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int key = own_key + i * 8;
        if (key >= a.keys) continue;
        save_row(dk + key * a.dk[2], out, i, a.scale, a.width);
        save_row(dv + key * a.dv[2], turned, i, 1, a.value_width);
    }
}
""",
}  # fmt: skip
NAMES = tuple(KERNELS)
SOURCE = code(
    "".join(dict.fromkeys(part for text in KERNELS.values() for part in text.split(PART))),
    "bfloat16", None, 8, D=64, TILE=32, MASK=0, DROPPED=0, BFLOAT=1,
)  # fmt: skip
