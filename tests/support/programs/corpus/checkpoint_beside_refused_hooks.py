"""What the judge runs with copies of what is saved has a region that refuses hooks."""

import cugrad as t  # or torch

v1 = t.tensor(1.109, dtype=t.float64, requires_grad=True)
if True:

    def f17(v12, v13):
        v15 = (0.3 * v13).exp()
        t.nn.functional.silu(v15, inplace=True)
        v16 = t.nn.functional.l1_loss(v13, v15, reduction="sum")
        return v16

    v18 = t.utils.checkpoint.checkpoint(f17, v1, v1, use_reentrant=False)
with t.autograd.graph.disable_saved_tensors_hooks("off"):
    v31 = v1 * 2
g1 = t.autograd.grad(v18, [v1], create_graph=True, allow_unused=True)
