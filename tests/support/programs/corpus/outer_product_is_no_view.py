"""A product without a sum was a view of itself in another order."""

import cugrad as t  # or torch

v1 = t.tensor([[0.3, 0.8], [1.2, -0.6]], dtype=t.float64, requires_grad=True)
v2 = t.einsum("i...,j...->ij...", v1, v1)
v3 = v2.narrow(2, 1, 1)
g1 = t.autograd.grad(v3.square().sum(), v1)
