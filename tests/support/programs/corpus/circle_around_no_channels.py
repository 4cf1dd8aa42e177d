"""A circular border of images without channels was refused."""

import cugrad as t  # or torch

v1 = t.zeros((2, 0), dtype=t.float64).mT.clone().requires_grad_()
v2 = t.nn.functional.pad(v1, (1, 1), mode="circular")
v3 = t.nn.functional.pad(v1.reshape(2, 0, 1, 1), (1, 0, 1, 1), mode="circular")
(v2.sum() + v3.sum()).backward()
