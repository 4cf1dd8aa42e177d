"""Steps for the planner's tests: of networks, sizes and times as of an H200; and drawn ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from cugrad.memory.budgeting.planning import (
    COMPRESS,
    DISK,
    KEEP,
    OFFLOAD,
    RECOMPUTE,
    Step,
    StepEvent,
    StepValue,
)

__all__ = ["NETWORKS", "Network", "drawn", "gpt", "resnet", "unet"]

FLOPS, MEMORY, LINK, DISK_LINK = 300e12, 4e12, 53e9, 6e9  # a second
LAUNCH = 4e-6
EVERYWHERE = frozenset([KEEP, OFFLOAD, RECOMPUTE, COMPRESS, DISK])


class Network:
    """Ops as they run forward; what they save is read in backward, last op first."""

    def __init__(self, parameters: int) -> None:
        self.parameters = parameters
        self.sizes: list[int] = []
        self.born: list[int] = []
        self.inputs: list[tuple[int, ...]] = []
        self.dies: list[int] = []
        self.uses: list[list[int]] = []
        self.fixed: set[int] = set()  # values that cannot be made again
        self.ops: list[tuple[str, float, int, list[int]]] = []  # name, seconds, bytes, saved

    def source(self, nbytes: int) -> int:
        """A value that is there before the step."""
        return self._value(nbytes, -1, ())

    def _value(self, nbytes: int, born: int, inputs: tuple[int, ...]) -> int:
        self.sizes.append(int(nbytes))
        self.born.append(born)
        self.inputs.append(inputs)
        self.dies.append(max(born, 0))
        self.uses.append([])
        return len(self.sizes) - 1

    def op(
        self,
        name: str,
        inputs: Sequence[int],
        nbytes: int,
        *,
        flops: float = 0.0,
        saves: Sequence[int] = (),
        result: bool = False,
        also: int = 0,
        drawn: bool = False,
    ) -> int:
        """An op whose result has `nbytes`; it saves inputs, its `result`, a sibling of `also`."""
        event, inputs = len(self.ops), tuple(dict.fromkeys(inputs))
        made = self._value(nbytes, event, inputs)
        saved = [*saves, made] if result else list(saves)
        if also:
            saved.append(self._value(also, event, inputs))
        if drawn:
            self.fixed.update(range(made, len(self.sizes)))
        for i in inputs:
            self.dies[i] = event
        moved = nbytes + also + sum([self.sizes[i] for i in inputs])
        self.ops.append((name, max(flops / FLOPS, moved / MEMORY) + LAUNCH, moved, saved))
        return made

    def step(self) -> Step:
        """The whole step: forward, and a node of backward for each op."""
        forward, n = len(self.ops), 2 * len(self.ops)
        events = [StepEvent(s, self.parameters, name) for name, s, _, _ in self.ops]
        for k, (name, seconds, moved, saved) in enumerate(reversed(self.ops)):
            events.append(StepEvent(2 * seconds, 2 * self.parameters + moved, name))
            for i in saved:
                self.uses[i].append(forward + k)
        values = []
        for i, nbytes in enumerate(self.sizes):
            allowed = set(EVERYWHERE)
            if self.born[i] < 0 or i in self.fixed:
                allowed.discard(RECOMPUTE)
            if nbytes < 1 << 16:
                allowed &= {KEEP, RECOMPUTE}
            if not self.uses[i]:
                allowed &= {KEEP, OFFLOAD, RECOMPUTE}
            values.append(StepValue(
                nbytes, self.born[i], self.dies[i], tuple(sorted(set(self.uses[i]))),
                self.inputs[i], frozenset(allowed), {COMPRESS: nbytes // 2},
                2 * nbytes / MEMORY,
            ))  # fmt: skip
        most = max(self.sizes)
        assert len(events) == n
        return Step(tuple(events), forward, tuple(values), LINK, LINK, DISK_LINK, DISK_LINK,
                    lookahead=2 * most, backlog=2 * most)  # fmt: skip


def _conv(net: Network, x: int, size: int, channels: int, area: float, kernel: int) -> int:
    """A convolution of `channels` inputs; of a 4-byte result with `size` bytes."""
    flops = 2 * size / 4 * channels * kernel * kernel
    return net.op("conv", [x], size, flops=flops * area, saves=[x])


def _normed(net: Network, x: int, size: int) -> int:
    """A batch norm and a relu."""
    y = net.op("batch_norm", [x], size, saves=[x], also=1024)
    return net.op("relu", [y], size, result=True)


def resnet(blocks: Sequence[int] = (3, 8, 36, 3), batch: int = 256) -> Step:
    """Bottlenecks with residual adds; ResNet-152 by default."""
    net = Network(parameters=240 << 20)
    x = net.source(batch * 3 * 224 * 224 * 4)
    x = _normed(net, _conv(net, x, batch * 64 * 112 * 112 * 4, 3, 1, 7), batch * 64 * 112**2 * 4)
    x = net.op("max_pool", [x], batch * 64 * 56 * 56 * 4, also=batch * 64 * 56 * 56)
    width, side, inner = 64, 56, 64
    for stage, count in enumerate(blocks):
        for block in range(count):
            if block == 0 and stage:
                side //= 2
            thin, wide = (batch * c * side * side * 4 for c in (inner, 4 * inner))
            y = _normed(net, _conv(net, x, thin, width, 1, 1), thin)
            y = _normed(net, _conv(net, y, thin, inner, 1, 3), thin)
            y = _conv(net, y, wide, inner, 1, 1)
            y = net.op("batch_norm", [y], wide, saves=[y], also=1024)
            if block == 0:
                x = _conv(net, x, wide, width, 1, 1)
                x = net.op("batch_norm", [x], wide, saves=[x], also=1024)
            y = net.op("add", [y, x], wide)
            x, width = net.op("relu", [y], wide, result=True), 4 * inner
        inner *= 2
    x = net.op("mean", [x], batch * width * 4)
    net.op("loss", [x], 4096, saves=[x])
    return net.step()


def gpt(layers: int = 24, tokens: int = 16384, width: int = 2048) -> Step:
    """Blocks of attention and of an MLP, with residual adds and dropout."""
    net = Network(parameters=layers * 12 * width * width * 2)
    h, product = tokens * width * 2, 2 * tokens * width * width
    x = net.op("embedding", [net.source(tokens * 8)], h)
    for _ in range(layers):
        y = net.op("layer_norm", [x], h, saves=[x], also=tokens * 8)
        qkv = net.op("linear", [y], 3 * h, flops=3 * product, saves=[y])
        a = net.op("attention", [qkv], h, flops=4 * tokens * 2048 * width, saves=[qkv],
                   result=True, also=tokens * 64)  # fmt: skip
        a = net.op("linear", [a], h, flops=product, saves=[a])
        mask = net.op("draw", [a], h // 16, drawn=True)
        a = net.op("dropout", [a, mask], h, saves=[mask])
        x = net.op("add", [x, a], h)
        y = net.op("layer_norm", [x], h, saves=[x], also=tokens * 8)
        m = net.op("linear", [y], 4 * h, flops=4 * product, saves=[y])
        g = net.op("gelu", [m], 4 * h, saves=[m])
        m = net.op("linear", [g], h, flops=4 * product, saves=[g])
        x = net.op("add", [x, m], h)
    y = net.op("layer_norm", [x], h, saves=[x], also=tokens * 8)
    y = net.op("linear", [y], h, flops=product, saves=[y])
    net.op("loss", [y], 4096, saves=[y])
    return net.step()


def unet(levels: int = 5, batch: int = 16, side: int = 512, channels: int = 64) -> Step:
    """Down and up again, with skips from each level to the same one on the way up."""
    net = Network(parameters=120 << 20)

    def size(level: int, factor: int = 1) -> int:
        return batch * (channels << level) * factor * (side >> level) ** 2 * 4

    def double(x: int, level: int, inward: int) -> int:
        for width in (inward, channels << level):
            x = _normed(net, _conv(net, x, size(level), width, 1, 3), size(level))
        return x

    x, skips, width = net.source(batch * 3 * side * side * 4), [], 3
    for level in range(levels):
        x = double(x, level, width)
        width = channels << level
        if level < levels - 1:
            skips.append(x)
            x = net.op("max_pool", [x], size(level) // 4, also=size(level) // 16)
    for level in reversed(range(levels - 1)):
        x = net.op("conv_transpose", [x], size(level), flops=size(level) * width, saves=[x])
        x = net.op("cat", [x, skips[level]], size(level, 2))
        width = channels << level
        x = double(x, level, 2 * width)
    net.op("loss", [x], 4096, saves=[x])
    return net.step()


NETWORKS: dict[str, Callable[..., Step]] = {"resnet": resnet, "gpt": gpt, "unet": unet}


def drawn(seed: int, most: int = 12) -> Step:
    """A step of any shape, and of sizes and times so that each placement may pay."""
    random = Random(seed)
    draw: Callable[[int, int], int] = random.randint
    forward = draw(1, most)
    backward = draw(1, most)
    n = forward + backward
    values: list[StepValue] = []
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
                StepValue(
                    nbytes,
                    born,
                    max(born, 0),
                    tuple(uses),
                    tuple(inputs * (born >= 0)),
                    frozenset(allowed | {KEEP}),
                    {COMPRESS: nbytes // 2},
                    random.choice([0.0, 0.25]),
                    random.choice([-1, draw(forward, n - 1)]),
                )
            )
    for i, v in enumerate(values):
        dies = max([v.dies, *[w.born for w in values if i in w.inputs]])
        values[i] = StepValue(v.nbytes, v.born, dies, v.uses, v.inputs, v.placements, v.stored,
                          v.codec_seconds, v.held)  # fmt: skip
    events = tuple([StepEvent(draw(0, 16) / 4, base := draw(0, 50), "", draw(0, base),
                          random.choice([None, draw(0, 50)]), random.choice([0, draw(0, 50)]))
                    for _ in range(n)])  # fmt: skip
    return Step(events, forward, tuple(values), 32.0, 16.0, 8.0, 4.0, draw(1, 200), draw(0, 200))
