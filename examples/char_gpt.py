"""A small GPT, character by character, on the help texts that come with Python."""

from pydoc_data.topics import topics

import numpy as np

import cugrad as torch
from cugrad import nn

TEXT = "\n".join(topics[name] for name in sorted(topics))[:20_000]
LETTERS = sorted(set(TEXT))
CONTEXT, WIDTH = 32, 32


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(len(LETTERS), WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        block = nn.TransformerEncoderLayer(
            WIDTH, 4, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, len(LETTERS), bias=False)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        x = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        return self.head(self.norm(self.blocks(x, mask=mask, is_causal=True)))


def setup():
    return GPT()


def train(model, steps=300):
    text = torch.tensor([LETTERS.index(c) for c in TEXT])
    starts = np.random.default_rng(0).integers(0, len(TEXT) - CONTEXT - 1, (steps, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    losses = []
    for step in range(steps):
        piece = torch.stack([text[i : i + CONTEXT + 1] for i in starts[step].tolist()])
        scores = model(piece[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), piece[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}")
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    train(setup())
