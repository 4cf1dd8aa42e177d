"""LSTM cells raised NumPy's error where there were no examples, or no features."""

import cugrad as t  # or torch

v1 = t.zeros((0, 2), dtype=t.float64, requires_grad=True)
v2 = t.zeros((3, 0), dtype=t.float64, requires_grad=True)
v3 = t.tensor([[0.3], [0.2], [0.1], [0.7]], dtype=t.float64, requires_grad=True)
v4 = v3.expand(4, 2) * 1
v5 = t.lstm_cell(v1, (v1[:, :1], v1[:, :1]), v4, v3)[1]
v6 = t.zeros((3, 1), dtype=t.float64)
v7 = t.lstm_cell(v2, (v6, v6 + 1), v4[:, :0], v3)[1]
v8 = t.gru_cell(v2, v6 + 1, v4[:3, :0], v3[:3])
v9 = t.rnn_tanh_cell(v1, v1[:, :1], v4[:1], v3[:1])
(v5.sum() + v7.sum() + v8.sum() + v9.sum()).backward()
