"""The tangent of a result that is no view was one."""

import cugrad as t  # or torch

v2 = t.tensor([[-0.234]], dtype=t.float64, requires_grad=True)
with t.autograd.forward_ad.dual_level():
    v14 = t.autograd.forward_ad.make_dual(v2, v2 * 0.5)
    v16 = t.nn.functional.interpolate(v14[None], scale_factor=2.0)
    v15 = t.autograd.forward_ad.unpack_dual(v16).tangent
v15.detach_()
