"""How tensors get to another process: in shared memory, by a descriptor of it.

Both ends then have the same elements. A view, and a tensor of which there are views, is sent as a
copy, which the receiver alone has.
"""

from __future__ import annotations

from multiprocessing.reduction import DupFd, ForkingPickler
from typing import Any

from ..functions.interop.shared_memory import (
    SharedBlock,
    block_of,
    share_memory_,
    shared_copy,
    sharing,
)
from ..nn.parameter import Parameter
from ..tensor import Tensor, make
from ..utils.hooks import warn_if_has_hooks

__all__ = ["get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy"]

STRATEGY = "file_descriptor"


def get_all_sharing_strategies() -> set[str]:
    """The one way there is: memory is sent as a descriptor of an open file."""
    return {STRATEGY}


def get_sharing_strategy() -> str:
    """ "file_descriptor"."""
    return STRATEGY


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepts "file_descriptor", and PyTorch's "file_system", which changes nothing here."""
    if new_strategy not in (STRATEGY, "file_system"):
        raise AssertionError(f"invalid sharing strategy {new_strategy!r}; want {STRATEGY!r}")


def _reduced(t: Tensor) -> tuple[Any, ...]:
    """What is sent of a tensor: where its memory is, and how its elements lie in it."""
    if not t.is_cpu:
        raise RuntimeError(
            f"a tensor on {t.device} cannot be sent to another process: send x.cpu()"
        )
    if t.requires_grad and not t.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd "
            "does not support crossing process boundaries.  If you just want to transfer the data, "
            "call detach() on the tensor before serializing (e.g., putting it on the queue)."
        )
    warn_if_has_hooks(t)
    array = _in_shared_memory(t)
    block = block_of(array)
    assert block is not None
    offset = array.__array_interface__["data"][0] - block.__array_interface__["data"][0]
    lying = array.shape, array.dtype, array.strides, offset
    return _received, (DupFd(block.descriptor), block.nbytes, lying, type(t), t.requires_grad)


def _in_shared_memory(t: Tensor) -> Any:
    if block_of(t._array) is None:
        if len(sharing(t)) > 1:  # the rest of their memory is not sent with them
            return shared_copy(t._array)
        share_memory_(t)
    return t._array


def _received(
    descriptor: Any, nbytes: int, lying: tuple[Any, ...], kind: type, requires_grad: bool
) -> Tensor:
    shape, dtype, strides, offset = lying
    try:
        own = descriptor.detach()
    except (EOFError, OSError) as error:
        raise RuntimeError(
            "a tensor was received from a process that has ended: it must live until the tensor "
            "has arrived (let it wait for an Event that the receiver sets)"
        ) from error
    array = SharedBlock(nbytes, own).array(shape, dtype, strides, offset)
    if kind is Parameter:
        return Parameter(make(array), requires_grad)
    return make(array, requires_grad)


for _kind in (Tensor, Parameter):
    ForkingPickler.register(_kind, _reduced)
