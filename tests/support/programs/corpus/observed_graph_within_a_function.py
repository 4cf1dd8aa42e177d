"""A Function's node was younger than those of its forward; older where an observer was told."""

import cugrad as t  # or torch


class Inner(t.autograd.Function):
    """Its backward is a pass of its own."""

    @staticmethod
    def forward(ctx, x):
        with t.enable_grad():
            y = x.detach().requires_grad_()
            z = y.sin() * y
        ctx.kept = y, z
        return z.detach()

    @staticmethod
    def backward(ctx, g):
        y, z = ctx.kept
        return t.autograd.grad(z, y, g, retain_graph=True, create_graph=t.is_grad_enabled())[0]


v1 = t.tensor([-1.041, 0.3], dtype=t.float64, requires_grad=True)
v2 = Inner.apply(v1)
v3 = t.autograd.grad(v2.square().sum(), v1, create_graph=True)[0]
v3.sum().backward()
