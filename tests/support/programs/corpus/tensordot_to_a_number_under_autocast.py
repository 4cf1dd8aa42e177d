"""A product of matrices that is one number was bfloat16, where PyTorch's sum is float16."""

import cugrad as t  # or torch

v1 = t.tensor([1.47, 2.0], dtype=t.float16, requires_grad=True)
with t.autocast("cpu", dtype=t.bfloat16):
    v2 = t.tensordot(v1, v1, 1)
    v3 = t.tensordot(v1[None], v1, 1)
(v2 + v3.float().sum()).backward()
