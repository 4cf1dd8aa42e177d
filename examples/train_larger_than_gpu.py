"""A GPT whose weights, gradients and Adam's states do not have to fit the device.

    python3 examples/train_larger_than_gpu.py                             # a small one, simulated
    python3 examples/train_larger_than_gpu.py --device cuda --parameters 7e9 --window 4GiB
    python3 examples/train_larger_than_gpu.py --parameters 1e9 --budget 16GiB  # chooses the places

It learns Python's help texts, byte by byte. The end is what was where, and how much has moved. On
the CPU all is on the host already; there "disk" is a place.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from pydoc_data.topics import topics
from typing import Any

import numpy as np

import cugrad as torch
from cugrad import models
from cugrad.memory.sizes import bytes_of, size

TEXT = "\n".join(topics[name] for name in sorted(topics)).encode()
LAYERS = 6


class Drawn(Mapping[str, Any]):
    """The first values of a network's weights, each drawn when it is asked for."""

    def __init__(self, net: Any, device: str) -> None:
        self.shapes = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
        self.device = device

    def __getitem__(self, name: str) -> Any:
        shape = self.shapes[name]
        if len(shape) < 2:  # of norms, and biases
            return torch.full(shape, float(name.endswith("weight")), device=self.device)
        number = list(self.shapes).index(name)
        generator = torch.Generator(self.device).manual_seed(number)
        return 0.02 * torch.randn(shape, generator=generator, device=self.device)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


def network(asked: argparse.Namespace) -> Any:
    """A GPT of about so many parameters, in blocks of 12 * width**2. It is built without memory,
    and each weight is drawn for its place: the device never has all of them.
    """
    width = max(32, round((asked.parameters / (12 * LAYERS)) ** 0.5 / 32) * 32)
    layers = LAYERS if width <= 4096 else round(asked.parameters / (12 * 4096**2))
    width = min(width, 4096)

    def build() -> Any:
        return models.GPT(256, asked.context, width=width, heads=width // 32, layers=layers)

    with torch.device("meta"):
        values = Drawn(build(), asked.device)
    return torch.memory.materialise(
        build, values, device=asked.device, min_bytes=asked.min_bytes, window=asked.window,
        weights="host" if asked.budget else asked.weights,
    )  # fmt: skip


def batches(steps: int, count: int, context: int, device: str) -> Any:
    """Bytes of the text, and the bytes that follow them."""
    starts = np.random.default_rng(0).integers(0, len(TEXT) - context - 1, (steps, count))
    for row in starts:
        piece = np.stack([np.frombuffer(TEXT, np.uint8, context + 1, at) for at in row])
        words = torch.tensor(piece.astype(np.int64)).to(device)
        yield words[:, :-1], words[:, 1:]


def train(asked: argparse.Namespace) -> list[float]:
    """The loop that any program has, within one context."""
    net = network(asked)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    elements = sum([p.numel() for p in net.parameters()])
    print(f"{elements:,} parameters: {size(16 * elements)} with gradients and states")
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


def count(text: str) -> int:
    """A number of steps, examples or words."""
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"got {text}, want a whole number, 1 or more")
    return int(text)


def parameters(text: str) -> float:
    """A number of parameters: at least those of the smallest network."""
    if not 1e4 <= float(text) <= 1e13:
        raise argparse.ArgumentTypeError(f"got {text}, want 1e4 to 1e13")
    return float(text)


def nbytes(text: str) -> int:
    """An amount of memory: "512KiB", "16GiB", or bytes."""
    try:
        return bytes_of(text, "bytes")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def usable(text: str) -> str:
    """A device that computes."""
    try:
        torch.empty(1, device=text)
    except RuntimeError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if torch.device(text).type == "meta":
        raise argparse.ArgumentTypeError("got meta, want a device that computes")
    return text


def check_host(asked: argparse.Namespace) -> None:
    """MemoryError where the host has too little for what it is to hold, weights first."""
    shares = {"weights": 4, "gradients": 4, "states": 8}  # bytes a parameter, with Adam in float32
    on_host = [name for name in shares if getattr(asked, name) != "disk"]
    if torch.device(asked.device).type == "cuda" and not asked.budget:
        on_host = [name for name in on_host if getattr(asked, name) != "device"]
    need = sum([shares[name] for name in on_host]) * int(asked.parameters)
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if need > free:
        raise MemoryError(
            f"{asked.parameters:.3g} parameters need {size(need)} of the host for "
            f"{', '.join(on_host)}, and {size(free)} are free; take fewer, or --weights disk "
            "--states disk"
        )


def main(argv: list[str] | None = None) -> list[float]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    default = "cuda" if torch.cuda.is_available() else "simulated"
    parser.add_argument("--device", default=default, type=usable)
    parser.add_argument("--parameters", type=parameters, default=3e5)
    parser.add_argument("--weights", default="host", choices=["device", "host", "disk"])
    parser.add_argument("--gradients", default="host", choices=["device", "host"])
    parser.add_argument("--states", default="host", choices=["device", "host", "disk", "stream"])
    parser.add_argument(
        "--window", type=nbytes, default="512KiB", help="of each kind, on the device"
    )
    parser.add_argument("--min-bytes", type=nbytes, default="4KiB", help="what is smaller stays")
    parser.add_argument("--budget", type=nbytes, help="bytes of the device, for all of it")
    parser.add_argument("--steps", type=count, default=20)
    parser.add_argument("--batch", type=count, default=8)
    parser.add_argument("--context", type=count, default=64)
    asked = parser.parse_args(argv)
    if asked.context >= len(TEXT) // 2:
        parser.error(f"argument --context: got {asked.context}, want fewer than {len(TEXT) // 2}")
    try:
        check_host(asked)
        return train(asked)
    except (torch.memory.BudgetError, torch.OutOfMemoryError, MemoryError, OSError) as error:
        parser.exit(1, f"{parser.prog}: {error}\n")


if __name__ == "__main__":
    main()
