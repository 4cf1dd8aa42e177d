"""A dim of one element is summed: what the factor is made of may be changed afterwards."""

import cugrad as t  # or torch

v2 = t.tensor([-1.137], dtype=t.float64, requires_grad=True)
v16 = v2 * 2
v17 = t.tensordot(v16, v2, dims=([0], [0]))
t.nn.functional.leaky_relu_(v16, 0.2)
g1 = t.autograd.grad(v17, [v2], create_graph=True, allow_unused=True)
