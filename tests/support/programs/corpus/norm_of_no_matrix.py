"""Norms of matrices without rows or columns, of which the largest is looked for, were errors."""

import cugrad as t  # or torch

v1 = t.zeros((2, 0), dtype=t.float64, requires_grad=True)
v2 = t.zeros((3, 0, 2), dtype=t.float64, requires_grad=True)
v3 = t.linalg.matrix_norm(v1, 1)
v4 = t.linalg.matrix_norm(v1, 2, keepdim=True)
v5 = t.linalg.norm(v2, float("inf"), dim=(1, 2))
v6 = t.linalg.matrix_norm(v2, 2)
v8 = v1.sum() + v3
v7 = t.linalg.matrix_norm(v1, -1)
