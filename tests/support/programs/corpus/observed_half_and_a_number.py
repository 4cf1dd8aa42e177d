"""float16 times a number was rounded twice where nothing watched, and once where something did."""

import cugrad as t  # or torch

v2 = t.tensor([0.52, -1.55], dtype=t.float16, requires_grad=True)
with t.autograd.forward_ad.dual_level():
    v6 = t.autograd.forward_ad.make_dual(v2, v2 * 0.5)
    v8 = t.lerp(v6, v2, 0.3)
    v9 = v8.to(t.float64).square().sum()
    v7 = t.autograd.forward_ad.unpack_dual(t.autograd.grad(v9, v6, create_graph=True)[0]).tangent
v10 = v2 * 0.7
