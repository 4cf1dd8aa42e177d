"""The gradient of the imaginary part of a 0-d result was read beyond its memory."""

import cugrad as t  # or torch

v1 = t.tensor(3.0, dtype=t.float64, requires_grad=True)
v2 = t.tensor(4.0, dtype=t.float64, requires_grad=True)
v3 = t.complex(v1, v2)
(v3 * v3.conj()).real.backward()
