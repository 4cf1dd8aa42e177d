"""Trains a GPT on a GPU with weights, gradients and optimizer states elsewhere, beside PyTorch.

Each way is a process of its own: plain steps of both libraries; `memory.offload_states` and
`memory.budget` of shares of the plain step's peak; and PyTorch's FSDP with its CPUOffloadPolicy, of
one rank. Arithmetic is float32 with TF32 products, the optimizer AdamW. A step is timed from its
beginning to that of the next one.

    python benchmarks/states_gpu.py [--budget SECONDS] [--only REGEX] [--json FILE]

`--size 6.7B` trains one that needs 107 GB within `--within GIB`, 24 if not said: there is no plain
run, which would not fit, the model is made on the host, and beside FSDP stands PyTorch's AdamW on
the host, the step alone, of one layer for each. `--within` may be said with the other size, too.

Writes Markdown and JSON under benchmarks/results/. `--rehearse` runs tiny networks on the simulated
device, and PyTorch on the CPU: it shows that this program works, and nothing else.
`benchmarks/states.py` has large networks in virtual time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import library, provenance
from benchmarks.offload import (
    RESULTS,
    SCALE,
    Clock,
    Runner,
    finish,
    modelled,
    peer_is_usable,
    stands_for,
    why_not,
)
from benchmarks.offload_common import markdown

STREAM = {"weights": "host", "gradients": "host", "states": "stream"}
HOST = {"weights": "host", "gradients": "host", "states": "host"}
DURING = {"step": "during backward"}
# (library, way, its arguments), the most telling first: the time may be over before the last.
WAYS: list[tuple[str, str, dict[str, Any]]] = [
    ("cugrad", "plain", {}),
    ("torch", "plain", {}),
    ("cugrad", "all stream, during", STREAM | DURING),
    ("torch", "FSDP, CPU offload", {}),
    ("cugrad", "budget", {"share": 0.5}),
    ("cugrad", "states stream, during", {"states": "stream"} | DURING),
    ("cugrad", "all host, during", HOST | DURING),
    ("cugrad", "budget", {"share": 0.3}),
    ("cugrad", "all stream", STREAM),
]
LARGE = [  # of what plain training has no room for
    ("cugrad", "budget", {"share": 1.0}),
    ("cugrad", "all host, during", HOST | DURING),
    ("cugrad", "all stream, during", STREAM | DURING),
    ("torch", "FSDP, CPU offload", {}),
    ("torch", "AdamW on the host", {}),
    ("cugrad", "all stream", STREAM),
]
WINDOWS = 8  # a window of each kind is one part of the memory that there is
SIZES = {"words": 50304, "length": 1024, "width": 2048, "heads": 16, "layers": 16}
SIZES_LARGE = SIZES | {"width": 4096, "heads": 32, "layers": 32}
TINY = {"words": 64, "length": 16, "width": 64, "heads": 4, "layers": 4}


def sharded(torch: Any, net: Any) -> Any:
    """The module under FSDP of one rank, whose parameters, gradients and steps are the host's."""
    import os

    import torch.distributed
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "29511"}
    torch.distributed.init_process_group("cuda:nccl,cpu:gloo", rank=0, world_size=1)
    for block in net.transformer.h:
        fully_shard(block, offload_policy=CPUOffloadPolicy())
    return fully_shard(net, offload_policy=CPUOffloadPolicy())


def ways_of(options: argparse.Namespace) -> list[tuple[str, str, dict[str, Any]]]:
    return LARGE if options.within else WAYS


def host_step(torch: Any, models: Any, sizes: dict[str, int], steps: int) -> dict[str, Any]:
    """PyTorch's AdamW on the host: the step of one layer, for each of them."""
    layers = sizes["layers"]
    net = models.GPT(16, 16, **(sizes | {"layers": 1}))
    params = [p for block in net.transformer.h for p in block.parameters()]
    for param in params:
        param.grad = torch.zeros_like(param)
    optimizer, clock = torch.optim.AdamW(params, lr=1e-4), Clock("torch", torch, "cpu")
    optimizer.step()
    marks = [clock.mark()]
    for _ in range(steps):
        optimizer.step()
        marks.append(clock.mark())
    size = sum(p.numel() * p.element_size() for p in params) * layers
    seconds = clock.seconds(marks[0], marks[-1]) / steps * layers
    return {"step": seconds, "peak": 0, "losses": [0.0], "parameters": size, "alone": True}


def child(options: argparse.Namespace) -> dict[str, Any]:
    """One way to train, measured in this process."""
    name, number = options.child
    _, way, words = ways_of(options)[int(number)]
    device = "cpu" if name == "torch" and options.device == "simulated" else options.device
    lib = library(name)
    assert lib is not None
    models: Any = getattr(lib, "models", None)
    if name == "torch":
        from benchmarks.twins import models_on

        models = models_on(lib)
        lib.set_num_threads(16)
    if device == "cuda":
        lib.backends.cuda.matmul.allow_tf32 = True
    lib.manual_seed(0)
    with modelled(device, SCALE):
        try:
            return measured(lib, models, device, way, words, options)
        except Exception as error:  # MemoryError, BudgetError, and PyTorch's RuntimeError
            said = (str(error).splitlines() or [type(error).__name__])[0]
            if type(error).__name__ == "BudgetError":
                return {"skipped": said}
            if "out of memory" not in said.lower() and not isinstance(error, MemoryError):
                raise
            return {"out_of_memory": said}


def measured(
    lib: Any, models: Any, device: str, way: str, words: dict[str, Any],
    options: argparse.Namespace,
) -> dict[str, Any]:  # fmt: skip
    """Seconds of a step, and the most bytes of the device, once it is warm."""
    sizes = dict(TINY if options.tiny else SIZES_LARGE if options.size == "6.7B" else SIZES)
    count, length = sizes.pop("words"), sizes.pop("length")
    if way == "AdamW on the host":
        return host_step(lib, models, sizes, options.steps)
    with lib.device("cpu" if options.within else device):
        net = models.GPT(count, length, **sizes)
    if way.startswith("FSDP"):
        net = sharded(lib, net.cpu())
    optimizer = lib.optim.AdamW(net.parameters(), lr=1e-4)
    tokens = lib.randint(0, count, (options.batch, length + 1), device=device)
    cross_entropy = lib.nn.functional.cross_entropy

    def step() -> Any:
        optimizer.zero_grad()
        loss = cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss

    placed: Any = contextlib.nullcontext()
    if way == "budget":
        there = {"device": device} if options.within else {}
        placed = lib.memory.budget(options.limit, model=net, optimizer=optimizer, **there)
    elif words:
        smallest: dict[str, Any] = {"min_bytes": 1024} if options.tiny else {}
        if options.within:
            smallest |= {"device": device, "window": options.limit // WINDOWS}
        placed = lib.memory.offload_states(net, optimizer, **words, **smallest)
    clock = Clock(lib.__name__, lib, device)
    with placed:
        losses = [float(step().detach().item()) for _ in range(options.warm_up)]
        clock.synchronize()
        clock.reset_peak()
        marks = [clock.mark()]
        for _ in range(options.steps):
            loss = step()
            marks.append(clock.mark())
        clock.synchronize()
        peak = clock.peak()
        losses.append(float(loss.detach().item()))
        told = placed.report(tokens[:, 1:].numel()).step if words and way != "budget" else None
    scale = stands_for(device)
    size = sum(p.numel() * p.element_size() for p in net.parameters())
    seconds = clock.seconds(marks[0], marks[-1]) / options.steps
    return {"step": seconds, "peak": peak * scale, "losses": losses, "parameters": size * scale,
            "tokens_per_second": options.batch * length / seconds,
            "bound": None if told is None else told["bound"]}  # fmt: skip


def sweep(runner: Runner, libraries: list[str]) -> list[dict[str, Any]]:
    options, results = runner.options, []
    plain: dict[str, dict[str, Any]] = {}
    for number, (lib, way, words) in enumerate(ways_of(options)):
        if lib not in libraries or not re.search(options.only, way) and way != "plain":
            continue
        if way.startswith("FSDP") and options.device != "cuda":
            continue
        more = ["--child", lib, str(number), "--batch", str(options.batch)]
        result: dict[str, Any] = {"library": lib, "way": way}
        if options.within:
            more += ["--size", options.size, "--within", str(options.within)]
            result["limit"] = options.within * 2**30
        elif way == "budget":
            if "peak" not in plain.get("cugrad", {}):
                continue
            result["limit"] = words["share"] * plain["cugrad"]["peak"]
        if "limit" in result:
            more += ["--limit", str(int(result["limit"] / stands_for(options.device)))]
        if way == "budget":
            more += ["--warm-up", str(max(10, options.warm_up))]
        result |= runner.start(more)
        if way == "plain":
            plain[lib] = result
        own = plain.get(lib, {})
        if "step" in result and "step" in own:
            result["slowdown"] = result["step"] / own["step"]
        results.append(result)
        said = why_not(result) or f"{result['step'] * 1e3:.1f} ms"
        print(f"{lib} {way}: {said}", file=sys.stderr, flush=True)
    return results


HEAD = ["library", "way", "limit GB", "step ms", "tokens/s", "over its plain", "over bound",
        "peak GB", "loss"]  # fmt: skip


def row_of(r: dict[str, Any]) -> list[str]:
    if "step" not in r:
        return [r["library"], r["way"], "", why_not(r)[:60], *[""] * 5]
    if r.get("alone"):
        return [r["library"], r["way"], "", f"{r['step'] * 1e3:.1f}", *[""] * 5]
    limit = f"{r['limit'] / 1e9:.2f}" if "limit" in r else ""
    over = f"{r['slowdown']:.3f}" if "slowdown" in r else ""
    bound = f"{r['step'] / r['bound']:.3f}" if r.get("bound") else ""
    return [r["library"], r["way"], limit, f"{r['step'] * 1e3:.1f}",
            f"{r['tokens_per_second']:,.0f}", over, bound, f"{r['peak'] / 1e9:.2f}",
            f"{r['losses'][-1]:.4f}"]  # fmt: skip


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--device", choices=["cuda", "simulated"], default="cuda")
    add("--rehearse", action="store_true", help="tiny networks, simulated and on the CPU")
    add("--size", choices=["1B", "6.7B"], default="1B")
    add("--within", type=float, metavar="GIB", help="memory that there is; 24 for 6.7B")
    add("--tiny", "--quick", action="store_true", help="small networks")
    add("--batch", type=int, default=8, help="sequences of 1024 tokens: 8")
    add("--only", default="", metavar="REGEX", help="the ways it matches; plain ones always")
    add("--steps", type=int, default=4, help="measured steps")
    add("--warm-up", type=int, default=4, help="steps before, in which plans are learned")
    add("--budget", type=float, default=1e6, metavar="SECONDS", help="start nothing after these")
    add("--out", type=Path, default=RESULTS, metavar="FOLDER", help="where the results go")
    add("--json", type=Path, metavar="FILE", help="write the JSON here, and nothing else")
    add("--child", nargs=2, help=argparse.SUPPRESS)
    add("--limit", type=int, help=argparse.SUPPRESS)
    add("--tf32", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.size == "6.7B" and not options.within:
        options.within = 24.0
    return options


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    if options.rehearse:
        options.device, options.tiny = "simulated", True
    if options.child:
        print(json.dumps(child(options)))
        return 0
    from cugrad import backends

    if options.device == "cuda" and not backends.is_usable("cuda"):
        print("benchmarks/states_gpu.py: no GPU to run on; --rehearse shows that it runs, "
              "benchmarks/states.py what a GPU would do", file=sys.stderr)  # fmt: skip
        return 2
    runner = Runner(options, __file__, main)
    libraries = ["cugrad"]
    if peer_is_usable("cpu" if options.device == "simulated" else options.device):
        libraries.append("torch")
    results = sweep(runner, libraries)
    about = provenance() | {"device": options.device, "tiny": options.tiny, "libraries": libraries}
    size = next((r["parameters"] / 4e9 for r in results if "parameters" in r), 0.0)
    text = "\n".join([
        f"# States elsewhere on {options.device}, commit {about['commit']}, {about['date']}", "",
        f"A GPT of {size:.2f} B parameters, {options.batch} sequences, AdamW; {options.steps} "
        "steps, once warm; float32, TF32 products."
        + (" Tiny networks: the numbers mean nothing." if options.tiny else ""), "",
        markdown(HEAD, map(row_of, results)),
    ])  # fmt: skip
    return finish(options, f"states-{options.device}", about, text, results)


if __name__ == "__main__":
    sys.exit(main())
