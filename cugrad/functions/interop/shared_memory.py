"""Tensors in memory that several processes see."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from ...autograd.recording.mirrors import lying, mirrors_of
from ...ops.views.strided import address_of, storage_of
from ...tensor import Tensor

__all__ = ["METHODS", "SharedBlock", "block_of", "shared_copy", "sharing"]


class SharedBlock:
    """Memory behind a file without a name, mapped as long as an array refers to this object.

    Another process maps it, too, by a descriptor of the file that it was sent or has inherited; the
    block closes it, unless it has an `owner` that does so when nothing refers to it.
    """

    descriptor = -1
    owner: Any = None

    def __init__(self, nbytes: int, descriptor: int | None = None, owner: Any = None) -> None:
        import mmap  # later than `import cugrad`, which it would slow down

        self.nbytes, self.owner = nbytes, owner
        if descriptor is None:
            descriptor = _unnamed_file(max(nbytes, 1))
        self.descriptor = descriptor  # from here on it is this object's to close
        own: Any = {} if sys.version_info < (3, 13) else {"trackfd": False}  # no second descriptor
        self._memory = mmap.mmap(descriptor, max(nbytes, 1), **own)
        whole = np.frombuffer(self._memory, np.uint8)
        self.__array_interface__ = dict(whole.__array_interface__)

    def array(self, shape: Any, dtype: Any, strides: Any = None, offset: int = 0) -> Any:
        """An array in this memory; `offset` and `strides` are in bytes."""
        return np.ndarray(shape, dtype, np.asarray(self), offset, strides)

    def __del__(self) -> None:
        if self.descriptor >= 0 and self.owner is None:
            os.close(self.descriptor)


def _unnamed_file(nbytes: int) -> int:
    """The descriptor of a new file that goes with its last one."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("cugrad", os.MFD_CLOEXEC)
    else:
        import tempfile

        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        if hasattr(os, "posix_fallocate"):  # else a full memory would end the process at a write
            os.posix_fallocate(descriptor, 0, nbytes)
        else:
            os.ftruncate(descriptor, nbytes)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def block_of(array: Any) -> SharedBlock | None:
    """The shared memory that an array lies in; None for other memory."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array if isinstance(array, SharedBlock) else None


def shared_copy(array: Any) -> Any:
    """A copy in shared memory, with the strides of an array without gaps, else row by row."""
    block = SharedBlock(array.nbytes)
    order = sorted(range(array.ndim), key=lambda d: -array.strides[d])
    dense = array.transpose(order).flags.c_contiguous
    copy = block.array(array.shape, array.dtype, array.strides if dense else None)
    copy[...] = array
    return copy


def sharing(tensor: Tensor) -> list[Tensor]:
    """The tensor that this one is a view of, or itself, and all of its views."""
    base = tensor if tensor._base is None else tensor._base
    refs = [] if base._rare is None else base._rare.views or []
    return [base, *(view for view in (ref() for ref in refs) if view is not None)]


def share_memory_(self: Tensor) -> Tensor:
    """Moves a tensor's elements into memory that other processes can see; nothing on a GPU.

    Processes that are started afterwards, or get the tensor through a queue of
    `torch.multiprocessing`, change and see the same numbers. The tensors that it is a view of, and
    their other views, move with it; what `detach()` or `numpy()` gave stays behind.

    >>> import cugrad as torch
    >>> x = torch.ones(3)
    >>> x[:2].share_memory_().zero_().is_shared(), x.is_shared(), x
    (True, True, tensor([0., 0., 1.]))
    """
    if not self.is_cpu or is_shared(self):
        return self
    family = sharing(self)
    if len(family) == 1:
        self._form, self._array = None, shared_copy(self._array)
        return self
    flat, _ = storage_of(family[0]._array)
    if flat.ndim != 1:
        raise RuntimeError(
            "share_memory_(): the tensor shares memory that is not cugrad's with a view, which "
            "would stay behind: share it before views are made, or share a clone"
        )
    block, start = SharedBlock(flat.nbytes), address_of(flat)
    block.array(flat.shape, flat.dtype)[...] = flat

    def moved(array: Any) -> Any:
        place = address_of(array) - start if array.size else 0
        return block.array(array.shape, array.dtype, array.strides, place)

    for tensor in family:
        if lying(tensor) is tensor._array:
            tensor._form, tensor._array = None, moved(tensor._array)
    for mirror in mirrors_of(family[0]):
        if mirror.behind is None and np.may_share_memory(mirror.memory, flat):
            mirror.memory = moved(mirror.memory)
    return self


def is_shared(self: Tensor) -> bool:
    """Whether other processes can see the elements: after `share_memory_`, and on CUDA.

    >>> import cugrad as torch
    >>> torch.ones(3).is_shared()
    False
    """
    return self.is_cuda or block_of(lying(self)) is not None


METHODS = {"is_shared": is_shared, "share_memory_": share_memory_}
