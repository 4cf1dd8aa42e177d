"""Mistakes: a type checker finds one in each line that is marked, and in no other."""

from __future__ import annotations

import cugrad as torch
import cugrad.nn.functional as F
from cugrad import nn, optim
from cugrad.nn import Liner  # wrong
from cugrad.utils.data import DataLoader, TensorDataset

x = torch.rand(3)
torch.onse(3)  # wrong
x.sofmax(0)  # wrong
x.sum(dimension=0)  # wrong
x.reshape("3")  # wrong
x.view(1, 2.5)  # wrong
x.sum(0, keepdim="yes please")  # wrong
torch.cat(x, x)  # wrong
torch.zeros(3, dtype="float32")  # wrong
torch.matmul(x)  # wrong
torch.stack([1, 2])  # wrong
torch.full(3.5, 0)  # wrong
x + "1"  # wrong
x @ 2  # wrong
x.shape.numle()  # wrong
x.grad.zero_()  # wrong
torch.float31  # wrong
torch.topk(x, 2).value  # wrong
length: str = x.size(0)  # wrong
torch.linalg.nrom(x)  # wrong
torch.special.exppit(x)  # wrong
F.reluu(x)  # wrong
F.relu(3)  # wrong
F.cross_entropy(x, x, reductoin="sum")  # wrong
nn.Linear("3", 4)  # wrong
nn.Linear(3, 4, biass=False)  # wrong
nn.Linaer(3, 4)  # wrong
optim.Adma([x])  # wrong
optim.Adam([x], learning_rate=0.1)  # wrong
DataLoader(TensorDataset(x), batchsize=2)  # wrong
torch.utils.data.DataLoadr(TensorDataset(x))  # wrong
torch.memory.oflload()  # wrong
torch.func.hesian(torch.sum)  # wrong
torch.cuda.is_availabel()  # wrong
torch.autograd.gard(x.sum(), x)  # wrong
torch.autograd.grad(x.sum(), [x])[0].nrom()  # wrong
torch.autograd.grad(x.sum(), {"x": x})["x"].nrom()  # wrong
torch.manual_seed("0")  # wrong
nn.LSTM(2, 3, bidir=True)  # wrong
nn.GRU(2, 3, proj_size=1)  # wrong
nn.RNN(2, "3")  # wrong
torch.__version__.nrom  # wrong
x.to_sparse().coalesced()  # wrong
