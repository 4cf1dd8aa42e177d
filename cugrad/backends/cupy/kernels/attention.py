"""Kernels of attention, which never hold all scores: tile by tile, as in FlashAttention (Dao et
al., 2022, https://arxiv.org/abs/2205.14135). Products are of float32 or float64; those of half
precision are for tensor cores, see `tensor_cores.py`, where a device has them.

A block of 16 x 16 threads has BQ queries, or BK keys, and walks over the others; D is the width of
a head, rounded up, of which C numbers at a time are in shared memory. Threads read four of these at
a time. Rows there have four to spare, so that eight threads that read of different rows do so in
different banks.
"""

from __future__ import annotations

from . import PART, whole

__all__ = ["ATTENTION", "KERNELS", "NAMES", "SOURCE"]

ATTENTION = r"""
struct Attention {  // steps from batch to batch, head to head, row to row, in elements
    i64 q[3], k[3], v[3], o[3], g[3], mask[4], dq[3], dk[3], dv[3];
    int heads, groups, length, keys, width, value_width, causal, start, dropped, tiles;
    A scale, kept;
};
__device__ __forceinline__ A infinite() { return (A)__int_as_float(0x7F800000); }

// The score of a query and a key from their product; -infinity where the query does not see it.
__device__ __forceinline__ A score_of(
    const Attention& a, const W* mask, A product, int query, int key)
{
    if (query >= a.length || key >= a.keys || (a.causal && key > query + a.start))
        return -infinite();
    product *= a.scale;
    if constexpr (MASK != 0) {
        const W m = mask[query * a.mask[2] + key * a.mask[3]];
        if constexpr (MASK == 1) return m ? product : -infinite();
        return product + (A)m;
    }
    return product;
}

// What the weight of a query and a key is multiplied with: 0 where it is dropped.
__device__ __forceinline__ A kept_of(
    const Attention& a, const unsigned char* bits, i64 plane, int query, int key)
{
    if (!a.dropped || query >= a.length || key >= a.keys) return 1;
    const i64 at = (plane * a.length + query) * a.keys + key;
    return bits[at / 8] >> (7 - at % 8) & 1 ? a.kept : A(0);
}
"""

_TILES = r"""
constexpr int RQ = BQ / 16, RK = BK / 16, RD = D / 16, RC = C / 16, ROW = C + 4, PIECES = D / C;
constexpr int FOURS = RC < 4 ? RC : 4;  // neighbours of a row of C that a thread has

// Piece `part` of rows: C of their D numbers.
template <int N> __device__ __forceinline__ void fetch(
    A* to, const T* from, i64 step, int first, int count, int width, int part)
{
#pragma unroll
    for (int k = 0; k < C * N / 256; ++k) {
        const int r = (threadIdx.x + k * 256) / C, d = (threadIdx.x + k * 256) % C;
        const bool is_there = first + r < count && part * C + d < width;
        to[r * ROW + d] = is_there ? (A)from[(first + r) * step + part * C + d] : A(0);
    }
}

// N neighbours in shared memory, up to four at a time.
template <int N> __device__ __forceinline__ void read(A (&to)[N], const A* from)
{
    constexpr int FEW = N < 4 ? N : 4;
#pragma unroll
    for (int i = 0; i < N; i += FEW) {
        const auto few = *(const Pack<A, FEW>*)(from + i);
#pragma unroll
        for (int k = 0; k < FEW; ++k) to[i + k] = few.at[k];
    }
}

// Adds a thread's products of rows of `a`, NA in all, and of `b`, NB in all: its own of `a` follow
// one another, those of `b` are 16 apart.
template <int NA, int NB, int UNROLLED = 2> __device__ __forceinline__ void multiply(
    A (&out)[NA / 16][NB / 16], const A* a, const A* b, int ty, int tx)
{
#pragma unroll UNROLLED
    for (int d = 0; d < C; d += 4) {
        A x[NA / 16][4], y[NB / 16][4];
#pragma unroll
        for (int i = 0; i < NA / 16; ++i) read(x[i], a + (ty * (NA / 16) + i) * ROW + d);
#pragma unroll
        for (int j = 0; j < NB / 16; ++j) read(y[j], b + (tx + 16 * j) * ROW + d);
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
            for (int i = 0; i < NA / 16; ++i)
#pragma unroll
                for (int j = 0; j < NB / 16; ++j) out[i][j] += x[i][k] * y[j][k];
    }
}

// Of the numbers that a thread has of a row, the place of the j-th.
__device__ __forceinline__ int column_of(int tx, int j)
{
    return j / FOURS * 16 * FOURS + tx * FOURS + j % FOURS;
}

// out += weights @ rows, of piece `part`: of NA rows the sum over NB others, whose weights are
// (NB, NA).
template <int NA, int NB> __device__ __forceinline__ void add_rows(
    A (&out)[NA / 16][RD], int part, const A* weights, const A* rows, int ty, int tx)
{
#pragma unroll 4
    for (int c = 0; c < NB; ++c) {
        A x[NA / 16];
        read(x, weights + c * (NA + 4) + ty * (NA / 16));
#pragma unroll
        for (int j = 0; j < RC; j += FOURS) {
            A y[FOURS];
            read(y, rows + c * ROW + column_of(tx, j));
#pragma unroll
            for (int i = 0; i < NA / 16; ++i)
#pragma unroll
                for (int k = 0; k < FOURS; ++k) out[i][part * RC + j + k] += x[i] * y[k];
        }
    }
}

// A thread's weights of one of NB rows, for its own of NA: as `add_rows` takes them.
template <int NA> __device__ __forceinline__ void put(
    A* weights, const A (&x)[NA / 16], int row, int ty)
{
    constexpr int FEW = NA / 16 < 4 ? NA / 16 : 4;
    Pack<A, FEW> few;
#pragma unroll
    for (int i = 0; i < FEW; ++i) few.at[i] = x[i];
    *(Pack<A, FEW>*)(weights + row * (NA + 4) + ty * (NA / 16)) = few;
}

template <class Join> __device__ __forceinline__ A of_sixteen(A value, Join join)
{
    for (int d = 8; d > 0; d /= 2) value = join(value, __shfl_xor_sync(0xffffffffu, value, d));
    return value;
}
"""

KERNELS = {
    # softmax(q kᵀ scale + mask) v, and of each query the logarithm of the sum of its exponentials.
    "attention": ATTENTION + PART + _TILES + PART + r"""
extern "C" __global__ void __launch_bounds__(256) attention(
    const T* q, const T* k, const T* v, const W* mask, const unsigned char* bits, T* o, A* logs,
    const Attention a)
{
    alignas(16) __shared__ A queries[BQ * ROW], tile[BK * ROW], weights[BK * (BQ + 4)];
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const int first = (a.tiles - 1 - (int)(blockIdx.x % a.tiles)) * BQ;  // the longest go first
    const i64 plane = blockIdx.x / a.tiles, b = plane / a.heads, h = plane % a.heads;
    k += b * a.k[0] + h / a.groups * a.k[1];
    v += b * a.v[0] + h / a.groups * a.v[1];
    mask += b * a.mask[0] + h * a.mask[1];
    q += b * a.q[0] + h * a.q[1];
    if constexpr (PIECES == 1) fetch<BQ>(queries, q, a.q[2], first, a.length, a.width, 0);
    A out[RQ][RD] = {}, top[RQ], sum[RQ] = {};
    for (int i = 0; i < RQ; ++i) top[i] = -infinite();
    const int seen = a.causal ? first + BQ + a.start : a.keys;
    for (int start = 0; start < (seen < a.keys ? seen : a.keys); start += BK) {
        A s[RQ][RK] = {}, w[RK][RQ];
        for (int part = 0; part < PIECES; ++part) {
            __syncthreads();
            if constexpr (PIECES > 1)
                fetch<BQ>(queries, q, a.q[2], first, a.length, a.width, part);
            fetch<BK>(tile, k, a.k[2], start, a.keys, a.width, part);
            __syncthreads();
            multiply<BQ, BK>(s, queries, tile, ty, tx);
        }
#pragma unroll
        for (int i = 0; i < RQ; ++i) {
            const int query = first + ty * RQ + i;
            A most = top[i], part = 0;
#pragma unroll
            for (int j = 0; j < RK; ++j) {
                s[i][j] = score_of(a, mask, s[i][j], query, start + tx + 16 * j);
                most = Largest()(most, s[i][j]);
            }
            most = of_sixteen(most, Largest());
            const A before = top[i] == most ? A(1) : exp(top[i] - most);
            top[i] = most;
#pragma unroll
            for (int j = 0; j < RK; ++j) {
                const int key = start + tx + 16 * j;
                const A p = s[i][j] == -infinite() ? A(0) : exp(s[i][j] - most);
                part += p;
                w[j][i] = p * kept_of(a, bits, plane, query, key);
            }
            sum[i] = sum[i] * before + of_sixteen(part, Sum());
#pragma unroll
            for (int j = 0; j < RD; ++j) out[i][j] *= before;
        }
#pragma unroll
        for (int j = 0; j < RK; ++j) put<BQ>(weights, w[j], tx + 16 * j, ty);
#pragma unroll
        for (int part = 0; part < PIECES; ++part) {
            __syncthreads();
            fetch<BK>(tile, v, a.v[2], start, a.keys, a.value_width, part);
            __syncthreads();
            add_rows<BQ, BK>(out, part, weights, tile, ty, tx);
        }
    }
#pragma unroll
    for (int i = 0; i < RQ; ++i) {
        const int query = first + ty * RQ + i;
        if (query >= a.length) continue;
        T* const to = o + b * a.o[0] + h * a.o[1] + query * a.o[2];
#pragma unroll
        for (int j = 0; j < RD; ++j)  // a query that sees no key has 0
            if (column_of(tx, j) < a.value_width)
                to[column_of(tx, j)] = (T)(sum[i] == 0 ? A(0) : out[i][j] / sum[i]);
        if (tx == 0)
            logs[plane * a.length + query] = sum[i] == 0 ? infinite() : top[i] + log(sum[i]);
    }
}
""",
    # The gradient of the queries, and g · o of each of them.
    "attention_queries": ATTENTION + PART + _TILES + PART + r"""
extern "C" __global__ void __launch_bounds__(256) attention_queries(
    const T* g, const T* q, const T* k, const T* v, const W* mask, const unsigned char* bits,
    const T* o, const A* logs, T* dq, A* deltas, const Attention a)
{
    alignas(16) __shared__ A queries[BQ * ROW], slopes[BQ * ROW], tile[BK * ROW];
    alignas(16) __shared__ A weights[BK * (BQ + 4)];
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const int first = (a.tiles - 1 - (int)(blockIdx.x % a.tiles)) * BQ;
    const i64 plane = blockIdx.x / a.tiles, b = plane / a.heads, h = plane % a.heads;
    k += b * a.k[0] + h / a.groups * a.k[1];
    v += b * a.v[0] + h / a.groups * a.v[1];
    g += b * a.g[0] + h * a.g[1];
    o += b * a.o[0] + h * a.o[1];
    mask += b * a.mask[0] + h * a.mask[1];
    q += b * a.q[0] + h * a.q[1];
    if constexpr (PIECES == 1) {
        fetch<BQ>(queries, q, a.q[2], first, a.length, a.width, 0);
        fetch<BQ>(slopes, g, a.g[2], first, a.length, a.value_width, 0);
    }
    A out[RQ][RD] = {}, shift[RQ], delta[RQ] = {};
    for (int i = 0; i < RQ; ++i) {
        const int query = first + ty * RQ + i;
        const bool is_there = query < a.length;
        for (int d = tx; d < a.value_width; d += 16)
            if (is_there) delta[i] += (A)g[query * a.g[2] + d] * (A)o[query * a.o[2] + d];
        delta[i] = of_sixteen(delta[i], Sum());
        shift[i] = is_there ? logs[plane * a.length + query] : A(0);
        if (is_there && tx == 0) deltas[plane * a.length + query] = delta[i];
    }
    const int seen = a.causal ? first + BQ + a.start : a.keys;
    for (int start = 0; start < (seen < a.keys ? seen : a.keys); start += BK) {
        A s[RQ][RK] = {}, slope[RQ][RK] = {};
        for (int part = 0; part < PIECES; ++part) {
            __syncthreads();
            if constexpr (PIECES > 1) {
                fetch<BQ>(queries, q, a.q[2], first, a.length, a.width, part);
                fetch<BQ>(slopes, g, a.g[2], first, a.length, a.value_width, part);
            }
            fetch<BK>(tile, v, a.v[2], start, a.keys, a.value_width, part);
            __syncthreads();
            multiply<BQ, BK>(slope, slopes, tile, ty, tx);
            __syncthreads();
            fetch<BK>(tile, k, a.k[2], start, a.keys, a.width, part);
            __syncthreads();
            multiply<BQ, BK>(s, queries, tile, ty, tx);
        }
#pragma unroll
        for (int j = 0; j < RK; ++j) {
            A w[RQ];
#pragma unroll
            for (int i = 0; i < RQ; ++i) {
                const int query = first + ty * RQ + i, key = start + tx + 16 * j;
                const A score = score_of(a, mask, s[i][j], query, key);
                const A p = score == -infinite() ? A(0) : exp(score - shift[i]);
                const A kept = kept_of(a, bits, plane, query, key);
                w[i] = p * (slope[i][j] * kept - delta[i]) * a.scale;
            }
            put<BQ>(weights, w, tx + 16 * j, ty);
        }
        if constexpr (PIECES == 1) {
            __syncthreads();
            add_rows<BQ, BK>(out, 0, weights, tile, ty, tx);
        } else {
#pragma unroll
            for (int part = 0; part < PIECES; ++part) {
                __syncthreads();
                fetch<BK>(tile, k, a.k[2], start, a.keys, a.width, part);
                __syncthreads();
                add_rows<BQ, BK>(out, part, weights, tile, ty, tx);
            }
        }
    }
    dq += b * a.dq[0] + h * a.dq[1];
#pragma unroll
    for (int i = 0; i < RQ; ++i) {
        const int query = first + ty * RQ + i;
#pragma unroll
        for (int j = 0; j < RD; ++j)
            if (query < a.length && column_of(tx, j) < a.width)
                dq[query * a.dq[2] + column_of(tx, j)] = (T)out[i][j];
    }
}
""",
    # The gradients of keys and values, of all heads of queries that have them.
    "attention_keys": ATTENTION + PART + _TILES + PART + r"""
extern "C" __global__ void __launch_bounds__(256) attention_keys(
    const T* g, const T* q, const T* k, const T* v, const W* mask, const unsigned char* bits,
    const A* logs, const A* deltas, T* dk, T* dv, const Attention a)
{
    alignas(16) __shared__ A keys[BK * ROW], values[BK * ROW], queries[BQ * ROW];
    alignas(16) __shared__ A slopes[BQ * ROW], weights[BQ * (BK + 4)], bends[BQ * (BK + 4)];
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16, count = a.heads / a.groups;
    const int tiles = (a.keys + BK - 1) / BK, first = (int)(blockIdx.x % tiles) * BK;
    const i64 own = blockIdx.x / tiles, b = own / count, shared = own % count;
    k += b * a.k[0] + shared * a.k[1];
    v += b * a.v[0] + shared * a.v[1];
    if constexpr (PIECES == 1) {
        fetch<BK>(keys, k, a.k[2], first, a.keys, a.width, 0);
        fetch<BK>(values, v, a.v[2], first, a.keys, a.value_width, 0);
    }
    A out[RK][RD] = {}, turned[RK][RD] = {};
    const int least = a.causal && first > a.start ? (first - a.start) / BQ * BQ : 0;
    for (int head = 0; head < a.groups; ++head) {
        const i64 h = shared * a.groups + head, plane = b * a.heads + h;
        const T* const from = q + b * a.q[0] + h * a.q[1];
        const T* const slope = g + b * a.g[0] + h * a.g[1];
        const W* const seen = mask + b * a.mask[0] + h * a.mask[1];
        for (int start = least; start < a.length; start += BQ) {
            A s[RK][RQ] = {}, u[RK][RQ] = {};
            for (int part = 0; part < PIECES; ++part) {
                __syncthreads();
                if constexpr (PIECES > 1) {
                    fetch<BK>(keys, k, a.k[2], first, a.keys, a.width, part);
                    fetch<BK>(values, v, a.v[2], first, a.keys, a.value_width, part);
                }
                fetch<BQ>(queries, from, a.q[2], start, a.length, a.width, part);
                fetch<BQ>(slopes, slope, a.g[2], start, a.length, a.value_width, part);
                __syncthreads();
                multiply<BK, BQ, 1>(s, keys, queries, ty, tx);  // registers are few
                multiply<BK, BQ, 1>(u, values, slopes, ty, tx);
            }
#pragma unroll
            for (int j = 0; j < RQ; ++j) {
                A w[RK], bend[RK];
#pragma unroll
                for (int i = 0; i < RK; ++i) {
                    const int key = first + ty * RK + i, query = start + tx + 16 * j;
                    const i64 at = plane * a.length + query;
                    const A score = score_of(a, seen, s[i][j], query, key);
                    A p = 0, delta = 0;
                    if (score != -infinite()) p = exp(score - logs[at]), delta = deltas[at];
                    const A kept = kept_of(a, bits, plane, query, key);
                    w[i] = p * kept;
                    bend[i] = p * (u[i][j] * kept - delta) * a.scale;
                }
                put<BK>(weights, w, tx + 16 * j, ty);
                put<BK>(bends, bend, tx + 16 * j, ty);
            }
#pragma unroll
            for (int part = 0; part < PIECES; ++part) {
                __syncthreads();
                if constexpr (PIECES > 1) {
                    fetch<BQ>(queries, from, a.q[2], start, a.length, a.width, part);
                    fetch<BQ>(slopes, slope, a.g[2], start, a.length, a.value_width, part);
                    __syncthreads();
                }
                add_rows<BK, BQ>(turned, part, weights, slopes, ty, tx);
                add_rows<BK, BQ>(out, part, bends, queries, ty, tx);
            }
        }
    }
    dk += b * a.dk[0] + shared * a.dk[1];
    dv += b * a.dv[0] + shared * a.dv[1];
#pragma unroll
    for (int i = 0; i < RK; ++i) {
        const int key = first + ty * RK + i;
        if (key >= a.keys) continue;
#pragma unroll
        for (int j = 0; j < RD; ++j) {
            const int d = column_of(tx, j);
            if (d < a.width) dk[key * a.dk[2] + d] = (T)out[i][j];
            if (d < a.value_width) dv[key * a.dv[2] + d] = (T)turned[i][j];
        }
    }
}
""",
    # The gradient of a mask that is added to scores. Steps of it are those of `dq`, and from key to
    # key the first of `dk`: along a dim with step 0 it is summed. There are `tiles` batches.
    "attention_mask": ATTENTION + PART + _TILES + PART + r"""
extern "C" __global__ void __launch_bounds__(256, 2) attention_mask(
    const T* g, const T* q, const T* k, const T* v, const W* mask, const unsigned char* bits,
    const T* o, const A* logs, W* slope, const Attention a)
{
    alignas(16) __shared__ A queries[BQ * ROW], slopes[BQ * ROW], keys[BK * ROW], values[BK * ROW];
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const bool each_row = a.dq[2] != 0, each_key = a.dk[0] != 0;
    const int rows = each_row ? (a.length + BQ - 1) / BQ : 1;
    const int columns = each_key ? (a.keys + BK - 1) / BK : 1;
    const int heads = a.dq[1] != 0 ? a.heads : 1;
    const i64 own = blockIdx.x / columns / rows;
    const int column = (int)(blockIdx.x % columns), row = (int)(blockIdx.x / columns % rows);
    const i64 own_batch = own / heads, own_head = own % heads;
    A sum[RQ][RK] = {};
    for (i64 b = own_batch; b < (a.dq[0] != 0 ? own_batch + 1 : a.tiles); ++b)
        for (i64 h = own_head; h < (a.dq[1] != 0 ? own_head + 1 : a.heads); ++h) {
            const i64 plane = b * a.heads + h, shared = h / a.groups;
            const T* const from = q + b * a.q[0] + h * a.q[1];
            const T* const above = g + b * a.g[0] + h * a.g[1];
            const T* const result = o + b * a.o[0] + h * a.o[1];
            const T* const others = k + b * a.k[0] + shared * a.k[1];
            const T* const read = v + b * a.v[0] + shared * a.v[1];
            const W* const seen = mask + b * a.mask[0] + h * a.mask[1];
            for (int first = row * BQ; first < (each_row ? row * BQ + 1 : a.length); first += BQ) {
                A shift[RQ], delta[RQ] = {};
                for (int i = 0; i < RQ; ++i) {
                    const int query = first + ty * RQ + i;
                    const bool is_there = query < a.length;
                    const T *const x = above + query * a.g[2], *const y = result + query * a.o[2];
                    for (int d = tx; d < a.value_width; d += 16)
                        if (is_there) delta[i] += (A)x[d] * (A)y[d];
                    delta[i] = of_sixteen(delta[i], Sum());
                    shift[i] = is_there ? logs[plane * a.length + query] : A(0);
                }
                const int end = each_key ? column * BK + 1 : a.keys;
                for (int start = column * BK; start < end; start += BK) {
                    A s[RQ][RK] = {}, u[RQ][RK] = {};
                    for (int part = 0; part < PIECES; ++part) {
                        __syncthreads();
                        fetch<BQ>(queries, from, a.q[2], first, a.length, a.width, part);
                        fetch<BQ>(slopes, above, a.g[2], first, a.length, a.value_width, part);
                        fetch<BK>(keys, others, a.k[2], start, a.keys, a.width, part);
                        fetch<BK>(values, read, a.v[2], start, a.keys, a.value_width, part);
                        __syncthreads();
                        multiply<BQ, BK>(s, queries, keys, ty, tx);
                        multiply<BQ, BK>(u, slopes, values, ty, tx);
                    }
#pragma unroll
                    for (int i = 0; i < RQ; ++i)
#pragma unroll
                        for (int j = 0; j < RK; ++j) {
                            const int query = first + ty * RQ + i, key = start + tx + 16 * j;
                            const A score = score_of(a, seen, s[i][j], query, key);
                            const A p = score == -infinite() ? A(0) : exp(score - shift[i]);
                            const A kept = kept_of(a, bits, plane, query, key);
                            sum[i][j] += p * (u[i][j] * kept - delta[i]);
                        }
                }
            }
        }
    if (!each_key)
#pragma unroll
        for (int i = 0; i < RQ; ++i) {
#pragma unroll
            for (int j = 1; j < RK; ++j) sum[i][0] += sum[i][j];
            sum[i][0] = of_sixteen(sum[i][0], Sum());
        }
    if (!each_row) {
        __syncthreads();
#pragma unroll
        for (int j = 0; j < RK; ++j) {
#pragma unroll
            for (int i = 1; i < RQ; ++i) sum[0][j] += sum[i][j];
            queries[ty * BK + tx + 16 * j] = sum[0][j];
        }
        __syncthreads();
        if (ty != 0) return;
#pragma unroll
        for (int j = 0; j < RK; ++j)
            for (int t = 1; t < 16; ++t) sum[0][j] += queries[t * BK + tx + 16 * j];
    }
    slope += own_batch * a.dq[0] + own_head * a.dq[1];
#pragma unroll
    for (int i = 0; i < RQ; ++i)
#pragma unroll
        for (int j = 0; j < RK; ++j) {
            const int query = row * BQ + ty * RQ + i, key = column * BK + tx + 16 * j;
            if (each_row ? query >= a.length : i > 0) continue;
            if (each_key ? key >= a.keys : j > 0 || tx > 0) continue;
            slope[query * a.dq[2] + key * a.dk[0]] = (W)sum[i][j];
        }
}
""",
}  # fmt: skip
NAMES = tuple(KERNELS)
SOURCE = whole(KERNELS, D=128, C=64, BQ=16, BK=16, MASK=0)
