"""adaptive_avg_pool3d to one element was a mean, which autocast on a CPU leaves in bfloat16."""

import cugrad as t  # or torch

v1 = t.tensor([[[1.46, -1.0, 0.27]]], dtype=t.bfloat16, requires_grad=True)
with t.autocast("cpu", dtype=t.bfloat16):
    v2 = t.nn.functional.adaptive_avg_pool3d(v1[None], 1)
    v3 = t.nn.functional.adaptive_avg_pool3d(v1[None], 2)
v4 = t.complex(v3, v3)
v2.sum().backward()
