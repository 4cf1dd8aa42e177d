"""Anomaly mode leaves its trace at nodes, and an in-place op took that for a hook on the way."""

import cugrad as t  # or torch


def total(*tensors):
    """A real number that depends on all of the tensors."""
    return sum(each(x) for x in tensors if x is not None)


def each(x):
    return (x.to(t.float64).square() * 0.5 + x.to(t.float64) * 0.3).sum()


v1 = t.tensor([-0.405, -0.792], dtype=t.float64, requires_grad=True)
v8 = v1 * 2
v10 = v8.unfold(-1, 2, 1)
v13 = t.add(v10, v10, alpha=0.5)
v10.mul_(0.3)
v0 = total(v8, v10, v8, v13, v8, v8)
g1 = t.autograd.grad(v0, [v1], create_graph=True, allow_unused=True)
