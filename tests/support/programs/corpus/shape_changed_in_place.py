"""What changes a shape in place counts as a change of what was saved."""

import cugrad as t  # or torch

v1 = t.tensor([[0.4, -0.2]], dtype=t.float64, requires_grad=True)
v2 = v1.exp()
v2.t_()
v2.sum().backward()
