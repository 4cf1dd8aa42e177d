"""A sparse gradient and a dense one of one leaf did not add up, and profiles looked for arrays."""

import cugrad as t  # or torch


def total(*tensors):
    """A real number that depends on all of the tensors."""
    return sum(each(x) for x in tensors if x is not None)


def each(x):
    if x.is_sparse:
        x = x.to_dense()
    return (x.to(t.float64).square() * 0.5 + x.to(t.float64) * 0.3).sum()


v1 = t.tensor([[1.652], [0.228]], dtype=t.float64, requires_grad=True)
v2 = t.nn.functional.embedding(t.tensor([1, 1, 0]), v1, sparse=True)
v3 = t.nn.functional.embedding(t.tensor([0]), v1, sparse=True)
v4 = t.tensor([[0.5, 1.5], [0.25, 1.0]], dtype=t.float64, requires_grad=True)
v5 = t.nn.functional.embedding(t.tensor([1]), v4, sparse=True)
v6 = t.zeros((2, 0), dtype=t.float64, requires_grad=True)
v7 = t.nn.functional.embedding(t.tensor([1, 0]), v6, 0, sparse=True)
v8 = v6.to_sparse(1).to_dense()
v0 = total(v1, v2, v3, v5, v7, v8)
g1 = t.autograd.grad(v0, [v1, v4, v6], retain_graph=True, allow_unused=True)
v0.backward(retain_graph=True)
v9 = v1.grad
v10 = v4.grad
v0.backward()
