"""Kernels of the codecs of saved tensors: each does in one pass what `memory/codecs.py` defines.

They take float32, a thread for each element: `length` elements make a row, which has one scale.
"""

from __future__ import annotations

__all__ = ["NAMES", "SOURCE"]

_DEVICE = r"""
typedef unsigned int u32;
typedef unsigned long long u64;

union Word { float f; u32 u; };
__device__ __forceinline__ u32 bits_of(float x) { Word v; v.f = x; return v.u; }
__device__ __forceinline__ float float_of(u32 x) { Word v; v.u = x; return v.f; }

__device__ __forceinline__ int least(int a, int b) { return a < b ? a : b; }
__device__ __forceinline__ int most(int a, int b) { return a > b ? a : b; }

// x / 2^shift, rounded half to even; shift from 1 to 26
__device__ __forceinline__ u32 rounded(u32 x, int shift)
{
    return (x + ((1u << (shift - 1)) - 1) + ((x >> shift) & 1)) >> shift;
}

__device__ __forceinline__ unsigned short bf16_code(float x)
{
    u32 bits = bits_of(x), was = bits & 0x7FFFFFFFu, code;
    if (was > 0x7F800000u) code = 0x7FC0u;
    else if (was == 0x7F800000u) code = 0x7F80u;
    else code = least(rounded(was, 16), 0x7F7F);
    return (unsigned short)(code | (bits >> 16 & 0x8000u));
}

__device__ __forceinline__ unsigned short fp16_code(float x)
{
    u32 bits = bits_of(x), was = bits & 0x7FFFFFFFu, code;
    int exponent = was >> 23;
    if (was > 0x7F800000u) code = 0x7E00u;
    else if (was == 0x7F800000u) code = 0x7C00u;
    else if (was > 0x477FE000u) code = 0x7BFFu;                       // beyond 65504
    else if (exponent >= 113) code = rounded(was - 0x38000000u, 13);  // from 2^-14
    else code = rounded(was & 0x7FFFFFu | 0x800000u, least(126 - exponent, 26));
    return (unsigned short)(code | (bits >> 16 & 0x8000u));
}

// The power of two for a row whose largest magnitude has these bits: it comes to at most 448.
__device__ __forceinline__ int fp8_power(int top)
{
    return most((top >> 23) - 8 + ((top & 0x7FFFFF) > 0x680000), 7) - 127;
}

__device__ __forceinline__ unsigned char fp8_code(float x, int power)
{
    u32 bits = bits_of(x), was = bits & 0x7FFFFFFFu;
    int exponent = was >> 23, target = most(exponent, 1) - power - 120;
    u32 mantissa = was & 0x7FFFFFu | (exponent > 0 ? 0x800000u : 0u);
    u32 code = rounded(mantissa, 20 + least(most(1 - target, 0), 6)) + ((most(target, 1) - 1) << 3);
    return (unsigned char)((was < 0x7F800000u ? code : 0x7Fu) | (bits >> 31 << 7));
}

__device__ __forceinline__ float fp8_value(unsigned char code, int power)
{
    int exponent = code >> 3 & 15, mantissa = code & 7 | (exponent > 0 ? 8 : 0);
    if ((code & 0x7F) == 0x7F) return float_of(0x7FC00000u);
    return ldexpf(code > 0x7F ? -(float)mantissa : (float)mantissa, most(exponent, 1) - 10 + power);
}

// A 127th of the largest magnitude, rounded up to 17 bits.
__device__ __forceinline__ float int8_scale(int top)
{
    float scale = float_of(top) / 127.0f;
    scale = scale > 1.17549435e-38f ? scale : 1.17549435e-38f;
    return float_of((bits_of(scale) + 0x7Fu) & ~0x7Fu);
}

__device__ __forceinline__ signed char int8_code(float x, float scale)
{
    if ((bits_of(x) & 0x7FFFFFFFu) >= 0x7F800000u) return -128;
    return (signed char)fminf(fmaxf(rintf(x / scale), -127.0f), 127.0f);
}

// nan stays, and what was rounded beyond the dtype's largest is that
__device__ __forceinline__ float within(float x, float largest)
{
    return x < -largest ? -largest : x > largest ? largest : x;
}
"""


def _kernel(name: str, arguments: str, body: str) -> str:
    """A kernel with `body` for each i below n."""
    return f"""
extern "C" __global__ void codec_{name}({arguments}, u64 n)
{{
    u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {{
        {body}
    }}
}}
"""


_KERNELS = {
    "bf16_encode": ("const float* x, unsigned short* code", "code[i] = bf16_code(x[i]);"),
    "fp16_encode": ("const float* x, unsigned short* code", "code[i] = fp16_code(x[i]);"),
    "bf16_decode": ("const unsigned short* code, float* x",
                    "x[i] = float_of((u32)code[i] << 16);"),
    "magnitudes": ("const float* x, int* bits",
                   "u32 b = bits_of(x[i]) & 0x7FFFFFFFu; bits[i] = b < 0x7F800000u ? b : 0;"),
    "fp8_encode": (
        "const float* x, const int* top, unsigned char* code, short* power, int length",
        "int p = fp8_power(top[i / length]); code[i] = fp8_code(x[i], p);"
        " if (i % length == 0) power[i / length] = (short)p;",
    ),
    "fp8_decode": (
        "const unsigned char* code, const short* power, float* x, int length, float largest",
        "x[i] = within(fp8_value(code[i], power[i / length]), largest);",
    ),
    "int8_encode": (
        "const float* x, const int* top, signed char* code, float* scale, int length",
        "float s = int8_scale(top[i / length]); code[i] = int8_code(x[i], s);"
        " if (i % length == 0) scale[i / length] = s;",
    ),
    "int8_decode": (
        "const signed char* code, const float* scale, float* x, int length, float largest",
        "x[i] = code[i] == -128 ? float_of(0x7FC00000u)"
        " : within((float)code[i] * scale[i / length], largest);",
    ),
}  # fmt: skip

NAMES = tuple(f"codec_{name}" for name in _KERNELS)
SOURCE = _DEVICE + "".join(_kernel(name, *parts) for name, parts in _KERNELS.items())
