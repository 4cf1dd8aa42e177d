"""Lines of random programs with recurrent layers and attention; the templates are table.py's."""

from __future__ import annotations

from .table import rows_of

RECURRENT = rows_of("""
t.rnn_tanh_cell({x}, {x} * .5, {x}, {x})  real =2d square
t.gru_cell({x}, {x} * .5, {x}.repeat(3, 1), {x}.repeat(3, 1) * .3)  real =2d square
t.lstm_cell({x}, ({x} * .5, {x}), {x}.repeat(4, 1), {x}.repeat(4, 1) * .3)[1]  real =2d square
recurrent('rnn_tanh', {x}[:, None])  real =2d
recurrent('rnn_tanh', {x}, ways=2)  real =3d
recurrent('gru', {x}[:, None], layers=2)  real =2d
recurrent('gru', {x}, biases={b})  real =3d
recurrent('lstm', {x}[:, None])  real =2d
recurrent('lstm', {x}, layers=2, ways=2, biases={b})  real =3d
layered(t.nn.RNN({x}.shape[-1], 2), {x})  real =2d
layered(t.nn.GRU({x}.shape[-1], 2, batch_first=True), {x})  real =3d
layered(t.nn.LSTM({x}.shape[-1], 3, proj_size=2), {x})  real =2d
layered(t.nn.LSTM({x}.shape[-1], 2, bidirectional=True), {x}.mT)  real =3d square
layered(t.nn.LSTMCell({x}.shape[-1], 2), {x})  real =2d
layered(t.nn.GRUCell({x}.shape[-1], 2), {x})  real =2d
layered(t.nn.GRU({x}.shape[-1], 2), t.nn.utils.rnn.pack_padded_sequence({x}, [{n}] + [1] * ({x}.shape[1] - 1)))  real =3d
layered(t.nn.MultiheadAttention({x}.shape[-1], 1), {x}, {x}, {x})  real =2d
layered(t.nn.TransformerEncoderLayer({x}.shape[-1], 1, 2, 0.), {x})  real =2d
t.nn.functional.scaled_dot_product_attention({x}, {x}, {x}, attn_mask={m})  real =2d square
""")  # fmt: skip  # noqa: E501
