"""A variational autoencoder of handwritten digits, https://arxiv.org/abs/1312.6114."""

import numpy as np
from sklearn.datasets import load_digits

import cugrad as torch
from cugrad import nn
from cugrad.nn import functional as F


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.Linear(64, 64)
        self.mean, self.log_variance = nn.Linear(64, 8), nn.Linear(64, 8)
        self.outside = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64))

    def forward(self, x, noise):
        h = torch.relu(self.inside(x))
        mean, log_variance = self.mean(h), self.log_variance(h)
        return self.outside(mean + torch.exp(0.5 * log_variance) * noise), mean, log_variance


def setup():
    return VAE()


def loss_of(scores, x, mean, log_variance):
    """How badly an image comes back, and how far its code is from normal."""
    image = F.binary_cross_entropy_with_logits(scores, x, reduction="sum")
    code = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
    return (image + code) / x.shape[0]


def train(model, steps=300):
    images = torch.tensor(load_digits().data / 16, dtype=torch.float32)
    rng = np.random.default_rng(0)  # of NumPy, so that PyTorch draws the same
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(steps):
        x = images[torch.tensor(rng.integers(0, len(images), 64))]
        noise = torch.tensor(rng.standard_normal((64, 8)), dtype=torch.float32)
        scores, mean, log_variance = model(x, noise)
        loss = loss_of(scores, x, mean, log_variance)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"loss {losses[0]:.2f} to {losses[-1]:.2f}")
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    train(setup())
