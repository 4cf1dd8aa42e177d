"""The same, of `view_as_real`."""

import cugrad as t  # or torch

v1 = t.tensor([1.0 + 2j, 0.5 - 1j], dtype=t.complex128, requires_grad=True)
v2 = t.tensor([[0.1, 0.2], [0.3, 0.4]], dtype=t.float64, requires_grad=True)
v3 = v1 * 1
t.view_as_real(v3).sub_(v2)
g1 = t.autograd.grad((v3 * v3.conj()).real.sum(), [v1, v2], create_graph=True)
g2 = t.autograd.grad((g1[0] * g1[0].conj()).real.sum() + (g1[1] * g1[1]).sum(), [v1, v2])
