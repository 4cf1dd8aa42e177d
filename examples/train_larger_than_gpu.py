"""A GPT whose weights, gradients and Adam's states do not have to fit the device.

    python3 examples/train_larger_than_gpu.py                             # a small one, simulated
    python3 examples/train_larger_than_gpu.py --device cuda --parameters 7e9 --window 4GiB
    python3 examples/train_larger_than_gpu.py --parameters 1e9 --budget 16GiB  # chooses the places

It learns Python's help texts, byte by byte. The end is what was where, and how much has moved. On
the CPU all is on the host already; there "disk" is a place.
"""

from __future__ import annotations

import argparse
from pydoc_data.topics import topics
from typing import Any

import numpy as np

import cugrad as torch
from cugrad import models
from cugrad.memory.sizes import size

TEXT = "\n".join(topics[name] for name in sorted(topics)).encode()
LAYERS = 6


def network(parameters: float, context: int, device: str) -> Any:
    """A GPT of about so many parameters: blocks of 12 * width**2."""
    width = max(32, round((parameters / (12 * LAYERS)) ** 0.5 / 32) * 32)
    layers = LAYERS if width <= 4096 else round(parameters / (12 * 4096**2))
    torch.manual_seed(0)
    width = min(width, 4096)
    return models.GPT(256, context, width=width, heads=width // 32, layers=layers).to(device)


def batches(steps: int, count: int, context: int, device: str) -> Any:
    """Bytes of the text, and the bytes that follow them."""
    starts = np.random.default_rng(0).integers(0, len(TEXT) - context - 1, (steps, count))
    for row in starts:
        piece = np.stack([np.frombuffer(TEXT, np.uint8, context + 1, at) for at in row])
        words = torch.tensor(piece.astype(np.int64)).to(device)
        yield words[:, :-1], words[:, 1:]


def train(asked: argparse.Namespace) -> list[float]:
    """The loop that any program has, within one context."""
    net = network(asked.parameters, asked.context, asked.device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    count = sum([p.numel() for p in net.parameters()])
    print(f"{count:,} parameters: {size(16 * count)} with gradients and states")
    losses = []
    if asked.budget:
        placing: Any = torch.memory.budget(asked.budget, model=net, optimizer=optimizer)
    else:
        placing = torch.memory.offload_states(
            net, optimizer, weights=asked.weights, gradients=asked.gradients, states=asked.states,
            window=asked.window, min_bytes=asked.min_bytes,
        )  # fmt: skip
    with placing as placed:
        for words, following in batches(asked.steps, asked.batch, asked.context, asked.device):
            loss = torch.nn.functional.cross_entropy(net(words).flatten(0, 1), following.flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        tokens = {} if asked.budget else {"tokens": asked.batch * asked.context}
        print(placed.report(**tokens))
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}")
    return losses


def main(argv: list[str] | None = None) -> list[float]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    usable = torch.cuda.is_available()
    parser.add_argument("--device", default="cuda" if usable else "simulated")
    parser.add_argument("--parameters", type=float, default=3e5)
    parser.add_argument("--weights", default="host", choices=["device", "host", "disk"])
    parser.add_argument("--gradients", default="host", choices=["device", "host"])
    parser.add_argument("--states", default="host", choices=["device", "host", "disk", "stream"])
    parser.add_argument("--window", default="512KiB", help="bytes of each kind on the device")
    parser.add_argument("--min-bytes", default="4KiB", help="smaller parameters stay")
    parser.add_argument("--budget", help="bytes of the device, for all of it")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, default=64)
    return train(parser.parse_args(argv))


if __name__ == "__main__":
    main()
