"""Kernels of a step of a recurrent layer: what `cugrad/nn/recurrent/scans.py` computes element for
element, beside the products of matrices. A thread has one number of a state, and its gates.
"""

from __future__ import annotations

from . import PART, whole

__all__ = ["KERNELS", "NAMES", "SOURCE"]

_GATE = r"""
__device__ __forceinline__ A sigmoid_of_twice(A x) { return (tanh(x) + 1) * A(0.5); }
"""

KERNELS = {
    "lstm_step": _GATE + PART + r"""
extern "C" __global__ void __launch_bounds__(256) lstm_step(
    T* gate, const T* add, const T* c, T* cell, T* shown, i64 size, int n)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const i64 at = i / n * 4 * n + i % n, m = n;
    const A in = sigmoid_of_twice((A)gate[at] + (A)add[at]);
    const A forget = sigmoid_of_twice((A)gate[at + m] + (A)add[at + m]);
    const A now = tanh((A)gate[at + 2 * m] + (A)add[at + 2 * m]);
    const A out = sigmoid_of_twice((A)gate[at + 3 * m] + (A)add[at + 3 * m]);
    const A state = forget * (A)c[i] + in * now;
    gate[at] = (T)in, gate[at + m] = (T)forget, gate[at + 2 * m] = (T)now;
    gate[at + 3 * m] = (T)out;
    cell[i] = (T)state;
    shown[i] = (T)(out * tanh(state));
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
    T* gate, const T* add, const T* bias, T* turned, const T* h, T* result, i64 size, int n)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const i64 at = i / n * 3 * n + i % n, m = n;
    const A reset = sigmoid_of_twice((A)gate[at] + (A)add[at]);
    const A keep = sigmoid_of_twice((A)gate[at + m] + (A)add[at + m]);
    const A through = (A)add[at + 2 * m] + (bias ? (A)bias[i % n] : A(0));
    const A now = tanh((A)gate[at + 2 * m] + reset * through);
    gate[at] = (T)reset, gate[at + m] = (T)keep, gate[at + 2 * m] = (T)now;
    turned[i] = (T)through;
    result[i] = (T)(((A)h[i] - now) * keep + now);
}
""",
    "gru_back": r"""
extern "C" __global__ void __launch_bounds__(256) gru_back(
    T* d, T* into_new, T* now, const T* slopes, const T* gate, i64 size, int n)
{
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const i64 at = i / n * 3 * n + i % n, m = n;
    const A slope = (A)now[i] + (A)slopes[i];
    for (int k = 0; k < 3; ++k) d[at + k * m] = (T)((A)d[at + k * m] * slope);
    into_new[i] = (T)((A)into_new[i] * slope);
    now[i] = (T)(slope * (A)gate[at + m]);
}
""",
}  # fmt: skip
NAMES = tuple(KERNELS)
SOURCE = whole(KERNELS)
