"""The bits of complex numbers seen as real ones were a view that required grad, of no node."""

import cugrad as t  # or torch

v1 = t.tensor([1.5 + 2j, 2.5 - 1j], dtype=t.complex128, requires_grad=True)
v2 = v1 * 2
v3 = v2.view(t.float64)
v4 = v1.view(t.float64) * 2
v5 = v3.view(t.complex128)
v6 = v2.real.contiguous().view(t.float32).isfinite()
v2.mul_(2)
v7 = v3 + v5.real.repeat(2)
v2.abs().sum().backward()
