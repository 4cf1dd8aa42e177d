"""Draws a script: a network, an optimizer, perhaps a scheduler, and statements among steps."""

from __future__ import annotations

from random import Random

from .networks import network
from .table import OPTIMIZERS, PARAMETERS, SCHEDULERS, STATEMENTS, STEPS

__all__ = ["draw", "draw_context"]

NAMES = ["weight"] * 5 + ["bias"] * 2 + ["scale", "inner", "in_proj_weight", "weight_ih_l0"]


def lines(table: str) -> list[str]:
    """The lines of a table, each as often as it says."""
    found = []
    for line in table.strip().splitlines():
        head, _, times = line.rpartition("  ")
        found += [head] * int(times) if head and times.isdigit() else [line]
    return found


ALL = lines(STATEMENTS)
LIMITS = ["1GiB", "256KiB", "48KiB", "24KiB"]


def draw(seed: int) -> list[str]:
    """The statements of a script."""
    random = Random(seed)
    net = network(random)

    def optimizer() -> str:
        text = random.choice(OPTIMIZERS.strip().splitlines())
        return text.format(p=random.choice(PARAMETERS))

    def scheduler() -> str:
        return random.choice(SCHEDULERS.strip().splitlines())

    script = [
        f"x = {net.inputs}; y = t.arange(len(x)) % 3; cost = nn.CrossEntropyLoss()",
        "spare = nn.Parameter(numbers(2)); scaler = t.amp.GradScaler(here, init_scale=8.)",
        f"net = ready({net.text}, x)",
        f"opt = optim.{optimizer()}",
        f"sched = optim.lr_scheduler.{scheduler()}",
    ]
    steps = STEPS.strip().splitlines()
    for _ in range(random.randint(3, 14)):
        if random.random() < 0.3:
            script.append(random.choice(steps))
            continue
        script.append(
            random.choice(ALL).format(
                i=random.choice([0, 0, 0, 1, 1, 2, -1]),
                j=random.choice([0, 1, -1]),
                w=random.choice(NAMES),
                optimizer=optimizer(),
                scheduler=scheduler(),
            )  # fmt: skip
        )
    script.append(random.choice(steps))
    return script


def draw_context(seed: int) -> str:
    """The text of a context that changes no number: of `cugrad.memory`, or one that looks on."""
    random = Random(seed)
    kept = f"min_bytes={random.choice([0, 64])}"
    if random.random() < 0.4:
        return random.choice([
            f"t.memory.offload({kept})", f"t.memory.offload({kept}, keep_last=0)",
            "t.memory.recompute()", f"t.memory.save_on_disk({kept})", "t.memory.save_on_cpu()",
            "t.profiler.profile()", "t.profiler.MemoryTimeline()",
            "t.autograd.set_detect_anomaly(True, check_nan=False)",
            f"t.memory.budget('{random.choice(LIMITS)}')",
            f"t.memory.budget('{random.choice(LIMITS)}', model=net, optimizer=opt)",
        ])  # fmt: skip
    places = {
        "weights": ["device", "host", "disk"], "gradients": ["device", "host"],
        "states": ["device", "host", "stream", "disk"], "bring_back": [True, False],
        "window": [None, "1KiB"],
    }  # fmt: skip
    chosen = ", ".join(f"{name}={random.choice(all_of)!r}" for name, all_of in places.items())
    return f"t.memory.offload_states(net, opt, {chosen}, {kept})"
