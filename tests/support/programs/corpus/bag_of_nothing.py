"""What was scattered from no elements had no graph by its source."""

import cugrad as t  # or torch

v1 = t.zeros((2, 0), dtype=t.float64, requires_grad=True)
v2 = t.nn.functional.embedding_bag(t.tensor([1, 1]), v1, t.tensor([0]), mode="max")
v3 = t.zeros(1, 0, dtype=t.float64).scatter_add(0, t.zeros(1, 0, dtype=t.int64), v1)
(v2.sum() + v3.sum()).backward()
