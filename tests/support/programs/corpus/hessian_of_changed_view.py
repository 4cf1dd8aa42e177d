"""The Hessian of a function that changes a base after a view was made."""

import cugrad as t  # or torch

v1 = t.tensor([0.3, 0.4], dtype=t.float64)


def f(x):
    u = x * x
    v = u[0:1]
    u.mul_(2.0)
    return (u * u * u).sum() + (v * v * v).sum()


v2 = t.func.hessian(f)(v1)
