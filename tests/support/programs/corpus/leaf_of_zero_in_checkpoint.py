"""The same, given to a checkpoint, as a gate that begins closed: its gradient went nowhere."""

import cugrad as t  # or torch

v1 = t.zeros((1,), dtype=t.float64, requires_grad=True)
v2 = t.tensor([2.0, 3.0], dtype=t.float64, requires_grad=True)
with t.autograd.graph.save_on_cpu():
    v3 = t.utils.checkpoint.checkpoint(lambda a, b: b + a * b.sin(), v1, v2, use_reentrant=False)
v3.sum().backward()
