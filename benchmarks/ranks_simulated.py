"""A step on many GPUs, on the simulated device: its time against the larger of its two parts.

ResNet-50 and GPT-2 in float32, with DistributedDataParallel, on 8 H100 with NVLink and on 64 with
InfiniBand. No schedule is faster than its kernels, or than its collectives. Virtual time: the
numbers are the same everywhere. They take some minutes, and 10 GiB of memory.

    python benchmarks/ranks_simulated.py [--check] [--preset H100] [--only REGEX] [--ranks 8 64]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cugrad as torch
import cugrad.distributed as dist
from benchmarks.common import provenance
from cugrad import models

GOAL = 1.10  # of the larger of compute and communication


def resnet() -> dict[str, Any]:
    """ResNet-50 with 32 images a rank."""
    images, labels = torch.randn(32, 3, 224, 224), torch.randint(0, 1000, (32,))
    loss = torch.nn.CrossEntropyLoss()
    return {"model": models.resnet50(), "inputs": images, "target": labels, "loss": loss}


def gpt() -> dict[str, Any]:
    """GPT-2's smallest with 2 sequences of 1024 tokens a rank."""
    tokens = torch.randint(0, 50257, (2, 1024))

    def loss(scores: Any, target: Any) -> Any:
        return torch.nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten())

    return {"model": models.GPT(), "inputs": tokens, "target": tokens, "loss": loss}


CASES = {"ResNet-50": resnet, "GPT-2": gpt}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help=f"fail above {GOAL}")
    parser.add_argument("--preset", default="H100")
    parser.add_argument("--only", default="", help="cases whose names match")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--json", type=Path, help="where the rows go")
    asked = parser.parse_args()
    rows, missed = [], 0
    for name, build in CASES.items():
        if not re.search(asked.only, name):
            continue
        torch.manual_seed(0)
        step = dist.simulate(**build(), ranks=asked.ranks[0], preset=asked.preset)
        for point in step.scaling(asked.ranks).points:
            bound = max(point.compute_time, point.communication_time)
            ratio = point.step_time / bound
            missed += ratio > GOAL
            rows.append({"case": name, **point.as_dict(), "ratio": ratio})
            print(f"{name:10} {ratio:.3f}  {point}", flush=True)
    if asked.json:
        asked.json.write_text(json.dumps({"provenance": provenance(), "rows": rows}, indent=1))
    return int(asked.check and missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
