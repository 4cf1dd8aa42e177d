"""CUDA sources, one module each: `SOURCE` is the text, `NAMES` are the kernels in it.

A module here holds strings and imports nothing of CuPy, so tests compile every source without a
GPU. Device functions are also valid C++ for the host, so tests run them, too. Begin with
`codecs.py`. Only `cugrad/backends/cupy` imports from here.

Kernels of rows, which `cugrad/backends/cupy/written` starts, are written for elements `T`, weights
`W` and sums in `A`; a thread reads `PACK` neighbours at a time. `code` writes one for some dtypes.
"""

from __future__ import annotations

__all__ = ["PART", "code", "whole"]

PART = "\n//--\n"  # between what a kernel begins with and the kernel

STORED = {
    "float16": "__half", "bfloat16": "__nv_bfloat16", "float32": "float", "float64": "double",
    "int32": "int", "int64": "long long", "uint8": "unsigned char", "uint16": "unsigned short",
    "int8": "signed char", "int16": "short", "bool": "bool",
}  # fmt: skip
ACCUMULATED = {
    **STORED, "float16": "float", "bfloat16": "float",
}  # fmt: skip
HEADERS = {"float16": "#include <cuda_fp16.h>\n", "bfloat16": "#include <cuda_bf16.h>\n"}

HEAD = """\
typedef long long i64;

template <class E, int N>
struct alignas(sizeof(E) * N > 16 ? 16 : sizeof(E) * N) Pack { E at[N]; };

template <class E> __device__ __forceinline__ Pack<E, PACK> load(const E* from)
{
    return *(const Pack<E, PACK>*)from;
}
template <class E> __device__ __forceinline__ void save(E* to, const Pack<E, PACK>& values)
{
    *(Pack<E, PACK>*)to = values;
}

struct Sum {
    __device__ A operator()(A a, A b) const { return a + b; }
};
struct Largest {  // nan is the largest
    __device__ A operator()(A a, A b) const { return a >= b || a != a ? a : b; }
};

// Of a value of each thread, what `team` neighbouring threads have together: all of them get it.
// All threads of the block call it. A team is a power of two.
template <class Join> __device__ A of_team(A value, int team, Join join)
{
    __shared__ A parts[32];
    for (int d = (team < 32 ? team : 32) / 2; d > 0; d /= 2)
        value = join(value, __shfl_xor_sync(0xffffffffu, value, d));
    if (team > 32) {
        __syncthreads();  // who still reads the parts of the last call
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
        __syncthreads();
        const int first = threadIdx.x / team * (team / 32);
        value = parts[first];
        for (int k = 1; k < team / 32; ++k) value = join(value, parts[first + k]);
    }
    return value;
}

// The same of 8 lines of 32 threads: each of the 32 has a value of its own.
template <class Join> __device__ A of_lines(A value, Join join)
{
    __shared__ A lines[8][32];
    const int lane = threadIdx.x % 32;
    __syncthreads();
    lines[threadIdx.x / 32][lane] = value;
    __syncthreads();
    value = lines[0][lane];
    for (int k = 1; k < 8; ++k) value = join(value, lines[k][lane]);
    return value;
}

// Each of `count` blocks leaves its part of a sum, and the one that comes last gets them all: true
// for it. The ticket is 0 before, and behind it.
__device__ __forceinline__ bool comes_last(unsigned* ticket, unsigned count)
{
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(ticket, 1u) == count - 1;
    __syncthreads();
    if (last && threadIdx.x == 0) *ticket = 0;
    __threadfence();
    return last;
}
"""


def code(body: str, dtype: str, weight: str | None = None, pack: int = 1, **numbers: int) -> str:
    """A kernel of this text for dtypes by name; `numbers` are constants that it names."""
    weight = weight or dtype
    headers = "".join(HEADERS[d] for d in sorted({dtype, weight} & set(HEADERS)))
    constants = "".join(f"constexpr int {name} = {value};\n" for name, value in numbers.items())
    return (
        f"{headers}typedef {STORED[dtype]} T;\ntypedef {STORED[weight]} W;\n"
        f"typedef {ACCUMULATED[dtype]} A;\nconstexpr int PACK = {pack};\n{constants}{HEAD}{body}"
    )


def whole(kernels: dict[str, str], **numbers: int) -> str:
    """All kernels of a module in one text, for float32; what several begin with stands once."""
    parts = dict.fromkeys(part for text in kernels.values() for part in text.split(PART))
    return code("".join(parts), "float32", None, 1, **numbers)
