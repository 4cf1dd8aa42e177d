"""A checkpoint kept a tensor of inference mode, whose changes are not counted."""

import cugrad as t  # or torch

v1 = t.tensor([1.5, 2.5], dtype=t.float64, requires_grad=True)
with t.inference_mode():
    v2 = v1 * 2


def f1(v3):
    return v3 * 2


v4 = t.utils.checkpoint.checkpoint(f1, v2, use_reentrant=False)
