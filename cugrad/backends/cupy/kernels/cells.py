"""Kernels of a step of a recurrent layer: what `cugrad/nn/recurrent/scans.py` computes element for
element, beside the products of matrices. A thread has one number of a state, and its gates.
"""

from __future__ import annotations

from . import PART, whole

__all__ = ["KERNELS", "NAMES", "SOURCE"]

_GATE = r"""
__device__ __forceinline__ A sigmoid(A x) { return (tanh(x * A(0.5)) + 1) * A(0.5); }
__device__ __forceinline__ A added(const T* bias, i64 k) { return bias ? (A)bias[k] : A(0); }
"""

KERNELS = {
    "lstm_step": _GATE + PART + r"""
extern "C" __global__ void __launch_bounds__(256) lstm_step(
    T* gate, const T* add, const T* b_ih, const T* b_hh, const T* c, T* cell, T* shown, i64 size,
    int n)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const i64 at = i / n * 4 * n + i % n, m = n, k = i % n;
    A sums[4];
    for (int p = 0; p < 4; ++p)
        sums[p] = (A)gate[at + p * m] + (A)add[at + p * m] + added(b_ih, k + p * m) +
                  added(b_hh, k + p * m);
    const A in = sigmoid(sums[0]), forget = sigmoid(sums[1]), now = tanh(sums[2]);
    const A out = sigmoid(sums[3]), state = forget * (A)c[i] + in * now;
    gate[at] = (T)in, gate[at + m] = (T)forget, gate[at + 2 * m] = (T)now;
    gate[at + 3 * m] = (T)out;
    cell[i] = (T)state;
    shown[i] = (T)(out * tanh(state));
}
""",
    "lstm_slopes": r"""
extern "C" __global__ void __launch_bounds__(256) lstm_slopes(
    const T* gates, const T* cells, const T* before, T* d, T* into_cell, T* hidden, i64 size,
    int n)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const i64 at = i / n * 4 * n + i % n, m = n;
    const A in = (A)gates[at], forget = (A)gates[at + m], now = (A)gates[at + 2 * m];
    const A out = (A)gates[at + 3 * m], bent = tanh((A)cells[i]);
    d[at] = (T)((1 - in) * (in * now));
    d[at + m] = (T)((1 - forget) * forget * (A)before[i]);
    d[at + 2 * m] = (T)((1 - now) * ((1 + now) * in));
    d[at + 3 * m] = (T)((1 - out) * (out * bent));
    into_cell[i] = (T)(out - out * bent * bent);
    hidden[i] = (T)(out * bent);
}
""",
    "lstm_back": r"""
extern "C" __global__ void __launch_bounds__(256) lstm_back(
    T* d, T* cell, const T* now, const T* slopes, const T* into_cell, const T* gate, i64 size,
    int n)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const i64 at = i / n * 4 * n + i % n, m = n;
    const A slope = (A)now[i] + (slopes ? (A)slopes[i] : A(0));
    const A total = (A)cell[i] + slope * (A)into_cell[i];
    for (int k = 0; k < 3; ++k) d[at + k * m] = (T)((A)d[at + k * m] * total);
    d[at + 3 * m] = (T)((A)d[at + 3 * m] * slope);
    cell[i] = (T)(total * (A)gate[at + m]);
}
""",
    "gru_step": _GATE + PART + r"""
extern "C" __global__ void __launch_bounds__(256) gru_step(
    T* gate, const T* add, const T* b_ih, const T* b_hh, T* turned, const T* h, T* result,
    i64 size, int n)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const i64 at = i / n * 3 * n + i % n, m = n, k = i % n;
    A sums[2];
    for (int p = 0; p < 2; ++p)
        sums[p] = (A)gate[at + p * m] + (A)add[at + p * m] + added(b_ih, k + p * m) +
                  added(b_hh, k + p * m);
    const A reset = sigmoid(sums[0]), keep = sigmoid(sums[1]);
    const A through = (A)add[at + 2 * m] + added(b_hh, k + 2 * m);
    const A now = tanh((A)gate[at + 2 * m] + added(b_ih, k + 2 * m) + reset * through);
    gate[at] = (T)reset, gate[at + m] = (T)keep, gate[at + 2 * m] = (T)now;
    turned[i] = (T)through;
    result[i] = (T)(((A)h[i] - now) * keep + now);
}
""",
    "gru_slopes": r"""
extern "C" __global__ void __launch_bounds__(256) gru_slopes(
    const T* gates, const T* turned, const T* before, T* d, T* into_new, i64 size, int n)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const i64 at = i / n * 3 * n + i % n, m = n;
    const A reset = (A)gates[at], keep = (A)gates[at + m], now = (A)gates[at + 2 * m];
    const A slope = (1 - keep) * (1 - now * now);
    d[at] = (T)(slope * (A)turned[i] * reset * (1 - reset));
    d[at + m] = (T)(((A)before[i] - now) * keep * (1 - keep));
    d[at + 2 * m] = (T)(slope * reset);
    into_new[i] = (T)slope;
}
""",
    "gru_back": r"""
extern "C" __global__ void __launch_bounds__(256) gru_back(
    T* d, T* into_new, T* now, const T* through, const T* slopes, const T* gate, i64 size, int n)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const i64 at = i / n * 3 * n + i % n, m = n;
    const A slope = (A)now[i] + (through ? (A)through[i] : A(0)) + (A)slopes[i];
    for (int k = 0; k < 3; ++k) d[at + k * m] = (T)((A)d[at + k * m] * slope);
    into_new[i] = (T)((A)into_new[i] * slope);
    now[i] = (T)(slope * (A)gate[at + m]);
}
""",
}  # fmt: skip
NAMES = tuple(KERNELS)
SOURCE = whole(KERNELS)
