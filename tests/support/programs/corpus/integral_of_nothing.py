"""The integral of no points required a gradient, as none of PyTorch's does."""

import cugrad as t  # or torch

v1 = t.zeros((2, 0), dtype=t.float32, requires_grad=True)
v2 = t.trapz(v1, dim=1)
v3 = t.trapz(v1, dim=0)
v4 = t.cumulative_trapezoid(v1, dim=1)
