"""The same, of `polar`."""

import cugrad as t  # or torch

v1 = t.tensor(-0.3, dtype=t.float64, requires_grad=True)
v2 = t.nn.functional.logsigmoid(v1)
v3 = t.polar(v2.real.abs() + 0.1, v2.real)
((v3 * v3.conj()).real.sum() + v3.real.sum() * 0.3 + v3.imag.sum() * 0.2).backward()
