"""LoRA, https://arxiv.org/abs/2106.09685: a network is trained further by small matrices beside it.

The network knows the digits 0 to 4, and learns 5 to 9 by a fifteenth as many parameters.
"""

import math

from sklearn.datasets import load_digits

import cugrad as torch
from cugrad import nn


class LoRA(nn.Module):
    """A layer that stays as it is, plus a product of two thin matrices that is learned."""

    def __init__(self, layer, rank=2, alpha=8):
        super().__init__()
        self.layer, self.scale = layer, alpha / rank
        self.a = nn.Parameter(torch.empty(rank, layer.in_features))
        self.b = nn.Parameter(torch.zeros(layer.out_features, rank))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))
        for parameter in layer.parameters():
            parameter.requires_grad_(False)

    def forward(self, x):
        return self.layer(x) + (x @ self.a.t() @ self.b.t()) * self.scale


def setup():
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    adapted = nn.Sequential(LoRA(model[0]), nn.ReLU(), LoRA(model[2]))
    return nn.ModuleDict({"model": model, "adapted": adapted})


def fit(model, parameters, x, y, steps, lr):
    optimizer = torch.optim.Adam(parameters, lr=lr)
    losses = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train(parts, steps=200):
    digits = load_digits()
    images = torch.tensor(digits.data / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    low, high = labels < 5, labels >= 5
    model, adapted = parts["model"], parts["adapted"]
    model.requires_grad_(True)
    losses = fit(model, model.parameters(), images[low], labels[low], steps // 2, 3e-3)
    model.requires_grad_(False)
    before = [p.clone() for p in model.parameters()]
    small = [p for p in adapted.parameters() if p.requires_grad]
    losses += fit(adapted, small, images[high], labels[high], steps - steps // 2, 1e-2)
    assert all(torch.equal(p, q) for p, q in zip(before, model.parameters()))
    count = sum(p.numel() for p in small) / sum(p.numel() for p in model.parameters())
    print(f"loss {losses[steps // 2]:.3f} to {losses[-1]:.3f} with {count:.1%} of the parameters")
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    train(setup())
