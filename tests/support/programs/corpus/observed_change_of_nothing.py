"""A result of no elements that was changed once it was saved: hooks that keep it see that."""

import cugrad as t  # or torch

v1 = t.zeros((2, 0), dtype=t.float64, requires_grad=True)
v4 = v1 * 2
v4.cumprod_(-2)
v4.sub_(v1, alpha=2)
v0 = v4.sum()
v0.backward()
