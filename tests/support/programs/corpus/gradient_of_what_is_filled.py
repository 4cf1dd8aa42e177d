"""What is filled leaves a zero without a history; it had one, and was nan of inf."""

import cugrad as t  # or torch


class Once(t.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @t.autograd.function.once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.cos()


v1 = t.tensor([-0.708, 0.206], dtype=t.float64, requires_grad=True)
v2 = Once.apply(v1)
v2.fill_(-0.7)
v3 = t.autograd.grad((v2 * v2).sum(), [v1], create_graph=True)[0]
v4 = (v3 * v1).sum()
v4.backward()
v5 = v1 * 2
v5.copy_(v1.detach() * 0)
v6 = t.autograd.grad(v5.sqrt().sum(), [v1])[0]
v7 = t.copysign(v1, v1 * 3)
v8 = t.autograd.grad(v7, [v1], t.tensor([float("inf"), 1.0], dtype=t.float64))[0]
