"""A convolutional network on handwritten digits, 1797 images that come with scikit-learn."""

import numpy as np
from sklearn.datasets import load_digits

import cugrad as torch
from cugrad import nn
from cugrad.utils.data import DataLoader, TensorDataset


def setup():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


def train(model, steps=200):
    digits = load_digits()
    images = torch.tensor(digits.images[:, None] / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    order = np.random.default_rng(0).permutation(1500).tolist()
    batches = [order[i : i + 32] for i in range(0, 1500 - 32, 32)]
    loader = DataLoader(TensorDataset(images, labels), batch_sampler=batches)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    while len(losses) < steps:
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if len(losses) == steps:
                break
    model.eval()
    with torch.no_grad():
        right = (model(images[1500:]).argmax(1) == labels[1500:]).float().mean().item()
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}, {right:.1%} of 297 other digits are right")
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    train(setup())
