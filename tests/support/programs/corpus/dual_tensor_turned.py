"""The tangent of a tensor that was turned in place kept its shape."""

import cugrad as t  # or torch

v1 = t.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=t.float64, requires_grad=True)
with t.autograd.forward_ad.dual_level():
    v2 = t.autograd.forward_ad.make_dual(v1, v1 * 0.5)
    v3 = v2 * v2
    v4 = v3[0]
    v3.t_()
    v4.mul_(3)
    v5 = t.autograd.forward_ad.unpack_dual(v3).tangent * 1
v6 = v5.sum()
g1 = t.autograd.grad(v6, v1)
