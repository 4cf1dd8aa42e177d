"""Measures training on the CPU, whole steps and the ops they are made of, beside PyTorch.

Each workload is one piece of code that runs with both libraries, on one thread, in short turns. A
number is the least of its turns, in time of the processor, so that what else the machine does
matters little. Before them each runs for a while, in which Numba, where it is installed, compiles
what is used much:

    python benchmarks/training.py [--quick] [--check] [--json FILE] [--only REGEX]

A line whose name ends in `_train` is an op recorded and run backward; without it, not recorded.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy and torch start their threads

import numpy as np  # noqa: E402

from benchmarks import common  # noqa: E402
from benchmarks.common import Line, library  # noqa: E402
from benchmarks.twins import models_on  # noqa: E402

Step = Callable[[], Any]
TURN = 0.001  # seconds that one turn of a library takes at least
WARM = 1.5  # seconds for which a workload runs before its first turn


def array(*shape: int) -> Any:
    """Normal numbers of float32, the same for each library."""
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def labels(count: int, classes: int) -> Any:
    return np.random.default_rng(count).integers(0, classes, count)


# Steps --------------------------------------------------------------------------------------------


def stepper(lib: Any, net: Any, optimizer: str, x: Any, target: Any) -> Step:
    """A training step: cross entropy of what `net` makes of `x`, backward, and an update."""
    inputs, targets = lib.from_numpy(x), lib.from_numpy(target)
    update = getattr(lib.optim, optimizer)(net.parameters(), lr=1e-3)
    loss_of = lib.nn.functional.cross_entropy

    def step() -> None:
        scores = net(inputs)
        loss = loss_of(scores.reshape(-1, scores.shape[-1]), targets)
        update.zero_grad()
        loss.backward()
        update.step()

    return step


def mlp(lib: Any) -> Step:
    nn = lib.nn
    net = nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
    )
    return stepper(lib, net, "Adam", array(128, 784), labels(128, 10))


def lenet(lib: Any) -> Step:
    nn = lib.nn
    net = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84),
        nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip
    return stepper(lib, net, "Adam", array(64, 1, 28, 28), labels(64, 10))


def models(lib: Any) -> Any:
    if lib.__name__ == "torch":
        return models_on(lib)
    from cugrad import models as ours

    return ours


def resnet18(lib: Any) -> Step:
    net = models(lib).resnet18(num_classes=10)
    return stepper(lib, net, "SGD", array(8, 3, 32, 32), labels(8, 10))


def gpt(lib: Any) -> Step:
    net = models(lib).GPT(65, 64, width=128, heads=4, layers=4)
    return stepper(lib, net, "AdamW", labels(512, 65).reshape(8, 64), labels(512, 65))


def lstm(lib: Any) -> Step:
    class Net(lib.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embed = lib.nn.Embedding(65, 64)
            self.rnn = lib.nn.LSTM(64, 128, batch_first=True)
            self.head = lib.nn.Linear(128, 65)

        def forward(self, tokens: Any) -> Any:
            return self.head(self.rnn(self.embed(tokens))[0])

    return stepper(lib, Net(), "Adam", labels(1024, 65).reshape(32, 32), labels(1024, 65))


def hvp(lib: Any) -> Step:
    """The product of a loss's Hessian and a vector, by two passes."""
    nn, x = lib.nn, lib.from_numpy(array(32, 16))
    net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(),
                        nn.Linear(32, 1))  # fmt: skip
    params = list(net.parameters())
    vector = [lib.ones_like(p) for p in params]

    def step() -> None:
        slopes = lib.autograd.grad((net(x) ** 2).mean(), params, create_graph=True)
        lib.autograd.grad(slopes, params, vector)

    return step


def jacobian(lib: Any) -> Step:
    weight, x = lib.from_numpy(array(32, 32)), lib.from_numpy(array(32))
    return lambda: lib.autograd.functional.jacobian(lambda v: (weight @ v).tanh() * v, x)


def loading(lib: Any) -> Step:
    """An epoch of shuffled batches, without workers."""
    data = lib.utils.data
    examples = data.TensorDataset(
        lib.from_numpy(array(512, 3, 32, 32)), lib.from_numpy(labels(512, 10))
    )
    loader = data.DataLoader(examples, batch_size=64, shuffle=True)
    return lambda: [None for _ in loader]


STEPS: dict[str, tuple[Callable[[Any], Step], float]] = {
    "mlp_step": (mlp, 1.0), "lenet_step": (lenet, 1.2), "resnet18_step": (resnet18, 1.3),
    "gpt_step": (gpt, 1.2), "lstm_step": (lstm, 1.0), "hvp": (hvp, 1.0),
    "jacobian": (jacobian, 1.0), "data_loading": (loading, 1.0),
}  # fmt: skip

# Ops ----------------------------------------------------------------------------------------------

# What is computed, of lib.nn.functional and tensors; their shapes; the greatest ratio good enough.
Work = Callable[..., Any]
Op = tuple[Work, tuple[tuple[int, ...], ...], float]
FLAT, ROWS, IMAGES = (1 << 20,), (1024, 1024), (32, 64, 16, 16)
BOTH: dict[str, Op] = {  # measured without recording, and as a training step does
    "conv2d_3x3": (lambda F, x, w: F.conv2d(x, w, padding=1), (IMAGES, (64, 64, 3, 3)), 1.5),
    "conv2d_3x3_small": (
        lambda F, x, w: F.conv2d(x, w, padding=1), ((64, 16, 8, 8), (32, 16, 3, 3)), 1.5
    ),
    "conv2d_depthwise": (
        lambda F, x, w: F.conv2d(x, w, padding=1, groups=64), (IMAGES, (64, 1, 3, 3)), 2.0
    ),
    "gelu": (lambda F, x: F.gelu(x), (FLAT,), 2.0),
    "gelu_tanh": (lambda F, x: F.gelu(x, approximate="tanh"), (FLAT,), 1.5),
    "silu": (lambda F, x: F.silu(x), (FLAT,), 1.5),
    "sigmoid": (lambda F, x: F.sigmoid(x), (FLAT,), 1.5),
    "softmax": (lambda F, x: F.softmax(x, -1), (ROWS,), 1.5),
    "layer_norm": (lambda F, x, w, b: F.layer_norm(x, (1024,), w, b), (ROWS, (1024,), (1024,)),
                   1.5),
    "group_norm": (lambda F, x, w, b: F.group_norm(x, 8, w, b), (IMAGES, (64,), (64,)), 1.5),
    "batch_norm": (
        lambda F, x, w, b: F.batch_norm(x, None, None, w, b, True), (IMAGES, (64,), (64,)), 1.5
    ),
    "cross_entropy": (lambda F, x, target: F.cross_entropy(x, target), (ROWS, (-1024, 1024)), 1.5),
    "max_pool2d": (lambda F, x: F.max_pool2d(x, 2), (IMAGES,), 1.5),
}  # fmt: skip
TINY: dict[str, Op] = {  # recorded, forward and backward: what is seen is the library itself
    "matmul_8x8": (lambda F, x, y: x @ y, ((8, 8), (8, 8)), 1.0),
    "broadcast_add": (lambda F, x, y: x + y, ((8, 8), (8,)), 1.0),
    "sum": (lambda F, x: x.sum(), ((8, 8),), 1.0),
    "mean_dim": (lambda F, x: x.mean(1), ((8, 8),), 1.0),
    "amax_dim": (lambda F, x: x.amax(1), ((8, 8),), 1.0),
}  # fmt: skip
HALF: dict[str, Work] = {  # elementwise in float16 and bfloat16
    "add": lambda F, x, y: x + y, "mul": lambda F, x, y: x * y, "exp": lambda F, x, y: x.exp(),
    "relu": lambda F, x, y: F.relu(x), "gelu": lambda F, x, y: F.gelu(x),
    "to_float32": lambda F, x, y: x.float(),
}  # fmt: skip
HALF_GOAL = 3.0


def operand(lib: Any, shape: tuple[int, ...], dtype: str = "float32") -> Any:
    """A leaf; a first extent below zero asks for so many labels of so many classes."""
    if shape[0] < 0:
        return lib.from_numpy(labels(-shape[0], shape[1]))
    return lib.from_numpy(array(*shape)).to(getattr(lib, dtype)).requires_grad_()


def forward(lib: Any, op: Op, dtype: str = "float32") -> Step:
    work, shapes, _ = op
    inputs, functional = [operand(lib, s, dtype) for s in shapes], lib.nn.functional

    def step() -> None:
        with lib.no_grad():
            work(functional, *inputs)

    return step


def train(lib: Any, op: Op, dtype: str = "float32") -> Step:
    work, shapes, _ = op
    inputs, functional = [operand(lib, s, dtype) for s in shapes], lib.nn.functional
    leaves = [x for x in inputs if x.requires_grad]
    g = lib.ones_like(work(functional, *inputs).detach())

    def step() -> None:
        work(functional, *inputs).backward(g)
        for leaf in leaves:
            leaf.grad = None

    return step


def copying(lib: Any) -> Step:
    """copy_ of 200 MB."""
    source, target = lib.ones(50_000_000), lib.zeros(50_000_000)
    return lambda: target.copy_(source)


def copying_by_numpy(lib: Any) -> Step:
    source, target = np.ones(50_000_000, np.float32), np.zeros(50_000_000, np.float32)
    return lambda: np.copyto(target, source)


def dropping(lib: Any) -> Step:
    x = lib.ones(1 << 20)
    return lambda: lib.nn.functional.dropout(x, 0.1)


OTHERS: dict[str, tuple[Callable[[Any], Step], float]] = {
    "randn": (lambda lib: lambda: lib.randn(1 << 20), 2.0),
    "rand": (lambda lib: lambda: lib.rand(1 << 20), 2.0),
    "dropout": (dropping, 2.0),
}  # fmt: skip


def workloads() -> dict[str, tuple[Callable[[Any], Step], float]]:
    """What makes a step for a library, and the greatest ratio that is good enough, by name."""
    table = dict(STEPS)
    for name, op in TINY.items():
        table[name + "_tiny"] = lambda lib, op=op: train(lib, op), op[2]
    for name, op in BOTH.items():
        table[name] = lambda lib, op=op: forward(lib, op), op[2]
        table[name + "_train"] = lambda lib, op=op: train(lib, op), op[2]
    for dtype in ("float16", "bfloat16"):
        for name, work in HALF.items():
            half = work, (FLAT, FLAT), HALF_GOAL
            table[f"{name}_{dtype}"] = (
                lambda lib, op=half, dtype=dtype: forward(lib, op, dtype), HALF_GOAL
            )  # fmt: skip
        half = HALF["gelu"], (FLAT, FLAT), HALF_GOAL
        table[f"gelu_{dtype}_train"] = (
            lambda lib, op=half, dtype=dtype: train(lib, op, dtype), HALF_GOAL
        )  # fmt: skip
    return table | OTHERS


# Turns --------------------------------------------------------------------------------------------


def turn(step: Step, times: int) -> float:
    start = process_time()
    for _ in range(times):
        step()
    return (process_time() - start) / times


def in_turns(line: Line, steps: list[Step], rounds: int, seconds: float, warm: float) -> Line:
    """Fills a line: in each round the least of many turns that the two take one after the other."""
    counts = []
    for step in steps:
        stop = process_time() + warm
        step()
        while process_time() < stop:
            step()
        counts.append(max(1, round(TURN / turn(step, 1))))
    for _ in range(rounds):
        least, stop = [float("inf")] * len(steps), perf_counter() + seconds
        turns = 0
        while turns < 3 or perf_counter() < stop:
            for k, step in enumerate(steps):
                least[k] = min(least[k], turn(step, counts[k]))
            turns += 1
        for values, value in zip((line.ours, line.theirs), least):
            values.append(value * 1e6)
    return line


def measure(options: Any) -> list[Line]:
    """The lines whose name `options.only` matches."""
    ours, peer = library("cugrad"), library("torch")
    rounds = options.rounds or (1 if options.quick else 3)
    seconds, warm = (0.02, 0.0) if options.quick else (0.5, WARM)
    lines = []
    for name, (make, goal) in workloads().items():
        if re.search(options.only, name):
            steps = [make(lib) for lib in (ours, peer) if lib]
            lines.append(in_turns(Line(name, "us", goal=goal), steps, rounds, seconds, warm))
    name = "copy_200MB"
    if re.search(options.only, name) and not options.quick:
        steps = [copying(ours), copying_by_numpy(ours)]
        line = Line(name, "us", goal=1.1, peer="numpy")
        lines.append(in_turns(line, steps, rounds, seconds, warm))
    return lines


def main() -> int:
    options = common.arguments(__doc__.splitlines()[0]).parse_args()
    if options.device != "cpu":
        raise SystemExit("training.py measures the CPU")
    return common.report(measure(options), options)


if __name__ == "__main__":
    sys.exit(main())
