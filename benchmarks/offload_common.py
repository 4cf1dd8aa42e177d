"""What the offload benchmarks share: placements by name, what a step saves, and the least time."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["PLACEMENTS", "Saved", "Task", "checkpointed", "lower_bound", "markdown", "placement",
           "saved_bytes"]  # fmt: skip
BLOCKS = ("Bottleneck", "BasicBlock", "Block", "_Twice")  # what people put checkpoints around

# What stands around forward, by name: given the library, and for how many bytes one byte stands.
PLACEMENTS: dict[str, Callable[[Any, float], Any]] = {
    "keep": lambda lib, scale: contextlib.nullcontext(),
    "save_on_cpu": lambda lib, scale: lib.autograd.graph.save_on_cpu(
        pin_memory=True, device_type="cuda"
    ),
    "offload": lambda lib, scale: lib.memory.offload(min_bytes=int((1 << 16) / scale)),
    "offload-bf16": lambda lib, scale: lib.memory.offload(
        min_bytes=int((1 << 16) / scale), compress="bf16"
    ),
    "offload-fp8": lambda lib, scale: lib.memory.offload(
        min_bytes=int((1 << 16) / scale), compress="fp8"
    ),
    "offload-int8": lambda lib, scale: lib.memory.offload(
        min_bytes=int((1 << 16) / scale), compress="int8"
    ),
}


def placement(lib: Any, name: str, scale: float = 1.0) -> Any:
    """A context of this name, to be entered around every step's forward."""
    return PLACEMENTS[name](lib, scale)


@contextlib.contextmanager
def checkpointed(lib: Any, net: Any) -> Iterator[None]:
    """Within it, each block of one of the `models` runs in a checkpoint of the library's."""
    checkpoint = importlib.import_module(f"{lib.__name__}.utils.checkpoint").checkpoint

    def wrapped(forward: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: checkpoint(forward, *args, use_reentrant=False)

    with contextlib.ExitStack() as stack:
        for block in net.modules():
            if type(block).__name__ in BLOCKS:
                block.forward = wrapped(block.forward)
                stack.callback(delattr, block, "forward")
        yield


def lower_bound(
    forward: float, backward: float, nbytes: float, to_host: float, to_device: float,
    coding: tuple[float, float] = (0.0, 0.0),
) -> float:  # fmt: skip
    """Seconds below which no step comes that moves `nbytes` out in forward and back in backward.

    max(Tf, S/Bd) + max(Tb, S/Bh): `forward` and `backward` are the seconds of a step without
    offload, `nbytes` what has to move once some was kept and the rest encoded, `to_host` and
    `to_device` the link's bytes/s. `coding` are the seconds of further kernels in both phases; they
    can hide behind the link, too.

    >>> lower_bound(1.0, 2.0, 100e9, 50e9, 50e9)
    4.0
    """
    before, after = forward + coding[0], backward + coding[1]
    return max(before, nbytes / to_host) + max(after, nbytes / to_device)


@dataclass
class Saved:
    """What one step saves for backward, in bytes."""

    everything: int = 0  # of every saved tensor: what moves if each is copied
    unique: int = 0  # of the storages that only backward keeps: no parameters, buffers, inputs


@dataclass
class Task:
    """A network to train: `forward()` is the loss, `inputs` are tensors that outlive a step."""

    net: Any
    forward: Callable[[], Any]
    inputs: list[Any]


def saved_bytes(lib: Any, task: Task) -> Saved:
    """Counts what one forward saves, storage by storage, with plain saved-tensor hooks."""
    found = Saved()
    lasting = [*task.net.parameters(), *task.net.buffers(), *task.inputs]
    seen = {_address(t): t for t in lasting}  # holds tensors: no address is used a second time

    def pack(tensor: Any) -> Any:
        found.everything += tensor.numel() * tensor.element_size()
        address = _address(tensor)
        if address not in seen:
            seen[address] = tensor.detach()
            found.unique += int(tensor.untyped_storage().nbytes())
        return tensor

    with lib.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = task.forward()
    del loss
    return found


def _address(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def markdown(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table in Markdown; numbers to the right."""
    cells = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = [
        "| " + " | ".join(c.rjust(w) if i else c.ljust(w)
                          for i, (c, w) in enumerate(zip(row, widths))) + " |"
        for row in cells
    ]  # fmt: skip
    rule = [("-" * w + ":") if i else "-" * (w + 1) for i, w in enumerate(widths)]
    lines.insert(1, "|" + "|".join("-" + dashes for dashes in rule) + "|")
    return "\n".join(lines)
