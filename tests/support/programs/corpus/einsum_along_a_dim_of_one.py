"""Along a dim of one element in one operand the other is summed first: dtypes may differ."""

import cugrad as t  # or torch

v1 = t.tensor([[-1.226], [0.286]], dtype=t.float64, requires_grad=True)
v2 = t.tensor([[-1.466]], dtype=t.float64, requires_grad=True)
v3 = t.einsum("ij,ij->j", v2, v1.lt(0.5))
v4 = t.einsum("ij,ij->j", v2, v1)
g1 = t.autograd.grad((v3 * v4).sum(), [v1, v2], create_graph=True)
