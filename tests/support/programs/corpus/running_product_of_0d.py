"""A running product in place of a 0-d tensor was no change: its views kept their history."""

import cugrad as t  # or torch

v1 = t.tensor(0.4, dtype=t.float64, requires_grad=True)
v2 = v1 * 2
v3 = v2.unfold(0, 1, 2)
v4 = v3 * 2
v2.cumprod_(0)
v2.detach_()
v0 = v3.square().sum() + v4.square().sum()
g1 = t.autograd.grad(v0, v1)
