"""The variance and the mean of a turned tensor lay as it does, so that they were no rows."""

import cugrad as t  # or torch

v1 = t.tensor([[[-1.446, -1.503], [1.425, 0.495]]], dtype=t.float64, requires_grad=True)
v2 = t.var_mean(v1.mT, 0)[1].view(-1)
v3 = t.std_mean(v1.mT, 0)[1].view(-1)
