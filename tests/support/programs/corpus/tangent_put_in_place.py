"""The tangent that a tensor gets with a change led to what the tensor was before, times zero."""

import cugrad as t  # or torch

v1 = t.tensor([1.55, 0.477, 0.613, 0.319], dtype=t.float64, requires_grad=True)
with t.autograd.forward_ad.dual_level():
    v5 = t.autograd.forward_ad.make_dual(v1, v1 * 0.5)
    v7 = v1.tanh()
    v7.index_copy_(-1, t.tensor([3]), v5.narrow(-1, 0, 1))
    v6 = t.autograd.forward_ad.unpack_dual(v7).tangent
g1 = t.autograd.grad((v6 * v6).sum(), [v1], create_graph=True, allow_unused=True)
