"""A function without a derivative refused a gradient that goes nowhere: that of a view of a leaf,
made where nothing was recorded.
"""

import cugrad as t  # or torch

v1 = t.tensor([0.201], dtype=t.float64, requires_grad=True)
with t.no_grad():
    v2 = v1.unsqueeze(0)
v3 = t.geqrf(v2)[0].triu().abs()
v3.backward()
v4 = v1 * 2 + t.nextafter(v2, v2 + 1)[0]
v4.sum().backward()
