"""Philox4x32-10, the counter-based random generator, and the kernels that fill arrays from it.

A number depends on the seed and its position alone, never on the launch: block i of four words is
philox(counter = offset + i, key = seed). Constants and rounds: Salmon et al., "Parallel random
numbers: as easy as 1, 2, 3", SC 2011, doi:10.1145/2063384.2063405.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["DEVICE", "LAWS", "NAMES", "SOURCE", "Law", "kernel"]

# The device functions; other sources may begin with them.
DEVICE = r"""
typedef unsigned int u32;
typedef unsigned long long u64;

struct Words { u32 x, y, z, w; };

__device__ __forceinline__ Words philox(Words c, u32 k0, u32 k1)
{
    for (int round = 0; round < 10; ++round) {
        u32 high0 = __umulhi(0xD2511F53u, c.x), low0 = 0xD2511F53u * c.x;
        u32 high1 = __umulhi(0xCD9E8D57u, c.z), low1 = 0xCD9E8D57u * c.z;
        c.x = high1 ^ c.y ^ k0;
        c.y = low1;
        c.z = high0 ^ c.w ^ k1;
        c.w = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

__device__ __forceinline__ Words philox_block(u64 seed, u64 position)
{
    Words counter = {(u32)position, (u32)(position >> 32), 0u, 0u};
    return philox(counter, (u32)seed, (u32)(seed >> 32));
}

// Where a draw begins that stands in a graph: `place`, if not 0, is the address of the seed and of
// the position that `offset` is counted from.
__device__ __forceinline__ void begin(u64 place, u64* seed, u64* offset)
{
    if (place == 0) return;
    *seed = ((const u64*)place)[0];
    *offset += ((const u64*)place)[1];
}

// [0, 1) with the top `bits` bits, so that the result is exact in a type with that much mantissa
__device__ __forceinline__ float unit_float(u32 word, int bits)
{
    return (float)(word >> (32 - bits)) * (1.0f / (float)(1u << bits));
}

// [0, 1) in steps of 2^-53
__device__ __forceinline__ double unit_double(u32 high, u32 low)
{
    return ((double)(high >> 5) * 67108864.0 + (double)(low >> 6)) * (1.0 / 9007199254740992.0);
}

// Box-Muller: two words to two independent standard normals. The radius is taken from (0, 1].
__device__ __forceinline__ void normal_floats(u32 a, u32 b, float* first, float* second)
{
    float u = (float)a * 2.3283064365386963e-10f + 1.1641532182693481e-10f;  // 2^-32, 2^-33
    float radius = sqrtf(-2.0f * logf(u)), sine, cosine;
    sincospif((float)(b >> 8) * 1.1920928955078125e-07f, &sine, &cosine);    // pi * [0, 2): 2^-23
    *first = radius * cosine;
    *second = radius * sine;
}

__device__ __forceinline__ void normal_doubles(Words w, double* first, double* second)
{
    double radius = sqrt(-2.0 * log(1.0 - unit_double(w.x, w.y))), sine, cosine;
    sincospi(2.0 * unit_double(w.z, w.w), &sine, &cosine);
    *first = radius * cosine;
    *second = radius * sine;
}

// [0, range) by multiplication; the bias is below range / 2^64. A range of 0 means all 2^64 values.
__device__ __forceinline__ u64 below(u64 word, u64 range)
{
    return range ? __umul64hi(word, range) : word;
}
"""

_EACH_BLOCK = """
    begin(place, &seed, &offset);
    u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i * PER_BLOCK < n; i += stride) {
        Words w = philox_block(seed, offset + i);
"""


class Law(NamedTuple):
    """How numbers are made of a block of four words: `per_block` values of a C type, by name `v`.

    `told` are the parameters of a kernel that `body` reads.
    """

    element: str
    per_block: int
    body: str
    told: str = ""


LAWS = {
    "uniform_float": Law(
        "float", 4,
        "v[0] = unit_float(w.x, bits); v[1] = unit_float(w.y, bits);\n"
        "        v[2] = unit_float(w.z, bits); v[3] = unit_float(w.w, bits);",
        ", int bits",
    ),
    "uniform_double": Law(
        "double", 2, "v[0] = unit_double(w.x, w.y); v[1] = unit_double(w.z, w.w);"
    ),
    "normal_float": Law(
        "float", 4, "normal_floats(w.x, w.y, v, v + 1); normal_floats(w.z, w.w, v + 2, v + 3);"
    ),
    "normal_double": Law("double", 2, "normal_doubles(w, v, v + 1);"),
    "integers": Law(
        "long long", 2,
        "v[0] = (long long)((u64)low + below((u64)w.y << 32 | w.x, range));\n"
        "        v[1] = (long long)((u64)low + below((u64)w.w << 32 | w.z, range));",
        ", long long low, u64 range",
    ),
}  # fmt: skip


def kernel(
    name: str, law: Law, element: str, told: str = "", lines: Sequence[str] = (),
    value: str = "v[j]",
) -> str:  # fmt: skip
    """A kernel that fills `out[0:n]` with what is computed of numbers of a law: `value`, behind
    `lines`, in which v[j] is the number for the place `at`. `told` are more parameters.
    """
    per_block = law.per_block
    loop = _EACH_BLOCK.replace("PER_BLOCK", str(per_block))
    statements = "".join(f"            {line}\n" for line in lines)
    return f"""
extern "C" __global__ void {name}(
    {element}* out, u64 n, u64 seed, u64 offset, u64 place{law.told}{told})
{{{loop}        {law.element} v[{per_block}];
        {law.body}
        for (int j = 0; j < {per_block}; ++j) {{
            const u64 at = i * {per_block} + j;
            if (at >= n) break;
{statements}            out[at] = {value};
        }}
    }}
}}
"""


NAMES = (*[f"philox_{name}" for name in LAWS], "philox_bits", "philox_place")

SOURCE = (
    DEVICE
    + "".join(kernel(f"philox_{name}", law, law.element) for name, law in LAWS.items())
    # Whether the numbers of philox_uniform_float are below p, eight to a byte, the first in the top
    # bit: n bytes, of `count` numbers.
    + """
extern "C" __global__ void philox_bits(
    unsigned char* out, u64 n, u64 seed, u64 offset, u64 place, u64 count, float p)
{
    begin(place, &seed, &offset);
    u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        unsigned char byte = 0;
        for (int half = 0; half < 2; ++half) {
            Words w = philox_block(seed, offset + 2 * i + half);
            u32 words[4] = {w.x, w.y, w.z, w.w};
            for (int j = 0; j < 4; ++j)
                if (i * 8 + 4 * half + j < count && unit_float(words[j], 24) < p)
                    byte |= 128 >> (4 * half + j);
        }
        out[i] = byte;
    }
}

extern "C" __global__ void philox_place(u64* place, u64 seed, u64 offset)
{
    if (blockIdx.x == 0 && threadIdx.x == 0) place[0] = seed, place[1] = offset;
}
"""
)  # fmt: skip
