"""Numbers of any kind pass a dropout that drops none."""

import cugrad as t  # or torch

v1 = t.tensor([0.3 + 1.3j, -0.3 + 0.2j], dtype=t.complex128, requires_grad=True)
v2 = t.nn.functional.dropout(v1, 0.5, training=False)
v3 = t.nn.functional.alpha_dropout(v2 * 2, 0.0)
v4 = t.nn.functional.dropout(v3, 0.5)
