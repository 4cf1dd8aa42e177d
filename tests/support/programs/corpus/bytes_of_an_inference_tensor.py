"""Outside of inference mode a view in another dtype is no inference tensor, and can change."""

import cugrad as t  # or torch

v1 = t.tensor([[0.808 + 1.41j, -0.611 + 0.239j]], dtype=t.complex128, requires_grad=True)
with t.inference_mode():
    v2 = v1 * 2
v3 = v2.view(t.float64)
v3.sinh_()
v4 = v3 * 2
