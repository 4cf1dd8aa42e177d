"""values() changed in place has a gradient here alone, and third derivatives by them are whole."""

import cugrad as t  # or torch


def total(*tensors):
    """A real number that depends on all of the tensors."""
    return sum(each(x) for x in tensors if x is not None)


def each(x):
    return (x.to(t.float64).square() * 0.5 + x.to(t.float64) * 0.3).sum()


v2 = t.tensor([-0.422], dtype=t.float64, requires_grad=True)
v3 = (v2.to_sparse() - v2.mul(0.5).to_sparse()).coalesce().values()
v15 = t.autograd.grad(total(v3), [v2], create_graph=True, allow_unused=True)[0]
v0 = total(v15)
g1 = t.autograd.grad(v0, [v2], create_graph=True, allow_unused=True)
g2 = t.autograd.grad(total(*g1), [v2], retain_graph=True, allow_unused=True)
v4 = t.tensor([[0.39], [0.448]], dtype=t.float64, requires_grad=True)
v5 = v4.to_sparse().values()
v5.neg_()
total(v5).backward()
