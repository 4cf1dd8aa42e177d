"""The gradient of a mantissa is made of the exponent alone."""

import cugrad as t  # or torch

v1 = t.tensor([1.007, -5.3], dtype=t.float64, requires_grad=True)
v2 = v1 * 1
v3 = v2.frexp()[0]
v2.zero_()
v3.abs_()
g1 = t.autograd.grad(v3.sum(), v1)
