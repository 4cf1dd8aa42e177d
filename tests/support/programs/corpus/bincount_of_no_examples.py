"""A hessian at nothing looped over no examples, and found no result whose form it could take."""

import cugrad as t  # or torch

v2 = t.zeros((0,), dtype=t.float64, requires_grad=True)
if True:

    def f7(v4):
        v5 = v4.sum(0, keepdim=True)
        v6 = t.bincount(t.tensor([0]), weights=v5.detach()[t.tensor([0])].real)
        return (v6 * v6).sum()

    v8 = t.func.hessian(f7)(v2).clone(memory_format=t.contiguous_format)
