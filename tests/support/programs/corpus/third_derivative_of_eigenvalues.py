"""PyTorch's is nan, and stands on the page; here it is that of the function."""

import cugrad as t  # or torch

v1 = t.tensor([[[0.3, 0.5], [0.2, 0.9]]], dtype=t.float64, requires_grad=True)


def f2(v3):
    v4 = t.linalg.eigh(v3 @ v3.mH + t.diag(t.arange(2, dtype=t.float64) * 9 + 2))[0]
    return (v4 * v4).sum()


v5 = t.func.vmap(t.func.hessian(f2))(v1).clone()
v0 = v5.sum()
g1 = t.autograd.grad(v0, [v1])
