"""Counts the bytes that layers, blocks and models keep for backward, beside PyTorch on the CPU.

What is counted is unique storage: tensors that share memory count once, parameters not at all.
"kept" is what was saved; "held" is that together with inputs and outputs, which a caller holds on
to anyway. Counts do not vary, so one round is enough:

    python benchmarks/saved_bytes.py [--quick] [--check] [--json FILE] [--only REGEX]
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy and torch start their threads

from benchmarks import common  # noqa: E402
from benchmarks.common import Line, library  # noqa: E402
from benchmarks.twins import models_on  # noqa: E402


class Bytes(NamedTuple):
    """Of unique storage: what was saved, and that with inputs and outputs."""

    kept: int
    held: int


def count(
    lib: Any, call: Callable[..., Any], inputs: Iterable[Any], parameters: Iterable[Any] = ()
) -> Bytes:
    """What `call(*inputs)` keeps for backward; neither number includes `parameters`."""
    alive: list[Any] = []
    saved: dict[int, int] = {}
    inputs = list(inputs)

    def pack(tensor: Any) -> Any:
        alive.append(tensor)  # so that no address is used twice
        saved.update([storage(lib, tensor)])
        return tensor

    with lib.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = call(*inputs)
    results = result if isinstance(result, (tuple, list)) else [result]
    held = dict(saved)
    held.update(storage(lib, t) for t in [*inputs, *results] if t is not None)
    for key, _ in [storage(lib, p) for p in parameters]:
        saved.pop(key, None)
        held.pop(key, None)
    return Bytes(sum(saved.values()), sum(held.values()))


def storage(lib: Any, tensor: Any) -> tuple[int, int]:
    """What identifies the storage of a tensor, and its bytes."""
    if lib.__name__ == "torch":
        found = tensor.untyped_storage()
        return found.data_ptr(), found.nbytes()
    array = tensor._array
    while type(array.base) is type(array):
        array = array.base
    return id(array), array.nbytes


# Layers -------------------------------------------------------------------------------------------
# name -> what is run on F = lib.nn.functional, x (N, C, H, W), s (N, classes) and t (N,), classes

LAYERS: dict[str, Callable[..., Any]] = {
    "relu": lambda F, x, s, t: F.relu(x),
    "relu6": lambda F, x, s, t: F.relu6(x),
    "leaky_relu": lambda F, x, s, t: F.leaky_relu(x, 0.1),
    "elu": lambda F, x, s, t: F.elu(x),
    "gelu": lambda F, x, s, t: F.gelu(x),
    "silu": lambda F, x, s, t: F.silu(x),
    "glu": lambda F, x, s, t: F.glu(x, 1),
    "hardswish": lambda F, x, s, t: F.hardswish(x),
    "softplus": lambda F, x, s, t: F.softplus(x),
    "dropout": lambda F, x, s, t: F.dropout(x, 0.3),
    "dropout2d": lambda F, x, s, t: F.dropout2d(x, 0.3),
    "alpha_dropout": lambda F, x, s, t: F.alpha_dropout(x, 0.3, True),
    "max_pool2d": lambda F, x, s, t: F.max_pool2d(x, 2),
    "max_pool2d_overlapping": lambda F, x, s, t: F.max_pool2d(x, 3, 2, 1),
    "adaptive_max_pool2d": lambda F, x, s, t: F.adaptive_max_pool2d(x, 5),
    "avg_pool2d": lambda F, x, s, t: F.avg_pool2d(x, 2),
    "softmax": lambda F, x, s, t: F.softmax(x, 1),
    "log_softmax": lambda F, x, s, t: F.log_softmax(x, 1),
    "batch_norm": lambda F, x, s, t: F.batch_norm(x, None, None, training=True),
    "group_norm": lambda F, x, s, t: F.group_norm(x, 4),
    "instance_norm": lambda F, x, s, t: F.instance_norm(x),
    "layer_norm": lambda F, x, s, t: F.layer_norm(x, x.shape[-2:]),
    "rms_norm": lambda F, x, s, t: F.rms_norm(x, x.shape[-2:]),
    "cross_entropy": lambda F, x, s, t: F.cross_entropy(s, t),
    "cross_entropy_smoothed": lambda F, x, s, t: F.cross_entropy(s, t, label_smoothing=0.1),
    "mse_loss": lambda F, x, s, t: F.mse_loss(x, x.detach() * 2),
    "attention": lambda F, x, s, t: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "attention_dropout": lambda F, x, s, t: F.scaled_dot_product_attention(
        x, x, x, dropout_p=0.1, is_causal=True),
}  # fmt: skip
# What must be less than PyTorch's, not only no more. Of a loss, what is held: it keeps the scores,
# which its caller holds, where PyTorch keeps as many log-probabilities.
LESS = {"dropout kept", "dropout2d kept", "alpha_dropout kept", "max_pool2d kept",
        "max_pool2d_overlapping kept", "adaptive_max_pool2d kept", "attention kept",
        "attention_dropout kept", "cross_entropy held", "cross_entropy_smoothed held",
        "resnet50 kept", "transformer_block kept", "gpt kept"}  # fmt: skip


def layer(lib: Any, name: str, quick: bool) -> Bytes:
    """One of LAYERS."""
    lib.manual_seed(0)
    count_of, size, classes = (2, 32, 128) if quick else (8, 64, 1024)
    x = lib.randn(count_of, 8, size, size, requires_grad=True)
    s = lib.randn(count_of * 8, classes, requires_grad=True)
    t = lib.zeros(count_of * 8, dtype=lib.int64)
    inputs = [s, t] if name.startswith("cross") else [x]
    run = LAYERS[name]
    call = (lambda s, t: run(lib.nn.functional, None, s, t)) if len(inputs) == 2 else (
        lambda x: run(lib.nn.functional, x, None, None))  # fmt: skip
    return count(lib, call, inputs)


# Blocks and models --------------------------------------------------------------------------------


def _bottleneck(m: Any, lib: Any, quick: bool) -> tuple[Any, Any]:
    size = 8 if quick else 28
    return m.Bottleneck(128, 32), lib.randn(4, 128, size, size, requires_grad=True)


def _resnet50(m: Any, lib: Any, quick: bool) -> tuple[Any, Any]:
    size, width = (32, 8) if quick else (112, 32)
    return m.resnet50(10, width=width), lib.randn(2, 3, size, size)


def _transformer(m: Any, lib: Any, quick: bool) -> tuple[Any, Any]:
    length = 64 if quick else 512
    return m.Block(64, 4, 0.1), lib.randn(4, length, 64, requires_grad=True)


def _gpt(m: Any, lib: Any, quick: bool) -> tuple[Any, Any]:
    length, layers = (64, 1) if quick else (256, 4)
    net = m.GPT(257, length, width=64, heads=4, layers=layers, dropout=0.1)
    return net, lib.zeros(2, length, dtype=lib.int64)


BLOCKS = {
    "bottleneck": _bottleneck, "resnet50": _resnet50, "transformer_block": _transformer,
    "gpt": _gpt,
}  # fmt: skip


def block(lib: Any, name: str, quick: bool) -> Bytes:
    """One of BLOCKS in training, a model with its loss."""
    models = models_on(lib) if lib.__name__ == "torch" else importlib.import_module("cugrad.models")
    lib.manual_seed(0)
    net, x = BLOCKS[name](models, lib, quick)

    def call(x: Any) -> Any:
        y = net(x)
        if name not in ("resnet50", "gpt"):
            return y
        y = y.reshape(-1, y.shape[-1])
        return lib.nn.functional.cross_entropy(y, lib.zeros(len(y), dtype=lib.int64)), y

    return count(lib, call, [x], [*net.parameters(), *net.buffers()])


def measure(options: Any) -> list[Line]:
    """The lines whose name `options.only` matches: bytes kept, and bytes held."""
    ours, peer = library("cugrad"), library("torch")
    assert ours is not None
    lines = []
    for name in [*LAYERS, *BLOCKS]:
        if not re.search(options.only, name):
            continue
        run = layer if name in LAYERS else block
        mine = run(ours, name, options.quick)
        its = None if peer is None else run(peer, name, options.quick)
        for field in Bytes._fields:
            line = Line(f"{name} {field}", "kB", ours=[getattr(mine, field) / 1e3])
            if its is not None:
                line.theirs = [getattr(its, field) / 1e3]
                loss = field == "kept" and name.startswith("cross_entropy")
                line.goal = None if loss else 0.999 if line.name in LESS else 1.0
            lines.append(line)
    return lines


def main() -> int:
    options = common.arguments(__doc__.splitlines()[0]).parse_args()
    if options.device != "cpu":
        raise SystemExit("saved_bytes.py counts on the CPU; a GPU's counts are the same")
    return common.report(measure(options), options)


if __name__ == "__main__":
    sys.exit(main())
