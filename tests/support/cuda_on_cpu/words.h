// The words of CUDA C that a C++ compiler lacks. It stands before the text of a kernel; machine.cpp
// runs the threads and judges what they read and write.
#pragma once
#include <cfloat>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>
#include <utility>
#undef _GLIBCXX_USE_STD_SPEC_FUNCS  // templates that no kernel calls, at half of each compilation
#include <cmath>

#define CUDA_ON_CPU 1
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
// A block runs on one thread of the host, so a variable of that thread is one of the block. The
// linker lays all of them side by side, where the machine finds their range.
#define __shared__ static thread_local

// Functions here are not instrumented. Those that ask the machine are not inlined either: their
// return address is then a line of the kernel.
#define ON_CPU_PLAIN __attribute__((no_sanitize("thread", "undefined")))
#define ON_CPU_CALL inline __attribute__((noinline, no_sanitize("thread", "undefined")))
#define ON_CPU_LINE int line = __builtin_LINE()  // of the caller, since it is a default argument

#define ON_CPU_VECTOR(T, name, pair, four)                                             \
    struct alignas(pair) name##2 { T x, y; };                                          \
    struct name##3 { T x, y, z; };                                                     \
    struct alignas(four) name##4 { T x, y, z, w; };                                    \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }                         \
    inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                 \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
ON_CPU_VECTOR(float, float, 8, 16)
ON_CPU_VECTOR(double, double, 16, 16)
ON_CPU_VECTOR(int, int, 8, 16)
ON_CPU_VECTOR(unsigned, uint, 8, 16)
ON_CPU_VECTOR(long long, longlong, 16, 16)
ON_CPU_VECTOR(unsigned short, ushort, 4, 8)
ON_CPU_VECTOR(unsigned char, uchar, 2, 4)
struct dim3 { unsigned x = 1, y = 1, z = 1; };
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

// What the machine answers --------------------------------------------------------------------------

enum { READS, WRITES, UPDATES };
struct Brought { alignas(8) unsigned char bytes[24]; };  // what one lane shows its warp
extern "C" {
void on_cpu_access(const void* p, size_t n, int how, void* pc);
void on_cpu_fail(const char* format, ...);
int on_cpu_barrier(int line, int holds);  // how many threads said that it holds
const Brought* on_cpu_meet(unsigned mask, const char* what, int line, const void* value, size_t n,
                           unsigned* present);
int on_cpu_lane();
int on_cpu_is_shared(const void* p);
unsigned on_cpu_active();
void on_cpu_fence();
void on_cpu_copy(void* to, const void* from, size_t n, int is_there, void* pc);
void on_cpu_await_copies(void* pc);
void on_cpu_add_product(float (&d)[4], const Brought* brought, int is_bf16);
void on_cpu_add_tf32(float (&d)[4], const Brought* brought);
void* on_cpu_dynamic();  // memory of `extern __shared__ T name[]`
}
#undef assert
#define assert(x) ((x) ? (void)0 : on_cpu_fail("assert(" #x ") fails at line %d", __LINE__))

// Barriers and fences -------------------------------------------------------------------------------

inline void __syncthreads(ON_CPU_LINE) { on_cpu_barrier(line, 0); }
inline int __syncthreads_count(int p, ON_CPU_LINE) { return on_cpu_barrier(line, p != 0); }
inline int __syncthreads_or(int p, ON_CPU_LINE) { return on_cpu_barrier(line, p != 0) > 0; }
inline int __syncthreads_and(int p, ON_CPU_LINE) { return on_cpu_barrier(line, p == 0) == 0; }
inline void __threadfence() { on_cpu_fence(); }
inline void __threadfence_block() {}
ON_CPU_CALL void __syncwarp(unsigned mask = ~0u, ON_CPU_LINE)
{
    unsigned present;
    on_cpu_meet(mask, "__syncwarp", line, "", 0, &present);
}

// Between the lanes of a warp: each brings a value, all wait, then each takes what it wants ----------

template <class T>
ON_CPU_CALL T on_cpu_take(unsigned mask, T value, int from, const char* what, int line)
{
    static_assert(sizeof(T) <= 16, "a lane shuffles at most 16 bytes");
    unsigned present;
    const Brought* brought = on_cpu_meet(mask, what, line, &value, sizeof value, &present);
    if (present >> from & 1) memcpy((void*)&value, brought[from].bytes, sizeof value);
    else memset((void*)&value, 0xFF, sizeof value);  // undefined in CUDA: a nan, or -1
    return value;
}
template <class T> T __shfl_sync(unsigned mask, T v, int lane, int width = 32, ON_CPU_LINE)
{
    int mine = on_cpu_lane(), from = (mine & ~(width - 1)) | (lane & (width - 1));
    return on_cpu_take(mask, v, from, "__shfl_sync", line);
}
template <class T> T __shfl_up_sync(unsigned mask, T v, unsigned d, int width = 32, ON_CPU_LINE)
{
    int mine = on_cpu_lane(), from = (mine & (width - 1)) < (int)d ? mine : mine - (int)d;
    return on_cpu_take(mask, v, from, "__shfl_up_sync", line);
}
template <class T> T __shfl_down_sync(unsigned mask, T v, unsigned d, int width = 32, ON_CPU_LINE)
{
    int mine = on_cpu_lane(), from = (mine & (width - 1)) + (int)d < width ? mine + (int)d : mine;
    return on_cpu_take(mask, v, from, "__shfl_down_sync", line);
}
template <class T> T __shfl_xor_sync(unsigned mask, T v, int d, int width = 32, ON_CPU_LINE)
{
    int mine = on_cpu_lane(), from = (mine ^ d) <= (mine | (width - 1)) ? mine ^ d : mine;
    return on_cpu_take(mask, v, from, "__shfl_xor_sync", line);
}
ON_CPU_CALL unsigned __ballot_sync(unsigned mask, int holds, ON_CPU_LINE)
{
    unsigned present, votes = 0;
    const Brought* brought = on_cpu_meet(mask, "__ballot_sync", line, &holds, 4, &present);
    for (int i = 0; i < 32; i++) {
        int vote;
        memcpy(&vote, brought[i].bytes, 4);
        if ((present >> i & 1) && vote) votes |= 1u << i;
    }
    return votes;
}
inline int __any_sync(unsigned mask, int p, ON_CPU_LINE) { return __ballot_sync(mask, p, line) != 0; }
inline int __all_sync(unsigned mask, int p, ON_CPU_LINE) { return __ballot_sync(mask, !p, line) == 0; }
inline unsigned __activemask() { return on_cpu_active(); }

// Atomics: threads take turns at known points only, so a read and a write are one step ---------------

template <class T> struct OnCpuSame { using type = T; };
#define ON_CPU_ATOMIC(name, next)                                                      \
    template <class T> ON_CPU_CALL T name(T* p, typename OnCpuSame<T>::type v)         \
    {                                                                                  \
        on_cpu_access(p, sizeof(T), UPDATES, __builtin_return_address(0));             \
        T old = *p;                                                                    \
        *p = next;                                                                     \
        return old;                                                                    \
    }
ON_CPU_ATOMIC(atomicAdd, old + v)
ON_CPU_ATOMIC(atomicSub, old - v)
ON_CPU_ATOMIC(atomicExch, v)
ON_CPU_ATOMIC(atomicMin, v < old ? v : old)
ON_CPU_ATOMIC(atomicMax, v > old ? v : old)
ON_CPU_ATOMIC(atomicAnd, old & v)
ON_CPU_ATOMIC(atomicOr, old | v)
ON_CPU_ATOMIC(atomicXor, old ^ v)
ON_CPU_ATOMIC(atomicInc, old >= v ? 0 : old + 1)
template <class T>
ON_CPU_CALL T atomicCAS(T* p, typename OnCpuSame<T>::type wanted, typename OnCpuSame<T>::type v)
{
    on_cpu_access(p, sizeof(T), UPDATES, __builtin_return_address(0));
    T old = *p;
    if (old == wanted) *p = v;
    return old;
}

// Numbers. What is fast and rough on a GPU is exact here: tolerances come from there ------------------

template <class T> T min(T a, typename OnCpuSame<T>::type b) { return b < a ? b : a; }
template <class T> T max(T a, typename OnCpuSame<T>::type b) { return a < b ? b : a; }
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline double rsqrt(double x) { return 1 / sqrt(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline void sincospi(double x, double* s, double* c) { *s = sin(M_PI * x), *c = cos(M_PI * x); }
inline void sincospif(float x, float* s, float* c)
{
    *s = (float)sin(M_PI * (double)x), *c = (float)cos(M_PI * (double)x);
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
template <class To, class From> ON_CPU_PLAIN To on_cpu_bits(From x)
{
    To found;
    memcpy(&found, &x, sizeof found);
    return found;
}
inline double __longlong_as_double(long long x) { return on_cpu_bits<double>(x); }
inline long long __double_as_longlong(double x) { return on_cpu_bits<long long>(x); }
inline int __float_as_int(float x) { return on_cpu_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return on_cpu_bits<unsigned>(x); }
inline float __int_as_float(int x) { return on_cpu_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return on_cpu_bits<float>(x); }
template <class T> T __ldg(const T* p) { return *p; }
using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;

// Half precision: stored in two bytes, computed as float, rounded once to nearest even ----------------

inline uint16_t on_cpu_to_half(float x)
{
    uint32_t bits = on_cpu_bits<uint32_t>(x), size = bits & 0x7FFFFFFFu, code;
    if (size > 0x7F800000u) code = 0x7FFFu;
    else if (size >= 0x477FF000u) code = 0x7C00u;  // from 65520 on it rounds to infinity
    else if (size >= 0x38800000u) code = (size - 0x38000000u + 0xFFFu + (size >> 13 & 1)) >> 13;
    else {  // denormal: a sum with 0.5 rounds at the last place
        float shifted = on_cpu_bits<float>(size) + 0.5f;
        code = on_cpu_bits<uint32_t>(shifted) - 0x3F000000u;
    }
    return (uint16_t)(code | (bits >> 16 & 0x8000u));
}
inline float on_cpu_from_half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, size = h & 0x7FFFu;
    if (size >= 0x7C00u) return on_cpu_bits<float>(sign | 0x7F800000u | (size & 0x3FFu) << 13);
    if (size >= 0x0400u) return on_cpu_bits<float>(sign | ((size << 13) + 0x38000000u));
    return on_cpu_bits<float>(sign | on_cpu_bits<uint32_t>((float)size * 5.9604644775390625e-08f));
}
inline uint16_t on_cpu_to_bf16(float x)
{
    uint32_t bits = on_cpu_bits<uint32_t>(x);
    return x != x ? 0x7FFF : (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}
inline float on_cpu_from_bf16(uint16_t b) { return on_cpu_bits<float>((uint32_t)b << 16); }
#define ON_CPU_HALF(H, to, from)                                                       \
    struct alignas(2) H {                                                              \
        uint16_t bits;                                                                 \
        H() = default;                                                                 \
        H(float x) : bits(to(x)) {}                                                    \
        operator float() const { return from(bits); }                                  \
    };
ON_CPU_HALF(__half, on_cpu_to_half, on_cpu_from_half)
ON_CPU_HALF(__nv_bfloat16, on_cpu_to_bf16, on_cpu_from_bf16)
using half = __half;
inline float __half2float(__half h) { return h; }
inline __half __float2half(float x) { return x; }
inline __half __float2half_rn(float x) { return x; }
inline float __bfloat162float(__nv_bfloat16 h) { return h; }
inline __nv_bfloat16 __float2bfloat16(float x) { return x; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }

// Tensor cores: what kernels say in PTX where CUDA_ON_CPU is not defined. Lanes hold fragments as
// in the PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type" and "ldmatrix".

template <class T> ON_CPU_PLAIN unsigned pair_of(float first, float second)  // `first` is the lower
{
    if constexpr (sizeof(T) != 2) on_cpu_fail("a pair of numbers that have not 16 bits");
    else return on_cpu_bits<uint16_t>(T(first)) | (unsigned)on_cpu_bits<uint16_t>(T(second)) << 16;
    return 0;
}
template <class T>  // d += a · b, of 16 x 16 and 16 x 8
ON_CPU_CALL void add_product(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                             ON_CPU_LINE)
{
    unsigned mine[6] = {a[0], a[1], a[2], a[3], b0, b1}, present;
    const Brought* brought = on_cpu_meet(~0u, "mma.sync", line, mine, sizeof mine, &present);
    if (~present) on_cpu_fail("mma.sync at line %d: only the lanes %08x call it", line, present);
    on_cpu_add_product(d, brought, std::is_same_v<T, __nv_bfloat16>);
}
// d += a · b, of 16 x 8 and 8 x 8 in TF32
ON_CPU_CALL void add_tf32(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                          ON_CPU_LINE)
{
    unsigned mine[6] = {a[0], a[1], a[2], a[3], b0, b1}, present;
    const Brought* brought = on_cpu_meet(~0u, "mma.sync", line, mine, sizeof mine, &present);
    if (~present) on_cpu_fail("mma.sync at line %d: only the lanes %08x call it", line, present);
    on_cpu_add_tf32(d, brought);
}
ON_CPU_CALL void on_cpu_matrices(unsigned (&to)[4], const void* row, bool turned, int line,
                                 void* pc)
{
    unsigned present;
    if (!on_cpu_is_shared(row)) on_cpu_fail("ldmatrix at line %d: not of shared memory", line);
    if ((uintptr_t)row % 16) on_cpu_fail("ldmatrix at line %d: a row is not at 16 bytes", line);
    const Brought* brought = on_cpu_meet(~0u, "ldmatrix", line, &row, sizeof row, &present);
    if (~present) on_cpu_fail("ldmatrix at line %d: only the lanes %08x call it", line, present);
    const uint16_t* rows[32];
    for (int i = 0; i < 32; i++) memcpy(&rows[i], brought[i].bytes, sizeof rows[i]);
    const int g = on_cpu_lane() / 4, t = on_cpu_lane() % 4;
    for (int m = 0; m < 4; m++) {
        to[m] = 0;
        for (int upper = 0; upper < 2; upper++) {
            const int r = turned ? t * 2 + upper : g, c = turned ? g : t * 2 + upper;
            on_cpu_access(rows[m * 8 + r] + c, 2, READS, pc);
            to[m] |= (unsigned)rows[m * 8 + r][c] << 16 * upper;
        }
    }
}
ON_CPU_CALL void load_matrices(unsigned (&to)[4], const void* row, ON_CPU_LINE)
{
    on_cpu_matrices(to, row, false, line, __builtin_return_address(0));
}
ON_CPU_CALL void load_turned(unsigned (&to)[4], const void* row, ON_CPU_LINE)
{
    on_cpu_matrices(to, row, true, line, __builtin_return_address(0));
}

// Copies that go on beside the thread (cp.async): they are made when the thread waits for them, which
// is the latest moment. What they write counts as written from the call on.

template <int BYTES>
ON_CPU_CALL void copy_later(void* to, const void* from, bool is_there, ON_CPU_LINE)
{
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
    if (!on_cpu_is_shared(to)) on_cpu_fail("cp.async at line %d: not to shared memory", line);
    on_cpu_copy(to, from, BYTES, is_there, __builtin_return_address(0));
}
ON_CPU_CALL void await_copies() { on_cpu_await_copies(__builtin_return_address(0)); }

// The door for Python: a kernel by its own signature, which is told as text ---------------------------

// Of each kernel one short function is compiled: what is said of types is data, behind which a type
// of no kind stands, and what calls it is inlined.

struct OnCpuType { bool is_pointer; char kind; size_t size; };
template <class T> constexpr OnCpuType on_cpu_type()
{
    using Whole = std::remove_pointer_t<T>;
    using Element = std::conditional_t<std::is_void_v<Whole>, char, Whole>;
    char kind = std::is_void_v<Whole>            ? 'V'
                : std::is_floating_point_v<Whole> ? 'f'
                : !std::is_integral_v<Whole>      ? 'V'
                : std::is_signed_v<Whole>         ? 'i'
                                                  : 'u';
    return {std::is_pointer_v<T>, kind, sizeof(Element)};
}
template <class... A> struct OnCpuTypes { OnCpuType all[sizeof...(A) + 1]; };
template <class... A> constexpr OnCpuTypes<A...> on_cpu_types(void (*)(A...))
{
    return {{on_cpu_type<A>()..., {}}};
}
#define ON_CPU_INLINE inline __attribute__((always_inline, no_sanitize("thread", "undefined")))
template <class... A, size_t... I>
ON_CPU_INLINE void on_cpu_unpack(void (*kernel)(A...), void** args, std::index_sequence<I...>)
{
    kernel(*(A*)args[I]...);
}
template <class... A> ON_CPU_INLINE void on_cpu_call(void (*kernel)(A...), void** args)
{
    on_cpu_unpack(kernel, args, std::index_sequence_for<A...>());
}
#define ON_CPU_VISIBLE extern "C" __attribute__((visibility("default")))
#define ON_CPU_ENTRY(label, name)                                                           \
    ON_CPU_VISIBLE ON_CPU_PLAIN void run_##label(void** args) { on_cpu_call(&name, args); } \
    ON_CPU_VISIBLE constexpr auto types_##label = on_cpu_types(&name);
