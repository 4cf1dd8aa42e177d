"""What a hook had packed of a weight elsewhere could change unseen, for its memory had gone."""

import cugrad as t  # or torch


def nested(f, *args):
    inner = lambda *a: t.utils.checkpoint.checkpoint(f, *a, use_reentrant=False).sin()
    return t.utils.checkpoint.checkpoint(inner, *args, use_reentrant=False)


v2 = t.tensor([0.339, -0.549, -1.776, -1.05, 0.869], dtype=t.float64, requires_grad=True)
v3 = t.tensor([-0.408, -0.866, 0.899], dtype=t.float64, requires_grad=True)
if True:

    def f17(v13):
        v16 = v2.erfc()
        return v16

    v18 = nested(f17, v3)
with t.no_grad():
    v2.floor_()
g1 = t.autograd.grad(v18.sum(), [v2], create_graph=True, allow_unused=True)
