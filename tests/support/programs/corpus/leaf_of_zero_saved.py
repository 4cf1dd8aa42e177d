"""A leaf of one zero that a hook made something of: its second derivative went nowhere."""

import cugrad as t  # or torch

v1 = t.zeros((), dtype=t.float64, requires_grad=True)
with t.autograd.graph.save_on_cpu():
    v2 = v1.square() * 0.5 + v1 * 0.3
(g1,) = t.autograd.grad(v2, [v1], create_graph=True)
(g2,) = t.autograd.grad(g1.square(), [v1])
