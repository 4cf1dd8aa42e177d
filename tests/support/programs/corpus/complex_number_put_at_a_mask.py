"""One complex number of more dims than what the mask selects is put there, as a real one is."""

import cugrad as t  # or torch

v1 = t.tensor([[0.5 + 1j, 1.5], [2.0, -1j]], dtype=t.complex128, requires_grad=True)
v2 = t.tensor([[2.0 + 1j]], dtype=t.complex128)
v3 = v1 * 1
v3.index_put_((t.tensor([[True, False], [False, True]]),), v2)
g1 = t.autograd.grad((v3 * v3.conj()).real.sum(), [v1])
