"""Counts what a forward keeps for backward, storage by storage: the blocks of networks, by library.

Nothing is timed, so a number is the same on every machine:

    python benchmarks/saved_bytes.py [--check] [--json FILE]

`kept` are the bytes of all storages that saved tensors lie in, each counted once; `added` are those
among them that the caller does not hold anyway: neither parameters, buffers nor inputs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import common
from benchmarks.offload_common import markdown
from benchmarks.twins import models_on

__all__ = ["BLOCKS", "Bytes", "count"]


@dataclass(frozen=True)
class Bytes:
    """What one forward keeps for backward: unique storages, all of them and those it made."""

    kept: int
    added: int


def count(lib: Any, forward: Callable[[], Any], held: Iterable[Any] = ()) -> Bytes:
    """The storages that tensors saved by `forward` lie in; `held` lists the tensors of the caller.

    >>> import cugrad
    >>> x = cugrad.ones(1000, requires_grad=True)
    >>> count(cugrad, lambda: x.sin().exp(), [x])
    Bytes(kept=8000, added=4000)
    """
    seen: dict[int, tuple[Any, int]] = {}  # by address; holds tensors, so that none is used twice
    owned = {_address(tensor) for tensor in held}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        seen[int(storage.data_ptr())] = (tensor.detach(), int(storage.nbytes()))
        return tensor

    with lib.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = forward()
    del result
    sizes = {address: size for address, (_, size) in seen.items()}
    added = sum(size for address, size in sizes.items() if address not in owned)
    return Bytes(sum(sizes.values()), added)


def _address(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _image(lib: Any, *shape: int) -> Any:
    return lib.ones(*shape).requires_grad_()


def bottleneck(lib: Any, models: Any) -> tuple[Any, Callable[[], Any], list[Any]]:
    """A block of ResNet-50's second stage, on 8 images."""
    x = _image(lib, 8, 256, 14, 14)
    net = models.Bottleneck(256, 64)
    return net, lambda: net(x), [x]


def stem(lib: Any, models: Any) -> tuple[Any, Callable[[], Any], list[Any]]:
    """What ResNet begins with: convolution, batch norm, ReLU and max-pool."""
    x = _image(lib, 4, 3, 64, 64)
    n = lib.nn
    layers = [n.Conv2d(3, 64, 7, 2, 3, bias=False), n.BatchNorm2d(64), n.ReLU(True)]
    net = n.Sequential(*layers, n.MaxPool2d(3, 2, 1))
    return net, lambda: net(x), [x]


def transformer(dropout: float) -> Callable[[Any, Any], Any]:
    """A block of GPT-2's shape in small, 4 sequences of 128."""

    def block(lib: Any, models: Any) -> tuple[Any, Callable[[], Any], list[Any]]:
        x = _image(lib, 4, 128, 64)
        net = models.Block(64, 2, dropout)
        return net, lambda: net(x), [x]

    return block


def head(lib: Any, models: Any) -> tuple[Any, Callable[[], Any], list[Any]]:
    """What a language model ends with: scores of 1000 tokens, that the caller keeps, and a loss."""
    x = _image(lib, 256, 64)
    net = lib.nn.Linear(64, 1000)
    scores = net(x)
    target = lib.arange(256)
    return net, lambda: lib.nn.functional.cross_entropy(scores, target), [x, scores, target]


Block = Callable[[Any, Any], tuple[Any, Callable[[], Any], list[Any]]]
BLOCKS: dict[str, Block] = {
    "ResNet bottleneck": bottleneck, "ResNet stem": stem, "transformer": transformer(0.0),
    "transformer, dropout 0.1": transformer(0.1), "cross-entropy of scores": head,
}  # fmt: skip


def measure(name: str, lib: Any, models: Any) -> Bytes:
    """What the block of this name keeps with this library."""
    net, forward, inputs = BLOCKS[name](lib, models)
    return count(lib, forward, [*net.parameters(), *net.buffers(), *inputs])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail where cugrad keeps more")
    parser.add_argument("--json", metavar="FILE", help="write the numbers there")
    options = parser.parse_args()
    ours, peer = common.library("cugrad"), common.library("torch")
    assert ours is not None
    import cugrad.models

    found = {name: {"cugrad": measure(name, ours, cugrad.models)} for name in BLOCKS}
    if peer is not None:
        twins = models_on(peer)
        for name, by in found.items():
            by["torch"] = measure(name, peer, twins)
    rows, worse = [], False
    for name, by in found.items():
        us, them = by["cugrad"], by.get("torch")
        more = them is not None and us.added > them.added
        worse |= more
        rows.append([name, _kilobytes(us), _kilobytes(them),
                     f"{us.added / them.added:.2f}" if them else "n/a", "MORE" if more else "ok"])
    print(markdown(["added for backward, kB", "cugrad", "torch", "ratio", ""], rows))
    if options.json:
        lines = {name: {lib: asdict(b) for lib, b in by.items()} for name, by in found.items()}
        record = {**common.provenance(), "blocks": lines}
        Path(options.json).write_text(json.dumps(record, indent=1) + "\n")
    return int(options.check and worse)


def _kilobytes(found: Bytes | None) -> str:
    return "n/a" if found is None else f"{found.added / 1e3:.1f}"


if __name__ == "__main__":
    sys.exit(main())
