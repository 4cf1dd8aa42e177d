"""How benchmarks/kernels.py counts: what a call and its backward launch on a CuPy made of NumPy.

Importing this puts that CuPy in the place of the real one, so it comes before cugrad.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ |= {"CUGRAD_DEVICE": "cuda", "CUGRAD_CUDNN": "0"}

from tests.support import fake_cudnn, fake_launches

fake_launches.install()

import numpy as np  # noqa: E402

import cugrad as torch  # noqa: E402
from cugrad.backends.cupy.cudnn import convolutions  # noqa: E402
from cugrad.backends.cupy.written.sliding import direct  # noqa: E402
from cugrad.backends.wanted import wanted  # noqa: E402

__all__ = ["Case", "Counts", "measured", "tensor", "torch"]


class Case(NamedTuple):
    """`call(*make())` and its backward; goals are kernels, where they are held to. `passes` are
    those of PyTorch's kernels, each way: what is more than one beyond them is too much.

    `large` makes convolutions of small images launch what those of large ones do, `cudnn` has them
    computed by cuDNN, each in one kernel.
    """

    name: str
    make: Callable[[], tuple[Any, ...]]
    call: Callable[..., Any]
    torch: str = ""
    forward: int | None = None
    backward: int | None = None
    large: bool = False
    cudnn: bool = False
    passes: tuple[float, float] | None = None


class Counts(NamedTuple):
    name: str
    kernels: tuple[int, int]
    passes: tuple[float, float]
    torch: str
    goal: tuple[int | None, int | None]
    what: tuple[dict[str, int], dict[str, int]]
    torch_passes: tuple[float, float] | None = None

    @property
    def missed(self) -> bool:
        pairs = zip(self.kernels, self.goal, strict=True)
        if any(goal is not None and count > goal for count, goal in pairs):
            return True
        passes = self.torch_passes or (math.inf, math.inf)
        return any(x > most + 1 for x, most in zip(self.passes, passes, strict=True))


def tensor(*shape: int, dtype: Any = None) -> Any:
    x = torch.tensor(np.random.default_rng(0).random(shape, np.float32) * 0.8 + 0.1)
    return x.to(dtype or torch.float32).detach().requires_grad_()


@contextmanager
def with_cudnn(used: bool) -> Iterator[None]:
    """Convolutions by cuDNN's stand-in, of whose graphs each is a kernel; or as they are."""
    module = fake_cudnn.fake()
    run = module.pygraph.execute

    def execute(graph: Any, tensor_dict: dict[int, int], workspace: Any, handle: Any) -> None:
        fake_launches.note(graph.node.name, ())
        run(graph, tensor_dict, workspace, handle)

    with ExitStack() as changes:
        if used:
            changes.enter_context(patch.object(module.pygraph, "execute", execute))
            changes.enter_context(patch.object(convolutions, "frontend", lambda: module))
            changes.enter_context(patch.object(wanted.cudnn, "asked", True))
        yield


def measured(case: Case) -> Counts:
    """Counts of the second call: the first makes what is kept."""
    with with_cudnn(case.cudnn), patch.object(direct, "FEW", 0 if case.large else direct.FEW):
        for _ in range(2):
            args = case.make()
            with fake_launches.counted() as forward:
                y = case.call(*args)
            parts = [t for t in (y if isinstance(y, tuple) else (y,))
                     if isinstance(t, torch.Tensor) and t.requires_grad]  # fmt: skip
            gradients = [None if t.dim() == 0 else torch.ones_like(t) for t in parts]
            leaves = [x for x in args if isinstance(x, torch.Tensor) and x.requires_grad]
            leaves += case.call.parameters() if isinstance(case.call, torch.nn.Module) else []
            with fake_launches.counted() as backward:  # without the copies that make `.grad`
                torch.autograd.grad(parts, leaves, gradients) if parts else None
    size = max([x.numel() for x in args if isinstance(x, torch.Tensor)], default=1)
    ways = forward, backward
    return Counts(
        case.name, (forward.count, backward.count),
        (forward.elements / size, backward.elements / size), case.torch,
        (case.forward, case.backward), (dict(ways[0].kernels), dict(ways[1].kernels)),
        case.passes,
    )  # fmt: skip
