"""Whole training steps on CUDA beside PyTorch's eager ones: the goals of the CUDA path.

A step is forward, backward and the optimizer. Both libraries have equal TF32 settings, off, and in
bfloat16 the parameters are of that dtype. "graphed" is our step as one CUDA graph, beside PyTorch's
step without one. "cublaslt" and "cudnn" are our step with these libraries; cuDNN only where
nvidia-cudnn-frontend is installed. Numbers are written after each workload.

    python benchmarks/steps.py [--device cuda] [--check] [--quick] [--json FILE] [--only REGEX]
                               [--kernels N]

With --quick, and on the CPU, networks are small: that tries the program and measures nothing. With
--kernels, for which PyTorch's profiler sees the kernels of the whole process, the N that took the
most of a step of each library are listed, and how long the device was busy.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import common
from benchmarks.common import Line, library, paired

WARM = 4  # steps before those that are measured: compilation, plans, algorithms
STEPS = 3  # whose kernels are looked at
Step = Callable[[], Any]


class Workload(NamedTuple):
    """`make(lib, models, device, small)` gives a step; `how` says what is switched on for ours."""

    make: Callable[..., Step]
    how: str = ""
    goal: float | None = None  # times PyTorch's eager step


def training(lib: Any, net: Any, loss_of: Callable[[], Any], graphed: bool) -> Step:
    optimizer = lib.optim.AdamW(net.parameters(), lr=1e-4, capturable=graphed)

    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss

    return lib.cuda.capture_step(step) if graphed else step


def gpt(
    lib: Any, models: Any, device: str, small: bool, graphed: bool = False, dtype: str = "bfloat16"
) -> Step:
    """GPT-2 small, 8 sequences of 1024 tokens."""
    sizes = {"width": 32, "heads": 4, "layers": 2} if small else {}
    words, length, batch = (64, 16, 2) if small else (50257, 1024, 8)
    with lib.device(device):  # which draws faster than the host
        net = models.GPT(words, length, **sizes).to(getattr(lib, dtype))
    tokens = lib.randint(0, words, (batch, length + 1), device=device)
    cross_entropy = lib.nn.functional.cross_entropy

    def loss() -> Any:
        scores = net(tokens[:, :-1])
        return cross_entropy(scores.flatten(0, 1).float(), tokens[:, 1:].flatten())

    return training(lib, net, loss, graphed)


def resnet(lib: Any, models: Any, device: str, small: bool, dtype: str = "float32") -> Step:
    """ResNet-50, 64 images of 224 x 224, channels last."""
    # not narrower: PyTorch's 1 x 1 convolutions, channels last, write beyond what they own
    classes, size, batch = (10, 32, 2) if small else (1000, 224, 64)
    kind, last = getattr(lib, dtype), lib.channels_last
    with lib.device(device):
        net = models.resnet18(10, width=16) if small else models.resnet50()
    net = net.to(kind).to(memory_format=last)
    images = lib.randn(batch, 3, size, size, device=device).to(kind).to(memory_format=last)
    labels = lib.randint(0, classes, (batch,), device=device)
    loss = lib.nn.CrossEntropyLoss()
    return training(lib, net, lambda: loss(net(images).float(), labels), False)


def perceptron(lib: Any, models: Any, device: str, small: bool, graphed: bool = False) -> Step:
    """Six layers of 64 features on 32 rows: what the host launches takes longest."""
    layers = [m for _ in range(6) for m in (lib.nn.Linear(64, 64), lib.nn.ReLU())]
    net = lib.nn.Sequential(*layers).to(device)
    x = lib.randn(32, 64, device=device)
    return training(lib, net, lambda: (net(x) ** 2).mean(), graphed)


def chain(lib: Any, models: Any, device: str, small: bool) -> Step:
    """Ten elementwise ops on 64 million elements, forward and backward; ours are fused."""
    x = lib.rand(1 << (10 if small else 26), device=device, requires_grad=True)

    def function(y: Any) -> Any:
        return ((y * 1.5 + 0.5).sigmoid() * y).tanh() * (y * y + 1).sqrt() - y.exp() * 0.1

    ours = lib.fuse(function) if hasattr(lib, "fuse") else function
    ones = lib.ones_like(x)
    return lambda: lib.autograd.grad(ours(x), x, ones)


WORKLOADS: dict[str, Workload] = {
    "gpt2_small_bf16": Workload(gpt, "", 1.1),
    "gpt2_small_bf16_cublaslt": Workload(gpt, "cublaslt", 1.1),
    "gpt2_small_bf16_graphed": Workload(partial(gpt, graphed=True), "graphed", 0.9),
    "mlp_eager": Workload(perceptron),
    "mlp_graphed": Workload(partial(perceptron, graphed=True), "graphed", 0.5),
    "elementwise_fused": Workload(chain, "", 0.6),
    "resnet50_float32_cudnn": Workload(resnet, "cudnn", 1.2),
    "resnet50_bf16_cudnn": Workload(partial(resnet, dtype="bfloat16"), "cudnn", 1.2),
    "gpt2_small_float32": Workload(partial(gpt, dtype="float32")),
    "resnet50_float32": Workload(resnet),
}


@contextmanager
def switched(lib: Any, how: str) -> Iterator[None]:
    """Our libraries for a workload."""
    from cugrad.backends.wanted import wanted

    before = wanted.cublaslt, wanted.cudnn.asked
    wanted.cublaslt, wanted.cudnn.asked = how == "cublaslt", how == "cudnn"
    if how == "cudnn":
        lib.backends.cudnn.benchmark, lib.backends.cudnn.allow_tf32 = True, False
    try:
        yield
    finally:
        wanted.cublaslt, wanted.cudnn.asked = before


def timed(lib: Any, device: str, step: Step, count: int) -> float:
    """Milliseconds a step, the device's work included."""
    synchronize = lib.cuda.synchronize if device == "cuda" else lambda: None
    synchronize()
    start = perf_counter()
    for _ in range(count):
        step()
    synchronize()
    return (perf_counter() - start) / count * 1e3


def kernels_of(torch: Any, name: str, step: Step, most: int) -> str:
    """The kernels that take the most of a step, and copies, in microseconds a step."""
    activity = torch.profiler.ProfilerActivity.CUDA
    with torch.profiler.profile(activities=[activity]) as profile:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
    times: dict[str, list[float]] = {}
    for event in profile.events():
        if "CUDA" in str(event.device_type):
            times.setdefault(event.name, []).append(event.time_range.elapsed_us())
    spent = sorted(((sum(found), kernel) for kernel, found in times.items()), reverse=True)
    lines = [f"{us / STEPS:9.1f} {len(times[kernel]) / STEPS:6.1f} x {kernel[:110]}"
             for us, kernel in spent[:most]]  # fmt: skip
    busy, count = sum(us for us, _ in spent), sum(map(len, times.values()))
    return "\n".join([f"{name}: {busy / STEPS:,.0f} us in {count / STEPS:,.0f} kernels", *lines])


def measured(name: str, workload: Workload, options: Any, libs: tuple[Any, Any]) -> Line:
    """One workload; what fails is the note of its line."""
    line = Line(f"step_{name}", "ms", goal=workload.goal)
    device, small = options.device, options.quick or options.device == "cpu"
    if workload.how == "cudnn" and not importlib.util.find_spec("cudnn"):
        line.note = "nvidia-cudnn-frontend is not installed"
        return line
    if device == "cpu" and workload.how in ("graphed", "cudnn"):
        line.note = "needs a GPU"
        return line
    lib, torch = libs
    make, keywords = workload.make, getattr(workload.make, "keywords", {})
    plain = partial(getattr(make, "func", make), **{**keywords, **{
        k: False for k in keywords if k == "graphed"}})  # fmt: skip
    try:
        with switched(lib, workload.how):
            ours = make(lib, lib.models, device, small)
            theirs = None
            if torch is not None:
                from benchmarks.twins import models_on

                theirs = plain(torch, models_on(torch), device, small)
            sides = [(lib, ours)] + ([(torch, theirs)] if theirs else [])
            for library_of, step in sides:
                timed(library_of, device, step, WARM)
            count = 2 if small else 10
            runs = [partial(timed, side, device, step, count) for side, step in sides]
            paired(
                line, runs[0], runs[1] if theirs else None, options.rounds or (1 if small else 3)
            )
            if options.kernels and theirs and device == "cuda":
                for side, step in sides:
                    print(kernels_of(torch, f"{name}, {side.__name__}", step, options.kernels))
    except Exception as error:  # the others are measured nevertheless
        line.ours, line.theirs = [], []
        line.note = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return line


def main() -> int:
    parser = common.arguments(__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, metavar="N", default=0, help="list so many a step")
    options = parser.parse_args()
    libs = library("cugrad"), library("torch")
    if libs[1] is not None and options.device == "cuda":
        if libs[1].cuda.is_available():
            libs[1].backends.cudnn.benchmark = True
            libs[1].backends.cudnn.allow_tf32 = False
        else:
            libs = libs[0], None
    lines: list[Line] = []
    for name, workload in WORKLOADS.items():
        if not re.search(options.only, name):
            continue
        lines.append(measured(name, workload, options, libs))
        print(f"{lines[-1].name}: {lines[-1].ours} {lines[-1].theirs} {lines[-1].note}", flush=True)
        if options.json:
            text = json.dumps({"lines": [line.as_json() for line in lines]}, indent=1)
            options.json.write_text(text + "\n")
        if options.device == "cuda":
            for lib in filter(None, libs):
                lib.cuda.empty_cache()
    return common.report(lines, options)


if __name__ == "__main__":
    sys.exit(main())
