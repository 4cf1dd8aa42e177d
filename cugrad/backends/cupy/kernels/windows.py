"""Kernels of windows that slide over planes of up to three dims: convolutions and pooling; and of
planes that are read where a grid says.

Planes of fewer dims have others of size 1 before them. A kernel that goes back from outputs to
inputs looks for the windows that an element lies in, so that it adds up in one order.

Of grids: MODE 0 weighs the two pixels about a place along each axis, 1 takes the nearest, 2 weighs
four by cubics. PADDING, of what is outside: 0 is zeros, 1 the border, 2 a reflection. With ALIGNED
-1 and 1 are the middles of pixels, else their edges. DIMS is 2 or 3. A place has x first, an image
has it last. Numbers that are drawn have DRAWN bytes.
"""

from __future__ import annotations

from . import PART, whole

__all__ = ["KERNELS", "NAMES", "PACKS", "SOURCE", "WINDOW"]

WINDOW = r"""
struct Window { int size[3], outputs[3], kernel[3], stride[3], padding[3], dilation[3]; };

struct Place { i64 plane; int at[3]; };  // of an element among planes of these sizes
__device__ __forceinline__ Place place_in(i64 i, const int* sizes)
{
    Place p;
    const i64 area = (i64)sizes[0] * sizes[1] * sizes[2];
    int rest;
    if (i > 0x7fffffff) p.plane = i / area, rest = (int)(i % area);
    else {  // quotients of 32 bits are cheaper
        const unsigned j = (unsigned)i, whole = (unsigned)area;
        p.plane = j / whole, rest = j % whole;
    }
    p.at[2] = rest % sizes[2];
    rest /= sizes[2];
    p.at[1] = rest % sizes[1];
    p.at[0] = rest / sizes[1];
    return p;
}
__device__ __forceinline__ i64 offset_in(const int* sizes, int a, int b, int c)
{
    return ((i64)a * sizes[1] + b) * sizes[2] + c;
}
// The element along dim d that a window reads at a position of the kernel; below 0 for none.
__device__ __forceinline__ int read_by(const Window& w, int d, int output, int position)
{
    const int at = output * w.stride[d] - w.padding[d] + position * w.dilation[d];
    return at < w.size[d] ? at : -1;
}
// The window that reads an element along dim d at a position of the kernel; below 0 for none.
__device__ __forceinline__ int window_of(const Window& w, int d, int at, int position)
{
    const int shift = at + w.padding[d] - position * w.dilation[d];
    if (shift < 0 || shift % w.stride[d] != 0) return -1;
    return shift / w.stride[d] < w.outputs[d] ? shift / w.stride[d] : -1;
}
#define FOR_KERNEL(w, k)                                                          \
    for (int k##0 = 0, k = 0; k##0 < w.kernel[0]; ++k##0)                         \
        for (int k##1 = 0; k##1 < w.kernel[1]; ++k##1)                            \
            for (int k##2 = 0; k##2 < w.kernel[2]; ++k##2, ++k)
"""

_DIVISOR = r"""
// How many elements an average divides by: those of the window that lie in the padded plane, or,
// with `inside`, in the plane.
__device__ __forceinline__ A divisor_of(const Window& w, int a, int b, int c, int inside, int given)
{
    if (given != 0) return (A)given;
    const int at[3] = {a, b, c};
    A product = 1;
    for (int d = 0; d < 3; ++d) {
        int start = at[d] * w.stride[d] - w.padding[d];
        int stop = start + w.kernel[d], most = w.size[d] + (inside ? 0 : w.padding[d]);
        if (stop > most) stop = most;
        if (inside && start < 0) start = 0;
        product *= stop - start;
    }
    return product;
}
"""

_COVER = r"""
// Along dim d, where the window of an output begins and ends, of as many as cover the plane.
__device__ __forceinline__ int begin_of(const Window& w, int d, int output)
{
    return (int)((i64)output * w.size[d] / w.outputs[d]);
}
__device__ __forceinline__ int end_of(const Window& w, int d, int output)
{
    return (int)(((i64)(output + 1) * w.size[d] + w.outputs[d] - 1) / w.outputs[d]);
}
// The windows that have an element: those that end behind it, and begin before the next.
__device__ __forceinline__ int first_with(const Window& w, int d, int at)
{
    return (int)((i64)at * w.outputs[d] / w.size[d]);
}
__device__ __forceinline__ int behind_last_with(const Window& w, int d, int at)
{
    return (int)(((i64)(at + 1) * w.outputs[d] + w.size[d] - 1) / w.size[d]);
}
"""

_FRACTION = r"""
template <int BYTES> struct Number { typedef float type; };
template <> struct Number<8> { typedef double type; };
typedef Number<DRAWN>::type Drawn;
// Along dim d, where the window of an output begins, by the number that was drawn for its plane.
__device__ __forceinline__ int begin_of(const Window& w, int d, int output, Drawn drawn)
{
    const int last = w.size[d] - w.kernel[d];
    if (output == w.outputs[d] - 1) return last;
    const Drawn step = (Drawn)((double)last / (w.outputs[d] - 1));
    const int begin = (int)((output + drawn) * step) - (int)(drawn * step);
    return begin < 0 ? 0 : begin < last ? begin : last;
}
// The windows that may have an element, whatever was drawn: they begin less than two elements off.
__device__ __forceinline__ int first_about(const Window& w, int d, int at)
{
    const int last = w.size[d] - w.kernel[d], begin = at - w.kernel[d] - 1;
    return begin <= 0 || last == 0 ? 0 : (int)((i64)begin * (w.outputs[d] - 1) / last);
}
__device__ __forceinline__ int behind_last_about(const Window& w, int d, int at)
{
    const int last = w.size[d] - w.kernel[d], outputs = w.outputs[d];
    const i64 end = last == 0 ? outputs : (i64)(at + 2) * (outputs - 1) / last + 1;
    return end < outputs ? (int)end : outputs;
}
"""

_HAVING = r"""
struct Span { int begin, end; };
// The windows along dim d that read elements between two, and others that read about them.
__device__ __forceinline__ Span windows_having(const Window& w, int d, int from, int to)
{
    const int shift = from + w.padding[d] - (w.kernel[d] - 1) * w.dilation[d];
    const int end = (to + w.padding[d]) / w.stride[d] + 1;
    Span span;
    span.begin = shift <= 0 ? 0 : (shift + w.stride[d] - 1) / w.stride[d];
    span.end = end < w.outputs[d] ? end : w.outputs[d];
    return span;
}
// At which position of the kernel a window of those reads an element; below 0 for none.
__device__ __forceinline__ int position_in(const Window& w, int d, int output, int at)
{
    const int shift = at + w.padding[d] - output * w.stride[d];
    if (w.dilation[d] == 1) return shift;
    return shift % w.dilation[d] == 0 ? shift / w.dilation[d] : -1;
}
"""

PACKS = r"""
struct Spot { i64 place; int channel; };  // of a pack of channels that lie last
__device__ __forceinline__ Spot spot_of(i64 i, int packs)
{
    Spot s;
    if (i > 0x7fffffff) s.place = i / packs, s.channel = (int)(i % packs) * PACK;
    else s.place = (unsigned)i / (unsigned)packs, s.channel = (int)((unsigned)i % packs) * PACK;
    return s;
}
"""

_COLUMNS = r"""
__device__ __forceinline__ void read_column(
    const T* x, T* columns, const Window& w, i64 i, int channels, i64 per_image, i64 per_channel,
    i64 per_position)
{
    const Place o = place_in(i, w.outputs);
    const T* from = x + o.plane * w.size[0] * w.size[1] * w.size[2];
    T* to = columns + o.plane / channels * per_image + o.plane % channels * per_channel +
            offset_in(w.outputs, o.at[0], o.at[1], o.at[2]);
    FOR_KERNEL(w, k) {
        const int a = read_by(w, 0, o.at[0], k0), b = read_by(w, 1, o.at[1], k1);
        const int c = read_by(w, 2, o.at[2], k2);
        const bool inside = a >= 0 && b >= 0 && c >= 0;
        to[k * per_position] = inside ? from[offset_in(w.size, a, b, c)] : (T)0.0f;
    }
}
"""

_AXES = r"""
constexpr int NEAR = MODE == 0 ? 2 : MODE == 1 ? 1 : 4;
struct Axis {  // of one place: the pixels about it, below 0 for none; their weights, and how fast
    int at[NEAR];  // these change as the place does
    A weight[NEAR], slope[NEAR];
};
// A coordinate of pixels inside of the image, and `speed` times how fast it moves there.
__device__ __forceinline__ A inside(A x, int size, A& speed)
{
    if (PADDING == 0) return x;
    if (PADDING == 2) {
        const A low = ALIGNED ? A(0) : A(-0.5), span = ALIGNED ? (A)(size - 1) : (A)size;
        if (span == 0) {
            x = x * 0, speed = 0;
        } else {
            const A shift = x - low, away = shift < 0 ? -shift : shift;
            const A flips = floor(away / span), extra = away - flips * span;
            const bool turned = flips != 2 * floor(flips / 2);
            x = turned ? span - extra + low : extra + low;
            speed *= shift == 0 ? A(0) : (shift < 0) != turned ? A(-1) : A(1);
        }
    }
    if (!(x > 0) && x == x) x = 0, speed = 0;
    if (x >= (A)(size - 1)) x = (A)(size - 1), speed = 0;
    return x;
}
__device__ __forceinline__ int pixel(A x, int size)
{
    const bool is_there = x >= 0 && x <= (A)(size - 1);
    if (is_there) return (int)x;
    return PADDING == 0 ? -1 : x > 0 ? size - 1 : 0;
}
__device__ __forceinline__ A near_weight(A x)
{
    const A a = A(-0.75);
    return ((a + 2) * x - (a + 3)) * x * x + 1;
}
__device__ __forceinline__ A far_weight(A x)
{
    const A a = A(-0.75);
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}
__device__ __forceinline__ A near_slope(A x)
{
    const A a = A(-0.75);
    return (3 * (a + 2) * x - 2 * (a + 3)) * x;
}
__device__ __forceinline__ A far_slope(A x)
{
    const A a = A(-0.75);
    return (3 * a * x - 10 * a) * x + 8 * a;
}
__device__ __forceinline__ Axis axis_at(A place, int size)
{
    Axis r;
    A speed = ALIGNED ? (A)(size - 1) / 2 : (A)size / 2;
    A x = ALIGNED ? (place + 1) * speed : ((place + 1) * size - 1) * A(0.5);
    if (MODE != 2) x = inside(x, size, speed);
    if constexpr (MODE == 1) {
        r.at[0] = pixel(rint(x), size), r.weight[0] = 1, r.slope[0] = 0;
        return r;
    }
    const A low = floor(x), t = x - low;
    for (int k = 0; k < NEAR; ++k) {
        A y = low + (MODE == 2 ? k - 1 : k), still = 0;
        if (MODE == 2) y = inside(y, size, still);
        r.at[k] = pixel(y, size);
    }
    if constexpr (MODE == 0) {
        r.weight[0] = 1 - t, r.weight[1] = t;
        r.slope[0] = -speed, r.slope[1] = speed;
    }
    if constexpr (MODE == 2) {
        r.weight[0] = far_weight(t + 1), r.slope[0] = speed * far_slope(t + 1);
        r.weight[1] = near_weight(t), r.slope[1] = speed * near_slope(t);
        r.weight[2] = near_weight(1 - t), r.slope[2] = -speed * near_slope(1 - t);
        r.weight[3] = far_weight(2 - t), r.slope[3] = -speed * far_slope(2 - t);
    }
    return r;
}
// The axis before the other two; of two dims there is none, as if it had one pixel.
__device__ __forceinline__ Axis first_axis(const T* grid, i64 i, int size)
{
    if constexpr (DIMS == 3) return axis_at((A)grid[i * 3 + 2], size);
    Axis r;
    r.at[0] = 0, r.weight[0] = 1, r.slope[0] = 0;
    return r;
}
constexpr int FIRST = DIMS == 3 ? NEAR : 1;
"""

_GATHERED = r"""(
    const T* g, const W* indices, T* x, const Window w, i64 count)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Place p = place_in(i, w.size);
    const i64 first = p.plane * w.outputs[0] * w.outputs[1] * w.outputs[2];
    const i64 own = offset_in(w.size, p.at[0], p.at[1], p.at[2]);
    A sum = 0;
    for (int a = first_with(w, 0, p.at[0]); a < behind_last_with(w, 0, p.at[0]); ++a)
        for (int b = first_with(w, 1, p.at[1]); b < behind_last_with(w, 1, p.at[1]); ++b)
            for (int c = first_with(w, 2, p.at[2]); c < behind_last_with(w, 2, p.at[2]); ++c) {
                const i64 at = first + offset_in(w.outputs, a, b, c);
                if ((i64)indices[at] == own) sum += (A)g[at];
            }
    x[i] = (T)sum;
}
"""


def _gathered(name: str, cover: str, which: str = "with(") -> str:
    """The gradient of maxima, whose places are known: an element adds up that of windows there."""
    head = f'\nextern "C" __global__ void __launch_bounds__(256) {name}'
    return WINDOW + PART + cover + PART + head + _GATHERED.replace("with(", which)


KERNELS = {
    # What each output reads at each position of the kernel, 0 beyond the plane: element
    # (image, channel, position, output) of columns with these steps. Planes are (images, channels).
    "unfold": WINDOW + PART + _COLUMNS + PART + r"""
extern "C" __global__ void __launch_bounds__(256) unfold(
    const T* x, T* columns, const Window w, i64 count, int channels, i64 per_image,
    i64 per_channel, i64 per_position)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) read_column(x, columns, w, i, channels, per_image, per_channel, per_position);
}
""",
    # The same with the places of all images in a row of `width`, and slopes (images, outputs,
    # places) in such rows.
    "unfold_beside": WINDOW + PART + _COLUMNS + PART + r"""
extern "C" __global__ void __launch_bounds__(256) unfold_beside(
    const T* x, const T* slopes, T* columns, T* turned, const Window w, i64 count, i64 others,
    int channels, int outputs, i64 width)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, j = i - count;
    const i64 area = (i64)w.outputs[0] * w.outputs[1] * w.outputs[2];
    if (j < 0) {
        const i64 taps = (i64)w.kernel[0] * w.kernel[1] * w.kernel[2];
        read_column(x, columns, w, i, channels, area, taps * width, width);
    } else if (j < others) {
        const i64 plane = j / area;
        turned[plane % outputs * width + plane / outputs * area + j % area] = slopes[j];
    }
}
""",
    # The adjoint: each element of a plane is the sum of the columns that were read from it.
    "fold": WINDOW + PART + r"""
extern "C" __global__ void __launch_bounds__(256) fold(
    const T* columns, T* x, const Window w, i64 count, int channels, i64 per_image,
    i64 per_channel, i64 per_position)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Place p = place_in(i, w.size);
    const T* from = columns + p.plane / channels * per_image + p.plane % channels * per_channel;
    A sum = 0;
    FOR_KERNEL(w, k) {
        const int a = window_of(w, 0, p.at[0], k0), b = window_of(w, 1, p.at[1], k1);
        const int c = window_of(w, 2, p.at[2], k2);
        if (a >= 0 && b >= 0 && c >= 0)
            sum += (A)from[k * per_position + offset_in(w.outputs, a, b, c)];
    }
    x[i] = (T)sum;
}
""",
    # A convolution in which each output channel reads one input channel, as `times` others do.
    "depthwise": WINDOW + PART + r"""
extern "C" __global__ void __launch_bounds__(256) depthwise(
    const T* x, const T* weight, const T* bias, T* y, const Window w, i64 count, int channels,
    int times, int has_bias)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Place o = place_in(i, w.outputs);
    const int channel = (int)(o.plane % channels);
    const T* from = x + o.plane / times * w.size[0] * w.size[1] * w.size[2];
    const T* factors = weight + (i64)channel * w.kernel[0] * w.kernel[1] * w.kernel[2];
    A sum = has_bias ? (A)bias[channel] : A(0);
    FOR_KERNEL(w, k) {
        const int a = read_by(w, 0, o.at[0], k0), b = read_by(w, 1, o.at[1], k1);
        const int c = read_by(w, 2, o.at[2], k2);
        if (a >= 0 && b >= 0 && c >= 0) sum += (A)factors[k] * (A)from[offset_in(w.size, a, b, c)];
    }
    y[i] = (T)sum;
}
""",
    # The same of channels that lie last: a thread has a pack of them, of one if `times` is more.
    "depthwise_last": WINDOW + PART + PACKS + PART + r"""
extern "C" __global__ void __launch_bounds__(256) depthwise_last(
    const T* x, const T* weight, const T* bias, T* y, const Window w, i64 count, int packs,
    int times, int has_bias)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Spot s = spot_of(i, packs);
    const Place o = place_in(s.place, w.outputs);
    const int inputs = packs * PACK / times, taps = w.kernel[0] * w.kernel[1] * w.kernel[2];
    const T* from = x + o.plane * w.size[0] * w.size[1] * w.size[2] * inputs + s.channel / times;
    const T* factors = weight + (i64)s.channel * taps;
    A sums[PACK];
    for (int e = 0; e < PACK; ++e) sums[e] = has_bias ? (A)bias[s.channel + e] : A(0);
    FOR_KERNEL(w, k) {
        const int a = read_by(w, 0, o.at[0], k0), b = read_by(w, 1, o.at[1], k1);
        const int c = read_by(w, 2, o.at[2], k2);
        if (a < 0 || b < 0 || c < 0) continue;
        const Pack<T, PACK> values = load(from + offset_in(w.size, a, b, c) * inputs);
        for (int e = 0; e < PACK; ++e) sums[e] += (A)factors[e * taps + k] * (A)values.at[e];
    }
    Pack<T, PACK> result;
    for (int e = 0; e < PACK; ++e) result.at[e] = (T)sums[e];
    save(y + i * PACK, result);
}
""",
    # Its adjoint in the input.
    "depthwise_input": WINDOW + PART + r"""
extern "C" __global__ void __launch_bounds__(256) depthwise_input(
    const T* g, const T* weight, T* x, const Window w, i64 count, int channels, int times)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Place p = place_in(i, w.size);
    const i64 area = (i64)w.outputs[0] * w.outputs[1] * w.outputs[2];
    const int taps = w.kernel[0] * w.kernel[1] * w.kernel[2];
    A sum = 0;
    for (int j = 0; j < times; ++j) {
        const T* from = g + (p.plane * times + j) * area;
        const T* factors = weight + (p.plane % channels * times + j) * taps;
        FOR_KERNEL(w, k) {
            const int a = window_of(w, 0, p.at[0], k0), b = window_of(w, 1, p.at[1], k1);
            const int c = window_of(w, 2, p.at[2], k2);
            if (a >= 0 && b >= 0 && c >= 0)
                sum += (A)factors[k] * (A)from[offset_in(w.outputs, a, b, c)];
        }
    }
    x[i] = (T)sum;
}
""",
    "depthwise_input_last": WINDOW + PART + PACKS + PART + r"""
extern "C" __global__ void __launch_bounds__(256) depthwise_input_last(
    const T* g, const T* weight, T* x, const Window w, i64 count, int packs, int times)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Spot s = spot_of(i, packs);
    const Place p = place_in(s.place, w.size);
    const int outputs = packs * PACK * times, taps = w.kernel[0] * w.kernel[1] * w.kernel[2];
    const T* from = g + p.plane * w.outputs[0] * w.outputs[1] * w.outputs[2] * outputs;
    A sums[PACK];
    for (int e = 0; e < PACK; ++e) sums[e] = 0;
    for (int j = 0; j < times; ++j) {
        const i64 channel = (i64)s.channel * times + j;
        const T* factors = weight + channel * taps;
        FOR_KERNEL(w, k) {
            const int a = window_of(w, 0, p.at[0], k0), b = window_of(w, 1, p.at[1], k1);
            const int c = window_of(w, 2, p.at[2], k2);
            if (a < 0 || b < 0 || c < 0) continue;
            const Pack<T, PACK> slopes =
                load(from + offset_in(w.outputs, a, b, c) * outputs + channel);
            for (int e = 0; e < PACK; ++e) sums[e] += (A)factors[e * taps + k] * (A)slopes.at[e];
        }
    }
    Pack<T, PACK> result;
    for (int e = 0; e < PACK; ++e) result.at[e] = (T)sums[e];
    save(x + i * PACK, result);
}
""",
    # Its adjoint in the weight: a block for each position of the kernel of each channel.
    "depthwise_weight": WINDOW + PART + r"""
extern "C" __global__ void __launch_bounds__(256) depthwise_weight(
    const T* g, const T* x, T* result, const Window w, int images, int channels, int times)
{
    const int taps = w.kernel[0] * w.kernel[1] * w.kernel[2];
    const int channel = blockIdx.x / taps, tap = blockIdx.x % taps;
    const int k2 = tap % w.kernel[2], k1 = tap / w.kernel[2] % w.kernel[1];
    const int k0 = tap / w.kernel[2] / w.kernel[1];
    const i64 area = (i64)w.outputs[0] * w.outputs[1] * w.outputs[2];
    const i64 size = (i64)w.size[0] * w.size[1] * w.size[2];
    A sum = 0;
    for (i64 e = threadIdx.x; e < images * area; e += blockDim.x) {
        const Place o = place_in(e, w.outputs);  // its plane is the image
        const int a = read_by(w, 0, o.at[0], k0), b = read_by(w, 1, o.at[1], k1);
        const int c = read_by(w, 2, o.at[2], k2);
        if (a < 0 || b < 0 || c < 0) continue;
        const T* from = x + (o.plane * (channels / times) + channel / times) * size;
        const T* slope = g + (o.plane * channels + channel) * area;
        sum += (A)from[offset_in(w.size, a, b, c)] *
               (A)slope[offset_in(w.outputs, o.at[0], o.at[1], o.at[2])];
    }
    sum = of_team(sum, blockDim.x, Sum());
    if (threadIdx.x == 0) result[blockIdx.x] = (T)sum;
}
""",
    # The same of channels that lie last: a block has 32 of them, in 8 lines, and `part` places.
    "depthwise_weight_last": WINDOW + PART + r"""
extern "C" __global__ void __launch_bounds__(256) depthwise_weight_last(
    const T* g, const T* x, T* result, A* partial, unsigned* tickets, const Window w, i64 places,
    i64 part, int channels, int times)
{
    const int taps = w.kernel[0] * w.kernel[1] * w.kernel[2], line = threadIdx.x / 32;
    const int channel = blockIdx.x / taps * 32 + threadIdx.x % 32, tap = blockIdx.x % taps;
    const int k2 = tap % w.kernel[2], k1 = tap / w.kernel[2] % w.kernel[1];
    const int k0 = tap / w.kernel[2] / w.kernel[1];
    const i64 size = (i64)w.size[0] * w.size[1] * w.size[2], first = blockIdx.y * part;
    const i64 end = channel >= channels ? 0 : places - first < part ? places : first + part;
    A sum = 0;
    for (i64 e = first + line; e < end; e += 8) {
        const Place o = place_in(e, w.outputs);  // its plane is the image
        const int a = read_by(w, 0, o.at[0], k0), b = read_by(w, 1, o.at[1], k1);
        const int c = read_by(w, 2, o.at[2], k2);
        if (a < 0 || b < 0 || c < 0) continue;
        const i64 at = o.plane * size + offset_in(w.size, a, b, c);
        sum += (A)x[at * (channels / times) + channel / times] * (A)g[e * channels + channel];
    }
    sum = of_lines(sum, Sum());
    const i64 place = (i64)channel * taps + tap, all = (i64)channels * taps;
    if (gridDim.y > 1) {
        if (line == 0 && channel < channels) partial[blockIdx.y * all + place] = sum;
        if (!comes_last(tickets + blockIdx.x, gridDim.y)) return;
        sum = 0;
        if (channel < channels)
            for (int k = line; k < (int)gridDim.y; k += 8)
                sum += ((const volatile A*)partial)[k * all + place];
        sum = of_lines(sum, Sum());
    }
    if (line == 0 && channel < channels) result[place] = (T)sum;
}
""",
    # The largest element of each window, and its number in the window: the first of equals, and
    # the last nan, which is larger than all.
    "max_pool": WINDOW + PART + r"""
extern "C" __global__ void __launch_bounds__(256) max_pool(
    const T* x, T* y, W* offsets, const Window w, i64 count)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Place o = place_in(i, w.outputs);
    const T* from = x + o.plane * w.size[0] * w.size[1] * w.size[2];
    A best = 0;
    int number = -1;
    FOR_KERNEL(w, k) {
        const int a = read_by(w, 0, o.at[0], k0), b = read_by(w, 1, o.at[1], k1);
        const int c = read_by(w, 2, o.at[2], k2);
        if (a < 0 || b < 0 || c < 0) continue;
        const A v = (A)from[offset_in(w.size, a, b, c)];
        if (number < 0 || v > best || v != v) best = v, number = k;
    }
    y[i] = (T)best;
    offsets[i] = (W)number;
}
""",
    # The same of channels that lie last: a thread has a pack of them.
    "max_pool_last": WINDOW + PART + PACKS + PART + r"""
extern "C" __global__ void __launch_bounds__(256) max_pool_last(
    const T* x, T* y, W* offsets, const Window w, i64 count, int packs)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Spot s = spot_of(i, packs);
    const Place o = place_in(s.place, w.outputs);
    const int channels = packs * PACK;
    const T* from = x + o.plane * w.size[0] * w.size[1] * w.size[2] * channels + s.channel;
    A best[PACK];
    int number[PACK];
    for (int e = 0; e < PACK; ++e) best[e] = 0, number[e] = -1;
    FOR_KERNEL(w, k) {
        const int a = read_by(w, 0, o.at[0], k0), b = read_by(w, 1, o.at[1], k1);
        const int c = read_by(w, 2, o.at[2], k2);
        if (a < 0 || b < 0 || c < 0) continue;
        const Pack<T, PACK> values = load(from + offset_in(w.size, a, b, c) * channels);
        for (int e = 0; e < PACK; ++e) {
            const A v = (A)values.at[e];
            if (number[e] < 0 || v > best[e] || v != v) best[e] = v, number[e] = k;
        }
    }
    Pack<T, PACK> most;
    Pack<W, PACK> places;
    for (int e = 0; e < PACK; ++e) most.at[e] = (T)best[e], places.at[e] = (W)number[e];
    save(y + i * PACK, most);
    save(offsets + i * PACK, places);
}
""",
    # A thread has a pack of neighbours in a row, and looks at the windows that one of them lies in.
    "max_pool_backward": WINDOW + PART + _HAVING + PART + r"""
extern "C" __global__ void __launch_bounds__(256) max_pool_backward(
    const T* g, const W* offsets, T* x, const Window w, i64 count)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const int packs[3] = {w.size[0], w.size[1], w.size[2] / PACK};
    const Place p = place_in(i, packs);
    const int c = p.at[2] * PACK;
    const i64 first = p.plane * w.outputs[0] * w.outputs[1] * w.outputs[2];
    const Span s0 = windows_having(w, 0, p.at[0], p.at[0]);
    const Span s1 = windows_having(w, 1, p.at[1], p.at[1]);
    const Span s2 = windows_having(w, 2, c, c + PACK - 1);
    A sums[PACK];
    for (int e = 0; e < PACK; ++e) sums[e] = 0;
    for (int oa = s0.begin; oa < s0.end; ++oa) {
        const int k0 = position_in(w, 0, oa, p.at[0]);
        for (int ob = s1.begin; ob < s1.end; ++ob) {
            const int k1 = position_in(w, 1, ob, p.at[1]);
            if (k0 < 0 || k1 < 0) continue;
            const i64 row = first + offset_in(w.outputs, oa, ob, 0);
            for (int oc = s2.begin; oc < s2.end; ++oc) {
                const int k2 = (int)offsets[row + oc] - (k0 * w.kernel[1] + k1) * w.kernel[2];
                const A slope = (A)g[row + oc];
                const bool here = k2 >= 0 && k2 < w.kernel[2];
                const int at = oc * w.stride[2] - w.padding[2] + k2 * w.dilation[2] - c;
                for (int e = 0; e < PACK; ++e) sums[e] += here && at == e ? slope : A(0);
            }
        }
    }
    Pack<T, PACK> result;
    for (int e = 0; e < PACK; ++e) result.at[e] = (T)sums[e];
    save(x + i * PACK, result);
}
""",
    "max_pool_backward_last": WINDOW + PART + PACKS + PART + _HAVING + PART + r"""
extern "C" __global__ void __launch_bounds__(256, 4) max_pool_backward_last(
    const T* g, const W* offsets, T* x, const Window w, i64 count, int packs)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Spot s = spot_of(i, packs);
    const Place p = place_in(s.place, w.size);
    const int channels = packs * PACK;
    const i64 first = p.plane * w.outputs[0] * w.outputs[1] * w.outputs[2];
    const Span s0 = windows_having(w, 0, p.at[0], p.at[0]);
    const Span s1 = windows_having(w, 1, p.at[1], p.at[1]);
    const Span s2 = windows_having(w, 2, p.at[2], p.at[2]);
    A sums[PACK];
    for (int e = 0; e < PACK; ++e) sums[e] = 0;
    for (int oa = s0.begin; oa < s0.end; ++oa)
        for (int ob = s1.begin; ob < s1.end; ++ob)
            for (int oc = s2.begin; oc < s2.end; ++oc) {
                const int k0 = position_in(w, 0, oa, p.at[0]);
                const int k1 = position_in(w, 1, ob, p.at[1]);
                const int k2 = position_in(w, 2, oc, p.at[2]);
                if (k0 < 0 || k1 < 0 || k2 < 0) continue;
                const int k = (k0 * w.kernel[1] + k1) * w.kernel[2] + k2;
                const i64 at = (first + offset_in(w.outputs, oa, ob, oc)) * channels + s.channel;
                const Pack<W, PACK> numbers = load(offsets + at);
                const Pack<T, PACK> slopes = load(g + at);
                for (int e = 0; e < PACK; ++e)
                    sums[e] += (int)numbers.at[e] == k ? (A)slopes.at[e] : A(0);
            }
    Pack<T, PACK> result;
    for (int e = 0; e < PACK; ++e) result.at[e] = (T)sums[e];
    save(x + i * PACK, result);
}
""",
    # The same of windows that cover the plane, and where in it the maxima lie.
    "adaptive_max_pool": WINDOW + PART + _COVER + PART + r"""
extern "C" __global__ void __launch_bounds__(256) adaptive_max_pool(
    const T* x, T* y, W* indices, const Window w, i64 count)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Place o = place_in(i, w.outputs);
    const T* from = x + o.plane * w.size[0] * w.size[1] * w.size[2];
    A best = 0;
    i64 place = -1;
    for (int a = begin_of(w, 0, o.at[0]); a < end_of(w, 0, o.at[0]); ++a)
        for (int b = begin_of(w, 1, o.at[1]); b < end_of(w, 1, o.at[1]); ++b)
            for (int c = begin_of(w, 2, o.at[2]); c < end_of(w, 2, o.at[2]); ++c) {
                const i64 at = offset_in(w.size, a, b, c);
                const A v = (A)from[at];
                if (place < 0 || v > best || (v != v && best == best)) best = v, place = at;
            }
    y[i] = (T)best;
    indices[i] = (W)place;
}
""",
    # The same of windows of one size, at drawn places: of two dims the first number is the last's.
    "fractional_max_pool": WINDOW + PART + _FRACTION + PART + r"""
extern "C" __global__ void __launch_bounds__(256) fractional_max_pool(
    const T* x, const Drawn* drawn, T* y, W* indices, const Window w, i64 count, int dims)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Place o = place_in(i, w.outputs);
    const T* from = x + o.plane * w.size[0] * w.size[1] * w.size[2];
    int begin[3];
    for (int d = 0; d < 3; ++d) {
        const int k = d - 3 + dims, number = dims == 2 ? 1 - k : k;
        begin[d] = k < 0 ? 0 : begin_of(w, d, o.at[d], drawn[o.plane * dims + number]);
    }
    A best = 0;
    i64 place = -1;
    FOR_KERNEL(w, k) {
        const i64 at = offset_in(w.size, begin[0] + k0, begin[1] + k1, begin[2] + k2);
        const A v = (A)from[at];
        if (place < 0 || v > best || (v != v && best == best)) best = v, place = at;
    }
    y[i] = (T)best;
    indices[i] = (W)place;
}
""",
    "adaptive_max_pool_backward": _gathered("adaptive_max_pool_backward", _COVER),
    "fractional_max_pool_backward": _gathered("fractional_max_pool_backward", _FRACTION, "about("),
    # `given`, if not 0, is what sums are divided by; else the number of elements, see divisor_of.
    "avg_pool": WINDOW + PART + _DIVISOR + PART + r"""
extern "C" __global__ void __launch_bounds__(256) avg_pool(
    const T* x, T* y, const Window w, i64 count, int inside, int given)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Place o = place_in(i, w.outputs);
    const T* from = x + o.plane * w.size[0] * w.size[1] * w.size[2];
    A sum = 0;
    FOR_KERNEL(w, k) {
        const int a = read_by(w, 0, o.at[0], k0), b = read_by(w, 1, o.at[1], k1);
        const int c = read_by(w, 2, o.at[2], k2);
        if (a >= 0 && b >= 0 && c >= 0) sum += (A)from[offset_in(w.size, a, b, c)];
    }
    y[i] = (T)(sum / divisor_of(w, o.at[0], o.at[1], o.at[2], inside, given));
}
""",
    "avg_pool_backward": WINDOW + PART + _DIVISOR + PART + r"""
extern "C" __global__ void __launch_bounds__(256) avg_pool_backward(
    const T* g, T* x, const Window w, i64 count, int inside, int given)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Place p = place_in(i, w.size);
    const T* from = g + p.plane * w.outputs[0] * w.outputs[1] * w.outputs[2];
    A sum = 0;
    FOR_KERNEL(w, k) {
        const int a = window_of(w, 0, p.at[0], k0), b = window_of(w, 1, p.at[1], k1);
        const int c = window_of(w, 2, p.at[2], k2);
        if (a >= 0 && b >= 0 && c >= 0)
            sum += (A)from[offset_in(w.outputs, a, b, c)] / divisor_of(w, a, b, c, inside, given);
    }
    x[i] = (T)sum;
}
""",
    # Both of channels that lie last: a thread has a pack of them.
    "avg_pool_last": WINDOW + PART + PACKS + PART + _DIVISOR + PART + r"""
extern "C" __global__ void __launch_bounds__(256) avg_pool_last(
    const T* x, T* y, const Window w, i64 count, int packs, int inside, int given)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Spot s = spot_of(i, packs);
    const Place o = place_in(s.place, w.outputs);
    const int channels = packs * PACK;
    const T* from = x + o.plane * w.size[0] * w.size[1] * w.size[2] * channels + s.channel;
    A sums[PACK];
    for (int e = 0; e < PACK; ++e) sums[e] = 0;
    FOR_KERNEL(w, k) {
        const int a = read_by(w, 0, o.at[0], k0), b = read_by(w, 1, o.at[1], k1);
        const int c = read_by(w, 2, o.at[2], k2);
        if (a < 0 || b < 0 || c < 0) continue;
        const Pack<T, PACK> values = load(from + offset_in(w.size, a, b, c) * channels);
        for (int e = 0; e < PACK; ++e) sums[e] += (A)values.at[e];
    }
    const A divisor = divisor_of(w, o.at[0], o.at[1], o.at[2], inside, given);
    Pack<T, PACK> result;
    for (int e = 0; e < PACK; ++e) result.at[e] = (T)(sums[e] / divisor);
    save(y + i * PACK, result);
}
""",
    "avg_pool_backward_last": WINDOW + PART + PACKS + PART + _DIVISOR + PART + r"""
extern "C" __global__ void __launch_bounds__(256) avg_pool_backward_last(
    const T* g, T* x, const Window w, i64 count, int packs, int inside, int given)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Spot s = spot_of(i, packs);
    const Place p = place_in(s.place, w.size);
    const int channels = packs * PACK;
    const T* from = g + p.plane * w.outputs[0] * w.outputs[1] * w.outputs[2] * channels + s.channel;
    A sums[PACK];
    for (int e = 0; e < PACK; ++e) sums[e] = 0;
    FOR_KERNEL(w, k) {
        const int a = window_of(w, 0, p.at[0], k0), b = window_of(w, 1, p.at[1], k1);
        const int c = window_of(w, 2, p.at[2], k2);
        if (a < 0 || b < 0 || c < 0) continue;
        const Pack<T, PACK> slopes = load(from + offset_in(w.outputs, a, b, c) * channels);
        const A divisor = divisor_of(w, a, b, c, inside, given);
        for (int e = 0; e < PACK; ++e) sums[e] += (A)slopes.at[e] / divisor;
    }
    Pack<T, PACK> result;
    for (int e = 0; e < PACK; ++e) result.at[e] = (T)sums[e];
    save(x + i * PACK, result);
}
""",
    # y, (images, channels, places), of images x, (images, channels, size0, size1, size2), at the
    # places of each: a thread has one of them, in EACH channels.
    "sample_grid": _AXES + PART + r"""
extern "C" __global__ void __launch_bounds__(256) sample_grid(
    const T* x, const T* grid, T* y, i64 count, i64 places, int channels, int size0, int size1,
    int size2)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Axis a = first_axis(grid, i, size0);
    const Axis b = axis_at((A)grid[i * DIMS + 1], size1), c = axis_at((A)grid[i * DIMS], size2);
    const i64 area = (i64)size0 * size1 * size2, image = i / places;
    const int start = blockIdx.y * EACH;
    const int end = channels - start < EACH ? channels : start + EACH;
    for (int channel = start; channel < end; ++channel) {
        const T* from = x + (image * channels + channel) * area;
        A total = 0;
        for (int ka = 0; ka < FIRST; ++ka)
            for (int kb = 0; kb < NEAR; ++kb) {
                A sum = 0;
                if (a.at[ka] >= 0 && b.at[kb] >= 0) {
                    const T* row = from + ((i64)a.at[ka] * size1 + b.at[kb]) * size2;
                    for (int kc = 0; kc < NEAR; ++kc)
                        sum += (c.at[kc] >= 0 ? (A)row[c.at[kc]] : A(0)) * c.weight[kc];
                }
                total += sum * b.weight[kb] * a.weight[ka];
            }
        y[(image * channels + channel) * places + i % places] = (T)total;
    }
}
""",
    # Gradients: those of the images, which are added up in any order, and those of the grid.
    "sample_grid_backward": _AXES + PART + r"""
extern "C" __global__ void __launch_bounds__(256) sample_grid_backward(
    const T* g, const T* x, const T* grid, A* of_x, T* of_grid, i64 count, i64 places,
    int channels, int size0, int size1, int size2)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Axis a = first_axis(grid, i, size0);
    const Axis b = axis_at((A)grid[i * DIMS + 1], size1), c = axis_at((A)grid[i * DIMS], size2);
    const i64 area = (i64)size0 * size1 * size2, image = i / places;
    A slope_a = 0, slope_b = 0, slope_c = 0;
    for (int channel = 0; channel < channels; ++channel) {
        const i64 plane = image * channels + channel;
        const A slope = (A)g[plane * places + i % places];
        for (int ka = 0; ka < FIRST; ++ka)
            for (int kb = 0; kb < NEAR; ++kb) {
                if (a.at[ka] < 0 || b.at[kb] < 0) continue;
                const i64 row = plane * area + ((i64)a.at[ka] * size1 + b.at[kb]) * size2;
                A sum = 0, turn = 0;
                for (int kc = 0; kc < NEAR; ++kc) {
                    if (c.at[kc] < 0) continue;
                    const i64 at = row + c.at[kc];
                    if (of_x)
                        atomicAdd(of_x + at, slope * a.weight[ka] * b.weight[kb] * c.weight[kc]);
                    if (of_grid && MODE != 1) {
                        const A value = (A)x[at];
                        sum += value * c.weight[kc], turn += value * c.slope[kc];
                    }
                }
                slope_a += slope * sum * a.slope[ka] * b.weight[kb];
                slope_b += slope * sum * a.weight[ka] * b.slope[kb];
                slope_c += slope * turn * a.weight[ka] * b.weight[kb];
            }
    }
    if (!of_grid) return;
    of_grid[i * DIMS] = (T)slope_c, of_grid[i * DIMS + 1] = (T)slope_b;
    if (DIMS == 3) of_grid[i * DIMS + 2] = (T)slope_a;
}
""",
    # Sums, rounded.
    "round_sums": r"""
extern "C" __global__ void __launch_bounds__(256) round_sums(const A* sums, T* y, i64 size)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) y[i] = (T)sums[i];
}
""",
    # Columns of channels that lie last: a row of them is what one output reads, the channels at
    # each position behind one another, 0 beyond the plane.
    "unfold_last": WINDOW + PART + PACKS + PART + r"""
extern "C" __global__ void __launch_bounds__(256) unfold_last(
    const T* x, T* columns, const Window w, i64 count, int packs)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Spot s = spot_of(i, packs);
    const int taps = w.kernel[0] * w.kernel[1] * w.kernel[2], channels = packs * PACK;
    int k = (int)(s.place % taps);
    const Place o = place_in(s.place / taps, w.outputs);
    const int c = read_by(w, 2, o.at[2], k % w.kernel[2]);
    k /= w.kernel[2];
    const int b = read_by(w, 1, o.at[1], k % w.kernel[1]);
    const int a = read_by(w, 0, o.at[0], k / w.kernel[1]);
    Pack<T, PACK> values;
    if (a >= 0 && b >= 0 && c >= 0)
        values = load(x + (o.plane * w.size[0] * w.size[1] * w.size[2] +
                           offset_in(w.size, a, b, c)) * channels + s.channel);
    else
        for (int e = 0; e < PACK; ++e) values.at[e] = (T)0.0f;
    save(columns + i * PACK, values);
}
""",
    # Each element of x is the sum of the columns that were read from it.
    "fold_last": WINDOW + PART + PACKS + PART + r"""
extern "C" __global__ void __launch_bounds__(256) fold_last(
    const T* columns, T* x, const Window w, i64 count, int packs)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Spot s = spot_of(i, packs);
    const Place p = place_in(s.place, w.size);
    const i64 first = p.plane * w.outputs[0] * w.outputs[1] * w.outputs[2];
    const int taps = w.kernel[0] * w.kernel[1] * w.kernel[2], channels = packs * PACK;
    A sums[PACK];
    for (int e = 0; e < PACK; ++e) sums[e] = 0;
    FOR_KERNEL(w, k) {
        const int a = window_of(w, 0, p.at[0], k0), b = window_of(w, 1, p.at[1], k1);
        const int c = window_of(w, 2, p.at[2], k2);
        if (a < 0 || b < 0 || c < 0) continue;
        const i64 row = (first + offset_in(w.outputs, a, b, c)) * taps + k;
        const Pack<T, PACK> values = load(columns + row * channels + s.channel);
        for (int e = 0; e < PACK; ++e) sums[e] += (A)values.at[e];
    }
    Pack<T, PACK> result;
    for (int e = 0; e < PACK; ++e) result.at[e] = (T)sums[e];
    save(x + i * PACK, result);
}
""",
}  # fmt: skip
NAMES = tuple(KERNELS)
SOURCE = whole(KERNELS, MODE=0, PADDING=0, ALIGNED=0, DIMS=2, EACH=8, DRAWN=4)
