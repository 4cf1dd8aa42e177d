"""A generative network of points on a ring: WGAN-GP, https://arxiv.org/abs/1704.00028.

The penalty is a loss of gradients, so training differentiates twice.
"""

import numpy as np

import cugrad as torch
from cugrad import nn


def network(inputs, outputs):
    return nn.Sequential(
        nn.Linear(inputs, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2),
        nn.Linear(32, outputs),
    )  # fmt: skip


def setup():
    return nn.ModuleDict({"generator": network(4, 2), "critic": network(2, 1)})


def penalty(critic, real, fake, share):
    """How far the critic's slopes are from 1, between real and made points."""
    between = (share * real + (1 - share) * fake).requires_grad_()
    (slopes,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return ((slopes.norm(2, dim=1) - 1) ** 2).mean()


def train(parts, steps=400):
    generator, critic = parts["generator"], parts["critic"]
    rng = np.random.default_rng(0)

    def draw(*shape):
        return torch.tensor(rng.standard_normal(shape), dtype=torch.float32)

    both = [torch.optim.Adam(net.parameters(), lr=1e-3, betas=(0.5, 0.9))
            for net in (generator, critic)]  # fmt: skip
    losses = []
    for step in range(steps):
        angles = torch.tensor(rng.uniform(0, 2 * np.pi, 64), dtype=torch.float32)
        real = torch.stack([angles.cos(), angles.sin()], 1) + 0.05 * draw(64, 2)
        fake = generator(draw(64, 4)).detach()
        share = torch.tensor(rng.uniform(0, 1, (64, 1)), dtype=torch.float32)
        loss = critic(fake).mean() - critic(real).mean() + 10 * penalty(critic, real, fake, share)
        both[1].zero_grad()
        loss.backward()
        both[1].step()
        losses.append(loss.item())
        if step % 5 == 4:
            loss = -critic(generator(draw(64, 4))).mean()
            both[0].zero_grad()
            loss.backward()
            both[0].step()
            losses.append(loss.item())
    print(f"the critic's loss: {losses[0]:.3f} to {losses[-2]:.3f}")
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    train(setup())
