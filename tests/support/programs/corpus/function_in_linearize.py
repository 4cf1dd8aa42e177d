"""linearize asked custom Functions for setup_context, which PyTorch's does not need."""

import cugrad as t  # or torch

v1 = t.tensor([0.7, -0.4], dtype=t.float64, requires_grad=True)
v2 = t.tensor([1.3, 0.6], dtype=t.float64, requires_grad=True)


class Old(t.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_forward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        return g

    @staticmethod
    def jvp(ctx, a):
        (x,) = ctx.saved_tensors
        return a * x.cos()


def f3(v4):
    return v4 * v4 * Old.apply(v2)


v5 = t.func.linearize(f3, v1.detach())[1](v2.detach())
v0 = (v5 * v5).sum()
