#!/usr/bin/env python3
"""Trains a small GPT, character by character, on the text of Python's own documentation.

The text is that of `help()`'s topics, which ships with Python (`pydoc_data.topics`). What forward
saves for backward goes where --placement says: it stays, waits in host memory, as it is or in
fewer bits, or on disk, or is made again. Prints the loss as it falls, what was moved and waited
for, and text from the model. Needs NumPy alone. See --help, and examples/README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
if (ROOT / "cugrad").is_dir():
    sys.path.insert(0, str(ROOT))  # a checkout runs without being installed

# matrices this small are not worth a second thread, which on a busy machine waits for its core
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# What `memory.offload` is told of a network as small as this: the defaults would keep all of it.
SMALL: dict[str, Any] = {"min_bytes": 1 << 12, "backlog": 1 << 21, "lookahead": 1 << 21}
RATE = 3e-3  # of learning: reached after 20 steps, lowered to zero in the second half
SCALE = 256.0  # on the simulated device each byte and each flop counts as so many

# Where saved tensors wait: what stands around forward, by the name that --placement takes.
PLACEMENTS: dict[str, Callable[[Any], Any]] = {
    "keep": lambda torch: contextlib.nullcontext(),
    "pageable": lambda torch: torch.autograd.graph.save_on_cpu(),
    "save_on_cpu": lambda torch: torch.autograd.graph.save_on_cpu(pin_memory=True),
    "offload": lambda torch: torch.memory.offload(**SMALL),
    "offload-bf16": lambda torch: torch.memory.offload(compress="bf16", **SMALL),
    "offload-fp16": lambda torch: torch.memory.offload(compress="fp16", **SMALL),
    "offload-fp8": lambda torch: torch.memory.offload(compress="fp8", **SMALL),
    "offload-int8": lambda torch: torch.memory.offload(compress="int8", **SMALL),
    "disk": lambda torch: torch.memory.save_on_disk(**SMALL),
    "recompute": lambda torch: torch.memory.recompute(),
}


class UserError(Exception):
    """What the user can mend; its message is the one line that is printed."""


# ---------------------------------------------------------------- the command line


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, without the usage in front."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see --help)")


def whole_number(low: int, high: int = 2**31 - 1) -> Any:
    """An argparse type: a whole number from `low` to `high`."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(
                f"got {text[:40]!r}, want a whole number from {low} to {high}"
            )
        return value

    return read


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = OneLineParser(
        prog="offload_gpt.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--placement", choices=list(PLACEMENTS), default="offload",
                        help="where saved tensors wait (default: offload)")  # fmt: skip
    parser.add_argument("--budget", metavar="SIZE",
                        help="plan the whole step for as much memory, such as 30MB")  # fmt: skip
    parser.add_argument("--device", choices=["auto", "cpu", "cuda", "simulated"], default="auto",
                        help="auto takes the GPU if one is usable (default: auto); simulated "
                        "predicts a GPU's times")  # fmt: skip
    for name, default, what in (
        ("steps", 1000, "updates of the parameters"), ("batch-size", 16, "sequences in a step"),
        ("context", 64, "characters in a sequence"), ("width", 64, "of the model"),
        ("heads", 4, "of attention, which divide the width"), ("layers", 2, "blocks of the model"),
        ("sample", 240, "characters to write at the end"),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=whole_number(0 if name == "sample" else 1),
                            default=default, help=f"{what} (default: {default})")  # fmt: skip
    parser.add_argument("--seed", type=whole_number(0), default=0,
                        help="makes a run repeatable (default: 0)")  # fmt: skip
    options = parser.parse_args(argv)
    if options.width % options.heads:
        raise UserError(
            f"argument --heads: got {options.heads}, want a divisor of --width {options.width}"
        )
    return options


# ---------------------------------------------------------------- text


@dataclass
class Text:
    """Characters as numbers, on the training device."""

    characters: str  # each once, in order: what a number means
    train: Any
    test: Any

    def batch(self, torch: Any, part: Any, count: int, length: int) -> tuple[Any, Any]:
        """Sequences from random places, and for each character the next one."""
        starts = torch.randint(0, len(part) - length, (count, 1), device=part.device)
        index = starts + torch.arange(length + 1, device=part.device)
        found = part[index]
        return found[:, :-1], found[:, 1:]

    def read(self, numbers: list[int]) -> str:
        return "".join(self.characters[n] for n in numbers)


def load_text(torch: Any, device: Any, context: int) -> Text:
    """The topics of Python's help(); a tenth of them is for testing."""
    from pydoc_data.topics import topics

    import numpy

    text = "\n\n".join(topics[name] for name in sorted(topics))
    characters = "".join(sorted(set(text)))
    codes = numpy.frombuffer(text.encode("utf-32-le"), numpy.uint32)
    _, numbers = numpy.unique(codes, return_inverse=True)
    split = len(numbers) * 9 // 10
    if context > len(numbers) - split - 2:
        raise UserError(
            f"argument --context: got {context}, want at most {len(numbers) - split - 2}"
        )
    parts = (numbers[:split], numbers[split:])
    return Text(characters, *(torch.tensor(p.astype(numpy.int64), device=device) for p in parts))


# ---------------------------------------------------------------- training


class Trainer:
    """The model, its optimizer, and what stands around forward."""

    def __init__(self, torch: Any, device: Any, text: Text, options: argparse.Namespace) -> None:
        self.torch, self.text, self.options = torch, text, options
        self.model = torch.models.GPT(
            len(text.characters), options.context, width=options.width, heads=options.heads,
            layers=options.layers,
        ).to(device)  # fmt: skip
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE)
        self.saving = PLACEMENTS[options.placement](torch)
        if options.budget is not None:
            try:
                self.saving = torch.memory.budget(options.budget, device=device)
            except ValueError as error:
                raise UserError(f"argument --budget: {error}") from None

    def loss(self, part: Any) -> Any:
        """The mean of -log p of the next character, over one batch."""
        inputs, targets = self.text.batch(
            self.torch, part, self.options.batch_size, self.options.context
        )
        scores = self.model(inputs).flatten(0, 1)
        return self.torch.nn.functional.cross_entropy(scores, targets.flatten())

    def step(self) -> Any:
        """One update; the loss, still on its device."""
        self.optimizer.zero_grad()
        with self.saving:
            loss = self.loss(self.text.train)
            if self.options.budget is not None:
                loss.backward()
        if self.options.budget is None:
            loss.backward()
        self.optimizer.step()
        return loss.detach()

    def train(self) -> list[float]:
        """The loss of every step; a line for every tenth part of them."""
        losses: list[Any] = []
        steps, every = self.options.steps, max(1, self.options.steps // 10)
        for number in range(1, steps + 1):
            for group in self.optimizer.param_groups:
                group["lr"] = RATE * min(1.0, number / 20, (steps + 1 - number) / steps * 2)
            losses.append(self.step())
            if number % every == 0 or number == steps:
                recent = self.torch.stack(losses[-every:]).mean().item()
                print(f"step {number}/{steps}  loss {recent:.4f}", flush=True)
        return self.torch.stack(losses).tolist()

    def test(self, batches: int = 4) -> float:
        """The loss on text that was not trained on."""
        with self.torch.no_grad():
            return statistics.fmean(self.loss(self.text.test).item() for _ in range(batches))

    def sample(self, count: int) -> str:
        """Text that the model writes, character by character, from a line's beginning."""
        torch, context = self.torch, self.options.context
        numbers = [self.text.characters.index("\n")]
        with torch.no_grad():
            for _ in range(count):
                inputs = torch.tensor([numbers[-context:]], device=self.text.train.device)
                chances = torch.softmax(self.model(inputs)[0, -1] / 0.8, 0)
                numbers.append(int(torch.multinomial(chances, 1).item()))
        return self.text.read(numbers[1:])


def one_simulated_step(trainer: Trainer) -> Any:
    """The timeline of one more step in virtual time, when forward ended."""
    from cugrad.backends import simulated

    with simulated.record() as timeline:
        trainer.step()
    return timeline


# ---------------------------------------------------------------- report


def report(trainer: Trainer, losses: list[float], seconds: float) -> str:
    """What was saved and moved, where there is something to tell."""
    lines = [
        f"loss        {losses[0]:.3f} at first, {statistics.fmean(losses[-10:]):.3f} in the end, "
        f"{trainer.test():.3f} on other text",
        f"time        {1e3 * seconds / len(losses):.1f} ms a step",
    ]
    if trainer.options.device == "simulated":
        timeline = one_simulated_step(trainer)
        lines.append(timeline.text(64))
    if hasattr(trainer.saving, "report"):
        lines.append(str(trainer.saving.report()))
    elif hasattr(trainer.saving, "stats"):
        stats = trainer.saving.stats
        lines.append(f"saved       {stats.saved_bytes / 2**20:.2f} MiB, of which "
                     f"{stats.dropped_bytes / 2**20:.2f} were dropped, and made again")  # fmt: skip
    else:
        lines.append("saved       nothing was moved: saved tensors stay, as asked")
    return "\n".join(lines)


# ---------------------------------------------------------------- main


def choose_device(torch: Any, name: str) -> Any:
    """The device to train on, tried out, or the one line that says what is missing."""
    if name == "simulated":
        from cugrad.backends import simulated

        simulated.configure("H200", scale=SCALE)
        simulated.set_policy("timed")
    try:
        device = torch.get_default_device() if name == "auto" else torch.device(name)
        torch.zeros(1, device=device)
    except RuntimeError as error:
        raise UserError(f"argument --device: {' '.join(str(error).split())}") from None
    return device


def run(options: argparse.Namespace) -> None:
    torch = importlib.import_module("cugrad")
    device = choose_device(torch, options.device)
    torch.manual_seed(options.seed)
    text = load_text(torch, device, options.context)
    trainer = Trainer(torch, device, text, options)
    size = sum(p.numel() for p in trainer.model.parameters())
    print(
        f"{len(text.train) + len(text.test):,} characters, {len(text.characters)} different; "
        f"{size:,} parameters; {device}, "
        + (f"budget {options.budget}" if options.budget else f"placement {options.placement}")
    )
    began = time.perf_counter()
    try:
        losses = trainer.train()
    except torch.memory.BudgetError as error:
        raise UserError(str(error)) from None
    print(report(trainer, losses, time.perf_counter() - began))
    if options.sample:
        print(f"{'-' * 64}\n{trainer.sample(options.sample)}")


def main(argv: list[str] | None = None) -> int:
    """Run the example; 0, or 2 after a value that cannot be used, or 130 after Ctrl-C."""
    try:
        run(parse(argv))
    except UserError as error:
        print(f"offload_gpt.py: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("offload_gpt.py: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
