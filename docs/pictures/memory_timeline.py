"""Draws `memory-timeline.png`: a step of a small GPT whose saved tensors wait in host memory.

python docs/pictures/memory_timeline.py [FILE]
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2]))

import cugrad as torch  # noqa: E402
from cugrad.backends import simulated  # noqa: E402
from cugrad.models import GPT  # noqa: E402

WORDS, LENGTH, BATCH = 512, 128, 2


def draw(path: Path) -> None:
    """Writes the picture of the third step: the first one learns in which order tensors return."""
    simulated.configure("H200")
    simulated.set_policy("timed")
    torch.manual_seed(0)
    model = GPT(WORDS, LENGTH, layers=3, heads=4, width=96).to("simulated")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    words = torch.randint(WORDS, (BATCH, LENGTH + 1)).to("simulated")
    offload = torch.memory.offload(min_bytes=1 << 14, keep_last=0, lookahead=1 << 20)

    def step() -> None:
        optimizer.zero_grad()
        with offload:
            scores = model(words[:, :-1])
            loss = torch.nn.functional.cross_entropy(
                scores.reshape(-1, WORDS), words[:, 1:].reshape(-1)
            )
        loss.backward()

    for _ in range(2):
        step()
        optimizer.step()
    optimizer.zero_grad()
    with torch.profiler.MemoryTimeline("simulated") as timeline:
        step()
    timeline.to_png(path)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.with_name("memory-timeline.png"))
