"""What must be the same in both runs of a checkpointed function, and its text in errors."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import dtypes
from ..autograd.mode import state
from ..autograd.recording.op_node import OpNode
from ..backends import backend_of
from ..device import device as Device
from ..tensor import Size, Tensor

__all__ = [
    "TIP",
    "TRAITS",
    "CheckpointError",
    "Saved",
    "Traits",
    "by",
    "described",
    "op_name",
    "saved_name",
]

HOST = Device("cpu")


class Saved(NamedTuple):
    """A tensor that was saved: by which op, its traits, as what, and whether as the op's first."""

    op: str
    traits: Any
    name: str
    is_first: bool


Traits = Callable[[Tensor, str], tuple[Any, ...]]  # of a saved tensor, and of the op that saves it
TIP = (
    "Tip: To see a more detailed error message, either pass `debug=True` to "
    "`torch.utils.checkpoint.checkpoint(...)` or wrap the code block with "
    "`with torch.utils.checkpoint.set_checkpoint_debug_enabled(True):` to enable checkpoint-debug "
    "mode globally."
)


class CheckpointError(RuntimeError):
    """The function of a checkpoint did something else when it was run again."""

    __module__ = "cugrad.utils.checkpoint"  # the name that a traceback shows


def default_traits(tensor: Tensor, op: str) -> tuple[Any, ...]:
    """What must be the same when the function runs again: shape, dtype, and device."""
    array = tensor._array
    return array.shape, array.dtype, HOST if type(array) is np.ndarray else tensor.device


def op_traits(tensor: Tensor, op: str) -> tuple[Any, ...]:
    """The same, and the op that saves."""
    return *default_traits(tensor, op), op


def bit_traits(tensor: Tensor, op: str) -> tuple[Any, ...]:
    """The same, and a checksum of the elements, for which the host waits."""
    host = np.ascontiguousarray(backend_of(tensor._array).to_host(tensor._array))
    return *op_traits(tensor, op), zlib.crc32(host.view(np.uint8).data)


def described(traits: tuple[Any, ...]) -> dict[str, Any]:
    """Traits as an error shows them."""
    shape, dtype, *more = traits
    names = ("shape", "dtype", "device", "op", "crc32")
    return dict(zip(names, (Size(shape), dtypes.of(dtype), *more)))


TRAITS: dict[str, Traits | None] = {
    "default": default_traits, "none": None, "ops": op_traits, "bits": bit_traits,
}  # fmt: skip


def by(was: str, now: str | None = None) -> str:
    """The line that says which op saved a tensor, if that is known."""
    if not was:
        return ""
    return f"saved by {was}\n" if now in (None, was) else f"saved by {was}, then by {now}\n"


def saved_name(node: Any) -> str:
    """What the node that saves calls the tensor that it saves now."""
    return "" if node is None else str(node.plan.saved_name(state.saving_at))


def op_name(node: Any) -> str:
    """The name of the node that saves."""
    if node is None:
        return ""
    name = node.plan.op.node_name if isinstance(node, OpNode) else None
    return name if type(name) is str else str(node.name())
