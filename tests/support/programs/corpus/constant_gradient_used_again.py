"""The second derivative is constant: whether it leads to the leaf is open, and with it whether a
hook of what is made of it runs.
"""

import cugrad as t  # or torch


def total(*tensors):
    return sum(each(x) for x in tensors if x is not None)


def each(x):
    return (x.to(t.float64).square() * 0.5 + x.to(t.float64) * 0.3).sum()


log = []
v1 = t.tensor([-0.919], dtype=t.float64, requires_grad=True)


def f4(v2):
    v3 = v2 * 2
    return each(v3)


v5 = t.func.jacfwd(t.func.grad(f4))(v1).clone()
v6 = t.nn.functional.nll_loss(v5, t.zeros(v5.shape[0]).long(), reduction="none")


def f12(v7, v8):
    v11 = t.dot(v7, v7)
    return each(v11)


v13 = t.autograd.functional.hvp(f12, (v6, v5), (v6, v5), create_graph=True)[1][0].clone()
v13.register_hook(lambda g: log.append("h15") or g.clone().mul_(0.5))
v0 = total(v13)
g1 = t.autograd.grad(v0, [v1], retain_graph=True, allow_unused=True)
