"""The target of a soft margin loss made more examples than there were."""

import cugrad as t  # or torch

v1 = t.tensor([[1.3, 0.4]], dtype=t.float64, requires_grad=True)
v2 = t.nn.functional.soft_margin_loss(v1.expand(2, 2), v1.detach())
v3 = t.nn.functional.soft_margin_loss(v1, t.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=t.float64))
