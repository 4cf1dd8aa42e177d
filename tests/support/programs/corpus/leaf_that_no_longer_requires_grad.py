"""Backward filled the gradient of a leaf that no longer required one."""

import cugrad as t  # or torch

v1 = t.tensor([1.0, 2.0], dtype=t.float64, requires_grad=True)
v2 = t.tensor([1.0, 2.0], dtype=t.float64, requires_grad=True)
v3 = (v1 * v1).sum() + (v2 * v2).sum()
v1.requires_grad_(False)
v2.detach_()
v3.backward()
