"""The gradient of frobenius_norm along a dim counted from the end was spread along another one."""

import cugrad as t  # or torch

v1 = t.tensor([[0.6, -0.6], [0.4, 0.9]], dtype=t.float64, requires_grad=True)
v2 = t.frobenius_norm(v1, -2)
v3 = t.frobenius_norm(v1, (0,)) + t.frobenius_norm(v1, [-2, -1])
(v2 * t.tensor([1.0, 3.0], dtype=t.float64) + v3).sum().backward()
