"""A change under no_grad took its own gradient from the tangent of a loss."""

import cugrad as t  # or torch

v1 = t.tensor(1.545, dtype=t.float64, requires_grad=True)
with t.autograd.forward_ad.dual_level():
    v2 = t.autograd.forward_ad.make_dual(v1, v1 * 0.5)
    v3 = t.nn.functional.gaussian_nll_loss(v2, v2, v2 * v2 + 0.5)
    v4 = t.autograd.forward_ad.unpack_dual(v3).tangent * 1
g1 = t.autograd.grad(v4, v1)
