"""A complex gradient of a real input that needs none was refused."""

import cugrad as t  # or torch


class Product(t.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y.conj(), g * x.conj()


v1 = t.tensor([0.4 + 0.3j, -0.2 + 1.1j], dtype=t.complex128, requires_grad=True)
v2 = t.tensor([1.3, 0.6], dtype=t.float64)
v3 = Product.apply(v1, v2)
g1 = t.autograd.grad(v3.abs().sum(), v1)
