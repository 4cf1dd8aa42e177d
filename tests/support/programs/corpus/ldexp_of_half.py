"""Half precision times a power of two was float32 where both had the same number of dims."""

import cugrad as t  # or torch


def total(*tensors):
    return sum(each(x) for x in tensors if x is not None)


def each(x):
    return (x.to(t.float64).square() * 0.5 + x.to(t.float64) * 0.3).sum()


v1 = t.tensor([0.5, 1.5], dtype=t.float16, requires_grad=True)
v2 = v1.ldexp(t.tensor([2, 3]))
v3 = v1.sum().ldexp(t.tensor(2))
v0 = total(v2, v3)
g1 = t.autograd.grad(v0, [v1], create_graph=True, allow_unused=True)
