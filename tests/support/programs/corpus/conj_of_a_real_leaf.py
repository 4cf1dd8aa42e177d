"""`conj_physical_` of a real tensor is a change: of a leaf, an error."""

import cugrad as t  # or torch

v1 = t.tensor([1.0], dtype=t.float64, requires_grad=True)
v1.conj_physical_()
