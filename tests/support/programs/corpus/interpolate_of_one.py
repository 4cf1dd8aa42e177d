"""So was one pixel, enlarged."""

import cugrad as t  # or torch

v1 = t.ones(1, 1, 1)
v2 = t.nn.functional.interpolate(v1, scale_factor=2.0)
v1.add_(1)
