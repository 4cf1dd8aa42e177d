"""The device that runs CUDA sources on the CPU: right kernels run, wrong ones are reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.backends import cuda_toolchain as toolchain
from tests.support import cuda_on_cpu
from tests.support.cuda_on_cpu import Kernel, KernelError, Program

pytestmark = pytest.mark.host_only

RIGHT = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>

extern "C" __global__ void scale(const float* __restrict__ x, float* __restrict__ y, float a, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n / 4) {  // four at a time, then the rest one by one
        float4 v = reinterpret_cast<const float4*>(x)[i];
        reinterpret_cast<float4*>(y)[i] = make_float4(a * v.x, a * v.y, a * v.z, a * v.w);
    }
    if (i < n % 4) y[n / 4 * 4 + i] = a * x[n / 4 * 4 + i];
}

template <class T> __device__ __forceinline__ T warp_sum(T v)
{
    #pragma unroll
    for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);
    return v;
}

__device__ float block_sum_of(float v)
{
    __shared__ float partial[32];
    v = warp_sum(v);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) v = warp_sum(threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0.0f);
    return v;
}

extern "C" __global__ void __launch_bounds__(256) block_sum(const float* x, float* out, int n)
{
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        v += x[i];
    v = block_sum_of(v);
    if (threadIdx.x == 0) atomicAdd(out, v);
}

// The block that comes last adds up what all have written: a fence and a ticket order them.
extern "C" __global__ void last_block_sum(const float* x, float* partial, unsigned* ticket,
                                          float* out, int n, int fences)
{
    __shared__ bool last;
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        v += x[i];
    v = block_sum_of(v);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = v;
        if (fences) __threadfence();
        last = atomicAdd(ticket, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    v = threadIdx.x < gridDim.x ? partial[threadIdx.x] : 0.0f;
    v = warp_sum(v);
    if (threadIdx.x == 0) *out = v;
}

template <class T> __device__ void softmax_of(const T* x, T* y, int columns)
{
    extern __shared__ float row[];
    __shared__ float best, total;
    x += (size_t)blockIdx.x * columns, y += (size_t)blockIdx.x * columns;
    float m = -INFINITY, s = 0;
    for (int c = threadIdx.x; c < columns; c += 32) m = fmaxf(m, row[c] = (float)x[c]);
    for (int d = 16; d > 0; d >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, d));
    if (threadIdx.x == 0) best = m;
    __syncthreads();
    for (int c = threadIdx.x; c < columns; c += 32) s += row[c] = __expf(row[c] - best);
    s = warp_sum(s);
    if (threadIdx.x == 0) total = s;
    __syncthreads();
    for (int c = threadIdx.x; c < columns; c += 32) y[c] = T(row[c] / total);
}
extern "C" __global__ void softmax_f4(const float* x, float* y, int columns)
{ softmax_of(x, y, columns); }
extern "C" __global__ void softmax_f2(const __half* x, __half* y, int columns)
{ softmax_of(x, y, columns); }

extern "C" __global__ void histogram(const unsigned char* x, unsigned* bins, int n)
{
    __shared__ unsigned local[256];
    for (int b = threadIdx.x; b < 256; b += blockDim.x) local[b] = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&local[x[i]], 1);
    __syncthreads();
    for (int b = threadIdx.x; b < 256; b += blockDim.x)
        if (local[b]) atomicAdd(bins + b, local[b]);
}

extern "C" __global__ void convert(const float* x, __half* h, __nv_bfloat16* b, float* back, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    h[i] = __float2half(x[i]);
    b[i] = __float2bfloat16(x[i]);
    back[i] = __half2float(h[i]);
}

extern "C" __global__ void positive(const int* x, int* out, int* count)
{
    int v = x[threadIdx.x], lane = threadIdx.x % 32;
    unsigned keep = __ballot_sync(~0u, v > 0);
    int base = 0;
    if (lane == 0) base = atomicAdd(count, __popc(keep));
    base = __shfl_sync(~0u, base, 0);
    if (v > 0) out[base + __popc(keep & ((1u << lane) - 1))] = v;
}

extern "C" __global__ void transpose(const float* x, float* y, int n)
{
    __shared__ float tile[32][33];
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32;
    for (int j = threadIdx.y; j < 32; j += blockDim.y)
        if (r + j < n && c < n) tile[j][threadIdx.x] = x[(r + j) * n + c];
    __syncthreads();
    c = blockIdx.y * 32 + threadIdx.x, r = blockIdx.x * 32;
    for (int j = threadIdx.y; j < 32; j += blockDim.y)
        if (r + j < n && c < n) y[(r + j) * n + c] = tile[threadIdx.x][j];
}

extern "C" __global__ void locked(int* x, int* lock)
{
    if (threadIdx.x % 32) return;
    while (atomicCAS(lock, 0, 1)) {}
    volatile int* p = x;
    int v = *p;
    for (int i = 0; i < 5000; i++) p[1] = i;
    *p = v + 1;
    __threadfence();
    atomicExch(lock, 0);
}

// One warp: d of 16 x 8 is c and a · b, with each number where the PTX ISA has it.
extern "C" __global__ void product(const __half* a, const __half* b, float* d)
{
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;
    unsigned left[4], right[2];
    for (int r = 0; r < 4; r++) {
        const __half* from = a + (g + r % 2 * 8) * 16 + t * 2 + r / 2 * 8;
        left[r] = pair_of<__half>(from[0], from[1]);
    }
    for (int r = 0; r < 2; r++)
        right[r] = pair_of<__half>(b[(t * 2 + r * 8) * 8 + g], b[(t * 2 + r * 8 + 1) * 8 + g]);
    float sum[4];
    for (int i = 0; i < 4; i++) sum[i] = d[(g + i / 2 * 8) * 8 + t * 2 + i % 2];
    add_product<__half>(sum, left, right[0], right[1]);
    for (int i = 0; i < 4; i++) d[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = sum[i];
}

// The same, whose operands are loaded from shared memory: b as it lies, so turned.
extern "C" __global__ void loaded_product(const __half* a, const __half* b, float* d)
{
    __shared__ uint4 shared[48];  // 16 rows of 16 + 8 numbers, and 16 of 8
    __half *rows = (__half*)shared, *turned = rows + 256;
    const int lane = threadIdx.x;
    for (int e = lane; e < 256; e += 32) rows[e] = a[e];
    for (int e = lane; e < 128; e += 32) turned[e] = b[e];
    __syncthreads();
    unsigned left[4], right[4];
    load_matrices(left, rows + lane % 16 * 16 + lane / 16 * 8);
    load_turned(right, turned + lane % 16 * 8);
    float sum[4] = {};
    add_product<__half>(sum, left, right[0], right[1]);
    for (int i = 0; i < 4; i++) d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sum[i];
}

extern "C" __global__ void copied_later(const float* x, float* before, float* after)
{
    __shared__ float4 s[64];
    const int t = threadIdx.x;
    s[t] = make_float4(-1, -1, -1, -1);
    copy_later<16>(s + t, x + 4 * t, t < 40);  // others get 0
    before[t] = s[t].x;
    await_copies();
    __syncthreads();
    for (int i = 0; i < 4; i++) after[4 * t + i] = ((float*)s)[(4 * t + i) ^ 128];
}

struct Pair { const float* from; float* to; };
extern "C" __global__ void copy_of(Pair p, int n)
{ if (threadIdx.x < n) p.to[threadIdx.x] = p.from[threadIdx.x]; }
"""

# name -> the words of the report, and the body of a kernel of `float* x, int n`, 64 each. Each body
# has its fault on the line that is marked.
WRONG = {
    "no_barrier": ("has written yet", "__shared__ float s[64];\n s[t] = x[t];\n"
                   "x[t] = s[63 - t];  // here"),
    "no_second_barrier": ("race in shared memory", "__shared__ float s[64];\n s[t] = 0;\n"
                          "__syncthreads(); s[t] = x[t];  // here\n x[t] = s[63 - t];  // here"),
    "no_barrier_in_a_loop": ("race in shared memory", "__shared__ float s[64]; float v = 0;\n"
                             "for (int i = 0; i < 3; i++) {\n s[t] = x[t];  // here\n"
                             "__syncthreads();\n v += s[t ^ 1];  // here\n }\n x[t] = v;"),
    "a_warp_barrier_across_warps": (
        "race in shared memory", "__shared__ float s[64]; s[t] = 0; __syncthreads();\n"
        "s[t] = x[t];  // here\n __syncwarp();\n x[t] = s[63 - t];  // here"),
    "a_shuffle_is_no_barrier": (
        "race in shared memory", "__shared__ float s[64]; s[t] = 0; __syncthreads();\n"
        "s[t] = x[t];  // here\n float v = __shfl_sync(~0u, x[t], 0);\n"
        "x[t] = v + s[t ^ 1];  // here"),
    "two_blocks_write": ("race in array 0", "if (t == 0) x[0] = blockIdx.x;  // here"),
    "a_block_reads_another": ("race in array 0", "float v = x[63 - t];  // here\n"
                              "x[t] = v + blockIdx.x;  // here"),
    "a_plain_counter": ("race in array 0", "x[0] += 1;  // here"),
    "past_the_end": ("write of 4 bytes out of bounds: at byte 256 of array 0", "\n"
                     "x[t + 1] = 0;  // here"),
    "before_the_start": ("read of 4 bytes out of bounds: at byte -4 of array 0",
                         "float v = x[t - 1];  // here\n __syncthreads(); x[t] = v;"),
    "a_vector_past_the_end": ("bytes out of bounds: at byte", "if (t < 61) {\n"
                              "float4 v = ((float4*)x)[t];  // here\n"
                              "__syncwarp(__activemask()); x[t] = v.x + v.w; }"),
    "misaligned": ("misaligned", "\n if (t == 0) { float4 v = *(float4*)(x + 1);  // here\n"
                   "x[0] = v.x; }"),
    "beyond_a_shared_array": ("out_of_bounds", "__shared__ float s[32];\n s[t] = x[t];  // here\n"
                              "__syncthreads(); x[t] = s[t];"),
    "beyond_dynamic_memory": ("dynamic shared memory, which has 128", "extern __shared__ float d[];"
                              "\n d[t] = x[t];  // here"),
    "never_written": ("no thread of the block has written", "__shared__ float s[64];\n"
                      "if (t) s[t] = 1;\n __syncthreads();\n x[t] = s[t];  // here"),
    "a_thread_returns": ("do not meet", "if (t >= 40) return;\n __syncthreads();  // here\n"
                         "x[t] = 1;"),
    "barriers_of_two_branches": ("do not meet", "if (t < 40)\n __syncthreads();  // here\n else\n"
                                 "__syncthreads();  // here\n x[t] = 1;"),
    "half_of_a_mask": ("do not meet", "if (t % 2)\n x[t] = __shfl_sync(~0u, 1.0f, 0);  // here\n"
                       "else\n x[t] = __shfl_sync(~0u, 2.0f, 0);  // here"),
    "a_mask_without_the_caller": ("lacks the lane", "\n x[t] = __shfl_sync(0xFFFFu, 1.0f, 0);"
                                  "  // here"),
    "a_part_of_a_warp_multiplies": (
        "do not meet", "float d[4] = {}; unsigned a[4] = {};\n"
        "if (t < 16)\n add_product<__half>(d, a, 0, 0);  // here\n else\n __syncwarp();  // here\n"
        "x[t] = d[0];"),
    "matrices_of_global_memory": ("not of shared memory", "unsigned r[4];\n"
                                  "load_matrices(r, x);  // here\n x[t] = r[0];"),
    "a_row_of_matrices_at_8_bytes": (
        "not at 16 bytes", "__shared__ uint2 s[130]; unsigned r[4];\n"
        "load_matrices(r, s + 1);  // here\n x[t] = r[0];"),
    "matrices_before_a_barrier": (
        "race in shared memory", "__shared__ uint4 s[64]; unsigned r[4];\n"
        "s[t] = uint4{};  // here\n"
        "load_matrices(r, s + (63 - t));  // here\n x[t] = r[0];"),
    "a_copy_without_a_barrier": (
        "race in shared memory", "__shared__ float s[64]; s[t] = 0; __syncthreads();\n"
        "copy_later<4>(s + t, x + t, true);  // here\n"
        "await_copies();  // here\n x[t] = s[63 - t];  // here"),
    "a_copy_over_what_others_read": (
        "race in shared memory", "__shared__ float s[64]; s[t] = x[t]; __syncthreads();\n"
        "float v = s[63 - t];  // here\n copy_later<4>(s + t, x + t, true);  // here\n"
        "await_copies();  // here\n x[t] = v;"),
    "a_copy_to_global_memory": ("not to shared", "\n copy_later<4>(x + t, x, true);  // here"),
    "an_overflow": ("mul_overflow", "\n x[t] = n * 40000000;  // here"),
    "a_wide_shift": ("shift_out_of_bounds", "\n x[t] = n << n;  // here"),
}  # fmt: skip


@pytest.fixture(scope="module")
def right() -> Program:
    toolchain.host_compiler()
    return Program(RIGHT)


@pytest.fixture(scope="module")
def wrong() -> Program:
    toolchain.host_compiler()
    kernels = [
        f'extern "C" __global__ void {name}(float* x, int n) {{ int t = threadIdx.x;\n{body}\n}}\n'
        for name, (_, body) in WRONG.items()
    ]
    return Program("".join(kernels))


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_fault_is_reported_with_its_line(wrong: Program, name: str, seed: int) -> None:
    words, _ = WRONG[name]
    blocks = 2 if "block" in name else 1
    x = np.zeros(64, np.float32)
    with pytest.raises(KernelError) as caught:
        wrong.kernel(name)((blocks,), (64,), (x, np.int32(64)), 128, seed=seed)
    report, source = str(caught.value), wrong.source.splitlines()
    assert report.startswith(f"{name}: ") and words in report, report
    told = [int(n) for n in cuda_on_cpu.re.findall(r"line (\d+)", report)]
    assert told, report
    assert all("// here" in source[line - 1] for line in told), (report, told)


def kernel(program: Program, name: str) -> Kernel:
    return program.kernel(name)


def random(n: int, dtype: str = "f4") -> Any:
    return np.random.default_rng(n).standard_normal(n).astype(dtype)


@pytest.mark.parametrize("n", [1, 3, 4, 5, 1023, 1026])
def test_vectors_and_the_rest_of_them(right: Program, n: int) -> None:
    x, y = random(n), np.zeros(n, np.float32)
    x.flags.writeable = False
    kernel(right, "scale")((n // 256 + 1,), (256,), (x, y, np.float32(1.5), np.int32(n)))
    np.testing.assert_array_equal(y, x * np.float32(1.5))


@pytest.mark.parametrize("seed", range(3))
def test_sums_of_blocks(right: Program, seed: int) -> None:
    x, out = random(3000), np.zeros(1, np.float32)
    kernel(right, "block_sum")((4,), (256,), (x, out, np.int32(x.size)), seed=seed)
    np.testing.assert_allclose(out[0], x.sum(), atol=1e-3)
    partial, ticket, out = np.zeros(4, np.float32), np.zeros(1, np.uint32), np.zeros(1, np.float32)
    args = x, partial, ticket, out, np.int32(x.size)
    kernel(right, "last_block_sum")((4,), (64,), (*args, np.int32(1)), seed=seed)
    np.testing.assert_allclose(out[0], x.sum(), atol=1e-3)
    ticket[:] = 0
    with pytest.raises(KernelError, match=r"race in array 1 .* block"):
        kernel(right, "last_block_sum")((4,), (64,), (*args, np.int32(0)), seed=seed)


@pytest.mark.parametrize("dtype, tolerance", [("f4", 1e-6), ("f2", 1e-3)])
def test_dynamic_memory_and_shuffles(right: Program, dtype: str, tolerance: float) -> None:
    x = random(3 * 77).reshape(3, 77).astype(dtype)
    y, e = np.zeros_like(x), np.exp(x.astype("f8") - x.max(1, keepdims=True))
    kernel(right, f"softmax_{dtype}")((3,), (32,), (x, y, np.int32(77)), 77 * 4)
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), atol=tolerance)


@pytest.mark.parametrize("seed", range(2))
def test_products_of_tensor_cores(right: Program, seed: int) -> None:
    a, b = random(256, "f2").reshape(16, 16), random(128, "f2").reshape(16, 8)
    before = random(128).reshape(16, 8)
    d, loaded = before.copy(), np.zeros((16, 8), np.float32)
    kernel(right, "product")((1,), (32,), (a, b, d), seed=seed)
    kernel(right, "loaded_product")((1,), (32,), (a, b, loaded), seed=seed)
    expected = a.astype("f4") @ b.astype("f4")
    np.testing.assert_allclose(d, before + expected, atol=1e-5)
    np.testing.assert_allclose(loaded, expected, atol=1e-5)


def test_copies_that_go_on_beside_a_thread(right: Program) -> None:
    """They are there when the thread has waited, and not before."""
    x, before, after = random(160), np.zeros(64, np.float32), np.zeros(256, np.float32)
    kernel(right, "copied_later")((1,), (64,), (x, before, after))
    np.testing.assert_array_equal(before, -1)
    np.testing.assert_array_equal(after.reshape(2, 128)[::-1].ravel()[:160], x)
    np.testing.assert_array_equal(after.reshape(2, 128)[::-1].ravel()[160:], 0)


def test_atomics_votes_tiles_and_locks(right: Program) -> None:
    x = np.random.default_rng(0).integers(0, 256, 3000).astype(np.uint8)
    bins = np.zeros(256, np.uint32)
    kernel(right, "histogram")((12,), (256,), (x, bins, np.int32(x.size)))
    np.testing.assert_array_equal(bins, np.bincount(x, minlength=256))
    x = np.random.default_rng(0).integers(-9, 9, 128).astype(np.int32)
    out, count = np.zeros(128, np.int32), np.zeros(1, np.int32)
    kernel(right, "positive")((1,), (128,), (x, out, count))
    np.testing.assert_array_equal(np.sort(out[: count[0]]), np.sort(x[x > 0]))
    x = random(70 * 70).reshape(70, 70)
    y = np.zeros_like(x)
    kernel(right, "transpose")((3, 3), (32, 8), (x, y, np.int32(70)))
    np.testing.assert_array_equal(y, x.T)
    x, lock = np.zeros(2, np.int32), np.zeros(1, np.int32)
    kernel(right, "locked")((1,), (256,), (x, lock), races=0)  # no barrier orders what a lock does
    assert x[0] == 8


def test_half_precision_is_rounded_once_to_nearest_even(right: Program) -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    halves = np.arange(0, 65536, 7, dtype=np.uint16).view(np.float16).astype(np.float32)
    finite = halves[np.isfinite(halves)]
    x = np.concatenate([halves, (finite[:-1] + finite[1:]) / 2, random(5000) * 1e5])
    x = x.astype(np.float32)
    h, b, back = np.zeros(x.size, np.float16), np.zeros(x.size, bfloat16), np.zeros_like(x)
    args = x, h, b, back, np.int32(x.size)
    Program(RIGHT, checks=False).kernel("convert")((x.size // 256 + 1,), (256,), args)
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(h, x.astype(np.float16))
        rounded = x.astype(bfloat16).astype(np.float32)
        np.testing.assert_array_equal(b.astype(np.float32), rounded)
    np.testing.assert_array_equal(back, h.astype(np.float32))


def test_a_struct_brings_its_arrays(right: Program) -> None:
    x, y = random(40), np.zeros(40, np.float32)
    pair = np.array((x.ctypes.data, y.ctypes.data), np.dtype("u8, u8"))[()]
    kernel(right, "copy_of")((1,), (64,), (pair, np.int32(40)), arrays=(x, y))
    np.testing.assert_array_equal(x, y)
    with pytest.raises(KernelError, match="out of bounds: at byte 156"):
        kernel(right, "copy_of")((1,), (64,), (pair, np.int32(40)), arrays=(x[:39], y))


@pytest.mark.parametrize("args", [
    lambda x: (x, x, 1.5, np.int32(4)), lambda x: (x, x.astype("f8"), np.float32(1), np.int32(4)),
    lambda x: (x, x, np.float32(1), np.int64(4)), lambda x: (x, x, np.float32(1)),
])  # fmt: skip
def test_arguments_are_of_the_types_that_the_kernel_declares(right: Program, args: Any) -> None:
    with pytest.raises(TypeError, match="scale: "):
        kernel(right, "scale")((1,), (32,), args(np.zeros(4, np.float32)))


def test_an_atomic_of_what_a_struct_points_to_runs_blind_and_is_watched() -> None:
    """Only a kernel that is watched is told of the arrays that its struct points to."""
    source = """
        struct Operands { unsigned* count; };
        extern "C" __global__ void counts(const Operands a) { atomicAdd(a.count, 1u); }
    """
    count = np.zeros(1, np.uint32)
    args = (np.array([count.ctypes.data], np.uint64).view("V8")[0],)
    Program(source, checks=False).kernel("counts")((2,), (32,), args)
    watched = Program(source).kernel("counts")
    watched((2,), (32,), args, arrays=[count])
    assert count[0] == 128
    with pytest.raises(KernelError, match="atomic of 4 bytes outside of every array"):
        watched((2,), (32,), args)


SHOWN = """
extern "C" __global__ void shown{n}(float* y, int writes)
{{
    __shared__ float kept[8 << {n}];
    if (writes) kept[threadIdx.x] = 1;
    __syncthreads();
    y[blockIdx.x * blockDim.x + threadIdx.x] = kept[threadIdx.x];
}}
"""


def test_shared_memory_of_each_source_begins_as_nan() -> None:
    """In every block and every launch, also of kernels that are not watched."""
    programs = [Program(SHOWN.format(n=n), checks=False) for n in range(3)]
    Program.compile_together(programs, 8)
    for writes in (1, 0, 1, 0):
        for n, program in enumerate(programs):
            y = np.zeros((3, 8), np.float32)
            program.kernel(f"shown{n}")((3,), (8,), (y, np.int32(writes)))
            assert (y == 1).all() if writes else np.isnan(y).all()


def test_a_macro_is_of_its_source_alone() -> None:
    sources = [
        """#define MOST 3
        extern "C" __global__ void defined(int* x) { x[0] = MOST; }""",
        """constexpr int MOST = 4;
        extern "C" __global__ void constant(int* x) { x[0] = MOST; }""",
    ]
    programs = [Program(source, checks=False) for source in sources]
    Program.compile_together(programs, 8)
    for program, most in zip(programs, (3, 4)):
        x = np.zeros(1, np.int32)
        program.kernel(program.names[0])((1,), (1,), (x,))
        assert x[0] == most


def test_a_text_that_changes_is_in_one_group_or_in_two() -> None:
    texts = [f"kernel {n}" for n in range(200)]
    before = cuda_on_cpu.grouped(texts, texts, 32)
    assert sorted(sum(before, [])) == sorted(texts) and 4 < len(before) <= 8
    texts[7] = "another kernel"
    after = cuda_on_cpu.grouped(texts, texts, 32)
    assert sum(group not in before for group in after) <= 2
