"""A masked change of what `complex` made."""

import cugrad as t  # or torch

v1 = t.tensor([0.3, 0.4], dtype=t.float64, requires_grad=True)
v2 = t.complex(v1, v1 * 2)
v2[t.tensor([True, False])] *= 0.5
g1 = t.autograd.grad((v2 * v2.conj()).real.sum(), v1, create_graph=True)
g2 = t.autograd.grad((g1[0] * g1[0]).sum(), v1)
