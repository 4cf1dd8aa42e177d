"""Outputs and last states of recurrent layers were views of what the layer had made within."""

import cugrad as t  # or torch

v1 = t.tensor([[[-1.5, 0.7], [0.7, 1.1]]], dtype=t.float64, requires_grad=True)
v2, v3, v4, v5 = [t.ones(2, 2, dtype=t.float64) * n for n in (0.1, 0.2, 0.3, 0.4)]
v6, v7 = t.rnn_tanh(v1, t.zeros(1, 2, 2).double(), [v2, v3, v4[0], v5[0]],
                    True, 1, 0.0, False, False, False)  # fmt: skip
v8 = v6 * 1
v7.mul_(2)
v9 = v6 + v7
v7.detach_()
v6.detach_()
(v8 + v9).sum().backward()
