"""copy_ took a source of more dims, of one element each."""

import cugrad as t  # or torch

v1 = t.tensor(1.682, dtype=t.float64, requires_grad=True)
v2 = v1 * 2
t._foreach_copy_([v2], [v1.flatten()])
