"""The second derivative at a view made under no_grad was zero: it leads to no leaf."""

import cugrad as t  # or torch

v1 = t.tensor([1.3, -0.4, 0.9], dtype=t.float64, requires_grad=True)
with t.no_grad():
    v2 = v1[:2]


def f1(v3):
    return (v3 * v3 * v3).sum()


def f2(v3):
    return t.func.grad(f1)(v3).square().sum()


v4 = t.func.grad(f2)(v2)
v5 = t.func.grad(f2)(v2 * 2)
v6 = t.func.jacrev(t.func.grad(f2))(v2)
v7 = t.func.jacfwd(t.func.grad(f2))(v2)
v8 = t.func.vjp(t.func.grad(f2), v2)[1](v2)[0]
