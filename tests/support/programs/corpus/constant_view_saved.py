"""A view of a constant, saved by a custom Function, was taken for detached."""

import cugrad as t  # or torch


class Product(t.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return (g * y).sum_to_size(x.shape), (g * x).sum_to_size(y.shape)


v1 = t.tensor([1.3, 0.6], dtype=t.float64, requires_grad=True)
v2 = t.tensor([0.4, -0.3], dtype=t.float64).expand(2, 2)
v3 = Product.apply(v2, v1[:])
g1 = t.autograd.grad(v3.square().sum(), v1)
