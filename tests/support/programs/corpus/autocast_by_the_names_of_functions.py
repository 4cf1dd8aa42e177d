"""Autocast of a CPU looked at the ops that a function calls, PyTorch looks at the function."""

import cugrad as t  # or torch

v1 = t.tensor([1.5, 0.3], dtype=t.float32, requires_grad=True)
v2 = t.tensor([[1.5, 0.3], [0.2, 1.1]], dtype=t.float32, requires_grad=True)
v3 = v2.to(t.bfloat16)
v4 = v1.to(t.bfloat16)
with t.autocast("cpu", dtype=t.bfloat16):
    v5 = v1 @ v1
    v6 = t.matmul(v2, v1)
    v7 = t.inner(v1, v1)
    v8 = t.nn.functional.linear(v1, v1)
    v9 = t.nn.functional.interpolate(v2[None, None], scale_factor=2.0, mode="bilinear")
    v10 = t.nn.functional.interpolate(v2[None], size=3, mode="linear")
    v11 = t.nn.functional.pad(v4[None, None], (1, 1), mode="circular")
    v12 = t.view_as_complex(v3)
    v13 = t.polar(v3, v3)
    v14 = t.linalg.inv_ex(v3)[0] + t.linalg.cholesky_ex(v3 @ v3.mT + t.eye(2))[0]
    v15 = t.gru_cell(v3, v3, v3.repeat(3, 1), v3.repeat(3, 1))
    v16 = t.nn.functional.max_unpool1d(v3, t.tensor([[0, 2], [1, 3]]), 2)
    v17 = t.cholesky_solve(v3, t.linalg.cholesky(v2 @ v2.mT + t.eye(2)).detach())
    v18 = t.pinverse(v3) + t.inverse(v3)
    v19 = t.lstm_cell(v3, (v3, v3), v3.repeat(4, 1), v3.repeat(4, 1))[1]
((v5 + v6 + v7 + v8).float().sum() + v9.sum() + v10.sum() + v11.sum() + v16.sum()).backward()
