"""Steps of networks as a planner sees them: sizes and times of an H200 with PCIe 5, and drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from cugrad.memory.budgeting.planning import (
    COMPRESS,
    DISK,
    KEEP,
    OFFLOAD,
    RECOMPUTE,
    Event,
    Step,
    Value,
)

__all__ = ["Builder", "chain", "drawn", "gpt", "resnet", "unet"]

FLOPS, BANDWIDTH, LINK = 400e12, 3.5e12, 55e9  # what is reached of bfloat16; HBM; PCIe 5
LAUNCH = 4e-6
CHOICES = frozenset([KEEP, OFFLOAD, RECOMPUTE])


class Op(NamedTuple):
    """One op of forward, what it makes, and what of that backward reads."""

    name: str
    seconds: float
    inputs: tuple[int, ...]
    out: int
    saved: tuple[int, ...]
    workspace: int


class Builder:
    """Writes down a forward; `step` derives the backward, gradients on their way and all."""

    def __init__(self, parameters: int = 0, placements: frozenset[str] = CHOICES) -> None:
        self.ops: list[Op] = []
        self.nbytes: list[int] = []
        self.parameters, self.placements = parameters, placements

    def op(
        self, name: str, nbytes: int, *inputs: int, flops: float = 0.0,
        saves: Sequence[int] = (), saves_out: bool = False, workspace: int = 0,
    ) -> int:  # fmt: skip
        """An op that reads values and makes one."""
        moved = nbytes + sum([self.nbytes[i] for i in inputs])
        seconds = max(flops / FLOPS, moved / BANDWIDTH) + LAUNCH
        out = len(self.nbytes)
        self.nbytes.append(int(nbytes))
        saved = tuple(saves) + ((out,) if saves_out else ())
        self.ops.append(Op(name, seconds, inputs, out, saved, workspace))
        return out

    def step(self, lookahead: int, backlog: int, link: float = LINK) -> Step:
        ops, nbytes, n = self.ops, self.nbytes, len(self.ops)
        uses: list[list[int]] = [[] for _ in nbytes]
        dies = list(range(n))
        base = [self.parameters + op.workspace for op in ops] + [self.parameters] * n
        for k, op in enumerate(ops):
            for i in op.inputs:
                dies[i] = k
            for i in op.saved:
                uses[i].append(2 * n - 1 - k)
        for i in range(n):  # the gradient of a value: from its last reader's node to its own
            for e in range(2 * n - 1 - dies[i], 2 * n - i):
                base[e] += nbytes[i]
        events = [Event(op.seconds, base[k], op.name) for k, op in enumerate(ops)]
        for k in range(n, 2 * n):
            op = ops[2 * n - 1 - k]
            events.append(Event(2 * op.seconds, base[k] + op.workspace, op.name + "Backward"))
        values = [
            Value(nbytes[i], i, dies[i], tuple(sorted(uses[i])), op.inputs, self.placements,
                  {COMPRESS: nbytes[i] // 2})  # fmt: skip
            for i, op in enumerate(ops)
        ]
        return Step(
            events=tuple(events), forward=n, values=tuple(values), out_rate=link, in_rate=link,
            disk_out_rate=link / 8, disk_in_rate=link / 4, lookahead=lookahead, backlog=backlog,
        )  # fmt: skip


def _conv(b: Builder, x: int, pixels: int, cin: int, cout: int, kernel: int, act: bool) -> int:
    """Convolution, batch norm, and relu where there is one."""
    size = 2 * pixels * cout
    y = b.op("convolution", size, x, flops=2.0 * pixels * cout * cin * kernel**2, saves=[x],
             workspace=size // 8)  # fmt: skip
    y = b.op("batch_norm", size, y, saves=[y])
    return b.op("relu", size, y, saves_out=True) if act else y


def resnet(blocks: Sequence[int] = (3, 8, 36, 3), batch: int = 256) -> Builder:
    """Bottlenecks with residual adds; the default is ResNet-152."""
    b = Builder(parameters=480 << 20)
    pixels, cin = batch * 56 * 56, 64
    x = b.op("relu", 2 * pixels * cin, saves_out=True)
    for stage, count in enumerate(blocks):
        width = 64 << stage
        for k in range(count):
            if stage and not k:
                pixels //= 4
            y = _conv(b, x, pixels, cin, width, 1, True)
            y = _conv(b, y, pixels, width, width, 3, True)
            y = _conv(b, y, pixels, width, 4 * width, 1, False)
            skip = x if k else _conv(b, x, pixels, cin, 4 * width, 1, False)
            y = b.op("add", 8 * pixels * width, y, skip)
            x = b.op("relu", 8 * pixels * width, y, saves_out=True)
            cin = 4 * width
    return b


def gpt(layers: int = 24, tokens: int = 1 << 14, width: int = 2048, length: int = 1024) -> Builder:
    """Blocks with residuals: norm, attention, norm, an MLP of four times the width."""
    b = Builder(parameters=(12 * width**2 * layers) * 12)
    size = 2 * tokens * width
    x = b.op("embedding", size)
    for _ in range(layers):
        h = b.op("layer_norm", size, x, saves=[x])
        q = b.op("linear", 3 * size, h, flops=6.0 * tokens * width**2, saves=[h])
        a = b.op("attention", size, q, flops=4.0 * tokens * length * width, saves=[q],
                 saves_out=True)  # fmt: skip
        a = b.op("linear", size, a, flops=2.0 * tokens * width**2, saves=[a])
        x = b.op("add", size, x, a)
        h = b.op("layer_norm", size, x, saves=[x])
        h = b.op("linear", 4 * size, h, flops=8.0 * tokens * width**2, saves=[h])
        g = b.op("gelu", 4 * size, h, saves=[h])
        g = b.op("linear", size, g, flops=8.0 * tokens * width**2, saves=[g])
        x = b.op("add", size, x, g)
    b.op("cross_entropy", 4 * tokens, x, flops=2.0 * tokens * width * 50000, saves=[x])
    return b


def unet(depth: int = 4, batch: int = 16, side: int = 512, width: int = 64) -> Builder:
    """Down and up again, with long skips."""
    b = Builder(parameters=400 << 20)
    pixels, c, skips = batch * side * side, width, []
    x = b.op("convolution", 2 * pixels * c)
    for _ in range(depth):
        for _ in range(2):
            x = _conv(b, x, pixels, c, c, 3, True)
        skips.append((x, pixels, c))
        pixels //= 4
        x = b.op("max_pool2d", 2 * pixels * c, x, saves=[x])
        x = _conv(b, x, pixels, c, 2 * c, 3, True)
        c *= 2
    for skip, pixels, c in reversed(skips):
        x = b.op("conv_transpose2d", 2 * pixels * c, x, flops=16.0 * pixels * c * c, saves=[x])
        x = b.op("cat", 4 * pixels * c, x, skip)
        x = _conv(b, x, pixels, 2 * c, c, 3, True)
        x = _conv(b, x, pixels, c, c, 3, True)
    b.op("loss", 4, x, saves=[x])
    return b


def chain(n: int, nbytes: int = 1 << 20, placements: frozenset[str] = CHOICES) -> Builder:
    """n ops, each of which backward needs the input of."""
    b = Builder(placements=placements)
    x = b.op("first", nbytes)
    for _ in range(n - 1):
        x = b.op("tanh", nbytes, x, saves=[x])
    return b


def drawn(seed: int, most: int = 12) -> Step:
    """A step of any shape, and of sizes and times so that each placement may pay."""
    random = Random(seed)
    draw: Callable[[int, int], int] = random.randint
    forward = draw(1, most)
    backward = draw(1, most)
    n = forward + backward
    values: list[Value] = []
    for born in range(-1, forward):
        siblings = draw(0, 2) if born < 0 else random.choice([1, 1, 1, 2])
        inputs = sorted(random.sample(range(len(values)), min(len(values), draw(0, 3))))
        for _ in range(siblings):
            uses = sorted(random.sample(range(forward, n), min(backward, draw(0, 3))))
            allowed = {p for p in (OFFLOAD, RECOMPUTE, DISK, COMPRESS) if random.random() < 0.8}
            if born < 0:
                allowed.discard(RECOMPUTE)
            nbytes = draw(0, 100)
            values.append(  # fmt: skip
                Value(nbytes, born, max(born, 0), tuple(uses), tuple(inputs if born >= 0 else ()),
                      frozenset(allowed | {KEEP}), {COMPRESS: nbytes // 2},
                      random.choice([0.0, 0.25]), random.choice([-1, draw(forward, n - 1)]))
            )
    for i, v in enumerate(values):
        dies = max([v.dies, *[w.born for w in values if i in w.inputs]])
        values[i] = Value(v.nbytes, v.born, dies, v.uses, v.inputs, v.placements, v.stored,
                          v.codec_seconds, v.held)  # fmt: skip
    events = tuple([Event(draw(0, 16) / 4, base := draw(0, 50), "", draw(0, base),
                          random.choice([None, draw(0, 50)])) for _ in range(n)])  # fmt: skip
    return Step(events, forward, tuple(values), 32.0, 16.0, 8.0, 4.0, draw(1, 200), draw(0, 200))
