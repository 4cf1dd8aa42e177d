"""A NumPy scalar between two rows chose where a row ran, beside an array of a vmap."""

import cugrad as t  # or torch

v1 = t.tensor(-0.234, dtype=t.float64, requires_grad=True)
v2 = v1.sgn()
v3 = t.autograd.grad(v2, v1, t.tensor([1.0, -0.5], dtype=t.float64), is_grads_batched=True)[0] * 1
v4 = t.tensor(0.3 + 0.4j, dtype=t.complex128, requires_grad=True)
v5 = v4.abs() * v4.sgn()
v6 = t.tensor([1.0, 2.0j], dtype=t.complex128)
v7 = t.autograd.grad(v5, v4, v6, is_grads_batched=True)[0]
