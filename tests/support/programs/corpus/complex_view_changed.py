"""The second derivative of what was changed through a complex view had the wrong sign."""

import cugrad as t  # or torch

v1 = t.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=t.float64, requires_grad=True)
v2 = t.view_as_complex(v1 * 1)
v2.mul_(0.5)
g1 = t.autograd.grad((v2 * v2.conj()).real.sum(), v1, create_graph=True)
g2 = t.autograd.grad((g1[0] * g1[0]).sum(), v1)
