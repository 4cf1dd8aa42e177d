"""The gradient of `angle` at zero was nan."""

import cugrad as t  # or torch

v1 = t.tensor([0.0, 1.0], dtype=t.float64, requires_grad=True)
v2 = t.tensor([0j, 1j], dtype=t.complex128, requires_grad=True)
v1.angle().sum().backward()
v2.angle().sum().backward()
