"""Adaptive pools of no images, and convolutions of images without channels."""

import cugrad as t  # or torch

v1 = t.zeros((0, 2, 3), dtype=t.float64, requires_grad=True)
v2 = t.nn.functional.adaptive_max_pool1d(v1, 2)
v3 = t.nn.functional.adaptive_avg_pool1d(v1[0:, :0], 1)
v4 = t.nn.functional.conv1d(v1, v1[:, :, :1])
g1 = t.autograd.grad(v2.sum() + v3.sum() + v4.sum(), v1)
