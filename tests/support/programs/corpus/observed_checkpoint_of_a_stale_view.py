"""A checkpoint's argument whose node is made anew: at once, also where no hooks look at it."""

import cugrad as t  # or torch

numbers = [[-1.745 - 0.989j, -1.095 - 0.254j], [1.278 - 1.2j, 1.794 - 1.022j]]
v1 = t.tensor(numbers, dtype=t.complex128, requires_grad=True)
v2 = v1.unsqueeze(0)
v2.detach().add_(-0.7)


def f7(v3, v4):
    v6 = v4 * 2
    return v6


v8 = t.utils.checkpoint.checkpoint(f7, v2, v1, use_reentrant=False)
v15 = v2 * 2
v16 = v2 * 2
v0 = sum([((v * v.conj()).real + v.real * 0.3 + v.imag * 0.2).sum() for v in (v1, v8, v15, v16)])
g1 = t.autograd.grad(v0, [v1], create_graph=True, allow_unused=True)
