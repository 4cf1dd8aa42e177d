"""What one method makes of two ops was two changes of the tensor; conj_physical_ refused bools."""

import cugrad as t  # or torch

v1 = t.tensor([1.5, -2.5, 0.3], dtype=t.float64, requires_grad=True)
v2 = t.tensor([0.7, 0.4, 1.1], dtype=t.float64, requires_grad=True)
v3 = v1 * 1
v3.div_(v2, rounding_mode="trunc")
v4 = v1 * 1
v4.clamp_(v2 - 2, v2 + 0.1)
v5 = v1.detach().clone()
v5.div_(0.7, rounding_mode="trunc")
v6 = t.tensor([5, -7])
v6.div_(2, rounding_mode="trunc")
v7 = v6 > 0
v7.conj_physical_()
v8 = v1 * 1
v8[:2].clamp_(v2[:2] - 2, v2[:2])
(v3.sum() + v4.square().sum() + v8.square().sum()).backward()
