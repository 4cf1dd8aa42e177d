"""The grid was a view of what lay behind it, and as a leaf had no gradient."""

import cugrad as t  # or torch

v1 = t.tensor([[[0.3, 0.1, 0.2], [0.4, 0.5, 0.6]]], dtype=t.float64)
v2 = t.nn.functional.affine_grid(v1, (1, 1, 2, 2), align_corners=True)
v2.requires_grad_()
v2.square().sum().backward()
