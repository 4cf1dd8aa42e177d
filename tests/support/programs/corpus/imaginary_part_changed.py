"""The same, of the imaginary part."""

import cugrad as t  # or torch

v1 = t.tensor([1.0 + 2j], dtype=t.complex128, requires_grad=True)
v2 = v1 * 1
v2.imag.mul_(0.5)
g1 = t.autograd.grad((v2 * v2.conj()).real.sum(), v1, create_graph=True)
g2 = t.autograd.grad((g1[0] * g1[0].conj()).real.sum(), v1)
