"""A diagonal without elements was not counted as changed."""

import cugrad as t  # or torch

v1 = t.zeros((2, 0), dtype=t.float64)
v1.fill_diagonal_(1.5)
