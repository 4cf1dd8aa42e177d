"""An argument that is a view without a history came back from hooks outside as a leaf."""

import cugrad as t  # or torch


def total(*tensors):
    """A real number that depends on all of the tensors."""
    return sum(each(x) for x in tensors if x is not None)


def each(x):
    if x.is_complex():
        x = x.to(t.complex128)
        return ((x * x.conj()).real + x.real * 0.3 + x.imag * 0.2).sum()
    return (x.to(t.float64).square() * 0.5 + x.to(t.float64) * 0.3).sum()


v1 = t.tensor([[-1.468, -1.75, -1.213]], dtype=t.float64, requires_grad=True)
with t.inference_mode():
    v2 = v1.transpose(-1, 1)
v3 = t.tensor([[0.925, 0.531], [-0.529, 0.558]], dtype=t.float64, requires_grad=True)


def f4(v5, v6):
    return v5 @ v5.mT * v6.sum()


v7 = t.utils.checkpoint.checkpoint(f4, v2, v3, use_reentrant=False)
v0 = total(v7)
g1 = t.autograd.grad(v0, [v1, v3], retain_graph=True, allow_unused=True)
v0.backward()
