"""Attention on tensor cores, in half precision and in float32, and what the lanes of a warp hold
for them; its gradients are in `tensor_gradients.py`.

A block of WARPS warps owns queries, or keys, and walks over the others, TILE at a time; D is the
width of a head, rounded up to 16. A warp has BANDS bands of 16 of its block's rows: their scores,
the exponentials of these and what is summed stay in registers, since the result of one product is
laid out as the first operand of the next (FlashAttention-2, Dao, 2023,
https://arxiv.org/abs/2307.08691). Sums are of float32. While a block computes with two tiles the
next two are on their way to shared memory, where this has room for both. Rows there have 16 bytes
to spare, so that the eight rows of a small matrix lie in different banks.

Products of float32 are three of TF32 each, of the upper and the lower bits of both operands but for
the lower with the lower, which leave out what is 2^-22 of a product: as CUTLASS has it
(`OpMultiplyAddFastF32`), and with it PyTorch's attention.
"""

from __future__ import annotations

from . import PART, code
from .attention import ATTENTION

__all__ = ["HEAD", "KERNELS", "LEAST", "NAMES", "SOURCE", "TENSOR_CORES"]

LEAST = "80"  # the first architecture that has these instructions

# The fragments are those of the PTX ISA under "Matrix Fragments for mma.m16n8k16 with floating
# point type" and "ldmatrix". A register has two numbers of 16 bits, the first in its lower half.
# Lane l, with g = l / 4 and t = l % 4, has of
#   a, 16 x 16: in register r row g + r % 2 * 8, columns 2t and 2t + 1, + r / 2 * 8;
#   b, 16 x 8:  in register r rows 2t and 2t + 1, + r * 8, column g;
#   d, 16 x 8:  in number i row g + i / 2 * 8, column 2t + i % 2.
# Of m16n8k8 with TF32 a register has one number; a lane has of
#   a, 16 x 8: in register r row g + r % 2 * 8, column t + r / 2 * 4;
#   b, 8 x 8:  in register r row t + r * 4, column g.
# A small matrix of ldmatrix is 8 x 8; lanes 8m to 8m + 7 bring the addresses of the rows of matrix
# m, and register m of lane l has row g, columns 2t and 2t + 1, of it, or, turned, column g, rows 2t
# and 2t + 1. Of float32 it is 8 x 4, and has column t.
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
__device__ __forceinline__ void add_tf32(
    float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
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
// Copies BYTES to shared memory, or writes zeros there; it is done when `await_copies` returns.
template <int BYTES> __device__ __forceinline__ void copy_later(
    void* to, const void* from, bool is_there)
{
#define CP_ASYNC(kind)                                                                     \
    asm volatile("cp.async." kind ".shared.global [%0], [%1], %2, %3;"                     \
                 :: "r"((unsigned)__cvta_generic_to_shared(to)),                           \
                    "l"(__cvta_generic_to_global(from)), "n"(BYTES),                       \
                    "r"(is_there ? BYTES : 0) : "memory")
    if constexpr (BYTES == 16) CP_ASYNC("cg");
    else CP_ASYNC("ca");
}
__device__ __forceinline__ void await_copies()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}
#endif
"""

_TILES = r"""
constexpr int SIZE = sizeof(T), PIECE = 16 / SIZE, CHUNK = 2 * PIECE;  // PIECE: in 16 bytes
constexpr bool IS_HALF = SIZE == 2;
constexpr int THREADS = WARPS * 32, OWN = WARPS * BANDS * 16, ROW = D + PIECE, CHUNKS = D / CHUNK;
constexpr int PAIR = 2 * TILE * ROW;  // numbers of two tiles
constexpr int STAGES = (2 * PAIR + OTHERS * OWN * ROW) * SIZE + TILE * 16 <= 48 * 1024 ? 2 : 1;
// both of its own operands are in registers
constexpr bool HELD = OTHERS && BANDS * D * SIZE <= 128;
// at once, forward
constexpr int BLOCKS = IS_HALF && BANDS * D <= 64 && MASK + DROPPED == 0 ? 16 / WARPS : 1;
constexpr float LOG2E = 1.4426950408889634f, LN2 = 0.6931471805599453f;
constexpr bool ROOM = OWN <= 2 * TILE;  // for a block's own rows in two tiles
static_assert(2 * TILE <= THREADS && (ROOM || OTHERS), "what a block fetches at a time");

// N rows of memory to shared memory, of `count` that there are; 0 where there are none. It may be
// done later only.
template <int N> __device__ __forceinline__ void fetch(
    T* to, const T* from, i64 step, int count, int width)
{
    constexpr int PIECES = D / PACK, ALL = N * PIECES;
#pragma unroll
    for (int k = 0; k < (ALL + THREADS - 1) / THREADS; ++k) {
        int r = (threadIdx.x + k * THREADS) / PIECES, d = (threadIdx.x + k * THREADS) % PIECES;
        if constexpr (THREADS % PIECES == 0)
            r = threadIdx.x / PIECES + k * (THREADS / PIECES), d = threadIdx.x % PIECES;
        d *= PACK;
        if (ALL % THREADS && r >= N) continue;
        const bool is_there = r < count && d < width;
        const T* const place = is_there ? from + r * step + d : from;
        if constexpr (PACK == 1) to[r * ROW + d] = is_there ? *place : T(0.0f);
        else copy_later<PACK * SIZE>(to + r * ROW + d, place, is_there);
    }
}

// What TF32 leaves of a number. Of the bits that it has not tensor cores take no notice.
__device__ __forceinline__ unsigned rest_of(unsigned x)
{
    return __float_as_uint(__uint_as_float(x) - __uint_as_float(x & 0xffffe000u));
}
// d += a · b, of CHUNK columns of a.
__device__ __forceinline__ void add_products(
    float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    if constexpr (IS_HALF) add_product<T>(d, a, b0, b1);
    else {
        const unsigned rest[4] = {rest_of(a[0]), rest_of(a[1]), rest_of(a[2]), rest_of(a[3])};
        add_tf32(d, rest, b0, b1);
        add_tf32(d, a, rest_of(b0), rest_of(b1));
        add_tf32(d, a, b0, b1);
    }
}

// The 16 rows of a warp's band, among those in shared memory, as first operands: of one chunk of
// columns, and of all.
__device__ __forceinline__ void hold_chunk(unsigned (&a)[4], const T* shared, int band, int chunk)
{
    const int lane = threadIdx.x % 32, row = (threadIdx.x / 32 * BANDS + band) * 16 + lane % 16;
    load_matrices(a, shared + row * ROW + chunk * CHUNK + lane / 16 * PIECE);
}
__device__ __forceinline__ void hold(unsigned (&own)[BANDS][CHUNKS][4], const T* shared)
{
#pragma unroll
    for (int m = 0; m < BANDS; ++m)
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) hold_chunk(own[m][c], shared, m, c);
}

// s += own · rowsᵀ for the TILE rows in shared memory. Those of its own are in registers, or, where
// KEPT is false, in shared memory, too.
template <bool KEPT> __device__ __forceinline__ void multiply(
    float (&s)[BANDS][TILE / 8][4], const unsigned (&own)[BANDS][CHUNKS][4], const T* own_shared,
    const T* shared)
{
    const int lane = threadIdx.x % 32, row = lane / 16 * 8 + lane % 8;
    const T* const rows = shared + row * ROW + lane / 8 % 2 * PIECE;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        unsigned a[BANDS][4];
#pragma unroll
        for (int m = 0; m < BANDS; ++m) {
            if constexpr (!KEPT) hold_chunk(a[m], own_shared, m, c);
            else
#pragma unroll
                for (int r = 0; r < 4; ++r) a[m][r] = own[m][c][r];
        }
#pragma unroll
        for (int j = 0; j < TILE / 16; ++j) {
            unsigned b[4];
            load_matrices(b, rows + j * 16 * ROW + c * CHUNK);
#pragma unroll
            for (int m = 0; m < BANDS; ++m) {
                add_products(s[m][2 * j], a[m], b[0], b[1]);
                add_products(s[m][2 * j + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// out += weights · rows, for the TILE rows in shared memory: weights are rounded to half precision.
__device__ __forceinline__ void add_halves(
    float (&out)[BANDS][D / 8][4], const float (&weights)[BANDS][TILE / 8][4], const T* shared)
{
    const int lane = threadIdx.x % 32;
    const T* const rows = shared + lane % 16 * ROW + lane / 16 * 8;
#pragma unroll
    for (int c = 0; c < TILE / 16; ++c) {
        unsigned a[BANDS][4];
#pragma unroll
        for (int m = 0; m < BANDS; ++m)
#pragma unroll
            for (int r = 0; r < 4; ++r) {
                const float(&pair)[4] = weights[m][2 * c + r / 2];
                a[m][r] = pair_of<T>(pair[r % 2 * 2], pair[r % 2 * 2 + 1]);
            }
#pragma unroll
        for (int j = 0; j < D / 16; ++j) {
            unsigned b[4];
            load_turned(b, rows + c * 16 * ROW + j * 16);
#pragma unroll
            for (int m = 0; m < BANDS; ++m) {
                add_products(out[m][2 * j], a[m], b[0], b[1]);
                add_products(out[m][2 * j + 1], a[m], b[2], b[3]);
            }
        }
    }
}
// The same of float32. A lane has the weights of the rows 2t and 2t + 1 of eight, which are t and
// t + 4 to the product: in what order rows are summed is the same to it.
__device__ __forceinline__ void add_floats(
    float (&out)[BANDS][D / 8][4], const float (&weights)[BANDS][TILE / 8][4], const T* shared)
{
    const int lane = threadIdx.x % 32;
    const T* const rows = shared + lane % 4 * 2 * ROW + lane / 4;
#pragma unroll
    for (int c = 0; c < TILE / 8; ++c) {
        unsigned a[BANDS][4];
#pragma unroll
        for (int m = 0; m < BANDS; ++m)
#pragma unroll
            for (int r = 0; r < 4; ++r)
                a[m][r] = __float_as_uint(weights[m][c][r % 2 * 2 + r / 2]);
#pragma unroll
        for (int j = 0; j < D / 8; ++j) {
            const T* const at = rows + c * 8 * ROW + j * 8;
            const unsigned first = __float_as_uint(at[0]), second = __float_as_uint(at[ROW]);
#pragma unroll
            for (int m = 0; m < BANDS; ++m) add_products(out[m][j], a[m], first, second);
        }
    }
}
__device__ __forceinline__ void add_rows(
    float (&out)[BANDS][D / 8][4], const float (&weights)[BANDS][TILE / 8][4], const T* shared)
{
    if constexpr (IS_HALF) add_halves(out, weights, shared);
    else add_floats(out, weights, shared);
}

// How many keys a query sees, masks aside.
__device__ __forceinline__ int limit_of(const Attention& a, int query)
{
    if (query >= a.length) return 0;
    const int limit = a.causal ? query + a.start + 1 : a.keys;
    return limit < a.keys ? limit : a.keys;
}
// A score in units of log 2, as the exponentials of 2 want it; -infinity where the query does not
// see the key.
__device__ __forceinline__ float seen_of(
    const Attention& a, const W* mask, float score, int query, int key, bool is_seen)
{
    if constexpr (MASK == 0) return is_seen ? score : -infinite();
    if (!is_seen) return -infinite();
    const W m = mask[query * a.mask[2] + key * a.mask[3]];
    if constexpr (MASK == 1) return m ? score : -infinite();
    return score + (float)m * LOG2E;
}
// Which block of rows of which plane is this block's: where blocks take unequally long, the longest
// of all planes go first, else those of a plane, which share what they read.
__device__ __forceinline__ int row_of_blocks(const Attention& a, int blocks, int& plane)
{
    const int planes = gridDim.x / blocks;
    plane = a.causal ? blockIdx.x % planes : blockIdx.x / blocks;
    return a.causal ? blockIdx.x / planes : blockIdx.x % blocks;
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
        if constexpr (PACK > 1 && IS_HALF) {
            if (d < width) *(unsigned*)(to + d) = pair_of<T>(first, second);
        } else if constexpr (PACK > 1) {
            if (d < width) *(float2*)(to + d) = {first, second};
        } else {
            if (d < width) to[d] = (T)first;
            if (d + 1 < width) to[d + 1] = (T)second;
        }
    }
}
"""

HEAD = ATTENTION + PART + TENSOR_CORES + PART + _TILES + PART

KERNELS = {
    # softmax(q kᵀ scale + mask) v, and of each query the logarithm of the sum of its exponentials.
    "tensor_attention": HEAD + r"""
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) tensor_attention(
    const T* q, const T* k, const T* v, const W* mask, const unsigned char* bits, T* o, A* logs,
    const Attention a)
{
    __shared__ uint4 memory[STAGES * PAIR / PIECE];
    T* const tiles = (T*)memory;
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    int plane;
    const int first = (a.tiles - 1 - row_of_blocks(a, a.tiles, plane)) * OWN;
    const int least_query = first + warp * BANDS * 16, own_query = least_query + g;
    const i64 b = plane / a.heads, h = plane % a.heads;
    k += b * a.k[0] + h / a.groups * a.k[1];
    v += b * a.v[0] + h / a.groups * a.v[1];
    mask += b * a.mask[0] + h * a.mask[1];
    const int seen = a.causal ? first + OWN + a.start : a.keys, end = seen < a.keys ? seen : a.keys;
    const T* const from = q + b * a.q[0] + h * a.q[1] + first * a.q[2];
    fetch<OWN>(tiles + (STAGES - 1) * PAIR, from, a.q[2], a.length - first, a.width);
    if (STAGES == 2) {
        fetch<TILE>(tiles, k, a.k[2], a.keys, a.width);
        fetch<TILE>(tiles + PAIR / 2, v, a.v[2], a.keys, a.value_width);
    }
    await_copies();
    __syncthreads();
    unsigned own[BANDS][CHUNKS][4];
    hold(own, tiles + (STAGES - 1) * PAIR);
    if (a.scale < 0)  // so that the largest product is the largest score
        for (auto& band : own)
            for (auto& chunk : band)
                for (auto& pair : chunk) pair ^= IS_HALF ? 0x80008000u : 0x80000000u;
    const float scale = fabsf(a.scale) * LOG2E;
    float out[BANDS][D / 8][4] = {}, top[BANDS][2], sum[BANDS][2] = {};
    for (auto& band : top) band[0] = band[1] = -infinite();
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
        float s[BANDS][TILE / 8][4] = {}, factor = scale;
        multiply<true>(s, own, nullptr, tile);
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
        for (int m = 0; m < BANDS; ++m) {
            float most[2] = {-infinite(), -infinite()}, shift[2], before[2];
#pragma unroll
            for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
                for (int i = 0; i < 4; ++i) most[i / 2] = fmaxf(most[i / 2], s[m][j][i]);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                most[i] = Largest()(top[m][i], of_four(most[i], Largest()) * factor);
                shift[i] = most[i] == -infinite() ? 0.0f : most[i];
                before[i] = exp2f(top[m][i] - shift[i]);
                top[m][i] = most[i];
                sum[m][i] *= before[i];
            }
#pragma unroll
            for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const float p = exp2f(s[m][j][i] * factor - shift[i / 2]);
                    sum[m][i / 2] += p;
                    s[m][j][i] = p * kept_or_one(a, bits, plane, own_query + m * 16 + i / 2 * 8,
                                                 start + j * 8 + t * 2 + i % 2);
                }
#pragma unroll
            for (int j = 0; j < D / 8; ++j)
#pragma unroll
                for (int i = 0; i < 4; ++i) out[m][j][i] *= before[i / 2];
        }
        add_rows(out, s, tile + PAIR / 2);
        tile = other;
    }
    o += b * a.o[0] + h * a.o[1];
#pragma unroll
    for (int m = 0; m < BANDS; ++m)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float total = of_four(sum[m][i], Sum());
            const int query = own_query + m * 16 + i * 8;
            if (query >= a.length) continue;
            const float factor = total == 0 ? 0.0f : 1 / total;  // a query that sees no key has 0
            save_row(o + query * a.o[2], out[m], i, factor, a.value_width);
            if (t == 0)
                logs[(i64)plane * a.length + query] =
                    total == 0 ? infinite() : top[m][i] * LN2 + logf(total);
        }
}
""",
}  # fmt: skip
NAMES = tuple(KERNELS)
SOURCE = code(
    KERNELS["tensor_attention"].replace(PART, "\n"), "bfloat16", None, 8,
    D=64, TILE=64, WARPS=8, BANDS=1, OTHERS=0, MASK=0, DROPPED=0, BFLOAT=1,
)  # fmt: skip
