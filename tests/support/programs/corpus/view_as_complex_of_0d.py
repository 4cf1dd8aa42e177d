"""The same, of `view_as_complex`."""

import cugrad as t  # or torch

v1 = t.tensor([1.0, 2.0], dtype=t.float64, requires_grad=True)
v2 = t.view_as_complex(v1.sin())
v3 = (v2 * v2.conj()).real + v2.real * 0.3 + v2.imag * 0.2
g1 = t.autograd.grad(v3, v1, create_graph=True)
g2 = t.autograd.grad((g1[0] * g1[0]).sum(), v1)
