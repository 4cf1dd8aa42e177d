"""Kernels that reduce what goes to one place, named by indices.

Of products and extrema half precision is reduced in float32 and small integers in `int`: both are
what `S` is. nan has one bit pattern in `S`, so that floats are compared as the integers that their
bits are, by one atomic.
"""

from __future__ import annotations

from .. import PART, whole
from .sums import NAMED

__all__ = ["KERNELS", "NAMES", "SOURCE"]

_REDUCED = r"""
template <int SMALL> struct Reduced { typedef A S; };  // HOW: 0 multiplies, 1 and 2 are extrema
template <> struct Reduced<1> { typedef int S; };
typedef Reduced<NARROW>::S S;
typedef unsigned long long u64;

__device__ __forceinline__ int bits_of(float v) { return __float_as_int(v); }
__device__ __forceinline__ i64 bits_of(double v) { return __double_as_longlong(v); }
__device__ __forceinline__ int bits_of(int v) { return v; }
__device__ __forceinline__ i64 bits_of(i64 v) { return v; }
__device__ __forceinline__ void value_of(int bits, float& v) { v = __int_as_float(bits); }
__device__ __forceinline__ void value_of(i64 bits, double& v) { v = __longlong_as_double(bits); }
__device__ __forceinline__ void value_of(int bits, int& v) { v = bits; }
__device__ __forceinline__ void value_of(i64 bits, i64& v) { v = bits; }

// A number as it is kept: nan is beyond all others on the side that is looked for.
__device__ __forceinline__ float known(float v)
{
    return v == v ? v : __int_as_float(HOW == 2 ? -1 : 0x7fffffff);
}
__device__ __forceinline__ double known(double v)
{
    return v == v ? v : __longlong_as_double(HOW == 2 ? -1 : 0x7fffffffffffffff);
}
__device__ __forceinline__ int known(int v) { return v; }
__device__ __forceinline__ i64 known(i64 v) { return v; }

__device__ __forceinline__ int swapped(int* p, int was, int is) { return atomicCAS(p, was, is); }
__device__ __forceinline__ i64 swapped(i64* p, i64 was, i64 is)
{
    return (i64)atomicCAS((u64*)p, (u64)was, (u64)is);
}
__device__ __forceinline__ float product(float a, float b) { return a * b; }
__device__ __forceinline__ double product(double a, double b) { return a * b; }
__device__ __forceinline__ int product(int a, int b) { return (int)((unsigned)a * (unsigned)b); }
__device__ __forceinline__ i64 product(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }

template <class E, class Bits> __device__ __forceinline__ void multiply(E* p, E v, Bits was)
{
    for (;;) {  // `was` is what is believed to be there
        E value;
        value_of(was, value);
        const Bits there = swapped((Bits*)p, was, bits_of(product(value, v)));
        if (there == was) return;
        was = there;
    }
}
__device__ __forceinline__ void larger(int* p, int v) { atomicMax(p, v); }
__device__ __forceinline__ void larger(i64* p, i64 v) { atomicMax(p, v); }
__device__ __forceinline__ void smaller(int* p, int v) { atomicMin(p, v); }
__device__ __forceinline__ void smaller(i64* p, i64 v) { atomicMin(p, v); }
// Of the bits of negative floats, as unsigned integers, the largest is the smallest float.
__device__ __forceinline__ void raise(int* p, int v) { atomicMax((unsigned*)p, (unsigned)v); }
__device__ __forceinline__ void raise(i64* p, i64 v) { atomicMax((u64*)p, (u64)v); }
__device__ __forceinline__ void lower(int* p, int v) { atomicMin((unsigned*)p, (unsigned)v); }
__device__ __forceinline__ void lower(i64* p, i64 v) { atomicMin((u64*)p, (u64)v); }

template <class E, class Bits> __device__ __forceinline__ void meet(E* p, E v, Bits bits)
{
    Bits* at = (Bits*)p;
    if (HOW == 0) return multiply(p, v, bits_of(E(1)));
    const bool turned = E(0.5) != E(0) && bits < 0;  // a negative float
    if (HOW == 1) turned ? lower(at, bits) : larger(at, bits);
    else turned ? raise(at, bits) : smaller(at, bits);
}
"""

KERNELS = {
    # x as it is kept while it is reduced.
    "begin_reduction": _REDUCED + PART + r"""
extern "C" __global__ void __launch_bounds__(256) begin_reduction(const T* x, S* y, i64 size)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) y[i] = known((S)(A)x[i]);
}
""",
    # What leaves others as they are, where indices say: y is (outer, n, wide).
    "begin_neutral": _REDUCED + PART + NAMED + PART + r"""
extern "C" __global__ void __launch_bounds__(256) begin_neutral(
    const W* indices, S* y, i64 neutral, i64 size, i64 n, i64 count, i64 inner, i64 wide,
    i64 step0, i64 step1, i64 step2)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const i64 to = named_by(indices, i, n, count, inner, wide, step0, step1, step2);
    if (sizeof(S) == 4) atomicExch((int*)y + to, (int)neutral);
    else atomicExch((u64*)y + to, (u64)neutral);
}
""",
    # y, (outer, n, wide), meets src, (outer, count, inner), where indices say, in any order.
    "reduce_by_index": _REDUCED + PART + NAMED + PART + r"""
extern "C" __global__ void __launch_bounds__(256) reduce_by_index(
    const T* src, const W* indices, S* y, i64 size, i64 n, i64 count, i64 inner, i64 wide,
    i64 step0, i64 step1, i64 step2)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const S v = known((S)(A)src[i]);
    meet(y + named_by(indices, i, n, count, inner, wide, step0, step1, step2), v, bits_of(v));
}
""",
    # What was kept, as it is answered.
    "end_reduction": _REDUCED + PART + r"""
extern "C" __global__ void __launch_bounds__(256) end_reduction(const S* x, T* y, i64 size)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) y[i] = (T)x[i];
}
""",
    # For each place twice the number of src that are what has become of it; and 1 where an index
    # leads there, if `alone`: what was there takes no part then.
    "count_extrema": NAMED + PART + r"""
extern "C" __global__ void __launch_bounds__(256) count_extrema(
    const T* src, const T* result, const W* indices, int* counts, int alone, i64 size, i64 n,
    i64 count, i64 inner, i64 wide, i64 step0, i64 step1, i64 step2)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const i64 to = named_by(indices, i, n, count, inner, wide, step0, step1, step2);
    if ((A)src[i] == (A)result[to]) atomicAdd(counts + to, 2);
    if (alone) atomicOr(counts + to, 1);
}
""",
    # Gradients of extrema: each of those that are one has its share of g.
    "share_extrema": NAMED + PART + r"""
extern "C" __global__ void __launch_bounds__(256) share_extrema(
    const T* g, const T* x, const T* src, const T* result, const W* indices, const int* counts,
    T* of_x, T* of_src, i64 size_x, i64 size, i64 n, i64 count, i64 inner, i64 wide,
    i64 step0, i64 step1, i64 step2)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, j = i - size_x;
    if (j >= size) return;
    const i64 to = j < 0 ? i : named_by(indices, j, n, count, inner, wide, step0, step1, step2);
    const int counted = counts[to];
    const bool top = (A)x[to] == (A)result[to] && counted % 2 == 0;
    const bool mine = j < 0 ? top : (A)src[j] == (A)result[to];
    const A share = mine ? A(1) / (A)(counted / 2 + top) : A(0);
    (j < 0 ? of_x[i] : of_src[j]) = (T)((A)g[to] * share);
}
""",
    # Where products have to begin: 1, and no zero was met.
    "begin_products": r"""
extern "C" __global__ void __launch_bounds__(256) begin_products(A* products, int* zeros, i64 size)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) products[i] = 1, zeros[i] = 0;
}
""",
    # The products of those of src that are not 0, and twice the number of the others; `alone` as
    # above.
    "multiply_others": _REDUCED + PART + NAMED + PART + r"""
extern "C" __global__ void __launch_bounds__(256) multiply_others(
    const T* src, const W* indices, A* products, int* zeros, int alone, i64 size, i64 n, i64 count,
    i64 inner, i64 wide, i64 step0, i64 step1, i64 step2)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const i64 to = named_by(indices, i, n, count, inner, wide, step0, step1, step2);
    const A v = (A)src[i];
    if (v == 0) atomicAdd(zeros + to, 2);
    else multiply(products + to, v, bits_of(A(1)));
    if (alone) atomicOr(zeros + to, 1);
}
""",
    # Gradients of products: g times what all the others are.
    "share_products": NAMED + PART + r"""
extern "C" __global__ void __launch_bounds__(256) share_products(
    const T* g, const T* x, const T* src, const T* result, const W* indices, const A* products,
    const int* zeros, T* of_x, T* of_src, i64 size_x, i64 size, i64 n, i64 count, i64 inner,
    i64 wide, i64 step0, i64 step1, i64 step2)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, j = i - size_x;
    if (j >= size) return;
    const i64 to = j < 0 ? i : named_by(indices, j, n, count, inner, wide, step0, step1, step2);
    const bool alone = zeros[to] % 2 != 0;
    const int none = zeros[to] / 2;
    if (j < 0) {
        const A others = alone ? A(0) : products[to] * (none == 0 ? A(1) : A(0));
        of_x[i] = (T)((A)g[to] * others);
        return;
    }
    const A v = (A)src[j];
    A others;
    if (v == 0 && none == 1) others = (alone ? A(1) : (A)x[to]) * products[to];
    else others = (A)result[to] / (v == 0 ? A(1) : v);
    of_src[j] = (T)((A)g[to] * others);
}
""",
}  # fmt: skip
NAMES = tuple(KERNELS)
SOURCE = whole(KERNELS, HOW=1, NARROW=0)
