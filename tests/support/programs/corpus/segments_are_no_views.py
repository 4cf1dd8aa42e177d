"""What segment_reduce answers was a view of a tensor that no program had; of nothing it raised."""

import cugrad as t  # or torch

v1 = t.tensor([-1.686, 1.136, 0.362, 0.542], dtype=t.float64, requires_grad=True)
v2 = t.segment_reduce(v1, "mean", lengths=t.tensor([1, 3]), axis=0)
v3 = v2.flatten()
v4 = t.nn.functional.conv1d(v1.reshape(1, 1, 4), v3.reshape(1, 1, 2), padding="same")
v5 = t.segment_reduce(t.zeros(0, dtype=t.float64), "max", lengths=t.tensor([0]), axis=0)
(v4.sum() + v5.exp().sum()).backward()
