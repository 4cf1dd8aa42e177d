"""Kernels of ctc_loss: the forward recursion over time, and the backward one with the gradients.

A block has a sequence, and its threads the states of the labels: blanks, and labels between them.
`table` has for each sequence how many steps and labels it has, and where its labels begin.
"""

from __future__ import annotations

from . import PART, whole

__all__ = ["KERNELS", "NAMES", "SOURCE"]

_STATES = r"""
__device__ __forceinline__ A endless() { return (A)__int_as_float(0x7f800000); }

struct Sequence { int steps; int states; const W* labels; };

__device__ __forceinline__ Sequence sequence_of(const W* labels, const i64* table, int count)
{
    return {(int)table[blockIdx.x], 2 * (int)table[count + blockIdx.x] + 1,
            labels + table[2 * count + blockIdx.x]};
}
__device__ __forceinline__ int class_of(const Sequence& q, int s, int blank, int classes)
{
    if (s % 2 == 0) return blank;
    const i64 label = (i64)q.labels[s / 2];
    return label < 0 ? 0 : label < classes ? (int)label : classes - 1;  // others are errors
}
// Whether state s may follow the one before last.
__device__ __forceinline__ bool skips(const Sequence& q, int s, int blank, int classes)
{
    if (s < 2 || s % 2 == 0) return false;
    const int own = class_of(q, s, blank, classes);
    return own != blank && own != class_of(q, s - 2, blank, classes);
}
__device__ __forceinline__ A log_sum(A a, A b, A c)
{
    const A most = a > b ? (a > c ? a : c) : (b > c ? b : c);
    if (most == -endless()) return most;
    return log(exp(a - most) + exp(b - most) + exp(c - most)) + most;
}
// Of a sequence, from what leads to its last two states.
__device__ __forceinline__ A loss_of(const Sequence& q, const A* alphas, int count, int most)
{
    if (q.steps == 0) return q.states == 1 ? A(0) : endless();
    const A* last = alphas + ((i64)(q.steps - 1) * count + blockIdx.x) * most;
    return A(0) - log_sum(last[q.states - 1], q.states > 1 ? last[q.states - 2] : -endless(),
                          -endless());
}
"""

KERNELS = {
    # The losses, and for each step and state the logarithm of what leads there.
    "ctc_forward": _STATES + PART + r"""
extern "C" __global__ void __launch_bounds__(512) ctc_forward(
    const T* log_probs, const W* labels, const i64* table, A* alphas, T* losses, int count,
    int classes, int blank, int most)
{
    const Sequence q = sequence_of(labels, table, count);
    const A none = -endless();
    for (int t = 0; t < q.steps; ++t) {
        const T* emitted = log_probs + ((i64)t * count + blockIdx.x) * classes;
        A* now = alphas + ((i64)t * count + blockIdx.x) * most;
        const A* before = now - (i64)count * most;
        for (int s = threadIdx.x; s < q.states; s += blockDim.x) {
            A sum = s < 2 ? A(0) : none;
            if (t > 0)
                sum = log_sum(before[s], s > 0 ? before[s - 1] : none,
                              skips(q, s, blank, classes) ? before[s - 2] : none);
            now[s] = sum + (A)emitted[class_of(q, s, blank, classes)];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) losses[blockIdx.x] = (T)loss_of(q, alphas, count, most);
}
""",
    # The gradients of the log-probabilities, where there are zeros. For each label `next` tells the
    # state where it stands again, or 0, and whether it stood before, as the lowest bit: the first
    # of those adds up what belongs to all. `betas` has two lines for each sequence.
    "ctc_backward": _STATES + PART + r"""
extern "C" __global__ void __launch_bounds__(512) ctc_backward(
    const T* g, const T* log_probs, const W* labels, const i64* table, const A* alphas, A* betas,
    int* next, T* result, int count, int classes, int blank, int most)
{
    const Sequence q = sequence_of(labels, table, count);
    const A none = -endless(), loss = loss_of(q, alphas, count, most), slope = (A)g[blockIdx.x];
    if (loss == endless()) return;  // none of the alignments is possible
    betas += (i64)blockIdx.x * 2 * most, next += (i64)blockIdx.x * most;
    for (int s = 2 * threadIdx.x + 1; s < q.states; s += 2 * blockDim.x) {
        const int own = class_of(q, s, blank, classes);
        int after = s + 2, first = 1;
        while (after < q.states && class_of(q, after, blank, classes) != own) after += 2;
        for (int k = 1; k < s && first; k += 2) first = class_of(q, k, blank, classes) != own;
        next[s] = (after < q.states ? after : 0) * 2 + !first;
    }
    __syncthreads();
    for (int t = q.steps - 1; t >= 0; --t) {
        const i64 row = ((i64)t * count + blockIdx.x) * classes;
        const A* led = alphas + ((i64)t * count + blockIdx.x) * most;
        A* now = betas + t % 2 * most;
        const A* behind = betas + (t + 1) % 2 * most;
        A of_blanks = 0;
        for (int s = threadIdx.x; s < q.states; s += blockDim.x) {
            const int own = class_of(q, s, blank, classes);
            A sum = s >= q.states - 2 ? A(0) : none;
            if (t < q.steps - 1)
                sum = log_sum(behind[s], s + 1 < q.states ? behind[s + 1] : none,
                              s + 2 < q.states && skips(q, s + 2, blank, classes)
                                  ? behind[s + 2] : none);
            now[s] = sum + (A)log_probs[row + own];
            if (own == blank && led[s] != none) of_blanks += exp(led[s] + sum + loss);
        }
        of_blanks = of_team(of_blanks, blockDim.x, Sum());
        __syncthreads();
        if (threadIdx.x == 0) result[row + blank] = (T)(-slope * of_blanks);
        for (int s = 2 * threadIdx.x + 1; s < q.states; s += 2 * blockDim.x) {
            const int own = class_of(q, s, blank, classes);
            if (own == blank || next[s] % 2) continue;
            const A emitted = (A)log_probs[row + own];
            A sum = 0;
            for (int k = s; k > 0; k = next[k] / 2)
                if (led[k] != none) sum += exp(led[k] + (now[k] - emitted) + loss);
            result[row + own] = (T)(-slope * sum);
        }
    }
}
""",
}  # fmt: skip
NAMES = tuple(KERNELS)
SOURCE = whole(KERNELS)
