"""A graph network, https://arxiv.org/abs/1609.02907: of which of three groups is a node?

The groups' members are linked more often with one another. One node in ten is labelled.
"""

import numpy as np

import cugrad as torch
from cugrad import nn

NODES, GROUPS = 150, 3


class GraphConvolution(nn.Module):
    """The mean of what a node and its neighbours are, by the normalised adjacency, and a layer."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)

    def forward(self, x, adjacency):
        return torch.sparse.mm(adjacency, self.layer(x))


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = GraphConvolution(NODES, 16)
        self.second = GraphConvolution(16, GROUPS)

    def forward(self, x, adjacency):
        return self.second(torch.relu(self.first(x, adjacency)), adjacency)


def setup():
    return GCN()


def graph():
    """The normalised adjacency, sparse, and the group of each node."""
    rng = np.random.default_rng(0)
    groups = rng.integers(0, GROUPS, NODES)
    chances = np.where(groups[:, None] == groups, 0.12, 0.02)
    links = np.triu(rng.random((NODES, NODES)) < chances, 1)
    links = links | links.T | np.eye(NODES, dtype=bool)
    rows, columns = links.nonzero()
    degrees = links.sum(1)
    weights = 1 / np.sqrt(degrees[rows] * degrees[columns])
    places = torch.tensor(np.stack([rows, columns]))
    values = torch.tensor(weights, dtype=torch.float32)
    return torch.sparse_coo_tensor(places, values, (NODES, NODES)).coalesce(), torch.tensor(groups)


def train(model, steps=100):
    adjacency, groups = graph()
    x, labelled = torch.eye(NODES), torch.arange(NODES) % 10 == 0
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
    losses = []
    for _ in range(steps):
        scores = model(x, adjacency)
        loss = nn.functional.cross_entropy(scores[labelled], groups[labelled])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    right = (scores.argmax(1) == groups)[~labelled].float().mean().item()
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}, {right:.0%} of the other nodes are right")
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    train(setup())
