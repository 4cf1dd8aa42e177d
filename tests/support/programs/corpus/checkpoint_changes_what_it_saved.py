"""A checkpointed function that changed what it had saved could not go backward."""

import cugrad as t  # or torch

v1 = t.tensor([0.8, -1.6, 0.5], dtype=t.float64, requires_grad=True)


def f1(v2):
    v3 = (v2.tanh() * 0.9).erfinv()
    v3.cos_()
    return v3


v4 = t.utils.checkpoint.checkpoint(f1, v1, use_reentrant=False)
v0 = v4.square().sum()
g1 = t.autograd.grad(v0, v1)
