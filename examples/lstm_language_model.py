"""A language model of an LSTM, word by word, whose state goes on from piece to piece."""

from pydoc_data.topics import topics

import cugrad as torch
from cugrad import nn

WORDS = " ".join(topics[name] for name in sorted(topics)).split()[:4000]
VOCABULARY = sorted(set(WORDS))
ROWS, LENGTH, WIDTH = 8, 12, 32


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(len(VOCABULARY), WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2)
        self.decoder = nn.Linear(WIDTH, len(VOCABULARY))
        self.decoder.weight = self.embedding.weight

    def forward(self, words, state):
        x, state = self.lstm(self.embedding(words), state)
        return self.decoder(x), state


def setup():
    return LanguageModel()


def train(model, steps=150):
    number = {word: i for i, word in enumerate(VOCABULARY)}
    words = torch.tensor([number[word] for word in WORDS])
    columns = words[: len(words) // ROWS * ROWS].reshape(ROWS, -1).t()
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    losses, state, at = [], None, 0
    for _ in range(steps):
        if at + LENGTH + 1 > columns.shape[0]:
            state, at = None, 0
        x, y = columns[at : at + LENGTH], columns[at + 1 : at + LENGTH + 1]
        if state is not None:
            state = tuple(part.detach() for part in state)  # the text before is not learned again
        scores, state = model(x, state)
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        losses.append(loss.item())
        at += LENGTH
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}")
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    train(setup())
