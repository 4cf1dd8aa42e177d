"""A sum over one element was a view, which cannot be detached in place."""

import cugrad as t  # or torch

v1 = t.tensor([1.283], dtype=t.float64, requires_grad=True)
v2 = t.einsum("...i->...", v1)
v2.detach_()
v1.detach().add_(1)
